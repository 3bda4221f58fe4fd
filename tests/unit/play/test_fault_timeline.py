"""A plan's faults, played on a lab: what was done is undone, whenever the run ends."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from lab.control import ControlServer
from tests.unit.play.two_members import TwoMembers
from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.play.fault_timeline import FaultTimeline
from tippingpoint.play.record import Record
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.rundir.manifest import Manifest, TargetEntry

STAGE: dict[str, Any] = {"leases": 10, "hold": "9s"}


class Watch(RunnerEvents):
    """Keeps what happened, and says when there was so much of it."""

    def __init__(self) -> None:
        self.happened: list[tuple[str, ...]] = []
        self._more = asyncio.Event()

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        self.happened.append((event, *(str(fields[name]) for name in ("do", "member") if name in fields)))
        self._more.set()

    async def until(self, count: int) -> None:
        """Wait until so many events have happened."""
        while len(self.happened) < count:
            self._more.clear()
            await self._more.wait()


def plan_of(control: Path | None, *faults: dict[str, Any]) -> Plan:
    lab = {} if control is None else {"lab": str(control)}
    return validate_plan({"name": "small", **lab, "stages": [STAGE, STAGE], "faults": list(faults)})


def timeline(tmp_path: Path, plan: Plan) -> tuple[FaultTimeline, Watch]:
    """The faults of a plan, and what happens."""
    watch = Watch()
    record = Record(plan.name, tmp_path, None, watch)
    record.make_directory()
    record.open(Manifest(id="r", title="small", target=TargetEntry(kind="etcd"), started=0.0))
    return FaultTimeline(plan, record), watch


async def test_a_fault_is_undone_when_it_is_due(tmp_path: Path, lab: TwoMembers, control: Path) -> None:
    kill = {"do": "kill", "member": "b", "stage": 1, "at": "0s", "undo_after": "0s"}
    faults, watch = timeline(tmp_path, plan_of(control, kill))
    faults.start(stage=1)
    await watch.until(2)
    assert watch.happened == [("fault", "kill", "b"), ("fault", "start", "b")]
    assert lab.state["b"] == "running"


async def test_what_is_not_undone_yet_is_undone_at_the_end(
    tmp_path: Path, lab: TwoMembers, control: Path
) -> None:
    freeze = {"do": "stop", "member": "b", "undo_after": "600s"}
    faults, watch = timeline(tmp_path, plan_of(control, freeze))
    faults.start(stage=None)
    await watch.until(1)
    assert lab.state["b"] == "stopped"
    faults.stop()
    await faults.undo()
    assert watch.happened == [("fault", "stop", "b"), ("fault", "continue", "b")]
    assert lab.state["b"] == "running"


async def test_a_daemon_that_is_killed_leaves_other_faults_of_its_member_to_be_undone(
    tmp_path: Path, lab: TwoMembers, control: Path
) -> None:
    freeze = {"do": "stop", "member": "b", "undo_after": "600s"}
    daemon = {"do": "kill-daemon", "member": "b", "daemon": "controld", "stage": 1}
    faults, watch = timeline(tmp_path, plan_of(control, freeze, daemon))
    faults.start(stage=None)
    await watch.until(1)
    faults.start(stage=1)
    await watch.until(2)
    assert lab.killed == [("b", "controld")]
    faults.stop()
    await faults.undo()
    assert watch.happened[1:] == [("fault", "kill-daemon", "b"), ("fault", "continue", "b")]


async def test_faults_are_done_once_the_lab_has_done_them(tmp_path: Path) -> None:
    # given a lab that takes its time for a kill
    asked, may_die = threading.Event(), threading.Event()

    class Slow(TwoMembers):
        def kill(self, name: str) -> None:
            asked.set()
            may_die.wait()
            super().kill(name)

    path = tmp_path / "slow.sock"
    with ControlServer(Slow(), path):
        faults, watch = timeline(tmp_path, plan_of(path, {"do": "kill", "member": "b"}))
        assert faults.done.is_set()
        # when it is asked for one
        faults.start(stage=None)
        await asyncio.to_thread(asked.wait)
        # then the fault is done when the member is dead
        assert not faults.done.is_set()
        may_die.set()
        await faults.done.wait()
        assert watch.happened == [("fault", "kill", "b")]


async def test_faults_of_another_stage_wait_for_it(tmp_path: Path, lab: TwoMembers, control: Path) -> None:
    faults, watch = timeline(tmp_path, plan_of(control, {"do": "kill", "member": "b", "stage": 2}))
    faults.start(stage=None)
    faults.start(stage=1)
    faults.stop()
    await faults.undo()
    assert watch.happened == []
    assert lab.state["b"] == "running"


async def test_what_a_lab_refuses_is_told_and_the_run_goes_on(tmp_path: Path, control: Path) -> None:
    faults, watch = timeline(tmp_path, plan_of(control, {"do": "start", "member": "a"}))
    faults.start(stage=None)
    await watch.until(1)
    assert watch.happened == [("fault-failed", "start", "a")]


async def test_members_are_started_until_enough_run_and_not_once_more(
    tmp_path: Path, lab: TwoMembers, control: Path
) -> None:
    """Given a member that a fault has killed, then the stage that needs it starts it, and nobody at the end."""
    faults, watch = timeline(tmp_path, plan_of(control, {"do": "kill", "member": "b"}))
    faults.start(stage=None)
    await watch.until(1)
    await faults.start_members(2)
    await faults.start_members(2)
    faults.stop()
    await faults.undo()
    assert watch.happened == [("fault", "kill", "b"), ("member-started", "b")]
    assert lab.state["b"] == "running"


async def test_faults_need_a_lab_that_has_their_members(tmp_path: Path, control: Path) -> None:
    async def check(*plan: Any) -> None:
        await timeline(tmp_path, plan_of(*plan))[0].check()

    with pytest.raises(UserError, match=r"^faults\.member: c: expected one of a, b$"):
        await check(control, {"do": "kill", "member": "c"})
    with pytest.raises(UserError, match=r"^lab: missing: expected the control socket of a lab"):
        await check(None, {"do": "kill", "member": "a"})
    await check(control, {"do": "kill", "member": "a"})
