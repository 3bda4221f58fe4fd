"""A worker's share of its core is right for the short intervals at a change of phase, too."""

from __future__ import annotations

import pytest

from tippingpoint.play.cpu_share import CpuShare


def test_the_share_is_cpu_time_by_time() -> None:
    share = CpuShare(10.0, 3.0)

    assert share.at(11.0, 3.25) == pytest.approx(0.25)
    assert share.at(12.0, 4.0) == pytest.approx(0.75)


def test_an_interval_of_a_millisecond_says_nothing_of_the_core() -> None:
    """Given 6 ms of CPU time between the readings of a clock that saw 1 ms, then the share is the last one, and the
    CPU time counts in the next interval."""
    share = CpuShare(10.0, 3.0)
    share.at(11.0, 3.2)

    assert share.at(11.001, 3.206) == pytest.approx(0.2)
    assert share.at(12.0, 3.4) == pytest.approx(0.2)
