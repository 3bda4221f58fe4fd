"""The spawn workload on Juju: one worker brings its share of a model to the size that each stage asks for.

A stage proceeds in rounds. A round compares the goal with the model and spreads the missing calls over the
stage's time. Each call is sent at its moment, or when the thing it depends on exists. When all calls of a round
have ended, one full status of the model shows their effect. Whatever failed, was lost or is still being removed is
left to a further round, after a pause that grows with every round that had failures. No status call is made per
thing.

In addition, the first worker's observer requests the status of one application and of the whole model.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.plan.grow import GROW_OPERATIONS, GrowPlan, GrowStage, GrowUnit
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.juju.api import charm
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import ANSWER_WITHIN, HollowMachineSpec, ModelAdmin
from tippingpoint.targets.juju.grow_steps import (
    Existing,
    Goal,
    Share,
    Step,
    is_done,
    placement,
    steps,
    waits_for,
)
from tippingpoint.targets.juju.hollow import application_name, instance_id
from tippingpoint.targets.juju.hollow_agents import Agents
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff, doubled
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
from tippingpoint.workloads.spawn.operations import Ended, Operations

FIRST_LOOK = 0.5
LONGEST_LOOK = 5.0
"""Seconds before the model's status is requested again to see whether removals are done; doubled each time."""
LOOK_EVERY = 0.1
"""Seconds between two checks whether all things are removed."""
ASK_AGAIN = 60.0
"""Seconds after which a removal is requested again if it has not begun."""
_AFTER_TIMEOUT = 10.0
_ADDRESS = "192.0.2.1"  # in TEST-NET-1 of RFC 5737: assigned to nobody


@dataclass(slots=True)
class _Round:
    """One round's calls: the number not due yet, the number under way, and whether any failed."""

    undue: int = 0
    under_way: int = 0
    failed: bool = False


@dataclass(slots=True)
class _Due:
    step: Step
    intended: float
    ready: float


class JujuSpawn:
    """One worker's share of a model's growth. Implements `tippingpoint.workloads.load.Load`."""

    def __init__(
        self,
        plan: GrowPlan,
        access: ControllerAccess,
        model: str,
        prefix: str,
        worker: str,
        recorder: Recorder,
        schedule: Schedule,
    ) -> None:
        self._stages: Sequence[GrowStage] = plan.planned
        self._counted: GrowUnit = plan.counted
        self._workload = plan.workload
        self._batch = plan.workload.batch
        self._access = access
        self._model = model
        self._prefix = prefix
        self._worker = worker
        self._schedule = schedule
        self._client = ApiClient(access.addresses, access.ca)
        self._admin: ModelAdmin | None = None
        self._opening: asyncio.Task[ModelAdmin] | None = None
        self._charm_url: str | None = None
        self._operations = Operations(GROW_OPERATIONS, recorder, self._workload.timeout)
        self._agents = Agents(self._client, model, self._machine_identity, self._operations, schedule)
        self._share = Share(0, 1)
        self._goal = Goal(self._share)
        self._existing = Existing()
        self._asked_to_go: dict[object, float] = {}
        self._stage = 0
        self._round = _Round()
        self._first_round: Callable[[], None] | None = None
        self._queue: deque[_Due] = deque()
        self._blocked: dict[object, list[_Due]] = {}
        self._slot_freed = 0.0
        self._gap = 0.0
        self._looks = 0
        self._failed_rounds = 0
        self._reached = False
        self._stopped = True
        self.errors = self._operations.errors
        """(operation, outcome, message) of failures since the worker last took them."""
        self.lost: list[tuple[float, int, int, float]] = []
        """Always empty: losses from a model are repaired, and a lost connection is among the errors."""
        self.events: list[Event] = []
        """Always empty."""

    @property
    def gauge(self) -> Gauge:
        """The model's size as the plan counts it; calls to be sent and removals going on; operations under way."""
        waiting = self._round.undue + len(self._queue) + sum(map(len, self._blocked.values()))
        up = self._reached and (not self._workload.agents or self._agents.up)
        held = self._existing.amounts[self._counted]
        return Gauge(held, waiting + len(self._existing.going), self._operations.under_way, up)

    async def open(self) -> TargetFacts:
        """Log in to the model; TargetError if no server can be reached or the controller refuses the login."""
        try:
            admin = await self._administrator()
        except OperationFailed as problem:
            raise TargetError(
                self._access.controller_name, str(problem), "a controller that answers and accepts the login"
            ) from None
        return TargetFacts("juju", admin.server_version, list(self._access.addresses))

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Upload the charm, so that the time of the first deploy does not include the upload; empty the model first for
        stages that begin from nothing.

        Raises OperationFailed if anything stays in the model.
        """
        if order.fresh and self._stage:
            await self._clear(Share.among(self._stages, *order.share), progress)
        admin = await self._administrator()
        progress("charm", 0, 1)
        self._charm_url = await admin.hollow_charm()
        progress("charm", 1, 1)

    def revise(self, plan: Plan) -> None:
        """Use this plan from the next stage on."""
        assert isinstance(plan, GrowPlan)
        self._stages = plan.planned
        self._workload = plan.workload

    async def begin_stage(self, stage: StageOrder) -> None:
        """Bring the model to the size of the stage with this number, and observe it until the next stage begins."""
        index, workers = stage.share
        spec = stage.spec
        assert isinstance(spec, GrowStage)
        self._batch = spec.batch or self._workload.batch
        share = Share.among(self._stages, index, workers)
        begin = timing.monotonic()
        self._begin(Goal.of(spec, share), stage.over, begin)
        self._stage = stage.number
        if index == 0 and self._workload.observe_every:
            self._observe_at(begin + self._workload.observe_every, stage.number)

    async def _clear(self, share: Share, progress: OnProgress) -> None:
        """Remove everything that this worker made; raises OperationFailed if nothing goes for as long as an operation
        may take."""
        self._begin(Goal(share), 0.0, timing.monotonic())
        at_first = fewest = sum(self._existing.amounts.values())
        fell = timing.monotonic()
        while not self._reached:
            progress("things removed", max(0, at_first - fewest), at_first)
            await asyncio.sleep(LOOK_EVERY)
            if (left := sum(self._existing.amounts.values())) < fewest:
                fewest, fell = left, timing.monotonic()
            if timing.monotonic() - fell > max(LONGEST_LOOK, self._workload.timeout):
                break
        emptied = self._reached
        self.stop()
        await self.drain(DRAIN_TIMEOUT)
        if not emptied:
            raise OperationFailed(f"{fewest} things of the load before could not be removed")

    def _begin(self, goal: Goal, over: float, begin: float) -> None:
        """Begin to bring this worker's share of the model to a goal, with calls spread over this many seconds."""
        dealt_anew = bool(self._stage) and goal.share != self._share
        self._share = goal.share
        self._goal = goal
        self._stopped = False
        self._reached = False
        self._failed_rounds = 0
        self._looks = 0
        # Calls still under way from the previous stage change the model only when they have ended.
        self._round = _Round(under_way=self._round.under_way)
        self._queue.clear()
        self._blocked.clear()
        first_round = self._look_first if dealt_anew else self._begin_round
        self._first_round = partial(first_round, begin, over)
        self._begin_first_round()

    def expire_calls(self) -> None:
        """Count operations older than the workload's timeout as timed out. Call this a few times a second."""
        self._operations.expire()

    def stop(self) -> None:
        """Start nothing new. Calls under way may still end."""
        self._stopped = True
        self._schedule.clear()
        self._queue.clear()
        self._blocked.clear()
        self._first_round = None
        self._round.undue = 0
        self._agents.stop()

    async def drain(self, within: float) -> None:
        """Wait for the calls under way. Those without an answer after `within` seconds count as timed out."""
        await self._operations.drain(within)
        self._round.under_way = 0

    def cut(self) -> None:
        """Stop waiting for calls; see Load."""
        self._operations.cut()
        self._round.under_way = 0

    async def give_back(self, within: float) -> int:
        """Log the units out; returns 0. `clean` removes the model's contents as a whole."""
        self._agents.close()
        return 0

    async def close(self) -> None:
        """Close every connection."""
        self._stopped = True
        self._agents.close()
        await self._client.close()

    # -- rounds ----------------------------------------------------------------------------------

    def _begin_first_round(self) -> None:
        """Begin a stage's first round, unless calls of the previous stage are still under way."""
        if self._first_round is not None and not self._round.under_way and not self._stopped:
            begin, self._first_round = self._first_round, None
            begin()

    def _look_first(self, begin: float, over: float) -> None:
        """Request the status before a stage's first round: another worker's things may belong to this share now."""
        self._round.undue = 1  # keeps the round from counting as over
        self._look_before(self._round, over, begin)

    def _look_before(self, its_round: _Round, over: float, intended: float) -> None:
        if its_round is not self._round or self._stopped:
            return
        seen = partial(self._looked_before, its_round, over)
        self._operations.begin("full-status", self._task(self._full_status()), intended, intended, seen)

    def _looked_before(self, its_round: _Round, over: float, ended: Ended) -> None:
        if its_round is not self._round or self._stopped:
            return
        if ended.outcome == "ok":
            self._see(ended.answer)
            self._begin_round(ended.moment, over)
            return
        self._failed_rounds += 1
        again = partial(self._look_before, its_round, over)
        self._schedule.at(ended.moment + backoff(self._failed_rounds), again)

    def _begin_round(self, begin: float, over: float | None) -> None:
        """Send the missing calls, spread over a time from `begin` on. Further rounds keep the first round's rate."""
        todo = steps(self._goal, self._existing, self._batch)
        self._blocked.clear()
        self._round = _Round(len(todo))
        if over is None:
            over = self._gap * len(todo)
        else:
            self._gap = over / max(1, len(todo))
        for step, moment in zip(todo, spread(len(todo), begin, over), strict=True):
            self._schedule.at(moment, partial(self._come_due, self._round, step))
        if not todo:
            self._look_if_over(self._round)

    def _come_due(self, its_round: _Round, step: Step, intended: float) -> None:
        if its_round is not self._round or self._stopped:
            return
        its_round.undue -= 1
        self._queue.append(_Due(step, intended, intended))
        self._send_due()
        self._look_if_over(its_round)

    def _send_due(self) -> None:
        """Send calls that are due, if the things they depend on exist and a closed loop has room."""
        while self._queue and not self._stopped:
            limit = self._workload.concurrency
            if limit is not None and self._round.under_way >= limit:
                return
            due = self._queue.popleft()
            missing = waits_for(due.step, self._existing)
            if missing is None:
                self._send(due)
            else:
                self._blocked.setdefault(missing, []).append(due)

    def _send(self, due: _Due) -> None:
        step = due.step
        machines = placement(self._existing, self._goal, step.count)
        self._existing.reserve(machines)
        self._round.under_way += 1
        ready = due.ready if self._workload.concurrency is None else max(due.ready, self._slot_freed)
        ended = partial(self._ended, self._round, step, machines)
        self._operations.begin(
            step.operation, self._task(self._perform(step, machines)), due.intended, ready, ended
        )

    def _ended(self, its_round: _Round, step: Step, machines: Sequence[str], ended: Ended) -> None:
        self._slot_freed = ended.moment
        self._existing.unreserve(machines)
        if ended.outcome == "ok":
            self._note_done(step, ended)
        # A call of a stage that is over is counted in the current round.
        current = self._round
        current.under_way -= 1
        if its_round is current and ended.outcome != "ok":
            current.failed = True
        self._begin_first_round()
        self._send_due()
        self._look_if_over(self._round)

    def _look_if_over(self, its_round: _Round) -> None:
        """When all calls of a round have ended, request the status; if any failed, after a pause."""
        if its_round is not self._round or self._stopped:
            return
        if its_round.undue or its_round.under_way or self._queue or self._first_round is not None:
            return
        now = timing.monotonic()
        if its_round.failed:
            self._failed_rounds += 1
            self._schedule.at(now + backoff(self._failed_rounds), partial(self._look, its_round))
        else:
            self._look(its_round, now)

    def _look(self, its_round: _Round, intended: float) -> None:
        if its_round is not self._round or self._stopped:
            return
        ended = partial(self._looked, its_round)
        self._operations.begin("full-status", self._task(self._full_status()), intended, intended, ended)

    def _looked(self, its_round: _Round, ended: Ended) -> None:
        if its_round is not self._round or self._stopped:
            return
        if ended.outcome != "ok":
            self._failed_rounds += 1
            self._schedule.at(ended.moment + backoff(self._failed_rounds), partial(self._look, its_round))
            return
        self._see(ended.answer)
        if is_done(self._goal, self._existing):
            self._reached = True
            self._failed_rounds = 0
            return
        if not its_round.failed:
            self._failed_rounds = 0
        todo = steps(self._goal, self._existing, self._batch)
        possible = any(waits_for(step, self._existing) is None for step in todo)
        self._looks += 1
        # A full status of a large model is more expensive for the controller than waiting.
        pause = max(2 * (ended.moment - ended.intended), doubled(self._looks, FIRST_LOOK, LONGEST_LOOK))
        again = partial(self._go_on, its_round) if possible else partial(self._look, its_round)
        self._schedule.at(ended.moment + pause, again)

    def _go_on(self, its_round: _Round, intended: float) -> None:
        if its_round is self._round and not self._stopped:
            self._begin_round(intended, None)

    # -- the model's state -----------------------------------------------------------------------

    def _see(self, status: dict[str, Any]) -> None:
        """Update the model's state from a full status."""
        self._existing = existing = Existing.of(status, self._share, self._prefix, self._worker)
        now = timing.monotonic()
        present: set[object] = {("machine", number) for number in existing.machines}
        present |= {("application", number) for number in existing.units} | existing.relations
        present |= {unit for units in existing.units.values() for unit in units}
        self._asked_to_go = {
            thing: moment
            for thing, moment in self._asked_to_go.items()
            if thing in present and now - moment < ASK_AGAIN
        }
        existing.going.update(self._asked_to_go)
        if self._agents_wanted:
            self._agents.want(
                {unit: on for units in existing.units.values() for unit, on in units.items()}, existing.going
            )

    def _note_done(self, step: Step, ended: Ended) -> None:
        """Record the effect of a successful call before the next full status shows it."""
        existing = self._existing
        match step.operation:
            case "add-machine":
                existing.machines[step.number] = ended.answer
                self._unblock("machine", ended.moment)
            case "deploy" | "add-unit":
                existing.add_units(step.number, ended.answer)
                self._unblock(("application", step.number), ended.moment)
                if self._agents_wanted:
                    self._agents.add(ended.answer)
            case "relate":
                existing.relations.add(step.pair)
            case "remove-machine":
                self._let_go([("machine", step.number)], ended.moment)
            case "remove-application":
                self._let_go([("application", step.number)], ended.moment)
                self._agents.let_go(existing.units.get(step.number, ()))
            case "remove-unit":
                self._let_go(step.units, ended.moment)
                self._agents.let_go(step.units)
            case _:
                self._let_go([step.pair], ended.moment)

    def _let_go(self, things: Sequence[object], moment: float) -> None:
        self._existing.going.update(things)
        self._asked_to_go.update(dict.fromkeys(things, moment))

    def _unblock(self, thing: object, moment: float) -> None:
        """Queue the calls that waited for this thing. They were not due earlier, because the thing's own creation is
        timed separately."""
        for due in self._blocked.pop(thing, []):
            self._queue.append(_Due(due.step, max(due.intended, moment), moment))

    @property
    def _agents_wanted(self) -> bool:
        return self._workload.agents and not self._stopped

    # -- calls -----------------------------------------------------------------------------------

    async def _perform(self, step: Step, machines: Sequence[str]) -> Any:
        """Make one call and return its result: the machine's id, the new units with their machines, or nothing."""
        admin = await self._administrator()
        name = application_name(self._prefix, step.number)
        match step.operation:
            case "add-machine":
                return (await admin.add_machines([self._machine(step.number)]))[0]
            case "deploy":
                await admin.deploy([name], step.count, machines[0] if machines else "")
                return {f"{name}/{number}": machine for number, machine in enumerate(machines)}
            case "add-unit":
                return dict(zip(await admin.add_units(name, step.count, machines), machines, strict=False))
            case "relate":
                return await admin.relate(*self._ends(step))
            case "remove-relation":
                return await admin.destroy_relation(*self._ends(step))
            case "remove-unit":
                return await admin.destroy_units(step.units)
            case "remove-application":
                return await admin.destroy_applications([name])
            case _:
                return await admin.destroy_machines([self._existing.machines[step.number]])

    def _ends(self, step: Step) -> tuple[str, str]:
        one, other = (application_name(self._prefix, number) for number in step.pair)
        return f"{one}:{charm.PROVIDES}", f"{other}:{charm.REQUIRES}"

    def _machine(self, number: int) -> HollowMachineSpec:
        return HollowMachineSpec(instance_id(self._prefix, self._worker, number), _ADDRESS)

    async def _machine_identity(self, machine: str) -> Identity:
        """Return the identity of the agent of one of our machines (by id)."""
        number = next((n for n, name in self._existing.machines.items() if name == machine), None)
        if number is None:
            raise OperationFailed(f"machine {machine}: no longer exists")
        return await (await self._administrator()).machine_identity(machine, self._machine(number).nonce)

    async def _full_status(self) -> dict[str, Any]:
        return await (await self._administrator()).full_status()

    async def _status(self, application: str) -> dict[str, Any]:
        return await (await self._administrator()).full_status([application])

    async def _administrator(self) -> ModelAdmin:
        """Return the user's connection to the model, remade once for all callers after a loss."""
        if self._admin is not None and not self._admin.lost:
            return self._admin
        if self._opening is None:
            self._opening = asyncio.get_running_loop().create_task(self._log_in())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    async def _log_in(self) -> ModelAdmin:
        # An operation must end by the workload's timeout, never earlier by the timeout of its call.
        within = max(ANSWER_WITHIN, self._workload.timeout) + _AFTER_TIMEOUT
        self._admin = await ModelAdmin.open(
            self._client, self._access, self._model, within, self._admin_lost, self._charm_url
        )
        return self._admin

    def _opened(self, opening: asyncio.Task[ModelAdmin]) -> None:
        self._opening = None
        if not opening.cancelled():
            opening.exception()  # the callers that await it have it

    def _admin_lost(self, reason: str) -> None:
        self._operations.errors.note("connection", "lost", reason)

    # -- the observer ----------------------------------------------------------------------------

    def _observe_at(self, moment: float, stage: int) -> None:
        self._schedule.at(moment, partial(self._observe, stage))

    def _observe(self, stage: int, intended: float) -> None:
        if self._stopped or stage != self._stage:
            return
        self._observe_at(intended + self._workload.observe_every, stage)
        begin = self._operations.begin
        # A status requested while the model was still changing does not show losses since then.
        seen = partial(self._observed, self._round) if self._reached else _nothing
        begin("full-status", self._task(self._full_status()), intended, intended, seen)
        if self._existing.units:
            name = application_name(self._prefix, min(self._existing.units))
            begin("status", self._task(self._status(name)), intended, intended, _nothing)

    def _observed(self, its_round: _Round, ended: Ended) -> None:
        """Repair losses of the model since it reached its goal."""
        idle = its_round is self._round and self._reached and not self._stopped
        if idle and ended.outcome == "ok":
            self._see(ended.answer)
            if not is_done(self._goal, self._existing):
                self._reached = False
                self._begin_round(ended.moment, None)

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(work)


def _nothing(ended: Ended) -> None:
    """Ignore an answer: only its time matters."""
