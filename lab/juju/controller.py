"""A simulated controller's state: models, users, store, connections, and facades."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lab.juju.accounts import User
from lab.juju.disk import Disks
from lab.juju.facades import CONTROLLER_FACADES, MODEL_FACADES, Versions
from lab.juju.leases import Leases, next_round_in
from lab.juju.methods import METHODS, Handler
from lab.juju.model import Model
from lab.juju.ratelimit import Bucket
from lab.juju.store import PROFILES, Store

VERSION = "4.0-simulator15"
"""The version, which Juju's parser reads as 4.0, tag "simulator", patch 15. So its Go clients accept it, too."""


@dataclass
class Setup:
    """A controller's settings, with times in seconds. `rate_limit` is (burst, seconds for one more agent login)."""

    addresses: list[str]
    port: int
    ca: str
    user: str
    password: str
    profile: str = "instant"
    scale: float = 1.0
    patched: bool = False
    rate_limit: tuple[int, float] | None = None
    ping_timeout_s: float = 180.0
    expiry_round_s: float | None = None
    controller_uuid: str = field(default_factory=lambda: str(uuid.uuid4()))


class Connection(Protocol):
    """A client's connection: `rpc.Session`."""

    model: Model | None
    """The connection's model; None for the controller alone."""

    def close(self) -> None:
        """End it."""
        ...


class Reader(Protocol):
    """A user who follows the log of all models."""

    def line(self, model: Model, record: dict[str, Any]) -> None:
        """Receive a record of a model's log."""
        ...


class Controller:
    """One controller, which its servers share, as HA controllers share their database."""

    def __init__(self, setup: Setup, loop: asyncio.AbstractEventLoop) -> None:
        self.setup = setup
        self.uuid = setup.controller_uuid
        self.users = {setup.user: User(setup.user, setup.password, setup.user, superuser=True)}
        self.cloud_users = {setup.user: "admin"}
        """Users' levels for the cloud (accounts.CLOUD_LEVELS)."""
        self.loop = loop
        self.models: dict[str, Model] = {}
        self._leases: list[Leases] = []
        self.disks = Disks(len(setup.addresses), loop)
        self.store = Store(PROFILES[setup.profile], setup.scale, self.leases_held, loop)
        self.limits: dict[str, Bucket | None] = {}
        self.redirects: dict[str, str] = {}
        self.sessions: set[Connection] = set()
        self.log_readers: dict[Reader, None] = {}
        self.facades: Versions = CONTROLLER_FACADES | MODEL_FACADES
        self.dispatch: tuple[dict[tuple[str, int, str], Handler], ...] = ()
        self.offer({})
        self.controller_model = self.new_model("controller", setup.user)
        self._round()

    def new_model(self, name: str, owner: str) -> Model:
        """Add an empty model."""
        model = Model(name, owner, Leases(self.store, self.loop))
        self.models[model.uuid] = model
        self._leases.append(model.leases)
        return model

    def remove_model(self, model: Model, disconnect: bool = False) -> None:
        """Remove a model at once, with everything in it.

        Its clients stay logged in and still get leases, as seen with Juju 4.0.15. With `disconnect` their connections
        end.
        """
        self.models.pop(model.uuid, None)
        model.empty()
        if disconnect:
            for session in [session for session in self.sessions if session.model is model]:
                session.close()

    def leases_held(self) -> int:
        """The number of leases held now, with those of removed models."""
        return sum(map(len, self._leases))

    def offer(self, versions: Versions) -> None:
        """Offer other versions of some facades than Juju 4.0.15. An empty list removes a facade."""
        self.facades = CONTROLLER_FACADES | MODEL_FACADES | versions
        self.dispatch = tuple(
            {
                (facade, version, name): handler
                for facade, methods in METHODS.items()
                if facade in here
                for version in self.facades[facade]
                for name, handler in methods.items()
            }
            for here in (CONTROLLER_FACADES, MODEL_FACADES)
        )

    def serves(self, facade: str, where: Literal["controller", "model"]) -> bool:
        """Tell whether a facade is for this kind of login (restrict_controller.go and restrict_model.go of Juju)."""
        if where == "controller":
            return facade in CONTROLLER_FACADES
        return facade in MODEL_FACADES or facade not in CONTROLLER_FACADES

    def offered(self, in_model: bool) -> Versions:
        """Return the facades that a login to a model, or to the controller alone, gets."""
        here = MODEL_FACADES if in_model else CONTROLLER_FACADES
        return {name: self.facades[name] for name in here if self.facades[name]}

    def address_of(self, server: str) -> str:
        """Return a server's host:port."""
        return f"{self.setup.addresses[int(server[1:]) - 1]}:{self.setup.port}"

    def host_ports(self, server: str | None = None) -> list[list[dict[str, object]]]:
        """Return all servers' addresses, or one server's, in the form of replies."""
        addresses = self.setup.addresses
        if server is not None:
            addresses = [addresses[int(server[1:]) - 1]]
        return [
            [{"value": address, "type": "ipv4", "scope": "local-cloud", "port": self.setup.port}]
            for address in addresses
        ]

    def entered(self, session: Connection) -> None:
        """Record a login."""
        self.sessions.add(session)

    def left(self, session: Connection) -> None:
        """Record the end of a connection."""
        self.sessions.discard(session)

    def _round(self) -> None:
        if self.store.works:  # removing a lease is a commit like any other
            for leases in self._leases:
                leases.expire()
        there = {id(model.leases) for model in self.models.values()}
        self._leases = [leases for leases in self._leases if id(leases) in there or not leases.unused]
        wait = self.setup.expiry_round_s
        self.loop.call_later(next_round_in() if wait is None else wait, self._round)
