"""Histograms: exact against sorted data, and interchangeable with the kept HdrHistogram port."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.rundir.histogram import Histogram, decode_batch
from tippingpoint.rundir.recorder import HIGHEST_US, Recorded, Recorder

values = st.lists(st.integers(1, HIGHEST_US), min_size=1, max_size=200)
PERCENTILES = [0, 10, 50, 90, 95, 99, 99.9, 100]


def exact(samples: list[int], percentile: float) -> int:
    """The percentile of a list by its definition: the smallest value with that share at or below it."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(len(ordered) * percentile / 100 - 1e-9) - 1)]


@given(values)
def test_percentiles_are_the_exact_ones_to_a_tenth_of_a_percent(samples: list[int]) -> None:
    histogram = Histogram.of(samples)
    for percentile in PERCENTILES:
        truth = exact(samples, percentile)
        assert truth <= histogram.percentile(percentile) <= truth * 1.001 + 1
    assert histogram.total == len(samples)
    assert min(samples) * 0.999 - 1 <= histogram.min <= min(samples)
    assert max(samples) <= histogram.max <= max(samples) * 1.001 + 1
    assert histogram.mean == pytest.approx(sum(samples) / len(samples), rel=0.001, abs=1)


def test_percentiles_of_known_data_are_exact() -> None:
    # 1 to 1000 µs, once each: below 2048 µs every value has a slot of its own
    histogram = Histogram.of(range(1, 1001))
    assert histogram.percentiles([50, 90, 95, 99, 99.9, 100]) == [500, 900, 950, 990, 999, 1000]
    assert (histogram.min, histogram.max, histogram.mean) == (1, 1000, 500.5)


@given(values)
def test_the_kept_port_reads_ours_and_we_read_its(samples: list[int]) -> None:
    ours = Histogram.of(samples)
    theirs = HdrHistogram(1, HIGHEST_US, 3)
    for sample in samples:
        theirs.record_value(sample)
    opened = HdrHistogram.decode(ours.encode())
    assert opened.get_total_count() == len(samples)
    assert opened.get_value_at_percentile(99) == theirs.get_value_at_percentile(99)
    assert np.array_equal(Histogram.decode(theirs.encode()).counts, ours.counts)


@given(values)
def test_what_is_kept_by_slot_says_what_arrays_say(samples: list[int]) -> None:
    arrays, by_slot = Histogram.of(samples), Recorded(samples)
    assert (by_slot.total, by_slot.min, by_slot.max) == (arrays.total, arrays.min, arrays.max)
    assert by_slot.encode() == arrays.encode()


@given(st.lists(st.lists(st.integers(1, HIGHEST_US), max_size=50), min_size=1, max_size=8))
def test_merging_is_exact_and_batches_decode_like_single_ones(parts: list[list[int]]) -> None:
    histograms = [Histogram.of(part) if part else Histogram() for part in parts]
    together = Histogram.of([value for part in parts for value in part])
    assert np.array_equal(Histogram.merged(histograms).counts, together.counts)
    batch = decode_batch([histogram.encode() for histogram in histograms])
    for row, histogram in enumerate(histograms):
        slots, counts = histogram.filled()
        assert np.array_equal(batch.slots[batch.rows == row], slots)
        assert np.array_equal(batch.counts[batch.rows == row], counts)


def test_values_out_of_range_move_to_the_nearest_end() -> None:
    histogram = Histogram.of([-5, 10 * HIGHEST_US])
    assert histogram.total == 2
    assert histogram.min == 0
    assert histogram.max >= HIGHEST_US


def test_an_empty_histogram_reports_zeros() -> None:
    histogram = Histogram()
    assert (histogram.total, histogram.min, histogram.max, histogram.mean, histogram.percentile(99)) == (
        0,
        0,
        0,
        0,
        0,
    )
    assert Histogram.decode(histogram.encode()).total == 0


@pytest.mark.parametrize("text", ["", "not base64!", "AAAA", Histogram.of([5]).encode()[:-8]])
def test_what_is_not_a_histogram_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="histogram"):
        decode_batch([text])


def test_a_histogram_of_another_precision_is_refused() -> None:
    other = HdrHistogram(1, HIGHEST_US, 2)
    other.record_value(5)
    with pytest.raises(ValueError, match="expected V2, 3 digits"):
        decode_batch([other.encode()])


def test_a_recorder_gives_each_tag_its_own_histogram_once() -> None:
    recorder = Recorder()
    claim, extend = recorder.appender("claim.ok"), recorder.appender("extend.ok")
    claim(100)
    extend(7)
    extend(9)
    drained = recorder.drain()
    assert {tag: histogram.total for tag, histogram in drained.items()} == {"claim.ok": 1, "extend.ok": 2}
    assert recorder.drain() == {}
    claim(3)
    assert recorder.drain()["claim.ok"].max == 3
