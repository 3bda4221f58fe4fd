"""The verdict: each threshold of the plan held against each stage, and one sentence for a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pydantic import ValidationError

from tippingpoint.cliff import fault_times
from tippingpoint.durations import show_us
from tippingpoint.errors import UserError
from tippingpoint.latency import costs
from tippingpoint.lateness import (
    OwnLosses,
    has_free_core,
    own_delay,
    own_losses,
    stage_saturated,
)
from tippingpoint.plan import ClaimPlan, Threshold, validate_plan
from tippingpoint.results import BRINGING_UP, CONNECT, MAKING, RunData, StageResult, UnitStatus, count_of
from tippingpoint.wording import show_calls, show_list, show_load, show_share, show_size

__all__ = ["Check", "Outcome", "Verdict", "judge", "stage_checks", "stage_saturated"]

Outcome = Literal["met", "missed", "withheld", "failed"]

_EXIT_CODES: dict[Outcome, int] = {"met": 0, "missed": 1, "failed": 3, "withheld": 4}
_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
_RATES = ("error_rate", "lost_rate")
_NAMED = 3
"""Units of one sentence that are called by their names."""
_LIMITS = (*_PERCENTILES, *_RATES, "throughput")


@dataclass(frozen=True)
class Check:
    """One limit held against one stage."""

    operation: str
    limit: str
    """The threshold's field: p50 p90 p95 p99 p999 max error_rate lost_rate throughput."""
    allowed: float
    """What the plan allows: microseconds for latencies, a share in 0..1 for rates, operations per second."""
    observed: float | None
    """What was measured, in the unit of `allowed`; None when there was nothing to measure."""
    stage: int | None
    """The stage's number; None when no stage was run at all."""
    size: int | None
    """The stage's size, in the manifest's load unit."""
    met: bool | None
    """None when nothing was measured, or when what was measured says nothing about the target (see `why`)."""
    why: str = ""
    """Why `met` is None, in a few words."""


@dataclass(frozen=True)
class Verdict:
    """What a run amounts to: `checks` in the order of stages, `reasons` what a reader should know besides."""

    outcome: Outcome
    sentence: str
    checks: list[Check] = field(default_factory=list[Check])
    reasons: list[str] = field(default_factory=list[str])

    @property
    def exit_code(self) -> int:
        """0 met, 1 missed, 3 failed, 4 withheld."""
        return _EXIT_CODES[self.outcome]


def stage_checks(
    stage: StageResult, thresholds: Sequence[Threshold], *, clock_known: bool = True
) -> list[Check]:
    """Every limit of every threshold against one stage.

    Latency limits use the response times of `latency.costs`; error rate is errors and timeouts over attempts,
    lost rate leases lost over attempts to extend, throughput successes per second (see StageResult.throughput).
    `clock_known` is False when the run's times are only an order, so that there are no rates.
    """
    checks: list[Check] = []
    for threshold in thresholds:
        for limit in _LIMITS:
            value = getattr(threshold, limit)
            if value is None:
                continue
            allowed = value * 1e6 if limit in _PERCENTILES else float(value)
            observed = _observed(stage, threshold.operation, limit, clock_known)
            met = None
            if observed is not None:
                met = observed >= allowed if limit == "throughput" else observed <= allowed
            checks.append(
                Check(
                    operation=threshold.operation,
                    limit=limit,
                    allowed=allowed,
                    observed=observed,
                    stage=stage.number,
                    size=stage.size,
                    met=met,
                    why="" if met is not None else "not measured",
                )
            )
    return checks


def judge(run: RunData) -> Verdict:
    """The verdict on a run, as far as it went; UserError when its manifest holds a plan that is none."""
    manifest = run.manifest
    if manifest.status == "failed":
        return Verdict("failed", f"Failed: {manifest.reason or 'the target failed'}.")
    try:
        plan = validate_plan(manifest.plan) if manifest.plan is not None else None
    except ValidationError:
        raise UserError("run", str(run.directory), "a manifest with a plan that this version reads") from None
    thresholds = plan.thresholds if plan is not None else []
    clock_known = manifest.timeline == "seconds"
    own = {stage.number: lost for stage in run.stages if (lost := own_losses(run, stage))}
    checks = _asked_for(
        run,
        [
            _blamed(run, stage, check, own.get(stage.number))
            for stage in run.stages
            for check in stage_checks(stage, thresholds, clock_known=clock_known)
        ],
    )
    nothing_succeeded = _nothing_succeeded(run)
    if nothing_succeeded:
        return Verdict("failed", nothing_succeeded, checks)
    unit = manifest.load_unit
    not_made = _not_made(run)
    lost_by_us = [_own_words(run, run.stage(number), lost) for number, lost in own.items()]
    if not thresholds:
        reasons = _ended_early(run) + lost_by_us
        if reasons:
            return Verdict("withheld", f"Withheld: {reasons[0]}.", reasons=reasons)
        return Verdict("met", "No thresholds were set, so there is nothing to miss.")
    if not run.stages:
        checks = [replace(check, stage=None, size=None) for check in stage_checks(_NO_STAGE, thresholds)]
        return Verdict("withheld", "Withheld: no stage was run.", checks, _ended_early(run))
    reasons = (
        _ended_early(run)
        + _bottlenecks(run.stages, unit)
        + lost_by_us
        + list(not_made.values())
        + _gaps(checks, run.stages, unit)
    )
    if isinstance(plan, ClaimPlan) and plan.find is not None:
        outcome, sentence = _judge_find(run, checks, own)
    else:
        outcome, sentence = _judge_stages(run, checks, own)
    return Verdict(outcome, sentence, checks, reasons)


_NO_STAGE = StageResult(number=0, size=0, kind="ramp", begin=0.0)


def _observed(stage: StageResult, operation: str, limit: str, clock_known: bool) -> float | None:
    if limit == "throughput":
        return stage.throughput(operation) if clock_known else None
    if limit in _RATES:
        attempts = stage.attempts(operation)
        if not attempts:
            return None
        outcomes = ("lost",) if limit == "lost_rate" else ("error", "timeout")
        return sum(stage.count(operation, outcome) for outcome in outcomes) / attempts
    latencies = costs(stage, operation)
    return float(latencies.percentile(_PERCENTILES[limit])) if latencies.total else None


def _asked_for(run: RunData, checks: Sequence[Check]) -> list[Check]:
    """The checks without those of what a stage did not ask for (which is no gap), unless no stage did."""
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


def _blamed(run: RunData, stage: StageResult, check: Check, own: OwnLosses | None) -> Check:
    """The check, its miss taken back where the generator may have caused it.

    Too few operations are its own where a share of the load is missing.

    A latency beyond the limit by more than the generator's own delay is the target's even while the
    generator was late; so is an error, which is an answer, and so are leases lost beyond those that the
    generator may have lost (lateness.own_losses). Of a worker without a free core nothing is known.
    """
    if check.met is not False or check.observed is None:
        return check
    if check.limit == "throughput" and _load_missing(run, stage):
        return replace(check, met=None, why="a share of the load is missing")
    if check.limit == "lost_rate":
        attempts = stage.attempts(check.operation)
        if own is None or check.observed - own.count / attempts > check.allowed:
            return check
        return replace(check, met=None, why=own.why)
    reason = stage_saturated(stage)
    delay = own_delay(stage)
    if has_free_core(stage) and check.limit == "error_rate":
        return check
    if has_free_core(stage) and check.limit in _PERCENTILES:
        if check.observed > check.allowed + delay:
            return check
        reason = reason or f"the miss is within the generator's own delay ({show_us(delay)})"
    return replace(check, met=None, why=reason) if reason else check


def _own_words(run: RunData, stage: StageResult, own: OwnLosses) -> str:
    return (
        f"{show_size(own.count)} of {show_size(own.of)} leases lost {_where(run, stage)} may be the generator's "
        f"own loss: {own.why}"
    )


def _nothing_succeeded(run: RunData) -> str | None:
    """The sentence of a target that did not do a single thing it was asked for, or let nobody in to ask."""
    for operations in (run.own_load, (CONNECT,)):
        tried = {op: sum(stage.attempts(op) for stage in run.stages) for op in operations}
        if any(tried.values()):
            if any(stage.count(op) for op in operations for stage in run.stages):
                return None
            return f"Failed: none of {show_list([f'{n} {show_calls(op)}' for op, n in tried.items() if n])} succeeded."
    return None


def _ended_early(run: RunData) -> list[str]:
    reasons: list[str] = []
    if run.manifest.status in ("interrupted", "cut", "running"):
        words = {"interrupted": "was interrupted", "cut": "was cut", "running": "is still running"}
        because = f": {run.manifest.reason}" if run.manifest.reason else ""
        reasons.append(f"the run {words[run.manifest.status]}{because}")
    of_units = {unit.name for unit in run.units}
    cut = [w.name for w in run.manifest.workers if w.status == "cut" and w.name not in of_units]
    if cut:
        reasons.append(f"worker {show_list(cut)} was cut: its share of the load is missing from then on")
    return reasons + _missing_units(run)


def _missing_units(run: RunData) -> list[str]:
    """One line for each reason why units' shares are not there, or not to the end."""
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


def _not_made(run: RunData) -> dict[int, str]:
    """By stage whose load of containers was not whole, how many were given up and why, or were just not there."""
    given_up = [
        event for event in run.events if event["event"] == "gave-up" and event.get("operation") in MAKING
    ]
    found: dict[int, str] = {}
    for stage in run.stages:
        end = stage.end if stage.end is not None else float("inf")
        inside = [event for event in given_up if stage.begin <= float(event["t"]) <= end]
        if inside:
            count = sum(count_of(event) for event in inside)
            why = f"{inside[-1].get('operation')}: {inside[-1].get('error')}"
            found[stage.number] = (
                f"{show_size(count)} {run.things} of stage {stage.number} were given up ({why})"
            )
        elif (
            run.manifest.load_unit in ("containers", "servers")
            and stage.kind == "ramp"
            and stage.hold_begin is not None
        ):
            held = stage.gauges.get("held", stage.size)
            if held < stage.size:
                found[stage.number] = (
                    f"{show_size(stage.size - held)} of the {show_size(stage.size)} {run.things} of stage "
                    f"{stage.number} were not there while it was held"
                )
    return found


def _bottlenecks(stages: Iterable[StageResult], unit: str) -> list[str]:
    return [
        f"stage {stage.number} ({show_size(stage.size)} {unit}): the generator itself was strained: {why}"
        for stage in stages
        if (why := stage_saturated(stage))
    ]


def _gaps(checks: Iterable[Check], stages: Sequence[StageResult], unit: str) -> list[str]:
    """One line per limit that had stages without anything to measure."""
    missing: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        if check.observed is None and check.size is not None:
            missing.setdefault((check.operation, check.limit), []).append(show_size(check.size))
    return [
        f"{operation} {limit} was never measured"
        if len(sizes) == len(stages)
        else f"{operation} {limit} was not measured at {show_list(sizes)} {unit}"
        for (operation, limit), sizes in missing.items()
    ]


def _judge_stages(run: RunData, checks: list[Check], own: Mapping[int, OwnLosses]) -> tuple[Outcome, str]:
    unit = run.manifest.load_unit
    missed = [check for check in checks if check.met is False]
    if missed:
        return "missed", f"Missed: {_first_miss(run, missed)}{_held_through(run, checks)}."
    doubted = [check for check in checks if check.met is None and check.observed is not None]
    held = _held_through(run, checks)
    if doubted:
        worst = _first_of(run, doubted)
        return "withheld", f"Withheld: {_saw(run, worst)}, but {worst.why}{held}."
    unmeasured = _unmeasured_at_the_top(run, checks)
    if unmeasured is not None:
        where = "" if unmeasured.stage is None else f" at {show_size(unmeasured.size or 0)} {unit}"
        return (
            "withheld",
            f"Withheld: {unmeasured.operation} {unmeasured.limit} was not measured{where}{held}.",
        )
    cut = [stage for stage in run.stages if _load_missing(run, stage)]
    if cut:
        where = f"from {show_size(min(stage.size for stage in cut))} {unit} on"
        why = next(iter(_missing_units(run)), f"a worker was cut, so load is missing {where}")
        return "withheld", f"Withheld: {why}{held}."
    if run.manifest.status in ("interrupted", "cut", "running"):
        return "withheld", f"Withheld: {_ended_early(run)[0]}{held}."
    for number, lost in own.items():
        return "withheld", f"Withheld: {_own_words(run, run.stage(number), lost)}{held}."
    for sentence in _not_made(run).values():
        return "withheld", f"Withheld: {sentence}{held}."
    largest = max(stage.size for stage in run.stages)
    limits = len({(check.operation, check.limit) for check in checks})
    every = "the threshold" if limits == 1 else f"all {limits} thresholds"
    return "met", f"Met: {every} held through {show_size(largest)} {unit}."


def _judge_find(run: RunData, checks: list[Check], own: Mapping[int, OwnLosses]) -> tuple[Outcome, str]:
    """What the search came to. A load beyond the answer that misses a threshold is how the answer is found."""
    unit = run.manifest.load_unit
    found = next((event for event in reversed(run.events) if event["event"] == "found"), None)
    if found is None:
        why = (_ended_early(run) or ["the search has no answer"])[0]
        return "withheld", f"Withheld: {why}{_held_through(run, checks)}."
    held: int | None = found.get("held")
    broken: int | None = found.get("broken")
    at_broken = [check for check in checks if check.size == broken and check.met is not True]
    missed = [check for check in at_broken if check.met is False]
    beyond = ""
    if broken is not None and at_broken:
        worst = _first_of(run, missed or at_broken)
        beyond = f"; {_saw(run, worst)}" + (
            f", but {worst.why}" if worst.met is None and worst.observed else ""
        )
    if held is None:
        if not missed:
            return "withheld", f"Withheld: no load was shown to hold{beyond}."
        return "missed", f"Missed: not even {show_size(broken or 0)} {unit} held{beyond}."
    if not found.get("confirmed"):
        return (
            "withheld",
            f"Withheld: {show_size(held)} {unit} held once, but repeats did not confirm it{beyond}.",
        )
    repeats = f"confirmed by {found['agreeing']} of {found['repeats']} repeats"
    if broken is not None and not missed:
        return (
            "withheld",
            f"Withheld: the thresholds held up to {show_size(held)} {unit} ({repeats}){beyond}.",
        )
    if any(_load_missing(run, stage) for stage in run.stages):
        return "withheld", f"Withheld: a worker was cut, so load is missing; {show_size(held)} {unit} held."
    for stage in run.stages:
        if stage.number in own and stage.size <= held:
            return "withheld", f"Withheld: {_own_words(run, stage, own[stage.number])}{beyond}."
    limit = "; the search's limit" if broken is None else ""
    return "met", f"Met: the thresholds hold up to {show_size(held)} {unit} ({repeats}{limit}){beyond}."


def _load_missing(run: RunData, stage: StageResult) -> bool:
    cuts = [float(event["t"]) for event in run.events if event["event"] == "worker-cut"]
    return bool(cuts) and (stage.end is None or stage.end > min(cuts))


def _unmeasured_at_the_top(run: RunData, checks: list[Check]) -> Check | None:
    """A limit without anything to measure at the largest load: then nobody knows whether that load holds."""
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


def _held_through(run: RunData, checks: list[Check]) -> str:
    """Up to which load every check of every stage was met, by the stages that are steps of that ladder."""
    steps = {stage.number for stage in run.stages if stage.is_step}
    ladder: dict[int, bool] = {}
    missing = {stage.number for stage in run.stages if _load_missing(run, stage)} | set(_not_made(run))
    for check in checks:
        if check.stage in steps and check.size is not None:
            whole = check.met is True and check.stage not in missing
            ladder[check.size] = ladder.get(check.size, True) and whole
    held: int | None = None
    for size in sorted(ladder):
        if not ladder[size]:
            break
        held = size
    return f"; held through {show_size(held)} {run.manifest.load_unit}" if held is not None else ""


def _first_miss(run: RunData, missed: list[Check]) -> str:
    first = _first_of(run, missed)
    more = len({(check.operation, check.limit) for check in missed}) - 1
    others = f" and {more} other threshold{'s' if more > 1 else ''}" if more else ""
    return _saw(run, first) + others


def _first_of(run: RunData, checks: list[Check]) -> Check:
    """The check to name: at the smallest load, storms and removals last, there the furthest beyond its limit."""

    def rank(check: Check) -> tuple[bool, int, float]:
        no_step = check.stage is not None and not run.stage(check.stage).is_step
        return no_step, check.size or 0, -_excess(check)

    return min(checks, key=rank)


def _excess(check: Check) -> float:
    if check.observed is None:
        return 0.0
    small = 1e-9
    if check.limit == "throughput":
        return check.allowed / max(check.observed, small)
    return check.observed / max(check.allowed, small)


def _saw(run: RunData, check: Check) -> str:
    name = "p99.9" if check.limit == "p999" else check.limit.replace("_", " ")
    where = (
        f"at {show_size(check.size or 0)} {run.manifest.load_unit}"
        if check.stage is None
        else _where(run, run.stage(check.stage))
    )
    if check.observed is None:
        return f"{check.operation} {name} was not measured {where}"
    return (
        f"{check.operation} {name} was {_show(check.limit, check.observed)} {where} "
        f"(limit {_show(check.limit, check.allowed)}{_on_purpose(run, check)})"
    )


def _where(run: RunData, stage: StageResult) -> str:
    return show_load(stage.size, run.manifest.load_unit, stage.kind)


def _on_purpose(run: RunData, check: Check) -> str:
    """Which members a fault had taken away while that was measured."""
    if check.stage is None:
        return ""
    stage = run.stage(check.stage)
    end = stage.end if stage.end is not None else float("inf")
    gone = sorted(
        {member for begin, until, member in fault_times(run.events) if begin < end and until > stage.begin}
    )
    return f"; {show_list(gone)} {'was' if len(gone) == 1 else 'were'} down on purpose" if gone else ""


def _show(limit: str, value: float) -> str:
    if limit in _PERCENTILES:
        return show_us(value)
    return show_share(value) if limit in _RATES else f"{value:.4g}/s"
