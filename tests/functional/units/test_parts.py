"""Parts of one run that several units play together: on real etcd, on LXD, on a simulated Juju controller."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_runs import MODEL_OF_OURS, contents
from tests.functional.program import QUICK, STORMY, keys, leases
from tests.functional.units.troupe import Troupe, play, stages_of
from tippingpoint.conduct import director
from tippingpoint.conduct.director import begin_run
from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.runner import Runner
from tippingpoint.rundir.results import RunData, load_run


def plan_of(lab: EtcdLab, stages: list[dict[str, Any]], **changes: Any) -> Plan:
    target = {"kind": "etcd", "endpoints": lab.endpoints}
    return validate_plan({**QUICK, "target": target, "stages": stages, "workers": 1, **changes})


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
        troupe.tell(director.stop(troupe.run, "enough"))
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
        [{"leases": 10, "over": "100ms", "hold": "10s"}, {"leases": 12, "over": "100ms", "hold": "1s"}],
        workload=STORMY,
    )

    async def scene() -> None:
        troupe = Troupe(plan, 2, tmp_path)
        parts = [troupe.enter(), troupe.enter()]
        await troupe.until_held(1)
        # when a storm is asked for
        troupe.tell(director.ask_storm(troupe.run, time.time()))
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
    faulty = {
        "name": "t",
        "stages": [{"leases": 10}],
        "faults": [{"do": "kill", "member": "m1", "stage": 1, "at": "1s"}],
    }
    plan = validate_plan({"name": "t", "stages": [{"leases": 10}]})
    follower = Conductor("a/0", begin_run(plan, ["a/0"], time.time()), lambda phase, turn: None)
    runner = Runner(validate_plan(faulty), tmp_path, conductor=follower)
    with pytest.raises(UserError) as refused:
        asyncio.run(runner.run())
    assert refused.value.field == "faults"
    assert not [*tmp_path.iterdir()]


def test_units_make_a_model_smaller_together_after_the_last_stage(tmp_path: Path) -> None:
    # given a model of eight units, whose status never comes as fast as is asked for, and two units of the generator
    with JujuLab() as lab:
        plan = validate_plan(
            {
                "name": "smaller",
                "target": {"kind": "juju", "credentials": str(lab.credentials)},
                "workload": {"kind": "grow", "observe_every": "250ms", "timeout": "30s"},
                "stages": [{"applications": 2, "units": 4, "machines": 2, "over": "0s", "hold": "1s"}],
                "thresholds": [{"operation": "full-status", "p50": "10us"}],
                "after": "recover",
                "workers": 1,
            }
        )

        async def scene() -> None:
            troupe = Troupe(plan, 2, tmp_path)
            runs = [load_run(part) for part in await asyncio.gather(troupe.enter(), troupe.enter())]
            recovery = troupe.run.recovery
            assert recovery is not None
            # then each removes its share of the units at each step, until none is left
            for run in runs:
                assert [stage.gauges["held"] for stage in run.stages] == [
                    4,
                    *(shown.load / 2 for shown in recovery.loads),
                ]
                assert [stage.kind for stage in run.stages[1:]] == ["recover"] * len(recovery.loads)
                assert run.manifest.status == "complete"
            # and the leader knows that it was no use (a load that says nothing of the target comes again)
            assert (recovery.broken, recovery.before, recovery.over) == (8, None, True)
            lower = [shown for shown in recovery.loads if shown.lowers and not shown.nothing]
            assert [(shown.load, shown.held) for shown in lower] == [
                (6, False),
                (4, False),
                (2, False),
                (0, None),
            ]

        play(scene)


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
            "workload": {**STORMY, "renew_time": "1s"},
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
