"""The claim workload against a target that does what a real one will not do on demand: hang, answer late, deny."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import Any

import pytest

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.claim import ClaimWorkload, Stage
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.recorder import Recorded, Recorder
from tippingpoint.rundir.tags import DELAYED, FREED
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.claim.workload import ClaimLoad
from tippingpoint.workloads.load import StageOrder, TargetFacts
from tippingpoint.workloads.schedule import Schedule


def stage_order(leases: int, **fields: Any) -> StageOrder:
    """The begin of a stage, of one worker if nothing else is said."""
    of_one = {"number": 1, "kind": "ramp", "over": 0.0, "share": (0, 1), "listed": 1}
    return StageOrder.model_validate({**of_one, "size": leases, "spec": Stage(leases=leases), **fields})


class HandTarget:
    """A lease service operated by the test: every call stays open until the test answers it."""

    def __init__(self) -> None:
        self.claims: list[tuple[int, int, Future[Holding | None]]] = []
        self.extends: list[tuple[Holding, Future[bool]]] = []
        self.watches: dict[tuple[int, int], Callable[[], None]] = {}
        self.released: list[int] = []
        self.called = asyncio.Event()

    async def open(self) -> TargetFacts:
        return TargetFacts("hand", "1", [])

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        future: Future[Holding | None] = asyncio.get_running_loop().create_future()
        self.claims.append((lease, holder, future))
        self.called.set()
        return future

    def extend(self, holding: Holding) -> Future[bool]:
        future: Future[bool] = asyncio.get_running_loop().create_future()
        self.extends.append((holding, future))
        self.called.set()
        return future

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        self.watches[lease, holder] = released

    def unwatch(self, lease: int, holder: int) -> None:
        self.watches.pop((lease, holder), None)

    def release(self, holding: Holding) -> Future[None]:
        self.released.append(holding.lease)
        future: Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    async def drop(self) -> None:
        self.watches.clear()

    async def close(self) -> None:
        pass

    async def calls(self, claims: int = 0, extends: int = 0) -> None:
        """Wait until so many calls were made in all."""
        async with asyncio.timeout(600):
            while len(self.claims) < claims or len(self.extends) < extends:
                self.called.clear()
                await self.called.wait()

    def grant(self, number: int) -> None:
        """Answer a claim with the lease."""
        lease, holder, future = self.claims[number]
        future.set_result(Holding(lease, holder))


class Rig:
    """A load on a HandTarget, and what it recorded."""

    def __init__(
        self,
        units: int = 1,
        renew_time: float = 0.05,
        timeout: float = 60.0,
        target: HandTarget | None = None,
        claim_time: float = 1200.0,
    ) -> None:
        self.target = target or HandTarget()
        self.recorder = Recorder()
        self.schedule = Schedule(asyncio.get_running_loop())
        workload = ClaimWorkload(units=units, claim_time=claim_time, renew_time=renew_time, timeout=timeout)
        self.load = ClaimLoad(workload, self.target, self.recorder, self.schedule)

    def recorded(self) -> dict[str, Recorded]:
        found = self.recorder.drain()
        return {tag: histogram for tag, histogram in found.items() if not tag.startswith("generator.")}

    def counts(self) -> dict[str, int]:
        """How often operations ended how."""
        beside = (".service", DELAYED, FREED)
        return {tag: found.total for tag, found in self.recorded().items() if not tag.endswith(beside)}


async def test_operations_without_an_answer_at_the_end_count_as_timeouts() -> None:
    # given four claims that hang
    rig = Rig()
    rig.load.set_leases({0, 1, 2, 3}, 0.0)
    await rig.target.calls(claims=4)
    # when one is answered while the load is drained
    rig.load.stop()
    asyncio.get_running_loop().call_later(0.01, rig.target.grant, 0)
    await rig.load.drain(0.1)
    # then it counts, and the others count as timed out at their age
    recorded = rig.recorded()
    assert recorded["claim.ok"].total == 1
    assert recorded["claim.timeout"].total == 3
    assert recorded["claim.timeout"].min >= 90_000


async def test_what_is_in_flight_is_waited_for_while_the_load_goes_on() -> None:
    # given a lease that is held, and another whose claim hangs
    rig = Rig()
    rig.load.set_leases({0, 1}, 0.0)
    await rig.target.calls(claims=2)
    rig.target.grant(0)
    await rig.target.calls(extends=1)
    assert rig.load.gauge.oldest > 0
    # when what is in flight is waited for, and the extension is answered meanwhile
    settling = asyncio.create_task(rig.load.settle(0.2))
    await asyncio.sleep(0)
    rig.target.extends[0][1].set_result(True)
    unanswered = await settling
    # then only the claim had no answer, it may still get one, and the lease goes on being extended
    assert list(unanswered) == ["claim"]
    assert unanswered["claim"][0] >= 0.2
    await rig.target.calls(extends=2)
    rig.target.grant(1)
    await asyncio.sleep(0)
    assert rig.counts() == {"claim.ok": 2, "extend.ok": 1}


async def test_what_has_no_answer_when_a_load_is_judged_counts_as_a_timeout() -> None:
    # given a lease whose claim hangs
    rig = Rig()
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    # when the load is judged while it goes on, and the claim is answered after that
    told = await rig.load.settle(0.1, count=True)
    recorded = rig.recorded()
    rig.target.grant(0)
    await asyncio.sleep(0)
    # then it counts as timed out at its age in what is judged, and as answered in what follows
    assert told == {}
    assert (recorded["claim.timeout"].total, "claim.ok" in recorded) == (1, False)
    assert recorded["claim.timeout"].min >= 90_000
    assert rig.counts() == {"claim.ok": 1}
    assert rig.load.errors["claim", "timeout", "no answer when the load was judged"] == 1


async def test_an_answer_that_is_there_when_time_runs_out_counts_as_an_answer() -> None:
    rig = Rig(timeout=0.02)
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    await asyncio.sleep(0.03)
    rig.target.grant(0)
    rig.load.expire_calls()
    await asyncio.sleep(0)
    assert rig.counts() == {"claim.ok": 1}
    assert rig.load.gauge.held == 1


async def test_an_answer_at_the_very_moment_that_waiting_ends_counts_at_once() -> None:
    """Given an answer that its unit has not been told of yet, as the loop has other things to do first."""
    rig = Rig()
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    rig.load.stop()
    there: list[tuple[int, int, dict[str, int]]] = []

    async def drained() -> None:
        try:
            await rig.load.drain(10.0)
        finally:
            there.append((rig.load.gauge.held, rig.load.gauge.in_flight, rig.counts()))

    draining = asyncio.create_task(drained())
    await asyncio.sleep(0)
    draining.cancel()
    rig.target.grant(0)
    await asyncio.gather(draining, return_exceptions=True)
    assert there == [(1, 0, {"claim.ok": 1})]
    assert await rig.load.give_back(1.0) == 0
    assert rig.target.released == [0]


class LedTarget(HandTarget):
    """One that says who leads, one answer after the other, and in the end that it does not say so."""

    def __init__(self, leaders: list[str]) -> None:
        super().__init__()
        self.leaders = leaders
        self.silent = asyncio.Event()

    async def leader(self) -> str | None:
        if self.leaders:
            return self.leaders.pop(0)
        self.silent.set()
        return None


async def test_one_worker_tells_of_each_change_of_the_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tippingpoint.workloads.claim.workload.LEADER_EVERY", 0.001)

    # given an election, after which nobody may ask any more
    for worker, told in ((0, ["m1", "m3"]), (1, [])):
        target = LedTarget(["", "m1", "m1", "", "m3", "m3"])
        rig = Rig(target=target)
        for number in (1, 2):
            await rig.load.begin_stage(
                StageOrder(
                    number=number,
                    size=2,
                    spec=Stage(leases=2),
                    kind="ramp",
                    over=0.0,
                    share=(worker, 2),
                    listed=number,
                )
            )
        if not worker:
            async with asyncio.timeout(600):
                await target.silent.wait()
        await rig.load.close()
        assert [(event, fields) for _, event, fields in rig.load.events] == [
            ("leader", {"member": name}) for name in told
        ]


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_is_cut_before_the_target_had_its_time_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    """Given a claim that has no answer for long, and others that were just made, when the load is cut (at once, or
    while they are waited for), then the first is the target's failure, and of the others nobody knows."""
    monkeypatch.setattr("tippingpoint.workloads.calls.DRAIN_TIMEOUT", 2.0)

    rig = Rig()
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    await asyncio.sleep(2.1)
    rig.load.set_leases({0, 1, 2}, 0.0)
    await rig.target.calls(claims=3)
    rig.load.stop()
    if at_once:
        rig.load.cut()
    else:
        draining = asyncio.create_task(rig.load.drain(10.0))
        await asyncio.sleep(0)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
    # and what then comes of them counts for nothing either
    await rig.load.give_back(0.0)
    await asyncio.sleep(0)
    assert rig.counts() == {"claim.timeout": 1}
    assert rig.load.errors == {("claim", "timeout", "no answer when the load ended"): 1}
    assert all(future.cancelled() for _, _, future in rig.target.claims)


async def test_an_answer_at_the_very_moment_of_a_storm_counts() -> None:
    rig = Rig()
    rig.load.set_leases({0, 1}, 0.0)
    await rig.target.calls(claims=2)
    rig.target.grant(0)
    await rig.load.begin_stage(stage_order(2, number=2, kind="storm", share=(0, 1)))
    assert rig.counts() == {"claim.ok": 1}


async def test_a_call_older_than_the_timeout_is_given_up_and_tried_again() -> None:
    rig = Rig(timeout=0.02, renew_time=0.05)
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    await asyncio.sleep(0.03)
    rig.load.expire_calls()
    await rig.target.calls(claims=2)
    assert rig.counts() == {"claim.timeout": 1}


async def test_extensions_stay_due_at_fixed_moments_while_the_target_stalls() -> None:
    # given a lease renewed each 50 ms
    rig = Rig(renew_time=0.05)
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    rig.target.grant(0)
    await rig.target.calls(extends=1)
    # when its first extension is answered after 250 ms, and what became due meanwhile at once
    await asyncio.sleep(0.25)
    for number in range(5):
        await rig.target.calls(extends=number + 1)
        rig.target.extends[number][1].set_result(True)
        await asyncio.sleep(0)
    # then response time shows the whole stall, for each of the moments in it
    recorded = rig.recorded()
    assert recorded["extend.ok"].total == 5
    assert recorded["extend.ok"].max >= 240_000
    assert Histogram.decode(recorded["extend.ok"].encode()).percentile(50) >= 130_000
    # while only the first was sent before it
    assert Histogram.decode(recorded["extend.ok.service"].encode()).percentile(75) < 100_000


async def test_a_denied_unit_waits_and_claims_when_the_lease_is_released() -> None:
    rig = Rig(units=2, renew_time=5.0)
    rig.load.set_leases({7}, 0.0)
    await rig.target.calls(claims=2)
    rig.target.grant(0)
    rig.target.claims[1][2].set_result(None)
    await asyncio.sleep(0)
    assert (rig.load.gauge.held, rig.load.gauge.waiting) == (1, 1)
    (released,) = rig.target.watches.values()
    released()
    await rig.target.calls(claims=3)
    assert rig.target.claims[2][:2] == rig.target.claims[1][:2]
    assert rig.counts() == {"claim.ok": 1, "claim.denied": 1}


async def test_a_lease_that_is_not_ours_any_more_is_lost_once_and_claimed_again() -> None:
    rig = Rig(renew_time=0.02)
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    rig.target.grant(0)
    await rig.target.calls(extends=1)
    rig.target.extends[0][1].set_result(False)
    await rig.target.calls(claims=2)
    assert rig.counts() == {"claim.ok": 1, "extend.lost": 1}
    assert [(lease, unit) for _, lease, unit, _ in rig.load.lost] == [(0, 0)]
    assert rig.load.gauge.held == 0


async def test_an_error_is_counted_with_its_message_and_tried_again() -> None:
    rig = Rig(renew_time=0.05)
    rig.load.set_leases({0}, 0.0)
    await rig.target.calls(claims=1)
    rig.target.claims[0][2].set_exception(OperationFailed("m1: connection refused"))
    await rig.target.calls(claims=2)
    assert rig.counts() == {"claim.error": 1}
    assert rig.load.errors == {("claim", "error", "m1: connection refused"): 1}


async def test_a_storm_claims_new_leases_and_leaves_no_watch_of_the_old() -> None:
    # given a lease held and waited for
    rig = Rig(units=2, renew_time=5.0)
    rig.load.set_leases({3}, 0.0)
    await rig.target.calls(claims=2)
    rig.target.grant(0)
    rig.target.claims[1][2].set_result(None)
    await asyncio.sleep(0)
    # when everything is dropped, claimed anew, and given up again
    await rig.load.begin_stage(stage_order(4, number=2, kind="storm", share=(3, 4)))
    await rig.target.calls(claims=4)
    old, new = rig.target.claims[0][0], rig.target.claims[2][0]
    rig.target.grant(2)
    rig.target.claims[3][2].set_result(None)
    await asyncio.sleep(0)
    assert list(rig.target.watches) == [(new, rig.target.claims[3][1])]
    left = await rig.load.give_back(1.0)
    # then the new lease is another one, is given back, and nobody waits for it
    assert new != old
    assert left == 0
    assert rig.target.released == [new]
    assert rig.target.watches == {}


async def test_a_claim_granted_after_it_was_given_up_is_given_back() -> None:
    rig = Rig()
    rig.load.set_leases({0, 1}, 0.0)
    await rig.target.calls(claims=2)
    rig.load.set_leases({0}, 0.0)
    for number, (lease, _, _) in enumerate(rig.target.claims):
        if lease == 1:
            rig.target.grant(number)
    await asyncio.sleep(0)
    assert rig.target.released == [1]
    assert rig.counts() == {}
