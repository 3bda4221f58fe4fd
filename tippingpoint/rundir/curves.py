"""Latencies of operations over time, to 1.6 % (16 us below 1 ms)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tippingpoint.rundir.histogram import SLOTS, FloatArray, IntArray, highest_values

CHART_BINS = 1200
"""The most points of a chart over time."""
CHART_SHIFT = 4  # 64 instead of 1024 slots per power of two
CHART_SLOTS = SLOTS >> CHART_SHIFT


@dataclass
class Curve:
    """One tag over time: for each bin with samples its start, the count, and latencies in microseconds."""

    t: FloatArray
    count: IntArray
    p50: IntArray
    p99: IntArray
    max: IntArray


def curves_of(charts: Mapping[str, IntArray], bin_seconds: float) -> dict[str, Curve]:
    """Return curves by tag, from counts by cell: bin * CHART_SLOTS + (slot >> CHART_SHIFT)."""
    return {tag_name: curve_of(summed, bin_seconds) for tag_name, summed in sorted(charts.items())}


def curve_of(summed: IntArray, bin_seconds: float) -> Curve:
    """Return one curve from counts by cell."""
    cells = np.flatnonzero(summed)
    counts = summed[cells]
    bins = cells // CHART_SLOTS
    values = highest_values(((cells % CHART_SLOTS) << CHART_SHIFT) + (1 << CHART_SHIFT) - 1)
    first = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1])))
    last = np.append(first[1:], bins.size) - 1
    cumulative = np.cumsum(counts)
    before = cumulative[first] - counts[first]
    totals = cumulative[last] - before

    def at(share: float) -> IntArray:
        wanted = before + np.maximum(1, np.ceil(totals * share - 1e-9)).astype(np.int64)
        return values[np.searchsorted(cumulative, wanted, side="left")]

    return Curve(bins[first].astype(np.float64) * bin_seconds, totals, at(0.5), at(0.99), values[last])


def added(known: IntArray, cells: IntArray, counts: IntArray) -> IntArray:
    """Return counts by cell with `counts` added, enlarged if necessary; `cells` names each cell once."""
    if cells.size and cells[-1] >= known.size:
        known = np.concatenate((known, np.zeros(int(cells[-1]) + 1 - known.size, dtype=np.int64)))
    known[cells] += counts
    return known
