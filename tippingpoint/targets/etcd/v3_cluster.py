"""A worker's connections to a cluster through the v3 API: opening, logging in, and choosing one per operation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import EtcdAccess, refusal, unreachable
from tippingpoint.targets.etcd.grpc import (
    FAILED_PRECONDITION,
    INVALID_ARGUMENT,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNIMPLEMENTED,
    RpcError,
)
from tippingpoint.targets.etcd.http2 import ProtocolError
from tippingpoint.targets.etcd.v3_calls import ask, for_administrators
from tippingpoint.targets.etcd.v3_link import Link, Login
from tippingpoint.targets.etcd.version import ask_version
from tippingpoint.util.network_errors import in_words
from tippingpoint.workloads.load import TargetFacts

OLDEST = (3, 4)
"""The first version in which a client chooses the ids of its watches."""
_AT_ONCE = 100
"""Concurrent handshakes."""


class Cluster:
    """A worker's connections to a cluster, and its login.

    `on_up` is called whenever a connection comes up, `on_down` with each connection that goes down.
    """

    def __init__(self, access: EtcdAccess, connections: int) -> None:
        self.access = access
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[Link], None] = lambda link: None
        self.login = Login(access.credentials, lambda: next((link for link in self.links if link.live), None))
        # The order alternates between endpoints, so that neighbours in the list reach different servers.
        self.links = [
            Link(endpoint, access.tls, self.login, lambda: self.on_up(), lambda link: self.on_down(link))
            for _ in range(connections)
            for endpoint in access.endpoints
        ]

    def link(self, lease: int, holder: int) -> Link | None:
        """Return the connection for this holder's next operation: its own, or the next one that is up."""
        links = self.links
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
        """Return the failure of an operation for which no connection is up."""
        link = self.links[hash((lease, holder)) % len(self.links)]
        return link.failed(link.problem)

    async def open(self, prefix: str) -> TargetFacts:
        """Connect to every endpoint, log in, and check that keys can be read. TargetError when that fails."""
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
            problems[link.endpoint.name] = in_words(error)
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
                    problems[link.endpoint.name] = in_words(error)
        if facts is None:
            raise unreachable(self.access, problems)
        await self.connect([*(link for link in firsts if not link.live), *rest])
        return facts

    async def connect(self, links: Iterable[Link]) -> None:
        """Connect these links. Those that fail are retried in the background."""
        few = asyncio.Semaphore(_AT_ONCE)

        async def one(link: Link) -> None:
            async with few:
                await link.connect_or_keep_trying()

        await asyncio.gather(*(one(link) for link in links))

    async def close(self, reason: str) -> None:
        """Close every connection; operations under way end."""
        self.login.close()
        connections = [link.close(reason) for link in self.links]
        closing = [connection.closed for connection in connections if connection is not None]
        if closing:
            await asyncio.wait(closing, timeout=1.0)

    async def _greet(self, link: Link, prefix: str) -> TargetFacts:
        try:
            if self.access.credentials is not None:
                await self._log_in(link)
            keys = prefix.encode()
            await ask(
                link, pb.RANGE, pb.key_range(keys, pb.after_prefix(keys), serializable=True, count_only=True)
            )
            version = await self._version(link)
            members = sorted(pb.members(await ask(link, pb.MEMBER_LIST, b"")).values())
        except RpcError as error:
            raise self._refused(link, prefix, error) or error from None
        numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
        if version and tuple(numbers) < OLDEST:
            oldest = ".".join(map(str, OLDEST))
            problem = f"v3: {link.endpoint.name}: etcd {version} has no watches with ids of a client's choice"
            raise TargetError("target.api", problem, f"etcd {oldest} or later, or v2")
        return TargetFacts("etcd", f"{version or 'of unknown version'} (v3 API)", members)

    async def _version(self, link: Link) -> str:
        """Return etcd's version; empty when etcd does not report it to this user."""
        try:
            return pb.version(await ask(link, pb.STATUS, b""))
        except RpcError as error:
            if not for_administrators(error):
                raise
            return await ask_version(self.access, link.endpoint)

    async def _log_in(self, link: Link) -> None:
        user = self.access.credentials
        assert user is not None
        try:
            answer = await ask(link, pb.AUTHENTICATE, pb.authenticate(user.username, user.password))
        except RpcError as error:
            if error.code == FAILED_PRECONDITION and "not enabled" in error.message:
                return  # a cluster without authentication accepts everybody
            raise
        self.login.token = pb.token(answer)

    def _refused(self, link: Link, prefix: str, error: RpcError) -> TargetError | None:
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
