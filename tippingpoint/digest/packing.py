"""Packs histograms: numbers as bytes, coarser slots, and samples distributed over intervals again."""

from __future__ import annotations

import itertools
from functools import cache
from math import gcd

import numpy as np

from tippingpoint.rundir.histogram import SLOTS, IntArray, lowest_values
from tippingpoint.rundir.recorder import HALF_BITS, encoded_payload

MOST = 2**31
"""The limit of numbers: products of two counts fit into 64 bits."""
_SEVENS = np.arange(0, 35, 7)


def pack_numbers(numbers: IntArray) -> bytes:
    """Return whole numbers in 0..2**31 as LEB128: seven bits a byte, the lowest first, the last byte below 128."""
    return _packed(numbers)[0]


def _packed(numbers: IntArray) -> tuple[bytes, IntArray]:
    """Return the same, and how many bytes each number takes."""
    places = numbers[:, None] >> _SEVENS
    kept = np.concatenate((np.ones((numbers.size, 1), dtype=np.bool_), places[:, 1:] > 0), axis=1)
    more = np.concatenate((kept[:, 1:], np.zeros((numbers.size, 1), dtype=np.bool_)), axis=1)
    return ((places & 0x7F) | (more * 0x80))[kept].astype(np.uint8).tobytes(), kept.sum(axis=1)


def encode_rows(rows: IntArray, slots: IntArray, counts: IntArray) -> list[str]:
    """Encode many histograms at once in the V2 compressed encoding, as recorder.encode does one.

    Entry i says that histogram `rows[i]` holds `counts[i]` (not 0) at `slots[i]`. Rows ascend from 0 without a gap,
    and so do slots within each row.
    """
    begins = np.flatnonzero(np.diff(rows, prepend=-1))
    before = np.concatenate(([-1], slots[:-1]))
    before[begins] = -1
    gaps = slots - before - 1
    words = np.stack((np.maximum(2 * gaps - 1, 0), 2 * counts), axis=1)
    filled = words > 0
    data, sizes = _packed(words[filled])
    of_entry = np.bincount(np.nonzero(filled)[0], weights=sizes, minlength=rows.size).astype(np.int64)
    if not rows.size:
        return []
    ends: list[int] = np.cumsum(np.add.reduceat(of_entry, begins)).tolist()
    return [encoded_payload(data[begin:end]) for begin, end in itertools.pairwise([0, *ends])]


def unpack_numbers(data: bytes) -> IntArray:
    """Return the numbers that pack_numbers packed; raises ValueError for other bytes."""
    read = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero(read < 0x80)
    if not read.size:
        return np.zeros(0, dtype=np.int64)
    if not ends.size or ends[-1] != read.size - 1:
        raise ValueError("truncated in the middle of a number")
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if lengths.max() > _SEVENS.size:
        raise ValueError("a number that is too large")
    numbers = np.zeros(ends.size, dtype=np.int64)
    for place, shift in enumerate(_SEVENS.tolist()):
        longer = np.flatnonzero(lengths > place)
        numbers[longer] |= (read[starts[longer] + place] & 0x7F).astype(np.int64) << shift
    if numbers.max() >= MOST:
        raise ValueError("a number that is too large")
    return numbers


def signed(numbers: IntArray) -> IntArray:
    """Return numbers of either sign as unsigned ones, small ones staying small (ZigZag)."""
    return (numbers << 1) ^ (numbers >> 63)


def unsigned(words: IntArray) -> IntArray:
    """Reverse `signed`."""
    return (words >> 1) ^ -(words & 1)


def pack_counts(places: IntArray, counts: IntArray) -> IntArray:
    """Return counts at ascending places as words: a count is doubled, a run of n empty places is 2n - 1."""
    gaps = np.diff(places, prepend=-1) - 1
    words = np.stack((2 * gaps - 1, 2 * counts), axis=1).ravel()
    return words[words > 0]


def unpack_counts(words: IntArray) -> tuple[IntArray, IntArray]:
    """Return the places and counts in these words."""
    empty = words & 1 == 1
    steps = np.where(empty, (words + 1) >> 1, 1)
    places = np.cumsum(steps) - steps
    return places[~empty], words[~empty] >> 1


@cache
def groups(bits: int) -> IntArray:
    """Return for each slot of a histogram its slot in one with `bits` bits: 2**bits slots for each power of two.

    They ascend; a histogram itself has 10 bits. Values are then accurate to a share of 2**-bits.
    """
    values = lowest_values(np.arange(SLOTS, dtype=np.int64))
    shifts = np.maximum(np.frexp(values.astype(np.float64))[1].astype(np.int64) - bits - 1, 0)
    return (shifts << bits) + (values >> shifts)


@cache
def _first_slots(bits: int) -> IntArray:
    """Return for each slot with that few bits the first slot of a full histogram, and at the end how many of these
    exist."""
    of = groups(bits)
    return np.searchsorted(of, np.arange(int(of[-1]) + 2), side="left")


def coarsened(slots: IntArray, counts: IntArray, bits: int) -> tuple[IntArray, IntArray]:
    """Return the filled slots with that few bits, ascending, and their counts."""
    return summed(groups(bits)[slots], counts)


def summed(keys: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return each key once, ascending, and the sum of its counts."""
    if not keys.size:
        return keys, counts
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    first = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[first], np.add.reduceat(counts[order], first)


def width_of(places: IntArray, bits: int) -> int:
    """Return how many slots of a full histogram these coarser ones span; all of them beyond the last."""
    first = _first_slots(bits)
    inside = places[places < first.size - 1]
    return int((first[inside + 1] - first[inside]).sum())


def refined(
    places: IntArray, counts: IntArray, bits: int, lowest: int, highest: int
) -> tuple[IntArray, IntArray]:
    """Return a histogram's full slots from coarse ones: counts are spread evenly, but `lowest` and `highest` are
    filled.

    These two are slots within the first and the last of the coarse slots, both of which hold something.
    """
    if bits == HALF_BITS:
        return places, counts
    if lowest == highest:
        return np.asarray([lowest]), counts.sum(keepdims=True)
    counts = counts.copy()
    counts[0] -= 1
    counts[-1] -= 1
    first = _first_slots(bits)
    begins, widths = first[places], first[places + 1] - first[places]
    widths[-1] -= begins[-1] + widths[-1] - 1 - highest
    widths[0] -= lowest - begins[0]
    begins[0] = lowest
    rows = np.repeat(np.arange(places.size), widths)
    within = np.arange(rows.size) - np.repeat(np.cumsum(widths) - widths, widths)
    upto = ((within + 1) * 2 * counts[rows] + widths[rows]) // (2 * widths[rows])
    before = (within * 2 * counts[rows] + widths[rows]) // (2 * widths[rows])
    slots = begins[rows] + within
    ends = np.asarray([lowest, highest])
    return without_empty(*summed(np.concatenate((slots, ends)), np.concatenate((upto - before, [1, 1]))))


def without_empty(slots: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the slots with counts above zero."""
    held = counts > 0
    return slots[held], counts[held]


def share_out(amounts: IntArray, columns: IntArray, group_of: IntArray) -> IntArray:
    """Return a table of whole numbers whose columns add up to `columns`, and whose rows to `amounts` in each group.

    `amounts` has a row for each of the table's and a column for each group; `group_of` has the group of each column,
    ascending. In each row, a group's amount is spread over its columns in the same proportions as in all rows
    together.
    """
    totals = np.bincount(group_of, weights=columns).astype(np.int64)
    table = np.zeros((amounts.shape[0], columns.size), dtype=np.int64)
    if int(totals.sum()) > table.size:
        table = amounts[:, group_of] * columns // np.maximum(totals, 1)[group_of]
        ends = np.flatnonzero(np.diff(group_of, append=-1))
        within = np.cumsum(table, axis=1)[:, ends]
        amounts = amounts - np.diff(within, axis=1, prepend=0)
        columns = columns - table.sum(axis=0)
        totals = np.bincount(group_of, weights=columns).astype(np.int64)
    # The rest, at most one a cell, is dealt out one by one, in steps that spread any run of cells evenly.
    left = int(totals.sum())
    before = np.cumsum(totals) - totals
    group = np.repeat(np.arange(totals.size), totals)
    steps = np.asarray([_step(total) for total in totals.tolist()])
    places = before[group] + (np.arange(left) - before[group]) * steps[group] % totals[group]
    column = np.repeat(np.arange(columns.size), columns)[places]
    group_and_row = np.repeat(np.arange(amounts.size), amounts.T.ravel())
    row = group_and_row % amounts.shape[0]
    table += np.bincount(row * columns.size + column, minlength=table.size).reshape(table.shape)
    return table


def _step(total: int) -> int:
    """Return a step through this many places that visits all of them: near the golden section, which leaves no large
    gaps."""
    step = max(1, round(total * 0.6180339887498949))
    while gcd(step, total) > 1:
        step += 1
    return step
