"""A unit that follows the shared run: which turn it is told of, when, and by which clock."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

from tippingpoint.conduct.director import begin_run, stop
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.plan.read import parse_plan
from tippingpoint.play.conductor import Conductor

PLAN = parse_plan("name: t\nstages: [{leases: 10, hold: 30s}, {leases: 20, hold: 30s}]")


def turn(number: int, of: int = 2, *, begins_in: float = 10.0, **fields: Any) -> Turn:
    begin = time.time() + begins_in
    return Turn.model_validate(
        {"number": number, "stage": number, "kind": "ramp", "of": of, "begin": begin, "lasts": 30.0, **fields}
    )


class Unit(Conductor):
    """A follower that keeps what it said."""

    def __init__(self, number: int, units: int, *, after: int = 0) -> None:
        self.said: list[tuple[str, int]] = []
        self.run = begin_run(PLAN, [f"load-claimer/{each}" for each in range(units)], time.time())
        super().__init__(f"load-claimer/{number}", self.run, self._keep, after=after)

    def _keep(self, phase: Literal["ready", "up"], turn: int) -> None:
        self.said.append((phase, turn))

    def name(self, *turns: Turn, ahead: float = 0.0, **fields: Any) -> SharedRun:
        """The leader names these turns."""
        self.run = self.run.model_copy(update={"turns": list(turns), **fields})
        self.see(self.run, ahead)
        return self.run


async def test_a_turn_is_told_once_as_soon_as_it_is_named() -> None:
    unit = Unit(1, 2)
    first = turn(1)
    asked = asyncio.create_task(unit.next_turn())
    await asyncio.sleep(0)
    unit.name(first)
    assert await asked == first
    # and not again for its hold, but for the turn that is named with it
    asked = asyncio.create_task(unit.next_turn())
    held = first.model_copy(update={"hold": time.time()})
    unit.name(held)
    await asyncio.sleep(0.01)
    assert not asked.done()
    second = turn(2)
    unit.name(held, second)
    assert await asked == second


async def test_a_turn_that_takes_another_ones_place_is_told() -> None:
    unit = Unit(0, 2)
    held = turn(1, hold=time.time())
    unit.name(held, turn(2))
    assert (await unit.next_turn() or held).kind == "ramp"
    unit.name(held, turn(2, kind="storm", stage=1))
    assert (await unit.next_turn() or held).kind == "storm"


async def test_who_gave_up_waiting_misses_nothing() -> None:
    unit = Unit(0, 1)
    asked = asyncio.create_task(unit.next_turn())
    await asyncio.sleep(0)
    asked.cancel()
    unit.name(turn(1, of=1))
    assert await unit.next_turn() is not None


async def test_a_unit_that_joins_is_told_of_the_first_turn_it_has_a_share_in() -> None:
    # given a third unit, of which the leader does not know
    unit = Unit(2, 2)
    assert unit.share == (2, 3)
    asked = asyncio.create_task(unit.next_turn())
    held = turn(1, hold=time.time())
    unit.name(held)
    await asyncio.sleep(0.01)
    assert not asked.done()
    # when it is one of those that have the next turn
    second = turn(2, of=3)
    unit.name(held, second, units=[*unit.run.units, "load-claimer/2"])
    # then that one is its first
    assert await asked == second


async def test_moments_are_by_our_own_clock() -> None:
    unit = Unit(0, 1)
    named = turn(1, of=1, hold=time.time())
    unit.name(named, ahead=100.0)
    told = await unit.next_turn()
    assert told is not None
    assert told.begin == named.begin + 100
    assert named.hold is not None
    assert await unit.up(told) == named.hold + 100
    assert unit.said == [("up", 1)]


async def test_a_hold_that_ends_early_ends_by_our_own_clock_and_is_no_other_turn() -> None:
    # given the hold of a search's turn
    unit = Unit(0, 1)
    named = turn(1, of=1, kind="find", load=10, hold=time.time())
    unit.name(named, shared=True)
    told = await unit.next_turn()
    assert told is not None
    assert unit.ends(told) is None
    # when it is to end before its time
    early = named.model_copy(update={"ends": time.time() + 5.0})
    unit.name(early, ahead=100.0, shared=True)
    # then the unit knows when, and has no other turn until the next one
    assert early.ends is not None
    assert unit.ends(told) == early.ends + 100
    asked = asyncio.create_task(unit.next_turn())
    await asyncio.sleep(0.01)
    assert not asked.done()
    following = turn(2, of=1, kind="find", load=20)
    unit.name(early, following, shared=True)
    assert await asked == following
    assert unit.ends(following) is None


async def test_a_unit_that_comes_to_a_turn_when_the_others_are_further_holds_it_at_once() -> None:
    unit = Unit(0, 2)
    unit.name(turn(3, hold=time.time()), turn(4))
    before = time.time()
    hold = await unit.up(turn(1))
    assert hold is not None
    assert before <= hold <= time.time()


async def test_nothing_follows_when_the_last_hold_is_over() -> None:
    unit = Unit(0, 1)
    unit.name(turn(2, of=1, hold=time.time() - 31))
    assert await unit.next_turn() is not None  # it may still be played, late
    assert await unit.next_turn() is None
    assert unit.stopped == ""


async def test_a_stop_ends_every_wait() -> None:
    unit = Unit(0, 1)
    unit.name(turn(1, of=1))
    told = await unit.next_turn()
    assert told is not None
    waits = [asyncio.create_task(unit.up(told))]
    await asyncio.sleep(0)
    unit.see(stop(unit.run, "enough"), 0.0)
    assert await waits[0] is None
    assert await unit.next_turn() is None
    assert unit.stopped == "enough"


async def test_a_unit_that_begins_anew_takes_no_part_in_the_turn_that_it_left() -> None:
    unit = Unit(0, 2, after=1)
    unit.name(turn(1))
    asked = asyncio.create_task(unit.next_turn())
    await asyncio.sleep(0.01)
    assert not asked.done()
    again = turn(2)
    unit.name(turn(1), again)
    assert await asked == again
