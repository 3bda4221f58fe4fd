"""Extensions that are read back from all members, what a target notices, and its silences."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.workloads.test_claim_workload import HandTarget, Rig
from tippingpoint.errors import OperationFailed
from tippingpoint.plan.claim import Stage
from tippingpoint.workloads.claim import workload
from tippingpoint.workloads.claim.target import Happened, Holding
from tippingpoint.workloads.load import StageOrder


class ReadBack(HandTarget):
    """A HandTarget whose members answer reads for themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[Future[None]] = []
        self.told: list[bool] = []

    def seen(self, holding: Holding) -> Future[None]:
        self.looks.append(asyncio.get_running_loop().create_future())
        self.called.set()
        return self.looks[-1]

    def notice(self, happened: Happened, members: bool) -> None:
        self.told.append(members)
        happened("quorum", {"member": "a"})


async def extended(rig: Rig, target: ReadBack, times: int) -> None:
    """Extend the lease of a rig so often, each time at once when it is due; it may be due already."""
    for _ in range(times):
        number = sum(answer.done() for _, answer in target.extends)
        await target.calls(extends=number + 1)
        target.extends[number][1].set_result(True)
        for _ in range(3):  # its callbacks come one after the other
            await asyncio.sleep(0)


def rig_with(target: ReadBack, renew_time: float = 0.02) -> Rig:
    return Rig(target=target, renew_time=renew_time)


async def test_an_extension_is_visible_from_when_it_was_due_until_all_show_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload, "LOOK_EVERY", 0.0)
    target = ReadBack()
    rig = rig_with(target)
    rig.load.set_leases({0}, 0.0)
    await target.calls(claims=1)
    target.grant(0)
    await extended(rig, target, 1)
    await target.calls(extends=2)
    await asyncio.sleep(0.03)
    target.looks[0].set_result(None)
    await asyncio.sleep(0)
    found = rig.recorded()
    assert found["visible.ok"].total == 1
    assert found["visible.ok"].max >= 30_000 > 0
    assert found["extend.ok"].total == 1


async def test_only_a_sample_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # given no least time between two looks, and none that ends
    monkeypatch.setattr(workload, "LOOK_EVERY", 0.0)
    target = ReadBack()
    rig = rig_with(target)
    rig.load.set_leases({0}, 0.0)
    await target.calls(claims=1)
    target.grant(0)
    # when more are extended than may be read back at once
    await extended(rig, target, workload.LOOKS_AT_ONCE + 3)
    assert len(target.looks) == workload.LOOKS_AT_ONCE
    # then one that ends makes room for another
    target.looks[0].set_result(None)
    await extended(rig, target, 1)
    assert len(target.looks) == workload.LOOKS_AT_ONCE + 1
    # and with a least time between them, the next extension is not read back
    monkeypatch.setattr(workload, "LOOK_EVERY", 3600.0)
    target.looks[1].set_result(None)
    await extended(rig, target, 1)
    assert len(target.looks) == workload.LOOKS_AT_ONCE + 1


async def test_a_lease_that_is_lost_or_given_up_meanwhile_is_no_failure_to_see_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workload, "LOOK_EVERY", 0.0)
    target = ReadBack()
    rig = rig_with(target)
    rig.load.set_leases({0}, 0.0)
    await target.calls(claims=1)
    target.grant(0)
    await extended(rig, target, 1)
    await target.calls(extends=2)
    target.extends[1][1].set_result(False)
    await target.calls(claims=2)
    target.looks[0].set_exception(OperationFailed("gone"))
    await asyncio.sleep(0)
    assert not [name for name in rig.counts() if name.startswith("visible")]


async def test_a_look_that_fails_is_counted_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "LOOK_EVERY", 0.0)
    target = ReadBack()
    rig = rig_with(target)
    rig.load.set_leases({0}, 0.0)
    await target.calls(claims=1)
    target.grant(0)
    await extended(rig, target, 1)
    await target.calls(extends=2)
    target.looks[0].set_exception(OperationFailed("not seen"))
    await asyncio.sleep(0)
    assert rig.load.errors == {("visible", "error", "not seen"): 1}


@pytest.mark.parametrize(("index", "members"), [(0, True), (1, False)])
async def test_one_worker_reports_the_members(index: int, members: bool) -> None:
    target = ReadBack()
    rig = rig_with(target)
    await rig.load.begin_stage(
        StageOrder(number=1, size=1, spec=Stage(leases=1), kind="ramp", over=0.0, share=(index, 2), listed=1)
    )
    assert target.told == [members]
    assert [event[1:] for event in rig.load.events] == [("quorum", {"member": "a"})]


async def test_a_silence_is_an_event_as_long_as_something_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "SILENT", 0.2)
    target = HandTarget()
    rig = Rig(target=target, renew_time=0.05)
    rig.load.set_leases({0}, 0.0)
    await target.calls(claims=1)
    target.grant(0)
    await target.calls(extends=1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(0.5)
    target.extends[0][1].set_result(True)
    await target.calls(extends=2)
    lasted = loop.time() - began
    (event,) = rig.load.events
    assert event[1] == "silence"
    fields: Mapping[str, Any] = event[2]
    # (standstills of a busy machine are left out)
    assert 0 < fields["seconds"] <= lasted + 0.1


async def test_no_silence_is_told_while_nothing_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "SILENT", 0.1)
    target = HandTarget()
    rig = Rig(target=target, renew_time=1.0)
    rig.load.set_leases({0}, 0.0)
    await target.calls(claims=1)
    target.grant(0)
    began = asyncio.get_running_loop().time()
    # when an extension that is due a second later is answered at once
    await target.calls(extends=1)
    target.extends[0][1].set_result(True)
    await asyncio.sleep(0)
    waited = asyncio.get_running_loop().time() - began - 0.99
    assert all(event[2]["seconds"] <= waited for event in rig.load.events)
