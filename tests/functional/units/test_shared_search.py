"""A search that several units share: on a real etcd, each load by all of them, and one answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from tests.functional.program import UNHURRIED, leases
from tests.functional.standstills import longest_stall
from tests.functional.units.troupe import Troupe, play, stages_of
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.search.found import found_of
from tippingpoint.digest.merge import gather
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.rundir.results import RunData, load_run


def search_of(lab: EtcdLab, find: dict[str, Any], **threshold: Any) -> Plan:
    return validate_plan(
        {
            "name": "search",
            "target": {"kind": "etcd", "endpoints": lab.endpoints},
            "workload": UNHURRIED,
            "find": {"over": "200ms", "hold": "3s", **find},
            "thresholds": [{"operation": "extend", **threshold}],
            "workers": 1,
        }
    )


def gathered(troupe: Troupe, parts: list[Path], out: Path) -> RunData:
    digests = {f"load-claimer/{number}": make_digest(directory) for number, directory in enumerate(parts)}
    return load_run(gather(troupe.run.model_copy(update={"over": True}), digests, {}, out / "gathered"))


def test_units_share_each_load_of_a_search_and_come_to_one_answer(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a target that clearly holds all that the search may try, by a median that few calls tell, and two units
    plan = search_of(etcd, {"start": 7, "limit": 15, "hold": "60s"}, p50="60s")

    async def scene() -> None:
        troupe = Troupe(plan, 2, tmp_path)
        directories = await asyncio.gather(troupe.enter(), troupe.enter())
        # then each load was tried by both units together, with its share each
        runs = [load_run(directory) for directory in directories]
        probes = troupe.run.probes
        assert [(probe.size, probe.held) for probe in probes] == [(7, True), (15, True), (15, True)]
        assert [probe.fresh for probe in probes] == [True, False, False]
        assert [stage.size for stage in stages_of(runs, 1)] == [4, 3]
        assert [stage.size for stage in stages_of(runs, 2)] == [8, 7]
        assert sum(stage.gauges["held"] for stage in stages_of(runs, 3)) == 15
        # and each hold ended early on both, once they had said that it was clear (a unit that stands still may take
        # that back, and then a hold has its time)
        if not any(longest_stall(run) > 1.0 for run in runs):
            assert all(turn.ends is not None for turn in troupe.run.turns)
            assert all(
                stage.end - stage.hold_begin < 60
                for stage in (*runs[0].stages, *runs[1].stages)
                if stage.end is not None and stage.hold_begin is not None
            )
        # and the search has its answer, and every part is complete
        assert troupe.run.found is not None
        assert (troupe.run.found.ended, troupe.run.found.low) == ("limit", 15)
        assert [run.manifest.status for run in runs] == ["complete"] * 2
        # and the report of the run says the same
        whole = gathered(troupe, [*directories], tmp_path)
        assert [(stage.size, stage.kind) for stage in whole.stages] == [
            (7, "find"),
            (15, "find"),
            (15, "find"),
        ]
        found = found_of(whole, plan)
        assert found is not None
        assert found.sentence.startswith(
            "Passes at 15 leases, the largest load that the plan allows. Tried in "
        )
        assert found.probes == probes

    play(scene)
    assert leases(etcd.endpoints[0]) == []


def test_the_next_leader_goes_on_with_a_search_when_the_leader_is_lost_in_it(
    etcd: EtcdLab, tmp_path: Path
) -> None:
    # given three units in the second load of a search, and the first of them is lost
    plan = search_of(etcd, {"start": 6, "limit": 12}, p99="60s")

    async def scene() -> None:
        troupe = Troupe(plan, 3, tmp_path)
        parts = [troupe.enter() for _ in range(3)]
        await troupe.until_held(2)
        troupe.runners[0].interrupt("gone")
        troupe.lose(0)
        # when another one leads, who knows the run and the words alone
        directories = await asyncio.gather(*parts)
        # then the load in which it was lost shows nothing, and is tried again, from nothing, by the others
        run = troupe.run
        assert run.missing == {"load-claimer/0": "the unit was removed"}
        assert [(probe.stage, probe.size, probe.fresh) for probe in run.probes] == [
            (1, 6, True),
            (3, 12, True),
            (4, 12, False),
        ]
        others = [load_run(directory) for directory in directories[1:]]
        assert [stage.size for stage in stages_of(others, 2)] == [4, 4]
        assert [stage.size for stage in stages_of(others, 3)] == [6, 6]
        assert run.found is not None
        assert run.found.ended == "limit"
        # and the report has the answer, and says whose share was lost
        whole = gathered(troupe, [*directories], tmp_path)
        found = found_of(whole, plan)
        assert found is not None
        assert found.sentence.startswith("Holds 12 leases")
        assert "load-claimer/0 was lost" in found.sentence

    play(scene)
    assert leases(etcd.endpoints[0]) == []


def test_a_load_that_breaks_its_threshold_is_broken_for_all_units(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a throughput that so few leases cannot have, and lower loads after the search
    searched = search_of(etcd, {"start": 2, "limit": 10}, throughput=1000)
    plan = validate_plan({**searched.model_dump(mode="json", exclude_none=True), "after": "recover"})

    async def scene() -> None:
        troupe = Troupe(plan, 2, tmp_path)
        directories = await asyncio.gather(troupe.enter(), troupe.enter())
        # then no load holds, down to the smallest one, which one unit holds alone
        assert troupe.run.found is not None
        assert not any(probe.held for probe in troupe.run.probes)
        if troupe.run.found.ended == "generator":  # on a machine so busy that the generator doubts itself
            assert any(probe.held is None and probe.broken for probe in troupe.run.probes)
            return
        assert troupe.run.found.ended == "broken at start"
        assert troupe.run.probes[-1].size == 1
        whole = gathered(troupe, [*directories], tmp_path)
        found = found_of(whole, plan)
        assert found is not None
        assert found.sentence.startswith(
            "Not even 1 lease passed: limited by extend throughput under 1,000/s."
        )
        # and that load broke once more (one that this machine made late says nothing, and is tried again), and there is
        # none below it but no load at all
        recovery = troupe.run.recovery
        assert recovery is not None
        loads = [(shown.load, shown.lowers, shown.held) for shown in recovery.loads]
        assert [load for load in loads if load != (1, False, None)] == [(1, False, False), (0, True, None)]
        steps = [stage.size for stage in whole.stages if stage.kind == "recover"]
        assert steps == [load for load, _, _ in loads]
        # and the report says that it did not come back
        comeback = analyse(whole).comeback
        assert comeback is not None
        assert comeback.sentence.startswith("Did not come back within ")

    play(scene)


def test_units_share_a_search_for_units_of_a_model(tmp_path: Path) -> None:
    # given a simulated controller that holds all that the search may try, and two units with a model each
    with JujuLab() as lab:
        plan = validate_plan(
            {
                "name": "search",
                "target": {"kind": "juju", "credentials": str(lab.credentials)},
                "workload": {"kind": "grow", "observe_every": "250ms", "timeout": "30s", "batch": 4},
                "find": {
                    "start": 6,
                    "limit": 12,
                    "machines": 2,
                    "applications": 2,
                    "over": "0s",
                    "hold": "2s",
                },
                "thresholds": [{"operation": "full-status", "p99": "60s"}],
                "workers": 1,
            }
        )

        async def scene() -> None:
            troupe = Troupe(plan, 2, tmp_path)
            directories = await asyncio.gather(troupe.enter(), troupe.enter())
            # then each load was in both models, and the search has its answer
            runs = [load_run(directory) for directory in directories]
            probes = [probe for probe in troupe.run.probes if probe.held is not None]
            assert [(probe.size, probe.held) for probe in probes] == [
                (6, True),
                (12, True),
                (12, True),
            ]
            assert [stage.gauges["held"] for stage in stages_of(runs, 1)] == [3, 3]
            assert [stage.gauges["held"] for stage in stages_of(runs, 2)] == [6, 6]
            assert troupe.run.found is not None
            assert (troupe.run.found.ended, troupe.run.found.low) == ("limit", 12)
            found = found_of(gathered(troupe, [*directories], tmp_path), plan)
            assert found is not None
            assert found.sentence.startswith("Passes at 12 units, the largest load that the plan allows.")

        play(scene)
