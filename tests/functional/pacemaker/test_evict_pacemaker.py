"""The eviction of a node, on a real cluster: one that left is forgotten until a new DC finds it in Corosync's list."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from lab.control import LabError
from lab.pacemaker.cluster import PacemakerLab
from tests.functional.program import until
from tippingpoint.plan.read import validate_plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.spawn import PacemakerResources
from tippingpoint.targets.pacemaker.status import ClusterStatus, read_status
from tippingpoint.workloads.spawn.target import SpawnFailed


def state(lab: PacemakerLab) -> ClusterStatus:
    return read_status(lab.cib().encode())


def every_node_has(lab: PacemakerLab, wanted: Callable[[ClusterStatus], bool]) -> bool:
    """Whether the CIB is so at each node that runs: an update that one has answered is with the others a moment later,
    and a run may ask any of them."""
    with contextlib.suppress(LabError):  # one that dies or boots does not answer
        return all(wanted(lab.status(name)) for name in sorted(lab.pids))
    return False


def is_known_and_off(lab: PacemakerLab, node: str) -> bool:
    with contextlib.suppress(LabError):  # the node that is asked may be dying or booting
        now = state(lab)
        return node in now.nodes and node not in now.online
    return False


def evict(lab: PacemakerLab, node: str) -> None:
    """Evict a node as a run does."""
    target = {"kind": "pacemaker", "credentials": str(lab.credentials), "tls": "anonymous"}
    stages = [{"instances": 1, "hold": "1s"}]
    plan = validate_plan(
        {
            "name": "e",
            "target": target,
            "workload": {"kind": "spawn", "until": "started", "batch": 1},
            "stages": stages,
        }
    )
    assert isinstance(plan, SpawnPlan)
    assert isinstance(plan.target, PacemakerTarget)
    resources = PacemakerResources(plan, plan.target, "tp-evicts", 0)

    async def work() -> None:
        try:
            await resources.open()
            await resources.evict(node)
        finally:
            await resources.close()

    asyncio.run(work())


def test_only_a_node_that_is_gone_is_evicted_and_a_new_dc_finds_it_again(
    new_pacemaker: Callable[..., PacemakerLab],
) -> None:
    # Given a cluster of three
    lab = new_pacemaker(nodes=3)
    dc = lab.leader()
    gone = next(name for name in reversed(lab.names) if name != dc)

    # When a node is to be evicted that is there, then it is not
    with pytest.raises(SpawnFailed, match=r"expected a node that is offline and was fenced"):
        evict(lab, gone)
    assert gone in state(lab).online

    # When it has left in order, then it is forgotten
    lab.shut_down(gone)
    until(
        lambda: every_node_has(lab, lambda found: gone not in found.online and not found.nodes[gone].unclean)
    )
    evict(lab, gone)
    until(lambda: every_node_has(lab, lambda found: {*found.nodes} == {*lab.names} - {gone}))

    # And a new DC finds it in Corosync's list
    lab.kill_daemon(lab.leader(), "pacemaker-controld")  # on a busy machine another may be it by now
    until(lambda: is_known_and_off(lab, gone))
