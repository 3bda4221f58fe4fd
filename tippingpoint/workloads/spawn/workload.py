"""The spawn workload: one worker makes the things of its groups, brings them as far as the plan wants, and keeps them
so.

Lists decide. Every group is listed by one call, repeatedly while anything in it changes. The list is compared with what
the stage wants (fill.py), and each thing that is not as wanted gets one step: create, start, reachable, probe, off, on,
release or delete. A step that needs a turn waits for it in pace.py; a failed one is retried as retries.py allows. So a
first fill, a repair, a resumed run and a removal all work the same way.

If the answer to `create` is "it exists already", or to `start`, `probe` or `delete` "it does not exist", that is no
failure of the target. It counts as `denied`: an answer to an earlier call was lost, and the next list decides.

`launch` covers a thing from when its first step was due until it is as wanted, retries included. It fails for things
that are given up or are not done when the load ends. In a cycle, things are removed as soon as they are as wanted.
`total` continues until they are removed, and a thing keeps its turn until then.
"""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import LIFE, SpawnPlan, SpawnStage, SpawnWorkload
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.util import timing
from tippingpoint.workloads.load import (
    DRAIN_TIMEOUT,
    Gauge,
    OnProgress,
    PrepareOrder,
    StageOrder,
    TargetFacts,
)
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.fill import (
    CHANGES,
    TRIES,
    Doing,
    Fill,
    Goal,
    Level,
    Standing,
    Step,
    Thing,
)
from tippingpoint.workloads.spawn.grouped_events import GroupedEvents
from tippingpoint.workloads.spawn.members import Change, Members
from tippingpoint.workloads.spawn.observer import Observer
from tippingpoint.workloads.spawn.operations import Ended, Operations
from tippingpoint.workloads.spawn.pace import Ownership, Pace, Turns
from tippingpoint.workloads.spawn.poll import Poll
from tippingpoint.workloads.spawn.retries import Retries, kind_of
from tippingpoint.workloads.spawn.target import (
    EventSource,
    Releasing,
    SpawnFailed,
    SpawnTarget,
    Switching,
    Trouble,
)

LOOK_EVERY = 0.1
"""Seconds between two checks for whether all things are removed."""
CLEARED_AT_ONCE = 16
"""How many things are removed at once before a stage that begins from nothing."""
PLACED_PER_SECOND = 20
"""Members per second whose number of things is written on average. With 576 hosts, writing all of them at each poll
would take 370 MB in the ten hours of the published fill."""
IDLE_EVERY = 5.0
"""Seconds between lists of a group that is as wanted, if the plan observes nothing."""


class SpawnLoad:
    """One worker's groups; it implements `tippingpoint.workloads.load.Load` and `Upkeep`."""

    def __init__(self, plan: SpawnPlan, target: SpawnTarget, recorder: Recorder, schedule: Schedule) -> None:
        self._plan = plan
        self._most_groups = max(stage.groups for stage in plan.planned)
        self._workload = workload = plan.workload
        self._in_turn = plan.target.in_turn
        self._target = target
        self._schedule = schedule
        self._operations = Operations(
            (*LIFE, "evict", "poll", *plan.target.observations),
            recorder,
            workload.timeout,
            plan.target.called,
        )
        self._members = Members(workload.offline_polls)
        called = plan.target.called
        self._fill = Fill(
            self._members,
            repair=workload.repair,
            evict=workload.evict,
            addressed=bool(called) and "reachable" not in called,
            releases="release" in called,
        )
        self._turns: Turns[Thing] = Turns(schedule, self._take_turn)
        self._probe_turns: Turns[Thing] = Turns(schedule, self._take_probe_turn)
        self._retries = Retries(workload.retries)
        self._observer = Observer(
            target,
            self._fill.running,
            self._operations,
            schedule,
            workload.observe_every,
            plan.target.observations,
        )
        self._member_poll = Poll(
            self._list_members, self._see_members, self._operations, schedule, workload.poll_every
        )
        self._polls: dict[int, Poll] = {}
        self._owns = Ownership(0, 1)
        self._before = SpawnStage(groups=0, instances=0)
        self._pace = Pace()
        self._open = False
        self._opening: set[int] = set()
        self._unlisted: set[int] = set()
        self._unsure: dict[int, float] = {}
        self._awaiting: dict[int, dict[Thing, float]] = {}
        self._calls: dict[Thing, tuple[Task[Any], float]] = {}
        self._abandoned: set[Thing] = set()
        self._evicting: set[str] = set()
        self._spared: set[str] = set()
        self._leader = ""
        self._told_placed: dict[str, int] = {}
        self._place_again = 0.0
        self._landed: Counter[str] = Counter()
        self._told_landed = 0
        self._stopped = True
        self.errors = self._operations.errors
        """Failures by (operation, outcome, message) since the worker last took them."""
        self.lost: list[tuple[float, int, int, float]] = []
        """Always empty: `events` has the losses, by the member that things were on."""
        self.events = GroupedEvents()
        """Events of members and things since the worker last took them."""

    @property
    def gauge(self) -> Gauge:
        """Things as wanted or to be removed, things to be made or removed, and operations in flight."""
        up = self._open and not self._unlisted and not self._fill.waiting
        return Gauge(self._fill.held, self._fill.waiting, self._operations.under_way, up)

    async def open(self) -> TargetFacts:
        """Connect; raises TargetError when the target cannot be reached or does not accept us."""
        return await self._target.open()

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Make the groups in which this worker will have things; for stages that begin from nothing, remove all things
        first."""
        owns = Ownership.among(self._plan.shared_by, *order.share)
        if order.fresh and self._before.size:
            await self._clear(order.share, progress)
        await self._target.prepare(owns.groups(self._most_groups), progress)

    def revise(self, plan: Plan) -> None:
        """Follow this plan from the next stage on; groups that this worker no longer has are emptied then."""
        assert isinstance(plan, SpawnPlan)
        self._plan = plan
        self._workload = plan.workload
        self._most_groups = max(self._most_groups, *(stage.groups for stage in plan.planned))

    async def begin_stage(self, stage: StageOrder) -> None:
        """Bring the worker's groups to what the stage asks for; this begins with a list of each group."""
        assert isinstance(stage.spec, SpawnStage)
        now = timing.monotonic()
        self._begin(stage.spec, self._workload.at(stage.spec), stage.share, now)
        if stage.share[0] == 0:
            self._observer.begin(now)

    async def _clear(self, share: tuple[int, int], progress: OnProgress) -> None:
        """Remove all things, as fast as a closed loop does; raises OperationFailed if any stays."""
        now = timing.monotonic()
        fast = self._workload.model_copy(update={"rate": None, "concurrency": CLEARED_AT_ONCE, "batch": None})
        self._begin(SpawnStage(groups=0, instances=0), fast, share, now)
        goal = self._fill.held
        while not self.gauge.up:
            progress("things removed", goal - self._fill.held, goal)
            await asyncio.sleep(LOOK_EVERY)
        left = self._fill.left
        self.stop()
        await self.drain(DRAIN_TIMEOUT)
        if left:
            raise OperationFailed(f"{left} instances of the previous load could not be removed")

    def _begin(self, spec: SpawnStage, paced: SpawnWorkload, share: tuple[int, int], now: float) -> None:
        self._schedule.clear()
        self._stopped = False
        self._owns = Ownership.among(self._plan.shared_by, *share)
        groups = self._owns.groups(self._most_groups)
        self._leave(self._awaiting.keys() - set(groups))
        self._fill.begin(Goal.of(spec, self._workload.until, cycle=self._workload.cycle), groups)
        self._pace = Pace.of(paced, self._owns, self._changes(spec))
        self._turns.begin(self._pace, now)
        self._probe_turns.begin(self._pace.of_probes, now)
        self._before = spec
        self._landed.clear()
        self._told_landed = 0
        self._retries.clear()
        self._spared.clear()
        self._awaiting = {group: {} for group in groups}
        self._unlisted = set(groups)
        self._unsure = dict.fromkeys(groups, now)
        self._open = False
        self._member_poll.begin(now)
        if self._members.known:
            self._begin_lists(now)

    def expire_calls(self) -> None:
        """Count operations, and waits for an address, that are older than the workload's timeout as timed out.

        Must be called a few times a second.
        """
        self._operations.expire()
        if self._stopped:
            return
        now = timing.monotonic()
        for awaiting in self._awaiting.values():
            late: list[Thing] = []
            for thing, since in awaiting.items():  # in the order in which they began to wait
                if since > now - self._workload.timeout:
                    break
                late.append(thing)
            for thing in late:
                self._address_is_late(thing, now)

    def stop(self) -> None:
        """Begin nothing more; operations in flight may still end."""
        self._stopped = True
        self._schedule.clear()
        self._member_poll.halt()
        for poll in self._polls.values():
            poll.halt()

    async def drain(self, within: float) -> None:
        """Wait for operations in flight; those without an answer after `within` seconds count as timed out.

        So do waits for an address, and things that are not launched.
        """
        await self._operations.drain(within)
        now = timing.monotonic()
        message = "no answer when the load ended"
        for thing in self._fill.things():
            if thing.awaited is not None:
                self._operations.count("reachable", "timeout", thing.awaited, thing.awaited, now, message)
            if thing.launched is not None:
                self._operations.count("launch", "timeout", *thing.launched, now, message)
            if thing.begun is not None:
                self._operations.count("total", "timeout", *thing.begun, now, message)
            if thing.doing is Doing.UNDER_WAY:
                thing.touched = now
            thing.doing = Doing.NOTHING
            thing.awaited = thing.launched = thing.begun = None
            thing.has_turn = False
        self._calls.clear()
        self._turns.forget()
        self._probe_turns.forget()
        self._evicting.clear()
        self._member_poll.forget()
        for poll in self._polls.values():
            poll.forget()

    def cut(self) -> None:
        """Wait for nothing; see Load. Things being launched are not counted, because they might have been in time."""
        self._operations.cut()

    async def give_back(self, within: float) -> int:
        """Do nothing: what was made stays for `clean`. Returns 0, because nothing expires."""
        return 0

    async def close(self) -> None:
        """Close every connection."""
        self.stop()
        await self._target.close()

    def repair(self) -> None:
        """List every group at once, and retry what was given up, rests, or is lost and would not be repaired."""
        if self._stopped or not self._open:
            return
        now = timing.monotonic()
        self._retries.clear()
        self._spared.clear()
        self._list_all(now)
        for thing in self._fill.things():
            if thing.doing is Doing.RESTING:
                thing.doing = Doing.NOTHING
            self._fill.excuse(thing)
            self._go_on(thing, now)

    async def evict(self, member: str) -> None:
        """Remove a dead member from the cluster by force, whatever the plan specifies.

        Raises OperationFailed if the member is alive, or if the removal fails.
        """
        away = self._members.away
        if member not in away:
            raise OperationFailed(
                f"{member}: expected a member that is offline: {', '.join(away) or 'none is'}"
            )
        if self._stopped or member in self._evicting:
            raise OperationFailed(f"{member}: it is already being removed, or the load is ending")
        removed: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        self._begin_evict(member, timing.monotonic(), removed.set_result)
        ended = await removed
        if ended.outcome not in ("ok", "denied"):
            self._evicting.discard(member)
            raise OperationFailed(f"{member}: {ended.message}")

    def _leave(self, groups: Collection[int]) -> None:
        """Give groups to another worker."""
        for group in groups:
            self._fill.leave(group)
            # The poll is kept: if the group comes back, a list of it may still be in flight.
            if group in self._polls:
                self._polls[group].halt()

    def _changes(self, spec: SpawnStage) -> list[int]:
        """Return how many things are made or removed in each group according to the plan; if there are none, how many
        may need a repair."""
        before = self._before
        wanted = [spec.instances * (group < spec.groups) for group in range(self._most_groups)]
        changes = [
            abs(count - before.instances * (group < before.groups)) for group, count in enumerate(wanted)
        ]
        return changes if any(changes) else wanted

    # -- steps -----------------------------------------------------------------------------------

    def _go_on(self, thing: Thing, moment: float) -> None:
        """Take the next step for a thing, due at a moment, unless it is busy."""
        if self._stopped or not self._open or thing.item.group in self._unlisted:
            return
        if thing.doing is not Doing.NOTHING:
            return
        match self._fill.step(thing):
            case None:
                pass
            case "reachable":
                self._await_address(thing, moment)
            case "probe" | "off" | "on":
                thing.doing = Doing.WAITING_TO_PROBE
                self._probe_turns.ask(thing, moment)
            case _:
                thing.doing = Doing.WAITING
                self._turns.ask(thing, moment)

    def _take_turn(self, thing: Thing, intended: float) -> bool:
        """Use a thing's turn; returns whether it was used."""
        if thing.doing is not Doing.WAITING or self._stopped:
            return False
        thing.doing = Doing.NOTHING
        step = self._fill.step(thing)
        if step is None or step not in CHANGES:
            self._go_on(thing, intended)
            return False
        thing.has_turn = True
        self._send(thing, step, intended)
        return True

    def _take_probe_turn(self, thing: Thing, intended: float) -> bool:
        """Use a thing's turn to be probed or switched; returns whether it was used."""
        if thing.doing is not Doing.WAITING_TO_PROBE or self._stopped:
            return False
        thing.doing = Doing.NOTHING
        step = self._fill.step(thing)
        if step is None or step not in TRIES:
            self._go_on(thing, intended)
            return False
        thing.has_turn = True
        self._send(thing, step, intended)
        return True

    def _send(self, thing: Thing, step: Step, intended: float) -> None:
        member: str | None = None
        if step == "create":
            if self._in_turn:
                member = self._members.emptiest(self._fill.placed, self._owns.index)
                self._fill.place(thing, member or "")
            if thing.launched is None:
                thing.launched = (intended, timing.monotonic())
            if thing.begun is None and self._workload.cycle:
                thing.begun = thing.launched
        thing.doing = Doing.UNDER_WAY
        call = _task(self._perform(thing, step, member))
        self._calls[thing] = call, timing.monotonic()
        # A thing that was never as wanted is only cleared away: that says nothing about how long removals take.
        timed = step not in ("release", "delete") or not (thing.failed or thing.gave_up)
        self._operations.begin(step, call, intended, intended, partial(self._ended, thing, step), timed=timed)

    async def _perform(self, thing: Thing, step: Step, member: str | None) -> str:
        """Execute a step; returns the member that a thing was started on, if that is known."""
        try:
            match step:
                case "create":
                    if self._in_turn and member is None:
                        raise SpawnFailed("no online member accepts new instances", "unreachable")
                    await self._target.create(thing.item, member)
                case "start":
                    return await self._target.start(thing.item)
                case "probe":
                    await self._target.probe(thing.item)
                case "off" | "on":
                    assert isinstance(self._target, Switching)
                    await self._target.switch(thing.item, on=step == "on")
                case "release":
                    assert isinstance(self._target, Releasing)
                    await self._target.release(thing.item)
                case _:
                    await self._target.delete(thing.item)
        except asyncio.CancelledError:
            if thing not in self._abandoned:
                raise
            raise SpawnFailed("no answer from a member that is gone", "unreachable") from None
        return ""

    def _abandon(self, member: str, moment: float) -> None:
        """Cancel calls to a member that is gone, which may hang until they time out.

        These are calls for things on it, and for things that were being made before it disappeared, because they may be
        on it.
        """
        if not self._target.waits_with_members:
            return
        before = moment - self._workload.offline_polls * self._workload.poll_every
        for thing, (call, sent) in self._calls.items():
            if thing.member == member or (not thing.member and sent < before):
                self._abandoned.add(thing)
                call.cancel()

    def _ended(self, thing: Thing, step: Step, ended: Ended) -> None:
        self._calls.pop(thing, None)
        self._abandoned.discard(thing)
        thing.doing = Doing.NOTHING
        thing.touched = ended.moment
        if not self._fill.has(thing):  # its group now belongs to another worker, which will list it
            self._give_turn_back(thing, step, ended.moment)
            return
        if ended.outcome == "ok":
            self._fill.done(thing, step)
            if self._workload.cycle and ended.answer:
                self._landed[ended.answer] += 1
            following = self._fill.step(thing)
            if thing.has_turn and not self._stopped and self._goes_on_at_once(step, following):
                assert following is not None
                self._look_whether_done(thing, ended.moment)
                self._send(thing, following, ended.moment)
                return
        elif ended.outcome == "denied":
            thing.doubted = step
            self._fill.stand(thing)
        else:
            self._failed(thing, step, kind_of(ended), ended.moment, ended.outcome, ended.message)
            if step == "start" and self._target.is_failed(thing.item):
                self._fill.fail(thing)
        self._give_turn_back(thing, step, ended.moment)
        self._look_whether_done(thing, ended.moment)
        self._go_on(thing, ended.moment)

    def _goes_on_at_once(self, step: Step, following: Step | None) -> bool:
        """Return whether a thing keeps its turn after a step: to be started, switched, removed again, or made anew."""
        if following == "create":
            return step == "delete"
        if following in ("off", "on"):
            return step in TRIES
        if following == "delete" and step == "release":
            return True
        return following == "start" or (
            following in ("release", "delete") and self._workload.cycle and step != "delete"
        )

    def _give_turn_back(self, thing: Thing, step: Step, moment: float) -> None:
        if thing.has_turn:
            thing.has_turn = False
            turns = self._probe_turns if step in TRIES else self._turns
            turns.give_back(moment)

    def _failed(
        self, thing: Thing, step: Step, kind: Trouble, moment: float, outcome: str, message: str
    ) -> None:
        """Handle a failed step: retry it after a while, or give the thing up in this stage."""
        if thing.level is Level.ABSENT:
            self._fill.place(thing, "")
        self._fill.stand(thing)
        if self._stopped or self._fill.step(thing) != step:
            return
        wait = self._retries.again(thing.item, kind)
        if wait is not None:
            self.events.tally(moment, "retry", {"operation": self._operations.name(step), "kind": kind})
            thing.doing = Doing.RESTING
            thing.again = moment + wait
            self._schedule.at(thing.again, partial(self._rested, thing, step))
            return
        name = self._operations.name(step)
        self.events.tally(moment, "gave-up", {"operation": name, "kind": kind}, error=message)
        if thing.launched is not None:
            self._operations.count("launch", outcome, *thing.launched, moment, f"{name}: {message}")
            thing.launched = None
        if thing.begun is not None:
            self._operations.count("total", outcome, *thing.begun, moment, f"{name}: {message}")
            thing.begun = None
        thing.gave_up = True
        thing.stays = step in ("release", "delete")
        self._fill.stand(thing)

    def _rested(self, thing: Thing, step: Step, intended: float) -> None:
        if thing.doing is not Doing.RESTING or intended != thing.again:
            return
        thing.doing = Doing.NOTHING
        if step in CHANGES and self._fill.step(thing) in CHANGES:
            thing.doing = Doing.WAITING
            self._turns.ask(thing, intended, again=True)
        else:
            self._go_on(thing, intended)

    def _await_address(self, thing: Thing, moment: float) -> None:
        if thing.awaited is None:
            thing.awaited = moment
            self._awaiting[thing.item.group][thing] = moment

    def _address_is_late(self, thing: Thing, now: float) -> None:
        """Handle a late address: wait for it again, as often as a step is retried."""
        del self._awaiting[thing.item.group][thing]
        since, thing.awaited = thing.awaited, None
        if since is None:
            return
        message = f"no address within {self._workload.timeout:g} s"
        self._operations.count("reachable", "timeout", since, since, now, message)
        self._failed(thing, "reachable", "timeout", now, "timeout", message)

    def _look_whether_done(self, thing: Thing, moment: float) -> None:
        """Record that a thing has become reachable, or is as wanted."""
        if thing.awaited is not None and thing.level is not Level.STARTED:
            if thing.level > Level.STARTED:
                self._operations.count("reachable", "ok", thing.awaited, thing.awaited, moment)
            thing.awaited = None
        if thing.awaited is None:
            self._awaiting[thing.item.group].pop(thing, None)
        if thing.launched is not None and self._fill.is_as_wanted(thing):
            self._operations.count("launch", "ok", *thing.launched, moment)
            thing.launched = None
        if thing.standing is not Standing.HELD:
            return
        if thing.begun is not None:
            self._operations.count("total", "ok", *thing.begun, moment)
            thing.begun = None
            if not self._fill.waiting:
                self._tell_landed(moment)
        if thing.lost:
            thing.lost = False
            self.events.tally(moment, "repaired", {})
        thing.gave_up = False
        self._retries.forget(thing.item)

    # -- lists -----------------------------------------------------------------------------------

    def _list_group(self, group: int) -> Task[Any]:
        wanted = self._workload.until in ("reachable", "probed", "switched")
        addresses = wanted and (group in self._unsure or bool(self._awaiting[group]))
        return _task(self._target.list_group(group, addresses=addresses))

    def _begin_lists(self, moment: float) -> None:
        self._opening = set(self._awaiting)
        self._list_all(moment)
        self._look_whether_listed(moment)

    def _list_all(self, moment: float) -> None:
        for group in self._awaiting:
            if group not in self._polls:
                self._polls[group] = Poll(
                    partial(self._list_group, group),
                    partial(self._see_group, group),
                    self._operations,
                    self._schedule,
                    self._workload.poll_every,
                )
            self._polls[group].begin(moment, among=len(self._awaiting))

    def _look_whether_listed(self, moment: float) -> None:
        """Start work on the stage's things once every group has been listed; a group whose list failed joins later."""
        if self._open or self._opening:
            return
        self._open = True
        self._turns.begin(self._pace, moment)
        for thing in self._fill.things():
            self._go_on(thing, moment)

    def _see_group(self, group: int, asked: float, ended: Ended) -> None:
        if ended.outcome == "ok":
            self._unlisted.discard(group)
            if self._unsure.get(group, asked) <= asked:
                self._unsure.pop(group, None)
            self._compare(group, asked, ended)
        self._opening.discard(group)
        self._look_whether_listed(ended.moment)
        if self._fill.changes(group) or group in self._unsure:
            self._polls[group].every(self._workload.poll_every)
        elif self._fill.matters(group):
            self._polls[group].every(
                max(self._workload.poll_every, self._workload.observe_every or IDLE_EVERY)
            )
        else:
            self._polls[group].halt()

    def _compare(self, group: int, asked: float, ended: Ended) -> None:
        looked = self._fill.see(group, ended.answer, asked)
        for member, count in looked.lost.items():
            self.events.note(ended.moment, "lost", member=member, count=count)
        for thing, step in looked.denied:
            message = (
                "the answer was that it exists"
                if step == "create"
                else "the answer was that it does not exist"
            )
            self._failed(thing, step, "busy", ended.moment, "error", f"{message}, but the list disagrees")
        for thing in looked.todo:
            thing.doing = Doing.NOTHING
            self._look_whether_done(thing, ended.moment)
            self._go_on(thing, ended.moment)

    # -- members ---------------------------------------------------------------------------------

    def _list_members(self) -> Task[Any]:
        return _task(self._target.members())

    def _see_members(self, asked: float, ended: Ended) -> None:
        if ended.outcome != "ok":
            return
        if self._owns.index == 0 and isinstance(self._target, EventSource):
            for event, fields in self._target.take_events():
                self.events.note(ended.moment, event, **fields)
        first = not self._members.known
        for change in self._members.see(ended.answer):
            self._member_changed(change, ended.moment)
        if self._owns.index == 0:
            self._lead(ended.moment)
        self._tell_landed(ended.moment)
        if self._told_placed != self._fill.placed and ended.moment >= self._place_again:
            self._told_placed = dict(self._fill.placed)
            self._place_again = ended.moment + len(self._told_placed) / PLACED_PER_SECOND
            self.events.note(ended.moment, "placed", counts=self._told_placed)
        if first and self._members.known:
            self._begin_lists(ended.moment)

    def _tell_landed(self, moment: float) -> None:
        """Write an event with the members on which things of this stage have been started so far, if the things do not
        stay there."""
        if self._told_landed != self._landed.total():
            self._told_landed = self._landed.total()
            self.events.note(moment, "landed", counts=dict(self._landed))

    def _member_changed(self, change: Change, moment: float) -> None:
        member, status = change
        address = self._members.address(member)
        self.events.note(
            moment,
            "member",
            member=member,
            status=status,
            containers=self._fill.placed[member],
            **({"address": address} if address else {}),
        )
        if status == "lost":
            self._abandon(member, moment)
            count = self._fill.lose(member)
            if count:
                self.events.note(moment, "lost", member=member, count=count)
        else:
            self._evicting.discard(member)
        for thing in self._fill.reconsider(member):
            self._look_whether_done(thing, moment)
            self._unsure[thing.item.group] = moment
            self._polls[thing.item.group].every(self._workload.poll_every)

    def _lead(self, moment: float) -> None:
        """Write who leads the cluster, and remove members that are gone; one worker does this for all."""
        if self._members.leader != self._leader:
            self._leader = self._members.leader
            self.events.note(moment, "leader", member=self._leader)
        if self._workload.evict:
            for member in self._members.lost:
                if member not in self._evicting and member not in self._spared:
                    self._begin_evict(member, moment, partial(self._evicted, member))

    def _begin_evict(self, member: str, intended: float, ended: Callable[[Ended], None]) -> None:
        self._evicting.add(member)
        task = _task(self._target.evict(member))
        self._operations.begin("evict", task, intended, intended, ended)

    def _evicted(self, member: str, ended: Ended) -> None:
        """Handle the end of an eviction; after a success, the member counts as being evicted until it leaves the
        list."""
        if ended.outcome in ("ok", "denied") or self._stopped:
            return
        self._evicting.discard(member)
        self._spared.add(member)
        kind = kind_of(ended)
        wait = self._retries.again(member, kind)
        if wait is None:
            self.events.tally(
                ended.moment, "gave-up", {"operation": "evict", "kind": kind}, error=ended.message
            )
        else:
            self.events.tally(ended.moment, "retry", {"operation": "evict", "kind": kind})
            self._schedule.at(ended.moment + wait, lambda _: self._spared.discard(member))


def _task(work: Coroutine[Any, Any, Any]) -> Task[Any]:
    return asyncio.get_running_loop().create_task(work)
