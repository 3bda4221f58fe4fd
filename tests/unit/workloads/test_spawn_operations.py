"""How operations are timed and counted: from their intended moment, by how they ended."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from typing import Any

import pytest

from tippingpoint.errors import Limited, OperationFailed
from tippingpoint.rundir.recorder import Recorded, Recorder
from tippingpoint.rundir.tags import DELAYED, FREED, SCHEDULE_LAG
from tippingpoint.workloads.load import DRAIN_TIMEOUT
from tippingpoint.workloads.spawn.operations import Ended, Operations


class Rig:
    """Operations named `deploy`, whose futures the test ends."""

    def __init__(self, timeout: float = 60.0) -> None:
        self.recorder = Recorder()
        self.operations = Operations(["deploy"], self.recorder, timeout)
        self.ended: list[Ended] = []

    def begin(self, late: float = 0.0, ready_after: float = 0.0) -> Future[Any]:
        """An operation meant for `late` seconds ago, which could be sent `ready_after` seconds after that."""
        future: Future[Any] = asyncio.get_running_loop().create_future()
        intended = time.monotonic() - late
        self.operations.begin("deploy", future, intended, intended + ready_after, self.ended.append)
        return future

    def recorded(self) -> dict[str, Recorded]:
        return self.recorder.drain()

    def counts(self) -> dict[str, int]:
        skipped = ("generator.", ".service", DELAYED, FREED)
        return {name: h.total for name, h in self.recorded().items() if not any(s in name for s in skipped)}


async def test_response_time_counts_from_the_intended_moment_and_service_time_from_the_send() -> None:
    # given a call sent 5 s after its moment, of which 4 s were the target's
    rig = Rig()
    rig.begin(late=5.0, ready_after=4.0).set_result("made")
    await asyncio.sleep(0)
    # then all of it is response time, none of it service time, and 1 s is the generator's lag
    recorded = rig.recorded()
    assert 4_990_000 <= recorded["deploy.ok"].min < 6_000_000
    assert recorded["deploy.ok.service"].max < 1_000_000
    assert 990_000 <= recorded[SCHEDULE_LAG].min < 2_000_000
    (ended,) = rig.ended
    assert (ended.outcome, ended.answer) == ("ok", "made")


async def test_failures_are_counted_by_what_they_are() -> None:
    rig = Rig()
    rig.begin().set_exception(OperationFailed("no such charm"))
    rig.begin().set_exception(Limited("try again"))
    rig.begin().set_exception(KeyError("machine"))
    await asyncio.sleep(0)
    assert rig.counts() == {"deploy.error": 2, "deploy.limited": 1}
    assert rig.operations.errors["deploy", "error", "no such charm"] == 1
    assert [ended.outcome for ended in rig.ended] == ["error", "limited", "error"]
    assert rig.operations.under_way == 0


async def test_what_is_older_than_the_timeout_is_given_up() -> None:
    # given a call from longer ago than the timeout, and one from now
    rig = Rig(timeout=0.2)
    old = rig.begin()
    await asyncio.sleep(0.25)
    new = rig.begin()
    # when time is looked at
    rig.operations.expire()
    await asyncio.sleep(0)
    # then the old one has timed out and the new one goes on
    assert old.cancelled()
    assert not new.done()
    assert rig.counts() == {"deploy.timeout": 1}
    assert rig.operations.under_way == 1


async def test_what_has_no_answer_at_the_end_is_a_timeout_and_what_has_one_counts() -> None:
    rig = Rig()
    answered, hanging = rig.begin(), rig.begin()
    asyncio.get_running_loop().call_soon(answered.set_result, None)
    await rig.operations.drain(0.1)
    assert rig.counts() == {"deploy.ok": 1, "deploy.timeout": 1}
    await asyncio.sleep(0)
    assert hanging.cancelled()
    assert [ended.outcome for ended in rig.ended] == ["ok"]
    assert rig.operations.under_way == 0


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_is_cut_before_the_target_had_its_time_counts_for_nothing(at_once: bool) -> None:
    rig = Rig()
    owed, just_made, answered = rig.begin(late=DRAIN_TIMEOUT), rig.begin(), rig.begin()
    if at_once:
        answered.set_result("made")
        rig.operations.cut()
    else:
        draining = asyncio.create_task(rig.operations.drain(10.0))
        await asyncio.sleep(0)
        draining.cancel()
        answered.set_result("made")
        await asyncio.gather(draining, return_exceptions=True)
    await asyncio.sleep(0)
    assert rig.counts() == {"deploy.ok": 1, "deploy.timeout": 1}
    assert owed.cancelled()
    assert just_made.cancelled()
    assert rig.operations.under_way == 0


async def test_an_answer_at_the_very_moment_that_waiting_ends_counts_at_once() -> None:
    """Given an answer that its call has not been told of yet, as the loop has other things to do first."""
    rig = Rig()
    answer = rig.begin()
    there: list[tuple[int, dict[str, int]]] = []

    async def drained() -> None:
        try:
            await rig.operations.drain(10.0)
        finally:
            there.append((rig.operations.under_way, rig.counts()))

    draining = asyncio.create_task(drained())
    await asyncio.sleep(0)
    draining.cancel()
    answer.set_result("made")
    await asyncio.gather(draining, return_exceptions=True)
    assert there == [(0, {"deploy.ok": 1})]
    assert [ended.answer for ended in rig.ended] == ["made"]


async def test_a_flood_of_different_messages_stays_bounded() -> None:
    rig = Rig()
    for number in range(1000):
        rig.operations.errors.note("deploy", "error", f"problem {number}")
    assert len(rig.operations.errors) < 50
    assert rig.operations.errors.total() == 1000


async def test_what_the_generator_delayed_is_known_apart_for_each_operation() -> None:
    # given an operation sent 5 s late, of which 4 s were the target's, and one on time
    rig = Rig()
    rig.begin(late=5.0, ready_after=4.0).set_exception(OperationFailed("no"))
    await asyncio.sleep(0)
    # then the record has it as it was, and without the second that was ours
    recorded = rig.recorded()
    assert recorded["deploy.error" + DELAYED].max == recorded["deploy.error"].max
    ours = recorded["deploy.error"].max - recorded["deploy.error" + FREED].max
    assert 990_000 <= ours <= recorded[SCHEDULE_LAG].max + 10_000


async def test_an_answer_that_came_while_we_stood_still_has_not_timed_out() -> None:
    # given an operation under way for longer than its timeout, nearly all of which we stood still for
    rig = Rig(timeout=2.0)
    answered, silent = rig.begin(), rig.begin()
    began = time.monotonic()
    rig.recorder.pulse.beat(began - 50.0, began)
    for call in rig.operations._calls.values():  # pyright: ignore[reportPrivateUsage]
        call.intended = call.sent = began - 51.0
    # when it is looked at what has timed out, before the answer is read
    rig.operations.expire()
    answered.set_result("made")
    await asyncio.sleep(0)
    # then it is answered, and of its time one second is the target's
    assert not silent.cancelled()
    recorded = rig.recorded()
    assert recorded["deploy.ok"].max >= 50_900_000
    assert recorded["deploy.ok" + FREED].max < 2_000_000
