"""What a plan may ask for after its last load: lower loads, until the target meets its thresholds again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from tippingpoint.plan.base import Threshold
from tippingpoint.plan.fields import StageKind

After = Annotated[
    Literal["recover"] | None,
    Field(
        description="`recover`: if the last load misses a threshold, the load goes down in steps until all thresholds "
        "hold again. Each step lasts as long as the last hold at most. The verdict does not count these steps."
    ),
]


def check_last(kind: StageKind, hold: float | None) -> None:
    """Check that the load can go down after the last one; ValueError otherwise.

    `kind` is the kind of the last stage, and `hold` its seconds, if lower loads need any.
    """
    if kind == "destroy":
        raise ValueError(
            "after: recover: expected a last stage that removes nothing, as the load goes down after it"
        )
    if hold == 0:
        raise ValueError(
            "after: recover: expected a last hold above 0s, as each lower load lasts as long at most"
        )


def check_after(
    after: Literal["recover"] | None, thresholds: Sequence[Threshold], measured: Sequence[str], why: str
) -> None:
    """Check that lower loads can show whether thresholds hold; ValueError otherwise.

    `measured` are the operations that happen at a lower load, and `why` says why others do not.
    """
    if after is None:
        return
    if not thresholds:
        raise ValueError("after: recover: expected thresholds, as it waits until they hold again")
    if any(threshold.figure for threshold in thresholds):
        raise ValueError("after: recover: expected thresholds on operations only, as it waits for these")
    if any(threshold.cpu is not None for threshold in thresholds):
        raise ValueError("after: recover: expected no limit of cpu, as that is known after the run")
    if not any(threshold.operation in measured for threshold in thresholds):
        raise ValueError(
            f"after: recover: expected a threshold on one of {', '.join(measured)}, as {why}"
            if measured
            else "after: recover: expected workload.observe_every above 0s, as nothing else is measured while the load "
            "goes down"
        )
