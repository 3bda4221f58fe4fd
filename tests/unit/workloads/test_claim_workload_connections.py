"""The claim workload where every unit has a connection of its own."""

from __future__ import annotations

import asyncio
import gc
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.workloads.test_claim_workload import HandTarget
from tippingpoint.errors import Limited, OperationFailed
from tippingpoint.plan.claim import ClaimWorkload, Stage
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.rundir.tags import DELAYED, FREED
from tippingpoint.util import backoff
from tippingpoint.workloads.claim import workload
from tippingpoint.workloads.claim.workload import ClaimLoad
from tippingpoint.workloads.load import OnProgress, PrepareOrder, StageOrder
from tippingpoint.workloads.schedule import Schedule


class HandLink:
    """A unit's connection."""

    def __init__(self) -> None:
        self.closed = False


class HandConnections(HandTarget):
    """A HandTarget whose units log in one by one; the test answers each login and breaks connections."""

    def __init__(self) -> None:
        super().__init__()
        self.connects: list[tuple[int, int, Future[HandLink], Callable[[str], None]]] = []
        self.begin: list[Callable[[], None]] = []
        self.links: list[HandLink] = []
        self.prepared: list[Sequence[int]] = []
        self.disconnected: list[tuple[int, int]] = []
        self.drops = 0

    async def prepare(self, leases: Sequence[int], units: int, progress: OnProgress) -> None:
        self.prepared.append(leases)
        progress("units", len(leases) * units, len(leases) * units)

    def connect(
        self, lease: int, holder: int, begun: Callable[[], None], lost: Callable[[str], None]
    ) -> Future[HandLink]:
        future: Future[HandLink] = asyncio.get_running_loop().create_future()
        self.connects.append((lease, holder, future, lost))
        self.begin.append(begun)
        self.links.append(HandLink())
        self.called.set()
        return future

    def disconnect(self, lease: int, holder: int) -> None:
        self.disconnected.append((lease, holder))

    async def drop(self) -> None:
        await super().drop()
        self.drops += 1

    async def connected(self, connects: int) -> None:
        """Wait until so many logins were begun in all."""
        async with asyncio.timeout(600):
            while len(self.connects) < connects:
                self.called.clear()
                await self.called.wait()

    def let_in(self, number: int) -> None:
        self.connects[number][2].set_result(self.links[number])

    def cut(self, number: int, reason: str = "connection reset") -> None:
        self.links[number].closed = True
        self.connects[number][3](reason)


class Rig:
    """A load on HandConnections, and what it recorded."""

    def __init__(
        self, units: int = 1, renew_time: float = 0.05, claim_time: float = 1200.0, timeout: float = 60.0
    ) -> None:
        self.units = units
        self.target = HandConnections()
        self.recorder = Recorder()
        load = ClaimWorkload(units=units, claim_time=claim_time, renew_time=renew_time, timeout=timeout)
        schedule = Schedule(asyncio.get_running_loop())
        self.load = ClaimLoad(load, self.target, self.recorder, schedule)

    def counts(self) -> dict[str, int]:
        found = self.recorder.drain().items()
        return {
            tag: histogram.total
            for tag, histogram in found
            if not tag.endswith((".service", DELAYED, FREED)) and not tag.startswith("generator.")
        }


@pytest.fixture(autouse=True)
def reconnect_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests do not wait for the jitter that spreads thousands of reconnects."""
    monkeypatch.setattr(workload, "RECONNECT_WITHIN", 0.01)
    monkeypatch.setattr(backoff, "FIRST_RETRY", 0.01)


def order(size: int, **fields: object) -> StageOrder:
    of_one = {"number": 1, "kind": "ramp", "over": 0, "share": (0, 1), "listed": 1}
    return StageOrder.model_validate({**of_one, "size": size, "spec": Stage(leases=size), **fields})


async def dialling(leases: int = 1, **load: Any) -> Rig:
    """A load whose units have all begun to log in."""
    rig = Rig(**load)
    await rig.load.begin_stage(order(leases))
    await rig.target.connected(leases * rig.units)
    return rig


async def claiming(**load: Any) -> Rig:
    """A load of which one unit was let in, and has claimed the lease."""
    rig = await dialling(**load)
    rig.target.let_in(0)
    await rig.target.calls(claims=1)
    return rig


async def holding(**load: Any) -> Rig:
    """A load of which one unit has the lease."""
    rig = await claiming(**load)
    rig.target.grant(0)
    return rig


async def test_a_unit_claims_once_it_is_connected() -> None:
    # given one unit that dials
    rig = await dialling()
    assert rig.target.claims == []
    assert not rig.load.gauge.up
    # when it is let in
    rig.target.let_in(0)
    await rig.target.calls(claims=1)
    rig.target.grant(0)
    await asyncio.sleep(0)
    # then it claims, and both are counted
    assert rig.load.gauge.up
    assert rig.counts() == {"connect.ok": 1, "claim.ok": 1}


async def test_a_stage_is_up_when_those_that_wait_are_connected_too() -> None:
    rig = await holding(units=2)
    await asyncio.sleep(0)
    assert not rig.load.gauge.up
    rig.target.let_in(1)
    await rig.target.calls(claims=2)
    assert rig.load.gauge.up


async def test_a_rate_limited_login_is_the_same_operation_still() -> None:
    # given a login that the rate limit refuses
    rig = await dialling()
    await asyncio.sleep(0.05)
    rig.target.connects[0][2].set_exception(Limited("try again"))
    # when the next one succeeds
    await rig.target.connected(2)
    rig.target.let_in(1)
    await rig.target.calls(claims=1)
    # then the refusal is counted apart, and response time counts from the first moment
    recorded = rig.recorder.drain()
    assert recorded["connect.limited"].total == 1
    assert "connect.error" not in recorded
    assert recorded["connect.ok"].total == 1
    assert recorded["connect.ok"].min >= 50_000


async def test_a_refused_login_is_an_error_and_tried_again() -> None:
    rig = await dialling()
    rig.target.connects[0][2].set_exception(OperationFailed("127.0.0.1:17070: connection refused"))
    await rig.target.connected(2)
    assert rig.counts() == {"connect.error": 1}
    assert rig.load.errors == {("connect", "error", "127.0.0.1:17070: connection refused"): 1}


async def test_a_holder_whose_connection_is_lost_keeps_its_lease_and_extends_it_when_it_is_back() -> None:
    # given a holder
    rig = await holding(renew_time=0.2)
    # when its connection is cut
    rig.target.cut(0)
    await rig.target.connected(2)
    assert rig.load.gauge.held == 1
    assert not rig.load.gauge.up
    rig.target.let_in(1)
    # then it does not claim again, but extends
    await rig.target.calls(claims=1, extends=1)
    assert len(rig.target.claims) == 1
    assert ("connection", "lost", "connection reset") in rig.load.errors


async def test_a_waiting_unit_whose_connection_is_lost_claims_when_it_is_back() -> None:
    # given a unit that waits for a release
    rig = await claiming()
    rig.target.claims[0][2].set_result(None)
    await asyncio.sleep(0)
    assert rig.load.gauge.waiting == 1
    # when its connection is cut, and made again
    rig.target.cut(0)
    assert rig.load.gauge.waiting == 0
    await rig.target.connected(2)
    rig.target.let_in(1)
    # then it claims, as the release may have been missed
    await rig.target.calls(claims=2)


async def test_a_unit_that_is_cut_off_while_it_claims_claims_once_when_it_is_back() -> None:
    # given a unit whose claim is under way when its connection is cut
    rig = await claiming(renew_time=5.0)
    rig.target.cut(0)
    rig.target.claims[0][2].set_exception(OperationFailed("connection reset"))
    # when it is connected again, before or after the failed claim would have been tried again
    await rig.target.connected(2)
    rig.target.let_in(1)
    await rig.target.calls(claims=2)
    rig.target.grant(1)
    await asyncio.sleep(0.1)
    # then it has claimed once, and its lease is counted once
    assert len(rig.target.claims) == 2
    assert rig.load.gauge.held == 1


async def test_a_denial_that_comes_with_the_end_of_the_connection_is_no_wait() -> None:
    # given a claim that is denied in the moment in which the connection is lost
    rig = await claiming()
    rig.target.claims[0][2].set_result(None)
    rig.target.cut(0)
    await asyncio.sleep(0)
    # then the unit does not wait for a release that nobody will tell it of, but claims when it is back
    assert rig.load.gauge.waiting == 0
    await rig.target.connected(2)
    rig.target.let_in(1)
    await rig.target.calls(claims=2)
    rig.target.claims[1][2].set_result(None)
    await asyncio.sleep(0)
    assert rig.load.gauge.waiting == 1


async def test_a_connection_that_is_lost_in_the_moment_of_its_login_is_made_again() -> None:
    # given a login that is answered, and cut before anybody could look at the answer
    rig = await dialling()
    rig.target.let_in(0)
    rig.target.cut(0)
    # then the unit connects again, and claims only then
    await rig.target.connected(2)
    assert rig.target.claims == []
    rig.target.let_in(1)
    await rig.target.calls(claims=1)
    assert rig.counts()["connect.ok"] == 2
    assert rig.load.errors == {("connection", "lost", "connection reset"): 1}


async def test_a_lease_that_runs_out_while_its_holder_is_cut_off_is_lost_and_claimed_when_it_is_back() -> (
    None
):
    # given a holder that is cut off
    rig = await holding(claim_time=1.0, renew_time=0.4)
    rig.target.cut(0)
    await rig.target.connected(2)
    # when its claim time is over
    async with asyncio.timeout(600):
        while not rig.load.lost:  # noqa: ASYNC110 - the worker looks once a second, too
            await asyncio.sleep(0.01)
    # then it is lost, at the age of the extension that was due meanwhile, and claimed once it is back
    recorded = rig.recorder.drain()
    assert recorded["extend.lost"].total == 1
    assert recorded["extend.lost"].max >= 500_000
    assert (len(rig.target.claims), rig.target.extends) == (1, [])
    rig.target.let_in(1)
    await rig.target.calls(claims=2)


async def test_an_extension_that_was_due_while_its_holder_was_cut_off_is_sent_when_it_is_back() -> None:
    # given a holder whose extension is due while it is cut off
    rig = await holding(renew_time=0.1)
    rig.target.cut(0)
    await rig.target.connected(2)
    await asyncio.sleep(0.3)
    assert rig.target.extends == []
    # when it is back
    rig.target.let_in(1)
    await rig.target.calls(extends=1)
    rig.target.extends[0][1].set_result(True)
    await asyncio.sleep(0)
    # then it is sent at once, and its response time counts from when it was due
    recorded = rig.recorder.drain()
    assert recorded["extend.ok"].total == 1
    assert recorded["extend.ok"].max >= 150_000
    assert "extend.error" not in recorded
    assert rig.load.gauge.held == 1


async def test_an_extension_that_still_waits_for_its_connection_at_the_end_counts_as_a_timeout() -> None:
    rig = await holding(renew_time=0.1)
    rig.target.cut(0)
    await asyncio.sleep(0.3)
    rig.load.stop()
    await rig.load.drain(0.01)
    recorded = rig.recorder.drain()
    assert recorded["extend.timeout"].total == 1
    assert recorded["extend.timeout"].max >= 150_000


async def test_in_a_storm_every_connection_is_dropped_and_made_again_at_once() -> None:
    rig = await dialling(leases=2, units=2)
    for number in range(4):
        rig.target.let_in(number)
    await rig.target.calls(claims=4)
    # when the storm comes
    await rig.load.begin_stage(order(2, number=2, kind="storm"))
    # then all four dial anew, and nothing of before counts
    await rig.target.connected(8)
    assert rig.target.drops == 1
    assert (rig.load.gauge.held, rig.load.gauge.up) == (0, False)


async def test_a_smaller_stage_closes_the_connections_it_has_no_use_for() -> None:
    rig = await dialling(leases=2)
    for number in range(2):
        rig.target.let_in(number)
    await rig.target.calls(claims=2)
    await rig.load.begin_stage(order(1, number=2))
    assert rig.target.disconnected == [(1, 0)]


async def test_what_a_worker_prepares_is_its_own_share() -> None:
    rig = Rig(units=3)
    told: list[tuple[str, int, int]] = []
    order = PrepareOrder(stages=[Stage(leases=2), Stage(leases=5)], share=(1, 2), fresh=False)
    await rig.load.prepare(order, lambda what, done, goal: told.append((what, done, goal)))
    assert [list(leases) for leases in rig.target.prepared] == [[1, 3]]
    assert told == [("units", 6, 6)]


async def test_a_fresh_start_waits_until_leases_that_cannot_be_given_back_have_run_out() -> None:
    # given a lease that was just claimed, for a second
    rig = await claiming(claim_time=1.0, renew_time=0.5)
    sent = asyncio.get_running_loop().time()
    rig.target.grant(0)
    await asyncio.sleep(0)
    # when the next stage is to begin from nothing
    await rig.load.prepare(PrepareOrder(stages=[Stage(leases=1)], share=(0, 1), fresh=True), lambda *_: None)
    # then its second is over, and so are the connections
    assert asyncio.get_running_loop().time() - sent > 0.9
    assert rig.target.drops == 1
    assert rig.load.gauge.held == 0


async def ran_out(rig: Rig) -> tuple[float, list[tuple[str, int, int]]]:
    """Have the load begin from nothing: how long it took, and what was told of it meanwhile."""
    told: list[tuple[str, int, int]] = []
    begun = asyncio.get_running_loop().time()
    order = PrepareOrder(stages=[Stage(leases=1)], share=(0, 1), fresh=True)
    await rig.load.prepare(order, lambda what, done, goal: told.append((what, done, goal)))
    return asyncio.get_running_loop().time() - begun, told


async def test_a_fresh_start_waits_for_a_claim_too_that_may_have_been_granted_late() -> None:
    # given a claim without an answer when the load ends
    rig = await claiming(claim_time=1.0, renew_time=0.5)
    rig.load.stop()
    await rig.load.drain(0.0)
    # when the next stage is to begin from nothing, then the lease that it may have got is over
    waited, _ = await ran_out(rig)
    assert waited > 0.9


async def test_a_fresh_start_waits_for_an_extension_too_that_may_have_been_granted_late() -> None:
    # given a lease whose extension has no answer when the load ends
    rig = await holding(claim_time=1.0, renew_time=0.7)
    await rig.target.calls(extends=1)
    rig.load.stop()
    await rig.load.drain(0.0)
    # when the next stage is to begin from nothing, then what it may have got is over as well
    waited, _ = await ran_out(rig)
    assert waited > 0.9


async def test_a_fresh_start_that_waits_for_leases_to_run_out_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload, "_STILL_WAITING", 0.2)

    rig = await dialling(leases=2, claim_time=1.0, renew_time=0.5)
    rig.target.let_in(0)
    await rig.target.calls(claims=1)
    _, told = await ran_out(rig)
    assert told.count(("leases run out", 0, 2)) >= 3
    assert told[-2:] == [("leases run out", 2, 2), ("units", 1, 1)]
    # and where there is nothing to wait for, nothing is said of it
    _, told = await ran_out(rig)
    assert told == [("units", 1, 1)]


async def test_the_service_time_of_a_login_counts_from_its_dial_and_its_response_time_from_the_start() -> (
    None
):
    # given a login that waits for its turn to dial
    rig = await dialling()
    await asyncio.sleep(0.1)
    # when it dials and is let in
    rig.target.begin[0]()
    rig.target.let_in(0)
    await rig.target.calls(claims=1)
    # then the wait is in its response time, not in the controller's
    recorded = rig.recorder.drain()
    assert recorded["connect.ok"].min - recorded["connect.ok.service"].max >= 90_000


async def test_a_login_times_out_when_its_dial_is_old_not_when_it_waited_long_for_its_turn() -> None:
    # given two logins that have waited longer for their turn than an operation may take
    rig = await dialling(leases=2, timeout=0.05)
    await asyncio.sleep(0.1)
    rig.load.expire_calls()
    await asyncio.sleep(0)
    assert rig.counts() == {}
    # when one of them has had no answer for so long, too
    rig.target.begin[1]()
    await asyncio.sleep(0.1)
    rig.load.expire_calls()
    await asyncio.sleep(0)
    # then only it has timed out, until the load ends
    assert rig.counts() == {"connect.timeout": 1}
    rig.load.stop()
    await rig.load.drain(0.0)
    assert rig.counts() == {"connect.timeout": 1}
    assert (
        "connect",
        "timeout",
        "its turn to connect had not come when the load ended",
    ) in rig.load.errors


@pytest.mark.parametrize("operation", ["connect", "claim"])
async def test_what_fails_in_the_moment_in_which_it_is_abandoned_is_no_complaint_of_the_event_loop(
    operation: str,
) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    # given a unit that connects, or claims
    rig = await dialling()
    if operation == "claim":
        rig.target.let_in(0)
        await rig.target.calls(claims=1)
        rig.target.claims[0][2].set_exception(OperationFailed("connection reset"))
    else:
        rig.target.connects[0][2].set_exception(OperationFailed("connection reset"))
    # when a storm abandons it just after its answer
    await rig.load.begin_stage(order(1, number=2, kind="storm"))
    await asyncio.sleep(0)
    rig.target.claims.clear()
    rig.target.connects.clear()
    gc.collect()
    # then nobody is told of an exception that nobody looked at
    assert complaints == []
