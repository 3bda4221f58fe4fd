"""A process's client of one controller: its logins, its connections, and what these share."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence

from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.dialling import Controller, Gate
from tippingpoint.targets.juju.api.errors import ConnectionLost
from tippingpoint.targets.juju.api.log_stream import LogStream
from tippingpoint.targets.juju.api.login import Identity, Login, TermsBook
from tippingpoint.targets.juju.api.pings import PATIENCE, PERIOD, PingClock
from tippingpoint.targets.juju.api.readiness import Readiness

_FIRST_VERSION = "4.0.0"
_AT_A_TIME = 200


class ApiClient:
    """Connections to one controller; one client per process and controller, created and used in one event loop.

    `addresses` are "HOST:PORT" or "[IPV6]:PORT", `ca` is PEM text; UserError for anything else. TLS is always
    verified, against the name in every controller's certificate, and sessions are resumed.
    """

    def __init__(self, addresses: Sequence[str], ca: str) -> None:
        self._controller = Controller(addresses, ca)
        self._elsewhere: dict[str | None, Controller] = {}
        self._open: set[Connection] = set()
        self._logins: set[Login] = set()
        self._loop = asyncio.get_running_loop()
        self._readiness = Readiness(self._loop)
        self._pings = PingClock(self._loop, PERIOD, PATIENCE)
        self._shut = False
        self.gate = Gate(self._loop, self._readiness)
        self.book = TermsBook()
        self.client_version = _FIRST_VERSION

    @property
    def connections(self) -> int:
        """The number of logged-in connections that are open now."""
        return len(self._open)

    def login(
        self,
        identity: Identity,
        model: str | None,
        closed: Callable[[str], None] | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Future[Connection]:
        """Connect and log in to a model (its UUID), or to the controller alone (None).

        Addresses are dialled as by the juju client: the next one when one fails, or is silent for 250 ms. The first
        that answers is used. Each has 10 s, and one that failed is skipped for a while. Redirects are followed. The
        future ends with ApiError, RateLimited or ConnectionLost. Cancelling it ends the attempt and closes its socket.
        If a server accepts the WebSocket but never answers the login, the login waits until the caller's timeout
        cancels it. `closed` is called once when the logged-in connection is lost (not when the client closes it). Its
        reason is one line that begins with the server's address.

        A client limits its logins: at most 256 are between the first byte of TCP and the end of the WebSocket
        handshake. Servers share these evenly, with at least 8 each. Handshakes take at most 4 ms of each turn of the
        event loop. Other logins wait. `begun` is called once, when a login's first dial begins.
        """
        if self._shut:
            future: Future[Connection] = self._loop.create_future()
            future.set_exception(ConnectionLost(self._controller.servers[0].address, "the client is closed"))
            return future
        controller = self._elsewhere.get(model, self._controller)
        login = Login(self, controller, identity, model, closed, begun)
        self._logins.add(login)
        return login.future

    def log_sink(self, agent: Identity, model: str) -> LogStream:
        """Open the sink of a model's log as one of its agents. Close it before the client."""
        return LogStream(self, self._elsewhere.get(model, self._controller), agent, model)

    def log_reader(self, user: Identity, line: Callable[[str], None]) -> LogStream:
        """Follow the log of all models: `line` is called with each message. Close it before the client."""
        return LogStream(self, self._controller, user, None, line)

    async def close(self) -> None:
        """Close every connection and give up every login under way."""
        if self._shut:
            return
        self._shut = True
        self._pings.close()
        for login in list(self._logins):
            login.failed(ConnectionLost(self._controller.servers[0].address, "the client is closed"))
        for number, connection in enumerate(list(self._open)):
            connection.close()
            if number % _AT_A_TIME == _AT_A_TIME - 1:
                await asyncio.sleep(0)
        for controller in (self._controller, *self._elsewhere.values()):
            controller.close()
        self._readiness.close()

    def moved(self, model: str | None, controller: Controller) -> None:
        """Note that a redirect named another controller for a model: later logins go to it directly."""
        self._elsewhere[model] = controller

    def logged_in(self, login: Login, connection: Connection) -> None:
        """Note that a login has made its connection."""
        self._logins.discard(login)
        self._open.add(connection)
        self._pings.start(connection)

    def gone(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        self._open.discard(connection)

    def over(self, login: Login) -> None:
        """Note that a login has failed or was cancelled."""
        self._logins.discard(login)
