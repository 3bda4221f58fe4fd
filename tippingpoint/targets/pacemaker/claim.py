"""Leases as tickets in the CIB: claimed, stamped anew, read back, and watched for their release.

A lease is a `ticket_state` in the status section, with its holder as `owner` and a stamp that every extension renews.
Nothing in Pacemaker expires a ticket. Holders treat it as a lease, as booth does: who finds a stamp older than the
claim time may take it.

A claim and an extension are conditional changes: an XPath that only matches the ticket as it is expected to be. All
contenders of a lease are in one worker, and lease numbers are never used twice, so a number's first claim may create
the ticket.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from asyncio import Future
from collections.abc import Callable
from typing import Any
from xml.sax.saxutils import quoteattr

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.claim import ClaimWorkload
from tippingpoint.targets.pacemaker.access import PacemakerAccess
from tippingpoint.targets.pacemaker.connection import in_plain_words
from tippingpoint.targets.pacemaker.nodes import Link, Nodes
from tippingpoint.targets.pacemaker.wire import CAN_CREATE, LOCAL, SYNC, XPATH, Answer
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts

NO_MATCH = -6
"""The return code of a change whose XPath matches nothing (ENXIO)."""
_LEADER_WITHIN = 2.0
_TICKETS = "/cib/status/tickets/ticket_state"
_HEAD = re.compile(rb"<cib [^>]*>")
_DC = re.compile(rb'dc-uuid="([^"]*)"')
_FREED = re.compile(
    rb"ticket_state\[@id='([^']*)'\]\">.{0,200}?name=\"owner\" operation=\"set\" value=\"\"", re.DOTALL
)


class Tickets:
    """A ClaimTarget on the CIB. `drop` forgets waiting units, as a restarted worker would."""

    def __init__(
        self, access: PacemakerAccess, connections: int, workload: ClaimWorkload, prefix: str
    ) -> None:
        self._nodes = Nodes(access, connections)
        self._nodes.on_down = self._down
        self._claim_time = workload.claim_time
        self._prefix = prefix
        """Begins the ids of all tickets of this run."""
        self._stamps = itertools.count(time.time_ns() // 1000)
        self._created: set[int] = set()
        self._waiting: dict[int, dict[int, Callable[[], None]]] = {}
        self._watching: Link | None = None
        self._names: dict[str, str] = {}
        self._turn = itertools.count()

    async def open(self) -> TargetFacts:
        """Connect; see ClaimTarget."""
        self._loop = asyncio.get_running_loop()
        facts = await self._nodes.open()
        self._watch()
        return facts

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Take a free ticket, or create it; see ClaimTarget."""
        future: Future[Holding | None] = self._loop.create_future()
        stamp = self._next_stamp()
        link = self._nodes.link(lease, holder)
        ticket = self._ticket(lease, str(holder), stamp)
        if lease not in self._created:
            self._created.add(lease)
            data = f"<status><tickets>{ticket}</tickets></status>"
            call = link.call("cib_modify", "status", data, SYNC | CAN_CREATE)
        else:
            # A claim of ours whose answer was lost may have succeeded: the ticket then names us already.
            where = self._where(lease, f"(@owner='' or @owner='{holder}')")
            call = link.call("cib_modify", where, ticket, SYNC | XPATH)

        def answered(done: Future[Answer]) -> None:
            if (code := self._code(done, future, link)) is None:
                return
            if code == 0:
                future.set_result(Holding(lease, holder, stamp))
            elif code == NO_MATCH:
                future.set_result(None)
            else:
                future.set_exception(OperationFailed(f"{link.name}: {in_plain_words(code)}"))

        call.add_done_callback(answered)
        return future

    def extend(self, holding: Holding) -> Future[bool]:
        """Stamp a ticket anew, if it still has our last stamp; see ClaimTarget."""
        future: Future[bool] = self._loop.create_future()
        lease, holder = holding.lease, holding.holder
        stamp = self._next_stamp()
        link = self._nodes.link(lease, holder)
        where = self._where(lease, f"@owner='{holder}'")
        call = link.call("cib_modify", where, self._ticket(lease, str(holder), stamp), SYNC | XPATH)

        def answered(done: Future[Answer]) -> None:
            if (code := self._code(done, future, link)) is None:
                return
            if code == 0:
                holding.token = stamp
                future.set_result(True)
            elif code == NO_MATCH:
                future.set_result(False)
            else:
                future.set_exception(OperationFailed(f"{link.name}: {in_plain_words(code)}"))

        call.add_done_callback(answered)
        return future

    def release(self, holding: Holding) -> Future[None]:
        """Free a ticket; see ClaimTarget."""
        future: Future[None] = self._loop.create_future()
        link = self._nodes.link(holding.lease, holding.holder)
        where = self._where(holding.lease, f"@owner='{holding.holder}'")
        call = link.call("cib_modify", where, self._ticket(holding.lease, "", 0), SYNC | XPATH)

        def answered(done: Future[Answer]) -> None:
            if (code := self._code(done, future, link)) is None:
                return
            if code in (0, NO_MATCH):
                future.set_result(None)
            else:
                future.set_exception(OperationFailed(f"{link.name}: {in_plain_words(code)}"))

        call.add_done_callback(answered)
        return future

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Wait for a ticket to be free; see ClaimTarget."""
        self._waiting.setdefault(lease, {})[holder] = released

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting; see ClaimTarget."""
        waiting = self._waiting.get(lease, {})
        waiting.pop(holder, None)
        if not waiting:
            self._waiting.pop(lease, None)

    async def leader(self) -> str | None:
        """Return the DC as one node knows it, nodes taking turns; see Led."""
        links = [link for link in self._nodes.links if link.up]
        if not links:
            return ""
        link = links[next(self._turn) % len(links)]
        try:
            async with asyncio.timeout(_LEADER_WITHIN):
                answer = await link.call("cib_query", "/cib/@dc-uuid", None, SYNC | LOCAL | XPATH)
        except (TimeoutError, OperationFailed):
            return ""
        found = _DC.search(answer.body)
        return found[1].decode(errors="replace") if found else ""

    async def drop(self) -> None:
        """Abandon everything and connect afresh; see ClaimTarget."""
        self._waiting.clear()
        await self._nodes.reconnect("connection dropped on purpose")
        self._watch()

    async def close(self) -> None:
        """Close every connection; see ClaimTarget."""
        self._waiting.clear()
        self._nodes.close("closed")

    # how it is done

    def _next_stamp(self) -> int:
        return next(self._stamps)

    def _id(self, lease: int) -> str:
        return f"{self._prefix}{lease}"

    def _where(self, lease: int, condition: str) -> str:
        return f"{_TICKETS}[@id='{self._id(lease)}' and {condition}]"

    def _ticket(self, lease: int, owner: str, stamp: int) -> str:
        granted = "true" if owner else "false"
        return f'<ticket_state id={quoteattr(self._id(lease))} granted="{granted}" owner="{owner}" stamp="{stamp}"/>'

    def _code(self, done: Future[Answer], future: Future[Any], link: Link) -> int | None:
        """The return code of a call; None when `future` has ended with what became of the call."""
        if future.done():
            return None
        if done.cancelled():
            future.set_exception(OperationFailed(f"{link.name}: given up"))
            return None
        if (problem := done.exception()) is not None:
            future.set_exception(problem)
            return None
        return done.result().code

    def _watch(self) -> None:
        """Have one node notify us of changes, while units wait for a release."""
        for link in self._nodes.links:
            if link.up and link.connection is not None:
                link.connection.on_notification = self._changed
                link.connection.watch()
                self._watching = link
                return
        self._watching = None

    def _down(self, link: Link) -> None:
        if link is self._watching:
            self._watch()
            # A release may have been missed meanwhile, which counts as one.
            for lease in list(self._waiting):
                self._released(lease)

    def _changed(self, answer: Answer) -> None:
        if b'value=""' not in answer.body:
            return
        for name in _FREED.findall(answer.body):
            number = name.decode(errors="replace").removeprefix(self._prefix)
            if number.isdecimal():
                self._released(int(number))

    def _released(self, lease: int) -> None:
        for released in self._waiting.pop(lease, {}).values():
            released()
