"""One connection to a member of etcd through the v3 API. It is remade when lost, and has a keepalive stream."""

from __future__ import annotations

import asyncio
import itertools
import ssl
from asyncio import Future
from collections import deque
from collections.abc import Callable

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import ANSWER_WITHIN, Credentials, Endpoint, pause
from tippingpoint.targets.etcd.grpc import (
    UNAUTHENTICATED,
    Call,
    RpcError,
    UnaryCall,
    framed,
    request_headers,
)
from tippingpoint.targets.etcd.http2 import Connection
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.patience import answers_within
from tippingpoint.util.protobuf import varint

LEASE_AT = len(framed(b"")) + 1
"""Offset of the lease's id in a keepalive request: after gRPC's prefix and the field's number."""


_SEARCHED = 16
"""Requests that can be searched, for an answer out of order, in the time that a frame without content takes."""


class Login:
    """The login to a cluster: a token for each call, empty if the cluster needs none.

    `any_live` returns a connection that is up, over which the token is renewed, or None when all are down.
    """

    def __init__(self, credentials: Credentials | None, any_live: Callable[[], Link | None]) -> None:
        self.token = ""
        self._credentials = credentials
        self._any_live = any_live
        self._renewing: UnaryCall | None = None
        self._after_renewal: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Stop a renewal under way; callers that wait for it are called back."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
            self._over()

    def renew(self, refused: str | None = None, then: Callable[[], None] | None = None) -> None:
        """Log in again, once for all concurrent callers. `then` is called afterwards, also after a failure."""
        user = self._credentials
        if then is not None and refused is not None and refused != self.token:
            self._loop.call_soon(then)  # the token has already been renewed
            return
        if then is not None:
            self._after_renewal.append(then)
        if self._renewing is not None:
            return
        link = self._any_live()
        if link is None or link.connection is None or user is None:
            self._over()
            return
        self._renewing = UnaryCall(self._renewed)
        message = pb.authenticate(user.username, user.password)
        self._renewing.start(link.connection, link.headers(pb.AUTHENTICATE), message)

    def _renewed(self, answer: bytes, error: RpcError | None) -> None:
        self._renewing = None
        if error is None:
            self.token = pb.token(answer)
        self._over()

    def _over(self) -> None:
        waiting, self._after_renewal = self._after_renewal, []
        for then in waiting:
            then()


class Link:
    """One of the plan's connections to an endpoint. It is remade whenever it is lost, until it is closed."""

    def __init__(
        self,
        endpoint: Endpoint,
        tls: ssl.SSLContext | None,
        login: Login,
        on_up: Callable[[], None],
        on_down: Callable[[Link], None],
    ) -> None:
        self.endpoint = endpoint
        self.login = login
        self.connection: Connection | None = None
        self.problem = "not connected"
        self.keep_alives: _KeepAlives | None = None
        self._tls = tls if endpoint.tls else None
        self._on_up = on_up
        self._on_down = on_down
        self._loop = asyncio.get_running_loop()
        self._remake: asyncio.Task[None] | None = None
        self._wanted = True
        self._headers: dict[str, bytes] = {}
        self._headers_token = ""

    @property
    def live(self) -> bool:
        """Whether the connection is up."""
        return self.connection is not None

    def failed(self, problem: str) -> OperationFailed:
        """Return the failure of an operation sent over this connection."""
        return OperationFailed(f"{self.endpoint.name}: {problem}")

    def headers(self, path: str) -> bytes:
        """Return the header block of a call."""
        token = self.login.token
        if token != self._headers_token:
            self._headers.clear()
            self._headers_token = token
        block = self._headers.get(path)
        if block is None:
            metadata = [("token", token)] if token else []
            if path == pb.WATCH:
                # Makes a member that is cut off from the others fail: it would never see a release.
                metadata.append(("hasleader", "true"))
            scheme = "https" if self.endpoint.tls else "http"
            block = request_headers(scheme, self.endpoint.name, path, metadata)
            self._headers[path] = block
        return block

    async def connect(self) -> None:
        """Connect; raises the cause of a failure."""
        endpoint = self.endpoint
        connection: Connection | None = None

        def down(reason: str, cause: BaseException | None) -> None:
            if connection is not None and self.connection is connection:
                self.connection = None
                self.problem = reason
                self._down()

        def made() -> Connection:
            # Assigned here because its callbacks may run when the attempt has been given up.
            nonlocal connection
            connection = Connection(self._loop, down)
            return connection

        try:
            async with answers_within(ANSWER_WITHIN):
                _, connection = await self._loop.create_connection(
                    made,
                    endpoint.host,
                    endpoint.port,
                    ssl=self._tls,
                    server_hostname=endpoint.host if self._tls else None,
                )
                await asyncio.shield(connection.ready)
        except BaseException as error:
            if connection is not None:
                connection.abort("not connected in time")
            if isinstance(error, Exception):
                self.problem = in_words(error)
            raise
        if not self._wanted:
            connection.abort("closed")
            raise ConnectionError("closed")
        if not connection.up:
            raise ConnectionError(self.problem)
        self.connection = connection
        self._on_up()

    async def connect_or_keep_trying(self) -> None:
        """Connect once; if that fails, keep trying in the background."""
        try:
            await self.connect()
        except (OSError, TimeoutError, RpcError):
            self._start_remaking()
        except Exception as error:  # a broken server can make a TLS library raise anything
            self.problem = in_words(error)
            self._start_remaking()

    def close(self, reason: str) -> Connection | None:
        """Close the connection, end its operations, and do not reconnect."""
        self._wanted = False
        self.problem = reason
        if self._remake is not None:
            self._remake.cancel()
            self._remake = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.abort(reason)
        self.keep_alives = None
        return connection

    def reopen(self) -> None:
        """Allow connections again after `close`."""
        self._wanted = True

    def _down(self) -> None:
        if self.keep_alives is not None:
            self.keep_alives.finish()
        self.keep_alives = None
        self._on_down(self)
        self._start_remaking()

    def _start_remaking(self) -> None:
        if self._wanted and self._remake is None:
            self._remake = self._loop.create_task(self._keep_trying())

    async def _keep_trying(self) -> None:
        for failures in itertools.count(1):
            await asyncio.sleep(pause(failures))
            try:
                await self.connect()
            except Exception as error:
                self.problem = in_words(error)
            else:
                break
        self._remake = None
        if not self.live:  # lost again at once
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
            connection.open(stream, self.headers(pb.KEEP_ALIVE), first=True)
        stream.ask(request, future)


class _KeepAlives(Call):
    """A connection's LeaseKeepAlive stream. Servers answer in order; an answer out of order is matched by its id."""

    __slots__ = ("_asked", "_link")

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link
        self._asked: deque[tuple[bytes, Future[bool]]] = deque()

    def ask(self, request: bytes, future: Future[bool]) -> None:
        self._asked.append((request[LEASE_AT:], future))
        self.send(request)

    def finish(self) -> None:
        """Send no further requests. The server ends the stream after its last answer."""
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
                    if self.connection is not None:
                        self.connection.unasked(1 + len(asked) // _SEARCHED)
                    return
                ttl, future = found
            if not future.done():
                future.set_result(ttl > 0)

    def _search(self, message: bytes) -> tuple[int, Future[bool]] | None:
        lease = varint(pb.keep_alive_lease(message))
        for position, (wanted, future) in enumerate(self._asked):
            if wanted == lease:
                if self.connection is not None:
                    self.connection.unasked(position // _SEARCHED)
                del self._asked[position]
                return pb.keep_alive_ttl(message, lease) or 0, future
        return None

    def on_close(self, error: RpcError | None) -> None:
        link = self._link
        if link.keep_alives is self:
            link.keep_alives = None
        failure = link.failed(error.message if error else "the server ended the keepalive stream")
        if error is not None and error.code == UNAUTHENTICATED:
            link.login.renew()
        asked, self._asked = self._asked, deque()
        for _, future in asked:
            if not future.done():
                future.set_exception(failure)
