"""A worker's connections to the nodes of a cluster: opened, logged in, remade when lost, and chosen for each call."""

from __future__ import annotations

import asyncio
import re
from asyncio import Future
from collections.abc import Awaitable, Callable

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.pacemaker.access import LOGIN_WITHIN, PacemakerAccess, refusal
from tippingpoint.targets.pacemaker.connection import Connection
from tippingpoint.targets.pacemaker.tags import attributes, start_tags
from tippingpoint.targets.pacemaker.wire import LOCAL, SHALLOW, SYNC, Answer
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.patience import answers_within
from tippingpoint.workloads.load import TargetFacts

_FIRST_RETRY, _LONGEST_RETRY = 0.2, 5.0
AFTER_REFUSAL = 60.0
"""Seconds before the next login at a node that refused one: a wrong password blocks its CIB daemon for seconds."""
ANSWER_WITHIN = 10.0
"""Seconds that a node has to answer a query of `open`."""
_VERSION = re.compile(rb'name="dc-version" value="([^"]*)"')


class _Door:
    """Guards the logins to a node: after a refusal, one link at a time tries, at most once in AFTER_REFUSAL seconds."""

    def __init__(self) -> None:
        self.refused = False
        self._opens = 0.0
        self._turn = asyncio.Lock()

    async def pass_by(self, connect: Callable[[], Awaitable[None]], name: str) -> None:
        """Connect when it is our turn; raises what `connect` does."""
        if not self.refused:
            await self._knock(connect, name)
            return
        async with self._turn:
            await asyncio.sleep(max(0.0, self._opens - timing.monotonic()))
            await self._knock(connect, name)

    async def _knock(self, connect: Callable[[], Awaitable[None]], name: str) -> None:
        try:
            await connect()
        except Exception as error:
            if refusal(name, error) is not None:
                self.refused, self._opens = True, timing.monotonic() + AFTER_REFUSAL
            raise
        self.refused = False


class Link:
    """One connection to a node. It is remade whenever it is lost, until it is closed."""

    def __init__(
        self, access: PacemakerAccess, address: str, door: _Door, on_down: Callable[[Link], None]
    ) -> None:
        self.address = address
        self.name = f"{address}:{access.port}"
        self.connection: Connection | None = None
        self.problem = "not connected"
        self.quorate = True
        """Whether the node has quorum, as far as we know."""
        self._door = door
        self._access = access
        self._on_down = on_down
        self._remake: asyncio.Task[None] | None = None
        self._wanted = True

    @property
    def up(self) -> bool:
        """Whether calls can be made."""
        return self.connection is not None and self.connection.up

    @property
    def refused(self) -> bool:
        """Whether the node refused the last login."""
        return self._door.refused

    async def connect(self) -> None:
        """Connect and log in once; raises the cause of a failure."""
        await self._door.pass_by(self._connect, self.name)

    async def _connect(self) -> None:
        access = self._access
        try:
            async with answers_within(LOGIN_WITHIN):
                connection = await Connection.connect(
                    self.address, access.port, access.tls, access.user, access.password, self._lost
                )
        except Exception as error:
            self.problem = in_words(error)
            raise
        if not self._wanted:
            connection.close("closed")
            raise ConnectionError("closed")
        self.connection = connection

    def keep_trying(self, first: float = 0.0) -> None:
        """Connect in the background, until it succeeds or the link is closed."""
        if self._wanted and self._remake is None:
            self._remake = asyncio.get_running_loop().create_task(self._try(first))

    def call(self, operation: str, section: str | None, data: str | None, options: int) -> Future[Answer]:
        """Make a call; see Connection.call."""
        if self.connection is None:
            future: Future[Answer] = asyncio.get_running_loop().create_future()
            future.set_exception(OperationFailed(f"{self.name}: {self.problem}"))
            return future
        return self.connection.call(operation, section, data, options)

    def close(self, reason: str) -> None:
        """Close the connection and do not reconnect."""
        self._wanted = False
        self.problem = reason
        if self._remake is not None:
            self._remake.cancel()
            self._remake = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(reason)

    def reopen(self) -> None:
        """Allow connections again after `close`."""
        self._wanted = True

    def _lost(self, reason: str) -> None:
        if self.connection is not None:
            self.connection = None
            self.problem = reason
            self._on_down(self)
            self.keep_trying()

    async def _try(self, first: float) -> None:
        failures = 0
        await asyncio.sleep(first)
        while self._wanted:
            try:
                await self.connect()
                break
            except Exception:  # a broken server can make a TLS library raise anything
                failures += 1
                await asyncio.sleep(backoff(failures, _FIRST_RETRY, _LONGEST_RETRY))
        self._remake = None


class Nodes:
    """Connections to all nodes, `connections` to each.

    With `reading`, `readers` has one more connection to each node, for calls that must not wait behind the load.
    """

    def __init__(self, access: PacemakerAccess, connections: int, reading: bool = False) -> None:
        doors = {address: _Door() for address in access.addresses}
        self.on_down: Callable[[Link], None] = lambda link: None
        """Called when a reader has lost its connection."""
        # The order alternates between nodes, so that neighbours in the list reach different nodes.
        self.links = [
            Link(access, address, doors[address], lambda link: None)
            for _ in range(connections)
            for address in access.addresses
        ]
        self.readers = [
            Link(access, address, doors[address], lambda link: self.on_down(link))
            for address in (access.addresses if reading else [])
        ]
        self._count = len(access.addresses)

    async def open(self) -> TargetFacts:
        """Connect to every node that answers. TargetError when none does, or when all refuse us."""
        firsts = self.links[: self._count]
        errors = await asyncio.gather(*(link.connect() for link in firsts), return_exceptions=True)
        refusals: list[TargetError] = []
        for link, error in zip(firsts, errors, strict=True):
            if error is None:
                continue
            if not isinstance(error, Exception):
                raise error
            if (refused := refusal(link.name, error)) is not None:
                refusals.append(refused)
            link.keep_trying(_FIRST_RETRY)
        for link in firsts:
            if link.up:
                facts = await self._facts(link)
                for other in (*self.links[self._count :], *self.readers):
                    other.keep_trying()
                return facts
        shown = "; ".join(f"{link.name}: {link.problem}" for link in firsts[:5])
        self.close("not connected")
        if refusals:
            raise refusals[0]
        raise TargetError(
            "target.credentials", shown, "at least one node whose CIB answers (remote-tls-port)"
        )

    async def quorate(self) -> Link:
        """Return a link to a node that has quorum. A change without quorum may be undone later.

        OperationFailed if no node that answers has it.
        """
        for link in self.links[: self._count]:
            if link.up:
                try:
                    async with answers_within(ANSWER_WITHIN):
                        head = await link.call("cib_query", None, None, SYNC | LOCAL | SHALLOW)
                except (TimeoutError, OperationFailed) as problem:
                    if link.connection is not None:  # it is up, and silent
                        link.connection.close(in_words(problem))
                    continue
                if b'have-quorum="1"' in head.body:
                    return link
        raise OperationFailed("no node that answers has quorum")

    def link(self, lease: int, holder: int) -> Link:
        """Return the link for this holder's next operation: its own, or the next one that is up and has quorum."""
        links = self.links
        first = hash((lease, holder)) % len(links)
        in_turn = [links[first - step] for step in range(len(links))]
        up = [link for link in in_turn if link.up]
        return next((link for link in up if link.quorate), next(iter(up), links[first]))

    def close(self, reason: str) -> None:
        """Close every connection; calls under way end."""
        for link in (*self.links, *self.readers):
            link.close(reason)

    async def reconnect(self, reason: str) -> None:
        """Close every connection and open fresh ones; those that fail are retried in the background."""
        self.close(reason)
        every = [*self.links, *self.readers]
        for link in every:
            link.reopen()
        await asyncio.gather(*(link.connect() for link in every if not link.refused), return_exceptions=True)
        for link in every:
            if not link.up:
                link.keep_trying()

    async def _facts(self, link: Link) -> TargetFacts:
        try:
            async with answers_within(ANSWER_WITHIN):
                whole = await link.call("cib_query", None, None, SYNC | LOCAL)
        except (TimeoutError, OperationFailed) as error:
            raise TargetError(
                "target.credentials", f"{link.name}: {in_words(error)}", "a node that answers"
            ) from None
        version = _VERSION.search(whole.body)
        release = version[1].decode(errors="replace").split("-")[0] if version else "of unknown version"
        members = sorted(
            {name for tag in start_tags(whole.body, b"node") if (name := attributes(tag).get("uname"))}
        )
        return TargetFacts("pacemaker", release, members)
