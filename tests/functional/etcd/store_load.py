"""A worker's share of a store load in this process, on a real etcd: what it finds wrong with that."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from tippingpoint.plan.store import StorePlan, StoreStage
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.etcd.access import Scope
from tippingpoint.targets.etcd.ledger import WORKER_LEASE_IDS
from tippingpoint.targets.etcd.messages import after_prefix
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.store import connect
from tippingpoint.workloads.load import StageOrder
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.store.workload import StoreLoad

SOON = 120.0
_TICK = 0.1


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(SOON):
        while not condition():  # noqa: ASYNC110 - a timer of the load is waited for
            await asyncio.sleep(0.02)


async def violations(
    endpoints: Sequence[str],
    workload: dict[str, Any],
    stage: StoreStage,
    meanwhile: Callable[[StoreLoad], Awaitable[None]],
    api: Literal["v3", "v2"] = "v3",
) -> list[dict[str, Any]]:
    """Return the violations that a load reports that is up while something happens, its final check included."""
    run = uuid.uuid4()
    scope = Scope(f"/tippingpoint/{run.hex}/", (run.int % (1 << 30)) * WORKER_LEASE_IDS)
    own = scope.prefix.encode()
    target = EtcdTarget(endpoints=list(endpoints), api=api)
    plan = StorePlan.model_validate(
        {"name": "checked", "target": target, "workload": {"kind": "store", **workload}, "stages": [stage]}
    )
    store, schedule = connect(target, scope), Schedule(asyncio.get_running_loop())
    load = StoreLoad(plan, store, own, after_prefix, Recorder(), schedule)
    await load.open()
    ticking = asyncio.create_task(_tick(load))
    try:
        order = StageOrder(number=1, size=1, kind="ramp", spec=stage, over=0.0, share=(0, 1), listed=1)
        await load.begin_stage(order)
        await until(lambda: load.gauge.up)
        await meanwhile(load)
        load.stop()
        await load.drain(SOON)
        await load.give_back(SOON)
        found = [fields for _, event, fields in load.events if event == "violation"]
        await store.clear(own, after_prefix(own))  # leased keys go early by that
    finally:
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
        await load.close()
        schedule.close()
    return found


async def _tick(load: StoreLoad) -> None:
    """Do what a worker does a few times a second."""
    while True:
        load.expire_calls()
        await asyncio.sleep(_TICK)
