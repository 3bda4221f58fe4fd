"""A store of keys in memory, and a StoreTarget on it that misbehaves where a test asks for it."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.workloads.load import TargetFacts
from tippingpoint.workloads.store.target import Change, Page, Read, Update, Watching


def after(prefix: bytes) -> bytes:
    """The first key after all those that begin with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


@dataclass
class Store:
    """Keys with revisions, as etcd keeps them, and every change that there was."""

    revision: int = 1
    keys: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """The keys that are there, and the revision of the last change of each."""
    changes: list[Change] = field(default_factory=list[Change])
    changed: Callable[[Sequence[Change]], None] = lambda changes: None
    """Called with the changes of each revision."""

    def put(self, keys: Iterable[bytes]) -> int:
        """Put keys at the next revision; returns it."""
        self.revision += 1
        for key in keys:
            self.keys[key] = self.revision
        self._note([Change(self.revision, key, False) for key in keys])
        return self.revision

    def delete(self, keys: Iterable[bytes]) -> int:
        """Delete those of the keys that are there; returns the revision of that, or 0 if none is."""
        there = sorted(key for key in keys if key in self.keys)
        if not there:
            return 0
        self.revision += 1
        for key in there:
            del self.keys[key]
        self._note([Change(self.revision, key, True) for key in there])
        return self.revision

    def update(self, key: bytes, modified: int, *, put: bool) -> Update:
        """Put or delete a key whose last change was at a revision; see StoreTarget."""
        found = self.keys.get(key, 0)
        if found != modified:
            return Update(self.revision, False, found)
        if put:
            self.put([key])
        else:
            self.delete([key])
        return Update(self.revision, True, 0)

    def between(self, first: bytes, end: bytes) -> list[bytes]:
        """The keys of a range, in order."""
        return sorted(key for key in self.keys if first <= key < end)

    def page(self, first: bytes, end: bytes, limit: int) -> Page:
        """A page of a range; see StoreTarget."""
        keys = self.between(first, end)
        shown = keys[: limit or None]
        return Page(self.revision, len(keys) > len(shown), shown[-1] if shown else b"")

    def _note(self, changes: list[Change]) -> None:
        self.changes += changes
        self.changed(changes)


@dataclass
class _Watch:
    first: bytes
    end: bytes
    watching: Watching
    deletions: bool

    def wants(self, change: Change) -> bool:
        return self.first <= change.key < self.end and (change.deleted or not self.deletions)


class MemoryStore:
    """One worker's access to a store; it implements StoreTarget. Everything is answered in the loop's next turn."""

    def __init__(self, store: Store) -> None:
        self.store = store
        store.changed = self._changed
        self.asked: list[tuple[str, Any]] = []
        """The calls, each with what it was about."""
        self.answer: Callable[[str, Any], Any] = lambda operation, answer: answer
        """What becomes of each answer; it may raise OperationFailed."""
        self.deliver: Callable[[int, list[Change]], Iterable[Change]] = lambda number, changes: changes
        """What becomes of the changes on their way to the watch of a number."""
        self.silent = False
        """Whether nothing is answered."""
        self.compacted = 0
        """The first revision that is still kept."""
        self.closed = False
        self._watches: dict[int, _Watch] = {}
        self._loop = asyncio.get_running_loop()

    async def open(self) -> TargetFacts:
        return TargetFacts("memory", "1", ["m1"])

    def _done(self, operation: str, about: Any, do: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = self._loop.create_future()
        self.asked.append((operation, about))
        if not self.silent:
            self._loop.call_soon(self._finish, operation, do, future)
        return future

    def _finish(self, operation: str, do: Callable[[], Any], future: Future[Any]) -> None:
        if future.done():
            return
        try:
            future.set_result(self.answer(operation, do()))
        except OperationFailed as failed:
            future.set_exception(failed)

    def put(self, key: bytes, value: bytes) -> Future[int]:
        return self._done("put", (key, value), lambda: self.store.put([key]))

    def put_all(self, pairs: Sequence[tuple[bytes, bytes]]) -> Future[list[int]]:
        return self._done("put-all", pairs, lambda: [self.store.put([key for key, _ in pairs])] * len(pairs))

    def get(self, key: bytes, *, serializable: bool) -> Future[Read]:
        read = lambda: Read(self.store.revision, self.store.keys.get(key, 0))  # noqa: E731
        return self._done("get", (key, serializable), read)

    def page(
        self, first: bytes, end: bytes, limit: int, revision: int, *, serializable: bool
    ) -> Future[Page]:
        about = first, end, limit, revision, serializable
        return self._done("page", about, lambda: self.store.page(first, end, limit))

    def revisions(self, first: bytes, end: bytes, limit: int) -> Future[list[tuple[bytes, int]]]:
        def listed() -> list[tuple[bytes, int]]:
            return [(key, self.store.keys[key]) for key in self.store.between(first, end)[:limit]]

        return self._done("revisions", first, listed)

    def update(self, key: bytes, modified: int, value: bytes | None) -> Future[Update]:
        do = lambda: self.store.update(key, modified, put=value is not None)  # noqa: E731
        return self._done("update", (key, modified, value), do)

    def delete(self, key: bytes) -> Future[int]:
        return self._done("delete", key, lambda: self.store.delete([key]))

    def clear(self, first: bytes, end: bytes) -> Future[None]:
        return self._done("clear", first, lambda: self.store.delete(self.store.between(first, end)) and None)

    def lease(self, seconds: int, pairs: Sequence[tuple[bytes, bytes]]) -> Future[int]:
        return self._done("lease", (seconds, pairs), lambda: self.store.put([key for key, _ in pairs]))

    def watch(
        self, number: int, prefix: bytes, start: int, watching: Watching, *, deletions: bool = False
    ) -> Future[None]:
        assert number not in self._watches, "two watches of one number"

        def begin() -> None:
            if start and start < self.compacted:
                raise OperationFailed("compacted")
            self._watches[number] = watch = _Watch(prefix, after(prefix), watching, deletions)
            watching.began(start or self.store.revision + 1)
            since = [each for each in self.store.changes if start and each.revision >= start]
            self._send(number, watch, since)

        return self._done("watch", (prefix, start), begin)

    def unwatch(self, number: int) -> None:
        self._watches.pop(number, None)

    def cut(self, compacted: int = 0) -> None:
        """End all watches, as a lost connection does."""
        self.compacted = compacted or self.compacted
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            watch.watching.ended("connection lost", compacted)

    @property
    def watching(self) -> int:
        """How many watches there are."""
        return len(self._watches)

    async def drop(self) -> None:
        self.asked.append(("drop", None))
        self._watches.clear()

    async def close(self) -> None:
        self.closed = True

    def _changed(self, changes: Sequence[Change]) -> None:
        for number, watch in list(self._watches.items()):
            self._send(number, watch, changes)

    def _send(self, number: int, watch: _Watch, changes: Sequence[Change]) -> None:
        wanted = [change for change in changes if watch.wants(change)]
        sent = list(self.deliver(number, wanted)) if wanted else []
        if sent:
            watch.watching.happened(sent)
