"""Where a run's resources are: read from whole lists, and kept up to date by notifications in between.

A node sends its notifications and its answers over one connection in the order of the changes. So whatever comes later
is newer.
"""

from __future__ import annotations

import asyncio
import re
from asyncio import Future
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tippingpoint.targets.pacemaker.plan import REMOTE
from tippingpoint.targets.pacemaker.status import INFINITY, ClusterStatus, Operation, Version
from tippingpoint.targets.pacemaker.tags import attributes, first_tag, number, start_tags
from tippingpoint.workloads.spawn.target import SpawnFailed, Trouble

T = TypeVar("T")

_DELETED = re.compile(
    r"/cib/status/node_state\[@id='([^']+)'\]"
    r"(?:/lrm(?:\[[^\]]*\])?(?:/lrm_resources(?:/lrm_resource\[@id='([^']+)'\])?)?)?"
)
"""The path of a deleted history: the node's id, and the resource if only its history was deleted."""
_TROUBLES: dict[int, tuple[str, Trouble]] = {
    1: ("error", "other"),
    2: ("wrong parameter", "setting"),
    3: ("not implemented", "setting"),
    4: ("no permission", "setting"),
    5: ("not installed", "setting"),
    6: ("wrong configuration", "setting"),
}
"""Exit codes of agents in words (the OCF resource agent API), and the cause that each indicates."""


@dataclass
class _Wait(Generic[T]):
    met: Callable[[], T | None]
    future: Future[T]
    starts: bool


class Live:
    """The state of the resources whose ids begin with PREFIX-."""

    def __init__(self, prefix: str) -> None:
        self.at: dict[str, str] = {}
        """The node that each active resource is on."""
        self.version = Version(0, 0, 0)
        """The newest version that was seen."""
        self.status: ClusterStatus | None = None
        """The last list."""
        self.broken: dict[str, SpawnFailed] = {}
        """Resources that no node can start, and why."""
        self._prefix = f"{prefix}-"
        self._history: dict[str, set[str]] = defaultdict(set)
        self._names: dict[str, str] = {}
        self._waits: dict[str, list[_Wait[Any]]] = defaultdict(list)
        self._own = b'operation_key="' + self._prefix.encode()

    def see(self, status: ClusterStatus) -> None:
        """Process a whole list."""
        self.status = status
        self.version = status.version
        self._names = {node.id: node.name for node in status.nodes.values()}
        self.at.clear()
        self._history.clear()
        for id, resource in status.resources.items():
            if id.startswith(self._prefix):
                if resource.active:
                    self.at[id] = resource.active[0]
                self._history[id].update(resource.known)
        self.broken = self._find_broken(status)
        for id in list(self._waits):
            self._look(id)

    def hear(self, body: bytes) -> None:
        """Process a notification."""
        if (target := first_tag(body, b"target")) is not None:
            found = attributes(target)
            if found.keys() >= set(Version._fields):
                self.version = max(self.version, Version(*(number(found[part]) for part in Version._fields)))
        touched: set[str] = set()
        for tag in start_tags(body, b"lrm_rsc_op"):
            if self._own in tag:
                said = attributes(tag)
                # RESOURCE_OPERATION_INTERVAL, where operations such as migrate_to have a "_" too.
                key = said.get("operation_key", "").rpartition("_")[0]
                id = key.removesuffix(f"_{said.get('operation', '')}")
                if id.startswith(self._prefix):
                    self._take(id, said)
                    touched.add(id)
        for tag in start_tags(body, b"change"):
            said = attributes(tag)
            path = said.get("path", "").replace("&apos;", "'")
            if said.get("operation") != "delete" or (deleted := _DELETED.fullmatch(path)) is None:
                continue
            name = self._names.get(deleted[1], deleted[1])
            forgotten = [deleted[2]] if deleted[2] else list(self._history)
            for id in forgotten:
                self._history[id].discard(name)
                if self.at.get(id) == name:
                    del self.at[id]
            touched.update(forgotten)
        for id in touched:
            self._look(id)

    def is_forgotten(self, id: str) -> bool:
        """Whether no node has a resource in its history, so that it is stopped and cleaned up."""
        return not self._history.get(id)

    async def until(self, id: str, met: Callable[[], T | None], *, starts: bool = False) -> T:
        """Wait until `met` returns something for a resource, and return that.

        `starts` marks a wait for a start, which raises SpawnFailed once no node can start the resource.
        """
        wait = _Wait(met, asyncio.get_running_loop().create_future(), starts)
        self._waits[id].append(wait)
        try:
            self._look(id)
            return await wait.future
        finally:
            self._waits[id].remove(wait)
            if not self._waits[id]:
                del self._waits[id]

    @property
    def is_awaited(self) -> bool:
        """Whether anything is awaited."""
        return bool(self._waits)

    def _take(self, id: str, said: dict[str, str]) -> None:
        node, name = said.get("on_node", ""), said.get("operation")
        if node:
            self._history[id].add(node)
        if said.get("op-status") != "0" or said.get("rc-code") != "0":
            return
        if name in ("start", "migrate_from"):
            self.at[id] = node
        elif name in ("stop", "migrate_to") and self.at.get(id) == node:
            del self.at[id]

    def _look(self, id: str) -> None:
        for wait in self._waits.get(id, ()):
            if wait.future.done():
                continue
            if (found := wait.met()) is not None:
                wait.future.set_result(found)
            elif wait.starts and (problem := self.broken.get(id)) is not None:
                wait.future.set_exception(SpawnFailed(str(problem), problem.kind))

    def _find_broken(self, status: ClusterStatus) -> dict[str, SpawnFailed]:
        """The resources that failed on every node that takes resources, or whose agent says that it will never run."""
        failed: dict[str, list[Operation]] = defaultdict(list)
        for operation in status.failed:
            if operation.resource.startswith(self._prefix):
                failed[operation.resource].append(operation)
        busy = {operation.resource for operation in status.pending}
        takers = {node.name for node in status.nodes.values() if node.takes}
        real = {node.name for node in status.nodes.values() if node.takes and not node.remote}
        broken: dict[str, SpawnFailed] = {}
        for id, operations in failed.items():
            banned = {
                each.node
                for each in operations
                if status.fail_counts.get((id, each.node), 0) >= INFINITY
                or (each.is_probe and each.code in (5, 6))
            }
            # A remote node cannot carry another.
            known = status.resources.get(id)
            candidates = real if known is not None and known.agent == REMOTE else takers
            if id not in self.at and id not in busy and candidates and candidates <= banned:
                last = max(operations, key=lambda each: each.call)
                words, kind = _TROUBLES.get(last.code, (f"exit code {last.code}", "other"))
                reason = f", {last.reason}" if last.reason else ""
                broken[id] = SpawnFailed(f"{last.name}: {words}{reason} ({last.code})", kind)
        return broken
