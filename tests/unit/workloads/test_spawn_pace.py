"""When things have their turn: so many a second, so many at once, or in batches, divided over workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workloads.spawn_rig import now
from tippingpoint.plan.spawn import SpawnWorkload
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.pace import Ownership, Pace, Turns


def workload(**pace: Any) -> SpawnWorkload:
    return SpawnWorkload.model_validate({"kind": "spawn", **pace})


def parts(load: SpawnWorkload, workers: int, changes: list[int]) -> list[Pace]:
    return [Pace.of(load, Ownership.among(load.at_once, index, workers), changes) for index in range(workers)]


@given(st.integers(1, 20), st.integers(1, 12), st.integers(0, 30))
def test_every_group_is_one_workers(limit: int, workers: int, groups: int) -> None:
    load = workload(concurrency=limit)
    owned = [
        group
        for index in range(workers)
        for group in Ownership.among(load.at_once, index, workers).groups(groups)
    ]
    assert sorted(owned) == list(range(groups))


@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 30), st.integers(1, 100))
def test_turns_at_once_are_divided_over_the_workers_that_have_groups(
    limit: int, workers: int, groups: int, instances: int
) -> None:
    load = workload(batch=limit)
    busy = [
        pace.slots
        for index, pace in enumerate(parts(load, workers, [instances] * groups))
        if Ownership.among(load.at_once, index, workers).groups(groups)
    ]
    assert sum(busy) == limit
    assert min(busy) >= 1


@given(st.floats(0.1, 1000), st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 8))
def test_the_workers_rates_add_up_to_the_plans(rate: float, changes: list[int], workers: int) -> None:
    load = workload(rate=rate)
    paces = parts(load, workers, changes)
    rates = [
        1 / pace.gap for index, pace in enumerate(paces) if sum(changes[index::workers]) or not sum(changes)
    ]
    assert sum(rates) == pytest.approx(rate)


class Queue:
    """Turns of things by name, with what had its turn and the moment that was meant."""

    def __init__(self, pace: Pace) -> None:
        self.had: list[str] = []
        self.moments: list[float] = []
        self.refuses: set[str] = set()
        self.schedule = Schedule(asyncio.get_running_loop())
        self.turns: Turns[str] = Turns(self.schedule, self._take)
        self.begun = now()
        self.turns.begin(pace, self.begun)

    def _take(self, thing: str, intended: float) -> bool:
        if thing in self.refuses:
            return False
        self.had.append(thing)
        self.moments.append(intended)
        return True

    def ask(self, things: str) -> None:
        for thing in things:
            self.turns.ask(thing, self.begun)


async def test_so_many_at_once_and_the_next_when_one_is_over() -> None:
    queue = Queue(Pace(slots=2))
    queue.ask("abcd")
    assert queue.had == ["a", "b"]
    queue.turns.give_back(queue.begun + 5)
    assert queue.had == ["a", "b", "c"]
    assert queue.moments == [queue.begun, queue.begun, queue.begun + 5]
    queue.schedule.close()


async def test_a_batch_is_over_before_the_next_begins() -> None:
    queue = Queue(Pace(slots=3, in_batches=True))
    queue.ask("abcde")
    assert queue.had == list("abc")
    queue.turns.give_back(queue.begun + 1)
    queue.turns.give_back(queue.begun + 2)
    assert queue.had == list("abc")
    queue.turns.give_back(queue.begun + 3)
    assert queue.had == list("abcde")
    assert queue.moments[3:] == [queue.begun + 3] * 2
    queue.schedule.close()


async def test_one_that_has_no_use_for_its_turn_leaves_it_to_the_next() -> None:
    queue = Queue(Pace(slots=1))
    queue.refuses = {"a", "b"}
    queue.ask("abc")
    assert queue.had == ["c"]
    queue.schedule.close()


@pytest.mark.parametrize("in_batches", [False, True])
async def test_what_is_tried_again_is_next(in_batches: bool) -> None:
    queue = Queue(Pace(slots=1, in_batches=in_batches))
    queue.ask("abc")
    queue.turns.ask("again", queue.begun, again=True)
    queue.turns.give_back(queue.begun)
    assert queue.had == ["a", "again"]
    queue.schedule.close()


async def test_turns_of_a_stage_before_still_count() -> None:
    queue = Queue(Pace(slots=2))
    queue.ask("abc")
    queue.turns.begin(Pace(slots=2), queue.begun)
    queue.ask("de")
    assert queue.had == ["a", "b"]
    queue.turns.give_back(queue.begun)
    assert queue.had == ["a", "b", "d"]
    queue.turns.forget()
    queue.ask("fg")
    assert queue.had == ["a", "b", "d", "f", "g"]
    queue.schedule.close()


async def test_in_an_open_loop_turns_are_moments_that_wait_for_nothing() -> None:
    queue = Queue(Pace(gap=0.01, offset=0.005))
    queue.ask("abcd")
    assert queue.had == []
    await _until(lambda: len(queue.had) == 4)
    assert queue.had == list("abcd")
    assert [round(moment - queue.begun, 6) for moment in queue.moments] == [0.005, 0.015, 0.025, 0.035]
    queue.schedule.close()


async def test_in_an_open_loop_what_is_tried_again_does_not_wait_for_the_others() -> None:
    queue = Queue(Pace(gap=10.0, offset=5.0))
    queue.ask("abcd")
    queue.turns.ask("again", queue.begun, again=True)
    await _until(lambda: queue.had)
    assert queue.had == ["again"]
    queue.schedule.close()


async def _until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - what it waits for is a kernel timer's
        await asyncio.sleep(0.005)
