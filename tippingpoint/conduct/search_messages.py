"""Messages between units and their leader about a turn that the leader judges: the measurements, and what is next."""

from __future__ import annotations

from math import isfinite
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from tippingpoint.conduct.recovery_messages import Recovery
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.probe_events import ProbeEvent

DIGEST = 12_000
"""Characters of the digest of one probe: with a unit's word and its result it fits into a databag of 64 KiB."""
MOST_PROBES = 60
"""No search has more probes (analysis/search/searcher.py)."""
_PER_PROBE, _PER_MARGIN = 570, 55
"""The most characters of a probe in the leader's databag without its margins, and of one margin."""
_REASONS, _REASON = 2, 100
"""How many reasons of a probe are kept there, and how long they may be."""

_Line = Annotated[str, Field(max_length=1000)]
_Finite = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]


class ProbeReport(BaseModel):
    """What one unit measured in a turn: everything that is needed to judge the load of all units."""

    run: Annotated[str, Field(max_length=130)] = ""
    turn: Annotated[int, Field(ge=1, le=10**6)]
    digest: Annotated[str, Field(max_length=4 * DIGEST)]
    """The digest of the turn's stage alone; after the last listed stage, of all stages. Empty if there was no load."""
    unanswered: dict[Annotated[str, Field(max_length=60)], Annotated[str, Field(max_length=20_000)]] = {}
    """By operation, a histogram of the ages of calls that had no answer long after the hold."""
    gone: _Line = ""
    """Why the target no longer accepts a login from this unit; empty if it does, or if some of the load succeeded."""
    missing: _Line = ""
    """Why this unit's share of a lower load was never applied; empty if it was."""


HOLDS = "held"
"""What a unit reports about a hold whose every threshold is clearly met, as far as its share shows."""


class ClearHold(BaseModel, frozen=True):
    """What a unit's share of a load shows before the hold is over."""

    turn: Annotated[int, Field(ge=1, le=10**6)]
    shows: Annotated[str, Field(max_length=100)] = ""
    """HOLDS, or the threshold that is clearly missed (`extend p99`); empty if that is no longer clear."""


class SearchEnd(BaseModel):
    """The answer of a search, as in its event `found`."""

    ended: Annotated[str, Field(max_length=100)]
    limit: _Finite | None = None
    low: _Finite
    high: _Finite | None = None


class NextLoad(BaseModel):
    """What follows a turn that was judged: another load, the end of the search or of the recovery, or of the run."""

    after: Annotated[int, Field(ge=0, le=10**6)]
    """The number of the turn that was judged; 0 before the first."""
    probe: ProbeEvent | None = None
    """What the turn of a search showed; None if nothing, because a unit was lost in it."""
    load: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """The load to try next; None at the end. It may be 0 in a recovery."""
    fresh: bool = False
    """Whether the next load begins from nothing."""
    hold: _Finite = 0.0
    """The seconds of its hold."""
    end: SearchEnd | None = None
    recovery: Recovery | None = None
    """After the last load, what is known about whether the target recovers."""
    stop: _Line = ""
    """Why the run should end without an answer; empty if it goes on, or has one."""

    def shortened(self) -> NextLoad:
        """Return this with as much of its reasons as fits into the leader's databag."""
        probe, recovery = self.probe, self.recovery
        if probe is not None:
            broken = [why[:_REASON] for why in probe.broken[:_REASONS]]
            strained, unmeasured = probe.strained[:_REASON], probe.unmeasured[:_REASON]
            shorter = {"broken": broken, "strained": strained, "unmeasured": unmeasured}
            probe = probe.model_copy(update={**shorter, "foreign": probe.foreign[:_REASON]})
        return self.model_copy(
            update={"probe": probe, "recovery": None if recovery is None else recovery.shortened()}
        )


def read_report(text: str | None) -> ProbeReport | None:
    """Return the report in a unit's databag; None without one, or if this version does not understand it."""
    try:
        return ProbeReport.model_validate_json(text) if text else None
    except (ValidationError, RecursionError):
        return None


def room_for_probes(plan: Plan) -> int:
    """Return the most characters that the probes of a plan's search take; 0 for a plan that lists its stages."""
    if plan.find is None:
        return 0
    limits = sum(map(_limits, (*plan.thresholds, *plan.find.also)))
    return MOST_PROBES * (_PER_PROBE + _PER_MARGIN * limits)


def _limits(threshold: Threshold) -> int:
    fields: dict[str, object] = threshold.model_dump(exclude_none=True)
    return len(fields.keys() - {"operation", "figure", "role", "host", "part", "abort"})


def finite(load: float) -> float | None:
    """Return a bound of an interval, or None for one that is open."""
    return load if isfinite(load) else None
