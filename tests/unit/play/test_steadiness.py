"""When a load is steady, so that a search does not blame it for the backlog of the load before."""

from __future__ import annotations

from tippingpoint.play.steadiness import Steadiness


def test_a_load_is_steady_when_no_operation_is_old() -> None:
    steadiness = Steadiness(calm=0.1)
    assert not steadiness.is_reached(0.5, 1.0)
    assert steadiness.is_reached(0.1, 2.0)


def test_without_a_limit_a_load_that_is_up_is_steady() -> None:
    assert Steadiness(calm=None).is_reached(60.0, 1.0)


def test_a_backlog_that_drains_slowly_is_waited_for() -> None:
    # given a backlog whose oldest operation gets younger by a second in each four
    steadiness = Steadiness(calm=0.1)
    ages = [(4.0 * step, 12.0 - step) for step in range(12)]
    # then the load is not steady before the backlog is gone
    assert not any(steadiness.is_reached(age, now) for now, age in ages)
    assert steadiness.is_near(45.0)
    assert steadiness.is_reached(0.05, 48.0)


def test_a_load_that_gets_no_calmer_is_as_steady_as_it_will_be() -> None:
    # given a target that answers later and later
    steadiness = Steadiness(calm=0.1)
    assert not steadiness.is_reached(2.0, 0.0)
    assert not steadiness.is_reached(2.5, 4.0)
    # then it is judged after five seconds without progress
    assert steadiness.is_reached(3.0, 5.0)
    assert not steadiness.is_near(5.0)


def test_an_operation_that_only_gets_a_little_younger_is_no_progress() -> None:
    steadiness = Steadiness(calm=0.1)
    assert not steadiness.is_reached(10.0, 0.0)
    assert not steadiness.is_reached(9.99, 4.0)
    assert steadiness.is_reached(9.98, 6.0)
