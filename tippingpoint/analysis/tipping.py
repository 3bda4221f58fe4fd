"""Finds the tipping point of a run: the knee of each operation, the cliff, storms, the forecast, and a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Literal

from tippingpoint.analysis.check_words import first_misses, miss_words
from tippingpoint.analysis.cliff import (
    SIGNIFICANT,
    Cliff,
    Load,
    find_cliff,
    improbability,
)
from tippingpoint.analysis.fault_spans import lasting_faults
from tippingpoint.analysis.fill_rate import Fill, fill_words
from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.knee import Knee, NoKnee, find_knee
from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.search.found import Found
from tippingpoint.analysis.thresholds import Check
from tippingpoint.analysis.usl import Forecast, forecast
from tippingpoint.rundir.cluster_events import Cluster
from tippingpoint.rundir.operations import OWN_CALLS, REMOVING
from tippingpoint.rundir.results import RunData
from tippingpoint.util.numbers import show_us
from tippingpoint.util.text import show_amount, show_calls, show_list, show_size

Sign = Literal["cliff", "threshold", "knee", "limit"]
_WEIGHT: dict[Sign, int] = {"cliff": 0, "threshold": 1, "knee": 2, "limit": 3}
"""The order in which signs at the same load are named."""


@dataclass(frozen=True)
class TippingPoint:
    """The tipping point of a target, between two loads: the first of knee, cliff and missed threshold.

    In a search, the limit found is the tipping point (`by` is limit), and the two loads are its 95 % interval.
    """

    last_held: float | None
    """The largest load below it that was held; None if there is none."""
    first_beyond: float
    """The first load with the sign: latency off its plateau, losses or failures, or a missed threshold."""
    by: Sign
    operation: str
    """The operation that shows the sign; empty if the workload as a whole does."""
    evidence: str
    """The evidence in a few words: "extend leaves its plateau (1.2 ms to 23 s)"."""
    doubt: str = ""
    """Why this says little about the target: an injected fault, or the generator itself; empty if there is no doubt."""


@dataclass(frozen=True)
class StormOutcome:
    """The outcome of one operation in a storm, in which everything was claimed at once."""

    stage: int
    size: float
    operation: str
    attempts: int
    failed: int
    """The attempts that were lost, timed out or ended in an error."""
    p99_us: int
    """The 99th percentile of the time that successes and failures took, in microseconds."""
    broke: bool
    """Whether more failed than the loads before the storm explain."""


@dataclass(frozen=True)
class Tipping:
    """The tipping point of a run, and the signs that show it."""

    point: TippingPoint | None
    """The first sign of tipping; None if no load showed any."""
    knees: dict[str, Knee]
    """The knee of each operation with a knee."""
    no_knee: dict[str, str]
    """Why each of the other operations has no knee."""
    cliff: Cliff | None
    storms: list[StormOutcome]
    forecast: Forecast | None
    no_forecast: str
    """Why there is no forecast; empty if there is one."""
    notes: list[str]
    """Signs that do not count, such as a failure that did not recur at larger loads, or an injected fault."""
    sentence: str


def find_tipping(
    findings: Findings,
    loads: Sequence[Load],
    checks: Sequence[Check],
    cluster: Cluster,
    fills: Sequence[Fill],
    found: Found | None = None,
) -> Tipping:
    """Find the tipping point of a run. The same run always gives the same answer.

    `loads` are the run's loads, and `checks` those of its verdict. `cluster` and `fills` are part of the sentence. The
    tipping point of a search is the answer `found`; single probes add no further signs.

    Knees and forecast leave out storms, removals and loads with an injected fault. The cliff does not treat such loads
    as normal. Only the throughput of leases says something about the target, because they are renewed while they are
    held. Otherwise the plan decides how many things are created per second. Containers are created as fast as possible
    unless the plan sets a rate. The sentence says whether this slowed down as their number grew.
    """
    run = findings.run
    judged = [operation for operation in run.operations if operation not in OWN_CALLS]
    goes_on = run.goes_on
    clock_known = run.manifest.timeline == "seconds"
    undisturbed = [stage for load in loads if not load.faulted for stage in load.stages]
    bends = {op: find_knee(undisturbed, op) for op in judged if op not in REMOVING}
    cliff, notes = find_cliff(loads, judged, rates_known=clock_known and goes_on)
    breaks_at = cliff.first_broken if cliff is not None and not cliff.during_fault else None
    predicted: Forecast | str = _NO_THROUGHPUT[run.instances]
    if goes_on:
        predicted = forecast(loads, clock_known=clock_known, breaks_at=breaks_at)
    storms = _storms(run, loads, cliff)
    if found is not None:
        return _of_search(found, bends, storms, predicted)
    signs = _signs(findings, bends, cliff, checks)
    point = signs[0] if signs else None
    return Tipping(
        point=point,
        knees={operation: bend for operation, bend in bends.items() if isinstance(bend, Knee)},
        no_knee={operation: bend.reason for operation, bend in bends.items() if isinstance(bend, NoKnee)},
        cliff=cliff,
        storms=storms,
        forecast=predicted if isinstance(predicted, Forecast) else None,
        no_forecast=predicted if isinstance(predicted, str) else "",
        notes=notes,
        sentence=" ".join(
            [
                _sentence(findings, loads, bends, signs, checks, storms, cliff),
                *_gone_meanwhile(run, cluster, cliff),
                *(fill_words(fill, len(fills) == 1, run.things) for fill in fills if fill.slower),
            ]
        ),
    )


def _of_search(
    found: Found,
    bends: Mapping[str, Knee | NoKnee],
    storms: list[StormOutcome],
    predicted: Forecast | str,
) -> Tipping:
    """Return the tipping point of a search: between the bounds of its answer's interval."""
    answer = found.answer
    point = None
    if answer.limit is not None and found.broken is not None:
        operation, _, _ = answer.binds.partition(" ")
        held = floor(answer.low) or None
        evidence = f"limited by {found.binds}"
        point = TippingPoint(held, ceil(found.broken), "limit", operation, evidence, answer.drifts)
    return Tipping(
        point=point,
        knees={operation: bend for operation, bend in bends.items() if isinstance(bend, Knee)},
        no_knee={operation: bend.reason for operation, bend in bends.items() if isinstance(bend, NoKnee)},
        cliff=None,
        storms=storms,
        forecast=predicted if isinstance(predicted, Forecast) else None,
        no_forecast=predicted if isinstance(predicted, str) else "",
        notes=[],
        sentence=found.sentence,
    )


_NAMED_SINGLY = 2
_NO_THROUGHPUT = {
    False: "the plan sets the rate of creation, so throughput does not characterise the target",
    True: "there is no throughput while a stage is held: everything is created before",
}


def _gone_meanwhile(run: RunData, cluster: Cluster, cliff: Cliff | None) -> list[str]:
    """Return a remark on a cliff at which members were missing without an injected fault."""
    if cliff is None or cliff.during_fault:
        return []
    stage = run.stage(cliff.stage)
    gone = cluster.gone(stage.begin, stage.end if stage.end is not None else float("inf"))
    if not gone:
        return []
    who = show_list(gone) if len(gone) <= _NAMED_SINGLY else f"{len(gone)} members"
    return [
        f"{who} {'was' if len(gone) == 1 else 'were'} away at that time, so the load may not be the cause."
    ]


def _storms(run: RunData, loads: Sequence[Load], cliff: Cliff | None) -> list[StormOutcome]:
    held = [load for load in loads if not load.faulted and (cliff is None or load.size < cliff.first_broken)]
    outcomes: list[StormOutcome] = []
    for stage in run.stages:
        if stage.kind != "storm":
            continue
        for operation in run.operations:
            attempts, failed = stage.attempts(operation), stage.failures(operation)
            if not attempts:
                continue
            chance = improbability(
                failed,
                attempts,
                sum(s.failures(operation) for load in held for s in load.stages),
                sum(load.attempts(operation) for load in held),
            )
            p99 = costs(stage, operation).percentile(99)
            outcomes.append(
                StormOutcome(stage.number, stage.size, operation, attempts, failed, p99, chance < SIGNIFICANT)
            )
    return outcomes


def _signs(
    findings: Findings, bends: Mapping[str, Knee | NoKnee], cliff: Cliff | None, checks: Sequence[Check]
) -> list[TippingPoint]:
    """Return every sign of tipping, the one at the smallest load first; doubtful ones come last.

    A knee before the smallest load is not a sign, because no load was on the plateau.
    """
    run, held = findings.run, findings.loads_held
    signs: list[TippingPoint] = []
    for knee in bends.values():
        if isinstance(knee, Knee) and knee.after_size is not None:
            last = max((size for size in held if size <= knee.after_size), default=None)
            evidence = f"{knee.operation} leaves its plateau ({_growth(knee)})"
            signs.append(TippingPoint(last, knee.before_size, "knee", knee.operation, evidence))
    if cliff is not None:
        doubt = ON_PURPOSE if cliff.during_fault else cliff.doubt
        signs.append(
            TippingPoint(cliff.last_held, cliff.first_broken, "cliff", cliff.operation, cliff.evidence, doubt)
        )
    faults = lasting_faults(run.events)
    faulted = {
        stage.number
        for stage in run.stages
        if any(stage.overlaps(fault.begin, fault.until) for fault in faults)
    }
    undisturbed = first_misses(run, [check for check in checks if check.stage not in faulted])
    misses = undisturbed or first_misses(run, checks)
    if misses:
        first = misses[0].size or 0
        last = max((size for size in held if size < first), default=None)
        evidence = miss_words(run, misses[0])
        doubt = "" if undisturbed else ON_PURPOSE
        signs.append(TippingPoint(last, first, "threshold", misses[0].operation, evidence, doubt))
    return sorted(signs, key=lambda sign: (bool(sign.doubt), sign.first_beyond, _WEIGHT[sign.by]))


ON_PURPOSE = "a fault was injected on purpose"
"""The doubt about a sign of tipping that a fault of the plan explains."""


def _sentence(
    findings: Findings,
    loads: Sequence[Load],
    bends: Mapping[str, Knee | NoKnee],
    signs: Sequence[TippingPoint],
    checks: Sequence[Check],
    storms: Sequence[StormOutcome],
    cliff: Cliff | None,
) -> str:
    unit = findings.run.manifest.load_unit
    sentences: list[str] = []
    if loads:
        first = signs[0] if signs else None
        parts = [_point_words(unit, loads, first) if first is not None else _stood(findings, loads, checks)]
        parts += [_further(first, sign) for sign in signs[1:] if first is not None and sign.by != "knee"]
        if first is not None and all(sign.by == "knee" for sign in signs):
            parts.append(_no_cliff(findings, loads))
        told = _bends(unit, bends, first.operation if first is not None and first.by == "knee" else "")
        sentences.append("; ".join([*parts, *([told] if told else [])]) + ".")
    sentences += _without_threshold(cliff, loads, checks)
    for doubt in dict.fromkeys(sign.doubt for sign in signs if sign.doubt):
        if doubt == ON_PURPOSE:
            sentences.append(
                "A fault was injected on purpose at that load, so the load may not be the cause."
            )
        else:
            sentences.append(f"The target may not be the cause: {doubt}.")
    sentences += [
        _storm_words(unit, [storm for storm in storms if storm.stage == stage])
        for stage in sorted({storm.stage for storm in storms})
    ]
    return " ".join(sentences) or "Nothing was measured."


def _without_threshold(cliff: Cliff | None, loads: Sequence[Load], checks: Sequence[Check]) -> list[str]:
    """If all thresholds are met, as the verdict says, explain that none covers the cliff, or that they allow it.

    A load that the target did not hold is itself a miss. A limit without a measurement at some load, such as a limit on
    claims where none were made, is not.
    """
    if cliff is None or not any(check.met for check in checks):
        return []
    if any(check.met is False or check.is_doubtful for check in checks):
        return []
    if any(load.failed_to_hold for load in loads if load.size == cliff.first_broken):
        return []
    operation = cliff.operation
    about = [operation] if operation else [name for load in loads for name in load.own_load]
    limits = {check.limit for check in checks if check.operation in about}
    if operation and not limits:
        return [f"No threshold is about {operation}."]
    limit, what = {
        "lost": ("lost_rate", f"lost {show_calls(operation)}"),
        "error": ("error_rate", f"failed {show_calls(operation)}"),
        "throughput": ("throughput", "throughput"),
        "leader": ("", "leaders"),
        "violation": ("", "correctness"),
    }[cliff.by]
    return ["The thresholds allow that."] if limit in limits else [f"No threshold is about {what}."]


def _point_words(unit: str, loads: Sequence[Load], point: TippingPoint) -> str:
    beyond = show_amount(point.first_beyond, unit)
    smallest = point.first_beyond <= loads[0].size
    if point.last_held is None:
        verb = (
            "Tips"
            if point.by == "knee"
            else "Reaches a cliff"
            if point.by == "cliff"
            else "Misses a threshold"
        )
        where = f"at {beyond}, the smallest load tried" if smallest else f"at {beyond} or less"
        return f"{verb} {where}: {point.evidence}"
    verb = "Tips" if not point.doubt else "Reaches a cliff" if point.by == "cliff" else "Misses a threshold"
    at = f" at {show_size(point.first_beyond)}" if point.by != "knee" else ""
    return f"{verb} between {show_size(point.last_held)} and {beyond}: {point.evidence}{at}"


def _further(first: TippingPoint, sign: TippingPoint) -> str:
    """Describe a further sign, at the same load or a larger one."""
    at = show_size(sign.first_beyond)
    if sign.by == "threshold":
        return f"{sign.evidence} at {at}"
    between = f"between {show_size(sign.last_held)} and {at}" if sign.last_held is not None else f"at {at}"
    where = f"at {at}" if sign.first_beyond == first.first_beyond else between
    return f"cliff {where}: {sign.evidence}"


def _stood(findings: Findings, loads: Sequence[Load], checks: Sequence[Check]) -> str:
    """Describe a target that did not tip. Storms and removals may still miss a threshold."""
    unit, held = findings.run.manifest.load_unit, findings.loads_held
    if not held:
        largest = loads[-1]
        found = (findings.of(stage.number).why_not_held for stage in largest.stages)
        why = next((why for why in found if why), "")
        return f"No load was sustained. At {show_amount(largest.size, unit)}, {why}"
    missed = any(check.met is False for check in checks)
    if unit == "tests" and not missed:
        return "The cluster's own tests raise no load, so there is no tipping point to find"
    words = "No cliff" if missed else "No sign of tipping"
    tried = "the largest tried" if len(loads) > 1 else "the only load tried"
    if held[-1] != loads[-1].size:
        tried = "the largest that was sustained"
    return f"{words} up to {show_amount(held[-1], unit)} ({tried}){_though(findings, loads)}"


def _no_cliff(findings: Findings, loads: Sequence[Load]) -> str:
    """Describe the loads that held, in addition to a knee if there is no cliff and no threshold is missed."""
    held = findings.loads_held
    return (
        f"no cliff up to {show_size(held[-1])}{_though(findings, loads)}" if held else "no load was sustained"
    )


def _though(findings: Findings, loads: Sequence[Load]) -> str:
    """Name the loads that were not held although a larger one was, and those that were held only in some tries."""
    held = findings.loads_held
    below = [show_size(load.size) for load in loads if load.size < held[-1] and load.size not in held]
    words = [f"not {show_list(below)}"] if below else []
    for load in loads:
        tries = [findings.of(stage.number) for stage in load.stages]
        failed = sum(bool(each.failed_to_hold and not each.cut_short) for each in tries)
        if load.size in held and failed:
            words.append(f"not in {failed} of {len(tries)} tries of {show_size(load.size)}")
    return f", though {show_list(words)}" if words else ""


def _growth(knee: Knee) -> str:
    return f"{show_us(knee.plateau_us)} to {show_us(knee.beyond_us)}"


def _bends(unit: str, bends: Mapping[str, Knee | NoKnee], told: str) -> str:
    """Say where operations leave their plateaus, and which do not; skip the operation that was already `told`.

    Knees use quartiles, so only typical calls are known to stay on the plateau: the slowest ones may not.
    """
    words: list[str] = []
    flat = [operation for operation, bend in bends.items() if isinstance(bend, NoKnee) and bend.on_plateau]
    for operation, bend in bends.items():
        if isinstance(bend, Knee) and operation != told:
            if bend.after_size is None:
                where = f"already before {show_amount(bend.before_size, unit)}"
            else:
                where = f"between {show_size(bend.after_size)} and {show_amount(bend.before_size, unit)}"
            words.append(f"{operation} leaves its plateau {where} ({_growth(bend)})")
    if len(flat) == 1:
        words.append(f"the typical {show_calls(flat[0], 1)} stays on its plateau")
    elif flat:
        words.append(f"typical calls of {show_list(flat)} stay on their plateaus")
    return ", ".join(words)


def _storm_words(unit: str, storms: Sequence[StormOutcome]) -> str:
    failures = [
        f"{s.failed:,} of {s.attempts:,} {show_calls(s.operation, s.attempts)} failed"
        for s in storms
        if s.failed
    ]
    stood = [
        f"{f'all {s.attempts:,}' if s.attempts > 1 else 'the only'} {show_calls(s.operation, s.attempts)} succeeded"
        for s in storms
        if not s.failed
    ]
    happened = show_list(failures + stood)
    return f"In the restart storm of {show_amount(storms[0].size, unit)} {happened}."
