"""The operations that workloads time, by what they are for."""

from __future__ import annotations

from tippingpoint.plan.plan import CLAIM_OPERATIONS, MODEL_OPERATIONS
from tippingpoint.plan.spawn import (
    LIFE,
    OBSERVATIONS,
    SERVER_LIFE,
    SERVER_OBSERVATIONS,
    SERVER_OPERATIONS,
    SPAWN_OPERATIONS,
)

OPERATIONS = tuple(
    dict.fromkeys(
        (
            *(*CLAIM_OPERATIONS, *MODEL_OPERATIONS, *LIFE[:-1], *SERVER_LIFE.values()),
            *(*SPAWN_OPERATIONS, *SERVER_OPERATIONS),
        )
    )
)
"""All that workloads time, in the order in which it is shown; a run has only some of it (`RunData.operations`)."""
CONNECT = "connect"
MAKING = (
    *("add-machine", "deploy", "add-unit", "relate"),
    *("create", "start", "reachable", "probe", "launch"),
    *(SERVER_LIFE[step] for step in ("create", "start", "launch")),
    "total",
)
REMOVING = (
    *("remove-relation", "remove-unit", "remove-application", "remove-machine"),
    *("delete", "evict", SERVER_LIFE["delete"]),
)
OBSERVING = ("status", "full-status", *OBSERVATIONS, *SERVER_OBSERVATIONS)
OWN_CALLS = ("poll",)
"""What a workload asks for its own sake: shown, and no load of its own."""
BRINGING_UP = (CONNECT, *MAKING, *REMOVING)
"""What is done while a stage is brought up, and only in stages that ask for it."""
OWN_LOAD: dict[str, tuple[str, ...]] = {"claim": ("claim", "extend"), "spawn": MAKING}
"""By workload, the operations that are its load; the others prepare, observe or undo it."""
