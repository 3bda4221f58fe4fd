"""Units that play the parts of one run together, in one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

from tests.functional.program import WITHIN_S
from tippingpoint.conduct.director import begin_run, conduct, to_judge
from tippingpoint.conduct.next_load import next_load
from tippingpoint.conduct.run_state import SharedRun, UnitWord, read_shared
from tippingpoint.conduct.search_messages import ClearHold, NextLoad, ProbeReport, read_report
from tippingpoint.digest.unit_reports import FromDigests
from tippingpoint.plan.read import Plan
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.headline import Headline
from tippingpoint.play.messages import Tick
from tippingpoint.play.runner import Runner
from tippingpoint.play.watcher import StageProgress
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult


class Watch(Headline):
    """Keeps stage, stages, size and what was held of all that it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[int, int | None, int, int]] = set()

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        super().progress(progress, worker, tick)
        summary = self.summary
        assert summary is not None
        self.seen.add((summary.stage, summary.stages, summary.size, summary.held))


class Troupe:
    """Units whose leader hears each word at once, and is heard at once."""

    def __init__(self, plan: Plan, units: int, out: Path) -> None:
        self._plan = plan
        self._out = out
        self._followers: dict[str, Conductor] = {}
        self._reports: dict[str, ProbeReport] = {}
        self._changed = asyncio.Event()
        self.run = begin_run(plan, [f"load-claimer/{number}" for number in range(units)], time.time())
        self._words: dict[str, UnitWord | None] = dict.fromkeys(self.run.units)
        self.runners: list[Runner] = []
        self.watches: list[Watch] = []
        self.waits_for = 0
        """So many units are to be there before a hold is named."""

    def enter(self, plan: Plan | None = None) -> asyncio.Task[Path]:
        """The next unit begins its part; by a plan of its own where its target is another one."""
        number = len(self.runners)
        unit = f"load-claimer/{number}"

        def say(phase: Literal["ready", "up"], turn: int) -> None:
            self._words[unit] = UnitWord(run=self.run.id, phase=phase, turn=turn, t=time.time())
            if sum(word is not None for word in self._words.values()) >= self.waits_for or not self.run.turns:
                self._conduct()

        def report(measured: ProbeReport) -> None:
            said = self._words[unit]
            assert said is not None
            self._words[unit] = said.model_copy(update={"held": measured.turn, "t": time.time()})
            self._reports[unit] = measured
            self._conduct()

        def clear(shown: ClearHold) -> None:
            said = self._words[unit]
            assert said is not None
            self._words[unit] = said.model_copy(update={"clear": shown, "t": time.time()})
            self._conduct()

        follower = self._followers[unit] = Conductor(unit, self.run, say, report, clear)
        self.watches.append(Watch())
        self.runners.append(
            Runner(
                plan or self._plan,
                self._out,
                self.watches[-1],
                run_id=f"{self.run.id}.{number}",
                conductor=follower,
                share=follower.share,
                unit=unit,
            )
        )
        return asyncio.create_task(self.runners[-1].run())

    def _conduct(self) -> None:
        """What the leader does, who knows nothing but the run, the words and the reports, each as a databag has it."""
        shared = read_shared(self.run.model_dump_json(exclude_none=True))
        assert shared is not None, "no unit can read the run"
        run = conduct(shared, self._words, time.time())
        if to_judge(run, self._words) is not None:
            words = {unit: word for unit, word in self._words.items() if word is not None}
            reports = {
                unit: read
                for unit, report in self._reports.items()
                if (read := read_report(report.model_dump_json())) is not None
            }
            following = next_load(FromDigests(run, words, reports, self._out)).shortened()
            told = NextLoad.model_validate_json(following.model_dump_json(exclude_none=True))
            run = conduct(run, self._words, time.time(), told)
        self.tell(run)

    def lose(self, number: int) -> None:
        """Nothing is heard of a unit any more, and it is not in the relation."""
        del self._words[f"load-claimer/{number}"]
        del self._followers[f"load-claimer/{number}"]
        self._conduct()

    def tell(self, run: SharedRun) -> None:
        """All units see the run as it is now."""
        self.run = run
        for follower in self._followers.values():
            follower.see(run, 0.0)
        self._changed.set()

    async def until(self, condition: Callable[[SharedRun], object]) -> None:
        """Wait until the run is so; it must not be over by then."""
        while not condition(self.run):
            assert not self.run.over, self.run
            self._changed.clear()
            await self._changed.wait()

    async def until_held(self, turn: int) -> None:
        """Wait until the hold of a turn has begun."""
        await self.until(lambda run: any(each.number == turn and each.hold for each in run.turns))
        hold = next(each.hold for each in self.run.turns if each.number == turn)
        assert hold is not None
        await asyncio.sleep(hold - time.time())


def play(scene: Callable[[], Coroutine[Any, Any, None]], within: float = WITHIN_S) -> None:
    asyncio.run(asyncio.wait_for(scene(), within))


def stages_of(runs: list[RunData], number: int) -> list[StageResult]:
    """A turn as the units have it that had a share in it."""
    return [stage for run in runs for stage in run.stages if stage.number == number]
