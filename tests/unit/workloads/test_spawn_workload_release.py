"""Things with power that are used, as machines of a MAAS: they are switched, and released before they are removed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.unit.workloads.memory_target import Box, Cluster
from tests.unit.workloads.spawn_rig import Rig, failing, items, plan_of
from tippingpoint.util import backoff
from tippingpoint.workloads.spawn.target import Item

MACHINES = {"kind": "maas", "made": {"kind": "registered", "power_type": "redfish"}}


@pytest.fixture(autouse=True)
def retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "FIRST_RETRY", 0.01)
    monkeypatch.setattr(backoff, "LONGEST_RETRY", 0.05)


@pytest.mark.parametrize("pace", [{"concurrency": 3}, {"batch": 4}, {"rate": 500}])
async def test_what_was_probed_is_switched_off_and_on_and_released_before_its_removal(
    pace: dict[str, int],
) -> None:
    rig = Rig(plan_of([(2, 3), (1, 1)], target=MACHINES, until="switched", **pace))
    await rig.stage(1)
    made = ("enlist", "commission", "deploy", "power-off", "power-on", "launch")
    assert rig.counts() == Counter({f"{step}.ok": 6 for step in made})
    assert all(box.powered for box in rig.cluster.boxes.values())
    await rig.stage(2)
    assert rig.cluster.boxes.keys() == items(1, 1)
    assert rig.counts() == {"release.ok": 5, "remove.ok": 5}
    await rig.close()


async def test_what_was_never_probed_is_removed_without_a_release() -> None:
    rig = Rig(plan_of([(1, 3), (1, 0)], target=MACHINES, until="started"))
    await rig.stage(1)
    await rig.stage(2)
    assert rig.counts()["remove.ok"] == 3
    assert rig.cluster.count("release") == 0
    await rig.close()


async def test_what_a_list_shows_in_use_is_released_too() -> None:
    """Given a thing that another worker made and died, when it is too much, then it is released first."""
    cluster = Cluster()
    cluster.boxes[Item(0, 5)] = Box("m1", running=True, has_address=True, in_use=True)
    rig = Rig(plan_of([(1, 1)], target=MACHINES, until="started"), cluster)
    await rig.stage()
    assert cluster.boxes.keys() == items(1, 1)
    assert rig.counts()["release.ok"] == 1
    await rig.close()


@pytest.mark.parametrize("operation", ["off", "on", "release"])
async def test_such_a_step_is_tried_again_by_its_cause(operation: str) -> None:
    cluster = Cluster()
    cluster.fail = failing(2, operation, "timeout", Item(0, 1))
    rig = Rig(plan_of([(1, 2), (1, 0)], target=MACHINES, until="switched"), cluster)
    await rig.stage(1)
    await rig.stage(2)
    assert cluster.boxes == {}
    assert cluster.count(operation) == 4
    assert len(rig.told("gave-up")) == 0
    await rig.close()


async def test_what_cannot_be_released_is_given_up_and_stays() -> None:
    cluster = Cluster()
    cluster.fail = failing(1000, "release", "full", Item(0, 1))
    rig = Rig(plan_of([(1, 2), (1, 0)], target=MACHINES, until="probed"), cluster)
    await rig.stage(1)
    await rig.stage(2)
    assert cluster.boxes.keys() == {Item(0, 1)}
    assert rig.counts()["release.error"] == 1
    assert [event["operation"] for event in rig.told("gave-up")] == ["release"]
    await rig.close()
