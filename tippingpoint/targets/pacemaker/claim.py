"""Leases in the CIB: claimed, stamped anew, and watched for their release.

Nothing in Pacemaker expires a ticket, nor a property. A holder treats it as a lease, as booth does: it writes a new
stamp at each renew time.

A claim and an extension are conditional changes: an XPath that only matches the lease as it is expected to be. All
contenders of a lease are in one worker, and lease numbers are never used twice. So the first claim of a number may
make the lease.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from asyncio import Future
from collections.abc import Callable
from typing import Any, cast

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.access import access
from tippingpoint.targets.pacemaker.connection import in_plain_words
from tippingpoint.targets.pacemaker.nodes import Link, Nodes
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.stores import STORES, TICKET, TICKETS
from tippingpoint.targets.pacemaker.wire import (
    CAN_CREATE,
    LOCAL,
    NO_MATCH,
    SHALLOW,
    SYNC,
    XPATH,
    Answer,
)
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts

_LEADER_WITHIN = 2.0
_MADE_WITHIN = 10.0
_DC = re.compile(rb'dc-uuid="([^"]*)"')


class CibLeases:
    """A ClaimTarget on the CIB."""

    def __init__(self, target: PacemakerTarget, prefix: str) -> None:
        self._nodes = Nodes(access(target), target.connections)
        self._nodes.on_down = self._down
        self._store = STORES[target.store]
        self._prefix = prefix
        """Begins the ids of all leases of this worker."""
        self._stamps = itertools.count(1)
        self._made: set[int] = set()
        self._waiting: dict[int, dict[int, Callable[[], None]]] = {}
        self._watching: Link | None = None
        self._turn = itertools.count()

    async def open(self) -> TargetFacts:
        """Connect; see ClaimTarget."""
        self._loop = asyncio.get_running_loop()
        facts = await self._nodes.open()
        if self._store is TICKET:
            await self._make_tickets()
        return facts

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Take a free lease, or make it; see ClaimTarget."""
        future: Future[Holding | None] = self._loop.create_future()
        link, store, name = self._nodes.link(lease, holder), self._store, self._name(lease)
        stamp = next(self._stamps)
        held = f"{holder}:{stamp}"
        if lease not in self._made:
            self._made.add(lease)
            call = link.call("cib_modify", store.section, store.create(name, held), SYNC | CAN_CREATE)
        else:
            # A claim of ours whose answer was lost may have succeeded: the lease then names us already.
            where = store.where(name, [""], or_of=f"{holder}:")
            call = link.call("cib_modify", where, store.change(name, held), SYNC | XPATH)

        def answered(code: int) -> None:
            future.set_result(Holding(lease, holder, (held,)) if code == 0 else None)

        self._when_answered(call, future, link, answered)
        return future

    def extend(self, holding: Holding) -> Future[bool]:
        """Stamp a lease anew, if it still has a stamp of ours; see ClaimTarget."""
        future: Future[bool] = self._loop.create_future()
        link, store, name = (
            self._nodes.link(holding.lease, holding.holder),
            self._store,
            self._name(holding.lease),
        )
        held = f"{holding.holder}:{next(self._stamps)}"
        possible = _stamps(holding)
        where = store.where(name, possible)
        # Until the answer is there, the lease may have either.
        holding.token = (*possible, held)
        call = link.call("cib_modify", where, store.change(name, held), SYNC | XPATH)

        def answered(code: int) -> None:
            if code == 0:
                holding.token = (held,)
            else:
                self._made.discard(holding.lease)
            future.set_result(code == 0)

        self._when_answered(call, future, link, answered)
        return future

    def release(self, holding: Holding) -> Future[None]:
        """Free a lease; see ClaimTarget."""
        future: Future[None] = self._loop.create_future()
        link, store, name = (
            self._nodes.link(holding.lease, holding.holder),
            self._store,
            self._name(holding.lease),
        )
        where = store.where(name, [], or_of=f"{holding.holder}:")
        call = link.call("cib_modify", where, store.change(name, ""), SYNC | XPATH)
        self._when_answered(call, future, link, lambda code: future.set_result(None))
        return future

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Wait for a lease to be free; see ClaimTarget."""
        self._waiting.setdefault(lease, {})[holder] = released
        if self._watching is None:
            self._watch()

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
                answer = await link.call("cib_query", None, None, SYNC | LOCAL | SHALLOW)
        except (TimeoutError, OperationFailed):
            return ""
        found = _DC.search(answer.body)
        return found[1].decode(errors="replace") if found else ""

    async def drop(self) -> None:
        """Abandon everything and connect afresh; see ClaimTarget."""
        self._waiting.clear()
        self._watching = None
        await self._nodes.reconnect("connection dropped on purpose")

    async def close(self) -> None:
        """Close every connection; see ClaimTarget."""
        self._waiting.clear()
        self._nodes.close("closed")

    # how it is done

    def _name(self, lease: int) -> str:
        return f"{self._prefix}{lease}"

    async def _make_tickets(self) -> None:
        """Make the element for tickets, unless there is one: with a mark, so that it is removed after the run."""
        with contextlib.suppress(TimeoutError, OperationFailed):
            link = self._nodes.link(0, 0)
            async with asyncio.timeout(_MADE_WITHIN):
                await link.call("cib_create", "status", TICKETS, SYNC)

    def _when_answered(
        self, call: Future[Answer], future: Future[Any], link: Link, answered: Callable[[int], None]
    ) -> None:
        """Call `answered` with 0 or NO_MATCH; anything else ends `future` as a failure."""

        def done(call: Future[Answer]) -> None:
            if future.done():
                return
            if call.cancelled():
                future.set_exception(OperationFailed(f"{link.name}: given up"))
            elif (problem := call.exception()) is not None:
                future.set_exception(problem)
            elif (code := call.result().code) in (0, NO_MATCH):
                answered(code)
            else:
                future.set_exception(OperationFailed(f"{link.name}: {in_plain_words(code)}"))

        call.add_done_callback(done)

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
        for name in self._store.freed.findall(answer.body):
            number = name.decode(errors="replace").removeprefix(self._prefix)
            if number.isdecimal():
                self._released(int(number))

    def _released(self, lease: int) -> None:
        for released in self._waiting.pop(lease, {}).values():
            released()


def _stamps(holding: Holding) -> tuple[str, ...]:
    """The values that a lease may have: the last that was acknowledged, and later ones without an answer."""
    return cast("tuple[str, ...]", holding.token)
