"""Workers of one run in this process, with what they recorded, for tests of a workload's load."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from tippingpoint.rundir.recorder import Recorder
from tippingpoint.workloads.load import Load, PrepareOrder, StageOrder, untold
from tippingpoint.workloads.schedule import Schedule


class Workers:
    """The loads of some workers, which follow a plan's stages as they are told."""

    def __init__(self, plan: Any, workers: int, load_of: Callable[[str, Recorder, Schedule], Load]) -> None:
        """`load_of` makes the load of the worker with a name, what it records to, and its schedule."""
        self.plan = plan
        self.recorder = Recorder()
        self.schedules = [Schedule(asyncio.get_running_loop()) for _ in range(workers)]
        self.loads: list[Any] = [
            load_of(str(number), self.recorder, schedule) for number, schedule in enumerate(self.schedules)
        ]
        self.errors: Counter[tuple[str, str]] = Counter()
        """(operation, outcome) of what the loads noted."""
        self.messages: set[str] = set()
        self._beaten = asyncio.Event()
        self._beat = asyncio.get_running_loop().create_task(self._beats())

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            for load in self.loads:
                load.expire_calls()
                for (operation, outcome, message), count in load.errors.items():
                    self.errors[operation, outcome] += count
                    self.messages.add(message)
                load.errors.clear()
            self._beats_once()
            self._beaten.set()

    def _beats_once(self) -> None:
        """Do what a test wants to be done a few times a second: nothing here."""

    async def prepare(self, *, fresh: bool) -> None:
        async with asyncio.TaskGroup() as together:
            for index, load in enumerate(self.loads):
                order = PrepareOrder(stages=self.plan.stages, share=(index, len(self.loads)), fresh=fresh)
                together.create_task(load.prepare(order, untold))

    async def begin(self, number: int, kind: str = "ramp") -> None:
        stage = self.plan.stages[number - 1]
        for index, load in enumerate(self.loads):
            order = {
                "number": number,
                "size": stage.size,
                "spec": stage,
                "kind": kind,
                "over": stage.over,
                "share": (index, len(self.loads)),
                "listed": number,
            }
            await load.begin_stage(StageOrder.model_validate(order))

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._beaten.clear()
            await self._beaten.wait()

    async def up(self) -> None:
        """Wait until every worker says that its share is there."""
        await self.until(lambda: all(load.gauge.up for load in self.loads))

    async def run(self, number: int, kind: str = "ramp") -> None:
        """Begin a stage, and wait until it is up."""
        await self.begin(number, kind)
        await self.up()

    async def end(self) -> None:
        for load in self.loads:
            load.stop()
            await load.drain(1.0)
            assert await load.give_back(1.0) == 0

    async def close(self) -> None:
        self._beat.cancel()
        for load, schedule in zip(self.loads, self.schedules, strict=True):
            await load.close()
            schedule.close()
