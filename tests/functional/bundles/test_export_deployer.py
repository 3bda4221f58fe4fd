"""What ./scripts/export-deployer writes is juju-deployer's format: the real ConfigStack of its last release reads it.

Importing that runs `juju`, to learn whether it is 1 or 2: a stub answers.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
CHARMS = ["container-spawner", "load-claimer", "metrics-collector"]
SERIES = ["noble", "resolute"]
"""Those of the bases that the charms are packed for."""

READ = """
import json, sys
from deployer.config import ConfigStack
stack = ConfigStack([sys.argv[1]])
found = {}
for name in stack.keys():
    deployment = stack.get(name)
    ours = not any(str(each.get("charm")).startswith("cs:") for each in deployment.data["services"].values())
    if ours and deployment.data.get("series"):  # without one it is there to inherit from, and finds no charm
        deployment.resolve()  # checks options against the charms' configuration, and relations
    found[name] = {
        "version": deployment.version,
        "series": deployment.data.get("series"),
        "relations": [list(pair) for pair in deployment.get_relations()],
        "services": {
            each.name: {
                "units": each.num_units,
                "options": each.config,
                "constraints": each.constraints,
                "to": each.unit_placement,
                "charm": deployment.get_charm_for(each.name).path
                if deployment.get_charm_for(each.name).is_local()
                else deployment.get_charm_for(each.name).charm_url,
            }
            for each in deployment.get_services()
        },
    }
json.dump(found, sys.stdout)
"""


def export(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "scripts/export-deployer", *arguments], capture_output=True, text=True, cwd="/"
    )


def words(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What the script itself said, without what it installed."""
    return [line for line in done.stderr.splitlines() if " installing " not in line]


@pytest.fixture(scope="module")
def deployer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Reads a file with the real ConfigStack; the charms lie unpacked where juju-deployer looks for them."""
    place = tmp_path_factory.mktemp("deployer")
    script = f"cd {ROOT} && . scripts/_bootstrap.sh && need_uv && need_deployer"
    subprocess.run(["bash", "-ec", script], check=True, capture_output=True)
    (place / "bin").mkdir()
    stub = place / "bin" / "juju"
    stub.write_text("#!/bin/sh\necho 2.9.51-ubuntu-amd64\n")
    stub.chmod(0o755)
    for name in CHARMS:
        charm = yaml.safe_load((ROOT / "charms" / name / "charmcraft.yaml").read_text())
        for series in SERIES:
            (place / series / name).mkdir(parents=True)
            (place / series / name / "metadata.yaml").write_text(yaml.safe_dump({"name": name}))
            (place / series / name / "config.yaml").write_text(yaml.safe_dump(charm.get("config", {})))
    path = f"{place}/bin:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(place), "JUJU_REPOSITORY": str(place)}

    def read(text: str) -> dict[str, Any]:
        (place / "clouds.yaml").write_text(text)
        command = [ROOT / ".cache/deployer/bin/python", "-W", "ignore", "-c", READ, place / "clouds.yaml"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.replace(str(place), "REPOSITORY"))

    return read


def test_the_bundle_is_read_as_a_version_3_deployment_of_the_series_it_is_packed_for(deployer: Any) -> None:
    noble = deployer(export().stdout)["noble"]

    assert noble["version"] == 3
    assert noble["series"] == "noble"
    assert noble["services"] == {
        "load-claimer": {
            "units": 1,
            "options": None,
            "constraints": "cpu-cores=2 mem=4G",
            "to": [],
            "charm": "REPOSITORY/noble/load-claimer",
        },
        "container-spawner": {
            "units": 1,
            "options": None,
            "constraints": "cpu-cores=2 mem=4G",
            "to": [],
            "charm": "REPOSITORY/noble/container-spawner",
        },
        "metrics-collector": {
            "units": 1,
            "options": None,
            "constraints": "mem=4G",
            "to": [],
            "charm": "REPOSITORY/noble/metrics-collector",
        },
    }
    assert sorted(map(sorted, noble["relations"])) == [
        ["container-spawner:scale-run", "metrics-collector:scale-run"],
        ["load-claimer:scale-run", "metrics-collector:scale-run"],
    ]


def test_a_deployment_of_an_overlay_inherits_the_bundle(deployer: Any) -> None:
    etcd = deployer(export().stdout)["noble-etcd"]

    assert set(etcd["services"]) == {*CHARMS, "etcd", "easyrsa"}
    assert etcd["series"] == "noble"
    assert etcd["services"]["load-claimer"]["options"] == {"target": "etcd"}
    assert etcd["services"]["load-claimer"]["constraints"] == "cpu-cores=2 mem=4G"
    assert etcd["services"]["etcd"]["charm"] == "cs:etcd"
    assert ["load-claimer:etcd", "etcd:db"] in etcd["relations"]
    assert ["load-claimer:scale-run", "metrics-collector:scale-run"] in etcd["relations"]


def test_options_of_an_overlay_that_adds_no_charm_are_in_the_charms_configuration(deployer: Any) -> None:
    services = deployer(export().stdout)["noble-pacemaker"]["services"]

    assert set(services) == {*CHARMS}
    for name in ("load-claimer", "container-spawner"):
        assert services[name]["options"] == {"target": "pacemaker"}


def test_a_cloud_lies_below_every_deployment_of_its_file(deployer: Any) -> None:
    maas = deployer(export("--cloud", str(ROOT / "bundles/overlays/maas.yaml")).stdout)

    for name in ("noble", "noble-etcd", "noble-lxd"):
        services = maas[name]["services"]
        assert services["load-claimer"]["constraints"] == "tags=tipping-point cpu-cores=4 mem=8G"
        assert services["metrics-collector"]["constraints"] == "tags=tipping-point mem=4G"
        assert services["container-spawner"]["options"]["target"] == (
            "lxd" if name == "noble-lxd" else "maas"
        )
        assert all(service["to"] == [] for service in services.values()), "version 3 makes no machines"
    assert "noble-maas" not in maas


def test_a_cloud_of_ones_own_is_a_file_of_its_own(deployer: Any, tmp_path: Path) -> None:
    cloud = tmp_path / "seamicro.yaml"
    cloud.write_text("applications: {load-claimer: {num_units: 8, constraints: arch=amd64}}")

    read = deployer(export("--cloud", str(cloud)).stdout)

    assert read["noble"]["services"]["load-claimer"]["units"] == 8
    assert read["noble-maas"]["services"]["load-claimer"]["units"] == 8


def test_overlays_that_the_format_has_no_words_for_are_left_out_and_named(deployer: Any) -> None:
    done = export()

    left_out = [line for line in words(done) if "left out" in line]
    assert [line.split()[1] for line in left_out] == ["cos.yaml:", "juju.yaml:", "openstack.yaml:"]
    assert not {"noble-cos", "noble-juju", "noble-openstack"} & set(deployer(done.stdout))


@pytest.mark.parametrize(
    ("arguments", "content", "said"),
    [
        (["--cloud", "FILE"], None, "FILE: No such file or directory: expected a bundle's file"),
        (
            ["--cloud", "FILE"],
            "[1]",
            "FILE: expected a bundle: YAML with `applications`, `relations` or both",
        ),
        (["--cloud", "FILE"], "a: [", "FILE: while parsing"),
        (
            ["--cloud", "FILE"],
            "saas: {}",
            "FILE: saas: expected none, as juju-deployer knows no relations across",
        ),
        (
            ["--series", "jammy"],
            None,
            "unrecognized arguments: --series jammy (export-deployer --help lists what is accepted)",
        ),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(
    arguments: list[str], content: str | None, said: str, tmp_path: Path
) -> None:
    file = tmp_path / "cloud.yaml"
    if content is not None:
        file.write_text(content)

    done = export(*(each.replace("FILE", str(file)) for each in arguments))

    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = words(done)
    assert line.startswith("export-deployer: " + said.replace("FILE", str(file)))
