"""A target of somebody else's: the documentation's example, installed beside the suite, from the command line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.functional.program import TO_THE_END, WITHIN_S, command
from tippingpoint.rundir.results import load_run

EXAMPLE = Path(__file__).parents[3] / "docs/how-to/example-target"
UNHURRIED = ("--set", "workload.claim_time=1m")
"""No lease runs out while a busy machine stands still."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the plan and an empty directory of leases, and beside it the package as pip installs it."""
    site = tmp_path / "site"
    shutil.copytree(EXAMPLE / "lease_directory", site / "lease_directory")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    information = site / f"lease_directory-{project['version']}.dist-info"
    information.mkdir()
    name = f"Name: {project['name']}\nVersion: {project['version']}\n"
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\n{name}")
    lines = [
        f"[{group}]\n" + "".join(f"{kind} = {value}\n" for kind, value in entries.items())
        for group, entries in project["entry-points"].items()
    ]
    (information / "entry_points.txt").write_text("".join(lines))
    (tmp_path / "work").mkdir()
    (tmp_path / "work/leases").mkdir()
    shutil.copy(EXAMPLE / "plan.yaml", tmp_path / "work/plan.yaml")
    return tmp_path / "work"


def run(place: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The program, where the package is installed."""
    paths = [str(place.parent / "site"), os.environ.get("PYTHONPATH", str(EXAMPLE.parents[2]))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(
        command(*arguments), cwd=place, env=environment, capture_output=True, text=True, timeout=WITHIN_S, check=False
    )  # fmt: skip


def test_a_run_of_it_is_held_and_leaves_nothing(place: Path) -> None:
    """Given the example, when its plan is run, then leases are held in its directory, the verdict and report say what
    they say of any target, the ledger names what was made, and nothing of it is left."""
    ended = run(place, "run", "plan.yaml", *UNHURRIED)
    assert ended.returncode in TO_THE_END, ended.stderr
    assert ("\nMet: " in ended.stdout) == (ended.returncode == 0), ended.stdout
    (directory,) = (place / "runs").iterdir()
    measured = load_run(directory)
    assert ended.returncode == 0 or measured.stalls, ended.stdout
    assert (measured.manifest.target.kind, measured.manifest.target.version) == ("directory", "1.0")
    assert measured.manifest.status == "complete"
    (stage,) = measured.stages
    assert stage.gauges["held"] == 20
    assert stage.response("claim").total >= 20
    assert stage.response("extend").total >= 20
    (entry,) = map(json.loads, (directory / "ledger.jsonl").read_text().splitlines())
    assert entry["kind"] == "directory"
    assert entry["target"]["path"] == str(place / "leases")
    assert list((place / "leases").iterdir()) == []
    report = run(place, "report", directory)
    assert report.returncode == 0, report.stderr
    assert "leases-in-a-directory" in report.stdout
    assert "directory 1.0" in report.stdout


def test_what_a_cut_run_left_is_cleaned_and_nothing_else(place: Path) -> None:
    assert run(place, "run", "plan.yaml", *UNHURRIED).returncode in TO_THE_END
    (directory,) = (place / "runs").iterdir()
    prefix = json.loads((directory / "ledger.jsonl").read_text())["prefix"]
    for name in (f"{prefix}-3", f"{prefix}-4", "tp00000000-3", "somebody's"):
        (place / "leases" / name).write_text("0")
    cleaned = run(place, "clean", directory)
    assert (cleaned.returncode, cleaned.stdout, cleaned.stderr) == (0, "removed 2\n", "")
    assert {path.name for path in (place / "leases").iterdir()} == {"tp00000000-3", "somebody's"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "target.pth=leases",
            "target.pth: leases: expected one of kind, path, for directory (did you mean path?)",
        ),
        ("target.path=3", "target.path: 3: expected"),
        ("target.kind=directry", "target.kind: directry: expected one of etcd, juju, pacemaker, directory"),
    ],
)
def test_a_plan_of_it_that_is_wrong_says_so_in_one_line(place: Path, change: str, said: str) -> None:
    refused = run(place, "run", "plan.yaml", "--set", change)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"tippingpoint: {said}")
    assert refused.stderr.count("\n") == 1


def test_a_directory_that_is_not_there_is_a_target_that_fails(place: Path) -> None:
    refused = run(place, "run", "plan.yaml", "--set", "target.path=elsewhere")
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr == "tippingpoint: target.path: elsewhere: not there: expected a directory\n"


def test_a_run_of_a_target_that_is_gone_is_still_read(place: Path) -> None:
    """Given a run whose target's package was removed, then its report is there, and cleaning says what is missing."""
    assert run(place, "run", "plan.yaml", *UNHURRIED).returncode in TO_THE_END
    (directory,) = (place / "runs").iterdir()
    shutil.rmtree(place.parent / "site")
    report = run(place, "report", directory)
    assert (report.returncode, report.stderr) == (0, "")
    assert "leases-in-a-directory" in report.stdout
    cleaned = run(place, "clean", directory)
    assert (cleaned.returncode, cleaned.stdout, cleaned.stderr.count("\n")) == (2, "", 1)
