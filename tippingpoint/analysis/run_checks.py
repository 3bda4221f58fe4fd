"""Checks the thresholds of a run in each stage, and withdraws checks that are inconclusive about the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from tippingpoint.analysis.enough_calls import too_few
from tippingpoint.analysis.findings import Findings, StageFindings
from tippingpoint.analysis.foreign_work import ForeignWork
from tippingpoint.analysis.generator_health import explained, has_free_core, longest_stall, show_stall
from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.operation_costs import OperationCost
from tippingpoint.analysis.thresholds import Check, stage_checks
from tippingpoint.rundir.operations import BRINGING_UP
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

_NO_STAGE = StageResult(number=0, size=0, kind="ramp", begin=0.0)


def run_checks(findings: Findings, cpu: Mapping[str, OperationCost]) -> list[Check]:
    """Check every threshold of a run's plan in every stage to which it applies, in the order of stages.

    `cpu` is the target's CPU time for each operation.
    """
    run, plan = findings.run, findings.plan
    if plan is None:
        return []
    if not run.stages:
        none = stage_checks(_NO_STAGE, plan.thresholds, cpu=cpu)
        return [replace(check, stage=None, size=None) for check in none]
    clock_known = run.manifest.timeline == "seconds"
    checks = [
        _known(found, blamed(run, found, check))
        for found in findings.stages
        for check in stage_checks(found.stage, plan.thresholds, clock_known=clock_known, cpu=cpu)
    ]
    return _asked_for(run, checks if plan.find is not None else _shown(findings, checks))


def blamed(run: RunData, found: StageFindings, check: Check) -> Check:
    """Withdraw a check's miss if the generator, or other programs on the target's processors, may have caused it.

    The generator does not affect figures or the cost of an operation.

    A low throughput may be the generator's fault if a share of the load is missing.

    A latency is the target's fault if it exceeds the limit even without the generator's own delay (see `explained`).
    An error is the target's fault too, because it is an answer, unless the machine was suspended. So are lost leases
    beyond those that the generator may have lost (see `own_losses`). Nothing is known about a worker without a free
    core.
    """
    if check.met is not False or check.observed is None or check.is_figure or check.is_cpu:
        return check
    ours = _blames_us(run, found, check, check.observed)
    if (
        ours.met is False
        and found.foreign is not None
        and _may_be_of_others(found.stage, found.foreign, check)
    ):
        return replace(check, met=None, why=found.foreign.reason)
    return ours


def _may_be_of_others(stage: StageResult, foreign: ForeignWork, check: Check) -> bool:
    """Return whether other programs may have caused a miss: no call waited longer for a processor than the target did,
    and an error is an answer, unlike a timeout."""
    observed = check.observed or 0.0
    if check.percentile is not None:
        return observed - foreign.waited * 1e6 <= check.allowed
    if check.limit == "error_rate":
        return stage.count(check.operation, "error") <= check.allowed * stage.attempts(check.operation)
    return True


def _blames_us(run: RunData, found: StageFindings, check: Check, observed: float) -> Check:
    stage, own = found.stage, found.own_losses
    if check.is_least and found.load_missing:
        return replace(check, met=None, why="a share of the load is missing")
    slept = next((stall for stall in found.stalls if stall.cause == "suspend"), None)
    if slept is not None and check.outcomes:
        return replace(check, met=None, why=f"the generator itself was {show_stall(slept)}")
    if check.limit == "lost_rate":
        attempts = stage.attempts(check.operation)
        if own is None or observed - own.count / attempts > check.allowed:
            return check
        return replace(check, met=None, why=own.why)
    reason = found.strained
    if has_free_core(stage) and check.limit == "error_rate":
        return check
    if has_free_core(stage) and check.percentile is not None:
        reason = explained(run, stage, found.stalls, check.operation, check.percentile, check.allowed)
    elif check.is_least:
        reason = reason or _throughput_lost(found, observed, check.allowed)
    return replace(check, met=None, why=reason) if reason else check


def _known(found: StageFindings, check: Check) -> Check:
    """Withdraw a check that was met if the journals are incomplete: the missing part may contain a miss."""
    if check.met is not True or not found.damage:
        return check
    return replace(check, met=None, why=found.damage[0].sentence)


def _asked_for(run: RunData, checks: Sequence[Check]) -> list[Check]:
    """Leave out checks of operations that their stage did not attempt, but keep them if no stage attempted them."""
    measured = {(check.operation, check.limit) for check in checks if check.observed is not None}
    tried = {stage.number: {op for op in BRINGING_UP if stage.attempts(op)} for stage in run.stages}
    return [
        check
        for check in checks
        if check.observed is not None
        or check.operation not in BRINGING_UP
        or check.operation in tried[check.stage or 0]
        or (check.operation, check.limit) not in measured
    ]


def _shown(findings: Findings, checks: Sequence[Check]) -> list[Check]:
    """Withdraw a p99.9 that was met if too few calls show it, unless enough calls show it at this load or a larger one.

    With few calls, a lower percentile is judged by the largest one: plans ask for that deliberately, for things that
    are made in tens.
    """
    stages = {found.stage.number: found.stage for found in findings.stages}
    why: dict[tuple[int | None, str], str] = {
        (check.stage, check.operation): too_few(
            "p99.9", 99.9, costs(stages[check.stage], check.operation).total
        )
        for check in checks
        if check.limit == "p999" and check.met is True and check.stage in stages
    }
    shown = {
        operation: max(
            (stages[n].size for n, of in why if n is not None and of == operation and not why[n, of]),
            default=-inf,
        )
        for _, operation in why
    }
    return [
        replace(check, met=None, why=problem)
        if check.limit == "p999"
        and (problem := why.get((check.stage, check.operation), ""))
        and (check.size or 0) > shown[check.operation]
        else check
        for check in checks
    ]


def _throughput_lost(found: StageFindings, observed: float, allowed: float) -> str | None:
    """Return why a throughput is too low only because workers stalled, in a few words; None if it is not."""
    stage, longest = found.stage, longest_stall(found.stalls)
    if longest is None or stage.end is None:
        return None
    seconds = stage.end - (stage.begin if stage.hold_begin is None else stage.hold_begin)
    still = sum(stall.seconds for stall in found.stalls if stall.worker == longest.worker)
    if still < seconds and observed * seconds / (seconds - still) < allowed:
        return None
    return f"the generator itself was {show_stall(longest)}"
