"""Compares the rates served: for each operation, the most successes per second at any load of a ramp.

The tipping point of a run is known only to one step of a ramp, and latencies past a cliff only show how long a queue
was. What a target serves when it is offered more is its capacity, which scatters little. At loads that a target holds,
it serves what is offered. So runs that never break serve the same, which is right: nothing is known about their
capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tippingpoint.compare.ramp import Ramp, alike
from tippingpoint.compare.repeats import Figure, level_figure

_HALF_A_CALL = 0.5
"""The count to assume if nothing was served."""


def most_served(ramps: Sequence[Ramp]) -> dict[str, list[tuple[float, float]]]:
    """Return by operation, for each run, the most successes per second at steps alike in all runs, and their number.

    Operations that some run did not try, or that no run served, are left out.
    """
    steps = [ramp[: alike(ramps)] for ramp in ramps]
    tried = [{name for step in of for name in step.served} for of in steps]
    names = [
        name for name in dict.fromkeys(name for of in tried for name in of) if all(name in of for of in tried)
    ]
    found = {
        name: [_most([step.served[name] for step in of if name in step.served]) for of in steps]
        for name in names
    }
    return {name: runs for name, runs in found.items() if any(served > _HALF_A_CALL for _, served in runs)}


def served_figure(
    operation: str, before: Sequence[tuple[float, float]], after: Sequence[tuple[float, float]]
) -> Figure:
    """Return the rate served as a figure, whose variance by chance is that of as many independent calls."""
    floor = fmean(1 / served for _, served in (*before, *after))
    return level_figure(
        f"served {operation}", [rate for rate, _ in before], [rate for rate, _ in after], floor
    )


def _most(steps: Sequence[tuple[int, float]]) -> tuple[float, float]:
    return max((max(served, _HALF_A_CALL) / seconds, max(served, _HALF_A_CALL)) for served, seconds in steps)
