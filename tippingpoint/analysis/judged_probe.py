"""Judges one probe of a search: whether its load held, by how much, and whether the target may not be the cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from tippingpoint.analysis.findings import StageFindings, examine_stage
from tippingpoint.analysis.run_checks import blamed
from tippingpoint.analysis.search.probes import Margin
from tippingpoint.analysis.search.stage_margins import Second, judged, margin_names, stage_margins
from tippingpoint.analysis.thresholds import Check, stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

_LONGEST = 200
"""The maximum number of characters of a reason in an event: digests of units omit longer ones."""


@dataclass(frozen=True)
class JudgedProbe:
    """What a stage shows about its load."""

    held: bool | None
    """Whether it met all thresholds and was held; None if it is inconclusive."""
    margins: tuple[Margin, ...]
    broken: tuple[str, ...]
    """What broke: names of margins, and why the load was not held. If `held` is None: what cannot be judged, and
    why."""
    strained: str
    """Why the generator was the bottleneck; empty if it was not."""
    silent: bool
    """Whether no operation of the load succeeded: the target may be gone."""
    unmeasured: str = ""
    """Which figure of Prometheus was not measured, and why, if `held` is None because of that."""
    foreign: str = ""
    """How much of the target's processors other programs took, if `held` is None because of that."""
    cut: bool = False
    """Whether `held` is None because the probe was cut short, or nothing was measured."""

    def event(
        self,
        plan: Plan,
        number: int,
        size: float,
        *,
        fresh: bool,
        began: float,
        seconds: float,
        gone: str = "",
        aborted: bool = False,
    ) -> ProbeEvent:
        """Return it as the event of the stage with that number. A probe of a target that is `gone` is inconclusive.

        `began`, `seconds` and `aborted` are as in ProbeEvent.
        """
        names = margin_names(plan.thresholds)
        own = [each for each in self.margins if each.name in names]
        return ProbeEvent(
            stage=number,
            size=size,
            held=None if gone else self.held,
            fresh=fresh,
            margins=[
                (each.name, round(each.value, 4), round(each.error, 4) if isfinite(each.error) else None)
                for each in self.margins
            ],
            binds=max(own, key=lambda each: each.value).name if own else "",
            broken=[why[:_LONGEST] for why in ([gone] if gone else self.broken)],
            began=round(began, 3),
            seconds=round(seconds, 3),
            aborted=aborted,
            strained=self.strained,
            unmeasured=self.unmeasured[:_LONGEST],
            foreign="" if gone else self.foreign,
            cut=self.cut or bool(gone),
        )


def judge_probe(
    run: RunData,
    plan: Plan,
    number: int,
    thresholds: Sequence[Threshold],
    also: Sequence[Threshold] = (),
    *,
    unanswered: Mapping[str, Sequence[float]] | None = None,
    parts: Sequence[Second] = (),
) -> JudgedProbe:
    """Judge the stage with that number, which has ended, of a run that may go on.

    A load that was not held is broken, whatever its margins are. A miss that the generator or other programs may have
    caused is inconclusive. `also` are further thresholds that have margins but do not affect the result. `unanswered`
    is passed to `judged`, and `parts` to `stage_margins`.
    """
    stage = judged(run.stage(number), unanswered, plan)
    found = examine_stage(run, plan, stage)
    checks = [blamed(run, found, check) for check in stage_checks(stage, thresholds)]
    margins = (
        *stage_margins(stage, thresholds, seconds=parts),
        *stage_margins(stage, also, seconds=parts, also=True),
    )
    held, broken = _held(found, checks)
    unmeasured = next((_why(each) for each in checks if each.is_figure and each.is_doubtful), "")
    measured = any(check.observed is not None for check in checks)
    cut = held is None and not unmeasured and (bool(found.cut_short) or not measured)
    return JudgedProbe(
        held,
        margins,
        tuple(broken),
        found.strained or "",
        is_silent(run, stage),
        unmeasured if held is None else "",
        foreign=found.foreign.reason
        if found.foreign is not None and held is None and not unmeasured and not cut
        else "",
        cut=cut,
    )


def is_silent(run: RunData, stage: StageResult) -> bool:
    """Return whether no operation of a stage's load succeeded."""
    made = run.manifest.workload == "claim" or any(stage.attempts(operation) for operation in run.own_load)
    return made and not any(stage.count(operation) for operation in run.own_load)


def _held(found: StageFindings, checks: Sequence[Check]) -> tuple[bool | None, list[str]]:
    missed = [check.name for check in checks if check.met is False]
    failed_to_hold = [found.failed_to_hold] if found.failed_to_hold and not found.not_its_doing else []
    if found.cut_short and not missed:
        return None, [found.cut_short]
    if missed or failed_to_hold:
        return False, missed + failed_to_hold
    doubted = [_why(check) for check in checks if check.is_doubtful]
    if found.failed_to_hold:
        doubted.append(f"{found.failed_to_hold}: {found.not_its_doing}")
    measured = any(check.observed is not None for check in checks)
    if doubted or not measured:
        return None, doubted or ["no threshold was measured"]
    return True, []


def _why(check: Check) -> str:
    if check.is_figure:
        where = "" if check.observed is None else " on every host"
        return f"{check.operation} was not measured{where}: {check.why}"
    return f"{check.name}: {check.why}"
