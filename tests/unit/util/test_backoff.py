"""How long is waited before what failed is tried again."""

from __future__ import annotations

import pytest

from tippingpoint.util.backoff import FIRST_RETRY, LONGEST_RETRY, backoff


@pytest.mark.parametrize(("failures", "longest"), [(1, 0.1), (2, 0.2), (3, 0.4), (6, 2.0), (100_000, 2.0)])
def test_it_is_waited_twice_as_long_with_each_failure_and_differently_each_time(
    failures: int, longest: float
) -> None:
    waits = [backoff(failures, 0.1, 2.0) for _ in range(100)]
    assert all(0.75 * longest <= wait <= longest for wait in waits)
    assert len(set(waits)) > 1


def test_who_has_no_times_of_its_own_gets_those_of_all() -> None:
    assert 0.75 * FIRST_RETRY <= backoff(1) <= FIRST_RETRY
    assert 0.75 * LONGEST_RETRY <= backoff(50) <= LONGEST_RETRY
