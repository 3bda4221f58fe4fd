"""How many more containers fit on members, given what each has room for."""

from __future__ import annotations

import pytest

from tippingpoint.targets.lxd.capacity import MemberCapacity, fitting


def members(*capacities: tuple[int, int]) -> list[MemberCapacity]:
    """Members that have so many containers and memory for so many more."""
    return [
        MemberCapacity(f"m{n}", there, {"memory": more})
        for n, (there, more) in enumerate(capacities, start=1)
    ]


@pytest.mark.parametrize(
    ("capacities", "fit"),
    [
        ([(0, 10)], 10),
        ([(0, 10), (0, 10), (0, 10)], 30),
        ([(0, 10), (0, 4)], 8),  # each gets as many, and the second is full after four
        ([(6, 10), (0, 10)], 14),  # the second has its ten when the first has four more
        ([(20, 100), (0, 10)], 10),  # the first, which has more than the second will have, gets none
        ([(5, 0), (5, 100)], 0),  # the next one might be put on the first
        ([(5, 0), (0, 100)], 5),  # the first is not put upon before the second has as many
    ],
)
def test_containers_go_where_the_fewest_are_until_a_member_is_full(
    capacities: list[tuple[int, int]], fit: int
) -> None:
    assert fitting(members(*capacities)) == (fit, "memory")


def test_what_is_short_first_is_named() -> None:
    capacities = [
        MemberCapacity("m1", 0, {"memory": 40, "bridge ports": 30}),
        MemberCapacity("m2", 0, {"memory": 20, "bridge ports": 30}),
    ]
    assert fitting(capacities) == (40, "memory")
    assert fitting([*capacities, MemberCapacity("m3", 0, {"memory": 100, "bridge ports": 1})]) == (
        3,
        "bridge ports",
    )


def test_what_only_one_member_tells_binds_the_others_as_far_as_it_is_full() -> None:
    capacities = [
        MemberCapacity("m1", 0, {"memory": 100, "processes": 10}),
        MemberCapacity("m2", 0, {"memory": 100}),
    ]
    assert fitting(capacities) == (20, "processes")
