"""The contract between the store workload and a target that keeps keys."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tippingpoint.workloads.load import TargetFacts


class Read(NamedTuple):
    """An answer to a get, or to a transaction that read instead of writing."""

    revision: int
    """The store's revision when it was answered."""
    modified: int
    """The revision of the key's last change; 0 if the key does not exist."""


class Update(NamedTuple):
    """An answer to a transaction that compares the revision of a key before it writes."""

    revision: int
    """The store's revision when it was answered: that of the write, if it was made."""
    done: bool
    """Whether the key had the expected revision, so that the write was made."""
    modified: int
    """If not, the revision of the key's last change; 0 if the key does not exist."""


class Page(NamedTuple):
    """An answer to a range."""

    revision: int
    """The store's revision when it was answered."""
    more: bool
    """Whether further keys follow these."""
    last: bytes
    """The last key of the page; empty without one."""


class Change(NamedTuple):
    """An event of a watch."""

    revision: int
    key: bytes
    deleted: bool


class Watching(Protocol):
    """The receiver of a watch's events."""

    def began(self, start: int) -> None:
        """Learn that the watch exists, and will see all changes from this revision on."""
        ...

    def happened(self, changes: Sequence[Change]) -> None:
        """Receive events, in the order in which the target sent them."""
        ...

    def ended(self, reason: str, compacted: int) -> None:
        """Learn that the watch is over although we did not end it.

        `compacted` is the first revision that is still kept, if the target gave up older ones that were requested; 0
        otherwise.
        """
        ...


class StoreTarget(Protocol):
    """A store of keys with revisions. There is one instance per worker, used from one event loop.

    A call returns a future that ends when the target has answered, or with OperationFailed when the target or the
    connection failed. It never raises anything else, and never hangs after `close`. The workload handles timeouts by
    cancelling the future.
    """

    async def open(self) -> TargetFacts:
        """Connect; raises TargetError when no server can be reached or the target refuses us."""
        ...

    def put(self, key: bytes, value: bytes) -> Future[int]:
        """Put a key; the future ends with the revision of the write."""
        ...

    def put_all(self, pairs: Sequence[tuple[bytes, bytes]]) -> Future[list[int]]:
        """Put several keys, in one transaction where the target has such; the future ends with the revision of each."""
        ...

    def get(self, key: bytes, *, serializable: bool) -> Future[Read]:
        """Read a key. With `serializable`, the member that receives the request answers on its own, perhaps with an old
        value."""
        ...

    def page(
        self, first: bytes, end: bytes, limit: int, revision: int, *, serializable: bool
    ) -> Future[Page]:
        """Read keys from `first` up to, but not including, `end`: at most `limit` of them, or all for 0. They are read
        as of a revision, or as they are now for 0."""
        ...

    def update(self, key: bytes, modified: int, value: bytes | None) -> Future[Update]:
        """If the revision of the key's last change is this one (0: it does not exist), put it, or delete it for None;
        otherwise read it."""
        ...

    def delete(self, key: bytes) -> Future[int]:
        """Delete a key; the future ends with the revision of the deletion, or 0 if the key did not exist."""
        ...

    def revisions(self, first: bytes, end: bytes, limit: int) -> Future[list[tuple[bytes, int]]]:
        """List at most `limit` keys from `first` up to, but not including, `end`, with the revision of each key's last
        change."""
        ...

    def clear(self, first: bytes, end: bytes) -> Future[None]:
        """Delete all keys from `first` up to, but not including, `end`."""
        ...

    def lease(self, seconds: int, pairs: Sequence[tuple[bytes, bytes]]) -> Future[int]:
        """Grant a lease and put these keys with it; the future ends with the revision of the puts."""
        ...

    def watch(
        self, number: int, prefix: bytes, start: int, watching: Watching, *, deletions: bool = False
    ) -> Future[None]:
        """Watch the keys below a prefix from a revision on, or from now on for 0; with `deletions`, only deletions.

        The future ends when the watch has begun. No two watches have the same number at a time.
        """
        ...

    def unwatch(self, number: int) -> None:
        """End a watch; does nothing without one of that number. Nothing more is received from it."""
        ...

    async def drop(self) -> None:
        """Close every connection, and open new ones. Watches end without notice."""
        ...

    async def close(self) -> None:
        """Close every connection; calls in flight end with OperationFailed."""
        ...
