"""What a column of a regression adds, from slices of time: counters and rates, noise, and what cannot be told."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.analysis.slices import MOST, Slices, fit, left_over, rate_slices


def columns_of(random: np.random.Generator, count: int, number: int) -> np.ndarray:
    """A base, and operations that come and go independently of each other."""
    return np.column_stack([np.ones(count), *random.uniform(0, 100, (number, count))])


class TestSlices:
    def test_rates_over_windows_longer_than_a_step_do_not_overlap(self) -> None:
        found = rate_slices([10, 15, 20, 25, 30, 35, 40], [1.0, 9.0, 9.0, 9.0, 2.0, 9.0, None], window=20)
        assert list(zip(found.begin, found.end, found.amount, strict=True)) == [(-10, 10, 20), (10, 30, 40)]

    def test_many_are_joined_without_losing_anything_and_never_over_a_gap(self) -> None:
        # given 1,000 slices of a second, and 1,000 after a pause
        begin = np.concatenate((np.arange(1000.0), 5000 + np.arange(1000.0)))
        found = Slices(begin, begin + 1, np.ones(2000)).joined()
        assert MOST / 2 < len(found) <= MOST + 1
        assert found.amount.sum() == 2000
        assert np.allclose(found.amount, found.end - found.begin)

    @given(
        begin=st.floats(0, 50),
        seconds=st.floats(1, 50),
        counts=st.lists(st.floats(0, 10), min_size=2, max_size=60),
    )
    def test_what_overlaps_a_span_is_left_out(
        self, begin: float, seconds: float, counts: list[float]
    ) -> None:
        every = rate_slices(list(range(len(counts) + 1)), [None, *counts], window=1)
        kept = every.outside([(begin, begin + seconds)])
        assert all(
            end <= begin or since >= begin + seconds for since, end in zip(kept.begin, kept.end, strict=True)
        )
        assert len(kept) + sum(
            since < begin + seconds and end > begin for since, end in zip(every.begin, every.end, strict=True)
        ) == len(every)


class TestFit:
    @settings(deadline=None, max_examples=15)
    @given(seed=st.integers(0, 10**6), count=st.integers(24, 130), number=st.integers(1, 3))
    def test_without_noise_the_costs_are_found_exactly(self, seed: int, count: int, number: int) -> None:
        random = np.random.default_rng(seed)
        columns = columns_of(random, count, number)
        costs = random.uniform(0.1, 10, number + 1)
        found = fit(columns, columns @ costs, 0.95)
        assert found.values == pytest.approx(costs, rel=1e-6)
        assert found.low == pytest.approx(costs, rel=1e-3)
        assert found.high == pytest.approx(costs, rel=1e-3)

    @settings(deadline=None, max_examples=15)
    @given(seed=st.integers(0, 10**6), units=st.floats(1e-9, 1e9), calls=st.floats(1e-6, 1e6))
    def test_units_change_nothing(self, seed: int, units: float, calls: float) -> None:
        # given the same run, counted in other units of what was taken and of calls
        random = np.random.default_rng(seed)
        columns = columns_of(random, 60, 1)
        levels = columns @ [5.0, 1.0] * random.normal(1, 0.1, 60)
        found, other = fit(columns, levels, 0.95), fit(columns * [1, calls], levels * units, 0.95)
        for name in ("values", "low", "high", "errors"):
            one, again = getattr(found, name), getattr(other, name)
            assert again == pytest.approx(one * units / np.array([1, calls]), rel=1e-6)

    @pytest.mark.parametrize("alike", [0.0, 0.6])
    def test_an_interval_of_95_percent_holds_the_truth_as_often_however_alike_slices_are(
        self, alike: float
    ) -> None:
        # given stages whose rates go up, with noise that grows with them and lasts
        random = np.random.default_rng(7)
        rates = np.repeat([0.0, 100.0, 200.0, 400.0, 800.0, 0.0], 16)
        columns = np.column_stack([np.ones(len(rates)), rates])
        held, rounds = 0, 200
        for _ in range(rounds):
            noise = np.zeros(len(rates))
            state = random.normal()
            for place in range(len(rates)):
                state = alike * state + np.sqrt(1 - alike**2) * random.normal()
                noise[place] = state
            levels = (0.05 + 120e-6 * rates) * (1 + 0.05 * noise)
            found = fit(columns, levels, 0.95)
            held += bool(found.low[1] <= 120e-6 <= found.high[1])
        # then the interval is as good as it says, but for a few in a hundred
        assert 0.89 <= held / rounds <= 0.995

    def test_what_is_always_in_a_fixed_ratio_has_nothing_left(self) -> None:
        rates = np.repeat([0.0, 10.0, 20.0], 10)
        columns = np.column_stack([np.ones(30), rates])
        assert left_over(columns, 3 * rates) == pytest.approx(0.0, abs=1e-12)
        assert left_over(columns[:, :1], rates) > 0.3
        assert left_over(columns, np.zeros(30)) == 0.0
