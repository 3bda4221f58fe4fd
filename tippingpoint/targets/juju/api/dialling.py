"""Opening WebSockets to a controller's servers, with a limit on concurrency and on work per turn of the loop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from tippingpoint.errors import UserError
from tippingpoint.targets.juju.api.errors import ConnectionLost
from tippingpoint.targets.juju.api.readiness import READ, WRITE, Readiness
from tippingpoint.targets.juju.api.resumption import Resumption
from tippingpoint.targets.juju.api.stream import why
from tippingpoint.targets.juju.api.websocket import Upgrade, WebSocketError
from tippingpoint.util import timing
from tippingpoint.util.network_errors import CLOSED
from tippingpoint.util.patience import LOCAL_STALL_TOLERANCE

SERVER_NAME = "juju-apiserver"
"""The name every Juju controller's certificate is issued for (internal/pki/tls in Juju's source)."""

_AT_ONCE = 256
"""Concurrent dials. This limits waits for slow servers; _BUDGET keeps the loop responsive."""
_BUDGET = 0.004
"""Seconds of a loop turn that handshakes may take. One costs about 1 ms of CPU, and renewals share the loop."""
_WITHIN = 10.0
"""Seconds that a server has for TCP, TLS and WebSocket together; then the next one is tried."""
_STAGGER = 0.25
"""Seconds of silence after which the next server is dialled too (RFC 8305). The juju client waits 50 ms."""
_LOOK_AGAIN = 10.0
"""Seconds between looks at a failed server. Until a look finds it back, logins go to it only if no other answers."""
_UNACKNOWLEDGED = 30
"""Seconds after which TCP gives up on a peer that acknowledges nothing; pings detect other failures."""
_IDLE = 60


class Server:
    """One address of a controller, and the client's memory of it."""

    def __init__(self, address: str, context: ssl.SSLContext) -> None:
        self.address = address
        self.host, self.port = split_address(address)
        self.resumption = Resumption(context, SERVER_NAME)
        self.failed: float | None = None
        """Moment of its last failure on the monotonic clock; None after a success, or before any."""
        self.proven = False
        """Whether it has ever answered."""
        self.dialling = 0
        self.ways = 1
        """How many numeric addresses it has; a login may try each."""
        self._turn = 0
        self._look: asyncio.Task[None] | None = None
        try:
            self.endpoint: str | None = str(ipaddress.ip_address(self.host))
            self._named = False
        except ValueError:
            self.endpoint, self._named = None, True

    async def resolve(self) -> str:
        """Return a numeric address of a server with a name: after a failure, the next one of its addresses."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        endpoints = list(dict.fromkeys(str(address[4][0]) for address in found))
        self.ways = len(endpoints)
        self.endpoint = endpoints[self._turn % len(endpoints)]
        return self.endpoint

    def has_failed(self) -> None:
        """Remember a failure. A name is looked up again next time."""
        self.failed = timing.monotonic()
        if self._named:
            self.endpoint = None
            self._turn += 1

    def look_again(self) -> None:
        """Find out whether a server that failed is back, at most once in a while. No login waits for that."""
        if self.failed is None or timing.monotonic() - self.failed < _LOOK_AGAIN or self._look is not None:
            return
        self._look = asyncio.get_running_loop().create_task(self._looked())

    async def _looked(self) -> None:
        try:
            async with asyncio.timeout(_WITHIN):
                endpoint = self.endpoint or await self.resolve()
                family = socket.AF_INET6 if ":" in endpoint else socket.AF_INET
                with socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as plain:
                    await asyncio.get_running_loop().sock_connect(plain, (endpoint, self.port))
        except (OSError, TimeoutError):
            self.has_failed()
        else:
            self.failed = None
        finally:
            self._look = None

    def close(self) -> None:
        """Stop looking."""
        if self._look is not None:
            self._look.cancel()


class Controller:
    """The servers of one controller, and the TLS context that verifies them."""

    def __init__(self, addresses: Sequence[str], ca: str) -> None:
        if not addresses:
            raise UserError("addresses", "none", '"HOST:PORT" of at least one server')
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.servers = [Server(address, self.context) for address in dict.fromkeys(addresses)]
        self._spare: list[Server] = []
        self._next = 0
        try:
            self.context.load_verify_locations(cadata=ca)
        except (ssl.SSLError, ValueError) as problem:
            raise UserError("ca", "not a certificate", "CA certificates in PEM") from problem

    def learn(self, addresses: Sequence[str]) -> None:
        """Remember servers that the controller itself named. They are tried if no other answers."""
        known = {server.address for server in (*self.servers, *self._spare)}
        new = [address for address in dict.fromkeys(addresses) if address not in known]
        self._spare += [Server(address, self.context) for address in new]

    def pick(self, tried: Sequence[Server], *, good: bool = False) -> Server | None:
        """Return the next server to dial, round robin, with failed ones last; None when all were tried.

        With `good`, failed servers are left out.
        """
        turn = self._next
        order = self.servers[turn:] + self.servers[:turn]
        for server in order:
            server.look_again()
        for server in order:
            if server.failed is None and tried.count(server) < server.ways:
                self._next = (self.servers.index(server) + 1) % len(self.servers)
                return server
        for server in (*order, *self._spare):
            if tried.count(server) < server.ways and not good:
                return server
        return None

    def close(self) -> None:
        """Stop the looks at servers that failed."""
        for server in (*self.servers, *self._spare):
            server.close()

    def most_at_once(self) -> int:
        """Return the concurrent dials allowed to one server, so that a hanging server does not take every place."""
        return max(8, _AT_ONCE // len(self.servers))


class Gate:
    """Admits dials: at most _AT_ONCE are under way, and their work takes at most _BUDGET of a loop turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, readiness: Readiness) -> None:
        self.loop = loop
        self.readiness = readiness
        self._waiting: deque[Dial] = deque()
        self._under_way = 0
        self._spent = 0.0
        self._fresh = True
        self._pumping = False

    def enter(self, dial: Dial, again: bool = False) -> None:
        """Begin a dial when it is its turn. With `again` it tries its next server and goes ahead of new dials."""
        if again:
            self._waiting.appendleft(dial)
        else:
            self._waiting.append(dial)
        self._pump_soon()

    def leave(self) -> None:
        """Note that a dial has ended."""
        self._under_way -= 1
        self._pump_soon()

    def may_work(self) -> bool:
        """Whether this loop turn has time left for handshakes."""
        return self._spent < _BUDGET

    def worked(self, since: float) -> None:
        """Count the time of a handshake, from a moment on the monotonic clock until now."""
        self._spent += timing.monotonic() - since
        if self._fresh:
            self._fresh = False
            self.loop.call_soon(self._new_turn)

    def _new_turn(self) -> None:
        self._spent = 0.0
        self._fresh = True

    def _pump_soon(self) -> None:
        if not self._pumping and self._waiting:
            self._pumping = True
            self.loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        put_back = 0
        while self._waiting and self._under_way < _AT_ONCE and put_back < _AT_ONCE:
            if not self.may_work():
                self._pump_soon()
                return
            dial = self._waiting.popleft()
            if dial.over:
                continue
            since = timing.monotonic()
            if dial.begin():
                self._under_way += 1
            elif not dial.over:  # its server has no free place
                self._waiting.append(dial)
                put_back += 1
            self.worked(since)


class Dialler(Protocol):
    """The owner of a dial, which is called once when the dial ends."""

    def opened(self, socket: ssl.SSLSocket, server: Server, rest: bytes) -> None:
        """Receive the socket, still watched in the dial's name, and the bytes that followed the handshake."""
        ...

    def failed(self, error: ConnectionLost) -> None:
        """Receive the reason why the last server did not answer."""
        ...


class Dial:
    """The opening of one WebSocket, as the juju client does it: the first server that answers is taken.

    The next server is dialled when one fails. It is also dialled alongside one that is silent for _STAGGER: one that
    has not even accepted a TCP connection, or has never answered anybody. A known server that is merely slow is given
    time, so that the load of a login is not doubled.

    `begun()` is called when the gate admits the first dial. After `give_up` the owner is not called. Tens of
    thousands may wait at the gate at once: a dial is small until it begins.
    """

    __slots__ = (
        "_attempts",
        "_begun",
        "_controller",
        "_inside",
        "_last",
        "_owner",
        "_tried",
        "gate",
        "headers",
        "over",
        "path",
    )

    def __init__(
        self,
        gate: Gate,
        controller: Controller,
        path: str,
        owner: Dialler,
        begun: Callable[[], None] | None = None,
        headers: str = "",
    ) -> None:
        self._begun = begun
        self._controller = controller
        self._owner = owner
        self._tried: tuple[Server, ...] = ()
        self._attempts: tuple[_Attempt, ...] = ()
        self._inside = False
        self._last: ConnectionLost | None = None
        self.gate = gate
        self.path = path
        self.headers = headers
        self.over = False
        gate.enter(self)

    def begin(self) -> bool:
        """Dial the next server; called by the gate. Returns False if no server, or none with a free place, is left."""
        server = self._controller.pick(self._tried)
        if server is None:
            self.over = True
            assert self._last is not None
            self._owner.failed(self._last)
            return False
        if server.dialling >= self._controller.most_at_once():
            return False
        begun, self._begun = self._begun, None
        if begun is not None:
            begun()
        self._inside = True
        self._dial(server)
        return True

    def give_up(self) -> None:
        """Stop at once, without a callback."""
        self.over = True
        self._drop()
        self._leave()

    def is_slow(self, attempt: _Attempt) -> None:
        """Dial the next server alongside a silent attempt, if there is a server that has not failed."""
        if self._attempts[-1] is not attempt:
            return
        server = self._controller.pick(self._tried, good=True)
        if server is not None and server.dialling < self._controller.most_at_once():
            self._dial(server)

    def opened(self, attempt: _Attempt, tls: ssl.SSLSocket, rest: bytes) -> None:
        """Take the WebSocket of an attempt, and give up the others. A server that was silent has failed."""
        self.over = True
        server = attempt.server
        others = [other for other in self._attempts if other is not attempt]
        self._attempts = ()
        for other in others:
            if other.is_silent and other.server is not server:
                other.server.has_failed()
            other.shut()
        self._leave()
        self._owner.opened(tls, server, rest)

    def failed(self, attempt: _Attempt, reason: str, *, last: bool) -> None:
        """Go on after a failed attempt; with `last` another server would not help."""
        self._last = ConnectionLost(attempt.server.address, reason)
        self._attempts = tuple(other for other in self._attempts if other is not attempt)
        if last:
            self.give_up()
            self._owner.failed(self._last)
        elif not self._attempts:
            self._leave()
            self.gate.enter(self, again=True)

    def _dial(self, server: Server) -> None:
        self._tried = (*self._tried, server)
        attempt = _Attempt(self, server)
        self._attempts = (*self._attempts, attempt)
        attempt.begin()

    def _drop(self) -> None:
        attempts, self._attempts = self._attempts, ()
        for attempt in attempts:
            attempt.shut()

    def _leave(self) -> None:
        if self._inside:
            self._inside = False
            self.gate.leave()


class _Attempt:
    """A dial's attempt at one server."""

    __slots__ = (
        "_dial",
        "_fd",
        "_gate",
        "_lookup",
        "_plain",
        "_stagger",
        "_timer",
        "_tls",
        "_upgrade",
        "server",
    )

    def __init__(self, dial: Dial, server: Server) -> None:
        self.server = server
        server.dialling += 1
        self._dial: Dial | None = dial
        self._gate = dial.gate
        self._plain: socket.socket | None = None
        self._tls: ssl.SSLSocket | None = None
        self._upgrade: Upgrade | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stagger: asyncio.TimerHandle | None = None
        self._lookup: asyncio.Task[str] | None = None
        self._fd = -1

    @property
    def is_silent(self) -> bool:
        """Whether there is still no TCP connection, or no answer from a server that has never answered."""
        return self._stagger is None and (self._tls is None or not self.server.proven)

    def begin(self) -> None:
        """Look the server up, if it has a name, and connect."""
        self._start_timer()
        self._start_stagger()
        if self.server.endpoint is not None:
            self._connect(self.server.endpoint)
        else:
            self._lookup = self._gate.loop.create_task(self.server.resolve())
            self._lookup.add_done_callback(self._resolved)

    def shut(self) -> None:
        """Stop at once, without a callback, and close the socket unless it was handed over."""
        if self._dial is not None:
            self._dial = None
            self.server.dialling -= 1
        for timer in (self._timer, self._stagger):
            if timer is not None:
                timer.cancel()
        self._timer = self._stagger = None
        if self._lookup is not None:
            self._lookup.cancel()
            self._lookup = None
        if self._fd >= 0:
            self._gate.readiness.forget(self._fd)
            self._fd = -1
        for open_socket in (self._plain, self._tls):
            if open_socket is not None:
                open_socket.close()
        self._plain = self._tls = self._upgrade = None

    def ready(self, events: int) -> None:
        """Take the next step on a ready socket, unless this loop turn has no time left for handshakes."""
        if not self._gate.may_work():
            return  # still ready in the next turn
        since = timing.monotonic()
        try:
            if self._tls is None:
                self._connected()
            elif self._upgrade is None:
                self._shake_hands(self._tls)
            else:
                self._answered(self._tls, self._upgrade)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as problem:
            self._failed(why(problem))
        except WebSocketError as problem:
            self._failed(str(problem))
        finally:
            self._gate.worked(since)

    def _resolved(self, lookup: asyncio.Task[str]) -> None:
        if self._dial is None or lookup.cancelled() or self._lookup is not lookup:
            return
        self._lookup = None
        problem = lookup.exception()
        if problem is None:
            self._connect(lookup.result())
        else:
            self._failed(why(problem))

    def _connect(self, endpoint: str) -> None:
        try:
            family = socket.AF_INET6 if ":" in endpoint else socket.AF_INET
            self._plain = plain = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED * 1000)
            # Pings keep a connection from being idle that long. This is for a login without an answer.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _UNACKNOWLEDGED // 3)
            refusal = plain.connect_ex((endpoint, self.server.port))
            if refusal not in (0, errno.EINPROGRESS):
                raise OSError(refusal, os.strerror(refusal))
        except OSError as problem:
            # The process is out of sockets; another server would not help.
            self._failed(why(problem), last=problem.errno in (errno.EMFILE, errno.ENFILE))
            return
        self._fd = plain.fileno()
        self._gate.readiness.watch(self._fd, self, WRITE)

    def _connected(self) -> None:
        assert self._plain is not None
        refusal = self._plain.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if refusal:
            raise OSError(refusal, os.strerror(refusal))
        # Wrapping takes the file descriptor over, or closes it.
        self._gate.readiness.forget(self._fd)
        self._fd = -1
        plain, self._plain = self._plain, None
        self._tls = self.server.resumption.wrap(plain)
        self._fd = self._tls.fileno()
        self._gate.readiness.watch(self._fd, self, READ)
        self._shake_hands(self._tls)

    def _shake_hands(self, tls: ssl.SSLSocket) -> None:
        assert self._dial is not None
        tls.do_handshake()
        self._upgrade = Upgrade(self.server.address, self._dial.path, self._dial.headers)
        # A fresh socket's buffer takes these few bytes whole.
        tls.send(self._upgrade.request)

    def _answered(self, tls: ssl.SSLSocket, upgrade: Upgrade) -> None:
        data = tls.recv(2**14)
        if not data:
            raise WebSocketError(CLOSED)
        rest = upgrade.feed(data)
        if rest is None:
            return
        self.server.failed = None
        self.server.proven = True
        if not tls.session_reused:
            # A TLS 1.3 ticket arrives after the handshake, and before the first answer at the latest.
            self.server.resumption.keep(tls.session)
        dial = self._dial
        assert dial is not None
        self._tls, self._fd = None, -1  # handed over, and still watched
        self.shut()
        dial.opened(self, tls, rest)

    def _start_timer(self) -> None:
        deadline = self._gate.loop.time() + _WITHIN
        self._timer = self._gate.loop.call_at(deadline, self._too_slow, deadline)

    def _too_slow(self, deadline: float) -> None:
        if self._gate.loop.time() - deadline > LOCAL_STALL_TOLERANCE:
            self._start_timer()  # what the server answered while we stalled has not been read yet
        else:
            self._failed(f"no answer within {_WITHIN:g} s")

    def _start_stagger(self) -> None:
        deadline = self._gate.loop.time() + _STAGGER
        self._stagger = self._gate.loop.call_at(deadline, self._no_connection, deadline)

    def _no_connection(self, deadline: float) -> None:
        if self._gate.loop.time() - deadline > LOCAL_STALL_TOLERANCE:
            self._start_stagger()
            return
        self._stagger = None
        if self._dial is not None and self.is_silent:
            self._dial.is_slow(self)

    def _failed(self, reason: str, *, last: bool = False) -> None:
        dial = self._dial
        assert dial is not None
        if not last:
            self.server.has_failed()
        self.shut()
        dial.failed(self, reason, last=last)


def split_address(address: str) -> tuple[str, int]:
    """Split "HOST:PORT" or "[IPV6]:PORT" into host and port; UserError for anything else."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 2**16:
        raise UserError("addresses", address, '"HOST:PORT" or "[IPV6]:PORT"')
    return host, int(port)
