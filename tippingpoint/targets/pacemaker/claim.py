"""Leases in the CIB: claimed, stamped anew, and watched for their release.

Pacemaker expires neither tickets nor properties. A holder treats one as a lease, as booth does: it writes a new
stamp at each renew time.

A claim and a renewal are conditional changes: their XPath matches the lease only in its expected state. All
contenders of a lease are in one worker, and lease numbers are never used twice. So the first claim of a number may
make the lease.

The side with quorum decides. A node without it answers as always, and the cluster may forget such a write later. So an
acknowledgement from a node that we know to be without quorum is a failure. Only the holder changes a lease. So if all
stamps of a lease are gone, it had been acknowledged and was undone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from asyncio import Future
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.access import access
from tippingpoint.targets.pacemaker.connection import in_plain_words
from tippingpoint.targets.pacemaker.members import Members
from tippingpoint.targets.pacemaker.nodes import Link, Nodes
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.stores import STORES, TICKET, TICKETS
from tippingpoint.targets.pacemaker.tags import number
from tippingpoint.targets.pacemaker.wire import (
    CAN_CREATE,
    LOCAL,
    NO_MATCH,
    SYNC,
    XPATH,
    Answer,
)
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.patience import answers_within
from tippingpoint.workloads.claim.target import Happened, Holding
from tippingpoint.workloads.load import TargetFacts

_ANSWER_WITHIN = 10.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.002, 0.1
"""Seconds between two reads of a lease on a node that does not show it yet: the pause grows by half each time."""
_DOUBTED_AFTER = 1.0
"""Seconds after which a node that does not show a lease is asked whether it is a member; and asked again."""
_TOLD_EVERY = 1.0
"""Seconds within which undone writes form one event."""


class CibLeases:
    """A ClaimTarget on the CIB."""

    def __init__(self, target: PacemakerTarget, prefix: str) -> None:
        self._nodes = Nodes(access(target), target.connections, reading=True)
        self._nodes.on_down = self._down
        self._members = Members(self._nodes.links, self._nodes.readers)
        self._happened: Happened | None = None
        self._undone: dict[str, Any] = {}
        """The event of undone writes, while it waits for more of them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._store = STORES[target.store]
        self._prefix = prefix
        """The prefix of the ids of all leases of this worker."""
        self._stamps = itertools.count(1)
        self._made: set[int] = set()
        """Leases that exist."""
        self._making: set[int] = set()
        self._waiting: dict[int, dict[int, Callable[[], None]]] = {}
        self._watching: Link | None = None

    async def open(self) -> TargetFacts:
        """Connect; see ClaimTarget."""
        self._loop = asyncio.get_running_loop()
        facts = await self._nodes.open()
        if self._store is TICKET:
            await self._make_tickets()
        self._members.follow()
        return facts

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Take a free lease, or make it; see ClaimTarget."""
        future: Future[Holding | None] = self._loop.create_future()
        link, store, name = self._nodes.link(lease, holder), self._store, self._name(lease)
        stamp = next(self._stamps)
        held = f"{holder}:{stamp}"
        if lease not in self._made and lease not in self._making:
            self._making.add(lease)
            call = link.call("cib_modify", store.section, store.create(name, held), SYNC | CAN_CREATE)
            call.add_done_callback(partial(self._was_made, lease))
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
        # Until the answer arrives, the lease may have either.
        holding.token = (*possible, held)
        call = link.call("cib_modify", where, store.change(name, held), SYNC | XPATH)

        def answered(code: int) -> None:
            if code == 0:
                holding.token = (held,)
                future.set_result(True)
            else:
                judging = self._loop.create_task(self._judge(holding, link, future))
                self._tasks.add(judging)
                judging.add_done_callback(self._tasks.discard)

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
        if self._watching is not None:
            # It may have been freed before the notifications began.
            where = self._store.where(self._name(lease), [""])
            call = self._watching.call("cib_query", where, None, SYNC | LOCAL | XPATH)
            call.add_done_callback(partial(self._was_free, lease))

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting; see ClaimTarget."""
        waiting = self._waiting.get(lease, {})
        waiting.pop(holder, None)
        if not waiting:
            self._waiting.pop(lease, None)

    def seen(self, holding: Holding) -> Future[None]:
        """Read a lease on every node until its last stamp is there; see Visible."""
        stamp = int(_stamps(holding)[0].rpartition(":")[2])
        look = self._loop.create_task(self._see(self._name(holding.lease), stamp))
        self._tasks.add(look)
        look.add_done_callback(self._tasks.discard)
        return look

    def notice(self, happened: Happened, members: bool) -> None:
        """Report writes that were undone, and changes of the members; see Noticing."""
        self._happened = happened
        self._members.tell(happened if members else None)

    async def drop(self) -> None:
        """Abandon everything and connect afresh; see ClaimTarget."""
        self._waiting.clear()
        self._watching = None
        await self._nodes.reconnect("connection dropped on purpose")

    async def close(self) -> None:
        """Close every connection; see ClaimTarget."""
        self._waiting.clear()
        self._members.close()
        for task in self._tasks:
            task.cancel()
        self._nodes.close("closed")

    # how it is done

    def _name(self, lease: int) -> str:
        return f"{self._prefix}{lease}"

    async def _make_tickets(self) -> None:
        """Make the element for tickets, unless there is one. It has a mark, so that it is removed after the run."""
        with contextlib.suppress(TimeoutError, OperationFailed):
            link = self._nodes.link(0, 0)
            async with answers_within(_ANSWER_WITHIN):
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
            elif (code := call.result().code) == 0 and not link.quorate:
                _fail(future, f"{link.name}: acknowledged without quorum")
            elif code in (0, NO_MATCH):
                answered(code)
            else:
                future.set_exception(OperationFailed(f"{link.name}: {in_plain_words(code)}"))

        call.add_done_callback(done)

    def _was_made(self, lease: int, call: Future[Answer]) -> None:
        self._making.discard(lease)
        if not call.cancelled() and call.exception() is None and call.result().code == 0:
            self._made.add(lease)

    def _was_free(self, lease: int, call: Future[Answer]) -> None:
        if not call.cancelled() and call.exception() is None and call.result().code == 0:
            self._released(lease)

    def _was_undone(self, name: str, acknowledged: str) -> None:
        """Report that an acknowledged write is gone, by its lease and stamp; several together."""
        if not self._undone:
            self._undone = {"count": 0, "lease": name, "acknowledged": acknowledged}
            self._loop.call_later(_TOLD_EVERY, self._tell_undone)
        self._undone["count"] += 1

    def _tell_undone(self) -> None:
        told, self._undone = self._undone, {}
        if self._happened is not None:
            self._happened("undone", told)

    async def _judge(self, holding: Holding, link: Link, future: Future[bool]) -> None:
        """End a renewal that matched nothing: was the last one undone, or did a node answer from an old copy?

        A node that comes back answers before it has the cluster's CIB.
        """
        name = self._name(holding.lease)
        try:
            async with answers_within(_ANSWER_WITHIN):
                judge = self._members.judge()
                answer = await judge.call(
                    "cib_query", self._store.where(name, []), None, SYNC | LOCAL | XPATH
                )
        except (TimeoutError, OperationFailed) as problem:
            _fail(future, f"{link.name}: no match, and no other node says why ({in_words(problem)})")
            return
        if self._store.read(answer.body) in _stamps(holding):
            _fail(future, f"{link.name}: answered for an old copy of the CIB")
        elif not future.done():
            self._was_undone(name, _stamps(holding)[0])
            self._made.discard(holding.lease)
            future.set_result(False)

    async def _see(self, name: str, stamp: int) -> None:
        await asyncio.gather(*(self._see_on(link, name, stamp) for link in self._nodes.readers))

    async def _see_on(self, link: Link, name: str, stamp: int) -> None:
        where, pause = self._store.where(name, []), _FIRST_PAUSE
        doubt = self._loop.time() + _DOUBTED_AFTER
        while link.up and link.quorate:
            try:
                answer = await link.call("cib_query", where, None, SYNC | LOCAL | XPATH)
            except OperationFailed:
                return  # the node is gone: it is not waited for
            held = self._store.read(answer.body)
            if held is not None and number(held.rpartition(":")[2], stamp) >= stamp:
                return
            if self._loop.time() > doubt:
                if await self._members.is_apart(link):
                    return  # it is back, and no member yet
                doubt = self._loop.time() + _DOUBTED_AFTER
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _LONGEST_PAUSE)

    def _watch(self) -> None:
        """Have one node notify us of changes, while units wait for a release."""
        for link in self._nodes.readers:
            if link.connection is not None and link.up and link.quorate:
                link.connection.on_notification = self._changed
                link.connection.watch()
                self._watching = link
                return
        self._watching = None

    def _down(self, link: Link) -> None:
        if link is self._watching:
            self._watch()
            # A release may have been missed meanwhile; that counts as a release.
            for lease in list(self._waiting):
                self._released(lease)

    def _changed(self, answer: Answer) -> None:
        if b'value=""' not in answer.body:
            return
        for name in self._store.freed.findall(answer.body):
            lease = number(name.decode(errors="replace").removeprefix(self._prefix), -1)
            if lease >= 0:
                self._released(lease)

    def _released(self, lease: int) -> None:
        for released in self._waiting.pop(lease, {}).values():
            released()


def _fail(future: Future[Any], problem: str) -> None:
    if not future.done():
        future.set_exception(OperationFailed(problem))


def _stamps(holding: Holding) -> tuple[str, ...]:
    """The values that a lease may have: the last that was acknowledged, and later ones without an answer."""
    return cast("tuple[str, ...]", holding.token)
