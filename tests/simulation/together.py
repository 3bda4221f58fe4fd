"""Runs of many units, drawn from a seed and played in virtual time: agents are killed and come back, leaders change,
units join and leave, hooks are late, and clocks are wrong."""

from __future__ import annotations

import asyncio
import contextvars
import json
import random
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.simulation.draws import LARGE, NAME, SMALL, DrawnService, Sizes, draw
from tests.simulation.runs import Ended, hold_foreign, look_around, simulate
from tests.simulation.simulated.service import Service
from tests.simulation.units import AgentAway, Model, Unit
from tests.simulation.virtual_time import VirtualLoop
from tippingpoint.conduct.director import begin_run, stop
from tippingpoint.conduct.run_state import SharedRun, read_shared
from tippingpoint.errors import UserError
from tippingpoint.plan.read import validate_plan
from tippingpoint.util import timing

APPLICATION = "load-claimer"
_LONGEST = 8 * 3600.0
"""Seconds of virtual time in which every run has to be over."""
_LOOK_EVERY = 5.0
_REMOVED_WITHIN = 1800.0
"""Seconds after a run in which all that it made has to be removed: a removal is tried again."""
_AFTERWARDS = 120.0
_HOOKS: dict[str, tuple[float, float]] = {"swift": (0.05, 0.3), "usual": (0.3, 2.5), "slow": (1.0, 12.0)}
"""The least and the most seconds that hooks are late."""


@dataclass(frozen=True)
class UnitEvent:
    """What happens to a unit at a moment, in seconds from the begin of the run."""

    at: float
    do: str
    """`kill`: its agent is killed, and started again after `seconds`; `reboot`: its machine; `lead`: it becomes the
    leader; `join`: one more unit comes; `leave`: it is removed; `set clock`: by `seconds`; `stop`: somebody stops the
    run; `stand still`: nothing of anybody runs for `seconds`."""
    unit: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class LeaderKill:
    """The leader's agent is killed in the first turn of a kind."""

    kind: str
    held: bool
    """Whether that is in its hold, or while its load is brought up."""
    after: float
    """Seconds after the begin of that."""
    back: float
    """Seconds until it is started again."""
    deposed: bool
    """Whether another unit leads from then on."""


@dataclass(frozen=True)
class DrawnTogether:
    """What a seed is."""

    seed: int
    plan: dict[str, Any]
    service: DrawnService
    units: int
    hooks: str
    twice: bool
    """Whether some hooks run twice."""
    clocks: list[float]
    events: list[UnitEvent]
    leader_kill: LeaderKill | None = None


@dataclass(kw_only=True)
class PlayedTogether(Ended):
    """A run of many units that was played."""

    drawn: DrawnTogether
    run: SharedRun | None = None
    """None where it was refused."""
    gathered: Path | None = None
    """The directory of the run of all units; None without one."""
    parts: list[Path] = field(default_factory=list)
    """The directories of all units' parts."""
    published: list[SharedRun] = field(default_factory=list)
    """Every state of the run that a leader published, in order."""
    leader_killed: list[str] = field(default_factory=list)
    """The turns in which the leader's agent was killed, in words."""
    no_report: str = ""
    """Why there is no report; empty if there is one."""


def draw_together(seed: int, sizes: Sizes = SMALL) -> DrawnTogether:
    """Draw a run. In half of them nothing goes wrong."""
    chance = random.Random(seed)
    alone = draw(chance.randrange(10**9), sizes)
    units = chance.choice(sizes.units)
    lasts = (60.0 + 300.0 * chance.random()) * sizes.minutes[0] / LARGE.minutes[0]
    events: list[UnitEvent] = []
    if chance.random() < 0.6:
        for _ in range(chance.choice([1, 1, 2, 3])):
            do = chance.choice(
                [
                    "kill",
                    "kill",
                    "reboot",
                    "lead",
                    "lead",
                    "join",
                    "leave",
                    "set clock",
                    "stop",
                    "stand still",
                ]
            )
            seconds = {
                "kill": chance.choice([0.5, 5.0, 60.0, 400.0]),
                "reboot": chance.choice([30.0, 90.0, 600.0]),
                "set clock": chance.choice([-30.0, -0.5, 2.0, 3600.0]),
                "stand still": chance.uniform(0.1, 20),
            }.get(do, 0.0)
            events.append(UnitEvent(chance.uniform(0, lasts), do, chance.randrange(units), seconds))
    drawn = DrawnTogether(
        seed=seed,
        plan={**alone.plan, "workers": 1},
        service=alone.service,
        units=units,
        hooks=chance.choice(["swift", "usual", "usual", "slow"]),
        twice=chance.random() < 0.3,
        clocks=[chance.choice([0.0, 0.0, 0.02, -1.5, 40.0, -3600.0]) for _ in range(units + 3)],
        events=sorted(events, key=lambda event: event.at),
    )
    if chance.random() < 0.25:
        plan = _with_a_removal(drawn.plan, chance)
        drawn = replace(drawn, plan=plan, leader_kill=_leader_kill(plan, chance))
    return drawn


def _with_a_removal(plan: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Have some plans of things remove some of them at the end."""
    workload, last = plan["workload"], plan.get("stages", [{}])[-1]
    if workload.get("kind") != "spawn" or workload["cycle"] or last["instances"] < 2 or chance.random() < 0.3:
        return plan
    fewer = {**last, "instances": chance.randrange(1, last["instances"]), "hold": "6s"}
    return {**plan, "stages": [*plan["stages"], fewer]}


def _leader_kill(plan: dict[str, Any], chance: random.Random) -> LeaderKill:
    kinds = ["find" if "find" in plan else "ramp"]
    kinds += [kind for kind, field in (("storm", "faults"), ("recover", "after")) if field in plan]
    sizes = [(stage.get("groups"), stage.get("instances")) for stage in plan.get("stages", ())]
    if any(after < before for before, after in pairwise(sizes)) and not plan["workload"].get("cycle", True):
        kinds.append("destroy")
    return LeaderKill(
        kind=chance.choice(kinds),
        held=chance.random() < 0.5,
        after=chance.uniform(0.0, 3.0),
        back=chance.choice([0.5, 5.0, 60.0]),
        deposed=chance.random() < 0.5,
    )


def play_together(drawn: DrawnTogether, out: Path) -> PlayedTogether:
    """Play a run from `start` to the removal of all that it made. Directories of units are made in `out`."""

    async def run(loop: VirtualLoop, service: Service) -> PlayedTogether:
        return await _Together(drawn, out, loop, service).play()

    return simulate(drawn.seed, drawn.service, _LONGEST, out, run)


class _Together:
    def __init__(self, drawn: DrawnTogether, out: Path, loop: VirtualLoop, service: Service) -> None:
        self._drawn = drawn
        self._out = out
        self._loop = loop
        self._service = service
        self._model = Model()
        self._chance = random.Random(drawn.seed + 7)
        self._all: list[Unit] = []
        self._doing: list[asyncio.Task[None]] = []
        self._leader_killed: list[str] = []

    async def play(self) -> PlayedTogether:
        drawn, model = self._drawn, self._model
        before = hold_foreign(self._service, f"simulated-{drawn.seed}.0")
        for _ in range(drawn.units):
            await self._add()
        model.leader = self._all[0].name
        played = PlayedTogether(kept=self._loop, drawn=drawn)
        try:
            run = begin_run(validate_plan(drawn.plan), [unit.name for unit in self._all], self._now())
        except UserError as refused:
            played.refused = str(refused)
            return played
        run = run.model_copy(update={"id": f"simulated-{drawn.seed}"})
        begun = self._loop.time()
        model.write_run(model.leader, run)
        happening = [self._happen(event) for event in drawn.events]
        if drawn.leader_kill is not None:
            happening.append(self._kill_leader(drawn.leader_kill))
        self._doing = [self._loop.start(each, contextvars.copy_context()) for each in happening]
        await self._until_over(played)
        played.published, played.leader_killed = model.published, self._leader_killed
        played.seconds = self._loop.time() - begun
        await self._report(played)
        sent = len(self._service.served)
        await asyncio.sleep(_AFTERWARDS)
        played.loaded_after = len(self._service.served) - sent
        await self._until_removed(before, played)
        for unit in self._all:
            await unit.close()
            played.parts += sorted((unit.state / "runs").glob("*"))
        return played

    def _now(self) -> float:
        return timing.wall() + self._all[0].machine.clock_ahead

    async def _add(self) -> Unit:
        number = len(self._all)
        unit = Unit(
            f"{APPLICATION}/{number}",
            self._model,
            self._out / f"unit-{number}",
            {"kind": "simulated", "name": NAME},
            self._late,
            self._drawn.clocks[min(number, len(self._drawn.clocks) - 1)],
        )
        self._all.append(unit)
        await unit.start()
        self._model.changed()
        return unit

    def _late(self) -> float:
        least, most = _HOOKS[self._drawn.hooks]
        if self._drawn.twice and self._chance.random() < 0.2:
            self._chance.choice(self._all).due.set()
        return self._chance.uniform(least, most)

    async def _until_over(self, played: PlayedTogether) -> None:
        """Wait until the run is over, and all that is to happen has happened."""
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            if not self._model.units:
                return
            played.run = read_shared(self._model.run)
            assert played.run is not None
            if played.run.over and all(task.done() for task in self._doing):
                return

    async def _report(self, played: PlayedTogether) -> None:
        model = self._model
        if not model.units or played.run is None:
            played.no_report = "all units left"
            return
        leader = model.units[model.leader]
        run = played.run
        for _ in range(60):  # a result comes a hook after the last word
            if all(bag.get("result") for bag in model.bags.values()):
                break
            await asyncio.sleep(_LOOK_EVERY)
        results = {unit: json.loads(bag.get("result") or "null") for unit, bag in model.bags.items()}
        digests = {
            unit: found["digest"] for unit, found in results.items() if found and found["run"] == run.id
        }
        words = {
            unit: word.model_dump(mode="json", exclude_none=True)
            for unit, word in leader.words().items()
            if word is not None and word.run == run.id
        }
        try:
            answer = await leader.ask(
                "report",
                within=600.0,
                run=run.id,
                format="json",
                shared=run.model_dump(mode="json", exclude_none=True),
                words=words,
                digests=digests,
            )
            played.gathered = Path(answer["path"]).parent
        except (AgentAway, UserError) as problem:
            played.no_report = str(problem) or "the leader's agent is away"

    async def _until_removed(self, before: set[str], played: PlayedTogether) -> None:
        deadline = self._loop.time() + _REMOVED_WITHIN
        while True:
            look_around(played, self._service, before)
            if not played.left or self._loop.time() > deadline:
                return
            await asyncio.sleep(_LOOK_EVERY)

    async def _kill_leader(self, kill: LeaderKill) -> None:
        model = self._model
        while True:
            await asyncio.sleep(_LOOK_EVERY / 10)
            run = model.published[-1]
            turn, now = next((turn for turn in run.turns if turn.kind == kill.kind), None), self._now()
            if run.over or run.stopped or model.leader not in model.units:
                return
            begin = None if turn is None else turn.hold if kill.held else turn.begin
            if begin is not None and begin + kill.after <= now:
                break
        leader = model.units[model.leader]
        self._note_kill(leader)
        leader.kill()
        others = [name for name in model.units if name != leader.name]
        if kill.deposed and others:
            model.lead(others[0])
        await asyncio.sleep(kill.back)
        if leader.name in model.units:
            await leader.start()
            leader.due.set()

    def _note_kill(self, unit: Unit) -> None:
        """Note in which turn an agent is killed, if that is the leader's."""
        run, now = self._model.published[-1], self._now()
        if unit.name != self._model.leader or run.over:
            return
        turn = next((turn for turn in reversed(run.turns) if turn.begin <= now), None)
        if turn is None or run.searches_alone:
            self._leader_killed.append("alone" if run.searches_alone else "before the first turn")
        else:
            held = turn.hold is not None and turn.hold <= now
            what = "after its hold" if held and turn.until < now else "held" if held else "coming up"
            self._leader_killed.append(f"{turn.kind} {what}")

    async def _happen(self, event: UnitEvent) -> None:
        await asyncio.sleep(event.at)
        model = self._model
        there = [unit for unit in self._all if unit.name in model.units]
        if not there:
            return
        unit = there[event.unit % len(there)]
        match event.do:
            case "kill" | "reboot":
                self._note_kill(unit)
                unit.kill() if event.do == "kill" else unit.reboot()
                await asyncio.sleep(event.seconds)
                if unit.name in model.units:
                    await unit.start()
                    unit.due.set()
            case "lead":
                model.lead(unit.name)
            case "join":
                await self._add()
            case "leave":
                if len(there) > 1:
                    await unit.leave()
            case "set clock":
                unit.machine.clock_ahead += event.seconds
            case "stand still":
                self._loop.stand_still(event.seconds)
            case "stop":
                run = read_shared(model.run)
                if run is not None:
                    model.write_run(model.leader, stop(run, "somebody stopped it"))
            case _:
                raise AssertionError(event.do)
