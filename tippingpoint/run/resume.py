"""Resumes a run that was cut: with its plan, the things it made and their names, from the stage it was in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import LastingEntry, own_entries


@dataclass(frozen=True)
class TakenUp:
    """A run that was cut and that another one resumes."""

    entry: LastingEntry
    """The ledger entry of what it made, and under which names."""
    stage: int
    """The listed stage it was in, from 1: earlier ones are not repeated."""


def take_up(directory: Path) -> tuple[Plan, TakenUp]:
    """Return what a new run needs to resume the run in a directory; raises UserError if it cannot be resumed."""
    manifest = Manifest.load(directory)
    if manifest.status == "running":
        raise UserError(
            "run", str(directory), f"a run that was cut: this one is still running (process {manifest.pid})"
        )
    plan = validate_plan(manifest.plan) if manifest.plan is not None else None
    if not isinstance(plan, SpawnPlan):
        raise UserError(
            "run",
            str(directory),
            "a spawn run on LXD or OpenStack: other runs cannot be resumed, and `clean` removes what they made",
        )
    made = [entry for entry in own_entries(directory, manifest) if isinstance(entry, LastingEntry)]
    if not made:
        raise UserError("run", str(directory), "a run that has begun to make things: this one has no ledger")
    from tippingpoint.rundir.results import (
        load_run,
    )  # it imports numpy, which a run needs only for its report

    stage = manifest.first_stage
    for begun in load_run(directory).stages:
        if begun.number > len(plan.stages):
            raise UserError("run", str(directory), f"journals with the {len(plan.stages)} stages of its plan")
        asked = plan.stages[begun.number - 1]
        held = begun.end is not None and begun.hold_begin is not None and begun.end - begun.hold_begin
        stage = begun.number + (held is not False and held >= asked.hold)
    return plan, TakenUp(made[-1], min(stage, len(plan.stages)))
