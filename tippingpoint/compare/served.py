"""Compares how much was served: of each operation, the most successes a second at any load of a ramp.

Where a run tips is known to one step of a ramp only, and latencies past a cliff say how long a queue was. What a target
serves when it is offered more is its capacity, and scatters little. At loads that a target holds, it serves what is
offered. So runs that break nowhere serve alike, which is right: nothing is known of their capacity.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tippingpoint.compare.ramp import Ramp, alike
from tippingpoint.compare.repeats import Figure, level_figure

_HALF_A_CALL = 0.5
"""What counts where nothing was served."""


def most_served(ramps: Sequence[Ramp]) -> dict[str, list[tuple[float, float]]]:
    """Return by operation, for each run, the most successes a second at steps that all have alike, and their number.

    Operations that a run did not try are left out, and those that no run served.
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
    """Return what was served as a figure; its variance by chance is that of as many independent calls."""
    floor = fmean(1 / served for _, served in (*before, *after))
    return level_figure(
        f"served {operation}", [rate for rate, _ in before], [rate for rate, _ in after], floor
    )


def _most(steps: Sequence[tuple[int, float]]) -> tuple[float, float]:
    return max((max(served, _HALF_A_CALL) / seconds, max(served, _HALF_A_CALL)) for served, seconds in steps)
