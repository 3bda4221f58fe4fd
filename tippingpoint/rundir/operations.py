"""The operations that workloads time, by purpose."""

from __future__ import annotations

from tippingpoint.plan.claim import CLAIM_OPERATIONS
from tippingpoint.plan.cts import CTS_OPERATIONS
from tippingpoint.plan.grow import GROW_OPERATIONS
from tippingpoint.plan.kinds import facts_of
from tippingpoint.plan.operate import OPERATE_OPERATIONS
from tippingpoint.plan.packages import kinds
from tippingpoint.plan.spawn import LIFE, SpawnPlan, spawn_operations
from tippingpoint.plan.store import MIXED, STORE_OPERATIONS

_TARGETS = [target for target in map(facts_of, kinds()) if SpawnPlan in target.plans.values()]
_UNTIL_IT_IS_THERE = ("create", "start", "reachable", "probe", "launch")


def _called(*steps: str) -> tuple[str, ...]:
    """Return the targets' own names for these steps of a thing's life, where they have some."""
    names = (target.called[step] for target in _TARGETS for step in steps if step in target.called)
    return tuple(dict.fromkeys(name for name in names if name not in LIFE))


OPERATIONS = tuple(
    dict.fromkeys(
        (
            *(*CLAIM_OPERATIONS, *GROW_OPERATIONS, *LIFE[:-1], *_called(*LIFE)),
            *(operation for target in _TARGETS for operation in spawn_operations(target)),
            *CTS_OPERATIONS,
            *STORE_OPERATIONS,
            *OPERATE_OPERATIONS,
        )
    )
)
"""All operations that workloads time, in display order; a run has only some of them (`RunData.operations`)."""
CONNECT = "connect"
MAKING = (
    *("add-machine", "deploy", "add-unit", "relate"),
    *(*_UNTIL_IT_IS_THERE, *_called(*_UNTIL_IT_IS_THERE, "off", "on")),
    "total",
)
LAUNCHES = ("launch", *_called("launch"))
"""The operations that represent the whole life of a thing, retries included."""
REMOVING = (
    *("remove-relation", "remove-unit", "remove-application", "remove-machine"),
    *("delete", "evict", *_called("release", "delete")),
)
OBSERVING = ("status", "full-status", *(asked for target in _TARGETS for asked in target.observations))
OWN_CALLS = ("poll",)
"""Calls that a workload makes for itself: they are shown, but are not part of its load."""
BRINGING_UP = (CONNECT, *MAKING, *REMOVING)
"""Operations that only happen while a stage is brought up, and only in stages that ask for them."""
OWN_LOAD: dict[str, tuple[str, ...]] = {
    "claim": ("claim", "extend"),
    "spawn": MAKING,
    "grow": MAKING,
    "cts": ("test",),
    "store": MIXED,
    "operate": tuple(name for name in OPERATE_OPERATIONS if name != CONNECT),
}
"""By workload, the operations that are its load; all others prepare, observe or undo it."""
