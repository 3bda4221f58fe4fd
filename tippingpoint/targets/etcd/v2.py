"""Leases by etcd's v2 API: keys with a time to live, compared and refreshed over HTTP/1.1.

HTTP/1.1 carries one request at a time. So each of the plan's connections is a group of sockets, opened as
requests need them, and one more socket that streams every release below the prefix. An operation under way
costs a task; a unit that waits or holds a lease costs only dictionary entries.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from asyncio import Future, Task
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast
from urllib.parse import quote

import orjson

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.claim import ClaimWorkload
from tippingpoint.targets.etcd.access import (
    ANSWER_WITHIN,
    LEADER_WITHIN,
    Scope,
    access,
    pause,
    unreachable,
)
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.v2_link import (
    DELETIONS,
    FAILURES,
    INDEX_CLEARED,
    KEY_NOT_FOUND,
    LARGEST,
    NODE_EXISTS,
    TEST_FAILED,
    Answer,
    Link,
    Operations,
    answer_of,
    greet,
    index_of,
    path_of,
)
from tippingpoint.util.network_errors import CLOSED, in_words
from tippingpoint.util.patience import answers_within
from tippingpoint.util.rest import cause_of, read_body
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts

_LEADS = "StateLeader"  # raft/raft.go
_Result = TypeVar("_Result")


class _Unit:
    """A unit between its claim and the release of the lease.

    It is registered before its claim is sent, because the stream may report a release before the claim's denial
    arrives. `denied` is the index of that denial, `freed` that of the last release seen.
    """

    __slots__ = ("denied", "freed", "released")

    def __init__(self) -> None:
        self.denied = -1
        self.freed = 0
        self.released: Callable[[], None] | None = None


class V2Target:
    """A ClaimTarget on the v2 API. `drop` forgets waiting units, as a restarted worker would."""

    def __init__(self, target: EtcdTarget, workload: ClaimWorkload, scope: Scope) -> None:
        self._access = access(target)
        self._scope = scope
        self._ttl = str(math.ceil(workload.claim_time))
        self._links: list[Link] = []
        self._asides: list[Link] = []
        """Separate connections, one to each endpoint, for queries that are not part of the load."""
        self._watching: list[Task[None]] = []
        self._operations: Operations | None = None
        self._units: dict[int, dict[int, _Unit]] = {}

    async def open(self) -> TargetFacts:
        """Connect; see ClaimTarget."""
        self._loop = asyncio.get_running_loop()
        self._operations = Operations()
        try:
            self._make_links()
            facts, index = await greet(self._access, self._links, self._scope.prefix)
            await self._watch_all(index)
        except BaseException:
            await self.close()
            raise
        return facts

    def _make_links(self) -> None:
        endpoints = self._access.endpoints
        self._links = [
            Link(e, self._access) for _ in range(self._access.target.connections) for e in endpoints
        ]

    async def _watch_all(self, index: int) -> None:
        ups: list[Future[None]] = []
        for link in self._links:
            link.seen = index
            up = self._loop.create_future()
            ups.append(up)
            self._watching.append(self._loop.create_task(self._watch(link, up)))
        await asyncio.wait(ups, timeout=ANSWER_WITHIN)

    def _link(self, lease: int, holder: int) -> Link:
        """Return the connection for a holder's operations: its own, or the next one that is up."""
        first = hash((lease, holder)) % len(self._links)
        for step in range(len(self._links)):
            link = self._links[first - step]
            if link.live:
                return link
        return self._links[first]

    def _key(self, lease: int) -> str:
        return path_of(self._scope.key(lease))

    # --- operations

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Try to take a lease; see ClaimTarget."""
        return self._start(lease, holder, self._claim(lease, holder))

    async def _claim(self, lease: int, holder: int) -> Holding | None:
        unit = _Unit()
        self._units.setdefault(lease, {})[holder] = unit
        link = self._link(lease, holder)
        form = {"value": f"{lease}/{holder}", "ttl": self._ttl, "prevExist": "false"}
        try:
            answer = await link.operate("PUT", self._key(lease), form)
            if answer.code == NODE_EXISTS:
                unit.denied = answer.index
                return None
            link.check(answer)
            return Holding(lease, holder)
        finally:
            if unit.denied < 0:
                self._forget(lease, holder, unit)

    def extend(self, holding: Holding) -> Future[bool]:
        """Keep a lease; see ClaimTarget."""
        return self._start(holding.lease, holding.holder, self._extend(holding))

    async def _extend(self, holding: Holding) -> bool:
        link = self._link(holding.lease, holding.holder)
        # A refresh keeps the value and notifies no watcher (etcd's v2 API document, "Refreshing key TTL").
        form = {"refresh": "true", "ttl": self._ttl, "prevValue": f"{holding.lease}/{holding.holder}"}
        answer = await link.operate("PUT", self._key(holding.lease), form)
        if answer.code in (KEY_NOT_FOUND, TEST_FAILED):
            return False
        link.check(answer)
        return True

    def release(self, holding: Holding) -> Future[None]:
        """Give a lease back; see ClaimTarget."""
        return self._start(holding.lease, holding.holder, self._release(holding))

    async def _release(self, holding: Holding) -> None:
        link = self._link(holding.lease, holding.holder)
        value = quote(f"{holding.lease}/{holding.holder}", safe="")
        answer = await link.operate("DELETE", f"{self._key(holding.lease)}?prevValue={value}")
        if answer.code not in (KEY_NOT_FOUND, TEST_FAILED):  # both mean that the lease was already lost
            link.check(answer)

    def _start(self, lease: int, holder: int, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        if self._operations is None:
            raise RuntimeError("open() comes first")
        return self._operations.start(self._link(lease, holder), work)

    # --- waiting for a release

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Wait for a lease to be free; see ClaimTarget."""
        unit = self._units.setdefault(lease, {}).setdefault(holder, _Unit())
        unit.released = released
        if unit.denied < 0:
            self._start(lease, holder, self._look(lease, holder, unit))
        elif unit.freed > unit.denied:
            self._loop.call_soon(self._call, lease, holder, unit)

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting; see ClaimTarget."""
        unit = self._units.get(lease, {}).get(holder)
        if unit is not None and unit.released is not None:
            self._forget(lease, holder, unit)

    def _forget(self, lease: int, holder: int, unit: _Unit) -> None:
        holders = self._units.get(lease)
        if holders is not None and holders.get(holder) is unit:
            del holders[holder]
            if not holders:
                del self._units[lease]

    def _call(self, lease: int, holder: int, unit: _Unit) -> None:
        if self._units.get(lease, {}).get(holder) is unit and unit.released is not None:
            self._forget(lease, holder, unit)
            unit.released()

    async def _look(self, lease: int, holder: int, unit: _Unit) -> None:
        """For a unit that was not denied on this worker: call it back at once unless the key exists."""
        for failures in itertools.count(1):
            if self._units.get(lease, {}).get(holder) is not unit:
                return
            try:
                answer = await self._link(lease, holder).operate("GET", self._key(lease) + "?quorum=true")
            except OperationFailed:
                await asyncio.sleep(pause(failures))
                continue
            unit.denied = answer.index
            if answer.code == KEY_NOT_FOUND or unit.freed > unit.denied:
                self._call(lease, holder, unit)
            return

    def _freed(self, lease: int, index: int) -> None:
        """Call back the units that were denied before this release."""
        for holder, unit in list(self._units.get(lease, {}).items()):
            unit.freed = max(unit.freed, index)
            if 0 <= unit.denied < index:
                self._call(lease, holder, unit)

    def _missed(self) -> None:
        """Call back all denied units: a release of their lease may have been missed."""
        for lease, holders in list(self._units.items()):
            for holder, unit in list(holders.items()):
                if unit.denied >= 0:
                    self._call(lease, holder, unit)

    async def _watch(self, link: Link, up: Future[None]) -> None:
        """Read a connection's event stream, and request it again when it ends. The link is live while events can come.

        Any connection's stream serves all units. So a release is missed only if all streams were down, and for
        longer than etcd's history of the last 1000 events.
        """
        failures = 0
        while True:
            try:
                path = path_of(self._scope.prefix.rstrip("/"))
                query = f"?wait=true&recursive=true&stream=true&waitIndex={link.seen + 1}"
                async with link.stream(path + query) as response:
                    if response.status != 200:
                        answer = answer_of(response.status, 0, await read_body(response, LARGEST))
                        if answer.code == INDEX_CLEARED:
                            link.seen = answer.index
                            if not any(other.live for other in self._links):
                                self._missed()
                            continue
                        link.problem = answer.problem
                    else:
                        link.live = True
                        failures = 0
                        if not up.done():
                            up.set_result(None)
                        known = index_of(response)
                        async for line in response.content:
                            if self._event(link, line) <= known:
                                break
                        else:
                            link.problem = CLOSED
                            raise ConnectionResetError
                        # When its first event is from history, etcd sends only that one and never adds the
                        # stream to the watchers of later events (store/watcher_hub.go).
                        continue
            except FAILURES as error:
                link.problem = in_words(cause_of(error))
            except (ValueError, LookupError, TypeError) as error:  # not an event, or an event without an end
                link.problem = in_words(error)
            link.live = False
            if not up.done():
                up.set_result(None)
            failures += 1
            await asyncio.sleep(pause(failures))

    def _event(self, link: Link, line: bytes) -> int:
        """Process one event; returns its index."""
        event: dict[str, Any] = orjson.loads(line)
        node: dict[str, Any] = event["node"]
        index = int(node["modifiedIndex"])
        link.seen = max(link.seen, index)
        if event["action"] in DELETIONS:
            name = str(node["key"]).rpartition("/")[2]
            if name.isdecimal():
                self._freed(int(name), index)
        return index

    # --- the end

    async def drop(self) -> None:
        """Abandon everything and connect afresh; see ClaimTarget."""
        index = max(link.seen for link in self._links)
        await self._close_links()
        self._make_links()
        await self._watch_all(index)

    async def leader(self) -> str | None:
        """Return the leader as the members report it; see Led."""
        self._asides = self._asides or [Link(endpoint, self._access) for endpoint in self._access.endpoints]
        told = [answer for answer in await asyncio.gather(*map(_self, self._asides)) if answer is not None]
        if told and all(answer.status in (401, 403, 404) for answer in told):
            return None
        leaders = {str(answer.body.get("name")) for answer in told if answer.body.get("state") == _LEADS}
        # When two members claim to lead, one of them has not seen the last election.
        return leaders.pop() if len(leaders) == 1 else ""

    async def close(self) -> None:
        """Close every connection; see ClaimTarget."""
        await self._close_links()
        for link in self._asides:
            await link.close()

    async def _close_links(self) -> None:
        self._units.clear()
        for task in self._watching:
            task.cancel()
        if self._watching:
            await asyncio.wait(self._watching)
        if self._operations is not None:
            await self._operations.end()
        self._watching.clear()
        for link in self._links:
            await link.close()


async def clean_v2(target: EtcdTarget, prefix: str) -> int:
    """Delete the directory of a prefix; see `etcd.clean`."""
    read = access(target)
    links = [Link(endpoint, read) for endpoint in read.endpoints]
    try:
        await greet(read, links, prefix)
        problems: dict[str, str] = {}
        for link in links:
            path = path_of(prefix.rstrip("/"))
            try:
                async with asyncio.timeout(60.0):
                    found = await link.ask("GET", f"{path}?recursive=true&quorum=true")
                    if found.code == KEY_NOT_FOUND:
                        return 0
                    gone = await link.ask("DELETE", f"{path}?recursive=true&dir=true")
            except FAILURES as error:
                problems[link.endpoint.name] = in_words(cause_of(error))
                continue
            if (gone.status < 300 and "node" in gone.body) or gone.code == KEY_NOT_FOUND:
                return _keys(cast(dict[str, Any], found.body.get("node", {})))
            problems[link.endpoint.name] = gone.problem
        raise unreachable(read, problems)
    finally:
        for link in links:
            await link.close()


async def _self(link: Link) -> Answer | None:
    """Return a member's /v2/stats/self; None when it does not answer."""
    try:
        async with answers_within(LEADER_WITHIN):
            return await link.ask("GET", "/v2/stats/self")
    except FAILURES:
        return None


def _keys(node: dict[str, Any]) -> int:
    if not node.get("dir"):
        return 1
    return sum(_keys(child) for child in cast(list[dict[str, Any]], node.get("nodes", [])))
