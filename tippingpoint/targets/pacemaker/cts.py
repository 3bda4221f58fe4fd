"""Plays a cluster's own tests: carries out their steps, times them, checks, and makes the cluster whole again.

A test that fails is a result. Whatever was stopped is started, what was changed is put back, and the next test begins
on a whole cluster. Meanwhile a ticket is updated at a steady pace, to time what the cluster's users experience, and
each node's load is queried.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio import Future
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tippingpoint.errors import OperationFailed, UserError
from tippingpoint.plan.cts import CTS_OPERATIONS, CtsPlan, CtsStage, CtsTest
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.pacemaker.access import PacemakerAccess
from tippingpoint.targets.pacemaker.connection import in_plain_words
from tippingpoint.targets.pacemaker.cts_tests import (
    Ask,
    Await,
    Change,
    Respawned,
    Scene,
    Skipped,
    Step,
    Steps,
    start_all,
    steps_of,
)
from tippingpoint.targets.pacemaker.cts_things import Things
from tippingpoint.targets.pacemaker.cts_view import Condition, View, unmet
from tippingpoint.targets.pacemaker.cts_watch import Watch
from tippingpoint.targets.pacemaker.status import ClusterStatus
from tippingpoint.targets.pacemaker.stores import TICKET, TICKETS
from tippingpoint.targets.pacemaker.wire import CAN_CREATE, SYNC, Answer
from tippingpoint.util import timing
from tippingpoint.util.lab_socket import ask_lab
from tippingpoint.workloads.load import Event, Gauge, OnProgress, PrepareOrder, StageOrder, TargetFacts
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Ended, Operations

LOOK_EVERY = 0.25
"""Seconds between two looks at the cluster: the error of every time that ends with one."""
SETTLED = 1.0
"""Seconds for which an idle cluster has to stay idle. The time that counts ends with the first of these looks."""
_POLL = "poll"
_MOST_SHOWN = 200
"""The most characters shown of what was missing."""


class Failed(Exception):
    """An assertion failed: its name, and what was missing."""

    def __init__(self, assertion: str, problem: str) -> None:
        super().__init__(f"{assertion}: {problem}")
        self.assertion = assertion
        self.problem = problem[:_MOST_SHOWN]


@dataclass
class _Test:
    """A test under way."""

    name: CtsTest
    begin: float
    steps: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    missing: tuple[str, str] = ("", "")
    """The first condition that did not hold at the last look, which is reported for a test that runs out of time."""
    updates: list[float] = field(default_factory=list[float])
    """Seconds that each update took."""
    update_failures: int = 0
    dcs: list[str] = field(default_factory=list[str])
    """The DCs that were seen, in order."""
    fenced: tuple[str, ...] = ()


class CtsLoad:
    """The tests of a plan. Implements `tippingpoint.workloads.load.Load`; there is one worker."""

    def __init__(
        self, plan: CtsPlan, access: PacemakerAccess, prefix: str, recorder: Recorder, schedule: Schedule
    ) -> None:
        self._plan = plan
        self._workload = plan.workload
        self._lab: Path | None = plan.lab
        self._things = Things(f"{prefix}-cts")
        self._watch = Watch(access)
        self._schedule = schedule
        self._operations = Operations((*CTS_OPERATIONS, _POLL), recorder, plan.workload.timeout)
        self._view = View()
        self._fenced_before = 0
        self._node_ids: dict[str, str] = {}
        self._nodes: tuple[str, ...] = ()
        self._test: _Test | None = None
        self._left = 0
        self._passed = 0
        self._up = False
        self._changed = False
        """Whether a test may have left something to put back."""
        self._playing: asyncio.Task[None] | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._acted = 0.0
        """When the last action of a test began, such as the kill of a node."""
        self._stamp = 0
        self._addresses: dict[str, str] = {}
        """By node, as the lab reports."""
        self._killed: dict[tuple[str, str], int | None] = {}
        """By node and daemon: the pid that a test killed."""
        self.errors: Counter[tuple[str, str, str]] = self._operations.errors
        """(operation, outcome, message) of failures since the worker last took them."""
        self.lost: list[tuple[float, int, int, float]] = []
        """Always empty."""
        self.events: list[Event] = []
        """`test` for each test, `repair` for each repair, and `node-load` for each sample of the nodes' loads."""

    @property
    def gauge(self) -> Gauge:
        """Members, or tests that passed; tests that are left; operations under way."""
        members = len(self._view.sides[0].members) if self._view.sides else 0
        held = members if self._plan.load_unit == "nodes" else self._passed
        under_way = self._operations.under_way + (self._test is not None)
        return Gauge(held, self._left, under_way, self._up)

    async def open(self) -> TargetFacts:
        """Log in to the nodes, and check that the plan's lab answers, if it has one; UserError if not."""
        facts = await self._watch.open()
        if self._lab is not None:
            await ask_lab(self._lab, {"do": "cluster"})
        return facts

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Do nothing: each stage may have a cluster of its own, and begins by making what its tests need."""

    def revise(self, plan: Plan) -> None:
        """Use this plan from the next stage on."""
        assert isinstance(plan, CtsPlan)
        self._plan = plan
        self._workload = plan.workload

    async def begin_stage(self, stage: StageOrder) -> None:
        """Begin the tests of a stage."""
        await self._end_play()
        self._up = False
        tests = self._order_of(stage.number)
        self._left = len(tests)
        self._playing = asyncio.create_task(self._play(stage, tests))
        if self._sampling is None and self._lab is not None and self._workload.sample_every:
            self._sampling = asyncio.create_task(self._sample(self._lab))

    def expire_calls(self) -> None:
        """Count updates older than the workload's timeout as timed out."""
        if self._playing is not None and self._playing.done():
            self._playing.result()  # a fault of ours ends the worker, and is not waited for
        self._operations.expire()

    def stop(self) -> None:
        """Begin no further test; the present one is given up."""
        self._schedule.clear()
        for task in (self._playing, self._sampling):
            if task is not None:
                task.cancel()
        self._sampling = None

    async def drain(self, within: float) -> None:
        """Wait for updates under way; see Load."""
        await self._end_play()
        await self._operations.drain(within)

    def cut(self) -> None:
        """Wait for nothing; see Load."""
        self._operations.cut()

    async def give_back(self, within: float) -> int:
        """Start what tests stopped, and put back what they changed, so that `clean` finds a cluster."""
        if self._changed:
            with contextlib.suppress(TimeoutError, OperationFailed, UserError):
                async with asyncio.timeout(max(within, 1.0) + self._workload.idle):
                    await self._put_back()
        return 0

    async def close(self) -> None:
        """Close every connection."""
        await self._end_play()
        await self._watch.close()

    # -- a stage -----------------------------------------------------------------------------------

    def _order_of(self, stage: int) -> list[CtsTest]:
        tests: list[CtsTest] = [test for test in self._workload.tests for _ in range(self._workload.times)]
        if self._workload.order == "random":
            Random(f"{self._workload.seed} {stage}").shuffle(tests)
        return tests

    async def _play(self, stage: StageOrder, tests: list[CtsTest]) -> None:
        problem, spec = "", stage.spec
        assert isinstance(spec, CtsStage)
        try:
            await self._set_up(spec.nodes)
        except (Failed, OperationFailed, UserError, TimeoutError) as failed:
            problem = f"not begun: {failed or 'the cluster was not whole in time'}"
        self._schedule.clear()
        if self._workload.update_every and not problem:
            self._schedule.at(timing.monotonic(), self._update)
        for number, name in enumerate(tests, start=1):
            chance = Random(f"{self._workload.seed} {stage.number} {number} {name}")
            test = self._test = _Test(name, timing.monotonic())
            outcome, assertion = "failed", "whole cluster"
            scene = self._scene(chance)
            if not problem:
                outcome, assertion, said = await self._try(test, scene)
            else:
                said = problem
            self._tell(test, stage.number, outcome, assertion, said)
            self._test = None
            if not problem:
                problem = await self._make_whole(scene, test, outcome)
            self._left -= 1
        self._up = True

    async def _set_up(self, nodes: int | None) -> None:
        """Begin the stage's cluster, and make our resources in it."""
        begin = timing.monotonic()
        self._changed = True
        async with asyncio.timeout(self._workload.timeout):
            if nodes is not None:
                await self._ask({"do": "resize", "nodes": nodes})
                self._watch.hold_all()
                # Those that boot: a moment after the request some are not running yet.
                self._nodes = tuple(sorted((await self._ask({"do": "cluster"}))["addresses"], key=_natural))
                scene = self._scene(Random(0))
                formed = await self._until(scene.whole()[:3], timing.monotonic() + self._workload.timeout)
                self._operations.count("form", "ok", begin, begin, formed)
            status = await self._first_answer()
            members = {name: node.id for name, node in status.nodes.items() if not node.remote}
            self._nodes, self._node_ids = tuple(sorted(members, key=_natural)), members
            await self._watch_call("cib_create", "status", TICKETS, SYNC)
            await self._things.make(self._watch.call, self._nodes)
            await self._until(
                self._scene(Random(0)).whole(), timing.monotonic() + self._workload.timeout, settled=True
            )

    async def _first_answer(self) -> ClusterStatus:
        while True:
            status = (await self._look()).status
            if status is not None:
                return status
            await asyncio.sleep(LOOK_EVERY)

    def _scene(self, chance: Random) -> Scene:
        own = self._things.own(self._nodes)
        return Scene(
            nodes=self._nodes,
            resources=self._things.resources(self._nodes),
            own=own,
            spare=self._things.spare,
            chance=chance,
            lab=self._lab is not None,
        )

    # -- a test ------------------------------------------------------------------------------------

    async def _try(self, test: _Test, scene: Scene) -> tuple[str, str, str]:
        """Play a test; returns its outcome, the assertion that failed, and what was missing."""
        try:
            self._fenced_before = await self._count_fenced()
            async with asyncio.timeout(self._workload.timeout):
                await self._carry_out_all(steps_of(test.name, scene), test)
            await self._look()
            test.fenced = self._view.fenced
            unexpected = sorted(set(test.fenced) - scene.may_fence)
            if unexpected:
                return "failed", "no fencing", f"{' '.join(unexpected)} was fenced; expected none"
        except Skipped as why:
            return "skipped", "", str(why)
        except Failed as failed:
            return "failed", failed.assertion, failed.problem
        except TimeoutError:
            assertion, missing = test.missing
            return "failed", assertion or "in time", f"{missing or 'no answer'} ({self._workload.timeout:g}s)"
        except (OperationFailed, UserError) as problem:
            return "failed", test.steps[-1][0] if test.steps else "lab", str(problem)[:_MOST_SHOWN]
        finally:
            test.fenced = test.fenced or self._view.fenced
        return "passed", "", ""

    async def _carry_out_all(self, steps: Steps, test: _Test | None) -> None:
        view: View | None = None
        with contextlib.suppress(StopIteration):
            while True:
                step = next(steps) if view is None else steps.send(view)
                begin = timing.monotonic()
                test_steps: list[tuple[str, float]] = [] if test is None else test.steps
                test_steps.append((step.name, 0.0))
                end: float | None = None
                try:
                    end = await self._carry_out(step)
                finally:
                    test_steps[-1] = (step.name, (end or timing.monotonic()) - begin)
                view = self._view

    async def _carry_out(self, step: Step) -> float:
        """Carry out a step; returns the moment of its end."""
        if isinstance(step, Ask | Change):
            self._acted = timing.monotonic()
        match step:
            case Ask():
                await asyncio.gather(*(self._ask(request) for request in step.requests))
            case Change():
                await self._change(step)
                await self._look()
            case Respawned():
                await self._respawned(step)
            case Await():
                return await self._await(step)
        return timing.monotonic()

    async def _await(self, step: Await) -> float:
        begin = timing.monotonic()
        limit = self._workload.idle if step.within == "idle" else self._workload.timeout
        settled = step.timed in ("idle", "recover")
        since = begin if step.timed == "idle" else self._acted
        try:
            end = await self._until(step.conditions, begin + limit, settled=settled)
        except (Failed, asyncio.CancelledError):
            if step.timed:
                self._operations.count(step.timed, "timeout", since, since, timing.monotonic())
            raise
        if step.timed:
            self._operations.count(step.timed, "ok", since, since, end)
        return end

    async def _until(
        self, conditions: tuple[Condition, ...], deadline: float, *, settled: bool = False
    ) -> float:
        """Look until all conditions hold, with `settled` for SETTLED seconds; returns when they began to hold. Raises
        Failed after the deadline."""
        since: float | None = None
        while True:
            begin = timing.monotonic()
            missing = unmet(conditions, await self._look())
            now = timing.monotonic()
            if self._test is not None:
                self._test.missing = missing or ("", "")
            if missing is None:
                since = now if since is None else since
                if not settled or now - since >= SETTLED:
                    return since
            else:
                since = None
                if now > deadline:
                    raise Failed(*missing)
            await asyncio.sleep(max(LOOK_EVERY, now - begin))

    async def _look(self) -> View:
        begin = timing.monotonic()
        sides = await self._watch.look(f"{self._things.prefix}-")
        end = timing.monotonic()
        self._operations.count(_POLL, "ok", begin, begin, end)
        running, fenced = frozenset[str](sides[0].members if sides else ()), tuple[str, ...]()
        if self._lab is not None:
            answer = await ask_lab(self._lab, {"do": "cluster"})
            running, fenced = frozenset(answer["running"]), tuple(answer["fenced"][self._fenced_before :])
            self._addresses = answer["addresses"]
        self._view = View(sides, running, fenced)
        if self._test is not None and len(sides) == 1 and (dc := sides[0].status.dc):
            dcs = self._test.dcs
            if not dcs or dcs[-1] != dc:
                dcs.append(dc)
        return self._view

    async def _change(self, change: Change) -> None:
        things, call = self._things, self._watch.call
        match change.make, change.arguments:
            case "standby", (node,):
                await things.standby(call, node, self._node_ids[node])
            case "unstandby", (node,):
                await things.unstandby(call, self._node_ids[node])
            case "set_property", (name, value):
                await things.set_property(call, name, value)
            case "restore_properties", _:
                await things.restore_properties(call)
            case "unmanage" | "manage", _:
                await things.manage(call, self._nodes, change.make == "manage")
            case "forget", _:
                await things.forget(call)
            case "add", (id,):
                await things.add(call, id)
            case "remove", (id,):
                await things.remove(call, id)
            case _:
                raise AssertionError(change)

    async def _respawned(self, step: Respawned) -> None:
        request = {"do": "daemon", "member": step.node, "daemon": step.daemon}
        killed = self._killed.pop((step.node, step.daemon), None)
        while True:
            pid = (await self._ask(request)).get("pid")
            if pid is not None and pid != killed:
                return
            await asyncio.sleep(LOOK_EVERY)

    # -- between tests -----------------------------------------------------------------------------

    async def _make_whole(self, scene: Scene, test: _Test, outcome: str) -> str:
        """Start what is off, and after a failure put everything back; returns why the cluster is not whole."""
        begin = timing.monotonic()
        try:
            if outcome != "failed" and unmet(scene.whole(), await self._look()) is None:
                return ""
            did = "started the stopped nodes"
            try:
                async with asyncio.timeout(self._workload.timeout):
                    if outcome == "failed":
                        did = "started the stopped nodes, and restored changed settings"
                        await self._put_back()
                        await self._things.manage(self._watch.call, self._nodes, True)
                    await self._begin_again(scene, timed="form" if not self._view.running else "")
            except (TimeoutError, Failed, OperationFailed, UserError):
                if self._lab is None:
                    raise
                did = "killed and started every node"
                async with asyncio.timeout(self._workload.timeout):
                    await asyncio.gather(
                        *(self._ask({"do": "kill", "member": name}) for name in await self._running())
                    )
                    await self._begin_again(scene, timed="")
        except (TimeoutError, Failed, OperationFailed, UserError) as problem:
            said = f"the cluster was not whole after {test.name}: {problem or 'no answer in time'}"
            self._told_repair(begin, test, "gave up", said)
            return said
        if outcome == "failed" or did.startswith("killed"):
            self._told_repair(begin, test, did, "")
        return ""

    def _told_repair(self, begin: float, test: _Test, did: str, problem: str) -> None:
        seconds = round(timing.monotonic() - begin, 3)
        self.events.append(
            (begin, "repair", {"test": test.name, "did": did, "seconds": seconds, "problem": problem})
        )

    async def _begin_again(self, scene: Scene, timed: str) -> None:
        if self._lab is not None:
            await self._carry_out_all(start_all(scene, timed), None)
        else:
            await self._until(scene.whole(), timing.monotonic() + self._workload.timeout, settled=True)

    async def _put_back(self) -> None:
        """Heal, start every node, and undo what tests change; needs a quorum, which it waits for."""
        if self._lab is not None:
            await self._ask({"do": "heal", "member": self._nodes[0] if self._nodes else "node1"})
            await asyncio.gather(*(self._ask({"do": "boot", "member": name}) for name in self._nodes))
        await self._watch.await_quorum()
        call = self._watch.call
        await self._things.restore_properties(call)
        for id in self._node_ids.values():
            await self._things.unstandby(call, id)
        await self._things.remove(call, self._things.spare)

    # -- what goes on beside tests -------------------------------------------------------------------

    def _update(self, intended: float) -> None:
        every = self._workload.update_every
        self._schedule.at(max(intended + every, timing.monotonic()), self._update)
        connection = self._watch.one_with_quorum()
        if connection is None:
            return  # a test has stopped the cluster: there is nobody to ask
        self._stamp += 1
        made = TICKET.create(self._things.ticket, str(self._stamp))
        call = connection.call("cib_modify", TICKET.section, made, SYNC | CAN_CREATE)
        self._operations.begin("update", _checked(call), intended, intended, self._updated)

    def _updated(self, ended: Ended) -> None:
        if self._test is None:
            return
        if ended.outcome == "ok":
            self._test.updates.append(ended.moment - ended.intended)
        else:
            self._test.update_failures += 1

    async def _sample(self, lab: Path) -> None:
        while True:
            try:
                answer = await ask_lab(lab, {"do": "loads"})
            except UserError:
                return  # a lab that does not report loads
            self.events.append((timing.monotonic(), "node-load", {"loads": answer["loads"]}))
            await asyncio.sleep(self._workload.sample_every)

    def _tell(self, test: _Test, stage: int, outcome: str, assertion: str, problem: str) -> None:
        end = timing.monotonic()
        if outcome != "skipped":
            for operation in ("test", test.name):
                recorded = "ok" if outcome == "passed" else "error"
                message = f"{test.name}: {assertion}: {problem}" if operation == "test" else ""
                self._operations.count(operation, recorded, test.begin, test.begin, end, message)
        self._passed += outcome == "passed"
        felt: dict[str, Any] = {
            "updates": len(test.updates),
            "longest_update": round(max(test.updates), 6) if test.updates else None,
            "failed_updates": test.update_failures,
            "dcs": test.dcs,
            "fenced": list(test.fenced),
            "updates_apart": self._view.updates_apart,
        }
        fields: dict[str, Any] = {
            "test": test.name,
            "stage": stage,
            "nodes": len(self._nodes),
            "seconds": round(end - test.begin, 3),
            "outcome": outcome,
            "assertion": assertion,
            "problem": problem,
            "steps": [[name, round(seconds, 3)] for name, seconds in test.steps],
            "felt": felt,
        }
        self.events.append((test.begin, "test", fields))

    # -- the lab -----------------------------------------------------------------------------------

    async def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if self._lab is None:
            raise OperationFailed("there is no lab")
        if request["do"] == "kill-daemon":
            asked = {**request, "do": "daemon"}
            self._killed[request["member"], request["daemon"]] = (await ask_lab(self._lab, asked)).get("pid")
        if (address := self._addresses.get(request.get("member", ""))) is not None:
            if request["do"] == "shut-down":
                self._watch.let_go(address)
            elif request["do"] == "boot":
                self._watch.hold(address)
        return await ask_lab(self._lab, request)

    async def _running(self) -> list[str]:
        return sorted((await self._ask({"do": "cluster"}))["running"], key=_natural)

    async def _count_fenced(self) -> int:
        return len((await self._ask({"do": "cluster"}))["fenced"]) if self._lab is not None else 0

    async def _watch_call(self, operation: str, section: str, data: str, options: int) -> None:
        """Make a call whose thing may exist already."""
        with contextlib.suppress(OperationFailed):
            await self._watch.call(operation, section, data, options)

    async def _end_play(self) -> None:
        if self._playing is not None:
            playing, self._playing = self._playing, None
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)


def _natural(name: str) -> tuple[str, int]:
    """The order of node2 and node10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def _checked(call: Future[Answer]) -> Future[None]:
    """A future for the call, which fails if the cluster refuses it."""
    checked: Future[None] = call.get_loop().create_future()

    def answered(call: Future[Answer]) -> None:
        if checked.done():
            return
        if call.cancelled():
            checked.cancel()
        elif (problem := call.exception()) is not None:
            checked.set_exception(problem)
        elif (code := call.result().code) != 0:
            checked.set_exception(OperationFailed(in_plain_words(code)))
        else:
            checked.set_result(None)

    def cancelled(checked: Future[None]) -> None:
        if checked.cancelled():
            call.cancel()

    call.add_done_callback(answered)
    checked.add_done_callback(cancelled)
    return checked
