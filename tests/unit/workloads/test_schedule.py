"""Pacing: in order, on time, each call with the moment it was meant for."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.workloads.schedule import Schedule, spread


@given(st.lists(st.integers(0, 20), min_size=1, max_size=50))
async def test_calls_are_made_in_the_order_of_their_moments(delays: list[int]) -> None:
    schedule = Schedule(asyncio.get_running_loop())
    done = asyncio.Event()
    calls: list[tuple[float, float]] = []
    begin = time.monotonic()

    def call(when: float) -> None:
        calls.append((when, time.monotonic()))
        if len(calls) == len(delays):
            done.set()

    for delay in delays:
        schedule.at(begin + delay / 1000, call)
    await asyncio.wait_for(done.wait(), 600)
    schedule.close()
    assert [when for when, _ in calls] == sorted(when for when, _ in calls)
    assert all(made >= when for when, made in calls)


async def test_a_call_may_schedule_another_in_the_past_without_starving_the_loop() -> None:
    schedule = Schedule(asyncio.get_running_loop())
    made = 0

    def again(when: float) -> None:
        nonlocal made
        made += 1
        schedule.at(when - 1.0, again)

    schedule.at(time.monotonic(), again)
    await asyncio.sleep(0.05)  # would never end if the calls kept the loop
    schedule.close()
    assert made > 1


async def test_a_call_that_raises_keeps_no_other_from_being_made() -> None:
    loop = asyncio.get_running_loop()
    told: list[str] = []
    loop.set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    schedule = Schedule(loop)
    done = asyncio.Event()

    def fail(when: float) -> None:
        raise RuntimeError("no")

    now = time.monotonic()
    schedule.at(now + 0.01, fail)
    schedule.at(now + 0.01, lambda _: done.set())
    await asyncio.wait_for(done.wait(), 600)
    schedule.close()
    assert told == ["no"]


async def test_cleared_calls_are_not_made() -> None:
    schedule = Schedule(asyncio.get_running_loop())
    calls: list[float] = []
    schedule.at(time.monotonic() + 0.01, calls.append)
    schedule.clear()
    done = asyncio.Event()
    schedule.at(time.monotonic() + 0.03, lambda _: done.set())
    await asyncio.wait_for(done.wait(), 600)
    schedule.close()
    assert calls == []


def test_things_are_spread_evenly_from_the_begin() -> None:
    assert list(spread(4, 10.0, 2.0)) == [10.0, 10.5, 11.0, 11.5]
    assert list(spread(3, 10.0, 0.0)) == [10.0, 10.0, 10.0]
    assert list(spread(0, 10.0, 5.0)) == []
