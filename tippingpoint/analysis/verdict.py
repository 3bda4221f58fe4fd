"""Computes the verdict: each threshold of the plan is checked in each stage, and one sentence sums it up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import Literal

from tippingpoint.analysis.cliff import fault_times
from tippingpoint.analysis.enough_calls import too_few
from tippingpoint.analysis.findings import Findings, StageFindings
from tippingpoint.analysis.generator_health import (
    OwnLosses,
    explained,
    has_free_core,
    longest_stall,
    show_stall,
)
from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.rate_limit import waited_for_rate_limit
from tippingpoint.analysis.recovery.comeback import comeback_of
from tippingpoint.analysis.search.found import Found, told_high, told_low
from tippingpoint.analysis.thresholds import Check, stage_checks
from tippingpoint.plan.kinds import facts_of
from tippingpoint.rundir.gathered import UnitStatus
from tippingpoint.rundir.operations import BRINGING_UP, CONNECT
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.takeovers import takeovers
from tippingpoint.util.text import (
    choose,
    place_of,
    show_amount,
    show_calls,
    show_count,
    show_list,
    show_load,
    show_names,
    show_size,
    show_sizes,
)

Outcome = Literal["met", "missed", "withheld", "failed"]

_EXIT_CODES: dict[Outcome, int] = {"met": 0, "missed": 1, "failed": 3, "withheld": 4}
_NAMED = 3
"""The most units that one sentence names."""
_EARLY = ("interrupted", "aborted", "cut", "running")
"""How a run ends before its plan does."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run: `checks` are in the order of stages, `reasons` are further remarks for the reader."""

    outcome: Outcome
    sentence: str
    checks: list[Check] = field(default_factory=list[Check])
    reasons: list[str] = field(default_factory=list[str])

    @property
    def label(self) -> str:
        """The outcome as lists show it: a run without thresholds has none to meet."""
        return "no thresholds" if self.outcome == "met" and not self.checks else self.outcome

    @property
    def exit_code(self) -> int:
        """0 met, 1 missed, 3 failed, 4 withheld."""
        return _EXIT_CODES[self.outcome]


def _checks(findings: Findings) -> list[Check]:
    """Check every threshold of a run's plan in every stage that it concerns, in the order of stages."""
    run, plan = findings.run, findings.plan
    if plan is None:
        return []
    if not run.stages:
        return [replace(check, stage=None, size=None) for check in stage_checks(_NO_STAGE, plan.thresholds)]
    clock_known = run.manifest.timeline == "seconds"
    checks = [
        _known(found, blamed(run, found, check))
        for found in findings.stages
        for check in stage_checks(found.stage, plan.thresholds, clock_known=clock_known)
    ]
    return _asked_for(run, checks if plan.find is not None else _shown(findings, checks))


def judge(findings: Findings, found: Found | None = None) -> Verdict:
    """Judge a run as far as it went, a search by what it `found`. Thresholds are not checked if the run failed."""
    run, plan = findings.run, findings.plan
    manifest = run.manifest
    if manifest.status == "failed":
        return Verdict("failed", f"Failed: {manifest.reason or 'the target failed'}.")
    checks = _checks(findings)
    nothing_succeeded = _nothing_succeeded(run)
    if nothing_succeeded:
        return Verdict("failed", nothing_succeeded, checks)
    unit = manifest.load_unit
    damage = list(dict.fromkeys(found.sentence for found in run.damage))
    lost_by_us = [
        _own_words(run, found.stage, found.own_losses) for found in findings.stages if found.own_losses
    ]
    if manifest.status == "aborted":
        # The threshold was missed for a while, whatever the stage as a whole shows.
        held = _held_through(findings, checks, below=run.stages[-1].size if run.stages else 0)
        return Verdict(
            "missed", f"Missed: aborted: {manifest.reason}{held}.", checks, _ended_early(run) + damage
        )
    if not run.stages:
        return Verdict("withheld", "Withheld: no stage was run.", checks, _ended_early(run) + damage)
    reasons = (
        _ended_early(run)
        + damage
        + _bottlenecks(findings)
        + lost_by_us
        + _not_held(findings)
        + _coming_back(findings)
        + _gaps(checks, [found.stage for found in findings.stages], unit)
    )
    if found is not None:
        outcome, sentence = _judge_answer(findings, found)
    elif plan is not None and plan.find is not None:
        outcome, sentence = _judge_find(findings, checks)
    else:
        outcome, sentence = _judge_stages(findings, checks)
    if outcome == "met" and damage:
        outcome, sentence = "withheld", f"Withheld: {damage[0]}{_held_through(findings, checks)}."
    return Verdict(outcome, sentence, checks, reasons)


def _coming_back(findings: Findings) -> list[str]:
    """Return what the lower loads after the last one showed; they change no outcome."""
    comeback = comeback_of(findings)
    return [comeback.sentence] if comeback is not None else []


_NO_STAGE = StageResult(number=0, size=0, kind="ramp", begin=0.0)


def _asked_for(run: RunData, checks: Sequence[Check]) -> list[Check]:
    """Leave out checks of operations that their stage did not attempt. They stay if no stage attempted them."""
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


def blamed(run: RunData, found: StageFindings, check: Check) -> Check:
    """Withdraw a check's miss if the generator may have caused it.

    A low throughput may be the generator's fault if a share of the load is missing.

    A latency is the target's fault if it exceeds the limit even without the generator's own delay (see `explained`).
    So is an error, because it is an answer, unless the machine was suspended. So are lost leases beyond those that the
    generator may have lost (see `own_losses`). Nothing is known about a worker without a free core.
    """
    if check.met is not False or check.observed is None or check.is_figure:
        return check
    stage, own = found.stage, found.own_losses
    if check.is_least and found.load_missing:
        return replace(check, met=None, why="a share of the load is missing")
    slept = next((stall for stall in found.stalls if stall.cause == "suspend"), None)
    if slept is not None and check.outcomes:
        return replace(check, met=None, why=f"the generator itself was {show_stall(slept)}")
    if check.limit == "lost_rate":
        attempts = stage.attempts(check.operation)
        if own is None or check.observed - own.count / attempts > check.allowed:
            return check
        return replace(check, met=None, why=own.why)
    reason = found.strained
    if has_free_core(stage) and check.limit == "error_rate":
        return check
    if has_free_core(stage) and check.percentile is not None:
        reason = explained(run, stage, found.stalls, check.operation, check.percentile, check.allowed)
    elif check.is_least:
        reason = reason or _throughput_lost(found, check.observed, check.allowed)
    return replace(check, met=None, why=reason) if reason else check


def _known(found: StageFindings, check: Check) -> Check:
    """Withdraw a check that was met if the journals are incomplete: the missing part may have missed it."""
    if check.met is not True or not found.damage:
        return check
    return replace(check, met=None, why=found.damage[0].sentence)


def _shown(findings: Findings, checks: Sequence[Check]) -> list[Check]:
    """Withdraw a p99.9 that was met if too few calls show it, unless enough calls show it at this load or a larger one.

    A lower percentile is judged by the largest call if there are few: plans ask for that on purpose, for things that
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


def _own_words(run: RunData, stage: StageResult, own: OwnLosses) -> str:
    return (
        f"{show_size(own.count)} of {show_amount(own.of, 'leases')} lost {_where(run, stage)} may be the generator's "
        f"own loss: {own.why}"
    )


def _nothing_succeeded(run: RunData) -> str | None:
    """Return the verdict on a target on which no operation, or no login, succeeded; None if any did."""
    for operations in (run.own_load, (CONNECT,)):
        tried = {op: sum(stage.attempts(op) for stage in run.stages) for op in operations}
        if any(tried.values()):
            if any(stage.count(op) for op in operations for stage in run.stages):
                return None
            calls = [f"{n:,} {show_calls(op, n)}" for op, n in tried.items() if n]
            return f"Failed: none of {show_list(calls)} succeeded."
    return None


def _ended_early(run: RunData) -> list[str]:
    reasons: list[str] = []
    if run.manifest.status in _EARLY:
        words = {
            "interrupted": "was interrupted",
            "aborted": "was aborted",
            "cut": "was cut",
            "running": "is still running",
        }
        because = f": {run.manifest.reason}" if run.manifest.reason else ""
        reasons.append(f"the run {words[run.manifest.status]}{because}")
    of_units = {unit.name for unit in run.units}
    cut = [w.name for w in run.manifest.workers if w.status == "cut" and w.name not in of_units]
    if cut:
        were, theirs = choose(len(cut), "was", "were"), choose(len(cut), "its share", "their shares")
        missing = f"{theirs} of the load {choose(len(cut), 'is', 'are')} missing from then on"
        reasons.append(f"{show_names(cut, 'worker')} {were} cut: {missing}")
    return reasons + _missing_units(run) + _taken_up(run)


def _taken_up(run: RunData) -> list[str]:
    """Return one line for each part that was cut and has an incomplete stage."""
    return [taken.words for taken in takeovers(run.events) if taken.again]


def _missing_units(run: RunData) -> list[str]:
    """Return one line for each reason why units' shares were missing, or ended early."""
    groups: dict[tuple[UnitStatus, str], list[str]] = {}
    for unit in run.units:
        if unit.status in ("cut", "missing"):
            groups.setdefault((unit.status, unit.why), []).append(unit.name)
    reasons: list[str] = []
    for (status, why), names in groups.items():
        several = len(names) > 1
        who = show_list(
            names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more units"]
        )
        share = f"{'their shares' if several else 'its share'} of the load {'were' if several else 'was'}"
        if status == "missing":
            reasons.append(f"{who} {'are' if several else 'is'} missing: {why}, {share} not measured")
        else:
            reasons.append(f"{who} {'were' if several else 'was'} cut: {why}, {share} missing from then on")
    return reasons


def _bottlenecks(findings: Findings) -> list[str]:
    unit = findings.run.manifest.load_unit
    return [
        f"stage {found.stage.number} ({show_amount(found.stage.size, unit)}): the generator itself was strained: "
        f"{found.strained}"
        for found in findings.stages
        if found.strained
    ]


def _gaps(checks: Iterable[Check], stages: Sequence[StageResult], unit: str) -> list[str]:
    """Return a line for each limit that could not be measured in some stages, and each reason why."""
    kinds = {stage.number: stage.kind for stage in stages}
    checked = list(checks)
    in_storms = {
        (check.operation, check.limit, check.size)
        for check in checked
        if check.observed is not None and check.stage is not None and kinds[check.stage] == "storm"
    }
    missing: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
    for check in checked:
        if check.observed is None and check.size is not None and check.stage is not None:
            name, why = check.name, f": {check.why}" if check.is_figure else ""
            of = place_of(kinds[check.stage])
            stormed = of == place_of("ramp") and (check.operation, check.limit, check.size) in in_storms
            places = missing.setdefault((name, why), {})
            places.setdefault((of, " before the storm" if stormed else ""), []).append(check.size)
    lines: list[str] = []
    for (name, why), places in missing.items():
        if sum(len(sizes) for sizes in places.values()) == len(stages):
            lines.append(f"{name} was never measured{why}")
            continue
        where = [f"{of} {show_sizes(sizes, unit)}{before}" for (of, before), sizes in places.items()]
        lines.append(f"{name} was not measured {show_list(where)}{why}")
    return lines


def _judge_stages(findings: Findings, checks: list[Check]) -> tuple[Outcome, str]:
    run = findings.run
    unit = run.manifest.load_unit
    held = _held_through(findings, checks)
    missed = [check for check in checks if check.met is False]
    if missed:
        return "missed", f"Missed: {_first_miss(run, missed)}{held}."
    doubted = [check for check in checks if check.is_doubtful]
    if doubted:
        worst = _first_of(run, doubted)
        but = ", but" if worst.observed is not None else ":"
        return "withheld", f"Withheld: {_saw(run, worst)}{but} {worst.why}{held}."
    unmeasured = _unmeasured_at_the_top(run, checks)
    if unmeasured is not None:
        where = "" if unmeasured.stage is None else f" at {show_amount(unmeasured.size or 0, unit)}"
        return (
            "withheld",
            f"Withheld: {unmeasured.name} was not measured{where}{held}.",
        )
    for found in findings.stages:
        whole = found.stage.is_step and not found.own_losses and not found.cut_short
        if whole and found.gave_way:
            by_us = found.late_by_us
            outcome, ours = ("withheld", f", but {by_us}") if by_us else ("missed", "")
            not_held = _were_not_held(run, found.stage, found.gave_way)
            return outcome, f"{outcome.capitalize()}: {not_held}{ours}{held}."
    cut = [found.stage.size for found in findings.stages if found.load_missing]
    if cut:
        where = f"from {show_amount(min(cut), unit)} on"
        why = next(iter(_missing_units(run)), f"a worker was cut, so load is missing {where}")
        return "withheld", f"Withheld: {why}{held}."
    if run.manifest.status in _EARLY:
        return "withheld", f"Withheld: {_ended_early(run)[0]}{held}."
    for why in _taken_up(run):
        return "withheld", f"Withheld: {why}{held}."
    for found in findings.stages:
        if found.own_losses:
            return "withheld", f"Withheld: {_own_words(run, found.stage, found.own_losses)}{held}."
    for found in findings.stages:
        if found.not_made:
            return "withheld", f"Withheld: {found.not_made}{held}."
        if found.stage.is_step and found.cut_short:
            return "withheld", f"Withheld: {_were_not_held(run, found.stage, found.cut_short)}{held}."
    if not checks:
        return "met", "No thresholds were set, so there is nothing to miss."
    largest = max(stage.size for stage in run.stages)
    limits = len({(check.operation, check.limit) for check in checks})
    every = "the threshold" if limits == 1 else f"all {limits} thresholds"
    return "met", f"Met: {every} held through {show_amount(largest, unit)}."


def _judge_find(findings: Findings, checks: list[Check]) -> tuple[Outcome, str]:
    """Judge a search of versions before 0.2, whose probes had no margins, or one that ended before its first probe.

    Loads beyond the answer may miss thresholds: that is how the answer is found.
    """
    run = findings.run
    unit = run.manifest.load_unit
    found = next((event for event in reversed(run.events) if event["event"] == "found"), None)
    if found is None:
        why = (_ended_early(run) or ["the search has no answer"])[0]
        return "withheld", f"Withheld: {why}{_held_through(findings, checks)}."
    held: float | None = found.get("held")
    broken: float | None = found.get("broken")
    at_broken = [check for check in checks if check.size == broken and check.met is not True]
    missed = [check for check in at_broken if check.met is False]
    gave = [
        (each.stage, each.gave_way)
        for each in findings.stages
        if each.stage.size == broken and not each.cut_short and each.gave_way
    ]
    beyond = ""
    if gave and not missed:
        beyond = f"; {_were_not_held(run, *gave[0])}"
    elif broken is not None and at_broken:
        worst = _first_of(run, missed or at_broken)
        beyond = f"; {_saw(run, worst)}" + (
            f", but {worst.why}" if worst.met is None and worst.observed else ""
        )
    if held is None:
        if not (missed or gave):
            return "withheld", f"Withheld: no load was shown to hold{beyond}."
        return "missed", f"Missed: not even {show_amount(broken or 0, unit)} held{beyond}."
    if not found.get("confirmed"):
        return (
            "withheld",
            f"Withheld: {show_amount(held, unit)} held once, but repeats did not confirm it{beyond}.",
        )
    repeats = f"confirmed by {found['agreeing']} of {found['repeats']} repeats"
    if broken is not None and not (missed or gave):
        return (
            "withheld",
            f"Withheld: the thresholds held up to {show_amount(held, unit)} ({repeats}){beyond}.",
        )
    if any(each.load_missing for each in findings.stages):
        return "withheld", f"Withheld: a worker was cut, so load is missing; {show_amount(held, unit)} held."
    for each in findings.stages:
        if each.own_losses and each.stage.size <= held:
            return "withheld", f"Withheld: {_own_words(run, each.stage, each.own_losses)}{beyond}."
    limit = "; the search's limit" if broken is None else ""
    return "met", f"Met: the thresholds hold up to {show_amount(held, unit)} ({repeats}{limit}){beyond}."


def _judge_answer(findings: Findings, found: Found) -> tuple[Outcome, str]:
    """Judge a search by the answer that its probes give, however it ended."""
    run, answer = findings.run, found.answer
    unit = run.manifest.load_unit
    ended = next(iter(_ended_early(run)), "")
    early = f"; {ended}" if ended else ""
    if answer.limit is not None:
        low, share = told_low(answer), answer.share
        if low <= 0 or share is None:
            most = f"the limit may be anywhere up to {show_amount(told_high(answer), unit)}"
            return "withheld", f"Withheld: no load is known to hold: {most}{early}."
        there = f"where at least {floor(100 * share)} % of holds meet the thresholds (95 %)"
        return "met", f"Met: the limit is at least {show_amount(low, unit)}, {there}{early}."
    if answer.ended == "limit":
        held, of = found.at_largest
        return (
            "met",
            f"Met: the limit is above {show_amount(answer.low, unit)}, the largest load that the plan allows: "
            f"it held in {held} of {of} probes.",
        )
    if answer.ended == "broken at start":
        return "missed", f"Missed: not even {show_amount(answer.high, unit)} held."
    held = f"; {show_amount(answer.low, unit)} held" if answer.low else ""
    return "withheld", f"Withheld: {ended or answer.withheld or 'the search has no answer'}{held}."


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


def _held_through(findings: Findings, checks: Iterable[Check], below: float = inf) -> str:
    """Return the load up to which every load was held and met every check, in words; empty without one `below`."""
    steps = {
        found.stage.number: found.stage.size
        for found in findings.stages
        if found.stage.is_step and found.stage.size < below
    }
    unmet = {check.size for check in checks if check.stage in steps and check.met is not True}
    unmet |= {  # a load that was tried again may have been held most times only
        found.stage.size for found in findings.stages if found.stage.number in steps and found.why_not_held
    }
    held: float | None = None
    for size in sorted(set(steps.values())):
        if size not in findings.loads_held or size in unmet:
            break
        held = size
    return f"; held through {show_amount(held, findings.run.manifest.load_unit)}" if held is not None else ""


def _not_held(findings: Findings) -> list[str]:
    """Return one line for each stage whose load was incomplete, or was not held by the target.

    The probes of a search are told by its answer.
    """
    lines: list[str] = []
    for found in findings.stages:
        if found.not_made:
            lines.append(found.not_made)
        elif found.stage.is_step and found.stage.kind != "find" and not found.cut_short and found.gave_way:
            lines.append(_were_not_held(findings.run, found.stage, found.gave_way))
    return lines


def _were_not_held(run: RunData, stage: StageResult, why: str) -> str:
    return f"{show_amount(stage.size, run.manifest.load_unit)} {choose(stage.size, 'was', 'were')} not held: {why}"


def _first_miss(run: RunData, missed: list[Check]) -> str:
    first = _first_of(run, missed)
    more = len({(check.operation, check.limit) for check in missed}) - 1
    others = f" and {show_count(more, 'other threshold')}" if more else ""
    return _saw(run, first) + others


def _first_of(run: RunData, checks: list[Check]) -> Check:
    """Return the check to name: the one furthest beyond its limit at the smallest load; storms and removals last."""

    def rank(check: Check) -> tuple[bool, float, float]:
        no_step = check.stage is not None and not run.stage(check.stage).is_step
        return no_step, check.size or 0, -_excess(check)

    return min(checks, key=rank)


def _excess(check: Check) -> float:
    if check.observed is None:
        return 0.0
    small = 1e-9
    if check.is_least:
        return check.allowed / max(check.observed, small)
    return check.observed / max(check.allowed, small)


def first_misses(run: RunData, checks: Sequence[Check]) -> list[Check]:
    """Return the missed checks at the smallest load that misses any, the furthest beyond its limit first.

    Storms and removals are left out. In a search, so are the loads up to its answer: a repeat of them may have failed.
    """
    found = next((event for event in reversed(run.events) if event["event"] == "found"), None)
    answer: float = found.get("held", found.get("low")) or 0 if found is not None else 0
    steps = {stage.number for stage in run.stages if stage.is_step}
    missed = [
        check
        for check in checks
        if check.met is False and check.stage in steps and (check.size or 0) > answer
    ]
    first = min((check.size or 0 for check in missed), default=0)
    return sorted((check for check in missed if check.size == first), key=_excess, reverse=True)


def miss_words(run: RunData, check: Check) -> str:
    """Write a miss with its limit: extend p99 was 1.32 s (limit 100 ms)."""
    allowed = f"(limit {check.show(check.allowed)}{_circumstances(run, check)})"
    return f"{check.title} was {check.show(check.observed or 0.0)} {allowed}"


def _saw(run: RunData, check: Check) -> str:
    where = (
        f"at {show_amount(check.size or 0, run.manifest.load_unit)}"
        if check.stage is None
        else _where(run, run.stage(check.stage))
    )
    if check.observed is None:
        return f"{check.title} was not measured {where}"
    return (
        f"{check.title} was {check.show(check.observed)} {where} "
        f"(limit {check.show(check.allowed)}{_circumstances(run, check)})"
    )


def _where(run: RunData, stage: StageResult) -> str:
    return show_load(stage.size, run.manifest.load_unit, stage.kind)


def _circumstances(run: RunData, check: Check) -> str:
    """Name what else decided a check's value in its stage: members that a fault had taken down, and a rate limit."""
    if check.stage is None:
        return ""
    stage = run.stage(check.stage)
    times = fault_times(run.events)
    gone = sorted({member for begin, until, member in times if stage.overlaps(begin, until)})
    found = f"; {show_list(gone)} {'was' if len(gone) == 1 else 'were'} down on purpose" if gone else ""
    if check.percentile is not None and waited_for_rate_limit(stage, check.operation, check.percentile):
        limit = facts_of(run.manifest.target.kind).rate_limit or "the target's rate limit"
        found += f"; mostly waiting because of {limit}"
    return found
