"""The CIB over one node at a time: lists that many callers share, changes, and notifications.

A worker uses its own node as long as that node answers. A node that is silent while a query waits is abandoned, and the
queries to it end as unreachable.
"""

from __future__ import annotations

import asyncio
from asyncio import Future, Task

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.access import PacemakerAccess
from tippingpoint.targets.pacemaker.connection import Connection, in_plain_words
from tippingpoint.targets.pacemaker.live import Live
from tippingpoint.targets.pacemaker.nodes import Link, Nodes
from tippingpoint.targets.pacemaker.status import ClusterStatus, read_status
from tippingpoint.targets.pacemaker.wire import LOCAL, SYNC, Answer, WireError
from tippingpoint.util.patience import answers_within
from tippingpoint.workloads.load import TargetFacts
from tippingpoint.workloads.spawn.target import SpawnFailed, Trouble

QUIET = 15.0
"""The minimum seconds that a node has to answer a query about its own CIB, which no membership change holds up."""
_CATCHES_UP_WITHIN = 5.0
"""Seconds within which a node that was behind another catches up with it."""
_AGAIN = 0.1
_TROUBLES: dict[int, Trouble] = {
    -1: "trust",
    -13: "trust",
    -11: "busy",
    -16: "busy",
    -62: "timeout",
    -110: "timeout",
    -107: "unreachable",
    -202: "quorum",
    -203: "setting",
    -205: "busy",
    -206: "busy",
}
"""The cause that a return code indicates."""


class Cib:
    """One worker's access to the CIB. `live` gets every list and notification."""

    def __init__(self, access: PacemakerAccess, connections: int, worker: int, live: Live) -> None:
        self._nodes = Nodes(access, connections)
        self._worker = worker
        self._live = live
        self._watched: Connection | None = None
        self._looking: Task[ClusterStatus] | None = None
        self._asked = False
        """Whether the list under way was already requested, so that it may lack the latest change."""
        self._looked = float("-inf")
        self._took = 0.0
        self._changes: set[Future[Answer]] = set()

    async def open(self) -> TargetFacts:
        """Connect to the nodes that answer; TargetError when none does."""
        return await self._nodes.open()

    async def close(self, within: float) -> None:
        """Close every connection once the changes under way are answered, or after this many seconds."""
        if self._changes:
            await asyncio.wait(self._changes, timeout=within)
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])
        self._nodes.close("closed")

    async def look(self) -> ClusterStatus:
        """Return a list that was requested after this call; simultaneous callers share one."""
        if self._looking is None or self._looking.done() or self._asked:
            before = self._looking
            self._asked = False
            self._looking = asyncio.get_running_loop().create_task(self._look(before))
        return await asyncio.shield(self._looking)

    def looked_before(self, seconds: float) -> bool:
        """Whether the last list is older than that, and none is under way."""
        under_way = self._looking is not None and not self._looking.done()
        return not under_way and asyncio.get_running_loop().time() - self._looked > max(
            seconds, 2 * self._took
        )

    @property
    def is_watched(self) -> bool:
        """Whether a node notifies us of changes."""
        return self._watched is not None and self._watched.up

    async def ask(self, section: str | None, options: int = 0) -> bytes:
        """Query a node's own CIB; SpawnFailed if no node answers."""
        problem = "no node is connected"
        for _ in range(2):
            link = self._link()
            if not link.up:
                problem = f"{link.name}: {link.problem}"
                break
            limit = max(QUIET, 4 * self._took)
            try:
                async with answers_within(limit):
                    answer = await link.call("cib_query", section, None, SYNC | LOCAL | options)
                if code := answer.code:
                    raise self.failure(code)
                return answer.body
            except TimeoutError:
                problem = f"{link.name}: no answer within {limit:.0f} s"
                if link.connection is not None:
                    link.connection.close(f"no answer within {limit:.0f} s")
            except SpawnFailed:
                raise
            except (OperationFailed, WireError) as failed:
                problem = str(failed)
        raise SpawnFailed(problem, "unreachable")

    async def change(self, operation: str, section: str, data: str | None, options: int) -> int:
        """Make a change, and return its code. A cancelled call may still make it."""
        self._follow(link := self._link())
        call = link.call(operation, section, data, SYNC | options)
        self._changes.add(call)
        call.add_done_callback(self._answered)
        try:
            return (await asyncio.shield(call)).code
        except SpawnFailed:
            raise
        except (OperationFailed, WireError) as failed:
            raise SpawnFailed(str(failed), "unreachable") from None

    @staticmethod
    def failure(code: int) -> SpawnFailed:
        """The failure that a return code stands for."""
        return SpawnFailed(in_plain_words(code), _TROUBLES.get(code, "other"))

    async def _look(self, before: Task[ClusterStatus] | None) -> ClusterStatus:
        loop = asyncio.get_running_loop()
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._asked = True
        begin = loop.time()
        while True:
            self._follow(self._link())
            asked = loop.time()
            status = read_status(await self.ask(None))
            self._took = loop.time() - asked
            # Another node may be behind the one that answered before it.
            if status.version >= self._live.version or loop.time() - begin > _CATCHES_UP_WITHIN:
                break
            await asyncio.sleep(_AGAIN)
        self._looked = loop.time()
        self._live.see(status)
        return status

    def _link(self) -> Link:
        return self._nodes.link(self._worker, 0)

    def _follow(self, link: Link) -> None:
        """Have only the node in use notify us."""
        if link.connection is None or link.connection is self._watched:
            return
        if self._watched is not None:
            self._watched.on_notification = None
        self._watched = link.connection
        link.connection.on_notification = self._heard
        link.connection.watch()

    def _heard(self, answer: Answer) -> None:
        self._live.hear(answer.body)

    def _answered(self, call: Future[Answer]) -> None:
        self._changes.discard(call)
        if not call.cancelled():
            call.exception()  # nobody may be waiting for it any more
