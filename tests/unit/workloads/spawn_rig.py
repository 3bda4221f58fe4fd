"""The spawn workload's workers on a target in memory."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.workloads.memory_target import Box, Cluster, MemoryTarget
from tippingpoint.plan.read import validate_plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.recorder import Recorded, Recorder
from tippingpoint.rundir.tags import DELAYED, FREED
from tippingpoint.workloads.load import PrepareOrder, StageOrder
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.target import Item, SpawnFailed, Trouble
from tippingpoint.workloads.spawn.workload import SpawnLoad

POLL = 0.01
"""Seconds between polls: far less than a plan may ask for."""


def plan_of(
    stages: list[tuple[int, int]],
    placement: str = "lxd",
    target: dict[str, Any] | None = None,
    **workload: Any,
) -> SpawnPlan:
    """A plan whose stages have so many groups of so many things; it polls faster than plans may."""
    paces = {"rate", "concurrency", "batch"} & workload.keys()
    workload = {"until": "reachable", "observe_every": 0, **({} if paces else {"concurrency": 4}), **workload}
    plan = validate_plan(
        {
            "name": "test",
            "target": target or {"kind": "lxd", "placement": placement},
            "workload": {"kind": "spawn", **workload},
            "stages": [{"groups": groups, "instances": instances} for groups, instances in stages],
        }
    )
    assert isinstance(plan, SpawnPlan)
    return plan.model_copy(
        update={
            "workload": plan.workload.model_copy(
                update={"poll_every": POLL, "timeout": workload.get("timeout", 60.0)}
            )
        }
    )


class Rig:
    """All workers of a run."""

    def __init__(self, plan: SpawnPlan, cluster: Cluster | None = None, workers: int = 1) -> None:
        self.cluster = cluster or Cluster()
        self.recorder = Recorder()
        self.schedules = [Schedule(asyncio.get_running_loop()) for _ in range(workers)]
        self.targets = [MemoryTarget(self.cluster, "release" in plan.target.called) for _ in range(workers)]
        self.loads = [
            SpawnLoad(plan, target, self.recorder, schedule)
            for target, schedule in zip(self.targets, self.schedules, strict=True)
        ]
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._plan = plan
        self._beat = asyncio.create_task(self._beats())

    async def _beats(self) -> None:
        while True:
            for load in self.loads:
                load.expire_calls()
            await asyncio.sleep(0.01)

    async def prepare(self) -> None:
        for index, load in enumerate(self.loads):
            share = index, len(self.loads)
            await load.prepare(PrepareOrder(stages=self._plan.stages, share=share, fresh=True), _untold)

    def revise(self, plan: SpawnPlan) -> None:
        """Take another plan, or another part of it, from the next stage on."""
        self._plan = plan
        for load in self.loads:
            load.revise(plan)

    async def begin(self, listed: int = 1) -> None:
        """Begin a stage on all workers."""
        asked = self._plan.stages[listed - 1]
        for index, load in enumerate(self.loads):
            order = StageOrder(
                number=listed,
                size=asked.size,
                spec=asked,
                kind="ramp",
                over=0,
                share=(index, len(self.loads)),
                listed=listed,
            )
            await load.begin_stage(order)

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        for _ in range(1500):
            if condition():
                return
            await asyncio.sleep(0.005)
        pytest.fail(
            f"it never came to be {what}: {[load.gauge for load in self.loads]} "
            f"{self.told()} {self.loads[0].errors} {self.cluster.boxes}"
        )

    async def up(self) -> None:
        """Wait until all workers say that the stage is there."""
        await self.until(lambda: all(load.gauge.up for load in self.loads), "up")

    async def polled(self, times: int = 3) -> None:
        """Wait until the members were listed so often more."""
        before = self.cluster.count("members")
        await self.until(lambda: self.cluster.count("members") >= before + times * len(self.loads))

    async def stage(self, listed: int = 1) -> None:
        """Begin a stage and wait until it is there."""
        await self.begin(listed)
        await self.up()

    @property
    def held(self) -> int:
        return sum(load.gauge.held for load in self.loads)

    def told(self, name: str | None = None) -> list[Any]:
        """The events so far: all, or the fields of those of a name."""
        for load in self.loads:
            self.events += [(event, fields) for _, event, fields in load.events]
            load.events.clear()
        if name is None:
            return self.events
        return [fields for event, fields in self.events if event == name]

    def counted(self, name: str) -> int:
        """The sum of the counts of events of a name."""
        return sum(fields["count"] for fields in self.told(name))

    def statuses(self, member: str) -> list[str]:
        return [fields["status"] for fields in self.told("member") if fields["member"] == member]

    def recorded(self) -> dict[str, Recorded]:
        """What was recorded since last asked, but for polls and the generator's own."""
        return {
            name: found
            for name, found in self.recorder.drain().items()
            if not name.startswith(("poll", "generator"))
        }

    def counts(self) -> Counter[str]:
        return Counter(
            {
                name: found.total
                for name, found in self.recorded().items()
                if not name.endswith((".service", DELAYED, FREED))
            }
        )

    async def close(self, within: float = 0.2) -> None:
        for load in self.loads:
            load.stop()
        for load in self.loads:
            await load.drain(within)
            assert await load.give_back(within) == 0
            await load.close()
            assert load.gauge.in_flight == 0
        self._beat.cancel()
        for schedule in self.schedules:
            schedule.close()


def _untold(what: str, done: int, goal: int) -> None:
    pass


def failing(
    times: int, operation: str, kind: Trouble = "locked", item: Item | None = None
) -> Callable[..., Any]:
    """Fails so many calls of an operation (on a thing) and no more."""
    left = [times]

    def fail(called: str, on: Item | None) -> SpawnFailed | None:
        if called != operation or (item is not None and on != item) or not left[0]:
            return None
        left[0] -= 1
        return SpawnFailed(f"{kind} it is", kind)

    return fail


def spoiling(cluster: Cluster, item: Item) -> Callable[..., Any]:
    """Fails the first start of a thing, which will never run then."""
    spoilt: list[Item] = []

    def fail(called: str, on: Item | None) -> SpawnFailed | None:
        if called != "start" or on != item or (spoilt and item not in cluster.failed):
            return None
        cluster.failed.add(item)
        spoilt.append(item)
        return SpawnFailed("it will never run")

    return fail


def boxes(cluster: Cluster, groups: int, instances: int, running: bool = True, member: str = "m1") -> None:
    """Things that are there already."""
    for group in range(groups):
        for number in range(instances):
            cluster.boxes[Item(group, number)] = Box(member, running, running)


def items(groups: int, instances: int) -> set[Item]:
    return {Item(group, number) for group in range(groups) for number in range(instances)}


def now() -> float:
    return time.monotonic()
