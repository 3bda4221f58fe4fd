"""Connections to all nodes of a cluster whose nodes come and go, and what the nodes report at one moment.

A test stops nodes on purpose and starts them again, so a node is tried again after a short while, whatever it
answered. Only the first login may report a wrong password.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.access import PacemakerAccess
from tippingpoint.targets.pacemaker.connection import Connection, in_plain_words
from tippingpoint.targets.pacemaker.cts_view import Done, Side
from tippingpoint.targets.pacemaker.nodes import Nodes
from tippingpoint.targets.pacemaker.status import Version, parse_cib, status_of
from tippingpoint.targets.pacemaker.tags import attributes, first_tag, number
from tippingpoint.targets.pacemaker.wire import LOCAL, NO_MATCH, SHALLOW, SYNC, Answer
from tippingpoint.util.patience import answers_within
from tippingpoint.workloads.load import TargetFacts

AGAIN = 0.3
"""Seconds before the next login at a node that is not reached. It is also the error of any time until a node
answers."""
_LOGIN_WITHIN = 5.0
_ANSWER_WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class _Head:
    version: Version
    dc: str
    quorum: bool


class Watch:
    """One connection to each node, as long as the node is up."""

    def __init__(self, access: PacemakerAccess) -> None:
        self._access = access
        self._up: dict[str, Connection] = {}
        self._keeping: list[asyncio.Task[None]] = []
        self._with_quorum: list[str] = []
        """The addresses whose nodes had the quorum when they were last looked at."""
        self._turn = 0
        self._wanted = {address: asyncio.Event() for address in access.addresses}
        self.hold_all()

    async def open(self) -> TargetFacts:
        """Log in; TargetError when no node answers, or when all refuse us."""
        nodes = Nodes(self._access, 1)
        try:
            facts = await nodes.open()
        finally:
            nodes.close("closed")
        self._keeping = [asyncio.create_task(self._keep(address)) for address in self._access.addresses]
        return facts

    async def close(self) -> None:
        """Close every connection."""
        for task in self._keeping:
            task.cancel()
        for connection in list(self._up.values()):
            connection.close("closed")
        await asyncio.gather(*self._keeping, return_exceptions=True)

    def let_go(self, address: str) -> None:
        """Close the connection to a node that is to stop, and make no other until `hold`.

        Pacemaker's CIB daemon waits for its clients to go when its node stops. After 30 s it is killed.
        """
        if (wanted := self._wanted.get(address)) is not None:
            wanted.clear()
        if (connection := self._up.get(address)) is not None:
            connection.close("the node is to stop")

    def hold(self, address: str) -> None:
        """Connect to a node again."""
        if (wanted := self._wanted.get(address)) is not None:
            wanted.set()

    def hold_all(self) -> None:
        """Connect to every node."""
        for wanted in self._wanted.values():
            wanted.set()

    async def look(self, ours: str) -> tuple[Side, ...]:
        """What the nodes that answer report, the largest side first. `ours` is the prefix of our resources' ids."""
        there = dict(self._up)  # nodes come and go while the others are asked
        answers = await asyncio.gather(*(_head(each) for each in there.values()))
        heads = dict(zip(there, answers, strict=True))
        self._with_quorum = [address for address, head in heads.items() if head is not None and head.quorum]
        by_side: dict[tuple[str, bool], list[str]] = defaultdict(list)
        for address, head in heads.items():
            if head is not None:
                by_side[head.dc, head.quorum].append(address)
        found = await asyncio.gather(*(self._side(addresses, heads, ours) for addresses in by_side.values()))
        return tuple(
            sorted((side for side in found if side is not None), key=lambda side: -len(side.versions))
        )

    async def quorate(self) -> Connection | None:
        """A connection to a node that has the quorum; None without one."""
        for connection in list(self._up.values()):
            head = await _head(connection)
            if head is not None and head.quorum:
                return connection
        return None

    async def await_quorum(self) -> None:
        """Wait until a node that answers has the quorum."""
        while True:
            if await self.quorate() is not None:
                return
            await asyncio.sleep(AGAIN)

    def one_with_quorum(self) -> Connection | None:
        """A connection to one of the nodes that had the quorum at the last look, in turn; None without one."""
        there = [self._up[address] for address in self._with_quorum if address in self._up]
        self._turn += 1
        return there[self._turn % len(there)] if there else None

    async def call(self, operation: str, section: str | None, data: str | None, options: int) -> Answer:
        """Make a call to a node that has the quorum; OperationFailed when it fails, or when there is none."""
        connection = await self.quorate()
        if connection is None:
            raise OperationFailed("no node that answers has quorum")
        try:
            async with answers_within(_ANSWER_WITHIN):
                answer = await connection.call(operation, section, data, options)
        except TimeoutError:
            raise OperationFailed(
                f"{connection.name}: no answer to {operation} in {_ANSWER_WITHIN:g}s"
            ) from None
        if answer.code not in (0, NO_MATCH):
            raise OperationFailed(f"{connection.name}: {operation}: {in_plain_words(answer.code)}")
        return answer

    async def _side(
        self, addresses: Collection[str], heads: Mapping[str, _Head | None], ours: str
    ) -> Side | None:
        for address in addresses:
            connection = self._up.get(address)
            answer = await _ask(connection, LOCAL) if connection is not None else None
            if answer is not None:
                with contextlib.suppress(OperationFailed):
                    cib = parse_cib(answer.body)
                    versions = tuple(head.version for each in addresses if (head := heads[each]) is not None)
                    return Side(status_of(cib), versions, _done(cib, ours))
        return None

    async def _connect(self, address: str) -> tuple[Connection, asyncio.Event]:
        """Log in; the event is set once the connection is lost."""
        access, lost = self._access, asyncio.Event()
        connection = await Connection.connect(
            address, access.port, access.tls, access.user, access.password, lambda _: lost.set()
        )
        return connection, lost

    async def _keep(self, address: str) -> None:
        """Connect whenever the connection is down."""
        while True:
            await self._wanted[address].wait()
            with contextlib.suppress(
                Exception
            ):  # a node that goes down can make a TLS library raise anything
                async with answers_within(_LOGIN_WITHIN):
                    connection, lost = await self._connect(address)
                self._up[address] = connection
                try:
                    await lost.wait()
                finally:
                    self._up.pop(address, None)
                    connection.close("closed")
            await asyncio.sleep(AGAIN)


def _done(cib: Element, ours: str) -> dict[str, frozenset[Done]]:
    """The operations in the histories of resources whose ids begin with `ours`, by resource."""
    found: dict[str, set[Done]] = defaultdict(set)
    for state in cib.iterfind("status/node_state"):
        for resource in state.iter("lrm_resource"):
            if (id := resource.get("id", "")).startswith(ours):
                found[id].update(
                    Done(each.get("operation", ""), state.get("uname", ""), each.get("call-id", ""))
                    for each in resource.iter("lrm_rsc_op")
                )
    return {id: frozenset(operations) for id, operations in found.items()}


async def _head(connection: Connection) -> _Head | None:
    answer = await _ask(connection, LOCAL | SHALLOW)
    tag = first_tag(answer.body, b"cib") if answer is not None else None
    if tag is None:
        return None
    said = attributes(tag)
    version = Version(*(number(said.get(part)) for part in Version._fields))
    return _Head(version, said.get("dc-uuid", ""), said.get("have-quorum") in ("1", "true"))


async def _ask(connection: Connection, options: int) -> Answer | None:
    """Query the whole CIB; None if the node does not answer: its connection is then made anew."""
    try:
        async with answers_within(_ANSWER_WITHIN):
            return await connection.call("cib_query", None, None, SYNC | options)
    except TimeoutError:
        connection.close("no answer")
    except OperationFailed:
        pass
    return None
