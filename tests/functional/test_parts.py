"""Parts of one run that several units play together: on real etcd, on LXD, on a simulated Juju controller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import pytest

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from lab.lxd.cluster import LxdLab
from tests.functional.lxd_runs import everything
from tests.functional.program import QUICK, keys, leases
from tests.functional.spawn_runs import named
from tests.functional.test_juju_runs import MODEL_OF_OURS, contents
from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.run.cleaning import clean_run
from tippingpoint.run.headline import Headline
from tippingpoint.run.messages import Tick
from tippingpoint.run.runner import Runner
from tippingpoint.run.watcher import StageProgress
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.stages import StageResult
from tippingpoint.units import shared_run
from tippingpoint.units.conductor import Follower
from tippingpoint.units.shared_run import SharedRun, UnitWord, begin_run, conduct


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
        self._words: dict[str, UnitWord | None] = {}
        self._followers: dict[str, Follower] = {}
        self._changed = asyncio.Event()
        self.run = begin_run(plan, [f"load-claimer/{number}" for number in range(units)], time.time())
        self.runners: list[Runner] = []
        self.watches: list[Watch] = []
        self.waits_for = 0
        """So many units are to be there before a hold is named."""

    def enter(self) -> asyncio.Task[Path]:
        """The next unit begins its part."""
        number = len(self.runners)
        unit = f"load-claimer/{number}"

        def say(phase: Literal["ready", "up"], turn: int) -> None:
            self._words[unit] = UnitWord(run=self.run.id, phase=phase, turn=turn, t=time.time())
            if len(self._words) >= self.waits_for or not self.run.turns:
                self.tell(conduct(self.run, self._words, time.time()))

        follower = self._followers[unit] = Follower(unit, self.run, say)
        self.watches.append(Watch())
        self.runners.append(
            Runner(
                self._plan,
                self._out,
                self.watches[-1],
                run_id=f"{self.run.id}.{number}",
                conductor=follower,
                share=follower.share,
                unit=unit,
            )
        )
        return asyncio.create_task(self.runners[-1].run())

    def tell(self, run: SharedRun) -> None:
        """All units see the run as it is now."""
        self.run = run
        for follower in self._followers.values():
            follower.see(run, 0.0)
        self._changed.set()

    async def until(self, condition: Callable[[SharedRun], object]) -> None:
        """Wait until the run is so."""
        while not condition(self.run):
            self._changed.clear()
            await self._changed.wait()

    async def until_held(self, turn: int) -> None:
        """Wait until the hold of a turn has begun."""
        await self.until(lambda run: any(each.number == turn and each.hold for each in run.turns))
        hold = next(each.hold for each in self.run.turns if each.number == turn)
        assert hold is not None
        await asyncio.sleep(hold - time.time())


@pytest.fixture(autouse=True)
def quick_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words take no time here, so that a moment may be named shortly before it comes."""
    monkeypatch.setattr(shared_run, "lead", _half_a_second)


def _half_a_second(units: int) -> float:
    return 0.5


def plan_of(lab: EtcdLab, stages: list[dict[str, Any]], **changes: Any) -> Plan:
    target = {"kind": "etcd", "endpoints": lab.endpoints}
    return validate_plan({**QUICK, "target": target, "stages": stages, "workers": 1, **changes})


def play(scene: Callable[[], Coroutine[Any, Any, None]], within: float = 120) -> None:
    asyncio.run(asyncio.wait_for(scene(), within))


def stages_of(runs: list[RunData], number: int) -> list[StageResult]:
    """A turn as the units have it that had a share in it."""
    return [stage for run in runs for stage in run.stages if stage.number == number]


def hold_of(run: RunData, number: int) -> tuple[float, float]:
    """Begin and end of a turn's hold, seconds since the epoch."""
    stage = run.stage(number)
    assert stage.hold_begin is not None
    assert stage.end is not None
    return run.manifest.started + stage.hold_begin, run.manifest.started + stage.end


def test_units_share_each_stage_hold_it_together_and_leave_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run of two units, which a third one joins while they are in the first stage
    before = {*keys(etcd.endpoints[0])}
    plan = plan_of(
        etcd,
        [{"leases": 21, "over": "200ms", "hold": "3s"}, {"leases": 24, "over": "200ms", "hold": "3s"}],
    )

    async def scene() -> None:
        troupe = Troupe(plan, 2, tmp_path)
        troupe.waits_for = 3
        parts = [troupe.enter(), troupe.enter()]
        await troupe.until(lambda run: run.turns)
        parts.append(troupe.enter())
        # when they have played it
        directories = await asyncio.gather(*parts)
        # then each stage's leases are all held, each by one unit, and shares are as even as can be
        runs = [load_run(directory) for directory in directories]
        assert [stage.size for stage in stages_of(runs, 1)] == [11, 10]
        assert [stage.size for stage in stages_of(runs, 2)] == [
            8,
            8,
            8,
        ]  # less than before, as there is one more
        assert sum(stage.gauges["held"] for stage in stages_of(runs, 1)) == 21
        assert sum(stage.gauges["held"] for stage in stages_of(runs, 2)) == 24
        assert all(not stage.failures("extend") for run in runs for stage in run.stages)
        # and their holds are at one time
        for number, playing in ((1, runs[:2]), (2, runs)):
            holds = [hold_of(run, number) for run in playing]
            assert max(begin for begin, _ in holds) < min(end for _, end in holds)
        # and each part says whose it is, and is complete
        assert [run.manifest.share for run in runs] == [(0, 3), (1, 3), (2, 3)]
        assert [run.manifest.unit for run in runs] == [f"load-claimer/{number}" for number in range(3)]
        assert [run.manifest.status for run in runs] == ["complete"] * 3
        # and whoever watched has seen it
        for watch, first in zip(troupe.watches, (11, 10, 0), strict=True):
            assert (1, 2, first, first) in watch.seen or not first
            assert (2, 2, 8, 8) in watch.seen

    play(scene)
    assert leases(etcd.endpoints[0]) == []
    assert {*keys(etcd.endpoints[0])} <= before


def test_a_stop_ends_all_parts_in_order(etcd: EtcdLab, tmp_path: Path) -> None:
    # given two units that hold their shares, for long
    plan = plan_of(etcd, [{"leases": 10, "over": "100ms", "hold": "10m"}])

    async def scene() -> None:
        troupe = Troupe(plan, 2, tmp_path)
        parts = [troupe.enter(), troupe.enter()]
        await troupe.until_held(1)
        # when the leader says that it is enough
        troupe.tell(shared_run.stop(troupe.run, "enough"))
        # then both end, and say why
        runs = [load_run(directory) for directory in await asyncio.gather(*parts)]
        assert [run.manifest.status for run in runs] == ["interrupted"] * 2
        assert [run.manifest.reason for run in runs] == ["enough"] * 2

    play(scene)
    assert leases(etcd.endpoints[0]) == []


def test_a_storm_that_is_asked_for_in_a_hold_takes_the_place_of_the_turn_that_was_named(
    etcd: EtcdLab, tmp_path: Path
) -> None:
    # given two units in the first of two stages, the second of which is named already
    plan = plan_of(
        etcd,
        [{"leases": 10, "over": "100ms", "hold": "4s"}, {"leases": 12, "over": "100ms", "hold": "1s"}],
    )

    async def scene() -> None:
        troupe = Troupe(plan, 2, tmp_path)
        parts = [troupe.enter(), troupe.enter()]
        await troupe.until_held(1)
        # when a storm is asked for
        troupe.tell(shared_run.ask_storm(troupe.run, time.time()))
        runs = [load_run(directory) for directory in await asyncio.gather(*parts)]
        # then it comes before that stage, with all leases claimed anew
        for run in runs:
            assert [(stage.number, stage.kind) for stage in run.stages] == [
                (1, "ramp"),
                (2, "storm"),
                (3, "ramp"),
            ]
        assert sum(stage.count("claim") for stage in stages_of(runs, 2)) == 10
        assert sum(stage.gauges["held"] for stage in stages_of(runs, 3)) == 12

    play(scene)
    assert leases(etcd.endpoints[0]) == []


def test_a_unit_that_is_away_when_a_turn_begins_begins_it_late_and_says_so(
    etcd: EtcdLab, tmp_path: Path
) -> None:
    # given a unit that hears of a turn when it has begun
    plan = plan_of(etcd, [{"leases": 4, "over": "100ms", "hold": "1s"}])

    async def scene() -> None:
        troupe = Troupe(plan, 1, tmp_path)
        part = troupe.enter()
        await troupe.until(lambda run: run.turns)
        past = troupe.run.turns[0].model_copy(update={"begin": time.time() - 30})
        troupe.tell(troupe.run.model_copy(update={"turns": [past]}))
        # when it plays it, then it does so at once, and its events say how late it was
        run = load_run(await part)
        assert run.stages[0].gauges["held"] == 4
        (late,) = [event for event in run.events if event["event"] == "began-late"]
        assert late["seconds"] >= 29

    play(scene)


def test_what_only_one_machine_can_run_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    search = {"name": "t", "find": {"start": 10}, "thresholds": [{"operation": "claim", "p99": "1s"}]}
    faulty = {
        "name": "t",
        "stages": [{"leases": 10}],
        "faults": [{"do": "kill", "member": "m1", "stage": 1, "at": "1s"}],
    }
    plan = validate_plan({"name": "t", "stages": [{"leases": 10}]})
    for fields, field in ((search, "find"), (faulty, "faults")):
        follower = Follower("a/0", begin_run(plan, ["a/0"], time.time()), lambda phase, turn: None)
        runner = Runner(validate_plan(fields), tmp_path, conductor=follower)
        with pytest.raises(UserError) as refused:
            asyncio.run(runner.run())
        assert refused.value.field == field
    assert not [*tmp_path.iterdir()]


def test_hollow_units_of_each_part_are_in_a_model_of_its_own_and_a_unit_without_a_share_waits(
    juju: JujuLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given two leases, three units and a storm in the stage
    for name, value in juju.environment.items():
        monkeypatch.setenv(name, value)
    plan = validate_plan(
        {
            **QUICK,
            "target": {"kind": "juju", "controller": juju.controller},
            "workload": {"units": 2, "claim_time": "5s", "renew_time": "1s", "timeout": "3s"},
            "stages": [{"leases": 2, "over": "100ms", "hold": "2s"}],
            "faults": [{"do": "drop-claims", "stage": 1, "at": "1s"}],
            "workers": 1,
        }
    )

    async def scene() -> None:
        troupe = Troupe(plan, 3, tmp_path)
        parts = [troupe.enter() for _ in range(3)]
        await troupe.until_held(1)
        ours = [len(units) for model, (units, _) in contents(juju).items() if model.startswith(MODEL_OF_OURS)]
        assert sorted(ours) == [0, 1, 1]
        runs = [load_run(directory) for directory in await asyncio.gather(*parts)]
        assert [[stage.kind for stage in run.stages] for run in runs] == [["ramp", "storm"]] * 3
        assert [run.stage(2).gauges["held"] for run in runs] == [1, 1, 0]
        assert [run.manifest.status for run in runs] == ["complete"] * 3

    play(scene)
    assert not [model for model in contents(juju) if model.startswith(MODEL_OF_OURS)]


@pytest.mark.timeout(600)
def test_a_fill_is_shared_and_shared_anew(lxd: LxdLab, tmp_path: Path) -> None:
    # given two units that fill a group each, and a third one that comes, so that each has a part of both groups
    before = everything(lxd)
    plan = validate_plan(
        {
            "name": "fill",
            "target": {"kind": "lxd", "credentials": str(lxd.credentials)},
            "workload": {"kind": "spawn", "concurrency": 6, "observe_every": 0, "poll_every": "300ms"},
            "stages": [
                {"groups": 2, "instances": 2, "hold": "4s"},
                {"groups": 2, "instances": 3, "hold": "2s"},
            ],
            "workers": 2,
        }
    )

    async def scene() -> None:
        troupe = Troupe(plan, 2, tmp_path)
        troupe.waits_for = 3
        parts = [troupe.enter(), troupe.enter()]
        await troupe.until(lambda run: run.turns)
        parts.append(troupe.enter())
        await troupe.until_held(1)
        # when meanwhile an operator has it repaired, and a member removed that is there
        for runner in troupe.runners[:2]:
            runner.repair()
        problem = await troupe.runners[0].evict("m1")
        # then that one is not removed, and the run says why
        assert problem == "m1: expected a member that is offline: none is"
        directories = await asyncio.gather(*parts)
        assert [event["problem"] for event in named(directories[0], "evict-member", member="m1")] == [problem]
        # and the fill is the plan's in each stage
        runs = [load_run(directory) for directory in directories]
        assert [stage.size for stage in stages_of(runs, 1)] == [2, 2]
        assert [stage.size for stage in stages_of(runs, 2)] == [2, 2, 2]
        assert sum(stage.gauges["held"] for stage in stages_of(runs, 2)) == 6
        assert [run.manifest.status for run in runs] == ["complete"] * 3

        # (what an LXD that is too busy does not remove, the run tells, and leaves to a clean)
        for directory in directories:
            if named(directory, "left-behind"):
                await clean_run(directory)

    play(scene, within=500)  # an LXD that is too busy removes nothing for minutes
    assert everything(lxd) == before
