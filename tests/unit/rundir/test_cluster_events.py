"""A cluster's members as a run's events tell of them, and whether creation slows down as it fills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.made.lxd_runs import FILL_PLAN, Fill, write_fill
from tippingpoint.analysis.fill_rate import fill_words, fills_of
from tippingpoint.rundir.cluster_events import Cluster, read_cluster
from tippingpoint.rundir.results import RunData, load_run


def told(worker: str, t: float, status: str, containers: int = 0, member: str = "m1") -> dict[str, Any]:
    fields = {"member": member, "status": status, "containers": containers}
    return {"t": t, "event": "member", "worker": worker, **fields}


def statuses(cluster: Cluster, name: str = "m1") -> list[tuple[str, float, int]]:
    (member,) = (member for member in cluster.members if member.name == name)
    return [(change.status, change.t, change.things) for change in member.changes]


def test_what_two_workers_saw_of_a_member_is_one_change_with_the_things_of_both() -> None:
    # given two workers, the second of which looks a moment later and sees the loss when the first sees the return
    events = [
        *(told(worker, t, "online") for worker, t in (("0", 0.1), ("1", 0.4))),
        told("0", 10.0, "offline", 8),
        told("0", 15.0, "lost", 8),
        told("1", 15.2, "offline", 7),
        told("0", 20.0, "back"),
        told("1", 20.1, "lost", 7),
        told("1", 25.0, "back"),
    ]
    assert statuses(read_cluster(events)) == [
        ("online", 0.1, 0),
        ("offline", 10.0, 15),
        ("lost", 15.0, 15),
        ("back", 20.0, 0),
    ]


def test_a_member_that_leaves_twice_is_told_twice() -> None:
    events = [
        told(worker, t, status)
        for t, status in enumerate(("online", "offline", "online", "offline"))
        for worker in "01"
    ]
    assert [status for status, _, _ in statuses(read_cluster(events))] == [
        *("online", "offline", "online", "offline")
    ]


def test_things_on_members_and_losses_are_summed_over_workers() -> None:
    events = [
        {"t": 1.0, "event": "placed", "worker": "0", "counts": {"m1": 2, "m2": 1}},
        {"t": 2.0, "event": "placed", "worker": "1", "counts": {"m2": 3}},
        {"t": 3.0, "event": "lost", "worker": "0", "member": "m1", "count": 2},
        {"t": 3.1, "event": "lost", "worker": "1", "member": "m1", "count": 1},
        {"t": 4.0, "event": "placed", "worker": "0", "counts": {"m1": 0, "m2": 3}},
    ]
    cluster = read_cluster(events)
    assert [cluster.things(t) for t in (0.5, 1.5, 2.0, 9.0)] == [
        {},
        {"m1": 2, "m2": 1},
        {"m1": 2, "m2": 4},
        {"m2": 6},
    ]
    assert {member.name: member.lost for member in cluster.members} == {"m1": 3, "m2": 0}


def test_who_leads_is_told_once_for_each_change() -> None:
    events = [
        {"t": t, "event": "leader", "worker": worker, "member": member}
        for t, worker, member in ((0.0, "0", "m1"), (0.2, "1", "m1"), (9.0, "0", "m2"), (9.4, "1", "m2"))
    ]
    cluster = read_cluster(events)
    assert cluster.leaders == [(0.0, "m1"), (9.0, "m2")]
    assert {member.name: member.led for member in cluster.members} == {"m1": [0.0], "m2": [9.0]}


def test_members_are_in_the_order_of_their_numbers() -> None:
    events = [told("0", 0.0, "online", member=name) for name in ("lxd10", "lxd9", "a", "lxd1", "")]
    assert [member.name for member in read_cluster(events).members] == ["", "a", "lxd1", "lxd9", "lxd10"]


@pytest.mark.parametrize(
    "event",
    [
        {"event": "member"},
        {"event": "placed", "counts": ["m1"]},
        {"event": "placed", "counts": {"m1": "many"}},
        {"event": "lost", "lease": 4},
        {"event": "lost", "member": 4, "count": None},
        {"event": "leader"},
    ],
)
def test_damaged_events_are_survived(event: dict[str, Any]) -> None:
    cluster = read_cluster([{"t": 1.0, **event}])
    assert cluster.things(2.0) == {}
    assert sum(member.lost for member in cluster.members) == 0


# ---- filling ------------------------------------------------------------------------------------


def filled(path: Path, *stages: Fill, slower: float) -> RunData:
    """As fast as 2/s when there are none, and slower by that factor when there are 300."""
    rate = lambda there: 2 / (1 + (slower - 1) * there / 300)  # noqa: E731
    return load_run(write_fill(path / "run", stages, per_second=rate, plan=FILL_PLAN))


def test_creation_that_slows_down_is_said_to_and_by_how_much(tmp_path: Path) -> None:
    run = filled(tmp_path, Fill(100), Fill(300), slower=6)
    (fill,) = fills_of(run, read_cluster(run.events))
    assert (fill.members, fill.made, fill.slower) == (3, 300, True)
    # A third of the way up it is 1 + 5/6 times as slow on the average, in the last third 5 + 1/6 times.
    assert fill.first / fill.last == pytest.approx(2.8, rel=0.1)
    assert fill_words(fill, alone=True).startswith("Creation slows down: 1.1/s for the first third of 300 ")


def test_what_was_found_when_a_part_was_taken_up_was_made_by_nobody(tmp_path: Path) -> None:
    taken = {"t": 0.0, "event": "taken-up", "stage": 1, "after": 9.0, "there": 200, "again": True}
    run = load_run(write_fill(tmp_path / "run", [Fill(300)], plan=FILL_PLAN, events=[taken]))
    (fill,) = fills_of(run, read_cluster(run.events))
    assert fill.made == 100


def test_a_steady_rate_is_not_called_a_slow_down(tmp_path: Path) -> None:
    run = filled(tmp_path, Fill(300), slower=1)
    (fill,) = fills_of(run, read_cluster(run.events))
    assert not fill.slower
    assert fill.low < 1 < fill.high
    assert fill_words(fill, alone=True).startswith("It is uncertain whether creation slows down: 2/s")


def test_a_steady_rate_of_many_keeps_its_pace(tmp_path: Path) -> None:
    rate = lambda _: 20.0  # noqa: E731
    run = load_run(write_fill(tmp_path / "run", [Fill(2400)], per_second=rate))
    (fill,) = fills_of(run, read_cluster(run.events))
    assert fill_words(fill, alone=True).startswith(
        "Creation keeps its pace: 20/s for the first third of 2,400 "
    )


def test_few_containers_say_nothing_of_a_slow_down(tmp_path: Path) -> None:
    run = filled(tmp_path, Fill(20), slower=100)
    (fill,) = fills_of(run, read_cluster(run.events))
    assert not fill.slower
    assert "20 containers were created" in fill_words(fill, alone=True)
    assert "too few to show" in fill_words(fill, alone=True)


def test_what_was_made_on_more_members_is_told_by_itself(tmp_path: Path) -> None:
    stages = [Fill(60), Fill(0, kind="destroy"), Fill(60, members=5)]
    run = load_run(write_fill(tmp_path / "run", stages, unit="members"))
    fills = fills_of(run, read_cluster(run.events))
    assert [(fill.members, fill.made) for fill in fills] == [(3, 60), (5, 60)]
    assert fill_words(fills[1], alone=False).startswith("With 5 members: ")


def test_a_loss_in_mid_fill_takes_nothing_from_what_was_made(tmp_path: Path) -> None:
    # given a fill that goes on in a stage of its own after a member was lost
    run = filled(tmp_path, Fill(60, lose="lxd2"), Fill(90), slower=1)
    (fill,) = fills_of(run, read_cluster(run.events))
    # then what was made while stages were brought up is all that counts
    assert fill.made == 90
