"""Leases by etcd's v3 API: granted, kept alive and watched over a few HTTP/2 connections.

A claim is a LeaseGrant, then a transaction that puts the key if it is absent. Each connection has one stream
for all LeaseKeepAlive requests (renewals) and one Watch stream for all units that wait for a release. A unit
costs dictionary entries, not a task.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import secrets
from asyncio import Future
from collections.abc import Callable
from contextlib import suppress

from tippingpoint.plan.claim import ClaimWorkload
from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import LEADER_WITHIN, Scope, access
from tippingpoint.targets.etcd.grpc import INTERNAL, NOT_FOUND, UNIMPLEMENTED, RpcError, framed
from tippingpoint.targets.etcd.http2 import ProtocolError
from tippingpoint.targets.etcd.ledger import WORKER_LEASE_IDS
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.v3_calls import Request, ask, for_administrators
from tippingpoint.targets.etcd.v3_cluster import Cluster
from tippingpoint.targets.etcd.v3_link import LEASE_AT, Link
from tippingpoint.targets.etcd.v3_releases import Releases
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts

_REVOKE_WITHIN = 2.0
"""Seconds that close() waits for the revocation of unused leases."""


class V3Target:
    """A ClaimTarget on the v3 API. `drop` forgets waiting units, as a restarted worker would."""

    def __init__(self, target: EtcdTarget, workload: ClaimWorkload, scope: Scope) -> None:
        self.scope = scope
        self.ttl = math.ceil(workload.claim_time)
        self.epoch = 0
        self._access = access(target, alpn="h2")
        self._cluster: Cluster | None = None
        self._releases: Releases | None = None
        # A restarted worker has the same range of ids. A random start in its first half avoids ids in use.
        self._ids = itertools.count(scope.lease_ids + 1 + secrets.randbelow(WORKER_LEASE_IDS // 2))
        self._revoking = 0
        self._revoked: Future[None] | None = None
        self._members: dict[int, str] = {}
        self._term = 0
        self._asked = itertools.count()

    @property
    def cluster(self) -> Cluster:
        """The connections. RuntimeError before `open`."""
        if self._cluster is None:
            raise RuntimeError("open() comes first")
        return self._cluster

    @property
    def releases(self) -> Releases:
        """The units that wait for a release. RuntimeError before `open`."""
        if self._releases is None:
            raise RuntimeError("open() comes first")
        return self._releases

    async def open(self) -> TargetFacts:
        """Connect; see ClaimTarget."""
        self._loop = asyncio.get_running_loop()
        self._cluster = Cluster(self._access, self._access.target.connections)
        self._releases = Releases(self._cluster, self.scope)
        try:
            return await self._cluster.open(self.scope.prefix)
        except BaseException:
            await self.close()
            raise

    def next_id(self) -> int:
        """Return a lease id that nothing else uses."""
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
        link = self.cluster.link(holding.lease, holding.holder)
        request = holding.token
        assert isinstance(request, bytes)
        if link is None:
            future.set_exception(self.cluster.nowhere(holding.lease, holding.holder))
        else:
            link.keep_alive(request, future)
        return future

    def release(self, holding: Holding) -> Future[None]:
        """Give a lease back; see ClaimTarget."""
        future: Future[None] = self._loop.create_future()
        request = holding.token
        assert isinstance(request, bytes)
        link = self.cluster.link(holding.lease, holding.holder)
        if link is None:
            future.set_exception(self.cluster.nowhere(holding.lease, holding.holder))
            return future

        def done(_: bytes, error: RpcError | None) -> None:
            if future.done():
                return
            if error is None or error.code == NOT_FOUND:  # not found: it had expired, so it is released
                future.set_result(None)
            else:
                future.set_exception(link.failed(error.message))

        # Both requests are the same message, the lease's id in field 1.
        Request(link, pb.REVOKE, request[LEASE_AT - 1 :], done)
        return future

    def revoke_unused(self, lease_id: int, link: Link | None = None) -> None:
        """Revoke a lease that nobody holds, in the background. If that fails, the lease expires.

        A lease whose grant is still unanswered is revoked over the connection of the grant if that is up. Over
        another connection, the revocation could overtake the grant.
        """
        if link is None or link.connection is None:
            link = self.cluster.link(lease_id, 0)
        if link is None:
            return
        self._revoking += 1
        Request(link, pb.REVOKE, pb.lease_revoke(lease_id), self._unused_revoked)

    def _unused_revoked(self, _: bytes, error: RpcError | None) -> None:
        self._revoking -= 1
        if self._revoking == 0 and self._revoked is not None and not self._revoked.done():
            self._revoked.set_result(None)

    # --- waiting for a release
    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Wait for a lease to be free; see ClaimTarget."""
        self.releases.watch(lease, holder, released)

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting; see ClaimTarget."""
        self.releases.unwatch(lease, holder)

    # --- the cluster

    async def leader(self) -> str | None:
        """Return the leader as one member reports it, members taking turns; see Led."""
        links = [link for link in self.cluster.links[: len(self._access.endpoints)] if link.live]
        if not links:
            return ""
        link = links[next(self._asked) % len(links)]
        try:
            leader, term = pb.leader(await ask(link, pb.STATUS, b"", LEADER_WITHIN))
            if not leader or term < self._term:
                return ""  # a member that has not seen the last election reports the previous leader
            self._term = term
            if leader not in self._members:
                self._members = pb.members(await ask(link, pb.MEMBER_LIST, b"", LEADER_WITHIN))
        except RpcError as error:
            return None if for_administrators(error) or error.code == UNIMPLEMENTED else ""
        except (TimeoutError, ProtocolError):
            return ""
        return self._members.get(leader, "")

    # --- the end

    async def drop(self) -> None:
        """Abandon everything and connect afresh; see ClaimTarget."""
        self.epoch += 1
        self.releases.clear()
        await self.cluster.close("connection dropped on purpose")
        for link in self.cluster.links:
            link.reopen()
        await self.cluster.connect(self.cluster.links)

    async def close(self) -> None:
        """Close every connection; see ClaimTarget."""
        if self._cluster is None:
            return
        self.releases.clear()
        if self._revoking:
            self._revoked = self._loop.create_future()
            with suppress(TimeoutError):
                async with asyncio.timeout(_REVOKE_WITHIN):
                    await self._revoked
        await self._cluster.close("closed")


class _Claim:
    """A claim under way: a lease is granted, then the key is put with it if the key is absent."""

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
        link = target.cluster.link(self.lease, self.holder)
        if link is None:
            self.future.set_exception(target.cluster.nowhere(self.lease, self.holder))
            return
        self._id = target.next_id()
        self.future.add_done_callback(self._ended)
        self._call = Request(link, pb.GRANT, pb.lease_grant(target.ttl, self._id), self._granted)

    def _granted(self, _: bytes, error: RpcError | None) -> None:
        if self.future.done():
            return
        target = self._target
        link = target.cluster.link(self.lease, self.holder)
        if error is not None or link is None or self._call is None:
            self._fail(error)
            return
        key, value = target.scope.key(self.lease), f"{self.lease}/{self.holder}"
        put = pb.claim(key.encode(), value.encode(), self._id)
        self._call = Request(link, pb.TXN, put, self._decided)

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
            self._target.releases.denied(self.lease, self.holder, revision)
            self.future.set_result(None)
            self._target.revoke_unused(self._id)

    def _fail(self, error: RpcError | None) -> None:
        link = self._call.link if self._call is not None else None
        if link is None:
            self.future.set_exception(self._target.cluster.nowhere(self.lease, self.holder))
        else:
            self.future.set_exception(link.failed(error.message if error is not None else link.problem))

    def _ended(self, future: Future[Holding | None]) -> None:
        if future.cancelled():
            if self._call is None:
                return
            self._call.cancel()
            if self._epoch == self._target.epoch:
                self._target.revoke_unused(self._id, self._call.link)
