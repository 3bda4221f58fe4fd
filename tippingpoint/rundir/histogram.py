"""HdrHistograms as arrays: exact merging, percentiles, and the V2 encoding that recorder.py writes and viewers read.

Values are whole microseconds from 1 us to one hour with three significant digits, so any quantile is within 0.1 % of
the recorded value. The bucket layout and the encoding are those of HdrHistogram
(https://github.com/HdrHistogram/HdrHistogram, V2 with ZigZag LEB128 counts). A test checks that HdrHistogram's Python
port reads our encoding and that we read its own (tests/unit/rundir/test_histogram.py). We do not use the port because
it decodes one value at a time; this module decodes arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tippingpoint.rundir.recorder import HALF_BITS, HIGHEST_US, counts_in, encode, rank_of

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Counts = tuple[IntArray, IntArray]
"""Filled slots, ascending, and how many values each has: a second's samples fill a few hundred of all slots."""

_HALF = 1 << HALF_BITS
_BUCKETS = 22  # smallest n with 2048 << (n - 1) > HIGHEST_US
SLOTS = (_BUCKETS + 1) * _HALF

_DECODE_AT_ONCE = 1024


def slots_of(values_us: npt.ArrayLike) -> IntArray:
    """Return the slot of each value in microseconds; values outside 1 us..1 h are moved to the nearest end."""
    values = np.clip(np.asarray(values_us, dtype=np.int64), 0, HIGHEST_US)
    shift = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - HALF_BITS - 1, 0)
    return (shift << HALF_BITS) + (values >> shift)


def _shifts(slots: IntArray) -> IntArray:
    return np.maximum((slots >> HALF_BITS) - 1, 0)


def lowest_values(slots: IntArray) -> IntArray:
    """Return the smallest value, in microseconds, of each slot."""
    shift = _shifts(slots)
    return (slots - (shift << HALF_BITS)) << shift


def highest_values(slots: IntArray) -> IntArray:
    """Return the largest value, in microseconds, of each slot, as percentiles report it."""
    return lowest_values(slots) + (np.int64(1) << _shifts(slots)) - 1


def middle_values(slots: IntArray) -> IntArray:
    """Return the middle value, in microseconds, of each slot, from which means are computed."""
    return lowest_values(slots) + ((np.int64(1) << _shifts(slots)) >> 1)


class Histogram:
    """Counts per slot. Adding histograms is exact: recording separately and merging later loses nothing."""

    __slots__ = ("counts",)

    def __init__(self, counts: IntArray | None = None) -> None:
        self.counts: IntArray = np.zeros(SLOTS, dtype=np.int64) if counts is None else counts

    @classmethod
    def of(cls, values_us: npt.ArrayLike) -> Histogram:
        """Return a histogram of the given values in microseconds."""
        return cls(np.bincount(slots_of(values_us), minlength=SLOTS).astype(np.int64, copy=False))

    @classmethod
    def merged(cls, histograms: Iterable[Histogram]) -> Histogram:
        """Return the sum of any number of histograms."""
        result = cls()
        for histogram in histograms:
            result.counts += histogram.counts
        return result

    def add(self, other: Histogram | Counts) -> None:
        """Add the counts of another histogram to this one."""
        if isinstance(other, Histogram):
            self.counts += other.counts
        else:
            slots, counts = other
            self.counts[slots] += counts

    @property
    def total(self) -> int:
        """How many values were recorded."""
        return int(self.counts.sum())

    def filled(self) -> Counts:
        """Return the slots with counts, ascending, and these counts."""
        # Nearly all slots are empty: numpy skips those of a mask many at a time.
        slots = np.flatnonzero(self.counts != 0).astype(np.int64, copy=False)
        return slots, self.counts[slots]

    @property
    def min(self) -> int:
        """The smallest recorded value in microseconds (to 0.1 %); 0 when empty."""
        slots, _ = self.filled()
        return int(lowest_values(slots[:1])[0]) if slots.size else 0

    @property
    def max(self) -> int:
        """The largest recorded value in microseconds (to 0.1 %); 0 when empty."""
        slots, _ = self.filled()
        return int(highest_values(slots[-1:])[0]) if slots.size else 0

    @property
    def mean(self) -> float:
        """The mean in microseconds (each value to 0.1 %); 0.0 when empty."""
        slots, counts = self.filled()
        return float((middle_values(slots) * counts).sum() / counts.sum()) if slots.size else 0.0

    def percentile(self, percentile: float) -> int:
        """Return the value in microseconds at a percentile in 0..100; 0 when empty."""
        return self.percentiles([percentile])[0]

    def percentiles(self, percentiles: Sequence[float]) -> list[int]:
        """Return the values in microseconds at several percentiles in 0..100; zeros when empty."""
        slots, counts = self.filled()
        if not slots.size:
            return [0 for _ in percentiles]
        cumulative = np.cumsum(counts)
        total = int(cumulative[-1])
        at = np.searchsorted(cumulative, [rank_of(p, total) for p in percentiles], side="left")
        return [int(value) for value in highest_values(slots[at])]

    def encode(self) -> str:
        """Return the V2 compressed encoding in base64, as in a histogram log."""
        slots, counts = self.filled()
        return encode(zip(slots.tolist(), counts.tolist(), strict=True))

    @classmethod
    def decode(cls, encoded: str | bytes) -> Histogram:
        """Return the histogram in a V2 compressed encoding; raises ValueError for one with another range or
        precision."""
        result = cls()
        result.add(*decode_each([encoded]))
        return result


def add_each(into: dict[str, Histogram], more: Mapping[str, Histogram | Counts]) -> None:
    """Add the counts under each tag to the histogram under the same tag."""
    for name, counts in more.items():
        known = into.get(name)
        if known is None:
            known = into[name] = Histogram()
        known.add(counts)


@dataclass(frozen=True)
class Batch:
    """Many decoded histograms side by side: entry i says that histogram `rows[i]` holds `counts[i]` at `slots[i]`."""

    rows: IntArray
    slots: IntArray
    counts: IntArray

    def totals(self, rows: int) -> IntArray:
        """Return how many values each of the first `rows` histograms has."""
        return np.bincount(self.rows, weights=self.counts, minlength=rows).astype(np.int64)


def decode_batch(encoded: Sequence[str | bytes]) -> Batch:
    """Decode many V2 encodings at once; raises ValueError that names the first with another range or precision."""
    # Decoding in parts that fit into the processor's cache is twice as fast as decoding all at once.
    parts = [
        _decode_part(encoded[first : first + _DECODE_AT_ONCE], first)
        for first in range(0, len(encoded), _DECODE_AT_ONCE)
    ]
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Batch(empty, empty, empty)
    return Batch(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.slots for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def decode_each(encoded: Sequence[str | bytes]) -> list[Counts]:
    """Decode many V2 encodings at once, as decode_batch does; returns the counts of each."""
    batch = decode_batch(encoded)
    edges = np.searchsorted(batch.rows, np.arange(len(encoded) + 1)).tolist()
    return [(batch.slots[first:last], batch.counts[first:last]) for first, last in pairwise(edges)]


def _decode_part(encoded: Sequence[str | bytes], number: int) -> Batch:
    """Decode some encodings, the first of which is number `number` of all."""
    payloads = [counts_in(text, number + index) for index, text in enumerate(encoded)]
    data = np.frombuffer(b"".join(payloads), dtype=np.uint8)
    empty = np.zeros(0, dtype=np.int64)
    if not data.size:
        return Batch(empty, empty, empty)
    ends = np.flatnonzero(data < 0x80)
    if not ends.size or ends[-1] != data.size - 1:
        raise ValueError("histogram: counts end in the middle of a number")
    starts = np.concatenate(([0], ends[:-1] + 1))
    words = (data[starts] & 0x7F).astype(np.int64)
    longer = np.flatnonzero(starts < ends)  # few: most counts and gaps fit into one byte
    place = 1
    while longer.size:
        words[longer] |= (data[starts[longer] + place] & 0x7F).astype(np.int64) << (7 * place)
        longer = longer[starts[longer] + place < ends[longer]]
        place += 1
    numbers = (words >> 1) ^ -(words & 1)
    payload_ends = np.cumsum(np.fromiter((len(p) for p in payloads), dtype=np.int64, count=len(payloads)))
    words_in = np.diff(np.searchsorted(ends, payload_ends, side="left"), prepend=0)
    rows = np.repeat(np.arange(number, number + len(payloads)), words_in)
    step = np.maximum(numbers, -numbers)
    step[numbers >= 0] = 1
    before = np.cumsum(step) - step
    first = (np.cumsum(words_in) - words_in)[words_in > 0]
    slots = before - np.repeat(before[first], words_in[words_in > 0])
    held = numbers > 0
    return Batch(rows[held], slots[held], numbers[held])
