"""What is believed of a limit."""

from __future__ import annotations

import pytest

from tippingpoint.analysis.search.beliefs import Beliefs


def test_quantiles_do_not_depend_on_the_order_of_stories_that_say_the_same() -> None:
    """Given a limit that may be anywhere from 0 to 111, in steps of 1, before any probe, then its quantiles are where
    the steps' shares have them: no story comes before another of the same limit."""
    shares = [0.25, 0.5, 0.75]
    assert Beliefs(0.0, 111.0).limit(0.0, shares) == pytest.approx([112 * share - 0.5 for share in shares])
