"""The store workload: operations on keys at a rate, watchers that follow the keys, and leases that run out.

The load is an open loop: an operation is sent when it is due, however late the target answers. Each worker has prefixes
of its own, which no other worker writes, lists or watches. So it knows what each read and each watcher has to see, and
checks that: a violation is an event of the run, with the key and the revisions that show it. This module knows no
target.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from asyncio import Future
from bisect import bisect
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.base import share_of
from tippingpoint.plan.read import AnyStage, Plan
from tippingpoint.plan.store import STORE_OPERATIONS, StorePlan, StoreStage
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.calls import Call, Calls
from tippingpoint.workloads.failures import failure
from tippingpoint.workloads.load import Event, Gauge, OnProgress, PrepareOrder, StageOrder, TargetFacts
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.store.history import Violation, ViolationKind
from tippingpoint.workloads.store.keys import Key, Keys, Values
from tippingpoint.workloads.store.target import Page, Read, StoreTarget, Update
from tippingpoint.workloads.store.watchers import LeaseWatch, Watchers

T = TypeVar("T")

_AT_ONCE = 16
"""Transactions under way at once that put keys before a stage, or deletions."""
_BATCH = 64
"""The most keys of such a transaction; etcd takes 128 by default (--max-txn-ops)."""
_BATCH_BYTES = 500_000
"""The most bytes of its values; etcd takes requests of 1.5 MiB by default."""
_LOOK = 1.0
"""Seconds between two checks for events and deletions that did not arrive."""
_TOLD_SINGLY = 100
"""The most violations that are reported one by one between two ticks."""
_AUDITED = 1000
"""Keys per page of the final check of what exists."""


class _Asked:
    """The subject of an operation, and what the operation must not contradict."""

    __slots__ = ("expected", "floor", "key", "pages", "prefix", "revision", "sent")

    def __init__(self, key: Key | None, floor: int) -> None:
        self.key = key
        self.expected = key.revision if key is not None else 0
        """The revision of the key that had been acknowledged before the operation was sent."""
        self.floor = floor
        """The revision of the store that had been acknowledged before that; -1 where an old answer is allowed."""
        self.prefix = 0
        self.pages = 1
        self.revision = 0
        """The revision of the first page of a range."""
        self.sent = 0.0


_Call = Call[Any]


class StoreLoad:
    """One worker's share of the operations, watchers, keys and leases."""

    def __init__(
        self,
        plan: StorePlan,
        target: StoreTarget,
        prefix: bytes,
        after: Callable[[bytes], bytes],
        recorder: Recorder,
        schedule: Schedule,
    ) -> None:
        """All keys of this worker begin with `prefix`, and `after` returns the first key after a prefix."""
        self._plan = plan
        self._workload = workload = plan.workload
        self._target = target
        self._own = prefix
        self._after = after
        self._schedule = schedule
        self._loop = asyncio.get_running_loop()
        self._chance = random.Random(random.getrandbits(64))
        self._calls: Calls[Any] = Calls(STORE_OPERATIONS, recorder, workload.timeout)
        shares = workload.shares()
        send: dict[str, Callable[[float], None]] = {
            "put-new": self._put_new,
            "put": self._put,
            "get": self._get,
            "range": self._range,
            "txn-new": self._txn_new,
            "txn": self._txn,
            "txn-del": self._txn_del,
            "del": self._del,
            "lease-grant": self._lease,
        }
        self._send = [send[name] for name in shares]
        self._until = list(accumulate(shares.values()))[:-1]
        self._keys = Keys([], workload.hot_keys, workload.hot_share, self._chance)
        self._values = Values(workload.bytes, workload.bytes_p99, self._chance)
        self._bytes = workload.bytes
        self._ranges: list[tuple[bytes, bytes]] = []
        """Each prefix, and the first key after it."""
        self._watchers = Watchers(workload, target, schedule, self._calls, lambda: self._revision)
        self._revision = 0
        """The latest acknowledged revision of the store."""
        self._round = 0
        self._stopped = True
        self._coming: asyncio.Task[None] | None = None
        self._wanted = 0
        """How many watchers the stage has."""
        self._looked = 0.0
        self._lease_watch: LeaseWatch | None = None
        self._lease_numbers = itertools.count()
        self._leased: dict[bytes, tuple[float, float]] = {}
        """By leased key: when it should be gone, and the moment before which it must not be."""
        self._due: deque[tuple[float, bytes]] = deque()
        """When leased keys should be gone, in order."""
        self.errors = self._calls.errors
        """Failures by (operation, outcome, message) since the worker last took them."""
        self.lost: list[tuple[float, int, int, float]] = []
        """Always empty: nothing is held that could be lost."""
        self.events: list[Event] = []
        """Violations since the worker last took them."""

    @property
    def gauge(self) -> Gauge:
        """Watchers that are watching, or existing keys, and operations in flight."""
        watching = self._plan.counted == "watchers"
        up = self._coming is None and self._watchers.up >= self._wanted
        held = self._watchers.up if watching else len(self._keys)
        return Gauge(held, 0, self._calls.under_way, up, self._calls.oldest)

    async def open(self) -> TargetFacts:
        """Connect; raises TargetError when no server can be reached or the target refuses us."""
        return await self._target.open()

    def revise(self, plan: Plan) -> None:
        """Do nothing: each stage states how much load it has."""

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Put the keys that all of these stages have; raises OperationFailed when that fails."""
        self._follow(order.share)
        if order.fresh:
            await self._clear()
        keys = [share_of(_spec_of(stage).keys, *order.share) for stage in order.stages]
        self._size(_spec_of(order.stages[0]))
        if keys and min(keys) > len(self._keys):
            await self._fill(min(keys), progress)

    async def begin_stage(self, stage: StageOrder) -> None:
        """Bring up the stage's keys and watchers, and send its operations from then on."""
        spec = _spec_of(stage.spec)
        self._follow(stage.share)
        self._stopped = False
        self._round += 1
        await self._end_coming()
        if stage.kind == "storm":
            self._calls.abandon()
            await self._target.drop()
            if self._lease_watch is not None:
                self._lease_watch.open()
        self._size(spec)
        if self._lease_watch is None and (spec.expiring or self._workload.mix.get("lease-grant")):
            self._lease_watch = LeaseWatch(self._target, self._own + b"leased/", self._leased_key_gone)
            self._lease_watch.open()
        self._wanted = share_of(spec.watchers, *stage.share)
        self._coming = self._loop.create_task(self._bring_up(spec, stage))

    def expire_calls(self) -> None:
        """Cancel operations older than the workload's timeout, and check for events and deletions that did not
        arrive."""
        self._calls.expire()
        now = timing.monotonic()
        if now - self._looked >= _LOOK:
            self._look(now)

    def stop(self) -> None:
        """Send nothing more; watchers continue."""
        self._stopped = True
        self._round += 1

    async def drain(self, within: float) -> None:
        """Wait for operations in flight; those without an answer after `within` seconds count as timed out."""
        await self._calls.drain(within)
        self._look(timing.monotonic())

    def cut(self) -> None:
        """Wait for nothing; see Load."""
        self._calls.cut()

    async def settle(self, within: float, *, count: bool = False) -> dict[str, list[float]]:
        """Wait for the operations that are in flight now, while the load goes on; see Settling."""
        return await self._calls.settle(within, count=count)

    async def give_back(self, within: float) -> int:
        """End the watchers, and check that every acknowledged key exists. The run's end removes the keys."""
        self.stop()
        await self._end_coming()
        self._watchers.set(0, 0.0)
        self._calls.abandon()
        self._schedule.clear()
        if within:
            try:
                async with asyncio.timeout(within):
                    await self._audit()
            except (TimeoutError, OperationFailed) as problem:
                self.errors.note(
                    "get", "error", f"keys were not looked at in the end: {problem or 'no answer'}"
                )
        return 0

    async def close(self) -> None:
        """Close every connection."""
        await self._end_coming()
        if self._lease_watch is not None:
            self._lease_watch.close()
        await self._target.close()

    # -- what is there before the operations ------------------------------------------------------

    def _follow(self, share: tuple[int, int]) -> None:
        """Choose the worker's prefixes, once: later changes of its share change how much is below them."""
        if self._ranges:
            return
        count = max(1, share_of(self._workload.prefixes, *share))
        prefixes = [self._own + b"%04d/" % number for number in range(count)]
        self._ranges = [(prefix, self._after(prefix)) for prefix in prefixes]
        self._keys.prefixes = prefixes
        self._watchers.follow(self._ranges)

    def _size(self, spec: StoreStage) -> None:
        median, workload = spec.bytes or self._workload.bytes, self._workload
        if median == self._bytes:
            return
        self._bytes = median
        p99 = workload.bytes_p99
        scaled = round(p99 * median / workload.bytes) if p99 is not None else None
        self._values = Values(median, scaled, self._chance)

    async def _bring_up(self, spec: StoreStage, stage: StageOrder) -> None:
        index, workers = stage.share
        failures = 0
        while len(self._keys) != (wanted := share_of(spec.keys, index, workers)):
            try:
                await self._fill(wanted)
            except OperationFailed as problem:
                self.errors.note("put-new", "error", f"keys before the stage: {problem}")
                failures += 1
                await asyncio.sleep(backoff(failures))
        # They live as long as the stage: freeze them, so that garbage collection never stops the loop.
        gc.collect()
        gc.freeze()
        now = timing.monotonic()
        if stage.kind == "storm":
            self._watchers.all_anew()
        self._watchers.set(self._wanted, stage.over)
        for rate, send in ((spec.operations, self._any), (spec.expiring, self._lease)):
            if rate:
                self._schedule.at(now + index / rate, partial(self._next, self._round, workers / rate, send))
        self._coming = None

    async def _end_coming(self) -> None:
        coming, self._coming = self._coming, None
        if coming is not None:
            coming.cancel()
            await asyncio.wait([coming])

    async def _fill(self, wanted: int, progress: OnProgress | None = None) -> None:
        """Have this many keys; raises OperationFailed when that fails."""
        few = asyncio.Semaphore(_AT_ONCE)

        async def put(batch: Sequence[tuple[Key, bytes]]) -> None:
            try:
                revisions = await self._in_time(
                    self._target.put_all([(key.name, value) for key, value in batch])
                )
            finally:
                few.release()
            now = timing.monotonic()
            for (key, _), revision in zip(batch, revisions, strict=True):
                self._acknowledged(key, revision, now)
                self._keys.add(key, revision)
            if progress is not None:
                progress("keys", len(self._keys), wanted)

        async def remove(key: Key) -> None:
            try:
                self._deleted(key, await self._in_time(self._target.delete(key.name)))
            finally:
                few.release()

        async with _Tasks() as tasks:
            batches: list[list[tuple[Key, bytes]]] = [[] for _ in self._ranges]
            sizes = [0 for _ in self._ranges]
            for place in range(wanted - len(self._keys)):
                key, value = self._keys.fresh(), self._values.any()
                batch = batches[key.prefix]
                if len(batch) >= _BATCH or sizes[key.prefix] + len(value) > _BATCH_BYTES:
                    await few.acquire()
                    tasks.begin(put(batch))
                    batch = batches[key.prefix] = []
                    sizes[key.prefix] = 0
                batch.append((key, value))
                sizes[key.prefix] += len(value)
                if not place % 1000:
                    await asyncio.sleep(0)
            for batch in filter(None, batches):
                await few.acquire()
                tasks.begin(put(batch))
            for _ in range(len(self._keys) - wanted):
                key = self._keys.last()
                if key is None:
                    break
                self._keys.remove(key)
                await few.acquire()
                tasks.begin(remove(key))

    async def _in_time(self, future: Future[T]) -> T:
        try:
            async with asyncio.timeout(self._workload.timeout):
                return await future
        except TimeoutError:
            raise OperationFailed(f"no answer within {self._workload.timeout:g} s") from None

    async def _clear(self) -> None:
        """Begin from nothing: without watchers and keys."""
        self.stop()
        await self._end_coming()
        self._watchers.set(0, 0.0)
        self._calls.abandon()
        self._schedule.clear()
        self._keys.forget()
        self._leased.clear()
        self._due.clear()
        await self._target.clear(self._own, self._after(self._own))

    # -- operations --------------------------------------------------------------------------------

    def _next(self, its_round: int, gap: float, send: Callable[[float], None], due: float) -> None:
        if its_round != self._round:
            return
        self._schedule.at(due + gap, partial(self._next, its_round, gap, send))
        send(due)

    def _any(self, due: float) -> None:
        self._send[bisect(self._until, self._chance.random())](due)

    def _begin(
        self,
        operation: str,
        due: float,
        key: Key | None,
        future: Future[Any],
        ended: Callable[[_Call, float], None],
        *,
        floor: int | None = None,
    ) -> _Asked:
        asked = _Asked(key, self._revision if floor is None else floor)
        self._calls.add(asked, operation, future, due, due, ended)
        return asked

    def _failed(self, call: _Call, now: float) -> bool:
        """Count an operation that failed; returns whether it did."""
        failed = failure(call.future, self._workload.timeout)
        if failed is None:
            return False
        self._calls.end(call, failed[0], now, failed[1])
        return True

    def _acknowledged(self, key: Key, revision: int, now: float, floor: int = 0) -> None:
        """Note that a key was changed at a revision, which is newer than any that was acknowledged before the change
        was sent."""
        if revision <= floor:
            self._violated("revision-back", key.name, revision, floor)
        if revision > self._revision:
            self._revision = revision
        if revision > key.revision:
            key.revision = revision
        self._watchers.written(key.prefix, revision, key.name, now)

    def _put_new(self, due: float) -> None:
        key = self._keys.fresh()
        self._begin("put-new", due, key, self._target.put(key.name, self._values.any()), self._put_ended)

    def _put(self, due: float) -> None:
        key = self._keys.any()
        if key is None:
            self._put_new(due)
            return
        self._begin("put", due, key, self._target.put(key.name, self._values.any()), self._put_ended)

    def _put_ended(self, call: _Call, now: float) -> None:
        if self._failed(call, now):
            return
        self._calls.end(call, "ok", now)
        key: Key = call.subject.key
        self._acknowledged(key, call.future.result(), now, call.subject.floor)
        if call.operation == "put-new":
            self._keys.add(key, key.revision)

    def _get(self, due: float) -> None:
        key = self._keys.any()
        if key is None:
            self._put_new(due)
            return
        old = self._may_be_old()
        future = self._target.get(key.name, serializable=old)
        self._begin("get", due, key, future, self._get_ended, floor=-1 if old else None)

    def _get_ended(self, call: _Call, now: float) -> None:
        if self._failed(call, now):
            return
        self._calls.end(call, "ok", now)
        read: Read = call.future.result()
        self._check_read(call.subject, read.revision, read.modified)

    def _check_read(self, asked: _Asked, revision: int, modified: int) -> None:
        """Check what was read of a key, unless the answer may be old."""
        key = asked.key
        if asked.floor < 0 or key is None:
            return
        if revision < asked.floor:
            self._violated("revision-back", key.name, revision, asked.floor)
        if modified < asked.expected and not key.gone:
            self._violated("stale-read" if modified else "key-gone", key.name, modified, asked.expected)
        if modified > key.revision:
            key.revision = modified

    def _may_be_old(self) -> bool:
        share = self._workload.serializable
        return bool(share) and self._chance.random() < share

    def _range(self, due: float) -> None:
        prefix = int(self._chance.random() * len(self._ranges))
        first, end = self._ranges[prefix]
        old = self._may_be_old()
        future = self._target.page(first, end, self._workload.limit, 0, serializable=old)
        asked = self._begin("range", due, None, future, self._range_ended, floor=-1 if old else None)
        asked.prefix = prefix

    def _range_ended(self, call: _Call, now: float) -> None:
        if self._failed(call, now):
            return
        self._calls.end(call, "ok", now)
        page: Page = call.future.result()
        asked: _Asked = call.subject
        if page.revision < asked.floor:
            self._violated("revision-back", self._ranges[asked.prefix][0], page.revision, asked.floor)
        most = self._workload.pages
        if page.more and page.last and not self._stopped and (not most or asked.pages < most):
            revision, end = asked.revision or page.revision, self._ranges[asked.prefix][1]
            # Another member, if it answers on its own, may not have that revision yet.
            future = self._target.page(
                page.last + b"\0", end, self._workload.limit, revision, serializable=False
            )
            further = self._begin("range", now, None, future, self._range_ended)
            further.prefix, further.revision, further.pages = asked.prefix, revision, asked.pages + 1

    def _txn_new(self, due: float) -> None:
        key = self._keys.fresh()
        future = self._target.update(key.name, 0, self._values.any())
        self._begin("txn-new", due, key, future, self._txn_ended)

    def _txn(self, due: float) -> None:
        key = self._keys.any()
        if key is None:
            self._txn_new(due)
            return
        future = self._target.update(key.name, key.revision, self._values.any())
        self._begin("txn", due, key, future, self._txn_ended)

    def _txn_ended(self, call: _Call, now: float) -> None:
        if self._failed(call, now):
            return
        update: Update = call.future.result()
        asked: _Asked = call.subject
        key = asked.key
        assert key is not None
        if update.done:
            self._calls.end(call, "ok", now)
            self._acknowledged(key, update.revision, now, asked.floor)
        else:
            self._calls.end(call, "denied", now)
            self._check_read(asked, update.revision, update.modified)
        if call.operation == "txn-new" and (update.done or update.modified):
            self._keys.add(key, max(key.revision, update.modified))

    def _txn_del(self, due: float) -> None:
        key = self._taken()
        if key is None:
            self._txn_new(due)
            return
        future = self._target.update(key.name, key.revision, None)
        self._begin("txn-del", due, key, future, self._txn_del_ended)

    def _txn_del_ended(self, call: _Call, now: float) -> None:
        if self._failed(call, now):
            return
        update: Update = call.future.result()
        asked: _Asked = call.subject
        key = asked.key
        assert key is not None
        if update.done:
            self._calls.end(call, "ok", now)
            self._acknowledged(key, update.revision, now, asked.floor)
            return
        self._calls.end(call, "denied", now)
        # It was changed meanwhile, and still exists: nothing else deletes it.
        self._keys.add(key, key.revision)
        self._check_read(asked, update.revision, update.modified)
        if not update.modified:
            self._keys.remove(key)

    def _del(self, due: float) -> None:
        key = self._taken()
        if key is None:
            self._put_new(due)
            return
        self._begin("del", due, key, self._target.delete(key.name), self._del_ended)

    def _del_ended(self, call: _Call, now: float) -> None:
        if self._failed(call, now):
            return
        self._calls.end(call, "ok", now)
        self._deleted(call.subject.key, call.future.result(), call.subject.floor)

    def _taken(self) -> Key | None:
        """Take a key out of the existing ones, because it is about to be deleted."""
        key = self._keys.any()
        if key is not None:
            self._keys.remove(key)
        return key

    def _deleted(self, key: Key, revision: int, floor: int = 0) -> None:
        if revision:
            self._acknowledged(key, revision, timing.monotonic(), floor)
        else:
            self._violated("key-gone", key.name, 0, key.revision)

    # -- leases ------------------------------------------------------------------------------------

    def _lease(self, due: float) -> None:
        pairs = [
            (self._own + b"leased/%010d" % next(self._lease_numbers), self._values.any())
            for _ in range(self._workload.lease_keys)
        ]
        future = self._target.lease(round(self._workload.lease_ttl), pairs)
        asked = self._begin("lease-grant", due, None, future, partial(self._leased_now, pairs))
        asked.sent = timing.monotonic()

    def _leased_now(self, pairs: Sequence[tuple[bytes, bytes]], call: _Call, now: float) -> None:
        if self._failed(call, now):
            return
        self._calls.end(call, "ok", now)
        self._revision = max(self._revision, call.future.result())
        ttl = round(self._workload.lease_ttl)
        for key, _ in pairs:
            self._leased[key] = now + ttl, call.subject.sent + ttl
            self._due.append((now + ttl, key))

    def _leased_key_gone(self, key: bytes, now: float) -> None:
        found = self._leased.pop(key, None)
        if found is None:
            return
        due, earliest = found
        if now < earliest:
            self._violated("expired-early", key, 0, 0)
        self._calls.count("expire", "ok", due, due, max(now, due))

    def _look(self, now: float) -> None:
        """Count what did not arrive, and report what must not happen."""
        self._looked = now
        for violation in self._watchers.look(now):
            self._note(violation)
        timeout = self._workload.timeout
        while self._due and self._due[0][0] < now - timeout:
            due, key = self._due.popleft()
            if self._leased.pop(key, None) is not None:
                said = f"its keys still existed {timeout:g} s after the end of their lease"
                self._calls.count("expire", "timeout", due, due, now, said)

    # -- violations --------------------------------------------------------------------------------

    def _violated(self, kind: ViolationKind, key: bytes, revision: int, expected: int) -> None:
        self._note(Violation(kind, key, revision, expected))

    def _note(self, violation: Violation) -> None:
        fields: dict[str, Any] = {"kind": violation.kind, "count": 1}
        if len(self.events) < _TOLD_SINGLY:
            name = violation.key.removeprefix(self._own).decode("utf-8", "replace")
            fields |= {"key": name, "revision": violation.revision, "expected": violation.expected}
            if violation.watcher:
                fields["watcher"] = violation.watcher
        elif "key" not in (last := self.events[-1][2]) and last["kind"] == violation.kind:
            last["count"] += 1
            return
        self.events.append((timing.monotonic(), "violation", fields))

    async def _audit(self) -> None:
        """Check that every acknowledged key exists, as it was written or newer."""
        there: dict[bytes, int] = {}
        for first, end in self._ranges:
            while page := await self._target.revisions(first, end, _AUDITED):
                there.update(page)
                if len(page) < _AUDITED:
                    break
                first = page[-1][0] + b"\0"
        for key in self._keys.all():
            found = there.get(key.name, 0)
            if found < key.revision:
                self._violated("stale-read" if found else "key-gone", key.name, found, key.revision)


class _Tasks:
    """Tasks that are awaited together: the first failure is raised when all others have ended."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> _Tasks:
        return self

    def begin(self, what: Any) -> None:
        self._tasks.append(asyncio.ensure_future(what))

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            for task in self._tasks:
                task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        problem = next((each for each in ended if isinstance(each, Exception)), None)
        if problem is not None and kind is None:
            raise problem


def _spec_of(stage: AnyStage) -> StoreStage:
    assert isinstance(stage, StoreStage)
    return stage
