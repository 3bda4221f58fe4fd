"""Histograms in little room: nothing is lost but what few bits cannot tell, and samples are shared out exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.digest.packing import (
    coarsened,
    encode_rows,
    groups,
    pack_counts,
    pack_numbers,
    refined,
    share_out,
    unpack_counts,
    unpack_numbers,
)
from tippingpoint.rundir.histogram import SLOTS, Histogram, highest_values, lowest_values

histograms = st.lists(st.integers(1, 3_600_000_000), min_size=1, max_size=60).map(Histogram.of)


@given(st.lists(st.integers(0, 2**31 - 1), max_size=50))
def test_numbers_come_back(numbers: list[int]) -> None:
    assert unpack_numbers(pack_numbers(np.asarray(numbers, dtype=np.int64))).tolist() == numbers


@given(st.binary(max_size=30))
def test_any_bytes_are_numbers_or_refused(data: bytes) -> None:
    try:
        numbers = unpack_numbers(data)
    except ValueError:
        return
    assert all(0 <= number < 2**31 for number in numbers.tolist())


@given(histograms)
def test_counts_come_back(histogram: Histogram) -> None:
    places, counts = unpack_counts(pack_counts(*histogram.filled()))
    assert (places.tolist(), counts.tolist()) == tuple(column.tolist() for column in histogram.filled())


@pytest.mark.parametrize("bits", range(11))
def test_slots_of_few_bits_are_as_wide_as_they_say(bits: int) -> None:
    of_slot = groups(bits)
    assert (np.diff(of_slot) >= 0).all()
    first = np.searchsorted(of_slot, np.arange(of_slot[-1] + 1))
    last = np.append(first[1:], SLOTS) - 1
    lowest, highest = lowest_values(first), highest_values(last)
    assert ((highest - lowest) <= lowest * 2.0**-bits).all()


@settings(max_examples=200)
@given(histograms, st.integers(0, 10))
def test_what_few_bits_tell_has_all_samples_in_their_coarse_slots_and_the_same_ends(
    histogram: Histogram, bits: int
) -> None:
    slots, counts = histogram.filled()
    again = refined(*coarsened(slots, counts, bits), bits, int(slots[0]), int(slots[-1]))
    told = Histogram()
    told.counts[again[0]] = again[1]
    assert (again[1] > 0).all()
    assert (told.total, told.min, told.max) == (histogram.total, histogram.min, histogram.max)
    for one, other in zip(coarsened(*again, bits), coarsened(slots, counts, bits), strict=True):
        assert one.tolist() == other.tolist()


@settings(max_examples=200)
@given(st.data())
def test_samples_are_shared_out_with_exactly_the_sums_asked_for(data: st.DataObject) -> None:
    # given a table of whole numbers
    rows, columns = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))
    largest = data.draw(st.sampled_from([1, 5, 1000, 10**6]))
    table = np.asarray(
        data.draw(
            st.lists(
                st.lists(st.integers(0, largest), min_size=columns, max_size=columns),
                min_size=rows,
                max_size=rows,
            )
        )
    )
    group_of = np.cumsum([0, *data.draw(st.lists(st.booleans(), min_size=columns - 1, max_size=columns - 1))])
    amounts = np.stack([table[:, group_of == group].sum(axis=1) for group in range(group_of[-1] + 1)], axis=1)
    # when one is made from the sums alone
    made = share_out(amounts, table.sum(axis=0), group_of)
    # then it has the same
    assert (made >= 0).all()
    assert made.sum(axis=0).tolist() == table.sum(axis=0).tolist()
    for group in range(group_of[-1] + 1):
        assert made[:, group_of == group].sum(axis=1).tolist() == amounts[:, group].tolist()


@given(st.lists(histograms, max_size=5))
def test_many_histograms_are_encoded_as_each_is(found: list[Histogram]) -> None:
    filled = [histogram.filled() for histogram in found]
    rows = np.repeat(np.arange(len(found)), [slots.size for slots, _ in filled])
    slots, counts = (
        np.concatenate([[], *column]).astype(np.int64)
        for column in ([f[0] for f in filled], [f[1] for f in filled])
    )
    assert encode_rows(rows, slots, counts) == [histogram.encode() for histogram in found]
