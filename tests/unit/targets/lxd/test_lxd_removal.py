"""What a run made in a cluster of LXD is removed although a member is offline for a moment."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.targets.lxd.lxd_stub import LxdStub, lxd_at
from tippingpoint.errors import TargetError
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.lxd import removal
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.lxd.removal import OFFLINE_LOOKS, remove

RUN = "0123456789abcdef" * 2
PREFIX = name_prefix(RUN)
PROJECT = f"{PREFIX}-000"


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the number of looks matters, not the time between them."""
    monkeypatch.setattr(removal, "_PAUSE", 0.01)


@pytest.fixture
def entry(tmp_path: Path) -> LxdEntry:
    target = LxdTarget(kind="lxd", socket=tmp_path / "lxd.sock")
    return LxdEntry(run=RUN, prefix=PREFIX, image="", target=target, store=None, identity=None)


def put_one_on_each_member(lxd: LxdStub, **members: list[str]) -> None:
    """A project of the run, with a container on each member."""
    mark = {"user.tippingpoint": RUN}
    lxd.members = members
    lxd.projects[PROJECT] = mark
    for number, member in enumerate(members):
        name = f"{PROJECT}-{number:04d}"
        lxd.instances[PROJECT, name] = mark
        lxd.locations[PROJECT, name] = member


async def test_a_member_that_is_back_after_a_moment_leaves_nothing(tmp_path: Path, entry: LxdEntry) -> None:
    """Given a living member whose heartbeat is late, so that it is offline in the first lists, then what is on it is
    removed as soon as it is online."""
    async with lxd_at(tmp_path / "lxd.sock") as lxd:
        put_one_on_each_member(lxd, m1=["Online"], m2=[*["Offline"] * OFFLINE_LOOKS, "Online"])
        assert await remove(entry) == 3
        assert lxd.everything() == set()


async def test_what_is_on_a_member_that_stays_offline_is_named_after_some_looks(
    tmp_path: Path, entry: LxdEntry
) -> None:
    """Given a member that stays offline, then all else is removed, and the removal ends with what is on that member."""
    async with lxd_at(tmp_path / "lxd.sock") as lxd:
        put_one_on_each_member(lxd, m1=["Online"], m2=["Offline"])
        with pytest.raises(TargetError, match="m2 is offline with 1 of this run's containers"):
            await remove(entry)
        assert lxd.everything() == {PROJECT, (PROJECT, f"{PROJECT}-0001")}


async def test_a_member_that_comes_and_goes_holds_a_removal_up_no_longer_than_what_is_stuck(
    tmp_path: Path, entry: LxdEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a member that is online only when it is just waited for, then the removal ends all the same."""
    monkeypatch.setattr(removal, "STUCK_AFTER", 0.5)
    async with lxd_at(tmp_path / "lxd.sock") as lxd:
        put_one_on_each_member(lxd, m1=["Offline", "Online"] * 5000)
        with pytest.raises(TargetError, match="m1 is offline with 1 of this run's containers"):
            await remove(entry)
