"""The store workload on a store in memory, which does what it is asked to, or misbehaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from tests.unit.workloads.memory_store import MemoryStore, Store, after
from tippingpoint.errors import OperationFailed
from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.read import validate_plan
from tippingpoint.plan.store import MIXED, StorePlan, StoreStage
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.rundir.tags import DELAYED, FREED
from tippingpoint.workloads.load import PrepareOrder, StageOrder, untold
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.store import history
from tippingpoint.workloads.store.target import Change, Read
from tippingpoint.workloads.store.workload import StoreLoad

OWN = b"/run/0/"
SOON = 600.0


class Rig:
    """A load on a store in memory, and what it recorded."""

    def __init__(self, mix: dict[str, float] | None = None, watchers: int = 0, **workload: Any) -> None:
        fields = {"kind": "store", "mix": mix or {"put": 1}, "prefixes": 2, **workload}
        stage = {"operations": 1, "keys": 10, "watchers": watchers}
        plan = validate_plan({"name": "x", "target": {"kind": "etcd"}, "workload": fields, "stages": [stage]})
        assert isinstance(plan, StorePlan)
        self.target = MemoryStore(Store())
        self.recorder = Recorder()
        self.schedule = Schedule(asyncio.get_running_loop())
        self.load = StoreLoad(plan, self.target, OWN, after, self.recorder, self.schedule)
        self._counted: dict[str, int] = {}

    async def begin(self, number: int = 1, kind: StageKind = "ramp", over: float = 0.0, **asked: Any) -> None:
        """Begin a stage, and wait until it is up."""
        stage = StoreStage.model_validate({"keys": 10, **asked})
        await self.load.begin_stage(
            StageOrder(
                number=number,
                size=1,
                kind=kind,
                spec=stage,
                over=over,
                share=(0, 1),
                listed=1,
            )
        )
        await until(lambda: self.load.gauge.up)

    def counts(self) -> dict[str, int]:
        """How often operations ended how, so far."""
        beside = (".service", DELAYED, FREED)
        for tag, found in self.recorder.drain().items():
            if not tag.startswith("generator.") and not tag.endswith(beside):
                self._counted[tag] = self._counted.get(tag, 0) + found.total
        return self._counted

    async def counted(self, tag: str, count: int) -> None:
        """Wait until something was counted so often."""
        await until(lambda: self.counts().get(tag, 0) >= count)

    def violations(self) -> list[dict[str, Any]]:
        return [fields for _, event, fields in self.load.events if event == "violation"]

    async def end(self) -> None:
        """End the load as a worker does."""
        self.load.stop()
        await self.load.drain(1.0)
        await self.load.give_back(SOON)
        await self.load.close()
        self.schedule.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - a timer of the load is waited for
            await asyncio.sleep(0.002)


async def test_keys_are_there_before_the_first_operation_and_none_of_them_is_timed() -> None:
    rig = Rig()
    await rig.begin(keys=300, operations=500)
    assert len(rig.target.store.keys) == 300
    assert {key[: len(OWN) + 5] for key in rig.target.store.keys} == {OWN + b"0000/", OWN + b"0001/"}
    await rig.counted("put.ok", 5)
    assert {name for name, _ in rig.target.asked} <= {"put-all", "put"}
    await rig.end()
    assert rig.violations() == []


async def test_a_stage_with_fewer_keys_removes_some() -> None:
    rig = Rig()
    await rig.begin(keys=50, operations=1)
    await rig.begin(2, keys=20, operations=1)
    assert len(rig.target.store.keys) == 20
    await rig.end()


async def test_operations_come_at_their_rate_however_late_the_target_answers() -> None:
    rig = Rig({"get": 1})
    await rig.begin(operations=1000)
    rig.target.silent = True
    sent = len(rig.target.asked)
    await until(lambda: len(rig.target.asked) > sent + 50)
    assert rig.load.gauge.in_flight >= 50
    rig.target.silent = False
    await rig.end()


async def test_every_operation_of_a_mix_is_sent_and_a_right_store_violates_nothing() -> None:
    rig = Rig(dict.fromkeys(MIXED, 1.0), watchers=6, serializable=0.5, limit=3, pages=2, hot_share=0.5)
    await rig.begin(operations=2000, watchers=6, keys=40)
    for operation in MIXED:
        await rig.counted(f"{operation}.ok", 5)
    await rig.counted("watch-event.ok", 20)
    assert rig.counts()["watch.ok"] == 6
    await rig.end()
    assert rig.violations() == []
    assert not [tag for tag in rig.counts() if tag.endswith((".error", ".timeout", ".lost"))]


async def test_shares_are_those_of_the_mix() -> None:
    rig = Rig({"get": 3, "put": 1})
    await rig.begin(operations=5000)
    await until(lambda: sum(rig.counts().values()) > 1000)
    counts = rig.counts()
    assert counts["get.ok"] / sum(counts.values()) == pytest.approx(0.75, abs=0.1)
    await rig.end()


async def test_a_transaction_whose_key_was_changed_meanwhile_is_denied_and_no_failure() -> None:
    # given a key that somebody else changed
    rig = Rig({"txn": 1})
    await rig.load.prepare(PrepareOrder(stages=[StoreStage(keys=1)], share=(0, 1), fresh=False), untold)
    (key,) = rig.target.store.keys
    rig.target.store.put([key])
    # when it is updated
    await rig.begin(operations=500, keys=1)
    # then the first update learns the revision, and later ones succeed
    await rig.counted("txn.ok", 3)
    assert rig.counts()["txn.denied"] >= 1
    await rig.end()
    assert rig.violations() == []


async def test_a_range_goes_on_at_the_revision_of_its_first_page() -> None:
    rig = Rig({"range": 1, "put": 1}, limit=2, pages=0, prefixes=1)
    await rig.begin(operations=500, keys=7)
    await rig.counted("range.ok", 8)
    pages = [about for name, about in rig.target.asked if name == "page"]
    firsts = [about for about in pages if about[0] == OWN + b"0000/"]
    assert {about[3] for about in firsts} == {0}
    others = [about for about in pages if about not in firsts]
    assert others
    assert all(revision > 0 for _, _, _, revision, _ in others)
    await rig.end()


async def test_values_have_the_sizes_of_their_distribution() -> None:
    rig = Rig(bytes=1000, bytes_p99=10_000)
    await rig.begin(operations=5000, keys=2000)
    await rig.counted("put.ok", 10)
    sizes = sorted(len(value) for name, pairs in rig.target.asked if name == "put-all" for _, value in pairs)
    assert sizes[len(sizes) // 2] == pytest.approx(1000, rel=0.2)
    assert sizes[len(sizes) * 99 // 100] == pytest.approx(10_000, rel=0.5)
    await rig.end()


async def test_hot_keys_get_their_share() -> None:
    rig = Rig({"get": 1}, hot_keys=0.1, hot_share=0.9)
    await rig.begin(operations=5000, keys=100)
    await rig.counted("get.ok", 1000)
    asked = [key for name, (key, *_) in rig.target.asked if name == "get"]
    hot = sorted(set(asked), key=asked.count, reverse=True)[:10]
    assert sum(key in hot for key in asked) / len(asked) == pytest.approx(0.91, abs=0.05)
    await rig.end()


async def test_a_lease_that_runs_out_is_counted_when_its_keys_are_gone() -> None:
    rig = Rig(lease_ttl=1.0, lease_keys=3)
    await rig.begin(expiring=100, operations=None, keys=0)
    await rig.counted("lease-grant.ok", 2)
    (_, pairs), *_ = [about for name, about in rig.target.asked if name == "lease"]
    keys = [key for key, _ in pairs]
    assert len(keys) == 3
    # when it is over
    await asyncio.sleep(1.1)
    rig.target.store.delete(keys)
    await rig.counted("expire.ok", 3)
    await rig.end()
    assert rig.violations() == []


async def test_a_key_that_is_gone_before_its_lease_is_over_is_a_violation() -> None:
    rig = Rig(lease_ttl=600.0)
    await rig.begin(expiring=100, operations=None, keys=0)
    await rig.counted("lease-grant.ok", 2)
    (_, pairs), *_ = [about for name, about in rig.target.asked if name == "lease"]
    rig.target.store.delete([key for key, _ in pairs])
    assert [found["kind"] for found in rig.violations()] == ["expired-early"]
    await rig.end()


async def test_watchers_that_lose_their_connection_go_on_where_they_were() -> None:
    rig = Rig(watchers=4)
    await rig.begin(operations=500, watchers=4)
    await rig.counted("watch-event.ok", 10)
    rig.target.cut()
    rig.target.store.put([OWN + b"0000/x"])  # while nobody watches
    await rig.counted("watch.ok", 8)
    await rig.counted("watch-event.ok", 30)
    await rig.end()
    assert rig.violations() == []


async def test_watchers_whose_revisions_were_given_up_begin_anew() -> None:
    rig = Rig(watchers=4)
    await rig.begin(operations=500, watchers=4)
    await rig.counted("watch-event.ok", 10)
    rig.target.cut(compacted=rig.target.store.revision + 100)
    await rig.counted("watch.ok", 8)
    await rig.end()
    assert rig.violations() == []


async def test_a_storm_drops_all_watchers_which_list_and_watch_again_at_once() -> None:
    rig = Rig(watchers=4, relist=True, limit=3)
    await rig.begin(operations=500, watchers=4)
    await rig.counted("watch.ok", 4)
    await rig.begin(2, kind="storm", operations=500, watchers=4)
    await rig.counted("watch.ok", 8)
    names = [name for name, _ in rig.target.asked]
    storm = names[names.index("drop") :]
    assert storm.count("watch") == 4
    assert storm.count("page") >= 8  # each prefix has five keys, in pages of three
    await rig.end()
    assert rig.violations() == []


async def test_a_failure_is_counted_and_the_load_goes_on() -> None:
    rig = Rig(dict.fromkeys(MIXED, 1.0), watchers=2)
    await rig.begin(operations=2000, watchers=2, keys=40)
    chance = random.Random(1)

    def sometimes(operation: str, answer: Any) -> Any:
        """Do what was asked, and say in half of all cases that it failed."""
        if chance.random() < 0.5 and operation not in ("watch", "revisions"):
            raise OperationFailed("etcdserver: request timed out")
        return answer

    rig.target.answer = sometimes
    for operation in ("put", "txn", "del", "get"):
        await rig.counted(f"{operation}.error", 10)
    rig.target.answer = lambda operation, answer: answer
    await rig.counted("get.ok", 100)
    await rig.end()
    # what was done although it was said to have failed is no violation
    assert rig.violations() == []


# -- a store that does what it must never do


def once(times: int) -> Callable[[int, list[Change]], Iterable[Change]]:
    """Send the first changes that any watcher gets so many times, and all others once."""
    spoiled: list[int] = []

    def deliver(number: int, changes: list[Change]) -> Iterable[Change]:
        if spoiled:
            return changes
        spoiled.append(number)
        return changes * times

    return deliver


@pytest.mark.parametrize(
    ("times", "kind"),
    [
        (0, "event-lost"),
        (2, "event-repeated"),
    ],
)
async def test_a_watcher_that_sees_something_wrong_is_named(
    times: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "GRACE", 0.0)
    rig = Rig(watchers=2)
    await rig.begin(operations=500, watchers=2)
    rig.target.deliver = once(times)
    await until(lambda: rig.load.expire_calls() or bool(rig.violations()))  # type: ignore[func-returns-value]
    await rig.end()
    (found,) = rig.violations()
    assert found["kind"] == kind
    assert found["key"].startswith(("0000/", "0001/"))
    assert found["watcher"] in (1, 2)
    assert rig.counts().get("watch-event.lost", 0) == (kind == "event-lost")


async def test_events_in_the_wrong_order_are_named() -> None:
    rig = Rig(watchers=1, prefixes=1)
    await rig.begin(operations=500, watchers=1)
    kept: list[Change] = []

    def swap(number: int, changes: list[Change]) -> list[Change]:
        if len(kept) == 0:
            kept.extend(changes)
            return []
        if len(kept) == 1:
            kept.append(kept[0])
            return [*changes, kept[0]]
        return changes

    rig.target.deliver = swap
    await until(lambda: rig.load.expire_calls() or bool(rig.violations()))  # type: ignore[func-returns-value]
    await rig.end()
    assert [found["kind"] for found in rig.violations()] == ["event-reordered"]


async def test_a_stale_read_is_named_with_its_key_and_revisions() -> None:
    rig = Rig({"get": 1})
    await rig.begin(operations=500, keys=1)
    (key,) = rig.target.store.keys
    right = rig.target.store.keys[key]
    rig.target.answer = lambda operation, answer: Read(right, right - 1) if operation == "get" else answer
    await until(lambda: bool(rig.violations()))
    rig.target.answer = lambda operation, answer: answer
    await rig.end()
    name = key.removeprefix(OWN).decode()
    assert rig.violations()[0] == {
        "kind": "stale-read", "count": 1, "key": name, "revision": right - 1, "expected": right
    }  # fmt: skip


async def test_an_old_value_of_a_serializable_read_is_no_violation() -> None:
    rig = Rig({"get": 1}, serializable=1.0)
    await rig.begin(operations=500, keys=1)
    rig.target.answer = lambda operation, answer: Read(1, 0) if operation == "get" else answer
    await rig.counted("get.ok", 10)
    await rig.end()
    assert rig.violations() == []


async def test_a_revision_that_goes_back_is_named() -> None:
    rig = Rig({"put": 1})
    await rig.begin(operations=500)
    rig.target.answer = lambda operation, answer: 1 if operation == "put" else answer
    await until(lambda: bool(rig.violations()))
    rig.target.answer = lambda operation, answer: answer
    await rig.end()
    assert {found["kind"] for found in rig.violations()} == {"revision-back"}


async def test_an_acknowledged_key_that_is_gone_in_the_end_is_named() -> None:
    rig = Rig({"put-new": 1})
    await rig.begin(operations=500, keys=5)
    rig.load.stop()
    key = next(iter(rig.target.store.keys))
    del rig.target.store.keys[key]
    await rig.end()
    (found,) = rig.violations()
    assert (found["kind"], found["key"]) == ("key-gone", key.removeprefix(OWN).decode())


async def test_a_fresh_load_begins_from_nothing() -> None:
    rig = Rig(watchers=2)
    await rig.begin(operations=100, watchers=2)
    rig.load.stop()
    await rig.load.drain(1.0)
    await rig.load.prepare(PrepareOrder(stages=[StoreStage(keys=3)], share=(0, 1), fresh=True), untold)
    assert len(rig.target.store.keys) == 3
    assert rig.target.watching == 0
    await rig.end()
    assert rig.violations() == []
