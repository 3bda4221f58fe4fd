"""The spawn workload brings a target to what a stage asks for, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from tests.unit.workloads.memory_target import Box, Cluster
from tests.unit.workloads.spawn_rig import Rig, boxes, failing, items, plan_of, spoiling
from tippingpoint.targets.lxd.plan import OBSERVATIONS
from tippingpoint.util import backoff
from tippingpoint.workloads.spawn.target import Exists, Item, SpawnFailed, Trouble

pytestmark = pytest.mark.usefixtures("lists_of_both_kinds")


@pytest.fixture(autouse=True)
def retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(backoff, "LONGEST_RETRY", 0.05)


@pytest.mark.parametrize(
    ("until", "steps"),
    [
        ("created", ["create"]),
        ("started", ["create", "start"]),
        ("reachable", ["create", "start", "reachable"]),
        ("probed", ["create", "start", "reachable", "probe"]),
    ],
)
@pytest.mark.parametrize("pace", [{"concurrency": 3}, {"batch": 4}, {"rate": 500}])
async def test_things_are_brought_as_far_as_the_plan_says(
    until: str, steps: list[str], pace: dict[str, int]
) -> None:
    rig = Rig(plan_of([(3, 4)], until=until, **pace))
    await rig.stage()
    assert rig.cluster.boxes.keys() == items(3, 4)
    assert rig.held == 12
    assert rig.counts() == Counter({f"{step}.ok": 12 for step in [*steps, "launch"]})
    await rig.close()


async def test_groups_are_divided_over_the_workers_and_made_before_the_stages() -> None:
    rig = Rig(plan_of([(1, 2), (5, 2)], concurrency=8), workers=2)
    await rig.prepare()
    assert sorted(group for groups in rig.cluster.prepared for group in groups) == [0, 1, 2, 3, 4]
    await rig.stage(1)
    assert rig.cluster.boxes.keys() == items(1, 2)
    await rig.stage(2)
    assert rig.cluster.boxes.keys() == items(5, 2)
    assert rig.cluster.count("create") == 10
    assert [load.gauge.held for load in rig.loads] == [6, 4]
    await rig.close()


async def test_a_stage_with_less_removes_what_is_too_much() -> None:
    rig = Rig(plan_of([(3, 4), (2, 3), (1, 0)], concurrency=2))
    await rig.stage(1)
    rig.counts()
    await rig.begin(2)
    assert (rig.held, rig.loads[0].gauge.waiting) == (12, 6)
    await rig.up()
    assert rig.cluster.boxes.keys() == items(2, 3)
    assert rig.counts() == {"delete.ok": 6}
    assert rig.cluster.most_at_once["delete"] == 2
    await rig.stage(3)
    assert rig.cluster.boxes == {}
    assert rig.held == 0
    assert rig.told("lost") == []
    await rig.close()


async def test_a_run_that_is_taken_up_makes_only_what_is_missing() -> None:
    """Given things that run, one half made, and one too many, then these are left, started and removed."""
    cluster = Cluster()
    boxes(cluster, 2, 2)
    cluster.boxes[Item(0, 2)] = Box("m2")
    cluster.boxes[Item(1, 7)] = Box("m3", running=True)
    rig = Rig(plan_of([(2, 4)]), cluster)
    await rig.stage()
    assert cluster.boxes.keys() == items(2, 4)
    assert cluster.running() == items(2, 4)
    assert rig.counts() == {
        "create.ok": 3, "start.ok": 4, "delete.ok": 1, "reachable.ok": 4, "launch.ok": 3
    }  # fmt: skip
    await rig.close()


async def test_every_group_is_listed_before_anything_is_made() -> None:
    rig = Rig(plan_of([(3, 1)], concurrency=1))
    await rig.stage()
    calls = [operation for operation, _ in rig.cluster.calls if operation != "members"]
    assert calls[:4] == ["list-group", "list-group", "list-group", "create"]
    made = [item for operation, item in rig.cluster.calls if operation == "create"]
    assert made == [Item(0, 0), Item(1, 0), Item(2, 0)]
    await rig.close()


async def test_a_group_that_cannot_be_listed_holds_up_only_itself() -> None:
    cluster = Cluster()
    healed = asyncio.Event()
    cluster.fail = lambda called, on: (
        SpawnFailed("no", "quorum")
        if called == "list-group" and on == Item(1, 0) and not healed.is_set()
        else None
    )
    rig = Rig(plan_of([(2, 2)]), cluster)
    await rig.begin()
    await rig.until(lambda: rig.held == 2)
    assert cluster.boxes.keys() == items(1, 2)
    healed.set()
    await rig.up()
    assert cluster.boxes.keys() == items(2, 2)
    await rig.close()


@pytest.mark.parametrize("pace", [{"concurrency": 1}, {"batch": 2}, {"rate": 500}])
async def test_what_will_never_run_is_removed_and_made_anew(pace: dict[str, int]) -> None:
    """Given a thing that fails for good when it is started, then it is made again, each step is timed as what it is but
    for the removal of what never ran, and nothing counts as lost."""
    cluster = Cluster()
    cluster.fail = spoiling(cluster, Item(0, 1))
    rig = Rig(plan_of([(1, 4)], until="started", **pace), cluster)
    await rig.stage()
    assert rig.counts() == {"create.ok": 5, "start.ok": 4, "start.error": 1, "launch.ok": 4}
    assert cluster.count("delete") == 1
    assert cluster.running() == items(1, 4)
    assert rig.told("lost") == []
    await rig.close()


async def test_what_is_removed_to_be_made_anew_is_not_lost_when_that_fails() -> None:
    cluster = Cluster()
    spoil, refused = spoiling(cluster, Item(0, 1)), failing(1, "create", "full", Item(0, 1))
    cluster.fail = lambda called, on: (
        spoil(called, on) or (refused(called, on) if cluster.count("delete") else None)
    )
    rig = Rig(plan_of([(1, 3)], until="started"), cluster)
    await rig.stage()
    await rig.polled()
    assert cluster.boxes.keys() == {Item(0, 0), Item(0, 2)}
    assert rig.counted("gave-up") == 1
    assert rig.told("lost") == []
    await rig.close()


async def test_what_runs_after_all_is_left_in_peace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a thing that was given up as one that will never run, and that a list then shows running, then it is not
    removed."""
    monkeypatch.setattr(backoff, "FIRST_RETRY", 60.0)
    monkeypatch.setattr(backoff, "LONGEST_RETRY", 60.0)

    cluster = Cluster()

    def late(called: str, on: Item | None) -> SpawnFailed | None:
        if called != "start" or on != Item(0, 0):
            return None
        cluster.failed.add(on)
        cluster.boxes[on].running = True
        return SpawnFailed("no answer in time", "timeout")

    cluster.fail = late
    rig = Rig(plan_of([(1, 2)], until="started", concurrency=2), cluster)
    await rig.stage()
    assert cluster.count("delete") == 0
    assert cluster.count("create") == 2
    await rig.close()


# -- pace ------------------------------------------------------------------------------------------


async def test_no_more_than_so_many_are_made_at_once_by_all_workers() -> None:
    cluster = Cluster(hold=lambda called, on: asyncio.sleep(0.005))
    rig = Rig(plan_of([(4, 5)], concurrency=3), cluster, workers=2)
    await rig.stage()
    assert cluster.most_at_once["create"] <= 3
    assert cluster.most_at_once["start"] <= 3
    assert cluster.count("create") == 20
    await rig.close()


async def test_the_next_batch_waits_for_all_of_the_one_before() -> None:
    cluster = Cluster()
    gate = asyncio.Event()
    cluster.hold = lambda called, on: gate.wait() if called == "start" and on == Item(0, 0) else None
    rig = Rig(plan_of([(1, 6)], batch=3), cluster)
    await rig.begin()
    await rig.until(lambda: rig.held == 2)
    await rig.polled()
    assert cluster.count("create") == 3
    gate.set()
    await rig.up()
    assert cluster.count("create") == 6
    await rig.close()


async def test_a_retry_waits_outside_of_its_slot() -> None:
    cluster = Cluster(fail=failing(1, "create", item=Item(0, 0)))
    rig = Rig(plan_of([(1, 3)], concurrency=1, until="created"), cluster)
    await rig.stage()
    made = [on for operation, on in cluster.calls if operation == "create" and on is not None]
    assert made[:2] == [Item(0, 0), Item(0, 1)]
    assert Counter(made) == {Item(0, 0): 2, Item(0, 1): 1, Item(0, 2): 1}
    await rig.close()


async def test_in_an_open_loop_a_target_that_hangs_holds_nothing_up() -> None:
    gate = asyncio.Event()
    cluster = Cluster(hold=lambda called, on: gate.wait() if called == "create" else None)
    rig = Rig(plan_of([(2, 10)], rate=1000), cluster)
    await rig.begin()
    await rig.until(lambda: cluster.at_once["create"] == 20)
    gate.set()
    await rig.up()
    await rig.close()


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["create", "start", "probe", "delete"])
async def test_what_fails_is_tried_again_and_counted(operation: str) -> None:
    cluster = Cluster(fail=failing(2, operation, "locked"))
    boxes(cluster, 2, 1)
    rig = Rig(plan_of([(1, 2), (2, 2)], until="probed"), cluster)
    await rig.begin()
    await rig.until(lambda: cluster.boxes.keys() == items(1, 2) and rig.loads[0].gauge.up)
    assert {(event["operation"], event["kind"]) for event in rig.told("retry")} == {(operation, "locked")}
    assert rig.counted("retry") == 2
    assert rig.told("gave-up") == []
    counts = rig.counts()
    assert counts[f"{operation}.error"] == 2
    assert counts["launch.ok"] == 1
    assert rig.loads[0].errors[operation, "error", "locked it is"] == 2
    await rig.close()


@pytest.mark.parametrize(
    ("kind", "tries"), [("trust", 1), ("setting", 1), ("full", 1), ("quota", 1), ("image", 1), ("other", 4)]
)
async def test_what_does_not_pass_is_given_up_in_the_end(kind: Trouble, tries: int) -> None:
    """Given a thing that can never be made, then the stage is up without it, and its launch has failed."""
    cluster = Cluster(fail=failing(1000, "create", kind, Item(0, 1)))
    rig = Rig(plan_of([(1, 3)]), cluster)
    await rig.stage()
    assert cluster.boxes.keys() == {Item(0, 0), Item(0, 2)}
    assert rig.told("gave-up") == [
        {"operation": "create", "kind": kind, "count": 1, "error": f"{kind} it is"}
    ]
    assert rig.counted("retry") == tries - 1
    counts = rig.counts()
    assert (counts["create.error"], counts["launch.error"], counts["launch.ok"]) == (tries, 1, 2)
    assert rig.loads[0].gauge.waiting == 0
    await rig.close()


async def test_the_next_stage_tries_again_what_was_given_up() -> None:
    cluster = Cluster(fail=failing(1, "create", "full"))
    rig = Rig(plan_of([(1, 2), (1, 3)]), cluster)
    await rig.stage(1)
    assert len(cluster.boxes) == 1
    await rig.stage(2)
    assert cluster.boxes.keys() == items(1, 3)
    await rig.close()


async def test_the_plan_says_how_often_is_tried_again() -> None:
    cluster = Cluster(fail=failing(1000, "start", "locked"))
    rig = Rig(plan_of([(1, 1)], retries={"locked": 2}), cluster)
    await rig.stage()
    assert cluster.count("start") == 3
    assert rig.counted("gave-up") == 1
    await rig.close()


async def test_a_launch_lasts_from_when_it_was_due_over_all_its_tries() -> None:
    cluster = Cluster()
    cluster.fail = failing(2, "create")
    cluster.hold = lambda called, on: asyncio.sleep(0.05) if called == "create" else None
    rig = Rig(plan_of([(1, 1)], until="created"), cluster)
    await rig.stage()
    recorded = rig.recorded()
    assert recorded["launch.ok"].min >= 150_000
    assert recorded["create.ok"].max < recorded["launch.ok"].min
    await rig.close()


async def test_what_takes_too_long_is_cancelled_and_tried_again() -> None:
    cluster = Cluster()
    never = asyncio.Event()
    hang = [1]

    def hold(called: str, on: Item | None) -> Any:
        if called == "start" and hang[0]:
            hang[0] -= 1
            return never.wait()
        return None

    cluster.hold = hold
    rig = Rig(plan_of([(1, 1)], until="started", timeout=0.5), cluster)
    await rig.stage()
    counts = rig.counts()
    assert (counts["start.timeout"], counts["start.ok"], counts["launch.ok"]) == (1, 1, 1)
    assert [(e["operation"], e["kind"]) for e in rig.told("retry")] == [("start", "timeout")]
    await rig.close()


async def test_an_address_that_does_not_come_is_a_timeout_and_given_up_in_the_end() -> None:
    cluster = Cluster(addresses=False)
    rig = Rig(plan_of([(1, 2)], timeout=0.05, retries={"timeout": 1}), cluster)
    await rig.stage()
    counts = rig.counts()
    assert (counts["reachable.timeout"], counts["launch.timeout"]) == (4, 2)
    assert rig.counted("gave-up") == 2
    assert cluster.count("start") == 2
    await rig.close()


async def test_a_create_whose_answer_is_lost_makes_no_second_thing() -> None:
    """Given a create that took effect but failed, then the next is answered that it is there, which is no failure."""
    cluster = Cluster(fail_after=failing(1, "create", "unreachable"))
    rig = Rig(plan_of([(1, 1)]), cluster)
    listing = asyncio.Event()
    cluster.hold = lambda called, on: (
        listing.wait() if called == "list-group" and cluster.count("create") == 1 else None
    )
    await rig.begin()
    await rig.until(lambda: cluster.count("create") >= 1)
    await rig.until(lambda: cluster.count("create") == 2 or cluster.count("start"))
    listing.set()
    await rig.up()
    counts = rig.counts()
    assert counts["create.error"] == 1
    assert counts["launch.ok"] == 1
    assert sum(cluster.created_on.values()) == 1
    assert rig.told("lost") == []
    await rig.close()


async def test_a_thing_that_is_said_to_be_there_and_never_listed_is_given_up() -> None:
    cluster = Cluster(fail=lambda called, on: Exists("it exists") if called == "create" else None)
    rig = Rig(plan_of([(1, 1)], retries={"busy": 2}), cluster)
    await rig.stage()
    assert cluster.count("create") == 3
    assert rig.counts() == {"create.denied": 3, "launch.error": 1}
    (gave_up,) = rig.told("gave-up")
    assert gave_up["kind"] == "busy"
    await rig.close()


async def test_what_vanishes_before_it_is_started_is_made_again() -> None:
    cluster = Cluster()
    vanish = [1]

    def fail(called: str, on: Item | None) -> None:
        if called == "start" and vanish[0] and on is not None:
            vanish[0] -= 1
            del cluster.boxes[on]

    cluster.fail = fail
    rig = Rig(plan_of([(1, 2)]), cluster)
    await rig.stage()
    assert cluster.running() == items(1, 2)
    counts = rig.counts()
    assert (counts["start.denied"], counts["create.ok"], counts["launch.ok"]) == (1, 3, 2)
    assert rig.counted("lost") == rig.counted("repaired") == 1
    await rig.close()


async def test_what_goes_wrong_in_the_code_is_a_failure_and_no_traceback() -> None:
    bad = [KeyError("metadata")]
    cluster = Cluster(fail=lambda called, on: bad.pop() if called == "create" and bad else None)
    rig = Rig(plan_of([(1, 1)]), cluster)
    await rig.stage()
    assert rig.loads[0].errors["create", "error", "KeyError: 'metadata'"] == 1
    await rig.close()


# -- kept up ---------------------------------------------------------------------------------------


async def test_what_is_lost_while_it_is_kept_is_made_again_and_counted() -> None:
    cluster = Cluster()
    rig = Rig(plan_of([(2, 3)], observe_every=0.02), cluster)
    await rig.stage()
    on = cluster.boxes.pop(Item(0, 1)).member
    cluster.boxes.pop(Item(1, 1))
    await rig.until(lambda: rig.counted("repaired") == 2)
    assert cluster.running() == items(2, 3)
    assert rig.counted("lost") == 2
    assert on in {event["member"] for event in rig.told("lost")}
    assert rig.held == 6
    await rig.close()


async def test_what_has_stopped_is_started_again_and_not_lost() -> None:
    cluster = Cluster()
    rig = Rig(plan_of([(1, 3)], observe_every=0.02), cluster)
    await rig.stage()
    cluster.boxes[Item(0, 2)].running = False
    await rig.until(lambda: cluster.running() == items(1, 3))
    await rig.up()
    assert cluster.count("create") == 3
    assert rig.told("lost") == []
    await rig.close()


async def test_without_repair_what_is_lost_stays_lost_and_the_stage_is_up_without_it() -> None:
    cluster = Cluster()
    rig = Rig(plan_of([(1, 3), (1, 4)], observe_every=0.02, repair=False), cluster)
    await rig.stage(1)
    del cluster.boxes[Item(0, 0)]
    cluster.boxes[Item(0, 1)].running = False
    await rig.until(lambda: rig.counted("lost") == 1 and rig.held == 1)
    await rig.stage(2)
    assert cluster.boxes.keys() == items(1, 4) - {Item(0, 0)}
    assert cluster.running() == {Item(0, 2), Item(0, 3)}
    await rig.close()


async def test_a_group_that_is_as_wanted_is_listed_seldom_and_without_addresses() -> None:
    rig = Rig(plan_of([(3, 2)]))
    await rig.stage()
    await rig.polled(2)
    rig.cluster.listed.clear()
    await rig.polled(20)
    assert len(rig.cluster.listed) <= 3
    assert not any(addresses for _, addresses in rig.cluster.listed)
    await rig.close()


async def test_a_group_is_listed_once_a_tick_at_most_and_with_addresses_only_while_one_is_awaited() -> None:
    """Given a thing that waits for its address in one of two groups, then only that one is listed with addresses."""
    cluster = Cluster(addresses=False)
    boxes(cluster, 2, 1)
    cluster.boxes[Item(0, 0)].has_address = False
    rig = Rig(plan_of([(2, 1)]), cluster)
    await rig.begin()
    await rig.polled(3)
    cluster.listed.clear()
    polls = cluster.count("members")
    await rig.polled(20)
    ticks = cluster.count("members") - polls
    assert {listed for listed in cluster.listed if listed[0] == 0} == {(0, True)}
    assert sum(group == 0 for group, _ in cluster.listed) <= ticks * 1.5 + 2
    assert sum(group == 1 for group, _ in cluster.listed) <= 1
    cluster.boxes[Item(0, 0)].has_address = True
    await rig.up()
    await rig.close()


async def test_a_list_that_was_asked_for_before_a_things_step_ended_says_nothing_of_it() -> None:
    """Given a list that does not show a thing, which is made before the list is answered, then it is not lost."""

    async def _second(asked: list[int]) -> None:
        while len(asked) < 2:  # noqa: ASYNC110 - what it waits for is the target's
            await asyncio.sleep(0.001)

    answer = asyncio.Event()
    asked: list[int] = []

    def hold_list(group: int) -> Any:
        asked.append(group)
        return answer.wait() if len(asked) == 2 else None

    cluster = Cluster(hold_list=hold_list)
    cluster.hold = lambda called, on: None if called != "create" or len(asked) >= 2 else _second(asked)
    rig = Rig(plan_of([(1, 1)], until="started"), cluster)
    await rig.begin()
    await rig.until(lambda: rig.held == 1 and len(asked) == 2)
    answer.set()
    await rig.polled(10)
    assert rig.told("lost") == []
    assert rig.counts() == {"create.ok": 1, "start.ok": 1, "launch.ok": 1}
    await rig.close()


async def test_what_comes_to_be_there_while_it_waits_for_its_turn_has_one_turn() -> None:
    """Given a thing that somebody else makes while it waits, then it is started once, by one of two free slots."""
    others, start = asyncio.Event(), asyncio.Event()

    def hold(called: str, on: Item | None) -> Any:
        if called == "create":
            return others.wait()
        return start.wait() if called == "start" and on == Item(0, 2) else None

    cluster = Cluster(hold=hold)
    rig = Rig(plan_of([(1, 3)], concurrency=2, until="started"), cluster)
    await rig.begin()
    await rig.until(lambda: cluster.at_once["create"] == 2)
    cluster.boxes[Item(0, 2)] = Box("m1")
    await rig.polled(5)
    others.set()
    await rig.until(lambda: rig.held == 2)
    start.set()
    await rig.up()
    assert rig.counts() == {"create.ok": 2, "start.ok": 3, "launch.ok": 2}
    await rig.close()


# -- observations, and the end -----------------------------------------------------------------------


async def test_the_first_worker_asks_for_what_users_ask_for_while_things_are_made_and_kept() -> None:
    cluster = Cluster()
    rig = Rig(plan_of([(2, 2)], observe_every=0.05), cluster, workers=2)
    await rig.stage()
    await rig.until(lambda: {what for what, _ in cluster.observed} == set(OBSERVATIONS))
    await rig.until(lambda: any(what == "exec" and on in items(2, 2) for what, on in cluster.observed))
    await asyncio.sleep(0)
    counts = rig.counts()
    assert {f"{what}.ok" for what in OBSERVATIONS} - counts.keys() <= {"exec.ok"}
    await rig.close()


async def test_what_there_is_nothing_to_observe_of_is_not_counted() -> None:
    cluster = Cluster()
    rig = Rig(plan_of([(1, 0)], observe_every=0.03), cluster)
    await rig.stage()
    await rig.until(lambda: sum(what == "exec" for what, _ in cluster.observed) >= 2)
    counts = rig.counts()
    assert "exec.ok" not in counts
    assert counts["list.ok"] >= 1
    await rig.close()


async def test_an_observation_that_hangs_holds_up_neither_the_next_nor_the_things() -> None:
    never = asyncio.Event()
    cluster = Cluster(hold=lambda called, on: never.wait() if called == "list-fast" else None)
    rig = Rig(plan_of([(1, 2)], observe_every=0.03, timeout=0.2), cluster)
    await rig.stage()
    await rig.until(lambda: cluster.at_once["list-fast"] >= 3)
    await rig.until(lambda: rig.counts()["list-fast.timeout"])
    await rig.close()


async def test_at_the_end_what_has_no_answer_has_timed_out_and_the_next_stage_begins_from_lists() -> None:
    cluster = Cluster()
    never = asyncio.Event()
    cluster.hold = lambda called, on: never.wait() if called == "start" and on == Item(0, 0) else None
    rig = Rig(plan_of([(1, 3)], concurrency=1), cluster)
    await rig.begin()
    await rig.until(lambda: cluster.at_once["start"] == 1)
    (load,) = rig.loads
    load.stop()
    await load.drain(0.05)
    counts = rig.counts()
    assert (counts["start.timeout"], counts["launch.timeout"]) == (1, 1)
    assert load.gauge.in_flight == 0
    assert cluster.count("create") == 1
    never.set()
    await rig.stage()
    assert cluster.running() == items(1, 3)
    assert cluster.count("create") == 3
    await rig.close()
    assert rig.targets[0].closed


async def test_a_stage_that_begins_while_things_are_under_way_goes_on_from_there() -> None:
    cluster = Cluster(hold=lambda called, on: asyncio.sleep(0.02))
    rig = Rig(plan_of([(2, 6), (1, 2), (2, 4)], concurrency=3), cluster)
    await rig.begin(1)
    await rig.until(lambda: cluster.count("create") >= 4)
    await rig.begin(2)
    await rig.until(lambda: cluster.count("delete") >= 1 or rig.loads[0].gauge.up)
    await rig.stage(3)
    assert cluster.running() == items(2, 4)
    assert cluster.boxes.keys() == items(2, 4)
    await rig.close()
