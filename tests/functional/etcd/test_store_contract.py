"""The etcd target on a real cluster: what the store workload is promised, by both APIs."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.etcd.store_load import until, violations
from tippingpoint.errors import OperationFailed
from tippingpoint.plan.store import MIXED, StoreStage
from tippingpoint.targets.etcd.access import Scope
from tippingpoint.targets.etcd.ledger import WORKER_LEASE_IDS
from tippingpoint.targets.etcd.messages import after_prefix
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.store import connect
from tippingpoint.workloads.store.target import Change, StoreTarget
from tippingpoint.workloads.store.workload import StoreLoad

Api = Literal["v3", "v2"]


@pytest.fixture(params=["v3", "v2"])
def api(request: pytest.FixtureRequest, etcd: EtcdLab) -> Api:
    if request.param not in etcd.apis:
        pytest.skip(f"this etcd has no {request.param}")
    return request.param


class Seen:
    """A watch that writes down what it is told."""

    def __init__(self) -> None:
        self.start = 0
        self.changes: list[Change] = []
        self.ends: list[tuple[str, int]] = []

    def began(self, start: int) -> None:
        self.start = start

    def happened(self, changes: Sequence[Change]) -> None:
        self.changes += changes

    def ended(self, reason: str, compacted: int) -> None:
        self.ends.append((reason, compacted))


@asynccontextmanager
async def opened(endpoints: Sequence[str], api: Api) -> AsyncIterator[tuple[StoreTarget, bytes]]:
    """A store, and a prefix of which nothing is left afterwards."""
    run = uuid.uuid4()
    scope = Scope(f"/tippingpoint/{run.hex}/", (run.int % (1 << 30)) * WORKER_LEASE_IDS)
    store = connect(EtcdTarget(endpoints=list(endpoints), api=api), scope)
    await store.open()
    own = scope.prefix.encode()
    try:
        yield store, own + b"0000/"
        await store.clear(own, after_prefix(own))
    finally:
        await store.close()


async def test_a_key_is_put_read_changed_and_deleted_at_revisions_that_grow(etcd: EtcdLab, api: Api) -> None:
    async with opened(etcd.endpoints, api) as (store, prefix):
        key, end = prefix + b"key", after_prefix(prefix)
        first = await store.put(key, bytes(range(256)))
        assert (await store.get(key, serializable=False)).modified == first
        # when it is changed where its revision is the expected one, and where it is not
        done = await store.update(key, first, b"x")
        assert done.done
        assert done.revision > first
        assert await store.update(key, first, b"y") == (done.revision, False, done.revision)
        assert await store.update(key, 0, b"y") == (done.revision, False, done.revision)
        assert (await store.update(prefix + b"new", 0, b"z")).done
        # then it is listed as it is, and gone once it is deleted
        others = await store.put_all([(prefix + b"%d" % number, b"v") for number in range(5)])
        listed = await store.revisions(prefix, end, 3)
        assert listed == [(prefix + b"%d" % number, others[number]) for number in range(3)]
        page = await store.page(prefix, end, 0, 0, serializable=True)
        assert not page.more
        gone = await store.delete(key)
        assert gone > max(others)
        assert await store.delete(key) == 0
        assert (await store.get(key, serializable=False)).modified == 0
        assert await store.update(key, gone, b"x") == (gone, False, 0)
        assert (await store.update(prefix + b"0", others[0], None)).done
        assert (await store.get(prefix + b"0", serializable=False)).modified == 0


async def test_a_watch_has_every_change_once_in_order_from_a_revision_on(etcd: EtcdLab, api: Api) -> None:
    async with opened(etcd.endpoints, api) as (store, prefix):
        # given a watch from now on, one of deletions only, and one from a revision in the past
        now, deletions, past = Seen(), Seen(), Seen()
        await store.watch(1, prefix, 0, now)
        await store.watch(2, prefix, 0, deletions, deletions=True)
        revisions = [await store.put(prefix + b"%d" % number, b"v") for number in range(4)]
        assert now.start <= revisions[0]
        await store.watch(3, prefix, revisions[1], past)
        # when more happens
        revisions += [await store.put(prefix + b"0", b"v"), await store.delete(prefix + b"1")]
        await until(lambda: bool(deletions.changes) and len(past.changes) >= 5 and len(now.changes) >= 6)
        # then each has all of it
        assert [change.revision for change in now.changes] == revisions
        assert [change.revision for change in past.changes] == revisions[1:]
        assert deletions.changes == [Change(revisions[-1], prefix + b"1", True)]
        # and nothing after it is ended
        store.unwatch(1)
        await store.put(prefix + b"2", b"v")
        await until(lambda: len(past.changes) >= 6)
        assert len(now.changes) == 6
        assert not past.ends


async def test_leased_keys_go_by_themselves(etcd: EtcdLab, api: Api) -> None:
    async with opened(etcd.endpoints, api) as (store, prefix):
        seen = Seen()
        await store.watch(1, prefix, 0, seen, deletions=True)
        await store.lease(2, [(prefix + b"a", b"v"), (prefix + b"b", b"v")])
        assert (await store.get(prefix + b"a", serializable=False)).modified
        await until(lambda: len(seen.changes) == 2)
        assert sorted(change.key for change in seen.changes) == [prefix + b"a", prefix + b"b"]
        assert all(change.deleted for change in seen.changes)


async def test_a_member_that_dies_ends_its_watches_and_others_serve(etcd_private: EtcdLab, api: Api) -> None:
    async with opened(etcd_private.endpoints, api) as (store, prefix):
        watches = [Seen() for _ in etcd_private.names]
        for number, each in enumerate(watches):
            await store.watch(number, prefix, 0, each)
        etcd_private.kill("m2")
        await until(lambda: sum(len(each.ends) for each in watches) == 1)

        async def put() -> bool:
            try:
                await store.put(prefix + b"key", b"v")
            except OperationFailed:
                return False
            return True

        # those that were sent to it while nobody knew fail
        async with asyncio.timeout(120.0):
            while not all([await put() for _ in range(6)]):  # noqa: ASYNC110 - connections come back by a timer
                await asyncio.sleep(0.1)
        etcd_private.start("m2")


async def test_a_whole_load_violates_nothing(etcd: EtcdLab, api: Api) -> None:
    async def hold(load: StoreLoad) -> None:
        await asyncio.sleep(4.0)
        assert load.gauge.up

    mix = {"mix": dict.fromkeys(MIXED, 1), "serializable": 0.3, "prefixes": 3, "bytes": 50, "timeout": "60s"}
    stage = StoreStage(operations=30, watchers=6, keys=30, expiring=2, over=0.0)
    assert await violations(etcd.endpoints, {**mix, "lease_ttl": "2s"}, stage, hold, api=api) == []
