"""Resumes a run that was cut.

A run that creates instances continues with these and their names, from its last stage. A search continues from the
results of its probes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.journal import read_events
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import LastingEntry, own_entries
from tippingpoint.rundir.probe_events import FOUND, ProbeEvent, probe_events


@dataclass(frozen=True)
class ResumedRun:
    """A cut run that another run resumes."""

    run: str
    """Its id."""
    stage: int
    """The stage from which the new run continues, from 1: the one in which the run was cut, or in a search the one
    after that."""
    entry: LastingEntry | None = None
    """The ledger entry of what it made, and under which names; None if the new run makes its own things."""
    left: tuple[Entry, ...] = ()
    """What it may have left, which the new run removes before it begins."""
    probes: tuple[ProbeEvent, ...] = ()
    """The loads that its search tried."""


def take_up(directory: Path) -> tuple[Plan, ResumedRun]:
    """Return what a new run needs to resume the run in a directory; raises UserError if it cannot be resumed."""
    manifest = Manifest.load(directory)
    if manifest.status == "running":
        raise UserError(
            "run", str(directory), f"a run that was cut; this one is still running (process {manifest.pid})"
        )
    try:
        plan = validate_plan(manifest.plan) if manifest.plan is not None else None
    except ValidationError:
        raise UserError("run", str(directory), "a run whose plan this version can run") from None
    if plan is not None and plan.find is not None:
        return plan, _search(directory, manifest)
    if not isinstance(plan, SpawnPlan):
        raise UserError(
            "run",
            str(directory),
            f"a search (find) or a run of the workload spawn; this is a run of {manifest.workload}, which can only be "
            "cleaned and run anew",
        )
    made = [entry for entry in own_entries(directory, manifest) if isinstance(entry, LastingEntry)]
    if not made:
        raise UserError(
            "run", str(directory), "a run that had begun to create instances; this one has no ledger"
        )
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
    return plan, ResumedRun(manifest.id, min(stage, len(plan.stages)), entry=made[-1])


def _search(directory: Path, manifest: Manifest) -> ResumedRun:
    """Resume a search that has no answer yet."""
    events = read_events(directory / "events.jsonl").events
    if any(event["event"] == FOUND for event in events):
        raise UserError(
            "run",
            str(directory),
            "a search that was interrupted; this one has its answer (`report` shows it)",
        )
    probes = probe_events(events)
    # The stage after the last probe may have begun: it has no result.
    last = max((probe.stage for probe in probes if probe.stage is not None), default=manifest.first_stage - 1)
    left = tuple(own_entries(directory, manifest))
    return ResumedRun(manifest.id, last + 2, left=left, probes=tuple(probes))
