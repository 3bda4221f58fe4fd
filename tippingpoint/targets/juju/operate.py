"""The operate workload on Juju: a worker's models with units at work, and its operators who use them.

The load is an open loop: each operation is sent when it is due, however late the controller answers. Each model belongs
to one worker, which logs its units in and has its operators work on it.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from asyncio import Future
from bisect import bisect
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.plan.base import share_of
from tippingpoint.plan.operate import (
    OPERATE_OPERATIONS,
    Command,
    ModelShape,
    OperatePlan,
    OperateStage,
    timed_as,
)
from tippingpoint.plan.read import AnyStage, Plan
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.model import log_in
from tippingpoint.targets.juju.commands import Commands
from tippingpoint.targets.juju.ledger import operated_model
from tippingpoint.targets.juju.lines import Lines
from tippingpoint.targets.juju.operated_model import Link, OperatedModel
from tippingpoint.targets.juju.operators import Operators
from tippingpoint.targets.juju.work import Subject
from tippingpoint.targets.juju.working_agent import WorkingAgent, secret_id
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.load import Event, Gauge, OnProgress, PrepareOrder, StageOrder, TargetFacts
from tippingpoint.workloads.schedule import Schedule, spread
from tippingpoint.workloads.spawn.operations import Ended, Operations

_AT_ONCE = 4
"""Models that are made, changed or removed concurrently."""
_OPEN_AGAIN = 1.0
"""Seconds before a log that could not be opened may be tried again."""
_LOOK = 0.1
"""Seconds between two checks whether all units are logged in."""


class JujuOperate:
    """One worker's share of the models and of the operations on them. Implements `tippingpoint.workloads.load.Load`."""

    def __init__(
        self,
        plan: OperatePlan,
        access: ControllerAccess,
        prefix: str,
        worker: str,
        recorder: Recorder,
        schedule: Schedule,
    ) -> None:
        self._plan = plan
        self._workload = workload = plan.workload
        self._access = access
        self._prefix = prefix
        self._worker = worker
        self._schedule = schedule
        self._client = ApiClient(access.addresses, access.ca)
        self._operations = Operations(OPERATE_OPERATIONS, recorder, workload.timeout)
        self._commands = Commands(self._client, access)
        self._models: list[OperatedModel] = []
        self._links: list[tuple[OperatedModel, Link]] = []
        self._operators = Operators(self._commands, access, prefix, worker, self._models)
        self._lines = Lines(self._client, access, f"{prefix}-{worker}")
        shares = workload.shares()
        self._mix: list[Command] = [*shares]
        self._until = list(accumulate(shares.values()))[:-1]
        self._numbers = itertools.count(1)
        self._round = 0
        self._wanted = 0
        self._up = False
        self._coming: asyncio.Task[None] | None = None
        self._opening: dict[str, asyncio.Task[None]] = {}
        """By model, the task that reopens its log."""
        self.errors = self._operations.errors
        """Failures by (operation, outcome, message) since the worker last took them."""
        self.lost: list[tuple[float, int, int, float]] = []
        """Always empty: a lost connection is among the errors."""
        self.events: list[Event] = []
        """Always empty."""

    @property
    def gauge(self) -> Gauge:
        """Units that are logged in; units that exist but are not logged in; operations in flight."""
        connected = sum(model.connected for model in self._models)
        held = min(connected, self._wanted)
        waiting = max(0, sum(model.units for model in self._models) - connected)
        return Gauge(held, waiting, self._operations.under_way, self._up, self._operations.oldest)

    async def open(self) -> TargetFacts:
        """Log in; TargetError if no server can be reached or the controller refuses the login."""
        try:
            connection = await log_in(self._client, self._access.user, None)
        except OperationFailed as problem:
            raise TargetError(
                self._access.controller_name, str(problem), "a controller that answers and accepts the login"
            ) from None
        version = connection.server_version
        connection.close()
        return TargetFacts("juju", version, list(self._access.addresses), self._access.controller_name)

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Make the models that are common to all of these stages; raises OperationFailed when that fails.

        The work of the stage before ends here: it would find models that are not there.
        """
        self._round += 1
        if order.fresh:
            self._operations.abandon()
            await self._have([], 0.0, progress)
        shapes = min((self._shapes(stage, order.share) for stage in order.stages), key=_units_in)
        if _units_in(shapes) > sum(model.units for model in self._models):
            await self._have(shapes, 0.0, progress)

    def revise(self, plan: Plan) -> None:
        """Use this plan's shapes from the next stage on."""
        assert isinstance(plan, OperatePlan)
        self._plan = plan

    async def begin_stage(self, stage: StageOrder) -> None:
        """Bring the models to the stage's size, and send its operations from then on."""
        self._round += 1
        self._up = False
        await self._end_coming()
        if stage.kind == "storm":
            self._operations.abandon()
            for model in self._models:
                model.drop()
        self._coming = asyncio.get_running_loop().create_task(self._bring_up(_spec_of(stage.spec), stage))

    def expire_calls(self) -> None:
        """Count operations older than the workload's timeout as timed out. Call this a few times a second."""
        self._operations.expire()

    def stop(self) -> None:
        """Start nothing new. Units stay logged in."""
        self._round += 1

    async def drain(self, within: float) -> None:
        """Wait for operations in flight; those without an answer after `within` seconds count as timed out."""
        await self._operations.drain(within)

    def cut(self) -> None:
        """Wait for nothing; see Load."""
        self._operations.cut()

    async def settle(self, within: float, *, count: bool = False) -> dict[str, list[float]]:
        """Wait for the operations that are in flight now, while the load goes on; see Settling."""
        return await self._operations.settle(within, count=count)

    async def give_back(self, within: float) -> int:
        """Log the units out; returns 0. `clean` removes the models."""
        self.stop()
        await self._end_coming()
        self._operations.abandon()
        self._schedule.clear()
        for model in self._models:
            model.close()
        return 0

    async def close(self) -> None:
        """Close every connection."""
        await self._end_coming()
        for opening in self._opening.values():
            opening.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        self._lines.close()
        for model in self._models:
            model.close()
        await self._client.close()

    # -- models -------------------------------------------------------------------------------------

    def _shapes(self, spec: AnyStage, share: tuple[int, int]) -> list[ModelShape]:
        """Return what is in each of this worker's models."""
        index, workers = share
        return self._plan.shapes_of(_spec_of(spec))[index::workers]

    async def _bring_up(self, spec: OperateStage, stage: StageOrder) -> None:
        shapes = self._shapes(spec, stage.share)
        failures = 0
        while True:
            try:
                await self._have(shapes, stage.over if not failures else 0.0)
                await self._logged_in()
                for model in self._models:
                    if spec.secrets or self._workload.rotate:
                        await model.share_secrets()
                    if spec.logs:
                        await model.open_sink()
                if spec.logs:
                    await self._lines.open()
                break
            except (OperationFailed, TargetError) as problem:
                self.errors.note("connect", "error", f"models before the stage: {problem}")
                failures += 1
                await asyncio.sleep(backoff(failures))
        # They live as long as the stage: freeze them, so that garbage collection never stops the loop.
        gc.collect()
        gc.freeze()
        self._begin_work(spec, *stage.share)
        self._up = True
        self._coming = None

    async def _have(
        self, shapes: Sequence[ModelShape], over: float, progress: OnProgress | None = None
    ) -> None:
        """Have models of these shapes and no others."""
        self._wanted = _units_in(shapes)
        few = asyncio.Semaphore(_AT_ONCE)
        loop = asyncio.get_running_loop()

        async def become(model: OperatedModel, shape: ModelShape, moment: float) -> None:
            await asyncio.sleep(moment - loop.time())
            async with few:
                await model.become(shape)
            if progress is not None:
                progress("units", sum(each.units for each in self._models), self._wanted)

        async def remove(model: OperatedModel) -> None:
            async with few:
                model.close()
                if model.uuid:
                    await self._commands.destroy_model(model.uuid)
            self._models.remove(model)

        async with _Together() as tasks:
            for model in self._models[len(shapes) :]:
                tasks.begin(remove(model))
        while len(self._models) < len(shapes):
            self._models.append(self._new_model())
        async with _Together() as tasks:
            moments = spread(len(shapes), loop.time(), over)
            for model, shape, moment in zip(self._models, shapes, moments, strict=True):
                tasks.begin(become(model, shape, moment))

    def _new_model(self) -> OperatedModel:
        number = next(self._numbers)
        name = operated_model(self._prefix, f"{self._worker}-m{number}")
        return OperatedModel(
            self._client,
            self._access,
            name,
            self._prefix,
            self._worker,
            self._operations,
            self._schedule,
            self._workload.rotate,
        )

    async def _logged_in(self) -> None:
        while True:
            if all(model.up for model in self._models):
                return
            await asyncio.sleep(_LOOK)

    async def _end_coming(self) -> None:
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)

    # -- what is done ---------------------------------------------------------------------------------

    def _begin_work(self, spec: OperateStage, index: int, workers: int) -> None:
        """Begin everything that has a rate; each worker has its share of each rate."""
        workload = self._workload
        every = self._plan.shapes_of(spec)
        self._links = [(model, link) for model in self._models for link in model.links]
        relations = sum(len(shape.pairs) for shape in every)
        of_relations = len(self._links) / relations if relations else 0.0
        of_models = len(self._models) / len(every)
        update = workload.update_status
        now = timing.monotonic()
        for rate, send in (
            ((spec.statuses or 0.0) * of_models, self._status),
            ((spec.logs or 0.0) * of_models, self._log),
            ((spec.changes or 0.0) * of_relations, self._change_settings),
            ((spec.secrets or 0.0) * of_relations, self._change_secret),
            (self._wanted / update if update else 0.0, self._hook),
            (share_of(spec.operators, index, workers) / workload.think, self._command),
        ):
            if rate:
                # Workers begin one after the other; otherwise all would send at the same moments.
                first = now + index / (rate * workers)
                self._schedule.at(first, partial(self._next, self._round, 1 / rate, send))

    def _next(self, its_round: int, gap: float, send: Callable[[float], None], due: float) -> None:
        if its_round == self._round:
            self._schedule.at(due + gap, partial(self._next, its_round, gap, send))
            send(due)

    def _status(self, due: float) -> None:
        self._begin(timed_as("status"), due, self._commands.status(random.choice(self._models).uuid))

    def _command(self, due: float) -> None:
        wanted = self._mix[bisect(self._until, random.random())]
        command, work = self._operators.work(wanted, random.choice(self._models))
        self._begin(timed_as(command), due, work)

    def _hook(self, due: float) -> None:
        model = random.choice(self._models)
        unit = model.a_unit()
        agent = model.agent(unit) if unit is not None else None
        done: Future[None] = asyncio.get_running_loop().create_future()
        if agent is None:
            done.set_exception(OperationFailed(f"{model.name}: no unit is logged in"))
        else:
            agent.hook(done)
        self._operations.begin("hook", done, due, due, _nothing)

    def _log(self, due: float) -> None:
        model = random.choice(self._models)
        done: Future[None] = asyncio.get_running_loop().create_future()
        if self._lines.closed or model.sink is None or model.sink.closed:
            self._open_log(model)
        unit = random.choice([*model.applications]) + "/0"
        self._lines.write(model.sink, unit, next(self._numbers), done)
        self._operations.begin("log", done, due, due, _nothing)

    def _open_log(self, model: OperatedModel) -> None:
        """Reopen the streams of a model's log, by one attempt at a time; what is due meanwhile fails."""
        opening = self._opening.get(model.uuid)
        if opening is None or opening.done():
            self._opening[model.uuid] = asyncio.get_running_loop().create_task(self._opened_log(model))

    async def _opened_log(self, model: OperatedModel) -> None:
        try:
            await model.open_sink()
            await self._lines.open()
        except OperationFailed as problem:
            self.errors.note("log", "error", str(problem))
            await asyncio.sleep(_OPEN_AGAIN)

    def _change_settings(self, due: float) -> None:
        model, link = random.choice(self._links)
        unit = random.choice([*link.units[0], *link.units[1]])
        size = self._workload.settings
        subject = "settings", link.key, unit
        self._change(
            "relation-change",
            due,
            model,
            (unit, link.others(unit)),
            subject,
            lambda agent, number: agent.change_settings(link.key, number, size),
        )

    def _change_secret(self, due: float) -> None:
        model, link = random.choice(self._links)
        owners, others = link.units
        uri = model.secrets.get(link.key, "")
        subject = "secret", secret_id(uri)
        self._change(
            "secret-change",
            due,
            model,
            (owners[0] if owners and uri else "", others),
            subject,
            lambda agent, number: agent.change_secret(uri, number),
        )

    def _change(
        self,
        operation: str,
        due: float,
        model: OperatedModel,
        between: tuple[str, Sequence[str]],
        subject: Subject,
        write: Callable[[WorkingAgent, int], Future[Any]],
    ) -> None:
        """Have a unit change something. The operation lasts until all logged-in readers have noticed it."""
        done: Future[None] = asyncio.get_running_loop().create_future()
        writer, readers = between[0], model.logged_in(between[1])
        agent = model.agent(writer)
        if agent is None or not readers:
            whose = (
                (writer or "an owner of a secret")
                if agent is None
                else f"any unit that {writer} is related to"
            )
            done.set_exception(OperationFailed(f"{whose}: not logged in"))
        else:
            number = next(model.noticing.numbers)
            model.noticing.expect(subject, number, readers, done)
            write(agent, number).add_done_callback(partial(_refused, done))
        self._operations.begin(operation, done, due, due, _nothing)

    def _begin(self, operation: str, due: float, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._operations.begin(operation, task, due, due, _nothing)


class _Together:
    """Tasks that are awaited together: the first failure is raised when all have ended."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _Together:
        return self

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work))

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        except asyncio.CancelledError:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            raise
        problem = next((each for each in ended if isinstance(each, Exception)), None)
        if problem is not None and kind is None:
            raise problem


def _refused(done: Future[None], written: Future[Any]) -> None:
    """End the wait for a change that was not made."""
    if not written.cancelled() and (problem := written.exception()) is not None and not done.done():
        done.set_exception(problem)


def _nothing(ended: Ended) -> None:
    """Ignore an answer: only its time matters."""


def _units_in(shapes: Sequence[ModelShape]) -> int:
    return sum(shape.units for shape in shapes)


def _spec_of(stage: AnyStage) -> OperateStage:
    assert isinstance(stage, OperateStage)
    return stage
