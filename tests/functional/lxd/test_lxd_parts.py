"""Parts of one fill that several units play together on LXD."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lab.lxd.cluster import LxdLab
from lab.lxd.proxy import LxdProxy
from tests.functional.lxd.lxd_runs import MEMBERS, Online, everything
from tests.functional.program import WITHIN_S
from tests.functional.spawn_runs import named
from tests.functional.units.conftest import quick_leader  # noqa: F401, for this test too
from tests.functional.units.troupe import Troupe, play, stages_of
from tippingpoint.plan.read import validate_plan
from tippingpoint.play.cleaning import clean_run
from tippingpoint.rundir.results import load_run


def test_a_fill_is_shared_and_shared_anew(lxd: LxdLab, tmp_path: Path) -> None:
    # given two units that fill a group each, and a third one that comes, so that each has a part of both groups
    before = everything(lxd)
    with LxdProxy(lxd) as proxy:
        # (one that was offline for a moment would be removed)
        proxy.add("GET", MEMBERS, Online())
        share(proxy, tmp_path)
    assert everything(lxd) == before


def share(proxy: LxdProxy, tmp_path: Path) -> None:
    plan = validate_plan(
        {
            "name": "fill",
            "target": {"kind": "lxd", "credentials": str(proxy.credentials)},
            "workload": {"kind": "spawn", "concurrency": 6, "observe_every": 0},
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

    play(scene, within=WITHIN_S)  # an LXD that is too busy removes nothing for minutes
