"""The operations that workloads time, by what they are for."""

from __future__ import annotations

from tippingpoint.plan.claim import CLAIM_OPERATIONS
from tippingpoint.plan.grow import GROW_OPERATIONS
from tippingpoint.plan.kinds import facts_of, kinds
from tippingpoint.plan.spawn import LIFE, SpawnPlan, spawn_operations

_TARGETS = [target for target in map(facts_of, kinds()) if SpawnPlan in target.plans.values()]
_UNTIL_IT_IS_THERE = ("create", "start", "reachable", "probe", "launch")


def _called(*steps: str) -> tuple[str, ...]:
    """What these steps of a thing's life are called where targets call them otherwise."""
    return tuple(target.called[step] for target in _TARGETS for step in steps if step in target.called)


OPERATIONS = tuple(
    dict.fromkeys(
        (
            *(*CLAIM_OPERATIONS, *GROW_OPERATIONS, *LIFE[:-1], *_called(*LIFE)),
            *(operation for target in _TARGETS for operation in spawn_operations(target)),
        )
    )
)
"""All that workloads time, in the order in which it is shown; a run has only some of it (`RunData.operations`)."""
CONNECT = "connect"
MAKING = (
    *("add-machine", "deploy", "add-unit", "relate"),
    *(*_UNTIL_IT_IS_THERE, *_called(*_UNTIL_IT_IS_THERE)),
    "total",
)
LAUNCHES = ("launch", *_called("launch"))
"""What stands for all of a thing's life, with what was tried again."""
REMOVING = (
    *("remove-relation", "remove-unit", "remove-application", "remove-machine"),
    *("delete", "evict", *_called("delete")),
)
OBSERVING = ("status", "full-status", *(asked for target in _TARGETS for asked in target.observations))
OWN_CALLS = ("poll",)
"""What a workload asks for its own sake: shown, and no load of its own."""
BRINGING_UP = (CONNECT, *MAKING, *REMOVING)
"""What is done while a stage is brought up, and only in stages that ask for it."""
OWN_LOAD: dict[str, tuple[str, ...]] = {"claim": ("claim", "extend"), "spawn": MAKING, "grow": MAKING}
"""By workload, the operations that are its load; the others prepare, observe or undo it."""
