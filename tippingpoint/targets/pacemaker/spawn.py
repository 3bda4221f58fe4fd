"""Resources in a CIB, for the spawn workload.

A group is a part of the ids: the resources PREFIX-GROUP-NUMBER. The cluster places each of them by itself. A Pacemaker
group is no use here, because it starts its resources one after the other on one node.

A resource starts by itself once the CIB has it. Notifications show at once what became of it. The workload lists the
whole CIB, for all groups together, and these lists correct what notifications missed. Changes and lists use one
connection, because another node may not have seen the last change yet.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from asyncio import Task
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.targets.pacemaker.access import access
from tippingpoint.targets.pacemaker.cib import Cib
from tippingpoint.targets.pacemaker.live import Live
from tippingpoint.targets.pacemaker.plan import REMOTE, PacemakerTarget
from tippingpoint.targets.pacemaker.primitives import (
    Names,
    configured,
    node_entries,
    preference,
    primitive,
    with_role,
)
from tippingpoint.targets.pacemaker.status import ClusterStatus, read_status
from tippingpoint.targets.pacemaker.together import Together
from tippingpoint.targets.pacemaker.wire import CAN_CREATE, MULTIPLE, NO_MATCH, XPATH
from tippingpoint.workloads.load import OnProgress, TargetFacts
from tippingpoint.workloads.spawn.target import Gone, Item, MemberSeen, Seen, SpawnFailed

IN_DOUBT = 60.0
"""Seconds to wait for a change without an answer: the cluster may still make it. A change waits while the membership
changes: 22 s on 16 nodes with a token of 1 s."""
SIMULATOR = "crm_simulate"
_LATE = 5.0
"""Seconds without a list, while something is awaited, after which one is made here."""
_RESTED_WITHIN = 300.0
"""Seconds that a resource has to be started again after the observation `stop`."""


class PacemakerResources:
    """One worker's access to a cluster. The worker's number chooses the node that it prefers."""

    waits_with_members = False
    """Changes do not wait for the node that they concern."""

    def __init__(self, plan: SpawnPlan, target: PacemakerTarget, prefix: str, worker: int) -> None:
        self._target = target
        self._stopped = plan.workload.until == "created"
        """Whether resources are not to start, because the plan only creates them."""
        self._poll_every = plan.workload.poll_every
        self._per_group = max(stage.instances for stage in plan.planned)
        known = access(target)
        self._remotes = known.remotes
        self._names = Names(prefix)
        self._live = Live(prefix)
        self._cib = Cib(known, target.connections, worker, self._live)
        self._creations: Together[tuple[Item, str | None]] = Together(target.multi_update, self._create)
        self._removals: Together[Item] = Together(target.multi_update, self._delete)
        self._there: dict[Item, str] = {}
        """The run's resources in the configuration, each with the node that it is wanted on, if any."""
        self._halted: set[Item] = set()
        """Resources that were ordered to stop."""
        self._groups: dict[int, dict[Item, Seen]] = {}
        self._grouped: ClusterStatus | None = None
        self._hidden: dict[Item, str] = {}
        """Resources that an observation moves or stops, and the node where a list shows them meanwhile."""
        self._joined: set[str] = set()
        self._simulates = shutil.which(SIMULATOR) is not None
        self._watch: Task[None] | None = None
        self._tasks: set[Task[Any]] = set()
        self._observations: dict[str, Callable[[Item | None], Awaitable[bool]]] = {
            "status": self._observe_status,
            "history": self._observe_history,
            "simulate": self._simulate,
            "move": self._move,
            "stop": self._stop,
        }

    async def open(self) -> TargetFacts:
        """Connect; see SpawnTarget."""
        return await self._cib.open()

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        """Do nothing: a group is a part of the ids."""

    async def create(self, item: Item, member: str | None) -> None:
        """Add a resource to the CIB; the cluster then starts it. See SpawnTarget."""
        await self._creations.add((item, member))

    async def start(self, item: Item) -> str:
        """Wait until a node has started it, and return that node; see SpawnTarget."""
        if item not in self._there:
            raise Gone(f"{self._names.of(item)}: does not exist")
        if item in self._halted:
            await self._set_role(item, "Started")
        return await self._until(self._names.of(item), self._runs(item), starts=True)

    def is_failed(self, item: Item) -> bool:
        """Return whether no node can start it."""
        return self._names.of(item) in self._live.broken

    async def probe(self, item: Item) -> None:
        """Do nothing: plans for Pacemaker go no further than a start."""

    async def delete(self, item: Item) -> None:
        """Remove it from the configuration, and wait until the cluster has stopped and forgotten it."""
        await self._removals.add(item)
        id = self._names.of(item)
        await self._until(id, lambda: True if self._live.is_forgotten(id) else None)
        if self._target.agent == REMOTE:
            await self._change("cib_delete", node_entries([id]), None, XPATH | MULTIPLE)

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        """List the run's resources of a group, by a list that all groups share."""
        self._sort(await self._cib.look())
        return self._groups.get(group, {})

    async def members(self) -> list[MemberSeen]:
        """List the nodes, remote ones too, by the same list. Without quorum or DC their status may be wrong."""
        status = await self._cib.look()
        self._joined |= {node.name for node in status.nodes.values() if node.remote and node.online}
        stale = not (status.quorum and status.dc)
        return [
            MemberSeen(
                node.name,
                online=node.online and not node.unclean and not node.pending,
                leader=node.name == status.dc,
                takes=node.takes,
                stale=stale,
            )
            for node in status.nodes.values()
            # A remote node that the run has added does not belong to the cluster until it has been online once.
            if not (node.remote and self._names.item(node.name)) or node.name in self._joined
        ]

    async def evict(self, member: str) -> None:
        """Remove what the CIB keeps about a node that is gone and fenced; see SpawnTarget."""
        status = await self._cib.look()
        node = status.nodes.get(member)
        if node is None:
            return
        if node.online or node.unclean:
            raise SpawnFailed(f"{member}: expected a node that is offline and was fenced", "busy")
        await self._change("cib_delete", node_entries([node.id]), None, XPATH | MULTIPLE)

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        """Make one of RESOURCE_OBSERVATIONS; see SpawnTarget."""
        return await self._observations[what](running)

    async def close(self) -> None:
        """Close every connection, once changes without an answer have had IN_DOUBT seconds."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._cib.close(IN_DOUBT)

    # -- changes ---------------------------------------------------------------------------------

    async def _create(self, due: list[tuple[Item, str | None]]) -> None:
        """Create resources by one change."""
        resources, constraints = "", ""
        for item, node in due:
            id, parameters = self._names.of(item), dict(self._target.parameters)
            if self._target.agent == REMOTE:
                parameters["server"] = self._address(item)
            resources += primitive(
                id, self._target.agent, parameters, int(self._target.monitor * 1000), stopped=self._stopped
            )
            constraints += preference(id, node) if node else ""
        data = f"<resources>{resources}</resources>"
        data += f"<constraints>{constraints}</constraints>" if constraints else ""
        await self._change(
            "cib_modify", "configuration", f"<configuration>{data}</configuration>", CAN_CREATE
        )
        for item, node in due:
            self._there[item] = node or ""
            self._live.broken.pop(self._names.of(item), None)
            if self._stopped:
                self._halted.add(item)

    async def _delete(self, due: list[Item]) -> None:
        """Remove resources, and what the configuration has about them, by one change."""
        path = configured(self._names.of(item) for item in due)
        await self._change("cib_delete", path, None, XPATH | MULTIPLE)
        for item in due:
            self._there.pop(item, None)
            self._halted.discard(item)

    async def _set_role(self, item: Item, role: str) -> None:
        await self._change("cib_modify", "resources", with_role(self._names.of(item), role), CAN_CREATE)
        if role == "Stopped":
            self._halted.add(item)
        else:
            self._halted.discard(item)

    async def _change(self, operation: str, section: str, data: str | None, options: int) -> None:
        code = await self._cib.change(operation, section, data, options)
        if code not in (0, NO_MATCH):
            raise self._cib.failure(code)

    def _address(self, item: Item) -> str:
        number = item.group * self._per_group + item.number
        if number >= len(self._remotes):
            raise SpawnFailed(f"remotes: {len(self._remotes)} addresses: expected {number + 1}", "setting")
        return self._remotes[number]

    # -- lists -----------------------------------------------------------------------------------

    def _sort(self, status: ClusterStatus) -> None:
        """Sort a list's resources into groups, once."""
        if status is self._grouped:
            return
        self._grouped = status
        groups: dict[int, dict[Item, Seen]] = defaultdict(dict)
        there: dict[Item, str] = {}
        for id, resource in status.resources.items():
            item = self._names.item(id) if resource.configured else None
            if item is None:
                continue
            there[item] = self._there.get(item, "")
            if item in self._hidden:
                groups[item.group][item] = Seen(running=True, member=self._hidden[item])
            elif resource.active:
                groups[item.group][item] = Seen(running=True, member=resource.active[0])
            else:
                groups[item.group][item] = Seen(running=False, member=there[item])
            if resource.role == "Stopped":
                self._halted.add(item)
            else:
                self._halted.discard(item)
        self._there, self._groups = there, groups

    def _runs(self, item: Item) -> Callable[[], str | None]:
        id = self._names.of(item)
        return lambda: self._live.at.get(id)

    async def _until(self, id: str, met: Callable[[], Any], *, starts: bool = False) -> Any:
        if self._watch is None or self._watch.done():
            self._watch = self._aside(self._list_while_awaited())
        return await self._live.until(id, met, starts=starts)

    async def _list_while_awaited(self) -> None:
        """List when the workload does not: its lists stop at the end of a stage, and are rare while nothing changes."""
        every = max(self._poll_every, _LATE)
        while True:
            await asyncio.sleep(self._poll_every)
            if not self._live.is_awaited:
                return
            if not self._cib.is_watched or self._cib.looked_before(every):
                with contextlib.suppress(OperationFailed):
                    await self._cib.look()

    # -- what administrators do --------------------------------------------------------------------

    async def _observe_status(self, running: Item | None) -> bool:
        read_status(await self._cib.ask(None))
        return True

    async def _observe_history(self, running: Item | None) -> bool:
        if running is None:
            return False
        await self._cib.ask(f"//lrm_resource[@id='{self._names.of(running)}']", XPATH)
        return True

    async def _simulate(self, running: Item | None) -> bool:
        if not self._simulates:
            return False
        body = await self._cib.ask(None)
        cib = body[body.index(b"<cib ") : body.rindex(b"</cib>") + len(b"</cib>")]
        process = await asyncio.create_subprocess_exec(
            *(SIMULATOR, "--show-scores", "--xml-pipe"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await process.communicate(cib)
        except BaseException:
            process.kill()
            raise
        if process.returncode != 0:
            raise SpawnFailed(f"{SIMULATOR}: ended with {process.returncode}: expected 0")
        return True

    async def _move(self, running: Item | None) -> bool:
        """Move a resource to the node with the fewest, and wait until it runs there."""
        node, to = self._place(running)
        if running is None or not node or not to:
            return False
        id = self._names.of(running)
        self._hidden[running] = node
        try:
            change = f"<constraints>{preference(id, to)}</constraints>"
            await self._change("cib_modify", "constraints", change, CAN_CREATE)
            await self._until(id, lambda: True if self._live.at.get(id) == to else None, starts=True)
            self._there[running] = self._hidden[running] = to
        finally:
            self._aside(self._show(running))
        return True

    async def _stop(self, running: Item | None) -> bool:
        """Have a resource stopped, and wait until it has. It is started again afterwards, which is not timed."""
        node, _ = self._place(running)
        if running is None or not node:
            return False
        id = self._names.of(running)
        self._hidden[running] = node
        try:
            await self._set_role(running, "Stopped")
            await self._until(id, lambda: True if id not in self._live.at else None)
        finally:
            self._aside(self._start_again(running))
        return True

    async def _start_again(self, item: Item) -> None:
        try:
            with contextlib.suppress(OperationFailed, TimeoutError):
                async with asyncio.timeout(_RESTED_WITHIN):
                    await self._set_role(item, "Started")
                    await self._until(self._names.of(item), self._runs(item), starts=True)
        finally:
            await self._show(item)

    async def _show(self, item: Item) -> None:
        """Have lists that are requested from now on show a resource as it is."""
        try:
            with contextlib.suppress(OperationFailed):
                await self._cib.look()
        finally:
            self._hidden.pop(item, None)

    def _place(self, item: Item | None) -> tuple[str, str]:
        """Where a resource runs, and where it may be moved to; empty if nowhere, or if this is the wrong moment.

        While resources start, each further change would make the cluster plan everything anew. That would time neither
        an administrator's change nor a start.
        """
        status = self._live.status
        if item is None or self._hidden or status is None or self._live.is_awaited:
            return "", ""
        node = self._live.at.get(self._names.of(item), "")
        there: dict[str, int] = dict.fromkeys(
            (each.name for each in status.nodes.values() if each.takes and each.name != node), 0
        )
        if self._target.agent == REMOTE:  # a remote node cannot carry another
            there = {name: 0 for name in there if not status.nodes[name].remote}
        for name in self._live.at.values():
            if name in there:
                there[name] += 1
        return node, min(there, key=lambda name: (there[name], name), default="")

    def _aside(self, work: Coroutine[Any, Any, None]) -> Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
