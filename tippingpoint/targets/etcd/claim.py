"""The etcd target of the claim workload: leases on a real cluster, by either of its APIs."""

from __future__ import annotations

from tippingpoint.plan.claim import ClaimWorkload
from tippingpoint.targets.etcd.access import Scope
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.v3 import V3Target
from tippingpoint.targets.etcd.v3_clean import clean_v3
from tippingpoint.workloads.claim.target import ClaimTarget


def connect(target: EtcdTarget, workload: ClaimWorkload, scope: Scope) -> ClaimTarget:
    """Return the plan's cluster for one worker, not yet opened. UserError when a file it names is unusable.

    The lease with number N is the key `prefix + N` with the value "N/holder". It lives for the workload's claim
    time, in whole seconds. (etcd's own minimum is one and a half times its election timeout.)
    """
    if target.api == "v2":
        from tippingpoint.targets.etcd.v2 import V2Target  # it imports aiohttp, which v3 does not need

        return V2Target(target, workload, scope)
    return V3Target(target, workload, scope)


async def clean(target: EtcdTarget, prefix: str, lease_ids: range) -> int:
    """Remove what a run left behind: the keys below its prefix, and its v3 leases. Nothing else is touched.

    A lease belongs to the run if its id is in `lease_ids` and no key outside the prefix is attached to it.
    Returns the number of revoked leases plus the number of keys that were then left to delete. TargetError when
    no server can be reached or the target refuses the user.
    """
    if target.api == "v2":
        from tippingpoint.targets.etcd.v2 import clean_v2

        return await clean_v2(target, prefix)
    return await clean_v3(target, prefix, lease_ids)
