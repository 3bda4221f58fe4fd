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


Cells = tuple[IntArray, IntArray]
"""The cells that have counts, each once and in order, and the counts.

A cell is bin * CHART_SLOTS + (slot >> CHART_SHIFT).
"""
NO_CELLS: Cells = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass
class Curve:
    """One tag over time: for each bin with samples its start, the count, and latencies in microseconds."""

    t: FloatArray
    count: IntArray
    p50: IntArray
    p99: IntArray
    max: IntArray


def curves_of(charts: Mapping[str, Cells], bin_seconds: float) -> dict[str, Curve]:
    """Return curves by tag."""
    return {tag_name: curve_of(cells, bin_seconds) for tag_name, cells in sorted(charts.items())}


def curve_of(charted: Cells, bin_seconds: float) -> Curve:
    """Return one curve."""
    cells, counts = charted
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


def added(known: Cells, more: Cells) -> Cells:
    """Return the sum of two counts by cell."""
    cells, counts = known
    others, their_counts = more
    if not cells.size:
        return more
    places = np.searchsorted(cells, others)
    there = cells[np.minimum(places, cells.size - 1)] == others
    counts = counts.copy()
    counts[places[there]] += their_counts[there]
    new = ~there
    if not new.any():
        return cells, counts
    return np.insert(cells, places[new], others[new]), np.insert(counts, places[new], their_counts[new])
