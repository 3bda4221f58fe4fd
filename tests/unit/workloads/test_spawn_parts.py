"""The spawn workload whose part of a run changes while it goes on, and what an operator has it do beside its plan."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.workloads.memory_target import Cluster
from tests.unit.workloads.spawn_rig import Rig, failing, items, plan_of
from tippingpoint.errors import OperationFailed
from tippingpoint.plan.share import part_of
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.util import backoff
from tippingpoint.workloads.spawn.target import Item, SpawnFailed


@pytest.fixture(autouse=True)
def retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(backoff, "LONGEST_RETRY", 0.05)


def part(plan: SpawnPlan, index: int, of: int) -> SpawnPlan:
    found = part_of(plan, index, of)
    assert isinstance(found, SpawnPlan)
    return found


def revise(rig: Rig, plan: SpawnPlan, index: int, of: int) -> None:
    rig.revise(part(plan, index, of))


@pytest.mark.parametrize("pace", [{"concurrency": 4}, {"batch": 4}, {"rate": 1000}])
async def test_a_part_that_becomes_smaller_is_emptied_of_the_rest(pace: dict[str, Any]) -> None:
    # given two workers with half of 8 groups
    plan = plan_of([(8, 4), (8, 4)], **pace)
    rig = Rig(part(plan, 0, 2), workers=2)
    await rig.stage(1)
    assert set(rig.cluster.boxes) == items(4, 4)
    # when it is a quarter from the next stage on, so that there is a turn for one of them only
    revise(rig, plan, 0, 4)
    await rig.stage(2)
    # then two groups are there, nothing was made anew and nothing is counted twice
    assert set(rig.cluster.boxes) == items(2, 4)
    assert rig.held == 8
    assert rig.cluster.count("create") == 16
    assert not rig.told("lost")
    await rig.close()


async def test_groups_that_were_few_become_all_of_them_with_fewer_things_in_each() -> None:
    # given one of two groups, as there are two units
    plan = plan_of([(2, 6), (2, 6)])
    rig = Rig(part(plan, 0, 2))
    await rig.prepare()
    await rig.stage(1)
    # when there are three
    revise(rig, plan, 0, 3)
    await rig.prepare()
    await rig.stage(2)
    # then both groups were made, with a third of the things in each
    assert rig.cluster.prepared == [range(1), range(2)]
    assert set(rig.cluster.boxes) == items(2, 2)
    await rig.close()


async def test_a_group_that_comes_back_is_not_listed_beside_a_list_of_it_that_is_not_answered() -> None:
    # given two workers with one group each, and the second's is being listed
    answer = asyncio.Event()
    listed: list[int] = []

    def hold_list(group: int) -> Any:
        listed.append(group)
        return answer.wait() if group == 1 and listed.count(1) == 1 else None

    cluster = Cluster(hold_list=hold_list)
    plan = plan_of([(2, 1)] * 3, concurrency=2)
    rig = Rig(part(plan, 0, 1), cluster, workers=2)
    await rig.begin(1)
    await rig.until(lambda: 1 in listed)
    # when the part has one turn only, which is the first worker's, and then two again
    revise(rig, plan, 0, 2)
    await rig.begin(2)
    revise(rig, plan, 0, 1)
    await rig.begin(3)
    await rig.polled(10)
    # then the second worker waits for its answer, which the target insists on, and goes on
    answer.set()
    await rig.up()
    assert set(cluster.boxes) == items(2, 1)
    assert [dict(load.errors) for load in rig.loads] == [{}, {}]
    await rig.close()


@examples(25)
@given(st.data())
async def test_whoever_has_a_group_and_whatever_is_under_way_the_part_is_reached(data: st.DataObject) -> None:
    groups, instances = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    pace = data.draw(st.sampled_from(["concurrency", "batch"]))
    limit: dict[str, Any] = {pace: data.draw(st.integers(1, 5))}
    plan = plan_of([(groups, instances)] * 3, **limit)
    shares = sorted(data.draw(st.lists(st.integers(1, 8), min_size=3, max_size=3)))
    workers = data.draw(st.integers(1, 3))

    rig = Rig(part(plan, 0, shares[0]), workers=workers)
    for stage, of in enumerate(shares, start=1):
        revise(rig, plan, 0, of)
        await rig.begin(stage)
        await asyncio.sleep(0.002)
    await rig.up()
    await rig.until(
        lambda: len(rig.cluster.boxes) == part(plan, 0, shares[-1]).loads[0][1] and not rig.cluster.busy
    )
    assert rig.held == len(rig.cluster.boxes)
    await rig.close()


async def test_a_repair_tries_again_what_was_given_up() -> None:
    # given a thing that was given up, as a quota was reached
    cluster = Cluster()
    cluster.fail = failing(1, "create", "quota", Item(0, 1))
    rig = Rig(plan_of([(1, 3)]), cluster)
    await rig.stage()
    assert rig.held == 2
    assert rig.counted("gave-up") == 1
    # when somebody has it repaired
    rig.loads[0].repair()
    # then it is made
    await rig.until(lambda: rig.held == 3)
    await rig.close()


async def test_a_repair_waits_for_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a target whose failures are tried again after an hour
    monkeypatch.setattr(backoff, "FIRST_RETRY", 3600.0)
    monkeypatch.setattr(backoff, "LONGEST_RETRY", 3600.0)

    cluster = Cluster()
    cluster.fail = failing(2, "start", "busy")
    rig = Rig(plan_of([(1, 2)]), cluster)
    await rig.begin()
    await rig.until(lambda: rig.counted("retry") == 2)
    # when somebody has it repaired, then it is tried again now
    rig.loads[0].repair()
    await rig.up()
    await rig.close()


async def test_a_repair_makes_what_is_lost_although_the_plan_does_not() -> None:
    rig = Rig(plan_of([(1, 3)], repair=False, observe_every=0.02))
    await rig.stage()
    del rig.cluster.boxes[Item(0, 1)]
    await rig.until(lambda: rig.told("lost"))
    assert rig.held == 2
    rig.loads[0].repair()
    await rig.until(lambda: rig.held == 3)
    await rig.close()


async def test_a_repair_before_any_stage_is_nothing() -> None:
    rig = Rig(plan_of([(1, 3)]))
    rig.loads[0].repair()
    assert rig.cluster.calls == []
    await rig.close()


async def test_a_member_that_is_gone_is_evicted_when_asked_for_and_its_things_made_again() -> None:
    # given a plan that evicts nobody, and a member that is gone
    rig = Rig(plan_of([(2, 3)], "round-robin", observe_every=0.02, offline_polls=2))
    await rig.stage()
    rig.cluster.kill("m2")
    await rig.until(lambda: "lost" in rig.statuses("m2"))
    assert rig.held == 4
    # when somebody asks for its eviction
    await rig.loads[0].evict("m2")
    # then it is no member, and what was on it is made on the others
    assert set(rig.cluster.members) == {"m1", "m3"}
    await rig.until(lambda: rig.held == 6)
    assert rig.counts()["evict.ok"] == 1
    await rig.close()


async def test_a_member_that_is_there_is_not_evicted_nor_one_that_nobody_knows() -> None:
    rig = Rig(plan_of([(1, 1)]))
    await rig.stage()
    for member in ("m1", "m9"):
        with pytest.raises(OperationFailed, match=f"^{member}: expected a member that is offline: none is$"):
            await rig.loads[0].evict(member)
    assert rig.cluster.count("evict") == 0
    await rig.close()


async def test_an_eviction_that_fails_says_why_and_may_be_asked_for_again() -> None:
    cluster = Cluster()
    problems = [SpawnFailed("no leader", "quorum")]
    cluster.fail = lambda operation, _: problems.pop() if operation == "evict" and problems else None
    rig = Rig(plan_of([(1, 1)], observe_every=0.02), cluster)
    await rig.stage()
    cluster.kill("m3")
    await rig.until(lambda: "offline" in rig.statuses("m3"))
    with pytest.raises(OperationFailed, match=r"^m3: no leader$"):
        await rig.loads[0].evict("m3")
    await rig.loads[0].evict("m3")
    assert "m3" not in cluster.members
    await rig.close()
