"""What a hold has measured while it lasts."""

from __future__ import annotations

import pytest

from tests.unit.play.run_ticks import tick_of
from tippingpoint.play.live_stage import LiveStage
from tippingpoint.rundir.histogram import Histogram


def extends(milliseconds: float, count: int = 10) -> dict[str, Histogram]:
    return {"extend.ok": Histogram.of([int(milliseconds * 1000)] * count)}


def test_the_ramp_and_the_stage_before_stay_out_of_the_hold() -> None:
    # given ticks of the stage before, of the ramp, of the second in which the hold began, and of the hold
    so_far = LiveStage(3, 100, "find", begin=10.0)
    for t, milliseconds in ((10.0, 900), (11.0, 700)):
        so_far.add(tick_of(samples=extends(milliseconds), t=t))
    so_far.begin_hold(11.5)
    for t, milliseconds in ((12.0, 500), (13.0, 5), (14.0, 6)):
        so_far.add(tick_of(samples=extends(milliseconds), t=t))
    # when they are read
    so_far.read()
    # then the hold has its own, and the stage those of its ramp as well
    assert so_far.held_for == 2.5
    assert so_far.stage.held["extend.ok"].max < 7_000
    assert so_far.stage.held["extend.ok"].total == 20
    assert so_far.stage.count("extend") == 40  # without the stage before
    assert so_far.stage.throughput("extend") == pytest.approx(20 / 2.5)


def test_the_workers_of_a_second_are_joined() -> None:
    so_far = LiveStage(1, 100, "find", begin=0.0)
    so_far.begin_hold(0.0)
    for t in (1.0, 1.2, 2.0, 2.2):
        so_far.add(tick_of(samples=extends(5), t=t))
    so_far.read()
    assert [part["extend.ok"].total for part in so_far.parts] == [20, 20]


def test_a_long_hold_has_few_parts_that_lose_nothing() -> None:
    so_far = LiveStage(1, 100, "find", begin=0.0)
    so_far.begin_hold(0.0)
    for second in range(200):
        so_far.add(tick_of(samples={**extends(5), "extend.ok.service": Histogram.of([1])}, t=second + 1.0))
        so_far.read()
    assert len(so_far.parts) == 50
    assert {part["extend.ok"].total for part in so_far.parts} == {40}
    assert all(list(part) == ["extend.ok"] for part in so_far.parts)
    assert so_far.stage.held["extend.ok"].total == 2000
