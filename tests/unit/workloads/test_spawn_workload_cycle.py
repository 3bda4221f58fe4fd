"""Things that are removed as soon as they are as wanted: so many iterations, so many at once, and nothing is left."""

from __future__ import annotations

import pytest

from tests.unit.workloads.memory_target import Cluster
from tests.unit.workloads.spawn_rig import Rig, failing, plan_of, spoiling
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.workloads.spawn.target import Item

pytestmark = pytest.mark.usefixtures("lists_of_both_kinds")


def cycles(instances: int, **workload: object) -> SpawnPlan:
    return plan_of([(1, instances)], until="started", cycle=True, **workload)


async def test_each_iteration_makes_a_thing_and_removes_it() -> None:
    rig = Rig(cycles(20, concurrency=4))
    await rig.stage()
    counts = rig.counts()
    assert {
        name: counts[f"{name}.ok"] for name in ("create", "start", "launch", "delete", "total")
    } == dict.fromkeys(("create", "start", "launch", "delete", "total"), 20)
    assert rig.held == 20, "iterations that are over"
    assert rig.cluster.boxes == {}
    await rig.close()


async def test_no_more_are_there_at_once_than_iterations_at_a_time() -> None:
    """Given a concurrency of 3, then a thing keeps its place until it is removed."""
    most = 0
    cluster = Cluster()

    def watch(operation: str, item: Item | None) -> None:
        nonlocal most
        most = max(most, len(cluster.boxes))

    cluster.fail_after = watch
    rig = Rig(cycles(15, concurrency=3), cluster)
    await rig.stage()
    await rig.close()
    assert most == 3


async def test_an_iteration_lasts_longer_than_what_it_is_made_of() -> None:
    rig = Rig(cycles(5, concurrency=1))
    await rig.stage()
    recorded = rig.recorded()
    total, launch, delete = (recorded[f"{name}.ok"] for name in ("total", "launch", "delete"))
    assert total.total == launch.total == delete.total == 5
    await rig.close()


async def test_it_is_told_where_things_landed_though_they_are_gone() -> None:
    rig = Rig(cycles(9, concurrency=3))
    await rig.stage()
    assert rig.told("landed")[-1] == {"counts": dict(rig.cluster.created_on)}
    assert sum(rig.cluster.created_on.values()) == 9
    await rig.close()


async def test_what_cannot_be_started_is_removed_and_the_others_go_on() -> None:
    cluster = Cluster()
    cluster.fail = failing(1, "start", "full", Item(0, 2))
    rig = Rig(cycles(6, concurrency=2), cluster)
    await rig.stage()
    counts = rig.counts()
    assert (counts["total.ok"], counts["total.error"], counts["launch.error"]) == (5, 1, 1)
    assert counts["delete.ok"] == 5, "what failed is cleared away, and not an iteration's removal"
    assert cluster.count("delete") == 6
    assert cluster.boxes == {}
    assert rig.held == 5
    assert rig.counted("gave-up") == 1
    await rig.close()


async def test_what_will_never_run_is_made_anew_within_its_iteration() -> None:
    cluster = Cluster()
    cluster.fail = spoiling(cluster, Item(0, 2))
    rig = Rig(cycles(6, concurrency=2), cluster)
    await rig.stage()
    counts = rig.counts()
    assert {name: counts[f"{name}.ok"] for name in ("create", "start", "delete", "total")} == {
        "create": 7, "start": 6, "delete": 6, "total": 6
    }  # fmt: skip
    assert cluster.boxes == {}
    await rig.close()


async def test_what_cannot_be_removed_is_tried_so_often_and_then_left() -> None:
    cluster = Cluster()
    cluster.fail = failing(1000, "delete", "full", Item(0, 1))
    rig = Rig(cycles(4, concurrency=2), cluster)
    await rig.stage()
    counts = rig.counts()
    assert (counts["total.ok"], counts["total.error"], counts["delete.error"]) == (3, 1, 1)
    assert {*cluster.boxes} == {Item(0, 1)}
    assert rig.held == 3
    await rig.close()


async def test_a_removal_whose_answer_was_lost_is_seen_by_a_list() -> None:
    cluster = Cluster()
    cluster.fail_after = failing(1, "delete", "timeout", Item(0, 0))
    rig = Rig(cycles(2, concurrency=2), cluster)
    await rig.stage()
    assert rig.counts()["total.ok"] == 2
    assert rig.held == 2
    await rig.close()


async def test_the_next_stage_begins_anew() -> None:
    rig = Rig(plan_of([(1, 3), (1, 5)], until="started", cycle=True, concurrency=2))
    await rig.stage(1)
    await rig.stage(2)
    assert rig.counts()["total.ok"] == 8
    assert rig.held == 5
    await rig.close()


@pytest.mark.parametrize("pace", [{"batch": 3}, {"rate": 200.0}])
async def test_iterations_may_come_in_batches_or_by_rate(pace: dict[str, float]) -> None:
    rig = Rig(cycles(7, **pace))
    await rig.stage()
    assert rig.counts()["total.ok"] == 7
    assert rig.cluster.boxes == {}
    await rig.close()


@pytest.mark.parametrize("workers", [1, 3])
async def test_several_workers_share_iterations(workers: int) -> None:
    rig = Rig(plan_of([(3, 4)], until="started", cycle=True, concurrency=6), workers=workers)
    await rig.stage()
    assert rig.counts()["total.ok"] == 12
    await rig.close()
