"""A process's way to one controller: logins, the connections they make, and what these share."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence

from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.dialling import Controller, Gate
from tippingpoint.targets.juju.api.errors import ConnectionLost
from tippingpoint.targets.juju.api.login import Identity, Login, TermsBook
from tippingpoint.targets.juju.api.pings import PATIENCE, PERIOD, PingClock
from tippingpoint.targets.juju.api.readiness import Readiness

__all__ = ["ApiClient", "Connection", "Identity"]

_FIRST_VERSION = "4.0.0"
_AT_A_TIME = 200


class ApiClient:
    """Connections to one controller; one per process and controller, made and used inside one event loop.

    `addresses` are "HOST:PORT" or "[IPV6]:PORT", `ca` is PEM text; UserError for others. TLS is always
    verified, for the name that every controller's certificate has, and sessions are resumed.
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
        """Logged-in connections that are open now."""
        return len(self._open)

    def login(
        self,
        identity: Identity,
        model: str | None,
        closed: Callable[[str], None] | None = None,
        begun: Callable[[], None] | None = None,
    ) -> Future[Connection]:
        """Connect and log in to a model (its UUID), or to the controller alone (None).

        Addresses are taken in turn; when one does not answer within 10 s the next is tried; redirects are
        followed. The future ends with ApiError, RateLimited or ConnectionLost; cancelling it gives the
        attempt up and closes its socket. A server that accepts the WebSocket but never answers the login is
        waited for: the caller's timeout cancels. `closed` is called once with the reason, one line that
        begins with the server's address, when the logged-in connection is lost, not when we close it.

        At most 256 logins of a client are between their first byte of TCP and the end of the WebSocket's
        handshake, shared evenly by the servers (8 each at least), and their handshakes take at most 4 ms of a
        turn of the event loop; the others wait. `begun` is called once, when a login's first dial begins.
        """
        if self._shut:
            future: Future[Connection] = self._loop.create_future()
            future.set_exception(ConnectionLost(self._controller.servers[0].address, "the client is closed"))
            return future
        controller = self._elsewhere.get(model, self._controller)
        login = Login(self, controller, identity, model, closed, begun)
        self._logins.add(login)
        return login.future

    async def close(self) -> None:
        """Close every connection and give up every login under way."""
        if self._shut:
            return
        self._shut = True
        self._pings.close()
        for login in list(self._logins):
            login.give_up(ConnectionLost(self._controller.servers[0].address, "the client is closed"))
        for number, connection in enumerate(list(self._open)):
            connection.close()
            if number % _AT_A_TIME == _AT_A_TIME - 1:
                await asyncio.sleep(0)
        self._readiness.close()

    def moved(self, model: str | None, controller: Controller) -> None:
        """A redirect says that a model is at another controller; later logins go there at once."""
        self._elsewhere[model] = controller

    def logged_in(self, login: Login, connection: Connection) -> None:
        """A login has made its connection."""
        self._logins.discard(login)
        self._open.add(connection)
        self._pings.start(connection)

    def gone(self, connection: Connection) -> None:
        """A connection is closed."""
        self._open.discard(connection)

    def over(self, login: Login) -> None:
        """A login has failed or was given up."""
        self._logins.discard(login)
