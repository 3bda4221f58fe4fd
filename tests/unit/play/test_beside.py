"""A run keeps off the processors of a target whose lab says which they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab.control import ControlServer
from lab.places import Places
from tests.unit.play.two_members import TwoMembers
from tippingpoint.errors import UserError
from tippingpoint.play.beside import beside_target

OURS = sorted(os.sched_getaffinity(0))
NOT_OURS = OURS[-1] + 1


@pytest.mark.parametrize(
    ("places", "runs_on"),
    [
        (Places((NOT_OURS,), (OURS[0],)), OURS[:1]),
        (Places(tuple(OURS), tuple(OURS)), OURS),
        (Places((OURS[0],), (NOT_OURS,)), OURS),  # it may use none of those
    ],
)
async def test_a_run_is_where_the_lab_leaves_room_and_back_afterwards(
    lab: TwoMembers, tmp_path: Path, places: Places, runs_on: list[int]
) -> None:
    lab.places = places
    with ControlServer(lab, tmp_path / "lab.sock"):
        async with beside_target(tmp_path / "lab.sock") as where:
            assert sorted(os.sched_getaffinity(0)) == runs_on
            assert where is not None
            assert (where.target, where.workers) == ([*places.target], runs_on)
    assert sorted(os.sched_getaffinity(0)) == OURS


async def test_without_a_lab_nothing_is_known_and_nothing_moves() -> None:
    async with beside_target(None) as where:
        assert where is None
        assert sorted(os.sched_getaffinity(0)) == OURS


async def test_a_lab_that_is_gone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"lab: .*/gone: expected the control socket of a running lab"):
        async with beside_target(tmp_path / "gone"):
            pass
