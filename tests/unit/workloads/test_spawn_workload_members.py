"""Members of the cluster come and go while the spawn workload makes and keeps things on them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.unit.workloads.memory_target import Box, Cluster
from tests.unit.workloads.spawn_rig import Rig, failing, items, plan_of
from tippingpoint.util import backoff
from tippingpoint.workloads.spawn.target import Item, SpawnFailed

pytestmark = pytest.mark.usefixtures("lists_of_both_kinds")


@pytest.fixture(autouse=True)
def retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(backoff, "LONGEST_RETRY", 0.05)


def plan(**workload: Any) -> Any:
    return plan_of([(3, 4), (3, 6)], "round-robin", **{"observe_every": 0.02, "offline_polls": 3, **workload})


def on(cluster: Cluster, member: str) -> set[Item]:
    return {item for item, box in cluster.boxes.items() if box.member == member}


async def test_things_are_put_on_members_in_turn() -> None:
    rig = Rig(plan(concurrency=8), workers=2)
    await rig.stage()
    # each worker goes by its own things
    assert max(rig.cluster.created_on.values()) - min(rig.cluster.created_on.values()) <= 2
    await rig.polled()
    placed = rig.told("placed")[-2:]
    assert sum(sum(event["counts"].values()) for event in placed) <= 12
    await rig.close()


async def test_where_a_member_is_reached_is_told_with_it() -> None:
    rig = Rig(plan())
    await rig.stage()
    told = {event["member"]: event["address"] for event in rig.told("member")}
    assert told == {name: f"{name}.maas" for name in rig.cluster.members}
    await rig.close()


async def test_what_is_on_a_lost_member_is_lost_and_left_alone_and_the_stage_is_up_without_it() -> None:
    rig = Rig(plan())
    await rig.stage()
    calls = rig.cluster.count("create"), rig.cluster.count("start")
    rig.cluster.kill("m2")
    await rig.until(lambda: rig.told("lost"))
    assert rig.told("lost") == [{"member": "m2", "count": 4}]
    assert rig.statuses("m2") == ["online", "offline", "lost"]
    await rig.polled(5)
    assert (rig.cluster.count("create"), rig.cluster.count("start")) == calls
    assert rig.loads[0].gauge.up
    assert rig.held == 8
    # the next stage does without the member
    await rig.stage(2)
    assert rig.cluster.boxes.keys() == items(3, 6)
    assert len(on(rig.cluster, "m2")) == 4
    assert rig.held == 14
    await rig.close()


async def test_a_member_that_is_back_has_its_things_started_again_and_none_made_twice() -> None:
    rig = Rig(plan())
    await rig.stage()
    rig.cluster.kill("m2")
    await rig.until(lambda: rig.told("lost"))
    rig.cluster.members["m2"] = True
    await rig.until(lambda: rig.counted("repaired") == 4)
    assert rig.statuses("m2") == ["online", "offline", "lost", "back"]
    assert rig.cluster.running() == items(3, 4)
    assert rig.cluster.count("create") == 12
    assert rig.held == 12
    await rig.close()


async def test_a_lost_member_whose_things_ran_all_the_time_costs_nothing_when_it_is_back() -> None:
    """Given a member that was only cut off, then nothing on it is started."""
    rig = Rig(plan())
    await rig.stage()
    rig.cluster.members["m2"] = False
    await rig.until(lambda: rig.told("lost"))
    rig.cluster.members["m2"] = True
    await rig.until(lambda: rig.counted("repaired") == 4)
    assert rig.cluster.count("start") == rig.cluster.count("create") == 12
    await rig.close()


async def test_a_lost_member_is_evicted_by_one_worker_and_its_things_made_again_on_the_rest() -> None:
    rig = Rig(plan(evict=True, concurrency=8), workers=2)
    await rig.stage()
    gone = len(on(rig.cluster, "m3"))
    rig.cluster.kill("m3")
    await rig.until(lambda: rig.counted("repaired") == gone)
    await rig.up()
    assert rig.cluster.count("evict") == 1
    assert rig.cluster.running() == items(3, 4)
    assert on(rig.cluster, "m3") == set()
    assert rig.counted("lost") == gone
    assert rig.statuses("m3")[-1] == "evicted"
    assert rig.counts()["evict.ok"] == 1
    # it joins again, empty, and has its share of what comes
    rig.cluster.members["m3"] = True
    await rig.until(lambda: "joined" in rig.statuses("m3"))  # and perhaps online already
    await rig.polled()  # by both workers
    await rig.stage(2)
    assert len(on(rig.cluster, "m3")) >= 5
    await rig.close()


@pytest.mark.parametrize(
    ("step", "placement"), [("create", "lxd"), ("start", "lxd"), ("start", "round-robin")]
)
async def test_calls_that_hang_on_a_member_that_is_gone_are_not_waited_for(step: str, placement: str) -> None:
    rig = Rig(plan_of([(3, 4)], placement, evict=True, offline_polls=3))
    never = asyncio.Event()
    hanging: set[Item] = set()

    def hang(operation: str, item: Item | None) -> Awaitable[object] | None:
        if operation != step or item is None or len(hanging) == 4 or item in hanging:
            return None
        box = rig.cluster.boxes.get(item)
        if box is not None and box.member != "m3":
            return None
        hanging.add(item)
        return never.wait()

    rig.cluster.hold = hang
    await rig.begin()
    await rig.until(lambda: len(hanging) == 4)
    await rig.polled(5)
    rig.cluster.kill("m3")
    await rig.until(lambda: rig.cluster.running() == items(3, 4))
    assert rig.counts()[f"{step}.error"] == 4
    assert rig.counts()[f"{step}.timeout"] == 0
    await rig.close()


async def test_an_eviction_that_fails_is_tried_again() -> None:
    rig = Rig(plan(evict=True))
    await rig.stage()
    rig.cluster.fail = failing(2, "evict", "quorum")
    rig.cluster.kill("m3")
    await rig.until(lambda: rig.counted("repaired") == 4)
    counts = rig.counts()
    assert (counts["evict.error"], counts["evict.ok"]) == (2, 1)
    assert rig.counted("retry") == 2
    assert {(e["operation"], e["kind"]) for e in rig.told("retry")} == {("evict", "quorum")}
    await rig.close()


async def test_what_cannot_be_told_to_run_on_a_member_that_is_online_is_neither_lost_nor_started() -> None:
    rig = Rig(plan())
    await rig.stage()
    for box in rig.cluster.boxes.values():
        box.unclear = True
    lists = rig.cluster.count("list-group")
    await rig.until(lambda: rig.cluster.count("list-group") >= lists + 12)
    assert rig.told("lost") == []
    assert rig.held == 12
    assert rig.loads[0].gauge.up
    for box in rig.cluster.boxes.values():
        box.unclear = False
    await rig.until(lambda: rig.cluster.count("list-group") >= lists + 24)
    assert rig.cluster.count("start") == rig.cluster.count("create") == 12
    await rig.close()


async def test_a_member_that_is_offline_for_a_moment_loses_nothing() -> None:
    rig = Rig(plan(offline_polls=1000))
    await rig.stage()
    rig.cluster.kill("m1")
    await rig.until(lambda: "offline" in rig.statuses("m1"))
    await rig.polled(5)
    assert rig.held == 12
    assert rig.cluster.count("start") == 12
    rig.cluster.members["m1"] = True
    await rig.until(lambda: rig.cluster.running() == items(3, 4))
    assert rig.told("lost") == []
    assert rig.cluster.count("create") == 12
    await rig.close()


async def test_what_is_half_made_on_a_member_that_went_offline_is_left_alone_meanwhile() -> None:
    cluster = Cluster()
    never = asyncio.Event()
    cluster.hold_list = lambda group: never.wait() if cluster.count("start") else None

    def fail(called: str, item: Item | None) -> SpawnFailed | None:
        if called == "start" and item in on(cluster, "m2"):
            cluster.members["m2"] = False
            return SpawnFailed("Missing event connection with target cluster member", "unreachable")
        return None

    cluster.fail = fail
    rig = Rig(plan(offline_polls=1000, until="started"), cluster)
    await rig.begin()
    await rig.until(lambda: "offline" in rig.statuses("m2") and rig.held + len(on(cluster, "m2")) == 12)
    await rig.polled(10)
    tried = cluster.count("start")
    await rig.polled(20)
    assert cluster.count("start") == tried
    never.set()
    cluster.fail = lambda called, item: None
    cluster.members["m2"] = True
    await rig.up()
    assert cluster.running() == items(3, 4)
    await rig.close()


async def test_when_the_quorum_is_lost_nothing_is_concluded() -> None:
    """Given lists of members and of groups that fail, then all is as it was, and goes on when they answer again."""
    rig = Rig(plan())
    await rig.stage()
    calls = rig.cluster.count("create"), rig.cluster.count("start")
    rig.cluster.fail = lambda called, on: SpawnFailed("no available dqlite leader server found", "quorum")
    failed = rig.cluster.count("members")
    await rig.until(lambda: rig.cluster.count("members") >= failed + 6)
    assert rig.held == 12
    assert rig.loads[0].gauge.up
    assert rig.told("lost") == []
    assert (rig.cluster.count("create"), rig.cluster.count("start")) == calls
    assert rig.loads[0].errors["poll", "error", "no available dqlite leader server found"] >= 5
    rig.cluster.fail = lambda called, on: None
    del rig.cluster.boxes[Item(0, 0)]
    await rig.until(lambda: rig.counted("repaired") == 1)
    await rig.close()


async def test_a_stage_waits_until_it_is_known_who_is_there() -> None:
    cluster = Cluster(fail=failing(3, "members", "quorum"))
    rig = Rig(plan(), cluster)
    await rig.begin()
    await rig.until(lambda: cluster.count("members") == 3)
    assert cluster.count("create") == cluster.count("list-group") == 0
    await rig.up()
    assert cluster.running() == items(3, 4)
    await rig.close()


async def test_who_leads_is_told_at_first_and_at_each_change() -> None:
    rig = Rig(plan(concurrency=8), workers=2)
    await rig.stage()
    rig.cluster.leader = "m3"
    await rig.until(lambda: len(rig.told("leader")) == 2)
    assert rig.told("leader") == [{"member": "m1"}, {"member": "m3"}]
    await rig.close()


async def test_with_no_member_online_to_take_things_a_stage_waits_for_one() -> None:
    cluster = Cluster(members={"m1": False})
    rig = Rig(plan(), cluster)
    await rig.begin()
    await rig.until(lambda: rig.counted("retry"))
    assert {event["kind"] for event in rig.told("retry")} == {"unreachable"}
    cluster.members["m1"] = True
    await rig.up()
    assert cluster.running() == items(3, 4)
    await rig.close()


# -- whatever happens ------------------------------------------------------------------------------

_KINDS = ("locked", "quorum", "unreachable", "busy", "timeout", "other")
_ITEMS = st.builds(Item, st.integers(0, 2), st.integers(0, 4))
_BOXES = st.builds(Box, st.sampled_from(["m1", "m2", "m3"]), st.booleans())


@examples(60)
@given(
    there=st.dictionaries(_ITEMS, _BOXES, max_size=10),
    failures=st.lists(
        st.tuples(st.integers(0, 60), st.sampled_from(_KINDS), st.booleans()),
        max_size=12,
        unique_by=lambda f: f[0],
    ),
    vanishing=st.lists(st.tuples(st.integers(0, 40), _ITEMS), max_size=5),
    dies=st.none() | st.integers(0, 40),
    evict=st.booleans(),
    stage=st.tuples(st.integers(0, 3), st.integers(0, 4)),
    until=st.sampled_from(["created", "started", "reachable", "probed"]),
    pace=st.sampled_from([{"concurrency": 3}, {"batch": 3}, {"rate": 1000}]),
    workers=st.integers(1, 3),
)
async def test_from_any_state_and_with_any_failures_the_goal_is_reached_and_nothing_is_there_twice(
    there: dict[Item, Box],
    failures: list[tuple[int, str, bool]],
    vanishing: list[tuple[int, Item]],
    dies: int | None,
    evict: bool,
    stage: tuple[int, int],
    until: str,
    pace: dict[str, int],
    workers: int,
) -> None:
    cluster = Cluster(boxes={item: Box(box.member, box.running, box.running) for item, box in there.items()})
    before = {number: kind for number, kind, after in failures if not after}
    after = {number: kind for number, kind, late in failures if late}

    def fail(called: str, on: Item | None) -> SpawnFailed | None:
        number = len(cluster.calls)
        for moment, item in vanishing:
            if moment == number and cluster.members.get("m3"):
                cluster.boxes.pop(item, None)
        if number == dies:
            cluster.kill("m2")
        return SpawnFailed("no", before[number]) if number in before else None  # type: ignore[arg-type]

    def fail_after(called: str, on: Item | None) -> SpawnFailed | None:
        kind = after.pop(len(cluster.calls), None)
        return SpawnFailed("no", kind) if kind else None  # type: ignore[arg-type]

    cluster.fail, cluster.fail_after = fail, fail_after
    rig = Rig(
        plan_of(
            [(3, 5), stage],
            "round-robin",
            until=until,
            evict=evict,
            offline_polls=2,
            observe_every=0.02,
            **pace,
        ),
        cluster,
        workers,
    )
    await rig.begin(2)
    wanted = items(*stage)

    def reached() -> bool:
        if evict and cluster.members.get("m2") is False:
            return False
        lost = on(cluster, "m2") if not cluster.members.get("m2", True) else set[Item]()
        right = cluster.boxes.keys() - lost == wanted - lost
        run = until == "created" or cluster.running() >= wanted - lost
        return right and run and all(load.gauge.up for load in rig.loads)

    await rig.until(reached)
    await rig.polled(2)
    assert rig.told("gave-up") == []
    created = Counter(item for operation, item in cluster.calls if operation == "create")
    assert created.keys() <= wanted
    await rig.close()


async def test_a_worker_started_anew_goes_on_where_the_one_before_was_killed() -> None:
    cluster = Cluster(hold=lambda called, on: asyncio.sleep(0.002))
    first = Rig(plan(concurrency=3), cluster)
    await first.begin(2)
    await first.until(lambda: cluster.count("start") >= 5)
    await first.close(within=0)
    half = set(cluster.boxes)
    assert half < items(3, 6)
    second = Rig(plan(concurrency=3), cluster, workers=2)
    await second.stage(2)
    assert cluster.running() == items(3, 6)
    assert sum(cluster.created_on.values()) == 18
    await second.close()


async def test_where_things_are_is_not_written_at_each_poll_of_a_large_cluster() -> None:
    """Given 400 members that are polled a hundred times a second, then the number of things on each is not written at
    each poll in which it changed."""
    cluster = Cluster(members={f"m{number}": True for number in range(400)}, leader="m0")
    rig = Rig(plan_of([(1, 60)], concurrency=2), cluster)
    await rig.prepare()
    await rig.begin()
    await rig.up()
    await rig.polled(10)
    assert len(rig.told("placed")) < rig.cluster.count("members") / 2
