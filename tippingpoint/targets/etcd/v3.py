"""Leases by etcd's v3 API: granted, kept alive and watched over a few HTTP/2 connections.

A claim is LeaseGrant and a transaction that puts the key if it is absent. An extension is a LeaseKeepAlive
on the one stream for that which each connection has; those waiting for a release share the connection's one
Watch stream. A unit costs entries in dictionaries, not a task.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from asyncio import Future
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.plan.plan import ClaimWorkload, EtcdTarget
from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import (
    ANSWER_WITHIN,
    LEADER_WITHIN,
    LEASE_IDS,
    Endpoint,
    EtcdAccess,
    Scope,
    access,
    backoff,
    refusal,
    unreachable,
)
from tippingpoint.targets.etcd.grpc import (
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    Call,
    RpcError,
    UnaryCall,
    framed,
    request_headers,
)
from tippingpoint.targets.etcd.http2 import Connection, ProtocolError, told
from tippingpoint.targets.etcd.version import ask_version
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts

_API = "/etcdserverpb."
RANGE, TXN, DELETE_RANGE = (f"{_API}KV/{name}" for name in ("Range", "Txn", "DeleteRange"))
GRANT, REVOKE, KEEP_ALIVE, LEASES = (
    f"{_API}Lease/{name}" for name in ("LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseLeases")
)
TIME_TO_LIVE = f"{_API}Lease/LeaseTimeToLive"
WATCH, AUTHENTICATE = f"{_API}Watch/Watch", f"{_API}Auth/Authenticate"
STATUS, MEMBER_LIST = f"{_API}Maintenance/Status", f"{_API}Cluster/MemberList"

OLDEST = (3, 4)
"""The first version in which a client chooses its watches' ids."""
_AT_ONCE = 100
"""Handshakes, and revocations when cleaning, under way at the same time."""
_REVOKE_WITHIN = 2.0
"""Seconds that leases nobody got to use have to be revoked in when the target is closed."""
_KEEP_ALIVE_ID = len(framed(b"")) + 1  # in the request, behind gRPC's prefix and the field's number

Done = Callable[[bytes, RpcError | None], None]


class _Link:
    """One of the plan's connections to an endpoint: made again whenever it is lost, until it is closed."""

    def __init__(self, cluster: Cluster, endpoint: Endpoint, on_up: Callable[[], None]) -> None:
        self.endpoint = endpoint
        self.connection: Connection | None = None
        self.problem = "not connected"
        self.keep_alives: _KeepAlives | None = None
        self.watches: _Watches | None = None
        self.watch_failures = 0
        self.watch_resting = False
        self.on_down: Callable[[], None] = lambda: None
        self.cluster = cluster
        self._on_up = on_up
        self._loop = asyncio.get_running_loop()
        self._remake: asyncio.Task[None] | None = None
        self._wanted = True
        self._headers: dict[str, bytes] = {}
        self._headers_token = ""

    @property
    def live(self) -> bool:
        return self.connection is not None

    def failed(self, problem: str) -> OperationFailed:
        return OperationFailed(f"{self.endpoint.name}: {problem}")

    def headers(self, path: str) -> bytes:
        token = self.cluster.token
        if token != self._headers_token:
            self._headers.clear()
            self._headers_token = token
        block = self._headers.get(path)
        if block is None:
            metadata = [("token", token)] if token else []
            if path == WATCH:
                # A member cut off from the others must say so: it would never see a release.
                metadata.append(("hasleader", "true"))
            scheme = "https" if self.endpoint.tls else "http"
            block = request_headers(scheme, self.endpoint.name, path, metadata)
            self._headers[path] = block
        return block

    async def connect(self) -> None:
        """Connect; raises what went wrong."""
        endpoint = self.endpoint
        context = self.cluster.access.tls if endpoint.tls else None
        connection: Connection | None = None

        def down(reason: str, cause: BaseException | None) -> None:
            if connection is not None and self.connection is connection:
                self.connection = None
                self.problem = reason
                self._down()

        def made() -> Connection:
            # Known from here on, as it may be heard from when its making is given up.
            nonlocal connection
            connection = Connection(self._loop, down)
            return connection

        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                _, connection = await self._loop.create_connection(
                    made,
                    endpoint.host,
                    endpoint.port,
                    ssl=context,
                    server_hostname=endpoint.host if context else None,
                )
                await asyncio.shield(connection.ready)
        except BaseException as error:
            if connection is not None:
                connection.abort("not connected in time")
            if isinstance(error, Exception):
                self.problem = told(error)
            raise
        if not self._wanted:
            connection.abort("closed")
            raise ConnectionError("closed")
        if not connection.up:
            raise ConnectionError(self.problem)
        self.connection = connection
        self._on_up()

    async def connect_or_keep_trying(self) -> None:
        """Connect once; when that fails go on in the background."""
        try:
            await self.connect()
        except (OSError, TimeoutError, RpcError):
            self._start_remaking()
        except Exception as error:  # what a broken server can make a TLS library raise is not for us to list
            self.problem = told(error)
            self._start_remaking()

    def close(self, reason: str) -> Connection | None:
        """End the connection and what is under way on it, and make no other."""
        self._wanted = False
        self.problem = reason
        if self._remake is not None:
            self._remake.cancel()
            self._remake = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort(reason)
        self.keep_alives = self.watches = None
        return connection

    def reopen(self) -> None:
        """Allow connections again after `close`."""
        self._wanted = True

    def _down(self) -> None:
        if self.keep_alives is not None:
            self.keep_alives.finish()
        self.keep_alives = None
        self.on_down()
        self._start_remaking()

    def _start_remaking(self) -> None:
        if self._wanted and self._remake is None:
            self._remake = self._loop.create_task(self._keep_trying())

    async def _keep_trying(self) -> None:
        for attempt in itertools.count():
            await asyncio.sleep(backoff(attempt))
            try:
                await self.connect()
            except Exception as error:
                self.problem = told(error)
            else:
                break
        self._remake = None
        if not self.live:  # lost again in the same breath
            self._start_remaking()

    def keep_alive(self, request: bytes, future: Future[bool]) -> None:
        """Send a keepalive on this connection's stream, opening it when there is none."""
        stream = self.keep_alives
        if stream is None:
            connection = self.connection
            if connection is None:
                future.set_exception(self.failed(self.problem))
                return
            self.keep_alives = stream = _KeepAlives(self)
            connection.open(stream, self.headers(KEEP_ALIVE), first=True)
        stream.ask(request, future)


class _KeepAlives(Call):
    """A connection's LeaseKeepAlive stream. Servers answer in order; an answer out of order is looked for."""

    __slots__ = ("_asked", "_link")

    def __init__(self, link: _Link) -> None:
        super().__init__()
        self._link = link
        self._asked: deque[tuple[bytes, Future[bool]]] = deque()

    def ask(self, request: bytes, future: Future[bool]) -> None:
        self._asked.append((request[_KEEP_ALIVE_ID:], future))
        self.send(request)

    def finish(self) -> None:
        """Ask nothing further; the server ends the stream when it has answered."""
        self.send(b"", end=True)

    def on_message(self, message: bytes) -> None:
        asked = self._asked
        if asked:
            ttl = pb.keep_alive_ttl(message, asked[0][0])
            if ttl is not None:
                future = asked.popleft()[1]
            else:
                found = self._search(message)
                if found is None:
                    return
                ttl, future = found
            if not future.done():
                future.set_result(ttl > 0)

    def _search(self, message: bytes) -> tuple[int, Future[bool]] | None:
        lease = pb.varint(pb.keep_alive_lease(message))
        for position, (wanted, future) in enumerate(self._asked):
            if wanted == lease:
                del self._asked[position]
                return pb.keep_alive_ttl(message, lease) or 0, future
        return None

    def on_close(self, error: RpcError | None) -> None:
        link = self._link
        if link.keep_alives is self:
            link.keep_alives = None
        failure = link.failed(error.message if error else "the server ended the keepalive stream")
        if error is not None and error.code == UNAUTHENTICATED:
            link.cluster.renew_token()
        asked, self._asked = self._asked, deque()
        for _, future in asked:
            if not future.done():
                future.set_exception(failure)


class _Waiting:
    """A unit that waits for a lease's release after a revision at which it was held (0: not known yet)."""

    __slots__ = ("holder", "lease", "number", "released", "revision", "stream")

    def __init__(
        self, lease: int, holder: int, released: Callable[[], None], revision: int, number: int
    ) -> None:
        self.lease = lease
        self.holder = holder
        self.released = released
        self.revision = revision
        self.number = number
        self.stream: _Watches | None = None


class _Watches(Call):
    """A connection's Watch stream, shared by all units that wait there."""

    __slots__ = ("_target", "link", "waiting")

    def __init__(self, target: V3Target, link: _Link) -> None:
        super().__init__()
        self._target = target
        self.link = link
        self.waiting: dict[int, _Waiting] = {}

    def on_message(self, message: bytes) -> None:
        answer = pb.watch_answer(message)
        unit = self.waiting.get(answer.watch)
        if unit is not None and (answer.happened or answer.compacted):
            # Compacted: what happened to the key since is forgotten, so it may have been released.
            self._target.let_go(unit, tell_server=not answer.canceled)
            unit.released()
        elif answer.canceled and (unit is not None or answer.watch < 0):
            self.cancel()
            self.on_close(
                RpcError(UNAUTHENTICATED if self._target.uses_token else UNAVAILABLE, answer.reason)
            )
        elif answer.created:
            self.link.watch_failures = 0

    def on_close(self, error: RpcError | None) -> None:
        self._target.watches_ended(self, error)


class _Claim:
    """A claim under way: a lease is granted, then the key is put with it if it is absent."""

    __slots__ = ("_call", "_epoch", "_id", "_target", "future", "holder", "lease")

    def __init__(self, target: V3Target, lease: int, holder: int, future: Future[Holding | None]) -> None:
        self._target = target
        self._epoch = target.epoch
        self.lease = lease
        self.holder = holder
        self.future = future
        self._call: Request | None = None
        self._id = 0

    def start(self) -> None:
        target = self._target
        link = target.link(self.lease, self.holder)
        if link is None:
            self.future.set_exception(target.nowhere(self.lease, self.holder))
            return
        self._id = target.next_id()
        self.future.add_done_callback(self._ended)
        self._call = Request(target.cluster, link, GRANT, pb.lease_grant(target.ttl, self._id), self._granted)

    def _granted(self, _: bytes, error: RpcError | None) -> None:
        if self.future.done():
            return
        target = self._target
        link = target.link(self.lease, self.holder)
        if error is not None or link is None or self._call is None:
            self._fail(error)
            return
        key, value = target.scope.key(self.lease), f"{self.lease}/{self.holder}"
        put = pb.claim(key.encode(), value.encode(), self._id)
        self._call = Request(target.cluster, link, TXN, put, self._decided)

    def _decided(self, answer: bytes, error: RpcError | None) -> None:
        if self.future.done():
            return
        if error is not None:
            self._fail(error)
            self._target.revoke_unused(self._id)
            return
        try:
            claimed, revision = pb.claimed(answer), pb.revision(answer)
        except ProtocolError as problem:
            self._fail(RpcError(INTERNAL, f"broken answer: {problem}"))
            raise
        if claimed:
            self.future.set_result(Holding(self.lease, self.holder, framed(pb.lease_keep_alive(self._id))))
        else:
            self._target.was_denied(self.lease, self.holder, revision)
            self.future.set_result(None)
            self._target.revoke_unused(self._id)

    def _fail(self, error: RpcError | None) -> None:
        link = self._call.link if self._call is not None else None
        if link is None:
            self.future.set_exception(self._target.nowhere(self.lease, self.holder))
        else:
            self.future.set_exception(link.failed(error.message if error is not None else link.problem))

    def _ended(self, future: Future[Holding | None]) -> None:
        if future.cancelled():
            if self._call is None:
                return
            self._call.cancel()
            if self._epoch == self._target.epoch:
                self._target.revoke_unused(self._id, self._call.link)


class Request:
    """A unary call, made once more with a new token when the server no longer knows its first."""

    __slots__ = ("_call", "_cluster", "_done", "_message", "_path", "_token", "link")

    def __init__(self, cluster: Cluster, link: _Link, path: str, message: bytes, done: Done) -> None:
        self._cluster = cluster
        self.link = link
        self._path = path
        self._message = message
        self._done: Done | None = done
        self._token = cluster.token
        self._call: UnaryCall | None = None
        self._send(self._answered)

    def cancel(self) -> None:
        """Forget the call; `done` is not called."""
        self._done = None
        if self._call is not None:
            self._call.cancel()

    def _send(self, answered: Done) -> None:
        connection = self.link.connection
        if connection is None:
            self._finish(b"", RpcError(UNAVAILABLE, self.link.problem))
            return
        self._call = UnaryCall(answered)
        self._call.start(connection, self.link.headers(self._path), self._message)

    def _answered(self, answer: bytes, error: RpcError | None) -> None:
        if error is not None and _token_refused(error) and self._token:
            self._call = None
            self._cluster.renew_token(self._token, self._again)
        else:
            self._finish(answer, error)

    def _again(self) -> None:
        if self._done is not None:
            self._send(self._finish)

    def _finish(self, answer: bytes, error: RpcError | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(answer, error)


def _for_administrators(error: RpcError) -> bool:
    """Whether a call is refused to users such as ours; some versions do so without gRPC's code for it."""
    return error.code == PERMISSION_DENIED or "permission denied" in error.message


def _token_refused(error: RpcError) -> bool:
    # The second is what etcd says after the users' rights were changed: an old token stands for old rights.
    return error.code == UNAUTHENTICATED or (
        error.code == INVALID_ARGUMENT and "revision of auth store is old" in error.message
    )


class Cluster:
    """All of a worker's connections to a cluster, and its login."""

    def __init__(self, access: EtcdAccess, connections: int, on_up: Callable[[], None]) -> None:
        self.access = access
        self.token = ""
        self._renewing: UnaryCall | None = None
        self._after_renewal: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        # Endpoint by endpoint in turn, so that neighbours in the list are connections to different servers.
        self.links = [
            _Link(self, endpoint, on_up) for _ in range(connections) for endpoint in access.endpoints
        ]

    async def open(self, prefix: str) -> TargetFacts:
        """Connect to every endpoint, log in, and see that keys may be read. TargetError when that fails."""
        count = len(self.access.endpoints)
        firsts, rest = self.links[:count], self.links[count:]
        errors = await asyncio.gather(*(link.connect() for link in firsts), return_exceptions=True)
        problems: dict[str, str] = {}
        refusals: list[TargetError] = []
        for link, error in zip(firsts, errors, strict=True):
            if error is None:
                continue
            if not isinstance(error, Exception):
                raise error
            problems[link.endpoint.name] = told(error)
            refused = refusal(self.access, link.endpoint, error)
            if refused is not None:
                refusals.append(refused)
        if refusals and not any(link.live for link in firsts):
            raise refusals[0]
        facts: TargetFacts | None = None
        for link in firsts:
            if facts is None and link.live:
                try:
                    facts = await self._greet(link, prefix)
                except (TimeoutError, RpcError, ProtocolError) as error:
                    problems[link.endpoint.name] = told(error)
        if facts is None:
            raise unreachable(self.access, problems)
        await self.connect([*(link for link in firsts if not link.live), *rest])
        return facts

    async def connect(self, links: Iterable[_Link]) -> None:
        """Connect these; those that fail are tried again in the background."""
        few = asyncio.Semaphore(_AT_ONCE)

        async def one(link: _Link) -> None:
            async with few:
                await link.connect_or_keep_trying()

        await asyncio.gather(*(one(link) for link in links))

    async def close(self, reason: str) -> None:
        """Close every connection; what is under way ends."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
            self._login_over()
        connections = [link.close(reason) for link in self.links]
        closing = [connection.closed for connection in connections if connection is not None]
        if closing:
            await asyncio.wait(closing, timeout=1.0)

    async def ask(self, link: _Link, path: str, message: bytes, within: float = ANSWER_WITHIN) -> bytes:
        """One call, awaited: RpcError or TimeoutError when it fails."""
        future: Future[bytes] = self._loop.create_future()

        def done(answer: bytes, error: RpcError | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(answer)

        request = Request(self, link, path, message, done)
        try:
            async with asyncio.timeout(within):
                return await future
        finally:
            request.cancel()

    async def _greet(self, link: _Link, prefix: str) -> TargetFacts:
        try:
            if self.access.credentials is not None:
                await self._log_in(link)
            keys = prefix.encode()
            await self.ask(
                link, RANGE, pb.key_range(keys, pb.after_prefix(keys), serializable=True, count_only=True)
            )
            version = await self._version(link)
            members = sorted(pb.members(await self.ask(link, MEMBER_LIST, b"")).values())
        except RpcError as error:
            raise self._refused(link, prefix, error) or error from None
        numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
        if version and tuple(numbers) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            raise TargetError(link.endpoint.name, f"etcd {version}", f"etcd {oldest} or later")
        return TargetFacts("etcd", f"{version or 'of unknown version'} (v3 API)", members)

    async def _version(self, link: _Link) -> str:
        """Etcd's version; empty where it does not tell it to our user."""
        try:
            return pb.version(await self.ask(link, STATUS, b""))
        except RpcError as error:
            if not _for_administrators(error):
                raise
            return await ask_version(self.access, link.endpoint)

    async def _log_in(self, link: _Link) -> None:
        user = self.access.credentials
        assert user is not None
        try:
            answer = await self.ask(link, AUTHENTICATE, pb.authenticate(user.username, user.password))
        except RpcError as error:
            if error.code == FAILED_PRECONDITION and "not enabled" in error.message:
                return  # a cluster without users takes everybody
            raise
        self.token = pb.token(answer)

    def _refused(self, link: _Link, prefix: str, error: RpcError) -> TargetError | None:
        name = link.endpoint.name
        if error.code == PERMISSION_DENIED:
            return TargetError(
                "target.credentials",
                f"{name}: {error}",
                f"a user who may read and write below {prefix}",
                refused=True,
            )
        if error.code in (INVALID_ARGUMENT, UNAUTHENTICATED, FAILED_PRECONDITION):
            accepted = "a user and password that etcd knows"
            return TargetError("target.credentials", f"{name}: {error}", accepted, refused=True)
        if error.code == UNIMPLEMENTED:
            return TargetError("target.endpoints", f"{name}: {error}", "etcd's client URL")
        return None

    def renew_token(self, refused: str | None = None, then: Callable[[], None] | None = None) -> None:
        """Log in again, once for all who ask meanwhile; `then` is called afterwards, whatever came of it."""
        user = self.access.credentials
        if then is not None and refused is not None and refused != self.token:
            self._loop.call_soon(then)  # somebody has renewed it already
            return
        if then is not None:
            self._after_renewal.append(then)
        if self._renewing is not None:
            return
        link = next((link for link in self.links if link.live), None)
        if link is None or link.connection is None or user is None:
            self._login_over()
            return
        self._renewing = UnaryCall(self._renewed)
        message = pb.authenticate(user.username, user.password)
        self._renewing.start(link.connection, link.headers(AUTHENTICATE), message)

    def _renewed(self, answer: bytes, error: RpcError | None) -> None:
        self._renewing = None
        if error is None:
            self.token = pb.token(answer)
        self._login_over()

    def _login_over(self) -> None:
        waiting, self._after_renewal = self._after_renewal, []
        for then in waiting:
            then()


class V3Target:
    """A ClaimTarget by the v3 API; `drop` forgets who waits, as a restarted worker would."""

    def __init__(self, target: EtcdTarget, workload: ClaimWorkload, scope: Scope) -> None:
        self.scope = scope
        self.ttl = math.ceil(workload.claim_time)
        self.epoch = 0
        self._access = access(target, alpn="h2")
        self._cluster: Cluster | None = None
        # A restarted worker has the same ids: starting somewhere in the first half keeps out of its own way.
        self._ids = itertools.count(scope.lease_ids + 1 + secrets.randbelow(LEASE_IDS // 2))
        self._watch_numbers = itertools.count(1)
        self._denied: dict[tuple[int, int], int] = {}
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self._homeless: dict[int, _Waiting] = {}
        self._revoking = 0
        self._revoked: Future[None] | None = None
        self._members: dict[int, str] = {}
        self._term = 0
        self._asked = itertools.count()

    @property
    def cluster(self) -> Cluster:
        """The connections; there are none before `open`."""
        if self._cluster is None:
            raise RuntimeError("open() comes first")
        return self._cluster

    @property
    def uses_token(self) -> bool:
        """Whether the server may tire of our login."""
        return bool(self.cluster.token)

    async def open(self) -> TargetFacts:
        """Connect; see ClaimTarget."""
        self._loop = asyncio.get_running_loop()
        self._cluster = Cluster(self._access, self._access.target.connections, self._link_up)
        for link in self._cluster.links:
            link.on_down = lambda link=link: self._link_down(link)
        try:
            return await self._cluster.open(self.scope.prefix)
        except BaseException:
            await self.close()
            raise

    def link(self, lease: int, holder: int) -> _Link | None:
        """The connection this holder's operations use now: its own, or the next one up."""
        links = self.cluster.links
        first = hash((lease, holder)) % len(links)
        link = links[first]
        if link.connection is not None:
            return link
        for step in range(1, len(links)):
            link = links[first - step]
            if link.connection is not None:
                return link
        return None

    def nowhere(self, lease: int, holder: int) -> OperationFailed:
        """The failure of an operation for which no connection is up."""
        links = self.cluster.links
        link = links[hash((lease, holder)) % len(links)]
        return link.failed(link.problem)

    def next_id(self) -> int:
        """A lease id that nothing else uses."""
        return next(self._ids)

    # --- claim, extend, release

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Try to take a lease; see ClaimTarget."""
        future: Future[Holding | None] = self._loop.create_future()
        _Claim(self, lease, holder, future).start()
        return future

    def extend(self, holding: Holding) -> Future[bool]:
        """Keep a lease; see ClaimTarget."""
        future: Future[bool] = self._loop.create_future()
        link = self.link(holding.lease, holding.holder)
        request = holding.token
        assert isinstance(request, bytes)
        if link is None:
            future.set_exception(self.nowhere(holding.lease, holding.holder))
        else:
            link.keep_alive(request, future)
        return future

    def release(self, holding: Holding) -> Future[None]:
        """Give a lease back; see ClaimTarget."""
        future: Future[None] = self._loop.create_future()
        request = holding.token
        assert isinstance(request, bytes)
        link = self.link(holding.lease, holding.holder)
        if link is None:
            future.set_exception(self.nowhere(holding.lease, holding.holder))
            return future

        def done(_: bytes, error: RpcError | None) -> None:
            if future.done():
                return
            if error is None or error.code == NOT_FOUND:  # not found: it had expired, so it is free
                future.set_result(None)
            else:
                future.set_exception(link.failed(error.message))

        # The keepalive's request and the revocation's are the same message: the id in field 1.
        Request(self.cluster, link, REVOKE, request[_KEEP_ALIVE_ID - 1 :], done)
        return future

    def revoke_unused(self, lease_id: int, link: _Link | None = None) -> None:
        """Revoke a lease nobody holds, in the background; if that fails it expires. One whose grant is not answered is
        revoked over the connection that it was asked for on, where that is up: the cluster might else hear of its end
        before its beginning."""
        if link is None or link.connection is None:
            link = self.link(lease_id, 0)
        if link is None:
            return
        self._revoking += 1
        Request(self.cluster, link, REVOKE, pb.lease_revoke(lease_id), self._unused_revoked)

    def _unused_revoked(self, _: bytes, error: RpcError | None) -> None:
        self._revoking -= 1
        if self._revoking == 0 and self._revoked is not None and not self._revoked.done():
            self._revoked.set_result(None)

    # --- waiting for a release

    def was_denied(self, lease: int, holder: int, revision: int) -> None:
        """Remember at which revision a claim met somebody else's key."""
        self._denied[lease, holder] = revision

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Wait for a lease to be free; see ClaimTarget."""
        self.unwatch(lease, holder)
        denied = self._denied.pop((lease, holder), None)
        revision = 0 if denied is None else denied + 1
        unit = _Waiting(lease, holder, released, revision, next(self._watch_numbers))
        self._waiting[lease, holder] = unit
        self._place(unit)

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting; see ClaimTarget."""
        unit = self._waiting.get((lease, holder))
        if unit is not None:
            self.let_go(unit, tell_server=True)

    def let_go(self, unit: _Waiting, tell_server: bool) -> None:
        """End a unit's waiting."""
        self._waiting.pop((unit.lease, unit.holder), None)
        self._homeless.pop(unit.number, None)
        stream = unit.stream
        if stream is not None:
            stream.waiting.pop(unit.number, None)
            unit.stream = None
            if tell_server:
                stream.send(framed(pb.watch_cancel(unit.number)))

    def _place(self, unit: _Waiting) -> None:
        """Have a unit wait on its connection or the next one up; when none is, it waits for one first."""
        links = self.cluster.links
        first = hash((unit.lease, unit.holder)) % len(links)
        for step in range(len(links)):
            link = links[first - step]
            if link.connection is not None and not link.watch_resting:
                self._place_on(unit, link, link.connection)
                return
        self._homeless[unit.number] = unit

    def _place_on(self, unit: _Waiting, link: _Link, connection: Connection) -> None:
        key = self.scope.key(unit.lease).encode()
        if unit.revision == 0:
            self._look(unit, link, key)
            return
        stream = link.watches
        if stream is None:
            link.watches = stream = _Watches(self, link)
            connection.open(stream, link.headers(WATCH), first=True)
        unit.stream = stream
        stream.waiting[unit.number] = unit
        stream.send(framed(pb.watch_deletion(unit.number, key, unit.revision)))

    def _look(self, unit: _Waiting, link: _Link, key: bytes) -> None:
        """For a unit that was not denied here: see whether the key exists, and watch it from now."""

        def done(answer: bytes, error: RpcError | None) -> None:
            if self._waiting.get((unit.lease, unit.holder)) is not unit:
                return
            if error is not None:
                self._homeless[unit.number] = unit
                self._rest(link)
            elif pb.count(answer):
                unit.revision = pb.revision(answer) + 1
                self._place(unit)
            else:
                self.let_go(unit, tell_server=False)
                unit.released()

        Request(self.cluster, link, RANGE, pb.key_range(key, count_only=True), done)

    def watches_ended(self, stream: _Watches, error: RpcError | None) -> None:
        """A Watch stream ended: those who waited on it wait elsewhere, from where they were."""
        link = stream.link
        if link.watches is stream:
            link.watches = None
        if link.live:  # the stream alone failed: not at once again on this connection
            if error is not None and error.code == UNAUTHENTICATED:
                self.cluster.renew_token()
            self._rest(link)
        units = list(stream.waiting.values())
        stream.waiting.clear()
        for unit in units:
            unit.stream = None
            self._place(unit)

    def _rest(self, link: _Link) -> None:
        if not link.watch_resting:
            link.watch_resting = True
            self._loop.call_later(backoff(link.watch_failures), self._rested, link)
            link.watch_failures += 1

    def _rested(self, link: _Link) -> None:
        link.watch_resting = False
        self._link_up()

    def _link_up(self) -> None:
        units = list(self._homeless.values())
        self._homeless.clear()
        for unit in units:
            self._place(unit)

    def _link_down(self, link: _Link) -> None:
        """A connection went, or is going (and still answers what was asked): those who wait there move."""
        stream = link.watches
        link.watches = None
        if stream is not None:
            stream.cancel()
            self.watches_ended(stream, None)

    # --- the cluster

    async def leader(self) -> str | None:
        """Who leads, by one member's word, each in its turn; see Led."""
        links = [link for link in self.cluster.links[: len(self._access.endpoints)] if link.live]
        if not links:
            return ""
        link = links[next(self._asked) % len(links)]
        try:
            leader, term = pb.leader(await self.cluster.ask(link, STATUS, b"", LEADER_WITHIN))
            if not leader or term < self._term:
                return ""  # one that has not heard of the last election names the leader before it
            self._term = term
            if leader not in self._members:
                self._members = pb.members(await self.cluster.ask(link, MEMBER_LIST, b"", LEADER_WITHIN))
        except RpcError as error:
            return None if _for_administrators(error) or error.code == UNIMPLEMENTED else ""
        except (TimeoutError, ProtocolError):
            return ""
        return self._members.get(leader, "")

    # --- the end

    async def drop(self) -> None:
        """Abandon everything and connect afresh; see ClaimTarget."""
        self.epoch += 1
        self._forget_waiting()
        await self.cluster.close("connection dropped on purpose")
        for link in self.cluster.links:
            link.reopen()
        await self.cluster.connect(self.cluster.links)

    async def close(self) -> None:
        """Close every connection; see ClaimTarget."""
        if self._cluster is None:
            return
        self._forget_waiting()
        if self._revoking:
            self._revoked = self._loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(_REVOKE_WITHIN):
                    await self._revoked
        await self._cluster.close("closed")

    def _forget_waiting(self) -> None:
        for unit in self._waiting.values():
            if unit.stream is not None:
                unit.stream.waiting.clear()
                unit.stream = None
        self._waiting.clear()
        self._homeless.clear()
        self._denied.clear()


async def clean_v3(target: EtcdTarget, prefix: str, lease_ids: range, *, only_of_keys: bool) -> int:
    """Revoke leases in a block of ids and delete the keys below a prefix; see `etcd.clean`."""
    read = access(target.model_copy(update={"connections": 1}), alpn="h2")
    cluster = Cluster(read, 1, lambda: None)
    try:
        await cluster.open(prefix)
        problems: dict[str, str] = {}
        for link in cluster.links:
            if not link.live:
                problems[link.endpoint.name] = link.problem
                continue
            try:
                return await _clean(cluster, link, prefix, lease_ids, only_of_keys)
            except (RpcError, TimeoutError, ProtocolError) as error:
                problems[link.endpoint.name] = told(error)
        raise unreachable(read, problems)
    finally:
        await cluster.close("closed")


async def _clean(cluster: Cluster, link: _Link, prefix: str, lease_ids: range, only_of_keys: bool) -> int:
    start, end = prefix.encode(), pb.after_prefix(prefix.encode())
    # Through the quorum: this member has then caught up with all that was ever granted, and lists it.
    keys = pb.key_values(await cluster.ask(link, RANGE, pb.key_range(start, end), within=60.0))
    of_keys = {key.lease for key in keys if key.lease in lease_ids}
    in_doubt = of_keys if only_of_keys else set[int]()
    ours = of_keys - in_doubt
    if not only_of_keys:
        try:
            listed = pb.leases(await cluster.ask(link, LEASES, b"", within=60.0))
            in_doubt = {lease for lease in listed if lease in lease_ids} - ours
        except RpcError as error:
            if error.code != PERMISSION_DENIED:  # a user without that right has the leases of the keys
                raise
    few = asyncio.Semaphore(_AT_ONCE)

    async def is_ours(lease: int) -> bool:
        """Whether no key of others has the lease, as it would go with it."""
        async with few:
            try:
                has = pb.lease_keys(await cluster.ask(link, TIME_TO_LIVE, pb.lease_time_to_live(lease)))
            except RpcError as error:
                if error.code in (
                    PERMISSION_DENIED,
                    NOT_FOUND,
                ):  # it has keys that we may not see, or is gone
                    return False
                raise
            return all(key.startswith(start) for key in has)

    async def revoke(lease: int) -> bool:
        async with few:
            try:
                await cluster.ask(link, REVOKE, pb.lease_revoke(lease))
            except RpcError as error:
                if error.code == NOT_FOUND:
                    return False
                raise
            return True

    doubtful = sorted(in_doubt)
    for lease, own in zip(doubtful, await asyncio.gather(*map(is_ours, doubtful)), strict=True):
        if own:
            ours.add(lease)
    revoked = await asyncio.gather(*map(revoke, sorted(ours)))
    deleted = await cluster.ask(link, DELETE_RANGE, pb.delete_range(start, end), within=60.0)
    return sum(revoked) + pb.deleted(deleted)
