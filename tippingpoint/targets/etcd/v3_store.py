"""Keys by etcd's v3 API, over a few HTTP/2 connections: put, read, changed by transactions, leased and watched."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import TypeVar

from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import Scope, access
from tippingpoint.targets.etcd.grpc import INTERNAL, LONGEST, MAX_MESSAGE, RpcError
from tippingpoint.targets.etcd.http2 import ProtocolError
from tippingpoint.targets.etcd.ledger import WORKER_LEASE_IDS
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.v3_calls import Request
from tippingpoint.targets.etcd.v3_cluster import Cluster
from tippingpoint.targets.etcd.v3_watches import Watches
from tippingpoint.workloads.load import TargetFacts
from tippingpoint.workloads.store.target import Page, Read, Update, Watching

T = TypeVar("T")

_MOST_OF_A_DELETION = 10_000
"""The most keys that one request deletes, so that the store does not stall for long."""


class V3Store:
    """A StoreTarget on the v3 API."""

    def __init__(self, target: EtcdTarget, scope: Scope) -> None:
        self._scope = scope
        self._access = access(target, alpn="h2")
        self._cluster: Cluster | None = None
        self._watches: Watches | None = None
        # A restarted worker has the same range of ids. A random start in its first half avoids ids in use.
        self._ids = itertools.count(scope.lease_ids + 1 + secrets.randbelow(WORKER_LEASE_IDS // 2))
        self._number = 0

    async def open(self) -> TargetFacts:
        """Connect; see StoreTarget."""
        self._loop = asyncio.get_running_loop()
        self._cluster = cluster = Cluster(self._access, self._access.target.connections)
        self._watches = Watches(cluster)
        try:
            return await cluster.open(self._scope.prefix)
        except BaseException:
            await self.close()
            raise

    @property
    def _open(self) -> Cluster:
        if self._cluster is None:
            raise RuntimeError("open() comes first")
        return self._cluster

    @property
    def _watching(self) -> Watches:
        if self._watches is None:
            raise RuntimeError("open() comes first")
        return self._watches

    # --- operations

    def put(self, key: bytes, value: bytes) -> Future[int]:
        """Put a key; see StoreTarget."""
        return self._call(pb.PUT, pb.put(key, value), pb.revision)

    def put_all(self, pairs: Sequence[tuple[bytes, bytes]]) -> Future[list[int]]:
        """Put several keys; see StoreTarget."""
        message = pb.put_all(pb.put(key, value) for key, value in pairs)
        return self._call(pb.TXN, message, lambda answer: [pb.revision(answer)] * len(pairs))

    def get(self, key: bytes, *, serializable: bool) -> Future[Read]:
        """Read a key; see StoreTarget."""
        return self._call(pb.RANGE, pb.key_range(key, serializable=serializable), _read, MAX_MESSAGE)

    def page(
        self, first: bytes, end: bytes, limit: int, revision: int, *, serializable: bool
    ) -> Future[Page]:
        """Read keys in order; see StoreTarget."""
        request = pb.key_range(first, end, limit=limit, revision=revision, serializable=serializable)
        return self._call(pb.RANGE, request, _page, MAX_MESSAGE)

    def revisions(self, first: bytes, end: bytes, limit: int) -> Future[list[tuple[bytes, int]]]:
        """List keys with their revisions; see StoreTarget."""
        request = pb.key_range(first, end, limit=limit, keys_only=True)
        return self._call(pb.RANGE, request, pb.revisions, MAX_MESSAGE)

    def update(self, key: bytes, modified: int, value: bytes | None) -> Future[Update]:
        """Write a key that has the expected revision, or read it; see StoreTarget."""
        return self._call(pb.TXN, pb.update(key, modified, value), _update)

    def delete(self, key: bytes) -> Future[int]:
        """Delete a key; see StoreTarget."""
        return self._call(pb.DELETE_RANGE, pb.delete_range(key), _deletion)

    def clear(self, first: bytes, end: bytes) -> Future[None]:
        """Delete all keys of a range; see StoreTarget."""
        return self._loop.create_task(self._clear(first, end))

    async def _clear(self, first: bytes, end: bytes) -> None:
        while keys := await self.revisions(first, end, _MOST_OF_A_DELETION):
            beyond = keys[-1][0] + b"\0"
            await self._call(pb.DELETE_RANGE, pb.delete_range(first, beyond), pb.revision)
            first = beyond

    def lease(self, seconds: int, pairs: Sequence[tuple[bytes, bytes]]) -> Future[int]:
        """Grant a lease and put keys with it; see StoreTarget."""
        return self._loop.create_task(self._lease(seconds, pairs))

    async def _lease(self, seconds: int, pairs: Sequence[tuple[bytes, bytes]]) -> int:
        lease = next(self._ids)
        await self._call(pb.GRANT, pb.lease_grant(seconds, lease), pb.revision)
        puts = (pb.put(key, value, lease) for key, value in pairs)
        return await self._call(pb.TXN, pb.put_all(puts), pb.revision)

    def _call(
        self, path: str, message: bytes, read: Callable[[bytes], T], longest: int = LONGEST
    ) -> Future[T]:
        """Make a call over the next connection that is up; the future ends with the result of `read` for the answer."""
        future: Future[T] = self._loop.create_future()
        cluster = self._open
        self._number = number = self._number + 1
        link = cluster.link(number, 0)
        if link is None:
            future.set_exception(cluster.nowhere(number, 0))
            return future

        def done(answer: bytes, error: RpcError | None) -> None:
            if future.done():
                return
            if error is None:
                try:
                    future.set_result(read(answer))
                except ProtocolError as problem:
                    error = RpcError(INTERNAL, f"broken answer: {problem}")
            if error is not None:
                future.set_exception(link.failed(error.message))

        request = Request(link, path, message, done, longest)

        def ended(future: Future[T]) -> None:
            if future.cancelled():
                request.cancel()

        future.add_done_callback(ended)
        return future

    # --- watches

    def watch(
        self, number: int, prefix: bytes, start: int, watching: Watching, *, deletions: bool = False
    ) -> Future[None]:
        """Watch the keys below a prefix; see StoreTarget."""
        request = pb.watch_prefix(number, prefix, pb.after_prefix(prefix), start, deletions=deletions)
        return self._watching.begin(number, request, start, watching)

    def unwatch(self, number: int) -> None:
        """End a watch; see StoreTarget."""
        self._watching.end(number)

    # --- the end

    async def drop(self) -> None:
        """Connect afresh; see StoreTarget."""
        self._watching.clear()
        cluster = self._open
        await cluster.close("connection dropped on purpose")
        for link in cluster.links:
            link.reopen()
        await cluster.connect(cluster.links)

    async def close(self) -> None:
        """Close every connection; see StoreTarget."""
        if self._cluster is not None:
            self._watching.clear()
            await self._cluster.close("closed")


def _read(answer: bytes) -> Read:
    return Read(pb.revision(answer), pb.modified(answer))


def _page(answer: bytes) -> Page:
    return Page(*pb.page(answer))


def _update(answer: bytes) -> Update:
    return Update(*pb.updated(answer))


def _deletion(answer: bytes) -> int:
    return pb.revision(answer) if pb.deleted(answer) else 0
