"""A run over time, on one grid for all charts: latencies, leases held, outcomes, the generator's health."""

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
    """Columns over time, each with one entry per bin of `bin_seconds`; None when the run has no clock or no data.

    `latency` holds p50, p99 and max of the successes per operation (microseconds, None in bins without any), `cost`
    the same with failures at what they cost, of operations where that differs (see RunData.costs). `per_second` is
    how many operations ended with each outcome other than ok, over all operations, and `ok` the successes per
    operation; `connections_lost` those that broke, when any did; `gauges` what workers noted of themselves (see
    gauges.Gauges).
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
    """Whether an event tells of logged-in connections that were lost: no operation ended with them."""
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
    """Four significant digits are more than a chart shows, and keep the page small."""
    return [None if np.isnan(value) else float(f"{value:.4g}") for value in column]
