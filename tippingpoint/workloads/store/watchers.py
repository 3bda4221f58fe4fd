"""The watchers of one worker: how many there are, on which prefixes, and what each gets to see.

A watcher comes up, sees all changes below its prefix in order, and comes up again from its next revision when its watch
ends. If the target gave up revisions that it needs, it begins anew, because it has to list what it missed.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.store import StoreWorkload
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.calls import Call, Calls
from tippingpoint.workloads.failures import failure
from tippingpoint.workloads.schedule import Schedule, spread
from tippingpoint.workloads.store.history import History, Reader, Violation
from tippingpoint.workloads.store.target import Change, StoreTarget

_OF_LEASES = 1 << 40
"""The first number of the watches of leased keys: larger than those of watchers."""


class Watcher:
    """One watcher of one prefix; see Watching."""

    __slots__ = ("attempt", "failures", "joined", "prefix", "reader", "up", "wanted", "watchers")

    def __init__(self, watchers: Watchers, number: int, prefix: int) -> None:
        self.watchers = watchers
        self.reader = Reader(number)
        self.prefix = prefix
        self.attempt = 0
        """The number of its watch at the target; a new one each time that it comes up."""
        self.failures = 0
        self.joined = False
        """Whether it has seen a part of its prefix's history, and continues where it was."""
        self.up = False
        self.wanted = True

    def began(self, start: int) -> None:
        """See Watching."""
        self.up = True
        self.failures = 0
        self.watchers.up += 1
        if not self.joined:
            self.joined = True
            self.watchers.histories[self.prefix].join(self.reader, start)

    def happened(self, changes: Sequence[Change]) -> None:
        """See Watching."""
        watchers = self.watchers
        now = timing.monotonic()
        seen = watchers.histories[self.prefix].seen
        for revision, key, _ in changes:
            moment = seen(self.reader, revision, key, now)
            if moment is not None:
                watchers.event(moment, now)

    def ended(self, reason: str, compacted: int) -> None:
        """See Watching."""
        self._down()
        if compacted:
            self.forget()
        self.watchers.calls.errors.note("watch", "lost", reason)
        if self.wanted:
            self.watchers.come_up(self, timing.monotonic())

    def forget(self) -> None:
        """Begin anew when it comes up again."""
        if self.joined:
            self.joined = False
            self.watchers.histories[self.prefix].leave(self.reader)

    def leave(self) -> None:
        """End it for good."""
        self.wanted = False
        self._down()
        self.forget()

    def _down(self) -> None:
        self.watchers.up -= self.up
        self.up = False


class Watchers:
    """Brings watchers up, and keeps them up. `revision` returns the store's latest revision that we know."""

    def __init__(
        self,
        workload: StoreWorkload,
        target: StoreTarget,
        schedule: Schedule,
        calls: Calls[Watcher],
        revision: Callable[[], int],
    ) -> None:
        self.histories: list[History] = []
        """What happened below each prefix."""
        self.up = 0
        """How many are watching now."""
        self.calls = calls
        self._workload = workload
        self._target = target
        self._schedule = schedule
        self._revision = revision
        self._loop = asyncio.get_running_loop()
        self._prefixes: Sequence[tuple[bytes, bytes]] = ()
        self._all: list[Watcher] = []
        self._numbers = itertools.count(1)
        self._attempts = itertools.count(1)

    def __len__(self) -> int:
        return len(self._all)

    def follow(self, prefixes: Sequence[tuple[bytes, bytes]]) -> None:
        """Set the prefixes, each with the first key after it. Must be called once."""
        self._prefixes = prefixes
        self.histories = [History() for _ in prefixes]

    def set(self, count: int, over: float) -> None:
        """Have this many watchers; new ones come up over some seconds."""
        while len(self._all) > count:
            watcher = self._all.pop()
            watcher.leave()
            self._target.unwatch(watcher.attempt)
        fresh = [
            Watcher(self, next(self._numbers), (len(self._all) + place) % len(self._prefixes))
            for place in range(count - len(self._all))
        ]
        self._all += fresh
        for watcher, moment in zip(fresh, spread(len(fresh), timing.monotonic(), over), strict=True):
            self.come_up(watcher, moment)

    def all_anew(self) -> None:
        """Have all of them come up at once, like those of a restarted client; their watches are gone already."""
        now = timing.monotonic()
        for place, watcher in enumerate(self._all):
            watcher.leave()
            self._all[place] = fresh = Watcher(self, watcher.reader.number, watcher.prefix)
            self.come_up(fresh, now)

    def come_up(self, watcher: Watcher, moment: float) -> None:
        """Have a watcher come up at a moment."""
        self._schedule.at(moment, partial(self._come_up, watcher))

    def event(self, moment: float, now: float) -> None:
        """Count an event whose write was acknowledged at a moment; the event may have arrived before that."""
        self.calls.count("watch-event", "ok", moment, moment, max(now, moment))

    def written(self, prefix: int, revision: int, key: bytes, now: float) -> None:
        """Note a write that was acknowledged now."""
        for _ in range(self.histories[prefix].written(revision, key, now)):
            self.event(now, now)

    def look(self, now: float) -> Iterator[Violation]:
        """Count events that did not arrive, and return what no watcher may see; must be called about once a second."""
        for history in self.histories:
            for moment in history.lost(now):
                self.calls.count("watch-event", "lost", moment, moment, now, "a later event came without it")
            if history.violations:
                found, history.violations = history.violations, []
                yield from found
        timeout = self._workload.timeout
        for watcher in self._all:
            if watcher.up:
                for moment in self.histories[watcher.prefix].overdue(watcher.reader, now - timeout):
                    said = f"no event within {timeout:g} s"
                    self.calls.count("watch-event", "timeout", moment, moment, now, said)

    def _come_up(self, watcher: Watcher, due: float) -> None:
        if not watcher.wanted:
            return
        watcher.attempt = next(self._attempts)
        task = self._loop.create_task(self._begin(watcher, watcher.attempt))
        self.calls.add(watcher, "watch", task, due, due, self._came_up)

    async def _begin(self, watcher: Watcher, attempt: int) -> None:
        first, end = self._prefixes[watcher.prefix]
        start = watcher.reader.next_revision if watcher.joined else 0
        if not start and self._workload.relist:
            start = await self._list(first, end) + 1
        elif not start and self._workload.since:
            start = max(1, self._revision() - self._workload.since)
        await self._target.watch(attempt, first, start, watcher)

    async def _list(self, first: bytes, end: bytes) -> int:
        """List a prefix in pages, all as of one revision; returns it."""
        revision = 0
        while True:
            page = await self._target.page(first, end, self._workload.limit, revision, serializable=False)
            revision = revision or page.revision
            if not page.more or not page.last:
                return revision
            first = page.last + b"\0"

    def _came_up(self, call: Call[Watcher], now: float) -> None:
        watcher = call.subject
        failed = failure(call.future, self._workload.timeout)
        if not watcher.wanted:
            self._target.unwatch(watcher.attempt)
            return
        if failed is None:
            self.calls.end(call, "ok", now)
            return
        self.calls.end(call, failed[0], now, failed[1])
        self._target.unwatch(watcher.attempt)
        if watcher.up:
            watcher.leave()
            watcher.wanted = True
        watcher.failures += 1
        self.come_up(watcher, now + backoff(watcher.failures))


class LeaseWatch:
    """Watches leased keys, so that their end is seen, and comes up again when its watch ends; see Watching."""

    def __init__(self, target: StoreTarget, prefix: bytes, gone: Callable[[bytes, float], None]) -> None:
        """`gone` is called with each deleted key, and the moment."""
        self._target = target
        self._prefix = prefix
        self._gone = gone
        self._next = 0
        self._loop = asyncio.get_running_loop()
        self._failures = 0
        self._number = _OF_LEASES
        self._closed = False

    def open(self) -> None:
        """Begin to watch."""
        self._number += 1
        future = self._target.watch(self._number, self._prefix, self._next, self, deletions=True)
        future.add_done_callback(self._opened)

    def began(self, start: int) -> None:
        """See Watching."""
        self._failures = 0
        self._next = max(self._next, start)

    def happened(self, changes: Sequence[Change]) -> None:
        """See Watching."""
        now = timing.monotonic()
        for revision, key, _ in changes:
            self._next = max(self._next, revision + 1)
            self._gone(key, now)

    def ended(self, reason: str, compacted: int) -> None:
        """See Watching."""
        self._next = max(self._next, compacted)
        self._again()

    def close(self) -> None:
        """Stop watching."""
        self._closed = True
        self._target.unwatch(self._number)

    def _opened(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled() and isinstance(future.exception(), OperationFailed):
            self._again()

    def _again(self) -> None:
        if not self._closed:
            self._failures += 1
            self._loop.call_later(backoff(self._failures), self._reopen)

    def _reopen(self) -> None:
        if not self._closed:
            self.open()
