"""Runs on the simulated region: the program as a user runs it, and the region's database as it is afterwards."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.maas.simulator import MaasLab
from tests.functional.program import start
from tests.functional.spawn_runs import ended, merged_plan, named
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.tags import DELAYED, FREED

FEW: dict[str, Any] = {
    "name": "few",
    "target": {"kind": "maas"},
    "workload": {
        "kind": "spawn",
        "until": "started",
        "concurrency": 6,
        "observe_every": "0s",
        "poll_every": "200ms",
        "timeout": "5m",
    },
    "stages": [{"instances": 6, "hold": "1s"}],
}
REDFISH: dict[str, Any] = {
    "kind": "registered",
    "power_type": "redfish",
    "power_parameters": {"power_address": "bmc-{number}", "power_user": "{name}"},
}
"""Machines whose power the lab switches; their password is in the file of credentials."""


def plan_of(directory: Path, **changes: Any) -> Path:
    """A plan of a few machines, changed as `merged_plan` does."""
    return merged_plan(directory, FEW, changes)


def start_at(
    lab: MaasLab,
    plan: Path,
    out: Path,
    *more: str | Path,
    begin: Callable[..., subprocess.Popen[str]] = start,
) -> subprocess.Popen[str]:
    """Start a run of a plan at a lab."""
    sets = [part for setting in lab.settings() for part in ("--set", setting)]
    return begin("run", plan, *sets, "--out", out, *more)


def run_at(lab: MaasLab, plan: Path, out: Path, *more: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a plan at a lab to its end."""
    return ended(start_at(lab, plan, out, *more))


def counts(run: RunData, stage: int = 1) -> Counter[str]:
    """How often each operation ended how in a stage: `commission.ok`."""
    return Counter(
        {
            name: found.total
            for name, found in run.stage(stage).histograms.items()
            if not name.startswith(("generator", "poll")) and not name.endswith((DELAYED, FREED))
        }
    )


def errors(run: RunData, operation: str) -> set[str]:
    """What failures of an operation said."""
    return {str(event["error"]) for event in named(run.directory, "error", operation=operation)}
