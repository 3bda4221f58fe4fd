"""Units of a generator that run a plan together: real agents, and in place of Juju a model that carries databags.

A hook of a unit is what the charm's is (tippingpoint_charm.exchange): it hands the run to the agent, publishes what
that answers, and on the leader conducts the run. Here hooks may be late, and run twice, an agent may be killed between
any two steps of it, another unit may become the leader, and each machine has its own clock.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tests.simulation.lives import Life, Machine, context_of
from tests.simulation.virtual_time import VirtualLoop
from tests.simulation.worker_tasks import WorkerTasks
from tippingpoint.agent.service import Agent
from tippingpoint.conduct.director import conduct, judge_request, lose, lost_with_remains, to_judge
from tippingpoint.conduct.run_state import SharedRun, UnitWord, is_news, read_shared, read_word
from tippingpoint.conduct.search_messages import NextLoad, ProbeReport, read_report
from tippingpoint.errors import UserError
from tippingpoint.util import timing

_HOOK_WAITS = 3.0
"""Seconds that a hook waits for an answer of its agent, as in the charm."""
_LAST_WORD_WITHIN = 10.0
_LOOK_EVERY = 0.5
"""Seconds until systemd, which watches it, sees that an agent wakes its charm."""


class AgentAway(Exception):
    """Raised when the agent does not answer."""


class Model:
    """What Juju keeps of the units: their databags, and who leads."""

    def __init__(self) -> None:
        self.run: str | None = None
        self.published: list[SharedRun] = []
        """Every state of the run that a leader published, in order."""
        self.bags: dict[str, dict[str, str]] = {}
        self.units: dict[str, Unit] = {}
        self.leader = ""

    def write_run(self, by: str, run: SharedRun) -> bool:
        """Publish a run to all units; False if another unit leads."""
        if by != self.leader:
            return False
        self.run = run.model_dump_json(exclude_none=True)
        self.published.append(run)
        self.changed()
        return True

    def say(self, unit: str, content: dict[str, str]) -> None:
        """Publish what a unit says."""
        bag = self.bags.setdefault(unit, {})
        if any(bag.get(name, "") != text for name, text in content.items()):
            bag.update(content)
            self.changed(unit)

    def lead(self, unit: str) -> None:
        """Have a unit lead from now on."""
        self.leader = unit
        self.changed()

    def changed(self, but: str = "") -> None:
        """Have hooks run on all units but one."""
        for name, unit in self.units.items():
            if name != but:
                unit.due.set()


class Unit:
    """One unit: its machine, its agent, and its charm's hooks."""

    def __init__(
        self,
        name: str,
        model: Model,
        directory: Path,
        target: dict[str, Any],
        late: Callable[[], float],
        clock_ahead: float,
    ) -> None:
        """`late` draws how many seconds the next hook is late; `target` is how the target is reached."""
        self.name = name
        self.machine = Machine(clock_ahead)
        self.due = asyncio.Event()
        self.state = directory / "state"
        self.workers = WorkerTasks()
        self._wake_file = directory / "wake"
        self._model = model
        self._target = target
        self._late = late
        self._heard: dict[str, UnitWord | None] = {}
        self._agent: Agent | None = None
        self._context = contextvars.copy_context()
        self._life: Life | None = None
        self.state.mkdir(parents=True)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        self._loop = loop
        context = context_of(Life(f"charm of {name}"), self.machine)
        model.units[name] = self
        model.bags[name] = {}
        self._tasks = [loop.start(work, context) for work in (self._hooks(), self._see_wakes())]

    # -- its agent -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the agent, as systemd does: one that runs goes on, and what is left of a dead one is killed first."""
        if self._life is not None and not self._life.dead:
            return
        self._kill_workers()
        self._life = Life(self.name)
        self._context = context_of(self._life, self.machine)
        self._agent = self._context.run(Agent, self.state, self._wake_file, self.name, self.workers.start)
        await self._loop.create_task(self._agent.open(), context=self._context)

    def kill(self) -> None:
        """Kill the agent, and not its workers: they see that nobody is there any more."""
        if self._life is not None and not self._life.dead:
            self._loop.end(self._life)
            for worker in self.workers.started:
                worker.stdin.close()

    def reboot(self) -> None:
        """Kill everything on the machine."""
        self.kill()
        self._kill_workers()

    def _kill_workers(self) -> None:
        for worker in self.workers.started:
            if worker.returncode is None:
                worker.kill()

    async def close(self) -> None:
        """End the agent in order."""
        for task in self._tasks:
            task.cancel()
        if self._agent is not None and self._life is not None and not self._life.dead:
            await self._loop.create_task(self._agent.close(), context=self._context)

    async def ask(self, do: str, within: float = _HOOK_WAITS, **fields: Any) -> dict[str, Any]:
        """Ask the agent; raises AgentAway, or what it refuses with."""
        if self._agent is None or self._life is None or self._life.dead:
            raise AgentAway
        request = json.loads(json.dumps({"do": do, **fields}))
        answer = self._loop.create_task(self._agent.answer(request), context=self._context)
        await asyncio.wait([answer], timeout=within)
        if not answer.done():
            raise AgentAway
        return json.loads(json.dumps(answer.result()))  # type: ignore[no-any-return]

    # -- its charm -----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Remove the unit, as `juju remove-unit` does."""
        for task in self._tasks:
            task.cancel()
        model, run = self._model, read_shared(self._model.run)
        with suppress(AgentAway, UserError):
            answer = await self.ask("leave", within=70.0, seconds=_LAST_WORD_WITHIN)
            word, result = answer.get("word"), answer.get("result")
            if word is not None:
                model.say(
                    self.name, {"word": json.dumps(word), "result": json.dumps(result) if result else ""}
                )
        if run is not None and model.leader == self.name:
            model.write_run(self.name, lose(run, self.name))
        await self._keep_last_word()
        del model.units[self.name]
        if model.leader == self.name and model.units:
            model.leader = next(iter(model.units))
        bag = model.bags.pop(self.name)
        for unit in model.units.values():
            unit.heard_last(self.name, read_word(bag.get("word")))
        model.changed()

    async def _keep_last_word(self) -> None:
        run = read_shared(self._model.run)
        bag = self._model.bags[self.name]
        word, result = read_word(bag.get("word")), json.loads(bag.get("result") or "null")
        if run is None or word is None or not word.leaves or word.run != run.id:
            return
        digests = {self.name: result["digest"]} if result and result["run"] == run.id else {}
        for unit in list(self._model.units.values()):
            if unit is not self:
                with suppress(AgentAway, UserError):
                    await unit.ask(
                        "keep",
                        shared=run.model_dump(mode="json", exclude_none=True),
                        words={self.name: word.model_dump(mode="json", exclude_none=True)},
                        digests=digests,
                    )

    def heard_last(self, unit: str, word: UnitWord | None) -> None:
        """Remember the last word of a unit that left."""
        self._heard[unit] = word

    async def _see_wakes(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            with suppress(FileNotFoundError):
                if self._wake_file.stat().st_mtime_ns:
                    os.utime(
                        self._wake_file, (0, 0)
                    )  # the kernel's own clock may stand still between two wakes
                    self.due.set()

    async def _hooks(self) -> None:
        """Run a hook after something has changed, one after the other."""
        while True:
            await self.due.wait()
            self.due.clear()
            await asyncio.sleep(self._late())
            await self._hook()

    async def _hook(self) -> None:
        run = read_shared(self._model.run)
        word, report = await self._hand_over(run)
        if run is not None and self._model.leader == self.name:
            await self._conduct(run, word, report)

    async def _hand_over(self, run: SharedRun | None) -> tuple[UnitWord | None, Any]:
        leads = self._model.leader == self.name
        try:
            await self.ask(
                "orders",
                run=None if run is None else run.model_dump(mode="json", exclude_none=True),
                unit=self.name,
                target={} if run is None else self._target,
                leads=leads,
                reference="" if run is None else self._reference(run),
                address="127.0.0.1",
                lost=self._lost(run),
            )
            answer = await self.ask("word")
        except AgentAway:
            return None, None
        word = None if answer["word"] is None else UnitWord.model_validate(answer["word"])
        content = {
            "result": "" if answer["result"] is None else json.dumps(answer["result"]),
            "probe": "" if answer["report"] is None else json.dumps(answer["report"]),
        }
        said = read_word(self._model.bags[self.name].get("word"))
        if word is None:
            content["word"] = ""
        elif said is None or is_news(word, said, len(self._model.units)):
            content["word"] = word.model_dump_json(exclude_none=True)
        self._model.say(self.name, content)
        return word, answer["report"]

    def words(self) -> dict[str, UnitWord | None]:
        """Return what the leader knows of all units: also the last words of those that left."""
        there = {name: read_word(bag.get("word")) for name, bag in self._model.bags.items()}
        if self._model.leader == self.name:
            self._heard = {
                **{name: word for name, word in self._heard.items() if word and word.has_ended},
                **there,
            }
            return self._heard
        return there

    def _reference(self, run: SharedRun) -> str:
        for unit in run.units:
            if unit == self.name:
                return ""
            if unit not in self._model.units or unit in run.missing:
                continue
            word = read_word(self._model.bags[unit].get("word"))
            if word is None or word.run != run.id:
                return ""
            if word.clock:
                return word.clock
        return ""

    def _lost(self, run: SharedRun | None) -> list[str]:
        if run is None or self._model.leader != self.name:
            return []
        return lost_with_remains(run, self.words(), self.name)

    async def _conduct(self, run: SharedRun, word: UnitWord | None, report: Any) -> None:
        words = self.words()
        words[self.name] = word or words.get(self.name)
        now = timing.wall() - ((word.offset or 0.0) if word is not None else 0.0)
        fresh = conduct(run, words, now)
        after = to_judge(fresh, words)
        following = None if after is None else await self._following(fresh, after, words, report)
        if following is not None:
            fresh = conduct(fresh, words, now, following)
        if fresh != run and self._model.write_run(self.name, fresh):
            await self._hand_over(fresh)

    async def _following(
        self, run: SharedRun, after: int, words: dict[str, UnitWord | None], report: Any
    ) -> NextLoad | None:
        sharing = run.turns[-1].sharing(run.units) if run.turns else []
        found = {unit: read_report(self._model.bags.get(unit, {}).get("probe")) for unit in sharing}
        reports = {unit: each for unit, each in found.items() if each is not None}
        if report is not None:
            reports[self.name] = ProbeReport.model_validate(report)
        try:
            answer = await self.ask("judge", **judge_request(run, after, words, reports))
            return None if answer.get("next") is None else NextLoad.model_validate(answer["next"])
        except AgentAway:
            return None
        except (UserError, ValidationError) as problem:
            return NextLoad(after=after, stop=f"the agent of {self.name} cannot conduct: {problem}"[:1000])
