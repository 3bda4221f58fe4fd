"""Waiting for leases to be released, through the v3 API.

Each connection has one Watch stream. Units move to another connection when theirs fails.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import Scope, pause
from tippingpoint.targets.etcd.grpc import UNAUTHENTICATED, UNAVAILABLE, Call, RpcError, framed
from tippingpoint.targets.etcd.http2 import Connection
from tippingpoint.targets.etcd.v3_calls import Request
from tippingpoint.targets.etcd.v3_cluster import Cluster
from tippingpoint.targets.etcd.v3_link import Link


class _Place:
    """A connection and its Watch stream, on which units can wait. It rests for a while after a failure."""

    __slots__ = ("failures", "link", "resting", "stream")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.stream: _Watches | None = None
        self.failures = 0
        self.resting = False


class _Waiting:
    """A unit waiting for a lease's release. `revision` is one at which the lease was held (0: not known yet)."""

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
    """A connection's Watch stream, shared by all units that wait on this connection."""

    __slots__ = ("_releases", "place", "waiting")

    def __init__(self, releases: Releases, place: _Place) -> None:
        super().__init__()
        self._releases = releases
        self.place = place
        self.waiting: dict[int, _Waiting] = {}

    def on_message(self, message: bytes) -> None:
        answer = pb.watch_answer(message)
        unit = self.waiting.get(answer.watch)
        if unit is not None and (answer.happened or answer.compacted):
            # Compacted: etcd has forgotten later events of the key, so it may have been released.
            self._releases.let_go(unit, tell_server=not answer.canceled)
            unit.released()
        elif answer.canceled and (unit is not None or answer.watch < 0):
            self.cancel()
            self.on_close(
                RpcError(UNAUTHENTICATED if self.place.link.login.token else UNAVAILABLE, answer.reason)
            )
        elif answer.created:
            self.place.failures = 0

    def on_close(self, error: RpcError | None) -> None:
        self._releases.ended(self, error)


class Releases:
    """Which units wait for which leases. A release that may have been missed counts as a release."""

    def __init__(self, cluster: Cluster, scope: Scope) -> None:
        self._cluster = cluster
        self._scope = scope
        self._loop = asyncio.get_running_loop()
        self._places = [_Place(link) for link in cluster.links]
        self._numbers = itertools.count(1)
        self._denied: dict[tuple[int, int], int] = {}
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self._homeless: dict[int, _Waiting] = {}
        cluster.on_up = self._link_up
        cluster.on_down = self._link_down

    def denied(self, lease: int, holder: int, revision: int) -> None:
        """Remember the revision at which a claim was denied."""
        self._denied[lease, holder] = revision

    def watch(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Wait for a lease to be free; see ClaimTarget."""
        self.unwatch(lease, holder)
        denied = self._denied.pop((lease, holder), None)
        revision = 0 if denied is None else denied + 1
        unit = _Waiting(lease, holder, released, revision, next(self._numbers))
        self._waiting[lease, holder] = unit
        self._place(unit)

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting; see ClaimTarget."""
        unit = self._waiting.get((lease, holder))
        if unit is not None:
            self.let_go(unit, tell_server=True)

    def let_go(self, unit: _Waiting, tell_server: bool) -> None:
        """End a unit's wait."""
        self._waiting.pop((unit.lease, unit.holder), None)
        self._homeless.pop(unit.number, None)
        stream = unit.stream
        if stream is not None:
            stream.waiting.pop(unit.number, None)
            unit.stream = None
            if tell_server:
                stream.send(framed(pb.watch_cancel(unit.number)))

    def _place(self, unit: _Waiting) -> None:
        """Let a unit wait on its own connection or the next one that is up; if none is up, keep it for later."""
        places = self._places
        first = hash((unit.lease, unit.holder)) % len(places)
        for step in range(len(places)):
            place = places[first - step]
            if place.link.connection is not None and not place.resting:
                self._place_on(unit, place, place.link.connection)
                return
        self._homeless[unit.number] = unit

    def _place_on(self, unit: _Waiting, place: _Place, connection: Connection) -> None:
        key = self._scope.key(unit.lease).encode()
        if unit.revision == 0:
            self._look(unit, place, key)
            return
        stream = place.stream
        if stream is None:
            place.stream = stream = _Watches(self, place)
            connection.open(stream, place.link.headers(pb.WATCH), first=True)
        unit.stream = stream
        stream.waiting[unit.number] = unit
        stream.send(framed(pb.watch_deletion(unit.number, key, unit.revision)))

    def _look(self, unit: _Waiting, place: _Place, key: bytes) -> None:
        """For a unit that was not denied on this worker: check that the key exists, and watch it from now on."""

        def done(answer: bytes, error: RpcError | None) -> None:
            if self._waiting.get((unit.lease, unit.holder)) is not unit:
                return
            if error is not None:
                self._homeless[unit.number] = unit
                self._rest(place)
            elif pb.count(answer):
                unit.revision = pb.revision(answer) + 1
                self._place(unit)
            else:
                self.let_go(unit, tell_server=False)
                unit.released()

        Request(place.link, pb.RANGE, pb.key_range(key, count_only=True), done)

    def ended(self, stream: _Watches, error: RpcError | None) -> None:
        """Move the units of a Watch stream that ended to other connections, each from its own revision."""
        place = stream.place
        if place.stream is stream:
            place.stream = None
        if place.link.live:  # only the stream failed: do not retry on this connection at once
            if error is not None and error.code == UNAUTHENTICATED:
                place.link.login.renew()
            self._rest(place)
        units = list(stream.waiting.values())
        stream.waiting.clear()
        for unit in units:
            unit.stream = None
            self._place(unit)

    def _rest(self, place: _Place) -> None:
        if not place.resting:
            place.resting = True
            place.failures += 1
            self._loop.call_later(pause(place.failures), self._rested, place)

    def _rested(self, place: _Place) -> None:
        place.resting = False
        self._link_up()

    def _link_up(self) -> None:
        units = list(self._homeless.values())
        self._homeless.clear()
        for unit in units:
            self._place(unit)

    def _link_down(self, link: Link) -> None:
        """Move the units off a connection that is down, or that is going down and answers only earlier calls."""
        place = self._places[self._cluster.links.index(link)]
        stream, place.stream = place.stream, None
        if stream is not None:
            stream.cancel()
            self.ended(stream, None)

    def clear(self) -> None:
        """Drop all waiting units."""
        for unit in self._waiting.values():
            if unit.stream is not None:
                unit.stream.waiting.clear()
                unit.stream = None
        self._waiting.clear()
        self._homeless.clear()
        self._denied.clear()
