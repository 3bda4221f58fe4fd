"""Builds the chart of the duration of each step of creating a thing, by the number of things."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tippingpoint.rundir.histogram import FloatArray, IntArray
from tippingpoint.rundir.operations import MAKING
from tippingpoint.rundir.results import RunData

_GROUPS = 60
"""The maximum number of points of a line."""
_LEAST = 3
"""The minimum number of points of a line."""


def build_life(run: RunData, operations: Sequence[str]) -> dict[str, Any] | None:
    """Return numbers of `things` in groups of equal width, and the durations of each operation; None without a fill.

    Durations are in microseconds. `p50` is the median of the medians of `bin_seconds` each, weighted by their counts;
    `max` is the longest. Only the times during which stages are brought up count. Failures count with the time they
    took.
    """
    if not run.counts_things or not run.gauges.t.size:
        return None
    most = float(run.gauges.held.max())
    making = [name for name in operations if name in MAKING]
    if most < _LEAST:
        return None
    width = most / min(_GROUPS, most)
    latency: dict[str, dict[str, list[int | None]]] = {}
    for name in making:
        found = run.costs.get(name)
        if found is None:
            continue
        growing = np.flatnonzero(_growing(run, found.t))
        there = np.interp(found.t[growing], run.gauges.t, run.gauges.held)
        groups = np.minimum(there // width, _GROUPS - 1).astype(np.int64)
        latency[name] = _in_groups(groups, found.p50[growing], found.max[growing], found.count[growing])
    used = [
        group
        for group in range(_GROUPS)
        if any(column["p50"][group] is not None for column in latency.values())
    ]
    if len(used) < _LEAST:
        return None
    return {
        "bin_seconds": run.bin_seconds,
        "things": [round((group + 0.5) * width) for group in used],
        "latency": {
            name: {measure: [values[group] for group in used] for measure, values in columns.items()}
            for name, columns in latency.items()
        },
    }


def _growing(run: RunData, t: FloatArray) -> Any:
    """Return for each moment whether a stage was being brought up."""
    inside = np.zeros(t.shape, dtype=bool)
    for stage in run.stages:
        until = stage.hold_begin if stage.hold_begin is not None else stage.end
        if stage.is_step:
            inside |= (t + run.bin_seconds > stage.begin) & (t < (np.inf if until is None else until))
    return inside


def _in_groups(
    groups: IntArray, p50: IntArray, most: IntArray, counts: IntArray
) -> dict[str, list[int | None]]:
    columns: dict[str, list[int | None]] = {"p50": [None] * _GROUPS, "max": [None] * _GROUPS}
    for group in {int(found) for found in groups}:
        inside = np.flatnonzero(groups == group)
        order = inside[np.argsort(p50[inside])]
        weights = np.cumsum(counts[order])
        middle = int(np.argmax(weights >= weights[-1] / 2))
        columns["p50"][group] = int(p50[order][middle])
        columns["max"][group] = int(most[inside].max())
    return columns
