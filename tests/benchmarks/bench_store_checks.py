"""How often the store workload names what a store must never show, and how often it names that of a healthy one.

    .venv/bin/python tests/benchmarks/bench_store_checks.py [--lies 20] [--healthy 50]

One private etcd of three members serves all runs, one after the other. A run is a worker's whole load.

- lies: a proxy before a member lies once in each run: it drops, repeats or swaps an event of a watch, or answers a read
  with the revision of the key's creation
- healthy: the whole mix with watchers and leases that run out, through all members; the leader moves, then a member is
  killed, in every second run the leader, and comes back a second later
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from typing import Any, get_args

import uvloop

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.etcd.cluster import EtcdLab  # noqa: E402
from tests.functional.etcd.lying_proxy import NAMED, Lie, violations_behind  # noqa: E402
from tests.functional.etcd.store_load import violations  # noqa: E402
from tippingpoint.plan.store import MIXED, StoreStage  # noqa: E402
from tippingpoint.workloads.store.workload import StoreLoad  # noqa: E402

_MIX: dict[str, Any] = {
    "mix": dict.fromkeys(MIXED, 1),
    "serializable": 0.3,
    "limit": 20,
    "pages": 2,
    "prefixes": 4,
    "bytes": 100,
    "lease_ttl": "2s",
    "lease_keys": 2,
    "timeout": "60s",
}


async def of_healthy(lab: EtcdLab, number: int) -> list[dict[str, Any]]:
    """The violations of a run in which the leader moves, and a member is killed and comes back."""

    async def disturb(_: StoreLoad) -> None:
        await asyncio.sleep(1.0)
        leader = await asyncio.to_thread(lab.leader)
        others = [name for name in lab.names if name != leader]
        await asyncio.to_thread(lab.verbs()["move-leader"], {"member": others[number % 2]})
        await asyncio.sleep(1.0)
        leader = await asyncio.to_thread(lab.leader)
        others = [name for name in lab.names if name != leader]
        killed = leader if number % 2 else others[number // 2 % 2]
        await asyncio.to_thread(lab.kill, killed)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(lab.start, killed)
        await asyncio.sleep(2.0)

    stage = StoreStage(operations=200, watchers=8, keys=100, expiring=5, over=0.0)
    return await violations(lab.endpoints, _MIX, stage, disturb)


async def measure(lies: int, healthy: int) -> None:
    with EtcdLab(members=3) as lab:
        for lie in get_args(Lie):
            told = [await violations_behind(lab.endpoints[each % 3], lie) for each in range(lies)]
            named = sum([each["kind"] for each in found] == [NAMED[lie]] for found in told)
            print(f"{lie:7} named {NAMED[lie]}, and nothing else, in {named} of {lies} runs", flush=True)
            for found in told:
                if [each["kind"] for each in found] != [NAMED[lie]]:
                    print(f"        {found}")
        wrong = 0
        for number in range(healthy):
            found = await of_healthy(lab, number)
            wrong += bool(found)
            if found:
                print(f"healthy run {number}: {found}", flush=True)
        print(f"healthy: a violation in {wrong} of {healthy} runs")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lies", type=int, default=20, help="runs of each lie")
    parser.add_argument("--healthy", type=int, default=50)
    options = parser.parse_args()
    uvloop.run(measure(options.lies, options.healthy))


if __name__ == "__main__":
    main()
