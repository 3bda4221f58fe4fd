"""Runs on a real OpenStack control plane: the program as a user runs it, and the databases as they are afterwards."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.openstack.cloud import OpenstackLab
from tests.functional.program import WITHIN_S, start
from tests.functional.spawn_runs import ended, merged_plan, named
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.tags import DELAYED, FREED

FEW: dict[str, Any] = {
    "name": "few",
    "target": {"kind": "openstack", "image": "tiny", "flavor": "tiny"},
    "workload": {
        "kind": "spawn",
        "until": "started",
        "concurrency": 4,
        "observe_every": "0s",
        "timeout": "10m",
    },
    "stages": [{"instances": 6, "hold": "1s"}],
}
LONG_S = 1.5 * WITHIN_S
"""A server takes a CPU-second and a half of the control plane, and a tenant more, on a machine that is busy."""


def plan_of(directory: Path, **changes: Any) -> Path:
    """A plan of a few servers, changed as `merged_plan` does."""
    return merged_plan(directory, FEW, changes)


def start_at(
    lab: OpenstackLab,
    plan: Path,
    out: Path,
    *more: str | Path,
    cloud: str = "admin",
    begin: Callable[..., subprocess.Popen[str]] = start,
) -> subprocess.Popen[str]:
    """Start a run of a plan at a lab, as one of the lab's clouds."""
    settings = [*lab.settings(), f"target.cloud={cloud}"]
    sets = [part for setting in settings for part in ("--set", setting)]
    return begin("run", plan, *sets, "--out", out, *more)


def run_at(
    lab: OpenstackLab, plan: Path, out: Path, *more: str | Path, cloud: str = "admin"
) -> subprocess.CompletedProcess[str]:
    """Run a plan at a lab to its end."""
    return ended(start_at(lab, plan, out, *more, cloud=cloud), LONG_S)


def run_in(out: Path) -> RunData:
    """The one run that is kept in a directory."""
    (directory,) = [path for path in out.iterdir() if path.is_dir()]
    return load_run(directory)


def counts(run: RunData, stage: int = 1) -> Counter[str]:
    """How often each operation ended how in a stage: `boot_server.ok`."""
    counted = {
        name: found.total
        for name, found in run.stage(stage).histograms.items()
        if not name.startswith(("generator", "poll")) and not name.endswith((DELAYED, FREED))
    }
    return Counter(counted)


def last_placed(run: RunData, event: str = "placed") -> dict[str, int]:
    """How many things were on which host, as was told last."""
    told = named(run.directory, event)
    last: dict[str, int] = told[-1]["counts"] if told else {}
    return last


def errors(run: RunData, operation: str) -> set[str]:
    """What failures of an operation said."""
    return {str(event["error"]) for event in named(run.directory, "error", operation=operation)}
