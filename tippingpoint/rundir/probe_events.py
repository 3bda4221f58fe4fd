"""The event `probe` of a run: one load that its search tried, as the runner wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import exp, log
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.util.numbers import show_number, show_rounded

EVENT = "probe"
FOUND = "found"
"""The event at the end of a search."""
_NO_EVENT = round(log(2), 4)
"""The standard error of the margin of a share for which no event was counted (stage_margins)."""
_MOST_TIMES, _LEAST_TIMES = 1000.0, 0.001
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class ProbeEvent(BaseModel):
    """One load that a search tried."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    stage: Annotated[int, Field(ge=1)] | None = None
    """The number of its stage in this run's journals; None if it was tried by the run that this one resumes."""
    size: Annotated[_Finite, Field(gt=0)]
    """The load."""
    held: bool | None = None
    """Whether it held; None if it says nothing."""
    fresh: bool
    """Whether it began from nothing."""
    margins: list[tuple[str, _Finite, float | None]]
    """Name, value and standard error of each margin; an error that is unknown is null."""
    binds: str = ""
    """The largest margin of the plan's thresholds, by its name; empty without any."""
    broken: list[str]
    """What broke, or, where `held` is null, why it says nothing."""
    began: Annotated[_Finite, Field(ge=0)]
    """Seconds since the search began."""
    seconds: Annotated[_Finite, Field(ge=0)]
    """How long it lasted, ramp and hold."""
    aborted: bool = False
    """Whether a threshold with `abort` ended it, and the load was removed at once."""
    strained: str = ""
    """Why the generator was the bottleneck; empty if it was not."""
    unmeasured: str = ""
    """Which figure of Prometheus was not measured, and why, if `held` is null because of that."""
    foreign: str = ""
    """What other programs used of the target's processors, if `held` is null because of that."""
    cut: bool = False
    """Whether it says nothing because it was cut short, or because nothing was measured: the generator was not the
    limit."""


def probe_events(events: Iterable[Mapping[str, Any]]) -> list[ProbeEvent]:
    """Return the probes of a run in the order in which they were made; damaged ones are left out.

    A run that resumes another one repeats its probes. Where both are in the same run, each counts once.
    """
    found: dict[tuple[float, float], ProbeEvent] = {}
    for event in events:
        if event.get("event") != EVENT:
            continue
        try:
            probe = ProbeEvent.model_validate(event)
        except ValidationError:
            continue
        found.setdefault((probe.began, probe.size), probe)
    return list(found.values())


def probe_words(probe: ProbeEvent) -> str:
    """Describe in one line what a probe showed: probe of 3,200 passed: extend p99 at 0.37 times its threshold."""
    verdict = {True: "passed", False: "failed", None: "was inconclusive"}[probe.held]
    of = f"probe of {show_number(probe.size)} {verdict}"
    values = {name: (value, error) for name, value, error in probe.margins}
    found, name = values.get(probe.binds), probe.binds
    if probe.held is None or found is None:
        return ": ".join((of, "; ".join(probe.broken))) if probe.broken else of
    worst = f"{name.replace('_', ' ')} {_against_threshold(name, *found)}"
    others = [why for why in probe.broken if why not in values]
    return f"{of}: {'; '.join((worst, *others))}"


def _against_threshold(name: str, margin: float, error: float | None) -> str:
    """Describe how near a value is to its threshold: at 0.37 times its threshold; a share without events is 0 %."""
    if name.rpartition(" ")[2] in ("error_rate", "lost_rate") and error == _NO_EVENT:
        return "0 %"
    if margin > log(_MOST_TIMES):
        return f"at over {show_number(_MOST_TIMES)} times its threshold"
    times = exp(margin)
    near = show_rounded(times, 2) if times >= _LEAST_TIMES else f"less than {show_number(_LEAST_TIMES)}"
    return f"at {near} times its threshold"
