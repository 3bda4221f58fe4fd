"""Stages of the spawn workload with a pace of their own, and stages that begin from nothing."""

from __future__ import annotations

import pytest

from tests.unit.workloads.memory_target import Cluster
from tests.unit.workloads.spawn_rig import Rig, failing, items, plan_of
from tippingpoint.errors import OperationFailed
from tippingpoint.plan.spawn import PACES, SpawnPlan


def stages_of(plan: SpawnPlan, *stages: dict[str, float]) -> SpawnPlan:
    """The plan with these stages, each with a pace of its own."""
    changed = [stage.model_copy(update=fields) for stage, fields in zip(plan.stages, stages, strict=True)]
    workload = plan.workload.model_copy(update=dict.fromkeys(PACES))
    return plan.model_copy(update={"stages": changed, "workload": workload})


async def test_each_stage_is_made_at_its_own_pace() -> None:
    # given a stage that makes one thing at a time, and a larger one that makes three
    plan = stages_of(plan_of([(1, 3), (1, 9)]), {"concurrency": 1}, {"concurrency": 3})
    rig = Rig(plan)
    # when both are run
    most: list[int] = []
    for number in (1, 2):
        rig.cluster.most_at_once.clear()
        await rig.stage(number)
        most.append(rig.cluster.most_at_once["create"])
    # then no more calls were under way than each says
    assert set(rig.cluster.boxes) == items(1, 9)
    assert most == [1, 3]
    await rig.close()


async def test_a_rate_of_a_stage_takes_the_place_of_the_workloads() -> None:
    # given a workload that would make the second thing after a thousand seconds
    plan = plan_of([(1, 4)], rate=0.001)
    plan = plan.model_copy(update={"stages": [plan.stages[0].model_copy(update={"rate": 500.0})]})
    rig = Rig(plan)
    # when its stage says 500 a second
    await rig.stage()
    # then all are there
    assert set(rig.cluster.boxes) == items(1, 4)
    await rig.close()


async def test_a_stage_that_begins_from_nothing_finds_nothing() -> None:
    # given things of the stage before, on two workers
    rig = Rig(plan_of([(4, 3)]), workers=2)
    await rig.stage()
    assert set(rig.cluster.boxes) == items(4, 3)
    # when the next one is to begin from nothing
    await rig.prepare()
    # then they are removed, and made again in it
    assert not rig.cluster.boxes
    assert rig.held == 0
    await rig.stage()
    assert set(rig.cluster.boxes) == items(4, 3)
    assert rig.cluster.count("create") == 24
    await rig.close()


async def test_a_first_stage_removes_nothing() -> None:
    rig = Rig(plan_of([(1, 2)]))
    await rig.prepare()
    assert rig.cluster.count("delete") == 0
    await rig.close()


async def test_things_that_cannot_be_removed_end_the_search() -> None:
    # given a thing that the target never removes
    cluster = Cluster()
    rig = Rig(plan_of([(1, 2)], retries={"other": 1}), cluster)
    await rig.stage()
    cluster.fail = failing(1000, "delete", "other")
    # when the next stage is to begin from nothing, then it says how many are left
    with pytest.raises(OperationFailed, match="2 instances of the previous load could not be removed"):
        await rig.prepare()
    cluster.fail = lambda operation, item: None
    await rig.close()
