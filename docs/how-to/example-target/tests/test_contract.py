"""The target's contract with runs: a load is held and removed, and after a crash `clean` removes it and nothing else.

pip install -e . pytest && pytest
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lease_directory.ledger import DirectoryEntry
from lease_directory.plan import DirectoryTarget

from tippingpoint.errors import UserError
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import name_prefix

PLAN = Path(__file__).parents[1] / "plan.yaml"
CAME_TO_AN_END = (0, 1, 4)
"""Met, missed, or withheld on a busy machine."""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where runs are started. A private target is started here, and something of somebody else's is put into it."""
    (tmp_path / "leases").mkdir()
    (tmp_path / "leases" / "somebody's").touch()
    return tmp_path


def existing(place: Path) -> set[str]:
    """Everything that is in the target, as its administrator sees it."""
    return {path.name for path in (place / "leases").iterdir()}


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "tippingpoint", *map(str, arguments)]


def tippingpoint(place: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=place, capture_output=True, text=True, check=False)


def test_a_run_leaves_nothing_behind(place: Path) -> None:
    done = tippingpoint(place, "run", PLAN)
    assert done.returncode in CAME_TO_AN_END, done.stderr
    assert existing(place) == {"somebody's"}
    (directory,) = (place / "runs").iterdir()
    assert (directory / "ledger.jsonl").read_text()
    assert tippingpoint(place, "report", directory).returncode == 0


def test_what_a_killed_run_left_is_removed_and_nothing_else(place: Path) -> None:
    # given a run that is killed while it holds its load
    with subprocess.Popen(command("run", PLAN, "--set", "stages.0.hold=10m"), cwd=place) as process:
        while existing(place) == {"somebody's"}:
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    (directory,) = (place / "runs").iterdir()
    # when it is cleaned, once it is known to have ended
    while (cleaned := tippingpoint(place, "clean", directory)).returncode:
        assert "still running" in cleaned.stderr, cleaned.stderr
        time.sleep(0.1)
    # then nothing of it is left, and a second clean finds nothing
    assert tippingpoint(place, "clean", directory).stdout == "removed 0\n"
    assert existing(place) == {"somebody's"}


def test_a_ledger_that_names_things_of_others_is_refused(place: Path) -> None:
    manifest = Manifest.model_validate(
        {"id": "r", "title": "r", "started": 0.0, "target": {"kind": "directory"}}
    )
    target = DirectoryTarget(kind="directory", path=place / "leases")
    own = DirectoryEntry(prefix=name_prefix(manifest.id), target=target)
    assert own.own(place, manifest) == own
    with pytest.raises(UserError):
        own.model_copy(update={"prefix": "somebody"}).own(place, manifest)


def test_a_target_that_is_away_is_refused_in_one_line_before_any_load(place: Path) -> None:
    refused = tippingpoint(place, "run", PLAN, "--set", "target.path=elsewhere")
    assert (refused.returncode, refused.stderr.count("\n")) == (3, 1)
    assert not (place / "runs").exists() or not list((place / "runs").iterdir())
