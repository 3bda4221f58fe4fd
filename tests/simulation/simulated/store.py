"""Keys of a simulated service: they have revisions, are watched, and those with a lease run out."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from tests.simulation.lives import LIFE
from tests.simulation.simulated.service import Service
from tippingpoint.errors import OperationFailed
from tippingpoint.workloads.load import TargetFacts
from tippingpoint.workloads.store.target import Change, Page, Read, Update, Watching


def after(prefix: bytes) -> bytes:
    """The first key after all those that begin with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class Keys:
    """A worker's access to a service: a StoreTarget. A key is held, by the revision of its last change."""

    def __init__(self, service: Service, prefix: str) -> None:
        self._service = service
        self._prefix = prefix
        self._open: set[Future[Any]] = set()
        self._closed = False
        self._watches: dict[int, tuple[bytes, bytes, Watching, bool]] = {}
        self._wanted: set[int] = set()
        """Watches that have not ended, also those that have not begun."""
        self._coming: deque[tuple[int, Change]] = deque()
        """Changes on their way to watches, in order."""
        self._told: dict[bytes, int] = {}
        """The revision of each key's last change that its client was told of, but for keys that were ever deleted."""
        self._deleted: set[bytes] = set()
        self._loop = asyncio.get_running_loop()
        service.followers.append(self._changed)

    async def open(self) -> TargetFacts:
        await asyncio.sleep(self._service.base)
        return TargetFacts(kind="simulated", version="1.0", members=["s1"])

    def _ask(self, operation: str, key: bytes, do: Callable[[], Any]) -> Future[Any]:
        """Serve an operation. What waits is dropped, as etcd does, when the connection is closed
        or its process is killed."""
        client = LIFE.get()

        def serve() -> Any:
            return None if self._closed or (client is not None and client.dead) else do()

        future = self._service.answer(operation, key.decode(), None, serve)
        self._open.add(future)
        future.add_done_callback(self._open.discard)
        return future

    def _modified(self, key: bytes) -> int:
        name = key.decode()
        if self._service.free(name):
            return 0
        revision = self._service.leases[name][0]
        assert isinstance(revision, int)
        return revision

    def _put(self, keys: Sequence[bytes], seconds: float = inf) -> int:
        self._service.make_of(self._prefix)
        self._service.revision += 1
        revision = self._service.revision
        for key in keys:
            name = key.decode()
            if seconds < inf:
                self._service.hold(name, revision, seconds)
            else:
                self._service.leases[name] = revision, inf
            self._service.changed(name, deleted=False)
        return revision

    def _delete(self, keys: Sequence[bytes]) -> int:
        there = [key for key in keys if self._modified(key)]
        for key in there:
            self._service.let_go(key.decode())
        return self._service.revision if there else 0

    def _between(self, first: bytes, end: bytes) -> list[bytes]:
        there = (name.encode() for name in self._service.leases if not self._service.free(name))
        return sorted(key for key in there if first <= key < end)

    def _tell(self, keys: Sequence[bytes], answer: Future[Any]) -> Future[Any]:
        """Return an answer to puts, after which no linearizable read of these keys may be older."""

        def told(answer: Future[Any]) -> None:
            if not answer.cancelled() and answer.exception() is None:
                result = answer.result()
                for key in keys:
                    revision = result if isinstance(result, int) else result[0]
                    self._told[key] = max(self._told.get(key, 0), revision)

        answer.add_done_callback(told)
        return answer

    def put(self, key: bytes, value: bytes) -> Future[int]:
        return self._tell([key], self._ask("put", key, lambda: self._put([key])))

    def put_all(self, pairs: Sequence[tuple[bytes, bytes]]) -> Future[list[int]]:
        keys = [key for key, _ in pairs]
        return self._tell(keys, self._ask("put-all", keys[0], lambda: [self._put(keys)] * len(keys)))

    def get(self, key: bytes, *, serializable: bool) -> Future[Read]:
        expected = 0 if serializable else self._told.get(key, 0)

        def read(answer: Future[Read]) -> None:
            if answer.cancelled() or answer.exception() is not None or key in self._deleted:
                return
            if answer.result().modified < expected:
                self._service.answers.append((self._loop.time(), "get", "stale"))

        answer = self._ask("get", key, lambda: Read(self._service.revision, self._modified(key)))
        answer.add_done_callback(read)
        return answer

    def page(
        self, first: bytes, end: bytes, limit: int, revision: int, *, serializable: bool
    ) -> Future[Page]:
        def page() -> Page:
            keys = self._between(first, end)
            shown = keys[: limit or None]
            return Page(self._service.revision, len(keys) > len(shown), shown[-1] if shown else b"")

        return self._ask("range", first, page)

    def revisions(self, first: bytes, end: bytes, limit: int) -> Future[list[tuple[bytes, int]]]:
        future: Future[list[tuple[bytes, int]]] = self._loop.create_future()
        future.set_result([(key, self._modified(key)) for key in self._between(first, end)[:limit]])
        return future

    def update(self, key: bytes, modified: int, value: bytes | None) -> Future[Update]:
        def update() -> Update:
            found = self._modified(key)
            if found != modified:
                return Update(self._service.revision, False, found)
            revision = self._put([key]) if value is not None else self._delete([key])
            return Update(revision, True, 0)

        if value is None:
            self._deleted.add(key)
        return self._ask("txn", key, update)

    def delete(self, key: bytes) -> Future[int]:
        self._deleted.add(key)
        return self._ask("del", key, lambda: self._delete([key]))

    def clear(self, first: bytes, end: bytes) -> Future[None]:
        def clear() -> bool:
            self._delete(self._between(first, end))
            return True

        return self._ask("clear", first, clear)

    def lease(self, seconds: int, pairs: Sequence[tuple[bytes, bytes]]) -> Future[int]:
        return self._ask("lease-grant", pairs[0][0], lambda: self._put([key for key, _ in pairs], seconds))

    def watch(
        self, number: int, prefix: bytes, start: int, watching: Watching, *, deletions: bool = False
    ) -> Future[None]:
        self._wanted.add(number)

        def begin() -> bool:
            if number not in self._wanted:
                return True
            watching.began(start or self._service.revision + 1)
            self._watches[number] = prefix, after(prefix), watching, deletions
            for change in [each for each in self._service.changes if start and each.revision >= start]:
                self._send(number, change)
            return True

        return self._ask("watch", prefix, begin)

    def unwatch(self, number: int) -> None:
        self._wanted.discard(number)
        self._watches.pop(number, None)

    def _changed(self, change: Change) -> None:
        for number in list(self._watches):
            self._send(number, change)

    def _send(self, number: int, change: Change) -> None:
        first, end, _, deletions = self._watches[number]
        if first <= change.key < end and (change.deleted or not deletions):
            self._coming.append((number, change))
            self._loop.call_later(self._service.base, self._arrive)

    def _arrive(self) -> None:
        number, change = self._coming.popleft()
        watch = self._watches.get(number)
        if watch is not None:
            self._service.answers.append((self._loop.time(), "watch-event", "ok"))
            watch[2].happened([change])

    async def drop(self) -> None:
        self._watches.clear()
        await asyncio.sleep(self._service.base)

    async def close(self) -> None:
        self._closed = True
        self._watches.clear()
        if self._changed in self._service.followers:
            self._service.followers.remove(self._changed)
        for future in list(self._open):
            if not future.done():
                future.set_exception(OperationFailed("closed"))
