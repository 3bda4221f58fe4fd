"""What is known of the lower loads (`after: recover`) in a run by many units, to its leader and to every later
leader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, Field

from tippingpoint.plan.base import MAX_STAGES
from tippingpoint.plan.fields import as_amount
from tippingpoint.plan.read import Plan

RECOVERING = "recovering"
"""The event of a lower load."""
REASON = 100
"""The most characters of a reason in the leader's databag."""
_MOST_LOADS = 30
"""The most loads after the last one: nine that are meant to break the target again, and seven steps of three tries
each."""
_PER_LOAD, _PER_STAGE = 250, 25
"""The most characters of a load, and of a listed one, in the leader's databag."""

_Load = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Reason = Annotated[str, Field(max_length=2000)]


class LoadShown(BaseModel, frozen=True):
    """One load that followed the last one."""

    stage: Annotated[int, Field(ge=1, le=10**6)] | None = None
    """The number of its stage, which is its turn's; None if it has none because there was no load."""
    load: _Load
    lowers: bool
    """Whether it is a lower load; otherwise it was meant to break the target once more."""
    held: bool | None = None
    """Whether it held, or for a lower load, whether thresholds were met again; None if it says nothing, or was no
    load."""
    after: _Seconds | None = None
    """Seconds from when the load was first lowered until thresholds held; None if they did not."""
    seconds: _Seconds
    """How long it lasted, from the beginning of its turn."""
    nothing: _Reason = ""
    """Why it says nothing about the target; empty if it does."""
    missing: _Reason = ""
    """Why it was never applied; empty if it was."""


class Recovery(BaseModel, frozen=True):
    """What is known about whether the target recovers."""

    stages: Annotated[list[tuple[_Load, bool | None]], Field(max_length=MAX_STAGES)] = []
    """The listed loads, and whether they held; empty in a search, whose probes are known."""
    loads: Annotated[list[LoadShown], Field(max_length=2 * _MOST_LOADS)] = []
    """The loads that followed, in order."""
    lowered: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)] | None = None
    """When the load was first lowered, on the reference's clock; None before that."""
    broken: _Load | None = None
    """The load that broke the target."""
    before: _Load | None = None
    """The largest load that held before; None if none did."""
    skipped: _Reason = ""
    """Why no lower loads were tried; empty if they were, or if that is not known yet."""
    over: bool = False
    """Whether no load follows."""

    def shortened(self) -> Recovery:
        """Return this with as much of its reasons as fits into the leader's databag."""
        loads = [
            shown.model_copy(update={"nothing": shown.nothing[:REASON], "missing": shown.missing[:REASON]})
            for shown in self.loads
        ]
        return self.model_copy(update={"loads": loads, "skipped": self.skipped[:REASON]})

    def events(self) -> Iterable[dict[str, Any]]:
        """Return the fields of the events `recovering` of a run."""
        for shown in self.loads:
            if shown.lowers:
                told = shown.model_dump(include={"stage", "held", "after", "seconds"})
                why = {"why": shown.missing} if shown.missing else {}
                of = {
                    "size": as_amount(shown.load),
                    "broken": _amount(self.broken),
                    "before": _amount(self.before),
                }
                yield {**told, **of, **why}
        if self.skipped:
            yield {"skipped": self.skipped}


def _amount(load: float | None) -> float | None:
    return None if load is None else as_amount(load)


def room_for_recovery(plan: Plan) -> int:
    """Return the most characters that the lower loads of a run take; 0 for a plan without any."""
    if plan.after is None:
        return 0
    return _MOST_LOADS * _PER_LOAD + _PER_STAGE * len(plan.stages)
