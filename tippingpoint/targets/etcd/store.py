"""The etcd target of the store workload: keys on a real cluster, by either of its APIs."""

from __future__ import annotations

from tippingpoint.targets.etcd.access import Scope
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.workloads.store.target import StoreTarget


def connect(target: EtcdTarget, scope: Scope) -> StoreTarget:
    """Return the plan's cluster for one worker, not yet opened. UserError when a file it names is unusable."""
    if target.api == "v2":
        from tippingpoint.targets.etcd.v2_store import V2Store  # it imports aiohttp, which v3 does not need

        return V2Store(target, scope)
    from tippingpoint.targets.etcd.v3_store import V3Store

    return V3Store(target, scope)
