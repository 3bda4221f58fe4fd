"""The load averages of a lab's nodes, beside the kernel's rule."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.pacemaker.load import EVERY_S, next_averages


@given(active=st.integers(min_value=0, max_value=1000), counts=st.integers(min_value=1, max_value=400))
def test_a_steady_number_of_tasks_is_approached_as_in_the_kernel(active: int, counts: int) -> None:
    # Given a node that was idle, and then has so many active tasks at each count
    averages = [0.0, 0.0, 0.0]
    for _ in range(counts):
        averages = next_averages(averages, active)
    # Then each average has forgotten the idle time at its own pace
    for average, minutes in zip(averages, (1, 5, 15), strict=True):
        assert average == pytest.approx(active * (1 - math.exp(-counts * EVERY_S / (60 * minutes))), abs=1e-6)


def test_an_idle_node_forgets() -> None:
    averages = next_averages([8.0, 4.0, 2.0], 0)
    assert averages == pytest.approx([8 * math.exp(-5 / 60), 4 * math.exp(-5 / 300), 2 * math.exp(-5 / 900)])
