"""What is believed of a limit."""

from __future__ import annotations

from math import inf

import pytest

from tippingpoint.analysis.search.beliefs import Beliefs, Evidence


def test_quantiles_do_not_depend_on_the_order_of_stories_that_say_the_same() -> None:
    """Given a limit that may be anywhere from 0 to 111, in steps of 1, before any probe, then its quantiles are where
    the steps' shares have them: no story comes before another of the same limit."""
    shares = [0.25, 0.5, 0.75]
    assert Beliefs(0.0, 111.0).limit(0.0, shares) == pytest.approx([112 * share - 0.5 for share in shares])


def test_a_drift_is_rare_until_probes_show_one() -> None:
    """Intervals allow for a drift more than words do: without any probe, its chance is a few in a hundred."""
    assert abs(Beliefs(0.0, 10.0).drifts) < 0.05


def test_a_limit_that_falls_all_the_time_is_said_to_drift() -> None:
    # given a limit of 5.0 that falls by a tenth in each ten holds, and is always near the loads
    beliefs = Beliefs(0.0, 10.0)
    for hold in range(60):
        limit, off = 5.0 - 0.01 * hold, 0.02 if hold % 2 else -0.02
        beliefs.learn(Evidence(limit + off, off < 0, 3.0 * off, 0.02, float(hold), hurt=False, since=inf))
    # then that is nearly certain, and its sign is known
    assert beliefs.drifts < -0.9
