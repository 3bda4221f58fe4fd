"""Finds runs that do not represent their release, because other programs took much of the target's processors."""

from __future__ import annotations

from collections.abc import Sequence

from tippingpoint.analysis.foreign_work import foreign_work, span_of
from tippingpoint.rundir.machine import during
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.rundir.results import RunData


def disturbed(run: RunData) -> str:
    """Return how much CPU other programs used during the run's holds if it was too much, else an empty text.

    A search repeats loads that it missed while other programs ran, and withholds its answer if they do not leave.
    """
    if probe_events(run.events):
        return ""
    found = foreign_work(used for stage in run.stages for used in during(run.machine, *span_of(stage)))
    return found.words if found is not None and found.explains else ""


def undisturbed(runs: Sequence[RunData]) -> tuple[list[RunData], list[tuple[int, str]]]:
    """Return the runs that represent their release, and the numbers of the others, counted from 1, with the reasons.

    If all are disturbed, all are returned.
    """
    whys = [disturbed(run) for run in runs]
    if all(whys):
        return list(runs), []
    kept = [run for run, why in zip(runs, whys, strict=True) if not why]
    return kept, [(number, why) for number, why in enumerate(whys, start=1) if why]
