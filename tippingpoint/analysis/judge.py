"""Judges a run: sums up its threshold checks as an outcome and one sentence."""

from __future__ import annotations

from collections.abc import Mapping

from tippingpoint.analysis.check_words import first_miss, first_of, saw
from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.judge_search import judge_answer
from tippingpoint.analysis.operation_costs import OperationCost
from tippingpoint.analysis.reasons import (
    EARLY,
    ended_early,
    held_through,
    missing_units,
    own_words,
    reasons_of,
    taken_up,
    were_not_held,
)
from tippingpoint.analysis.run_checks import run_checks
from tippingpoint.analysis.search.found import Found
from tippingpoint.analysis.thresholds import Check
from tippingpoint.analysis.verdict import Outcome, Verdict
from tippingpoint.rundir.operations import BRINGING_UP, CONNECT
from tippingpoint.rundir.results import RunData
from tippingpoint.util.text import show_amount, show_calls, show_list


def judge(
    findings: Findings, found: Found | None = None, cpu: Mapping[str, OperationCost] | None = None
) -> Verdict:
    """Judge a run as far as it went, or a search by what it `found`. Thresholds are not checked if the run failed.

    `cpu` is the target's CPU time for each operation.
    """
    run, plan = findings.run, findings.plan
    manifest = run.manifest
    if manifest.status == "failed":
        return Verdict("failed", f"Failed: {manifest.reason or 'the target failed'}.")
    checks = run_checks(findings, cpu or {})
    nothing_succeeded = _nothing_succeeded(run)
    if nothing_succeeded:
        return Verdict("failed", nothing_succeeded, checks)
    damage = list(dict.fromkeys(found.sentence for found in run.damage))
    if manifest.status == "aborted":
        # The threshold was missed for a while, whatever the stage as a whole shows.
        held = held_through(findings, checks, below=run.stages[-1].size if run.stages else 0)
        return Verdict(
            "missed", f"Missed: aborted: {manifest.reason}{held}.", checks, ended_early(run) + damage
        )
    if not run.stages:
        return Verdict("withheld", "Withheld: no stage was run.", checks, ended_early(run) + damage)
    if found is not None:
        outcome, sentence = judge_answer(findings, found)
    elif plan is not None and plan.find is not None:
        why = next(iter(ended_early(run)), "the search has no answer")
        outcome, sentence = "withheld", f"Withheld: {why}{held_through(findings, checks)}."
    else:
        outcome, sentence = _judge_stages(findings, checks)
    if outcome == "met" and damage:
        outcome, sentence = "withheld", f"Withheld: {damage[0]}{held_through(findings, checks)}."
    return Verdict(outcome, sentence, checks, reasons_of(findings, checks, damage))


def _judge_stages(findings: Findings, checks: list[Check]) -> tuple[Outcome, str]:
    run = findings.run
    unit = run.manifest.load_unit
    held = held_through(findings, checks)
    missed = [check for check in checks if check.met is False]
    if missed:
        return "missed", f"Missed: {first_miss(run, missed)}{held}."
    doubted = [check for check in checks if check.is_doubtful]
    if doubted:
        worst = first_of(run, doubted)
        but = ", but" if worst.observed is not None else ":"
        return "withheld", f"Withheld: {saw(run, worst)}{but} {worst.why}{held}."
    unmeasured = _unmeasured_at_the_top(run, checks)
    if unmeasured is not None:
        where = "" if unmeasured.stage is None else f" at {show_amount(unmeasured.size or 0, unit)}"
        return (
            "withheld",
            f"Withheld: {unmeasured.name} was not measured{where}{held}.",
        )
    for found in findings.stages:
        whole = found.stage.is_step and not found.own_losses and not found.cut_short
        if whole and found.failed_to_hold:
            excuse = found.not_its_doing
            outcome, but = ("withheld", f", but {excuse}") if excuse else ("missed", "")
            failed_to_hold = were_not_held(run, found.stage, found.failed_to_hold)
            return outcome, f"{outcome.capitalize()}: {failed_to_hold}{but}{held}."
    cut = [found.stage.size for found in findings.stages if found.load_missing]
    if cut:
        where = f"from {show_amount(min(cut), unit)} on"
        why = next(iter(missing_units(run)), f"a worker was cut, so load is missing {where}")
        return "withheld", f"Withheld: {why}{held}."
    if run.manifest.status in EARLY:
        return "withheld", f"Withheld: {ended_early(run)[0]}{held}."
    for why in taken_up(run):
        return "withheld", f"Withheld: {why}{held}."
    for found in findings.stages:
        if found.own_losses:
            return "withheld", f"Withheld: {own_words(run, found.stage, found.own_losses)}{held}."
    for found in findings.stages:
        if found.not_made:
            return "withheld", f"Withheld: {found.not_made}{held}."
        if found.stage.is_step and found.cut_short:
            return "withheld", f"Withheld: {were_not_held(run, found.stage, found.cut_short)}{held}."
    if not checks:
        return "met", "No thresholds were set, so there is nothing to miss."
    largest = max(stage.size for stage in run.stages)
    limits = len({(check.operation, check.limit) for check in checks})
    every = {1: "the threshold was", 2: "both thresholds were"}.get(limits, f"all {limits} thresholds were")
    return "met", f"Met: {every} met {'in' if unit == 'tests' else 'up to'} {show_amount(largest, unit)}."


def _nothing_succeeded(run: RunData) -> str | None:
    """Return the verdict on a target for which no operation or no login succeeded; None if any did."""
    for operations in (run.own_load, (CONNECT,)):
        tried = {op: sum(stage.attempts(op) for stage in run.stages) for op in operations}
        if any(tried.values()):
            if any(stage.count(op) for op in operations for stage in run.stages):
                return None
            calls = [f"{n:,} {show_calls(op, n)}" for op, n in tried.items() if n]
            return f"Failed: none of {show_list(calls)} succeeded."
    return None


def _unmeasured_at_the_top(run: RunData, checks: list[Check]) -> Check | None:
    """Return a limit that was not measured at the largest load: it is then unknown whether that load holds."""
    loads = {stage.number: stage.size for stage in run.stages if stage.is_step} or {
        stage.number: stage.size for stage in run.stages
    }
    largest = max(loads.values())
    measured = {
        (check.operation, check.limit)
        for check in checks
        if check.observed is not None
        and (check.operation in BRINGING_UP or (check.stage in loads and check.size == largest))
    }
    return next(
        (
            check
            for check in checks
            if check.size == largest
            and check.stage in loads
            and (check.operation, check.limit) not in measured
        ),
        None,
    )
