"""Going on with a run that was cut: its plan, what it made and under which names, and the stage it was in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import LastingEntry, own_entries
from tippingpoint.rundir.results import load_run


@dataclass(frozen=True)
class TakenUp:
    """A run that was cut, and that another one goes on with."""

    entry: LastingEntry
    """What it made, and under which names."""
    stage: int
    """The listed stage it was in, from 1: earlier ones are not done again."""


def take_up(directory: Path) -> tuple[Plan, TakenUp]:
    """What a new run needs to go on with the run in a directory; UserError when it cannot be gone on with."""
    manifest = Manifest.load(directory)
    if manifest.status == "running":
        raise UserError(
            "run", str(directory), f"one that was cut: it is still running (process {manifest.pid})"
        )
    plan = validate_plan(manifest.plan) if manifest.plan is not None else None
    if not isinstance(plan, SpawnPlan):
        raise UserError(
            "run",
            str(directory),
            "a spawn run on LXD or OpenStack: what others made is not there any more, or is to be cleaned",
        )
    made = [entry for entry in own_entries(directory, manifest) if isinstance(entry, LastingEntry)]
    if not made:
        raise UserError("run", str(directory), "a run that got as far as to its ledger")
    stage = manifest.first_stage
    for begun in load_run(directory).stages:
        if begun.number > len(plan.stages):
            raise UserError("run", str(directory), f"journals of its plan's {len(plan.stages)} stages")
        asked = plan.stages[begun.number - 1]
        held = begun.end is not None and begun.hold_begin is not None and begun.end - begun.hold_begin
        stage = begun.number + (held is not False and held >= asked.hold)
    return plan, TakenUp(made[-1], min(stage, len(plan.stages)))
