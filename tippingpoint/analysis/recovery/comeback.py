"""Finds whether a target recovers once the load that was too much for it is gone (`after: recover`).

A target that stays broken at a load that it held before has a metastable failure: the trigger is gone, but the failure
remains (N. Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from tippingpoint.analysis.findings import Findings, StageFindings
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.spawn import PACES, SpawnPlan
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.durations import format_duration, show_span
from tippingpoint.util.text import show_amount, show_size

CATCHING_UP = 0.9
"""A target that serves this share of what falls due at a load is catching up with a backlog, not broken."""


@dataclass(frozen=True)
class Step:
    """One lower load."""

    stage: int | None
    """The stage's number; None if no load is paced, or if the load was never present."""
    size: float
    held: bool | None
    """Whether thresholds were met again; None for no load at all, or if the step is inconclusive about the target."""
    after: float | None
    """Seconds from when the load was first lowered until thresholds held; None if they did not."""
    seconds: float
    """How long the step lasted."""
    served: float | None
    """Successes per second of the load's own operations; None if unknown."""
    catching_up: bool
    """Whether it served nearly everything that fell due, so that a backlog shrank."""
    why: str
    """Why the step is inconclusive about the target; empty if it is not."""
    repeated: bool
    """Whether the same load was tried again immediately because the step was inconclusive."""


@dataclass(frozen=True)
class Comeback:
    """Whether the target recovered, and at which load."""

    broken: float | None
    """The load that broke it; None if the steps were left out."""
    before: float | None
    """The largest load that it held before; None if it held none."""
    steps: list[Step]
    back_at: float | None
    """The load at which thresholds were met again; None if they were met at none."""
    back_after: float | None
    """Seconds from when the load was first lowered until then."""
    stays_broken_at: float | None
    """The largest load that it held before but at which it stayed broken for the whole step; None without one."""
    sentence: str

    @property
    def metastable(self) -> bool:
        """Whether the failure remained although its trigger was gone."""
        return self.stays_broken_at is not None

    @property
    def doubt(self) -> str:
        """Why it is unknown whether the failure remained; empty if it is known."""
        if self.metastable:
            return ""
        if self.broken is None:
            return "no lower loads were tried"
        return _doubt(self.steps, self.before) if self.before is not None else "no load held before"


def comeback_of(findings: Findings) -> Comeback | None:
    """Return what the lower loads after the last one showed; None if the run has none."""
    events = [event for event in findings.run.events if event["event"] == "recovering"]
    if not events:
        return None
    skipped = next((str(event["skipped"]) for event in events if "skipped" in event), None)
    if skipped is not None:
        return Comeback(None, None, [], None, None, None, f"No lower loads were tried: {skipped}.")
    told: dict[int | None, StageFindings] = {found.stage.number: found for found in findings.recovering}
    broken: float = events[0]["broken"]
    before: float | None = events[0].get("before")
    due = _rate_a_unit(findings, before)
    steps = [
        _step(findings, event, told.get(event["stage"]), due, following["size"] if following else None)
        for event, following in zip_longest(events, events[1:])
    ]
    back = next((step for step in steps if step.held), None)
    stays = [
        step.size
        for step in steps
        if step.held is False and before is not None and step.size <= before and not step.catching_up
    ]
    stays_at = max(stays, default=None)
    return Comeback(
        broken=broken,
        before=before,
        steps=steps,
        back_at=back.size if back is not None else None,
        back_after=back.after if back is not None else None,
        stays_broken_at=stays_at,
        sentence=_sentence(findings.run.manifest.load_unit, broken, before, steps, back, stays_at),
    )


def says_nothing(found: StageFindings) -> str:
    """Return why a stage that broke thresholds is inconclusive about the target; empty if it is not."""
    return found.strained or found.not_its_doing or found.load_missing or _stood_still(found)


def _doubt(steps: Sequence[Step], before: float | None) -> str:
    """Return why a load that held before is inconclusive, as are its repetitions; empty if there is no such load."""
    return next(
        (
            step.why
            for step in steps
            if step.why and not step.repeated and (before is None or step.size <= before or step is steps[-1])
        ),
        "",
    )


def _step(
    findings: Findings,
    event: dict[str, Any],
    found: StageFindings | None,
    due: float | None,
    following: float | None,
) -> Step:
    """Return one step; `following` is the load of the next one, if any."""
    size, held = event["size"], event.get("held")
    served = _served(findings, found.stage) if found is not None else None
    catching_up = (
        held is False and None not in (served, due) and (served or 0) >= CATCHING_UP * (due or 0) * size
    )
    why = str(event.get("why", ""))
    if held is False and found is not None:
        why = says_nothing(found) or ("" if catching_up else _more_there(findings, event))
    return Step(
        stage=event["stage"],
        size=size,
        held=None if why else held,
        after=event.get("after"),
        seconds=float(event.get("seconds") or 0.0),
        served=served,
        catching_up=catching_up,
        why=why,
        repeated=bool(why) and following == size,
    )


def _stood_still(found: StageFindings) -> str:
    """Say that a worker stood still for most of a step; empty if none did."""
    stage = found.stage
    longest = max(found.stalls, key=lambda stall: stall.seconds, default=None)
    if longest is None or longest.seconds <= ((stage.end or longest.end) - stage.begin) / 2:
        return ""
    return f"a worker stood still for {format_duration(round(longest.seconds, 1))}"


def _more_there(findings: Findings, event: dict[str, Any]) -> str:
    """Return why a load that held before cannot show that the failure remained: things made by the steps exist too."""
    before: float | None = event.get("before")
    plan = findings.plan
    if plan is not None and plan.accumulates and before is not None and event["size"] <= before:
        return f"there were more {findings.run.things} than when it held"
    return ""


def _served(findings: Findings, stage: StageResult) -> float | None:
    rates = [rate for name in findings.run.own_load if (rate := stage.throughput(name)) is not None]
    return sum(rates) if rates else None


def _rate_a_unit(findings: Findings, before: float | None) -> float | None:
    """Return the successes per second for each unit of the load that held before; None if nothing is due by time."""
    plan = findings.plan
    if isinstance(plan, SpawnPlan | GrowPlan) and plan.load not in PACES:
        return None
    rates = [
        rate / found.stage.size
        for found in findings.stages
        if found.stage.is_step and found.stage.size == before and (rate := _served(findings, found.stage))
    ]
    return max(rates, default=None)


def _sentence(
    unit: str,
    broken: float,
    before: float | None,
    steps: Sequence[Step],
    back: Step | None,
    stays_at: float | None,
) -> str:
    first = f"the load went down from {show_amount(broken, unit)}"
    doubt = _doubt(steps, before)
    after = format_duration(round(back.after, 1)) if back is not None and back.after is not None else ""
    off = next((place for place, step in enumerate(steps) if not step.size), len(steps))
    came = ""
    if back is not None:
        where = f"at {show_amount(back.size, unit)}"
        without = ", and only after a time without any load" if steps.index(back) > off else ""
        came = f"thresholds were met again {where}, {after} after {first}{without}"
    spent = show_span(sum(step.seconds for step in steps))
    if stays_at is not None:
        held = "that load" if stays_at == before else show_size(before or 0)
        ends = f"; {came}" if came else f"; it did not come back in {spent}"
        return (
            f"Stayed broken at {show_amount(stays_at, unit)}, although it had held {held} and what broke it was gone: "
            f"a metastable failure{ends}."
        )
    if came:
        unsure = f"; whether it stayed broken before that is not known: {doubt}" if doubt else ""
        return f"Comes back: {came}{unsure}."
    if doubt:
        return f"It is not known whether it comes back: {doubt}."
    if before is None:
        return f"Did not come back within {spent} after {first}; no load is known that it held before."
    if any(step.catching_up for step in steps):
        return f"Was still catching up {spent} after {first}."
    return f"It is not known whether it comes back: the steps ended early, {spent} after {first}."
