"""A real etcd behind a proxy that lies once: the store workload names what it saw."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.etcd.lying_proxy import Lie, LyingProxy
from tippingpoint.plan.store import StorePlan, StoreStage
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.etcd.access import Scope
from tippingpoint.targets.etcd.ledger import WORKER_LEASE_IDS
from tippingpoint.targets.etcd.messages import after_prefix
from tippingpoint.targets.etcd.v3_store import V3Store
from tippingpoint.workloads.load import StageOrder
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.store.workload import StoreLoad

SOON = 120.0
_TIMES = 5


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - a timer of the load is waited for
            await asyncio.sleep(0.02)


async def _violations(endpoint: str, lie: Lie | None) -> list[dict[str, Any]]:
    """What a load that puts, gets and watches says of a member behind a proxy that lies."""
    run = uuid.uuid4()
    scope = Scope(f"/tippingpoint/{run.hex}/", (run.int % (1 << 30)) * WORKER_LEASE_IDS)
    proxy = LyingProxy(endpoint)
    async with proxy as address:
        stage = StoreStage(operations=200, watchers=2, keys=20, over=0.0)
        fields = {"kind": "store", "mix": {"put": 1, "get": 1}, "prefixes": 1, "bytes": 20}
        plan = StorePlan.model_validate(
            {
                "name": "lies",
                "target": {"kind": "etcd", "endpoints": [address]},
                "workload": fields,
                "stages": [stage],
            }
        )
        store, schedule = V3Store(plan.target, scope), Schedule(asyncio.get_running_loop())  # type: ignore[arg-type]
        load = StoreLoad(plan, store, scope.prefix.encode(), after_prefix, Recorder(), schedule)
        await load.open()
        await load.begin_stage(
            StageOrder(number=1, size=1, kind="ramp", spec=stage, over=0.0, share=(0, 1), listed=1)
        )
        await _until(lambda: load.gauge.up)

        def named() -> bool:
            load.expire_calls()
            return bool(load.events)

        proxy.lie = lie
        if lie is not None:
            await _until(lambda: proxy.told)
            await _until(named)
        else:
            await asyncio.sleep(3.0)
        load.stop()
        await load.drain(SOON)
        await load.give_back(SOON)
        await store.clear(scope.prefix.encode(), after_prefix(scope.prefix.encode()))
        await load.close()
        schedule.close()
        return [found for _, event, found in load.events if event == "violation"]


@pytest.mark.parametrize(
    ("lie", "kind"),
    [
        ("drop", "event-lost"),
        ("repeat", "event-repeated"),
        ("swap", "event-reordered"),
        ("stale", "stale-read"),
    ],
)
@pytest.mark.parametrize("time", range(_TIMES))
async def test_a_lie_is_named_with_its_key_and_revision(
    etcd: EtcdLab, lie: Lie, kind: str, time: int
) -> None:
    found = await _violations(etcd.endpoints[time % 3], lie)
    assert [each["kind"] for each in found] == [kind]
    assert found[0]["key"].startswith("0000/")
    assert found[0]["revision"] > 0


async def test_a_proxy_that_does_not_lie_is_not_said_to(etcd: EtcdLab) -> None:
    assert await _violations(etcd.endpoints[0], None) == []
