"""Lower loads that several units share: on a real etcd, a step ends on all of them once thresholds hold again."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lab.etcd.cluster import EtcdLab
from tests.functional.program import QUICK
from tests.functional.units.troupe import Troupe, play, stages_of
from tippingpoint.plan.read import validate_plan
from tippingpoint.rundir.results import load_run

HOLD_S = 30.0
LIMIT_S = 2.0
TRIES = 3
"""The most runs: where this machine stood still, the last stage says nothing, and no lower load follows."""


def test_a_step_ends_on_all_units_once_thresholds_hold_again(etcd_private: EtcdLab, tmp_path: Path) -> None:
    # given two units, and a target that answers nothing until their last load counts as too much
    plan = validate_plan(
        {
            "name": "frozen",
            "target": {"kind": "etcd", "endpoints": etcd_private.endpoints},
            "workload": {**QUICK["workload"], "claim_time": "60s", "renew_time": "500ms", "timeout": "15s"},
            "stages": [{"leases": 20, "over": "500ms", "hold": f"{HOLD_S}s"}],
            "thresholds": [{"operation": "extend", "p99": f"{LIMIT_S}s"}],
            "after": "recover",
            "workers": 1,
        }
    )

    async def scene() -> None:
        for _ in range(TRIES):
            troupe = Troupe(plan, 2, tmp_path)
            parts = asyncio.gather(troupe.enter(), troupe.enter())
            await troupe.until_held(1)
            for member in etcd_private.pids:
                etcd_private.stop(member)
            broken = asyncio.create_task(
                troupe.until(lambda run: run.recovery is not None and run.recovery.broken is not None)
            )
            await asyncio.wait([broken, parts], return_when=asyncio.FIRST_COMPLETED)
            for member in etcd_private.pids:
                etcd_private.resume(member)
            runs = [load_run(part) for part in await parts]
            if broken.done():
                break
            broken.cancel()
        # then thresholds held again at a lower load of both (if this machine is slow, at its second try)
        recovery = troupe.run.recovery
        assert recovery is not None
        assert (recovery.broken, recovery.over) == (20, True)
        assert [(shown.lowers, shown.load) for shown in recovery.loads[:1]] == [(True, 18)]
        assert recovery.loads[-1].held
        # and that step ended early on both, with the share of each
        turn = next(turn for turn in troupe.run.turns if turn.kind == "recover")
        assert turn.ends is not None
        assert turn.hold is not None
        assert turn.ends - turn.hold < HOLD_S
        steps = stages_of(runs, turn.number)
        assert [(stage.kind, stage.size) for stage in steps] == [("recover", 9), ("recover", 9)]
        for stage in steps:
            assert stage.hold_begin is not None
            assert stage.end is not None
            assert stage.end - stage.hold_begin < HOLD_S
        assert [run.manifest.status for run in runs] == ["complete"] * 2

    play(scene)
