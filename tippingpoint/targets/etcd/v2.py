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
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from urllib.parse import quote

import aiohttp
import orjson

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.plan.claim import ClaimWorkload
from tippingpoint.targets.etcd.access import (
    ANSWER_WITHIN,
    LEADER_WITHIN,
    Endpoint,
    EtcdAccess,
    Scope,
    access,
    pause,
    refusal,
    unreachable,
)
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.util.network_errors import CLOSED, in_words
from tippingpoint.util.patience import answers_within
from tippingpoint.util.rest import TooLarge, cause_of, read_body
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts

SOCKETS = 32
"""Concurrent requests on each of the plan's connections; further requests wait."""
_EVENT_LIMIT = 1 << 20  # bytes of one event of the stream

# etcd's error/error.go
_KEY_NOT_FOUND, _TEST_FAILED, _NODE_EXISTS, _INDEX_CLEARED = 100, 101, 105, 401
_LEADS = "StateLeader"  # raft/raft.go
_RELEASES = frozenset(("delete", "expire", "compareAndDelete"))
_LARGEST = 64 << 20
"""Bytes of the largest answer, the list of all keys of a run."""
_LONGEST_INDEX = 20  # digits
_FAILURES = (aiohttp.ClientError, OSError, TimeoutError, TooLarge, orjson.JSONDecodeError)

_Result = TypeVar("_Result")


@dataclass(slots=True)
class _Answer:
    """An answer of etcd: HTTP status, etcd's own error code (0 for none), the store's index, and the body."""

    status: int
    code: int
    index: int
    body: dict[str, Any]

    @property
    def problem(self) -> str:
        """The error on one line."""
        said = self.body.get("message", "")
        return f"etcd: {said} ({self.code})" if said else f"HTTP status {self.status}"


class _Link:
    """One of the plan's connections: an HTTP session with an endpoint, and whether its event stream is up."""

    def __init__(self, endpoint: Endpoint, read: EtcdAccess) -> None:
        self.endpoint = endpoint
        self.problem = "not connected"
        self.live = False
        self.seen = 0
        user = read.credentials
        self._session = aiohttp.ClientSession(
            headers={"Authorization": aiohttp.encode_basic_auth(user.username, user.password)}
            if user
            else None,
            connector=aiohttp.TCPConnector(limit=SOCKETS + 1, ssl=read.tls or True),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=ANSWER_WITHIN),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            read_bufsize=_EVENT_LIMIT,
            auto_decompress=False,
        )
        # aiohttp resends a request when a kept-open socket turns out dead. That would hide a failure, and a
        # claim that did arrive the first time would then be denied by itself. There is no public switch.
        self._session._retry_connection = False  # pyright: ignore[reportPrivateUsage]

    def failed(self, problem: str) -> OperationFailed:
        return OperationFailed(f"{self.endpoint.name}: {problem}")

    async def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> _Answer:
        """Make one request; raises one of _FAILURES."""
        async with self._session.request(
            method, self.endpoint.url + path, data=form, allow_redirects=False
        ) as response:
            body = await read_body(response, _LARGEST)
            return _answer(response.status, _index(response), body)

    def stream(self, path: str) -> Any:
        """Make a request whose answer is read as it arrives."""
        return self._session.get(self.endpoint.url + path, allow_redirects=False)

    async def close(self) -> None:
        self.live = False
        await self._session.close()


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
        self._links: list[_Link] = []
        self._asides: list[_Link] = []
        """Separate connections, one to each endpoint, for queries that are not part of the load."""
        self._watching: list[Task[None]] = []
        self._calls: dict[Future[Any], Task[Any]] = {}
        self._units: dict[int, dict[int, _Unit]] = {}

    async def open(self) -> TargetFacts:
        """Connect; see ClaimTarget."""
        self._loop = asyncio.get_running_loop()
        try:
            self._make_links()
            facts, index = await _greet(self._access, self._links, self._scope.prefix)
            await self._watch_all(index)
        except BaseException:
            await self.close()
            raise
        return facts

    def _make_links(self) -> None:
        endpoints = self._access.endpoints
        self._links = [
            _Link(e, self._access) for _ in range(self._access.target.connections) for e in endpoints
        ]

    async def _watch_all(self, index: int) -> None:
        ups: list[Future[None]] = []
        for link in self._links:
            link.seen = index
            up = self._loop.create_future()
            ups.append(up)
            self._watching.append(self._loop.create_task(self._watch(link, up)))
        await asyncio.wait(ups, timeout=ANSWER_WITHIN)

    def _link(self, lease: int, holder: int) -> _Link:
        """Return the connection for a holder's operations: its own, or the next one that is up."""
        first = hash((lease, holder)) % len(self._links)
        for step in range(len(self._links)):
            link = self._links[first - step]
            if link.live:
                return link
        return self._links[first]

    def _key(self, lease: int) -> str:
        return _path(self._scope.key(lease))

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
            answer = await self._ask(link, "PUT", self._key(lease), form)
            if answer.code == _NODE_EXISTS:
                unit.denied = answer.index
                return None
            self._check(link, answer)
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
        answer = await self._ask(link, "PUT", self._key(holding.lease), form)
        if answer.code in (_KEY_NOT_FOUND, _TEST_FAILED):
            return False
        self._check(link, answer)
        return True

    def release(self, holding: Holding) -> Future[None]:
        """Give a lease back; see ClaimTarget."""
        return self._start(holding.lease, holding.holder, self._release(holding))

    async def _release(self, holding: Holding) -> None:
        link = self._link(holding.lease, holding.holder)
        value = quote(f"{holding.lease}/{holding.holder}", safe="")
        answer = await self._ask(link, "DELETE", f"{self._key(holding.lease)}?prevValue={value}")
        if answer.code not in (_KEY_NOT_FOUND, _TEST_FAILED):  # both mean that the lease was already lost
            self._check(link, answer)

    def _start(self, lease: int, holder: int, work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
        """Run an operation in a task. Its future ends with OperationFailed also when the target is closed."""
        future: Future[_Result] = self._loop.create_future()
        task = self._loop.create_task(work)
        self._calls[future] = task

        def cancelled(_: Future[_Result]) -> None:
            if self._calls.pop(future, None) is not None:
                task.cancel()

        def finished(_: Task[_Result]) -> None:
            self._calls.pop(future, None)
            error = None if task.cancelled() else task.exception()
            if future.done():
                return
            if task.cancelled():
                future.set_exception(self._link(lease, holder).failed("closed"))
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        future.add_done_callback(cancelled)
        task.add_done_callback(finished)
        return future

    async def _ask(self, link: _Link, method: str, path: str, form: dict[str, str] | None = None) -> _Answer:
        try:
            return await link.ask(method, path, form)
        except _FAILURES as error:
            raise link.failed(in_words(cause_of(error))) from None
        except Exception as error:  # for instance, the session was closed in the meantime
            raise link.failed(in_words(error)) from None

    def _check(self, link: _Link, answer: _Answer) -> None:
        if answer.code or answer.status >= 300:
            raise link.failed(answer.problem)

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
                answer = await self._ask(self._link(lease, holder), "GET", self._key(lease) + "?quorum=true")
            except OperationFailed:
                await asyncio.sleep(pause(failures))
                continue
            unit.denied = answer.index
            if answer.code == _KEY_NOT_FOUND or unit.freed > unit.denied:
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

    async def _watch(self, link: _Link, up: Future[None]) -> None:
        """Read a connection's event stream, and request it again when it ends. The link is live while events can come.

        Any connection's stream serves all units. So a release is missed only if all streams were down, and for
        longer than etcd's history of the last 1000 events.
        """
        failures = 0
        while True:
            try:
                path = _path(self._scope.prefix.rstrip("/"))
                query = f"?wait=true&recursive=true&stream=true&waitIndex={link.seen + 1}"
                async with link.stream(path + query) as response:
                    if response.status != 200:
                        answer = _answer(response.status, 0, await read_body(response, _LARGEST))
                        if answer.code == _INDEX_CLEARED:
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
                        known = _index(response)
                        async for line in response.content:
                            if self._event(link, line) <= known:
                                break
                        else:
                            link.problem = CLOSED
                            raise ConnectionResetError
                        # When its first event is from history, etcd sends only that one and never adds the
                        # stream to the watchers of later events (store/watcher_hub.go).
                        continue
            except _FAILURES as error:
                link.problem = in_words(cause_of(error))
            except (ValueError, LookupError, TypeError) as error:  # not an event, or an event without an end
                link.problem = in_words(error)
            link.live = False
            if not up.done():
                up.set_result(None)
            failures += 1
            await asyncio.sleep(pause(failures))

    def _event(self, link: _Link, line: bytes) -> int:
        """Process one event; returns its index."""
        event: dict[str, Any] = orjson.loads(line)
        node: dict[str, Any] = event["node"]
        index = int(node["modifiedIndex"])
        link.seen = max(link.seen, index)
        if event["action"] in _RELEASES:
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
        self._asides = self._asides or [_Link(endpoint, self._access) for endpoint in self._access.endpoints]
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
        calls = list(self._calls.values())
        for task in [*self._watching, *calls]:
            task.cancel()
        if self._watching or calls:
            await asyncio.wait([*self._watching, *calls])
        await asyncio.sleep(0)  # lets the tasks' callbacks end the futures
        self._watching.clear()
        for link in self._links:
            await link.close()


async def clean_v2(target: EtcdTarget, prefix: str) -> int:
    """Delete the directory of a prefix; see `etcd.clean`."""
    read = access(target)
    links = [_Link(endpoint, read) for endpoint in read.endpoints]
    try:
        await _greet(read, links, prefix)
        problems: dict[str, str] = {}
        for link in links:
            path = _path(prefix.rstrip("/"))
            try:
                async with asyncio.timeout(60.0):
                    found = await link.ask("GET", f"{path}?recursive=true&quorum=true")
                    if found.code == _KEY_NOT_FOUND:
                        return 0
                    gone = await link.ask("DELETE", f"{path}?recursive=true&dir=true")
            except _FAILURES as error:
                problems[link.endpoint.name] = in_words(cause_of(error))
                continue
            if (gone.status < 300 and "node" in gone.body) or gone.code == _KEY_NOT_FOUND:
                return _keys(cast(dict[str, Any], found.body.get("node", {})))
            problems[link.endpoint.name] = gone.problem
        raise unreachable(read, problems)
    finally:
        for link in links:
            await link.close()


async def _greet(read: EtcdAccess, links: list[_Link], prefix: str) -> tuple[TargetFacts, int]:
    """Return facts of the first server that answers, and its index. TargetError when all fail or one refuses us."""
    problems: dict[str, str] = {}
    refusals: list[TargetError] = []
    for link in links[: len(read.endpoints)]:
        name = link.endpoint.name
        try:
            async with answers_within(ANSWER_WITHIN):
                version = await link.ask("GET", "/version")
                members = await link.ask("GET", "/v2/members")
                keys = await link.ask("GET", _path(prefix.rstrip("/")))
        except _FAILURES as error:
            problems[name] = in_words(cause_of(error))
            refused = refusal(read, link.endpoint, cause_of(error))
            if refused is not None:
                refusals.append(refused)
            continue
        if keys.status in (401, 403):
            accepted = f"a user and password that may read and write below {prefix}"
            raise TargetError("target.credentials", f"{name}: {keys.problem}", accepted, refused=True)
        if keys.status == 404 and not keys.code:
            if "etcdserver" not in version.body:
                raise TargetError("target.endpoints", f"{name}: HTTP status 404", "etcd's client URL")
            release = version.body["etcdserver"]
            accepted = "etcd 3.5 or earlier that was started with --enable-v2, or v3"
            raise TargetError("target.api", f"v2: {name}: etcd {release} has no v2 API", accepted)
        if keys.code not in (0, _KEY_NOT_FOUND) or (keys.status >= 300 and not keys.code):
            problems[name] = keys.problem
            continue
        listed = cast(list[dict[str, Any]], members.body.get("members", []))
        names = sorted(str(member.get("name") or member.get("id")) for member in listed)
        return TargetFacts("etcd", f"{version.body.get('etcdserver')} (v2 API)", names), keys.index
    if refusals:
        raise refusals[0]
    raise unreachable(read, problems)


async def _self(link: _Link) -> _Answer | None:
    """Return a member's /v2/stats/self; None when it does not answer."""
    try:
        async with answers_within(LEADER_WITHIN):
            return await link.ask("GET", "/v2/stats/self")
    except _FAILURES:
        return None


def _index(response: aiohttp.ClientResponse) -> int:
    """Return the store's index at the time of the answer."""
    index = response.headers.get("X-Etcd-Index", "")
    return int(index) if index.isdecimal() and len(index) <= _LONGEST_INDEX else 0


def _answer(status: int, index: int, body: bytes) -> _Answer:
    try:
        content: Any = orjson.loads(body)
    except orjson.JSONDecodeError:  # such as "404 page not found"
        content = None
    known = cast(dict[str, Any], content) if isinstance(content, dict) else {}
    code, told = known.get("errorCode", 0), known.get("index", index)
    return _Answer(
        status, code if isinstance(code, int) else 0, told if isinstance(told, int) else index, known
    )


def _path(key: str) -> str:
    return "/v2/keys" + quote(key)


def _keys(node: dict[str, Any]) -> int:
    if not node.get("dir"):
        return 1
    return sum(_keys(child) for child in cast(list[dict[str, Any]], node.get("nodes", [])))
