"""Builds a run's data over time on one grid: latencies, leases held, outcomes, the generator's health."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tippingpoint.rundir.curves import Curve
from tippingpoint.rundir.histogram import FloatArray
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.tags import OUTCOMES, tag

_GAUGES = ("held", "waiting", "in_flight", "cpu", "loop_lag", "rss")
_Columns = dict[str, list[int | None]]


def build_timeline(run: RunData, operations: Sequence[str]) -> dict[str, Any] | None:
    """Return columns over time, with one entry per bin of `bin_seconds`; None if the run has no clock or no data.

    `latency` has p50, p99 and max of the successes of each operation, in microseconds, or None in empty bins. `cost` is
    the same with failures included, for operations where this differs (see RunData.costs). `per_second` has the rate of
    each outcome other than ok over all operations. `ok` has the rate of successes of each operation.
    `connections_lost` has the lost connections, if any. `gauges` are the workers' own gauges (see gauges.Gauges).
    """
    if run.manifest.timeline == "order":
        return None
    width = run.bin_seconds
    ends = [curve.t[-1] for curve in run.curves.values() if curve.t.size]
    ends += [run.gauges.t[-1]] if run.gauges.t.size else []
    if not ends:
        return None
    bins = round(max(ends) / width) + 1
    latency: dict[str, _Columns] = {}
    cost: dict[str, _Columns] = {}
    successes: dict[str, list[float | None]] = {}
    for operation in operations:
        curve, waited = run.curves.get(tag(operation)), run.costs.get(operation)
        if waited is not None and waited is not curve:
            cost[operation] = _latencies(waited, width, bins)
        if curve is not None:
            latency[operation] = _latencies(curve, width, bins)
            successes[operation] = _short(_placed(_places(curve.t, width), curve.count / width, bins, 0.0))
    rates: dict[str, list[float | None]] = {}
    for outcome in OUTCOMES[1:]:
        found = [c for operation in operations if (c := run.curves.get(tag(operation, outcome)))]
        if found:
            rates[outcome] = _short(
                np.sum([_placed(_places(c.t, width), c.count / width, bins, 0.0) for c in found], axis=0)
            )
    broken = [event for event in run.events if is_lost_connection(event)]
    connections: list[float | None] = []
    if broken:
        per_bin = np.zeros(bins)
        for event in broken:
            per_bin[min(int(event["t"] / width), bins - 1)] += count_of(event) / width
        connections = _short(per_bin)
    gauges: dict[str, list[float | None]] = {}
    if run.gauges.t.size:
        places = _places(run.gauges.t, width)
        gauges = {name: _short(_placed(places, getattr(run.gauges, name), bins, np.nan)) for name in _GAUGES}
    return {
        "bin_seconds": width,
        "t": [number * width for number in range(bins)],
        "latency": latency,
        "cost": cost,
        "ok": successes,
        "per_second": rates,
        "connections_lost": connections,
        "gauges": gauges,
    }


def is_lost_connection(event: Mapping[str, Any]) -> bool:
    """Return whether an event reports the loss of logged-in connections, which ended no operation."""
    return event["event"] == "error" and event.get("operation") == "connection"


def _latencies(curve: Curve, width: float, bins: int) -> _Columns:
    places = _places(curve.t, width)
    return {
        name: [None if np.isnan(v) else int(v) for v in _placed(places, column, bins, np.nan)]
        for name, column in (("p50", curve.p50), ("p99", curve.p99), ("max", curve.max))
    }


def _places(t: FloatArray, width: float) -> Any:
    return np.rint(t / width).astype(np.int64)


def _placed(places: Any, values: Any, bins: int, empty: float) -> FloatArray:
    column = np.full(bins, empty, dtype=np.float64)
    column[places] = values
    return column


def _short(column: FloatArray) -> list[float | None]:
    """Round to four significant digits, which is more than a chart shows and keeps the page small."""
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in column]
