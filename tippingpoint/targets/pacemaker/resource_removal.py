"""Removes the resources of a run, remote nodes among them, and whatever the CIB keeps about them.

The cluster stops what is no longer configured, and forgets it: history, fail counts, and what ran on a remote node.
What it keeps of nodes that are down is removed here.
"""

from __future__ import annotations

import asyncio

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.cib import Cib
from tippingpoint.targets.pacemaker.nodes import Nodes
from tippingpoint.targets.pacemaker.primitives import with_role
from tippingpoint.targets.pacemaker.status import ClusterStatus, read_status
from tippingpoint.targets.pacemaker.wire import CAN_CREATE, LOCAL, MULTIPLE, NO_MATCH, SYNC, XPATH, Answer
from tippingpoint.util.retrying import retry
from tippingpoint.workloads.load import OnProgress
from tippingpoint.workloads.spawn.target import PASSING, SpawnFailed

AT_ONCE = 100
"""The most resources that one change removes: the cluster computes all that follows from it before it stops one."""
STUCK_AFTER = 180.0
"""Seconds without progress after which a removal ends. A changing membership holds up changes for 22 s on 16 nodes, and
an agent may take 20 s to stop its resource."""
ANSWER_WITHIN = 60.0
_PAUSE = 0.5


async def remove_resources(nodes: Nodes, prefix: str, progress: OnProgress) -> int:
    """Remove every resource whose id begins with PREFIX-; returns how many there were.

    OperationFailed names those that cannot be stopped, such as on a node that waits to be fenced.
    """
    return await _Removal(nodes, f"{prefix}-", progress).run()


class _Removal:
    def __init__(self, nodes: Nodes, prefix: str, progress: OnProgress) -> None:
        self._nodes = nodes
        self._prefix = prefix
        self._progress = progress
        begins = f"starts-with(@id,'{prefix}')"
        self._resources = f"/cib/configuration/resources/*[{begins}]"
        self._constraints = f"/cib/configuration/constraints/*[@*[starts-with(.,'{prefix}')]]"
        self._kept = (
            f"/cib/configuration/nodes/node[{begins}]|/cib/status/node_state[{begins}]"
            f"|/cib/status/node_state/lrm/lrm_resources/lrm_resource[{begins}]"
            f"|/cib/status/node_state/transient_attributes/instance_attributes/nvpair[contains(@name,'-{prefix}')]"
        )

    async def run(self) -> int:
        """Remove everything; returns the number of resources."""
        loop = asyncio.get_running_loop()
        moved, goal, before = loop.time(), 0, None
        while True:
            status = await self._look()
            ours = {id for id in status.resources if id.startswith(self._prefix)}
            goal = max(goal, len(ours))
            if before != (ours, status.version):
                if before is None or len(before[0]) > len(ours):
                    moved = loop.time()
                before = ours, status.version
            self._progress("resources", goal - len(ours), goal)
            if not ours:
                break
            configured = sorted(id for id in ours if status.resources[id].configured)
            if configured:
                if status.properties.get("stop-orphan-resources") == "false":
                    configured = await self._stop(configured, status)
                if configured:
                    # The schema refuses a constraint whose resource is gone.
                    await self._change("cib_delete", self._constraints, None, XPATH | MULTIPLE)
                    first = f"({self._resources})[position() <= {AT_ONCE}]"
                    await self._change("cib_delete", first, None, XPATH | MULTIPLE)
                continue
            if loop.time() - moved > STUCK_AFTER:
                where = {node for id in ours for node in status.resources[id].known}
                raise OperationFailed(f"{len(ours)} resources have not stopped on {', '.join(sorted(where))}")
            await asyncio.sleep(_PAUSE)
        # A daemon that writes its part anew may bring something back once.
        rest = f"{self._resources}|{self._constraints}|{self._kept}"
        while await self._change("cib_query", f"({rest})[1]", None, LOCAL | XPATH) != NO_MATCH:
            await self._change("cib_delete", rest, None, XPATH | MULTIPLE)
            await asyncio.sleep(_PAUSE)
            if loop.time() - moved > 2 * STUCK_AFTER:
                raise OperationFailed(f"what the CIB keeps of {self._prefix}... comes back after its removal")
        return goal

    async def _stop(self, ids: list[str], status: ClusterStatus) -> list[str]:
        """Stop resources that the cluster would leave running; returns those that have stopped."""
        for id in ids:
            if status.resources[id].role != "Stopped":
                await self._change(
                    "cib_modify",
                    "resources",
                    with_role(id, "Stopped", status.resources[id].parent),
                    CAN_CREATE,
                )
        await asyncio.sleep(_PAUSE)
        return [] if any(status.resources[id].active or status.resources[id].begun for id in ids) else ids

    async def _look(self) -> ClusterStatus:
        return read_status((await self._insist("cib_query", None, None, LOCAL)).body)

    async def _change(self, operation: str, section: str, data: str | None, options: int) -> int:
        return (await self._insist(operation, section, data, options)).code

    async def _insist(self, operation: str, section: str | None, data: str | None, options: int) -> Answer:
        """Make a call that may safely be repeated, again and again while the cluster has no quorum or a node goes."""

        async def call() -> Answer:
            link = await self._nodes.quorate()
            try:
                async with asyncio.timeout(ANSWER_WITHIN):
                    answer = await link.call(operation, section, data, SYNC | options)
            except TimeoutError:
                raise OperationFailed(f"{link.name}: no answer within {ANSWER_WITHIN:.0f} s") from None
            if answer.code not in (0, NO_MATCH):
                raise Cib.failure(answer.code)
            return answer

        return await retry(call, STUCK_AFTER, _passes)


def _passes(problem: Exception) -> bool:
    if isinstance(problem, SpawnFailed):
        return problem.kind in PASSING
    return isinstance(problem, OperationFailed)
