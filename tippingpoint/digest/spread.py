"""Puts a digest on the run's clock, and spreads it over time again: the intervals and ticks of a journal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tippingpoint.digest.packing import encode_rows, share_out
from tippingpoint.digest.part import Phase
from tippingpoint.digest.unit_digest import Digest, Measured
from tippingpoint.rundir.gauges import GAUGES
from tippingpoint.rundir.histogram import FloatArray, IntArray, highest_values

_MOST_CELLS = 2_000_000
"""Intervals times slots beyond which a histogram becomes a single interval, at the begin of its phase."""


class Encoded(NamedTuple):
    """A histogram as in an interval log."""

    total: int
    """How many values were recorded."""
    max: int
    """The largest value in microseconds."""
    text: str

    def encode(self) -> str:
        """Return the V2 compressed encoding in base64."""
        return self.text


class Placed:
    """A digest in the run. Times are milliseconds since the run's start; what came before is left out.

    Phases follow each other. A phase with recorded values has a length, so that every interval belongs to one phase.
    """

    def __init__(self, digest: Digest, shift: int) -> None:
        self.digest = digest
        self.shift = shift
        self.begins: list[int] = []
        self.ends: list[int] = []
        recorded = {measured.phase for measured in digest.measured}
        earliest = 0
        for number, phase in enumerate(digest.head.phases):
            begin = max(earliest, phase.begin + shift)
            earliest = begin + (number in recorded and self.tells(number))
            self.begins.append(begin)
            self.ends.append(max(earliest, phase.end + shift))
        for number, following in enumerate(self.begins[1:]):
            self.ends[number] = min(self.ends[number], following)

    def tells(self, number: int) -> bool:
        """Return whether the values of a phase are used.

        They are not used before the run's start, nor after the end of a stage that some workers never reached.
        """
        phase = self.digest.head.phases[number]
        return not phase.open and (phase.stage > 0 or phase.end + self.shift > 0)

    @property
    def marks(self) -> Iterator[tuple[int, Phase]]:
        """The moments at which phases of stages begin."""
        for begin, phase in zip(self.begins, self.digest.head.phases, strict=True):
            if phase.stage and not phase.open:
                yield begin, phase

    @property
    def ticks(self) -> Iterator[tuple[int, Mapping[str, float]]]:
        """The gauges at some moments."""
        moments = self.digest.moments + self.shift
        inside = (moments >= 0) & (moments <= max(self.ends, default=0))
        for moment, row in zip(moments[inside].tolist(), self.digest.gauges[inside].tolist(), strict=True):
            yield moment, dict(zip(GAUGES, row, strict=True))

    def intervals(self, seconds: int) -> Iterator[tuple[int, int, dict[str, Encoded]]]:
        """Return begin, end and histograms by tag of all intervals, in order of time.

        Intervals begin with a phase, and at every multiple of `seconds` in it.
        """
        found: defaultdict[tuple[int, int], dict[str, Encoded]] = defaultdict(dict)
        for measured in self.digest.measured:
            if self.tells(measured.phase):
                for begin, end, histogram in self._intervals(measured, seconds):
                    found[begin, end][measured.tag] = histogram
        for begin, end in sorted(found):
            yield begin, end, found[begin, end]

    def _intervals(self, measured: Measured, seconds: int) -> Iterator[tuple[int, int, Encoded]]:
        begin, end = self.begins[measured.phase], self.ends[measured.phase]
        step = 1000 * seconds
        edges = [begin, *range((begin // step + 1) * step, end, step), end]
        if (len(edges) - 1) * measured.slots.size > _MOST_CELLS:
            edges = [begin, end]
        amounts = self._amounts(measured, np.asarray(edges))
        table = share_out(amounts, measured.counts, measured.groups)
        cells: IntArray = np.flatnonzero(table.ravel())  # five times quicker than np.nonzero of the table
        rows, columns = cells // measured.slots.size, cells % measured.slots.size
        filled = np.unique(rows)
        slots = measured.slots[columns]
        encoded = encode_rows(np.searchsorted(filled, rows), slots, table.ravel()[cells])
        totals = table.sum(axis=1)[filled]
        last = np.searchsorted(rows, filled, side="right") - 1
        largest = highest_values(slots[last])
        found = zip(filled.tolist(), totals.tolist(), encoded, largest.tolist(), strict=True)
        for row, total, text, most in found:
            yield edges[row], edges[row + 1], Encoded(total, most, text)

    def _amounts(self, measured: Measured, edges: IntArray) -> IntArray:
        """Return how many samples of each group lie between these moments; those of an interval are spread evenly
        over it."""
        amounts = measured.amounts
        if edges.size == 2:
            return amounts.sum(axis=0, keepdims=True)
        phase = self.digest.head.phases[measured.phase]
        width = 1000 * self.digest.head.width or phase.length
        ends = [min(number * width, phase.length) for number in range(len(amounts) + 1)]
        places: FloatArray = np.interp(edges - phase.begin - self.shift, ends, np.arange(len(ends)))
        upto = np.concatenate((np.zeros((1, amounts.shape[1]), dtype=np.int64), np.cumsum(amounts, axis=0)))
        whole = np.minimum(places.astype(np.int64), len(amounts) - 1)
        share = (places - whole)[:, None]
        there = np.rint(upto[whole] + share * (upto[whole + 1] - upto[whole])).astype(np.int64)
        there[0], there[-1] = 0, upto[-1]
        return np.diff(there, axis=0)
