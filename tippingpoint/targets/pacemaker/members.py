"""What the CIB shows about the cluster itself: the DC, the nodes with quorum, and the nodes and controllers present.

Twice a second, every node is queried for the attributes of its `cib` element, and a node with quorum for the
`node_state` elements, both without children: 0.2 ms of the node's time each. Notifications would show as much. But they
carry every change, and cost a daemon that is near its limit 10 % more.

Evictions themselves are only in the logs. The CIB shows their consequence: the controller of a node that is still a
member goes and comes back, and if it was the DC's, the DC changes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.nodes import Link
from tippingpoint.targets.pacemaker.status import Version
from tippingpoint.targets.pacemaker.tags import attributes, first_tag, number, start_tags
from tippingpoint.targets.pacemaker.wire import LOCAL, SHALLOW, SYNC, XPATH, WireError
from tippingpoint.util.patience import answers_within
from tippingpoint.workloads.claim.target import Happened

EVERY = 0.5
"""Seconds between two looks."""
CLIENT = "tippingpoint"
"""The name of this client in a CIB, as the one that changed it last."""
SILENT_LOOKS = 6
"""Looks in a row without an answer after which a node is given up: about 15 s. A daemon under load answers some."""
_ANSWER_WITHIN = 2.0


@dataclass(frozen=True)
class Head:
    """The attributes of a node's `cib` element that describe the cluster."""

    quorate: bool
    dc: str
    """The DC's id; empty while there is none."""
    version: Version
    client: str
    """The client that changed the configuration last."""


@dataclass(frozen=True)
class State:
    """A node as the cluster's controllers see it."""

    name: str
    member: bool
    """Whether it is a member of the partition."""
    controlled: bool
    """Whether its controller has joined."""


class Members:
    """Follows the members, marks the links of nodes without quorum, and reports changes."""

    def __init__(self, links: list[Link], readers: list[Link]) -> None:
        self._links = links
        self._readers = readers
        self._task: asyncio.Task[None] | None = None
        self._names: dict[str, str] = {}
        self._states: dict[str, State] = {}
        self._dc = ""
        self._epoch: int | None = None
        self._unanswered: Counter[str] = Counter()
        """Looks in a row that a node's address has not answered."""
        self._judge: Link | None = None
        self._happened: Happened | None = None

    def tell(self, happened: Happened | None) -> None:
        """Report changes to `happened` from now on, beginning with the present state; None to report nothing."""
        if happened is not None and self._happened is None:
            self._states.clear()
            self._dc = ""
        self._happened = happened

    def follow(self) -> None:
        """Begin, in the background."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _follow(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Look once at all nodes that answer."""
        heads = await asyncio.gather(*map(_head, self._readers))
        for reader, head in zip(self._readers, heads, strict=True):
            self._note_silence(reader, head is not None)
            if head is not None and head.quorate != reader.quorate:
                for link in (*self._links, *self._readers):
                    if link.address == reader.address:
                        link.quorate = head.quorate
                self._report("quorum", member=reader.name, status="has" if head.quorate else "lost")
        quorate = [
            (reader, head)
            for reader, head in zip(self._readers, heads, strict=True)
            if head is not None and head.quorate
        ]
        if not quorate:
            return
        # A node that has come back says that it has quorum, and has old values.
        reader, head = max(quorate, key=lambda each: each[1].version)
        self._judge = reader
        for state in await _states(reader):
            self._note(state)
        if head.dc != self._dc and (name := self._names.get(head.dc)):
            self._dc = head.dc
            self._report("leader", member=name)
        epoch = head.version.epoch
        if self._epoch is not None and epoch > self._epoch and head.client != CLIENT:
            self._report("configuration", epoch=epoch, by=head.client)
        self._epoch = max(epoch, self._epoch or 0)

    def judge(self) -> Link:
        """Return a link to a node with quorum and the newest CIB at the last look; OperationFailed without one."""
        if self._judge is None or not (self._judge.up and self._judge.quorate):
            raise OperationFailed("no node that answers has quorum")
        return self._judge

    async def is_apart(self, link: Link) -> bool:
        """Whether a node answers from a copy of the CIB that is not the cluster's yet, as a node that has just returned
        does.

        Until the DC gives it the cluster's copy, its own copy shows no node as joined. While a DC is being elected, no
        copy may show one. False if a node does not answer.
        """
        try:
            own, known = await asyncio.gather(_ask_states(link), _ask_states(self.judge()))
        except (TimeoutError, OperationFailed, WireError):
            return False
        return _has_joined(known) and not _has_joined(own)

    def _note_silence(self, reader: Link, answered: bool) -> None:
        """Close the links of a node that has long been silent: calls under way end, and the next use other nodes.

        A machine that is gone closes nothing, and TCP would wait for it for a quarter of an hour.
        """
        if answered or not reader.up:
            del self._unanswered[reader.address]
            return
        self._unanswered[reader.address] += 1
        if self._unanswered[reader.address] < SILENT_LOOKS:
            return
        for link in (*self._links, *self._readers):
            if link.address == reader.address and link.connection is not None:
                link.connection.close("silent")

    def _note(self, told: tuple[str, State]) -> None:
        number, state = told
        self._names[number] = state.name
        before, self._states[number] = self._states.get(number), state
        if before is None or before.member != state.member:
            self._report("member", member=state.name, status="online" if state.member else "offline")
        elif state.member and before.controlled != state.controlled:
            # Evicted, crashed or stopped: the node is a member, and its controller is not.
            self._report("controller", member=state.name, status="joined" if state.controlled else "gone")

    def _report(self, event: str, **fields: str | int) -> None:
        if self._happened is not None:
            self._happened(event, fields)


async def _head(reader: Link) -> Head | None:
    """Ask a node for its `cib` element; None if it does not answer."""
    if not reader.up:
        return None
    try:
        async with answers_within(_ANSWER_WITHIN):
            answer = await reader.call("cib_query", None, None, SYNC | LOCAL | SHALLOW)
    except (TimeoutError, OperationFailed, WireError):
        return None
    tag = first_tag(answer.body, b"cib")
    if tag is None:
        return None
    known = attributes(tag)
    return Head(
        quorate=known.get("have-quorum") == "1",
        dc=known.get("dc-uuid", ""),
        version=Version(*(number(known.get(part)) for part in Version._fields)),
        client=known.get("update-client", ""),
    )


async def _states(reader: Link) -> list[tuple[str, State]]:
    """Ask a node for the states of all nodes, by id; empty if it does not answer."""
    try:
        return await _ask_states(reader)
    except (TimeoutError, OperationFailed, WireError):
        return []


async def _ask_states(reader: Link) -> list[tuple[str, State]]:
    async with answers_within(_ANSWER_WITHIN):
        answer = await reader.call(
            "cib_query", "/cib/status/node_state", None, SYNC | LOCAL | XPATH | SHALLOW
        )
    found: list[tuple[str, State]] = []
    for element in start_tags(answer.body, b"node_state"):
        known = attributes(element)
        if known.get("remote_node") == "true":
            continue
        joined = known.get("join") == "member" and _is_on(known.get("crmd", ""), "online")
        state = State(known.get("uname", ""), _is_on(known.get("in_ccm", ""), "true"), joined)
        found.append((known.get("id", ""), state))
    return found


def _has_joined(states: list[tuple[str, State]]) -> bool:
    return any(state.controlled for _, state in states)


def _is_on(value: str, word: str) -> bool:
    """Whether a node has this state: older releases write a word, newer ones when it began (0 without it)."""
    return value == word or (value.isdecimal() and bool(value.strip("0")))
