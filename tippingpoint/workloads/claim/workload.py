"""The claim workload: many units contend for each lease, one holds and renews it, and the others wait for it.

A unit behaves as in the published lease test. It claims; when granted, it extends on schedule; when denied, it waits
for the release and claims again. A lease that could not be extended in time is lost, and claimed again. If units have
connections of their own, each connects first, and reconnects when it has lost its connection.

The load is an open loop: renewals are due at fixed moments after a claim. Response time counts from these, even if
the unit's previous operation is late. A failed renewal is retried sooner, and the schedule begins anew from there. In
addition, other leases may be claimed at a rate, and released a moment later (churn.py). This module knows no target.
"""

from __future__ import annotations

import asyncio
import gc
import random
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tippingpoint.plan.claim import CLAIM_OPERATIONS, MAX_LEASES, ClaimWorkload, Stage
from tippingpoint.plan.read import AnyStage, Plan
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.util.bound import Bound
from tippingpoint.workloads.calls import Call, Calls
from tippingpoint.workloads.claim.churn import HELD_FOR, Turns
from tippingpoint.workloads.claim.target import (
    ClaimTarget,
    Holding,
    Led,
    Link,
    Noticing,
    OwnConnections,
    Visible,
)
from tippingpoint.workloads.failures import failure
from tippingpoint.workloads.load import (
    DRAIN_TIMEOUT,
    Event,
    Gauge,
    OnProgress,
    PrepareOrder,
    StageOrder,
    TargetFacts,
)
from tippingpoint.workloads.schedule import Schedule, spread

RECONNECT_WITHIN = 5.0
"""The most seconds, chosen at random, until a unit that lost its connection reconnects, so that units do not all return
at once."""
RELEASE_WITHIN = 20.0
"""Seconds in which leases are released before a stage that begins from nothing."""
LEADER_EVERY = 2.0
"""Seconds between a worker's polls for the leader; by default, etcd elects one within one to two seconds."""
SILENT = 1.0
"""Seconds without an answer, while some were due, after which the target's silence is an event."""
_SERVED = ("claim", "extend")
LOOK_EVERY = 0.1
"""The fewest seconds between two renewals of a worker that are read back: a sample, which costs the target little."""
LOOKS_AT_ONCE = 8
"""The most renewals that a worker reads back at once. A slow target would otherwise get ever more reads."""
_RELEASES_AT_ONCE = 256
_STILL_WAITING = 1.0
"""Seconds between two progress messages about a wait."""


class Unit:
    """One contender for one lease."""

    __slots__ = (
        "claimed",
        "claiming",
        "connected",
        "due",
        "failures",
        "generation",
        "held",
        "holder",
        "holding",
        "lease",
        "number",
        "overdue",
        "own",
        "ready",
        "waiting",
    )

    def __init__(self, lease: int, holder: int, generation: int) -> None:
        self.lease = lease
        self.number = generation * MAX_LEASES + lease if generation else lease
        """The lease's number at the target: numbers of an abandoned generation are never used again."""
        self.holder = holder
        self.generation = generation
        self.holding: Holding | None = None
        self.claimed = 0.0
        """When the lease was claimed; `held_for` of a loss counts from it."""
        self.held = 0.0
        """When the last successful claim or renewal was sent: the lease lasts at least claim_time from then."""
        self.ready = 0.0
        """When the previous operation ended: a delay before it is the target's, after it the generator's."""
        self.own = 0.0
        """How many seconds earlier that operation would have ended without the generator's own delay."""
        self.due = 0.0
        """When the next renewal is due; a moment that was scheduled earlier no longer counts."""
        self.overdue: float | None = None
        """When a renewal that waits for the unit to reconnect was due."""
        self.failures = 0
        self.claiming = False
        """Whether a claim is in flight or due: there is never a second one."""
        self.waiting = False
        self.connected = False
        """Whether a unit with a connection of its own is connected."""


_Call = Call[Unit]


class ClaimLoad:
    """One worker's share of the leases. Lease numbers are the same for all workers, and each worker has its own."""

    def __init__(
        self, workload: ClaimWorkload, target: ClaimTarget, recorder: Recorder, schedule: Schedule
    ) -> None:
        self._workload = workload
        self._target = target
        self._connections = target if isinstance(target, OwnConnections) else None
        self._visible = target if isinstance(target, Visible) else None
        self._answered = float("-inf")
        """When the target last answered a claim or a renewal."""
        self._looking = 0
        self._looked = float("-inf")
        """When a renewal was last read back."""
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        self._calls: Calls[Unit] = Calls(
            CLAIM_OPERATIONS, recorder, workload.timeout, unanswered=self._unanswered
        )
        self._leases: dict[int, list[Unit]] = {}
        self._generation = 0
        self._held = 0
        self._waiting = 0
        self._connected = 0
        self._stopped = False
        self._asked = float("-inf")
        """When a claim or a renewal was last sent, on the monotonic clock: any lease that it obtained ends one claim
        time later."""
        self.errors = self._calls.errors
        """Failures by (operation, outcome, message) since the worker last took them."""
        self.lost: list[tuple[float, int, int, float]] = []
        """(moment, lease, unit, seconds held) of leases lost since the worker last took them."""
        self.events: list[Event] = []
        """What the target noticed, such as changes of its leader, since the worker last took them."""
        self._following: asyncio.Task[None] | None = None
        self._renew_time = workload.renew_time
        """Seconds between two renewals of a lease, in the present stage."""
        self._churn = Turns(schedule, self._claim_briefly)
        self._brief: set[Unit] = set()
        """Units that hold a lease for a moment."""

    @property
    def gauge(self) -> Gauge:
        """Leases held, units waiting for a release, and operations in flight."""
        units = len(self._leases) * self._workload.units
        up = self._held >= len(self._leases) and (self._connections is None or self._connected >= units)
        return Gauge(self._held, self._waiting, self._calls.under_way, up, self._calls.oldest)

    async def open(self) -> TargetFacts:
        """Connect; raises TargetError when no server can be reached or the target refuses us."""
        return await self._target.open()

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Make the units for stages up to that size, if the target needs that."""
        if order.fresh:
            await self._clear(progress)
        if self._connections is not None:
            most = max(
                (self._spec_of(stage).held(self._workload.renew_time) for stage in order.stages), default=0
            )
            leases = _share(most, order.share)
            await self._connections.prepare(leases, self._workload.units, progress)

    def revise(self, plan: Plan) -> None:
        """Do nothing: each stage states how much load it has."""

    @staticmethod
    def _spec_of(stage: AnyStage) -> Stage:
        assert isinstance(stage, Stage)
        return stage

    async def begin_stage(self, stage: StageOrder) -> None:
        """Bring up the stage's leases; a storm abandons the present ones first, and claims all at once."""
        spec = self._spec_of(stage.spec)
        if stage.kind == "storm":
            await self._abandon()
        if self._stopped:
            self._release_brief()
        self._renew_every(spec.renewed_every(self._workload.renew_time))
        held = spec.held(self._workload.renew_time)
        self.set_leases(set(_share(held, stage.share)), stage.over)
        self._churn.begin(spec.claims, stage.share, timing.monotonic())
        if isinstance(self._target, Noticing):
            self._target.notice(self._happened, stage.share[0] == 0)
        if stage.share[0] == 0 and isinstance(self._target, Led) and self._following is None:
            self._following = self._loop.create_task(self._follow(self._target))

    def _happened(self, event: str, fields: Mapping[str, Any]) -> None:
        self.events.append((timing.monotonic(), event, dict(fields)))

    async def _follow(self, target: Led) -> None:
        """Note changes of the leader, while the target reports them; one worker does this for all."""
        told = ""
        while (leader := await target.leader()) is not None:
            if leader and leader != told:
                told = leader
                self.events.append((timing.monotonic(), "leader", {"member": leader}))
            await asyncio.sleep(LEADER_EVERY)

    async def close(self) -> None:
        """Close every connection."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.wait([self._following])
        await self._target.close()

    def set_leases(self, wanted: set[int], over: float) -> None:
        """Have exactly these leases: claim new ones spread over `over` seconds, and release unwanted ones."""
        self._stopped = False
        for lease in [lease for lease in self._leases if lease not in wanted]:
            self._give_up(self._leases.pop(lease))
        fresh = sorted(wanted - self._leases.keys())
        units: list[Unit] = []
        for lease in fresh:
            contenders = [Unit(lease, holder, self._generation) for holder in range(self._workload.units)]
            self._leases[lease] = contenders
            units += contenders
        # Shuffled with a fixed seed, so that no unit always comes first.
        random.Random(len(units)).shuffle(units)
        # The units live as long as the stage: freeze them, so that garbage collection never stops the loop.
        gc.collect()
        gc.freeze()
        now = timing.monotonic()
        begin = self._claim if self._connections is None else self._connect
        for unit, moment in zip(units, spread(len(units), now, over), strict=True):
            unit.ready = now
            self._schedule.at(moment, partial(begin, unit))

    def _renew_every(self, seconds: float) -> None:
        """Extend each lease that often from now on. Renewals that are already scheduled become due sooner or later in
        proportion, so that they stay spread as they were."""
        before, self._renew_time = self._renew_time, seconds
        if seconds == before:
            return
        now = timing.monotonic()
        for unit in (unit for units in self._leases.values() for unit in units):
            if unit.holding is not None and unit.overdue is None and unit.due > now:
                self._extend_at(unit, now + (unit.due - now) * seconds / before)

    def _give_up(self, units: list[Unit]) -> None:
        for unit in units:
            unit.generation = -1
            if unit.waiting:
                self._set_waiting(unit, False)
                self._target.unwatch(unit.number, unit.holder)
            if unit.holding is not None:
                self._release(unit.holding)
                self._drop_holding(unit)
            self._disconnect(unit)

    def _disconnect(self, unit: Unit) -> None:
        if self._connections is not None:
            self._connections.disconnect(unit.number, unit.holder)
            self._set_connected(unit, False)

    def _release(self, holding: Holding) -> None:
        """Release a lease without measuring it; a failure is an event of the run."""

        def ended(future: Future[None]) -> None:
            if not future.cancelled() and (problem := future.exception()) is not None:
                self.errors.note("release", "error", str(problem))

        self._target.release(holding).add_done_callback(ended)

    async def _clear(self, progress: OnProgress) -> None:
        """Release all leases; if a target cannot release, wait until the last of them has expired."""
        leases = len(self._leases)
        await self.give_back(RELEASE_WITHIN)
        if self._connections is None:
            return
        await self._drop_connections()
        over = self._asked + self._workload.claim_time
        while (left := over - timing.monotonic()) > 0:
            # This is reported repeatedly, because a claim time may be longer than a silent worker is waited for.
            progress("leases run out", 0, leases)
            await asyncio.sleep(min(left, _STILL_WAITING))
        if leases:
            progress("leases run out", leases, leases)

    async def _drop_connections(self) -> None:
        await self._target.drop()
        self._connected = 0

    async def give_back(self, within: float) -> int:
        """Release every lease; returns how many could not be released in time and will expire."""
        deadline = timing.monotonic() + within
        self._generation += 1
        self._calls.abandon()
        self._schedule.clear()
        self._churn.forget()
        holding = [*(unit for units in self._leases.values() for unit in units), *self._brief]
        holdings = [unit.holding for unit in holding if unit.holding is not None]
        self._brief.clear()
        for units in self._leases.values():
            for unit in units:
                if unit.waiting:
                    self._target.unwatch(unit.number, unit.holder)
        self._leases.clear()
        self._held = self._waiting = 0
        left = 0
        for first in range(0, len(holdings), _RELEASES_AT_ONCE):
            some = [self._target.release(holding) for holding in holdings[first : first + _RELEASES_AT_ONCE]]
            for future in some:  # nobody handles them if this is cancelled
                future.add_done_callback(_look_at)
            remaining = deadline - timing.monotonic()
            done, pending = await asyncio.wait(some, timeout=max(0.0, remaining))
            for future in pending:
                future.cancel()
            left += len(pending) + sum(1 for future in done if future.cancelled() or future.exception())
            if pending:
                left += len(holdings) - first - len(some)
                break
        return left

    async def _abandon(self) -> None:
        """Begin a restart storm: abandon every claim and connection.

        Operations without an answer for more than a second count as timed out: the target owes them, storm or not.
        """
        self._stopped = True  # answers that arrive at this very moment have no consequences
        self._calls.give_up(older_than=1.0)
        self._count_overdue(older_than=1.0)
        self._schedule.clear()
        self._generation += 1
        self._churn.forget()
        self._brief.clear()
        await self._drop_connections()
        self._held = self._waiting = 0
        self._leases.clear()

    def stop(self) -> None:
        """Begin nothing more; operations in flight may still end."""
        self._stopped = True
        self._churn.stop()
        self._schedule.clear()

    async def drain(self, within: float) -> None:
        """Wait for operations in flight; those without an answer after `within` seconds count as timed out."""
        try:
            await self._calls.drain(within)
        except asyncio.CancelledError:
            self._count_overdue(older_than=DRAIN_TIMEOUT)
            raise
        self._count_overdue()

    async def settle(self, within: float, *, count: bool = False) -> dict[str, list[float]]:
        """Wait for the operations that are in flight now, while leases continue to be renewed; see Settling."""
        unanswered = await self._calls.settle(within, count=count)
        if count:
            self._count_overdue(older_than=within, goes_on=True)
        return unanswered

    def cut(self) -> None:
        """Wait for nothing; see Load."""
        self._calls.cut()
        self._count_overdue(older_than=DRAIN_TIMEOUT)

    def expire_calls(self) -> None:
        """Count operations older than the workload's timeout as timed out; to be called a few times a second."""
        self._calls.expire()

    def _unanswered(self, call: _Call, now: float) -> None:
        """Count a call that is given up as timed out at its age, unless its lease was given up before."""
        if call.subject.generation == self._generation:
            said = "its turn to connect had not come" if call.queued else "no answer"
            self._calls.end(call, "timeout", now, f"{said} when the load ended")

    def _count_overdue(self, older_than: float = 0.0, *, goes_on: bool = False) -> None:
        """Count renewals that waited for a connection as timed out at their age; they continue to wait if the load
        `goes_on`."""
        when = "was judged" if goes_on else "ended"
        now = timing.monotonic()
        for unit in (unit for units in self._leases.values() for unit in units):
            if unit.overdue is not None and now - unit.overdue > older_than:
                said = f"its connection was not back when the load {when}"
                self._calls.count("extend", "timeout", unit.overdue, unit.overdue, now, said)
                unit.overdue = unit.overdue if goes_on else None

    # -- leases that are held for a moment -------------------------------------------------------

    def _claim_briefly(self, lease: int, due: float) -> None:
        unit = Unit(lease, 0, self._generation)
        unit.ready = due
        self._begin(unit, "claim", due, self._target.claim(unit.number, unit.holder), self._claimed_briefly)

    def _claimed_briefly(self, call: _Call, now: float) -> None:
        unit = call.subject
        if not self._of_now(call, now):
            return
        failed = failure(call.future, self._workload.timeout)
        if failed is not None:
            self._calls.end(call, failed[0], now, failed[1])
            self._leave_alone(unit, now)
            return
        self._note_answer(call, now)
        unit.holding = call.future.result()
        if unit.holding is None:
            self._calls.end(call, "denied", now)
            self._leave_alone(unit, now)
            return
        self._calls.end(call, "ok", now)
        self._brief.add(unit)
        self._schedule.at(now + HELD_FOR, partial(self._release_after_a_moment, unit))

    def _release_after_a_moment(self, unit: Unit, due: float) -> None:
        if unit not in self._brief or unit.holding is None or self._stopped:
            return
        self._brief.discard(unit)
        self._begin(unit, "release-claim", due, self._target.release(unit.holding), self._released_briefly)

    def _released_briefly(self, call: _Call, now: float) -> None:
        unit = call.subject
        if not self._of_now(call, now):
            return
        failed = failure(call.future, self._workload.timeout)
        if failed is None:
            self._calls.end(call, "ok", now)
            self._churn.again(unit.lease)
        else:
            self._calls.end(call, failed[0], now, failed[1])
            self._leave_alone(unit, now)

    def _leave_alone(self, unit: Unit, now: float) -> None:
        """Reuse a lease when its claim is certainly over: it may be held although no answer confirmed it."""
        self._schedule.at(now + self._workload.claim_time, partial(self._use_again, unit))

    def _use_again(self, unit: Unit, _moment: float) -> None:
        if unit.generation == self._generation:
            self._churn.again(unit.lease)

    def _release_brief(self) -> None:
        """Release leases that were held for a moment when the previous load was stopped; this is not measured."""
        for unit in self._brief:
            if unit.holding is not None:
                self._release(unit.holding)
                self._leave_alone(unit, timing.monotonic())
        self._brief.clear()

    # -- one unit's life -------------------------------------------------------------------------

    def _connect(self, unit: Unit, intended: float) -> None:
        if unit.generation != self._generation or self._stopped:
            return
        assert self._connections is not None
        lost = Bound(ClaimLoad._connection_lost, self, unit, self._generation)
        future = self._connections.connect(unit.number, unit.holder, self._calls.next_turn, lost)
        self._calls.add(unit, "connect", future, intended, unit.ready, self._connect_answered, queued=True)

    def _connect_again(self, unit: Unit, intended: float, moment: float) -> None:
        """Retry after a rate limit: it is the same operation, whose response time counts from its first moment."""
        unit.ready, unit.own = moment, 0.0
        self._connect(unit, intended)

    def _connect_answered(self, call: _Call, now: float) -> None:
        unit = call.subject
        if not self._of_now(call, now):
            return
        failed = failure(call.future, self._workload.timeout)
        if failed is None:
            unit.failures = 0
            self._calls.end(call, "ok", now)
            link: Link = call.future.result()
            if link.closed:
                self._connect_after_a_loss(unit)
                return
            self._set_connected(unit, True)
            if unit.overdue is not None:
                due, unit.overdue = unit.overdue, None
                self._extend(unit, due)
            elif unit.holding is None and not unit.claiming:
                self._claim(unit, now)
            return
        self._calls.end(call, failed[0], now, failed[1])
        again = now + self._backoff(unit)
        if failed[0] == "limited":
            self._schedule.at(again, partial(self._connect_again, unit, call.intended))
        else:
            self._schedule.at(again, partial(self._connect, unit))

    def _connection_lost(self, unit: Unit, generation: int, reason: str) -> None:
        """Reconnect after a while; a held lease stays held until its claim time is over."""
        if generation != self._generation or unit.generation != generation:
            return
        self.errors.note("connection", "lost", reason)
        if not unit.connected:
            return  # its future has not been handled yet, and that will see a closed Link
        self._set_connected(unit, False)
        if unit.waiting:
            self._set_waiting(unit, False)
        self._connect_after_a_loss(unit)

    def _connect_after_a_loss(self, unit: Unit) -> None:
        self._schedule.at(
            timing.monotonic() + random.uniform(0.0, RECONNECT_WITHIN), partial(self._connect, unit)
        )

    def _claim(self, unit: Unit, intended: float) -> None:
        unit.claiming = False
        if unit.generation != self._generation or self._stopped:
            return
        if self._cut_off(unit):
            return  # it claims once it is connected again
        unit.claiming = True
        future = self._target.claim(unit.number, unit.holder)
        self._begin(unit, "claim", intended, future, self._claimed)

    def _claim_at(self, unit: Unit, moment: float) -> None:
        unit.claiming = True
        self._schedule.at(moment, partial(self._claim, unit))

    def _cut_off(self, unit: Unit) -> bool:
        return self._connections is not None and not unit.connected

    def _extend_at(self, unit: Unit, moment: float) -> None:
        unit.due = moment
        self._schedule.at(moment, partial(self._extend, unit))

    def _extend(self, unit: Unit, intended: float) -> None:
        if intended != unit.due:
            return
        if unit.generation != self._generation or unit.holding is None or self._stopped:
            return
        if self._cut_off(unit):
            self._extend_when_back(unit, intended)
            return
        self._begin(unit, "extend", intended, self._target.extend(unit.holding), self._extended)

    def _extend_when_back(self, unit: Unit, due: float) -> None:
        """Extend later, with the time counted from when it was due; if the claim time is over first, the lease is
        lost."""
        unit.due = unit.overdue = due
        self._schedule.at(unit.held + self._workload.claim_time, partial(self._run_out, unit))

    def _run_out(self, unit: Unit, moment: float) -> None:
        if unit.generation != self._generation or unit.overdue is None:
            return
        if moment < unit.held + self._workload.claim_time:
            return  # it reconnected in between, and has lost its connection again
        now = timing.monotonic()
        self._calls.count(
            "extend", "lost", unit.overdue, unit.overdue, now, "its connection was not back in time"
        )
        self._lose(unit, now)

    def _begin(
        self,
        unit: Unit,
        operation: str,
        intended: float,
        future: Future[Any],
        ended: Callable[[_Call, float], None],
    ) -> None:
        self._asked = timing.monotonic()
        self._calls.add(unit, operation, future, intended, unit.ready, ended, own=unit.own)

    def _of_now(self, call: _Call, now: float) -> bool:
        """Return whether an answer is for a present unit; else release what it granted."""
        unit = call.subject
        unit.ready, unit.own = now, self._calls.own_delay(call, now)
        if unit.generation == self._generation:
            return True
        self._answered_too_late(call)
        return False

    def _answered_too_late(self, call: _Call) -> None:
        """Release a lease that was granted after it had been given up."""
        if call.operation == "claim" and not call.future.cancelled() and call.future.exception() is None:
            holding = call.future.result()
            if holding is not None:
                self._release(holding)

    def _claimed(self, call: _Call, now: float) -> None:
        unit = call.subject
        if not self._of_now(call, now):
            return
        unit.claiming = False
        failed = failure(call.future, self._workload.timeout)
        if failed is not None:
            self._calls.end(call, failed[0], now, failed[1])
            self._claim_at(unit, now + self._backoff(unit))
            return
        unit.failures = 0
        self._note_answer(call, now)
        holding: Holding | None = call.future.result()
        if holding is None:
            self._calls.end(call, "denied", now)
            if self._cut_off(unit):
                return  # it could not be notified of a release
            self._set_waiting(unit, True)
            self._target.watch_release(
                unit.number, unit.holder, Bound(ClaimLoad._released, self, unit, self._generation)
            )
            return
        self._calls.end(call, "ok", now)
        unit.holding = holding
        unit.claimed = unit.held = call.sent
        self._held += 1
        # Counted from the answer, not from the send: only then does the unit know that it has a lease to renew.
        self._extend_at(unit, now + self._renew_time)

    def _released(self, unit: Unit, generation: int) -> None:
        if generation == self._generation and unit.waiting:
            self._set_waiting(unit, False)
            if unit.generation == generation:
                unit.ready = now = timing.monotonic()
                unit.own = 0.0
                self._claim(unit, now)

    def _extended(self, call: _Call, now: float) -> None:
        unit = call.subject
        if not self._of_now(call, now):
            return
        failed = failure(call.future, self._workload.timeout)
        if failed is not None:
            outcome, message = failed
            if now - unit.held > self._workload.claim_time:
                self._calls.end(call, "lost", now, message)
                self._lose(unit, now)
                return
            self._calls.end(call, outcome, now, message)
            if self._cut_off(unit):
                self._extend_when_back(unit, now)
            else:
                self._extend_at(unit, now + self._backoff(unit))
        elif call.future.result():
            unit.failures = 0
            unit.held = call.sent
            self._note_answer(call, now)
            self._calls.end(call, "ok", now)
            # The next moment on the fixed schedule, even if it has passed: lateness is not forgiven.
            self._extend_at(unit, call.intended + self._renew_time)
            self._look(unit, call.intended, now)
        else:
            self._calls.end(call, "lost", now)
            self._lose(unit, now)

    def _note_answer(self, call: _Call, now: float) -> None:
        """Note an answer; a silence that it ends is an event, with its length as the worker saw it."""
        since, self._answered = self._answered, now
        if now - since < SILENT:
            return
        seconds = self._calls.silence(since, now, call.intended, _SERVED)
        if seconds >= SILENT:
            self._happened("silence", {"seconds": round(seconds, 3)})

    def _look(self, unit: Unit, due: float, now: float) -> None:
        """Read a renewal back until all members show it, with the time counted from when the renewal was due.

        Only a sample is read back.
        """
        if self._visible is None or self._stopped or unit.holding is None:
            return
        if now - self._looked < LOOK_EVERY or self._looking >= LOOKS_AT_ONCE:
            return
        self._looked = now
        future = self._visible.seen(unit.holding)
        self._looking += 1
        future.add_done_callback(self._looked_enough)
        self._calls.add(unit, "visible", future, due, unit.ready, self._seen, own=unit.own)

    def _looked_enough(self, _future: Future[None]) -> None:
        self._looking -= 1

    def _seen(self, call: _Call, now: float) -> None:
        if call.subject.generation != self._generation or call.subject.holding is None:
            return  # it was released or lost meanwhile, and the loss is counted already
        failed = failure(call.future, self._workload.timeout)
        if failed is None:
            self._calls.end(call, "ok", now)
        else:
            self._calls.end(call, failed[0], now, failed[1])

    def _lose(self, unit: Unit, now: float) -> None:
        self.lost.append((now, unit.lease, unit.holder, now - unit.claimed))
        self._drop_holding(unit)
        self._claim_at(unit, now)

    def _drop_holding(self, unit: Unit) -> None:
        unit.holding = None
        unit.overdue = None
        unit.failures = 0
        self._held -= 1

    def _set_connected(self, unit: Unit, connected: bool) -> None:
        self._connected += connected - unit.connected
        unit.connected = connected

    def _set_waiting(self, unit: Unit, waiting: bool) -> None:
        unit.waiting = waiting
        self._waiting += 1 if waiting else -1

    def _backoff(self, unit: Unit) -> float:
        """Return the seconds until a failed operation is retried, at most the time between two renewals."""
        unit.failures += 1
        return backoff(unit.failures, longest=max(self._renew_time, 0.01))


def _look_at(future: Future[None]) -> None:
    """Retrieve the result of a release, or asyncio would complain on standard error."""
    if not future.cancelled():
        future.exception()


def _share(size: int, share: tuple[int, int]) -> Sequence[int]:
    """Return one worker's leases of `size` in all."""
    index, workers = share
    return range(index, size, workers)
