"""./scripts/pack: what is in the packs, that they are the same twice, and that the charms in them run."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.charms.charm_unit import CharmUnit, Dispatched, unpack, write_program
from tests.functional.charms.packing import OF_BASE, OF_LATER, ROOT, clone, find_python, packed, run_pack

CHARMS = ["container-spawner", "load-claimer", "metrics-collector"]
ANALYSE = Path(__file__).with_name("analyse_pack.py")
GENERATORS = ["container-spawner", "load-claimer"]
LIMIT = 40_000_000  # bytes of a pack
CHECKS = {
    "language": "python",
    "framework": "operator",
    "juju-actions": "ok",
    "juju-config": "ok",
    "metadata": "ok",
    "naming-conventions": "ok",
    "entrypoint": "ok",
    "ops-main-call": "ok",
    "additional-files": "nonapplicable",  # it compares with the build's directory, which a pack does not have
    "pydeps": "nonapplicable",  # there are no libraries of Charmhub
}
"""What each check of `charmcraft analyze` says. analyse_pack.py does in its own way what pip-check does."""
MACHINES = {"amd64": (62, "x86_64"), "arm64": (183, "aarch64")}
"""The machine of ELF files (e_machine of elf.h), and its name in the tags of wheels."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a mount namespace")


@pytest.fixture(params=CHARMS)
def unit(
    request: pytest.FixtureRequest, runnable: tuple[dict[str, Path], Path], tmp_path: Path
) -> Iterator[CharmUnit]:
    with CharmUnit(runnable[0][request.param], runnable[1], tmp_path) as unit:
        yield unit


def content(path: Path, name: str) -> Any:
    with zipfile.ZipFile(path) as archive:
        return yaml.safe_load(archive.read(name))


def charmcraft(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "charms" / name / "charmcraft.yaml").read_text())


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_all_three_are_packed_for_the_base_and_are_where_the_bundle_of_a_fresh_clone_looks(
    checkout: Path, packs: dict[str, Path]
) -> None:
    bundle = yaml.safe_load((checkout / "bundles" / "scale.yaml").read_text())

    assert sorted(packs) == CHARMS
    for name, path in packs.items():
        assert path.name == f"{name}_ubuntu@24.04-amd64.charm"
        assert (checkout / "bundles" / bundle["applications"][name]["charm"]).resolve() == path.resolve()
        assert path.stat().st_size < LIMIT


@pytest.mark.parametrize("name", CHARMS)
def test_a_pack_passes_charmcrafts_named_checks_and_says_who_packed_it(
    packs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    unpack(packs[name], tmp_path / "charm")
    python = ROOT / ".cache/charmcraft/bin/python"

    asked = subprocess.run([python, ANALYSE, tmp_path / "charm", OF_BASE], capture_output=True, text=True)

    assert asked.returncode == 0, asked.stderr
    assert json.loads(asked.stdout) == {
        "read": [name, ["ubuntu", "24.04", ["amd64"]]],
        "checks": CHECKS,
        "lacking": [],
    }
    manifest = content(packs[name], "manifest.yaml")
    assert manifest["packed-by"].startswith("scripts/pack of Tipping Point")
    assert manifest["python"] == OF_BASE
    said = charmcraft(name)
    metadata = content(packs[name], "metadata.yaml")
    assert metadata["assumes"] == ["juju >= 3.6"]
    assert (metadata["docs"], metadata["source"], metadata["issues"]) == tuple(
        said["links"][each] for each in ("documentation", "source", "issues")
    )
    for role in ("peers", "requires", "provides"):
        assert set(metadata.get(role, {})) == set(said.get(role, {}))
    assert set(content(packs[name], "actions.yaml")) == set(said["actions"])
    if "config" in said:
        assert set(content(packs[name], "config.yaml")["options"]) == set(said["config"]["options"])


@pytest.mark.parametrize("name", CHARMS)
def test_a_pack_has_charmcrafts_layout_with_all_that_python_needs(packs: dict[str, Path], name: str) -> None:
    with zipfile.ZipFile(packs[name]) as archive:
        modes = {entry.filename: oct(entry.external_attr >> 16 & 0o777) for entry in archive.infolist()}

    tops = {file.partition("/")[0] for file in modes}
    assert tops - {"config.yaml"} == {
        "actions.yaml",
        "dispatch",
        "icon.svg",
        "manifest.yaml",
        "metadata.yaml",
        "src",
        "venv",
    }
    assert modes["dispatch"] == modes["src/charm.py"] == "0o755"
    packages = f"venv/lib/python{OF_BASE}/site-packages"
    assert f"{packages}/ops/main.py" in modes
    assert f"{packages}/tippingpoint/targets/juju/plans/juju-leases-small.yaml" in modes
    assert f"{packages}/tippingpoint/report/assets/uPlot.iife.min.js" in modes
    assert f"{packages}/tippingpoint_charm/__init__.py" in modes
    assert modes[f"{packages}/ops_tracing/"] == "0o755"  # so that a refresh without it removes all of it
    libraries = [file for file in modes if file.endswith(".so")]
    assert [file for file in libraries if ".cpython-312-x86_64-linux-gnu" in file]
    assert not [file for file in libraries if re.search(r"cpython-3(?!12)|aarch64", file)]
    assert not [file for file in modes if "__pycache__" in file or f"{packages}/bin/" in file]


def test_nothing_of_the_machine_that_packed_is_in_a_pack(checkout: Path, packs: dict[str, Path]) -> None:
    here = [str(ROOT), str(checkout), str(Path.home() / ".pyenv"), sysconfig.get_paths()["purelib"]]

    for path in packs.values():
        with zipfile.ZipFile(path) as archive:
            for entry in archive.namelist():
                text = archive.read(entry)
                assert not [word for word in here if word.encode() in text], entry


def test_packs_are_the_same_bytes_at_another_place_under_another_umask_zone_and_locale(
    packs: dict[str, Path],
) -> None:
    before = os.umask(0o077)
    try:
        with clone() as elsewhere:
            again = packed(elsewhere, "--arch", "amd64", *GENERATORS, TZ="Asia/Tokyo", LC_ALL="C")
            found = {name: digest(path) for name, path in again.items()}
    finally:
        os.umask(before)

    assert found == {name: digest(packs[name]) for name in GENERATORS}


def test_a_pack_for_arm64_is_made_here_and_all_of_it_is_for_arm64(
    checkout: Path, packs: dict[str, Path]
) -> None:
    """There is no arm64 here to import it on. So: it has the modules of the pack for amd64, each built for arm64."""
    (path,) = packed(checkout, "--arch", "arm64", "metrics-collector").values()

    assert path.name == "metrics-collector_ubuntu@24.04-arm64.charm"
    assert (checkout / "dist" / "metrics-collector.charm").resolve() == path.resolve()
    assert packs["metrics-collector"].exists()
    assert path.stat().st_size < LIMIT
    manifest = content(path, "manifest.yaml")
    assert manifest["bases"] == [{"name": "ubuntu", "channel": "24.04", "architectures": ["arm64"]}]
    ours, other = binaries(path, "arm64"), binaries(packs["metrics-collector"], "amd64")
    assert ours == other
    assert any(each.startswith("numpy/") for each in ours)


@pytest.fixture(scope="module")
def packs_for_later(checkout: Path) -> dict[str, Path]:
    return packed(checkout, "--arch", "amd64", "--base", "ubuntu@26.04")


def test_packs_for_the_next_base_have_its_python_and_the_bundle_keeps_its_own(
    checkout: Path, packs: dict[str, Path], packs_for_later: dict[str, Path]
) -> None:
    for name, path in packs_for_later.items():
        assert path.name == f"{name}_ubuntu@26.04-amd64.charm"
        assert path.stat().st_size < LIMIT
        assert content(path, "manifest.yaml")["bases"] == [
            {"name": "ubuntu", "channel": "26.04", "architectures": ["amd64"]}
        ]
        assert (checkout / "dist" / f"{name}.charm").resolve() == packs[name].resolve()
        modules, earlier = (
            {re.sub(r"cpython-\d+", "cpython-X", each) for each in binaries(pack, "amd64")}
            for pack in (path, packs[name])
        )
        assert modules == earlier
        with zipfile.ZipFile(path) as archive:
            libraries = [file for file in archive.namelist() if file.endswith(".so")]
        assert not [file for file in libraries if re.search(r"cpython-3(?!14)", file)]


@needs_root
@pytest.mark.parametrize("name", CHARMS)
def test_packs_for_the_next_base_go_through_a_life_on_its_python(
    packs_for_later: dict[str, Path], tmp_path: Path, name: str
) -> None:
    python = find_python(OF_LATER)
    if python is None:
        pytest.skip(f"no Python {OF_LATER} here")
    with CharmUnit(packs_for_later[name], python, tmp_path) as unit:
        live(unit)


def binaries(path: Path, arch: str) -> set[str]:
    """The extension modules of a pack, without the machine in their names, after a look at each file and wheel."""
    machine, tag = MACHINES[arch]
    modules: set[str] = set()
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            read = archive.read(name)
            if name.endswith(".dist-info/WHEEL"):
                tags = re.findall(rb"^Tag: (.*)$", read, re.MULTILINE)
                assert tags
                assert all(each.endswith((b"-any", tag.encode())) for each in tags), (name, tags)
            if read[:4] == b"\x7fELF":
                assert int.from_bytes(read[18:20], "little") == machine, name
                module = name.partition("/site-packages/")[2].replace(tag, "MACHINE")
                if not re.search(r"\.libs/", module):  # the libraries' names have digests
                    modules.add(module)
    return modules


@needs_root
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the stand-in for charmcraft packs amd64")
def test_where_charmcraft_packs_it_is_charmcraft_that_packs(tmp_path: Path) -> None:
    """The host says it is an Ubuntu, and has a charmcraft, a stand-in that writes down how it was called."""
    (tmp_path / "os-release").write_text("ID=ubuntu\n")
    stub = tmp_path / "bin" / "charmcraft"
    said = 'echo "$PWD $CHARMCRAFT_EXPERIMENTAL_MONOREPO $*" >load-claimer_ubuntu@24.04-amd64.charm'
    stub.parent.mkdir()
    write_program(stub, said)
    environment = os.environ | {"PATH": f"{stub.parent}:{os.environ['PATH']}"}

    with clone() as checkout:
        (checkout / ".git").mkdir()
        command = (
            f"mount --bind {tmp_path}/os-release /etc/os-release && exec {checkout}/scripts/pack load-claimer"
        )
        unshared = ["unshare", "--mount", "sh", "-c", command]
        done = subprocess.run(unshared, env=environment, capture_output=True, text=True)
        made = (checkout / "dist" / "load-claimer.charm").read_text()

    assert done.stdout == "dist/load-claimer_ubuntu@24.04-amd64.charm\n", done.stderr
    assert made == f"{checkout}/charms/load-claimer 1 pack --platform ubuntu@24.04:amd64\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load-clamer"], "NAME: load-clamer: expected container-spawner, load-claimer, metrics-collector"),
        (["--for-python", "3.10"], "--for-python: 3.10: expected 3.11 or newer, such as 3.12"),
        (["--base", "all", "--for-python", "3.12"], "--base: all: expected none with --for-python"),
        (["--arch", "riscv64"], "argument --arch: invalid choice: 'riscv64'"),
    ],
)
def test_what_cannot_be_packed_is_refused_in_one_line(
    checkout: Path, arguments: list[str], said: str
) -> None:
    done = run_pack(checkout, *arguments)

    assert done.returncode == 2
    assert done.stdout == ""
    last = [line for line in done.stderr.splitlines() if " installing " not in line]
    assert len(last) == 1
    assert last[0].startswith("pack: " + said)


def went_well(done: Dispatched) -> bool:
    assert done.errors == []
    assert done.code == 0, done.said
    return True


@needs_root
def test_a_packed_charm_goes_through_its_life_without_an_error(unit: CharmUnit) -> None:
    live(unit)


def live(unit: CharmUnit) -> None:
    """Dispatch what a unit goes through from its installation to its removal."""
    for event in ("install", "leader-elected", "config-changed", "start", "update-status"):
        assert went_well(unit.dispatch(f"hooks/{event}")), event
        status, message = unit.state["status"]
        assert status in ("active", "blocked", "waiting", "maintenance")
        assert status == "active" or message, "a status that is not active says what to do next"

    runs = unit.dispatch("actions/list-runs")
    assert went_well(runs)
    assert unit.name in GENERATORS or runs.state["failed"] is None
    assert (
        runs.state["results"] or "\n" not in runs.state["failed"]
    )  # a generator's agent is not running here

    for event in ("stop", "upgrade-charm", "config-changed", "start"):
        assert went_well(unit.dispatch(f"hooks/{event}")), event
    assert went_well(unit.dispatch("actions/status"))
    for event in ("stop", "remove"):
        assert went_well(unit.dispatch(f"hooks/{event}")), event


@needs_root
@pytest.mark.parametrize("unit", GENERATORS, indirect=True)
def test_a_generators_agent_runs_from_a_copy_of_the_pack_and_the_unit_then_says_what_it_lacks(
    unit: CharmUnit,
) -> None:
    for event in ("install", "config-changed", "start"):
        assert went_well(unit.dispatch(f"hooks/{event}")), event
    service = f"tippingpoint-{unit.name}-0"
    assert f"restart {service}.service" in unit.systemctl

    with unit.started(service) as copies:
        assert went_well(unit.dispatch("hooks/update-status"))
        started = unit.dispatch("actions/start", plan="juju-leases-small")
        runs = unit.dispatch("actions/list-runs")

    assert copies.startswith("/opt/tippingpoint/")
    assert unit.state["status"][0] == "blocked"
    assert "credentials" in unit.state["status"][1]
    assert started.code == 0
    assert started.errors == []
    assert started.state["failed"]
    assert "\n" not in started.state["failed"]
    assert went_well(runs)
    assert runs.state["failed"] is None


@needs_root
@pytest.mark.parametrize("unit", GENERATORS, indirect=True)
def test_a_refresh_has_the_agent_run_from_another_copy(unit: CharmUnit) -> None:
    assert went_well(unit.dispatch("hooks/install"))
    file = f"/etc/systemd/system/tippingpoint-{unit.name}-0.service"
    (before,) = re.findall("/opt/tippingpoint/[0-9a-f]+", unit.read(file))

    unit.refresh(f"venv/lib/{unit.python}/site-packages/tippingpoint/__init__.py", "# another\n")
    assert went_well(unit.dispatch("hooks/upgrade-charm"))

    (after,) = re.findall("/opt/tippingpoint/[0-9a-f]+", unit.read(file))
    assert after != before
    assert unit.read(f"{after}/tippingpoint/__init__.py").endswith("# another\n")
