"""Which processors a target gets, and which are left to what loads it."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.places import Places, on_processors, split
from tippingpoint.errors import UserError

MACHINES = st.sets(st.integers(0, 255), min_size=1, max_size=64)


@given(usable=MACHINES, members=st.integers(0, 10))
def test_target_and_others_share_a_machine_out_and_the_target_has_most_of_it(
    usable: set[int], members: int
) -> None:
    places = split(usable, members)
    assert {*places.target, *places.others} == usable
    assert places.apart == (len(usable) > 1)
    assert len(places.target) >= len(places.others) > 0


@given(usable=MACHINES, members=st.integers(1, 10))
def test_members_have_processors_of_their_own_where_there_is_one_for_each(
    usable: set[int], members: int
) -> None:
    places = split(usable, members)
    each = [places.of_member(number) for number in range(members)]
    if len(places.target) < members:
        assert each == [places.target] * members
    else:
        assert len({len(one) for one in each}) == 1
        taken = [processor for one in each for processor in one]
        assert len(set(taken)) == len(taken) > 0
        assert set(taken) <= set(places.target)
    # and one that joins later has those of an earlier one
    assert places.of_member(members) == each[0]


@given(usable=MACHINES)
def test_a_user_says_which_the_target_gets_and_all_others_are_left(usable: set[int]) -> None:
    wanted = sorted(usable)[:: 1 + len(usable) // 3]
    places = split(usable, cpus=",".join(map(str, wanted)))
    assert list(places.target) == wanted
    assert set(places.others) == (usable - set(wanted) or usable)


@pytest.mark.parametrize(
    ("usable", "members", "cpus", "target", "others"),
    [
        ({0, 1}, 3, None, (1,), (0,)),
        ({0, 1, 2, 3}, 3, None, (1, 2, 3), (0,)),
        (range(8), 3, None, (2, 3, 4, 5, 6, 7), (0, 1)),
        ({5}, 3, None, (5,), (5,)),
        (range(4), 3, "1-3", (1, 2, 3), (0,)),
        (range(4), 3, "0,2-3", (0, 2, 3), (1,)),
        ({0, 1}, 3, "0-1", (0, 1), (0, 1)),
        ({0, 2, 4}, 1, "0-2", (0, 2), (4,)),
    ],
)
def test_machines_and_what_they_are_split_into(
    usable: set[int], members: int, cpus: str | None, target: tuple[int, ...], others: tuple[int, ...]
) -> None:
    places = split(usable, members, cpus)
    assert (places.target, places.others) == (target, others)


@pytest.mark.parametrize("cpus", ["", "9", "1-9", "one", "1-", "-1", "2-1", "1,,2", "1;2", "²"])
def test_what_names_no_processors_of_the_machine_is_refused_in_one_line(cpus: str) -> None:
    with pytest.raises(UserError) as refusal:
        split({0, 1, 2, 3}, cpus=cpus)
    assert refusal.value.field == "--cpus"
    assert refusal.value.accepted == "some of processors 0 to 3, such as 1,2,3"


@pytest.mark.parametrize(
    ("places", "words"),
    [
        (Places((1, 2, 3), (0,)), "the target runs on processors 1 to 3, and what loads it on processor 0"),
        (Places((0,), (0,)), "nothing is placed: there is one processor only"),
        (Places((0, 1), (0, 1)), "nothing is placed: the target and what loads it share processors 0 and 1"),
    ],
)
def test_people_are_told_where_what_runs(places: Places, words: str) -> None:
    assert places.sentence().startswith(words)


def test_the_answer_has_living_members_only_and_where_the_kernel_has_them() -> None:
    places = Places.everywhere()
    answer = places.answer({"m1": os.getpid(), "m2": None, "m3": 1 << 30})
    ours = sorted(os.sched_getaffinity(0))
    assert answer == {"target": ours, "members": {"m1": ours}, "others": ours}


def test_a_thread_is_bound_for_as_long_as_it_asks() -> None:
    seen: list[set[int]] = []

    def look() -> None:
        ours = os.sched_getaffinity(0)
        with on_processors({min(ours)}):
            seen.append(os.sched_getaffinity(0))
        seen.append(os.sched_getaffinity(0))

    before = os.sched_getaffinity(0)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [{min(before)}, before]
