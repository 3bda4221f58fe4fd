"""Builds a run's document: a plain, versioned dictionary, which is the JSON format. Other formats render it.

Latencies are in microseconds, shares in 0..1, rates per second, times in seconds since the run's start, and loads in
`run.load_unit`. None means "not measured". Each part is described by the function that builds it. Within one `format`,
keys may be added but never change their meaning.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, cast

from tippingpoint import __version__
from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.generator_health import show_stall, show_state, show_worker
from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.thresholds import Check
from tippingpoint.analysis.tipping import Tipping
from tippingpoint.analysis.usl import Forecast
from tippingpoint.errors import UserError
from tippingpoint.plan.cts import CTS_STEPS
from tippingpoint.plan.kinds import facts_of
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.plan.shipped import plan_text
from tippingpoint.report import figures
from tippingpoint.report.sections.causes import build_causes
from tippingpoint.report.sections.cautions import build_cautions
from tippingpoint.report.sections.cluster_tests import build_cluster_tests
from tippingpoint.report.sections.glance import build_glance
from tippingpoint.report.sections.happened import build_happened
from tippingpoint.report.sections.instances import (
    build_fill,
    build_members,
    build_retries,
    build_timings,
    cluster_marks,
    members_over_time,
)
from tippingpoint.report.sections.landing import agent_marks, build_agents, build_spread
from tippingpoint.report.sections.life import build_life
from tippingpoint.report.sections.operation_costs import build_operation_costs
from tippingpoint.report.sections.processors import build_processors
from tippingpoint.report.sections.profiles import build_profiles
from tippingpoint.report.sections.recovery import build_comeback, build_recovery
from tippingpoint.report.sections.resources import build_resources, leader_marks
from tippingpoint.report.sections.search import build_search
from tippingpoint.report.sections.timeline import build_timeline, is_lost_connection
from tippingpoint.rundir.cluster_events import Cluster
from tippingpoint.rundir.event_words import event_words
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.manifest import Places
from tippingpoint.rundir.operations import CONNECT, OBSERVING, OWN_CALLS
from tippingpoint.rundir.profiles import NOT_TAKEN, TAKEN
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.standstills import STALL, Stall
from tippingpoint.rundir.tags import LOOP_LAG, OUTCOMES, SCHEDULE_LAG, tag
from tippingpoint.rundir.takeovers import KIND as TAKEN_UP
from tippingpoint.rundir.takeovers import takeovers
from tippingpoint.util.numbers import show_us, show_value
from tippingpoint.util.text import choose, show_amount, show_count, show_processors

FORMAT = 1
_CURVE_POINTS = 80
_SINGLE_EVENTS = 10
_ERROR_CODE = re.compile(r"\(([a-z][a-z ,'-]*)\)$")
"""The end of a Juju controller's error, which is its code: (not found)."""
_ON_CHARTS = (
    *("fault", "fault-failed", "worker-cut", TAKEN_UP, "interrupted", "aborted"),
    *("silence", "undone", "quorum", "controller"),
)
_NOTES = ("note", "left-behind", "left-to-expire", "journal-lost", "fault-failed", "room-unknown")
_OF_TESTS = ("test", "repair", "node-load")
_OF_CLUSTERS = ("member", "leader", "placed", "retry", "gave-up", "repaired", "agent", "landed")
_OF_RALLY = {"boot_server": 0, "create_server": 1, "await_active": 1, "delete_server": 0, "total": 0}
"""The rows of Rally's table, in its order, and their depth: parts of an action follow it."""
_TOLD_ELSEWHERE = (
    *("lost", "error", "timeout", "probe", "found", "recovering", "prepared", STALL, TAKEN, NOT_TAKEN),
    *(*_OF_CLUSTERS, *_OF_TESTS, *_NOTES),
)
_NO_PROBE = "not judged in any probe"
_MOST_STALLS = 100
"""The maximum number of stalls that are listed, the longest ones."""
_STALLS_ON_CHARTS = 20


def build_document(analysis: Analysis) -> dict[str, Any]:
    """Build a run's document."""
    run, verdict, cluster = analysis.run, analysis.verdict, analysis.cluster
    operations = run.operations
    timeline = build_timeline(run, operations)
    if timeline is not None:
        timeline["members"] = members_over_time(cluster, len(timeline["t"]), timeline["bin_seconds"])
    stages = [_stage(stage, operations) for stage in run.stages]
    events = _events(run, cluster)
    tests = build_cluster_tests(run)
    return {
        "format": FORMAT,
        "kind": "run",
        "made_by": f"tippingpoint {__version__}",
        "run": _run(run),
        "verdict": {
            "outcome": verdict.outcome,
            "exit_code": verdict.exit_code,
            "sentence": verdict.sentence,
            "reasons": verdict.reasons,
            "checks": [_check(check) for check in verdict.checks],
        },
        "glance": build_glance(analysis, tests.get("cluster_tests")),
        "cautions": build_cautions(analysis),
        "damage": [asdict(damage) for damage in run.damage],
        "thresholds": _thresholds(analysis),
        "tipping": tipping_entry(analysis.tipping),
        "causes": build_causes(analysis.causes),
        **build_profiles(analysis.profiled),
        "operations": operations,
        "loading": _loading(run, operations),
        "observing": [name for name in operations if name in OBSERVING],
        "outcomes": _outcomes(run, operations),
        "stages": stages,
        "has_service_times": any(o["service"] for stage in stages for o in stage["operations"].values()),
        "by_load": _by_load(run, operations),
        "growth": _growth(run),
        "fill": build_fill(run, analysis.fills),
        "timings": build_timings(run, cluster),
        "members": build_members(run, cluster),
        "spread": build_spread(run, cluster),
        "agents": build_agents(run, cluster),
        "life": build_life(run, operations),
        **tests,
        "rally": _rally(run, operations),
        **build_retries(run.events),
        "timeline": timeline,
        "no_timeline": _why_no_timeline(run),
        "resources": build_resources(run, analysis.costs),
        **build_operation_costs(analysis.operation_costs),
        **build_processors(run),
        "generator": _generator(run),
        "units": _units(run),
        "search": build_search(analysis),
        **build_recovery(analysis.aftermaths),
        **build_comeback(analysis.comeback),
        "events": events,
        "happened": build_happened(run, [mark for mark in events["marks"] if mark["kind"] != STALL]),
        "notes": _notes(run),
        "repeat": _repeat(run, analysis.findings.plan),
    }


def _loading(run: RunData, operations: Iterable[str]) -> list[str]:
    """Return the operations that charts against the load show. A cluster's tests have a section of their own."""
    if run.manifest.workload == "cts":
        return [name for name in operations if name in CTS_STEPS]
    return [name for name in operations if name not in (*OBSERVING, *OWN_CALLS)]


def _outcomes(run: RunData, operations: Iterable[str]) -> list[str]:
    """Return the workload's usual outcomes, and any others that occurred."""
    always = (
        ("ok", "denied", "lost", "timeout", "error")
        if run.manifest.workload == "claim"
        else (
            "ok",
            "timeout",
            "error",
        )
    )
    names = list(operations)
    return [
        outcome
        for outcome in OUTCOMES
        if outcome in always or any(stage.count(name, outcome) for stage in run.stages for name in names)
    ]


def _run(run: RunData) -> dict[str, Any]:
    """Describe the run, its target and its generator. `seconds` is the run's duration, `sizes` are the stages' sizes.

    `identity` and `controller` are a Juju target's. `simulated` is true for a simulator. `prepared` has the things that
    all workers created before the first stage, and how long this took.
    """
    manifest = run.manifest
    plan = manifest.plan or {}
    target = manifest.target.model_dump()
    named = _planned_target(run)
    simulated = "simulat" in " ".join([target["version"], *target["members"]]).lower()
    return {
        "id": manifest.id,
        "title": manifest.title,
        "plan": plan.get("name"),
        "description": str(plan.get("description") or ""),
        "source": manifest.source,
        "origin": manifest.origin,
        "workload": manifest.workload,
        "load_unit": manifest.load_unit,
        "things": run.things,
        "instances": run.instances,
        "timeline": manifest.timeline,
        "status": manifest.status,
        "reason": manifest.reason,
        "started": _utc(manifest.started),
        "ended": _utc(manifest.ended),
        "seconds": _seconds(run),
        "target": target,
        "identity": _identity(named),
        "controller": target.get("controller") or named.get("controller"),
        "simulated": simulated,
        "prepared": _prepared(run.events),
        "host": manifest.host.model_dump() if manifest.host else None,
        **({"places": manifest.places.model_dump()} if manifest.places else {}),
        "workers": [worker.model_dump() for worker in manifest.workers],
        "sizes": [stage.size for stage in run.stages],
    }


def _seconds(run: RunData) -> float | None:
    """Return how long a run took. If a part was cut off, its end is by the wall clock, which may have been set back."""
    manifest = run.manifest
    if manifest.ended is None:
        return None
    moments = [float(event["t"]) for event in run.events] if manifest.timeline == "seconds" else []
    return max(0.0, manifest.ended - manifest.started, *moments)


def _identity(target: Mapping[str, Any]) -> str | None:
    """Return the identity with which units log in, if a plan for this kind of target specifies it."""
    field = facts_of(str(target.get("kind", ""))).model_fields.get("identity")
    return None if field is None else str(target.get("identity", field.default))


def _prepared(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return things by name, and `seconds`; None if nothing was created before the stages."""
    last = {event.get("worker"): event for event in events if event["event"] == "prepared"}
    if not last:
        return None
    things: dict[str, int] = defaultdict(int)
    seconds = 0.0
    for event in last.values():
        told = _without(event, "t", "event", "worker")
        spent = told.pop("seconds", 0.0)
        seconds = max(seconds, float(spent)) if isinstance(spent, int | float) else seconds
        for name, count in told.items():
            things[name] += count if isinstance(count, int) else 0
    return {"seconds": seconds, "things": dict(things)}


def _utc(moment: float | None) -> str | None:
    return None if moment is None else time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(moment))


def _check(check: Check) -> dict[str, Any]:
    """Return a check; only checks of figures have a unit."""
    names = ["operation", "limit", "allowed", "observed", "stage", "size", "met", "why"]
    return {name: getattr(check, name) for name in (*names, *(["unit"] if check.is_figure else []))}


def _thresholds(analysis: Analysis) -> list[dict[str, Any]]:
    """Return one entry per limit of the plan: its worst stage, the number of stages that missed it, a sentence.

    The worst stage of a search is one of those up to its answer: larger loads are tried only to find the limit. It
    also says how many of all probes missed the threshold, or did not judge it.
    """
    load_unit = analysis.run.manifest.load_unit
    groups: dict[tuple[str, str, float], list[Check]] = defaultdict(list)
    for check in analysis.verdict.checks:
        groups[check.operation, check.limit, check.allowed].append(check)
    entries: list[dict[str, Any]] = []
    for (operation, limit, allowed), group in groups.items():
        counting = _counting(analysis, group)
        worst = (
            _worst(counting)
            if counting
            else replace(group[0], observed=None, stage=None, size=None, met=None)
        )
        missed = sum(check.met is False for check in counting)
        probes = _probes(analysis, group[0])
        if probes == _NO_PROBE:
            worst = replace(worst, met=None)
        entries.append(
            {
                "operation": operation,
                "limit": limit,
                "allowed": allowed,
                "worst": worst.observed,
                "stage": worst.stage,
                "size": worst.size,
                "met": worst.met,
                "why": worst.why if counting else "no load up to the search's answer was judged",
                "stages": len(counting),
                "stages_missed": missed,
                "stages_unjudged": sum(check.met is None for check in counting),
                "sentence": _threshold_sentence(worst, missed, len(counting), load_unit, probes),
            }
            | ({"unit": worst.unit} if worst.is_figure else {})
            | ({"probes": probes} if probes else {})
        )
    return entries


def _counting(analysis: Analysis, group: Sequence[Check]) -> list[Check]:
    """Return the checks that count: in a search, those up to its answer. What one probe did not judge, others did."""
    last = analysis.found.held if analysis.found is not None else None
    counting = [check for check in group if last is None or check.size is None or check.size <= last]
    if analysis.found is not None and any(check.met is True for check in counting):
        return [check for check in counting if check.met is not None]
    return counting


def _probes(analysis: Analysis, check: Check) -> str:
    """Say how many of a search's probes missed a threshold: missed in 6 of 11 probes, not judged in 2.

    It is empty without a search. It names the smallest load that missed the threshold, because the entry only covers
    loads up to the search's answer.
    """
    if analysis.found is None:
        return ""
    missed, unjudged = analysis.found.outcomes(check.name)
    if unjudged == len(analysis.found.probes):
        return _NO_PROBE
    words = f"missed in {len(missed) or 'none'} of {show_count(len(analysis.found.probes), 'probe')}"
    if missed:
        words += f", the smallest at {show_amount(min(missed), analysis.run.manifest.load_unit)}"
    return f"{words}, not judged in {unjudged}" if unjudged else words


def _worst(group: Sequence[Check]) -> Check:
    """Return the check that decides: the missed one furthest beyond its limit.

    If none was missed, it is the furthest among those that the generator may have caused, or else the one closest to
    its limit.
    """
    missed = [check for check in group if check.met is False]
    doubted = [check for check in group if check.met is None and check.observed is not None]
    met = [check for check in group if check.met is True]
    deciding = missed or doubted or met or list(group)
    sign = -1 if deciding[0].is_least else 1
    return max(deciding, key=lambda c: -math.inf if c.observed is None else sign * c.observed)


def _threshold_sentence(worst: Check, missed: int, stages: int, load_unit: str, probes: str) -> str:
    name, bound = worst.title, "at least" if worst.is_least else "at most"
    allowed = f"{bound} {worst.show(worst.allowed)} is allowed"
    also = f"; it was {probes}" if probes else ""
    if worst.observed is None and not stages:
        return f"{name} was not judged up to the search's answer; {allowed}{also}"
    if worst.observed is None:
        return f"{name} was not measured; {allowed}{f' ({worst.why})' if worst.why else ''}{also}"
    sentence = f"{name} was {worst.show(worst.observed)}"
    if worst.stage is not None:
        sentence += f" in stage {worst.stage} ({show_amount(worst.size or 0, load_unit)})"
    sentence += f"; {allowed}"
    if worst.met is None:
        return f"{sentence}, but this is inconclusive{f': {worst.why}' if worst.why else ''}{also}"
    counted = missed and stages > 1 and not also
    return f"{sentence}; missed in {missed} of {stages} stages" if counted else f"{sentence}{also}"


def tipping_entry(tipping: Tipping) -> dict[str, Any]:
    """Return the results of find_tipping. `forecast.curve` is the fitted law as [load, per second], extrapolated."""
    found = asdict(tipping)
    if tipping.forecast is not None:
        found["forecast"]["curve"] = _fitted_curve(tipping.forecast)
        for name, value in found["forecast"].items():
            if isinstance(value, float) and not math.isfinite(value):
                found["forecast"][name] = None
    return found


def _fitted_curve(forecast: Forecast) -> list[tuple[float, float]]:
    farthest = 2.0 * forecast.largest_measured
    if forecast.peak_load is not None:
        farthest = min(4.0 * forecast.largest_measured, max(farthest, 1.25 * forecast.peak_load))
    step = (farthest / forecast.unit) ** (1 / (_CURVE_POINTS - 1)) if farthest > forecast.unit else 1.0
    points: list[tuple[float, float]] = []
    for number in range(_CURVE_POINTS):
        n = step**number
        below = 1 + forecast.sigma * (n - 1) + forecast.kappa * n * (n - 1)
        if below > 0:
            points.append((_rounded(n * forecast.unit), _rounded(forecast.rate * n / below)))
    return points


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _summary(histogram: Histogram) -> dict[str, Any] | None:
    """Summarise a histogram as in Rally's table; None if it is empty."""
    if not histogram.total:
        return None
    p50, p90, p95, p99, p999 = histogram.percentiles([50, 90, 95, 99, 99.9])
    return {
        "min": histogram.min,
        "mean": _rounded(histogram.mean),
        "max": histogram.max,
        "p50": p50,
        "p90": p90,
        "p95": p95,
        "p99": p99,
        "p999": p999,
    }


def _stage(stage: StageResult, operations: Iterable[str]) -> dict[str, Any]:
    """Return one stage: its times, and the outcomes and latencies of each operation.

    `cost` includes failures with the time they took (latency.costs). `response` and `service` (measured from the send)
    are for successes alone.
    """
    return {
        "number": stage.number,
        "size": stage.size,
        "kind": stage.kind,
        "begin": stage.begin,
        "hold_begin": stage.hold_begin,
        "end": stage.end,
        "held": stage.gauges.get("held"),
        "operations": {
            operation: _operation(stage, operation)
            for operation in operations
            if any(stage.count(operation, outcome) for outcome in OUTCOMES)
        },
    }


def _operation(stage: StageResult, operation: str) -> dict[str, Any]:
    attempts = stage.attempts(operation)
    throughput = stage.throughput(operation)
    return {
        **{outcome: stage.count(operation, outcome) for outcome in OUTCOMES},
        "attempts": attempts,
        "success": stage.count(operation) / attempts if attempts else None,
        "throughput": None if throughput is None else _rounded(throughput),
        "cost": _summary(costs(stage, operation)),
        "response": _summary(stage.response(operation)),
        "service": _summary(stage.service(operation)),
    }


def _rally(run: RunData, operations: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of Rally's table for runs that boot and delete: operations and their depth; else empty."""
    if not run.manifest.load_unit.startswith("iterations"):
        return []
    there = list(operations)
    rows = [{"operation": name, "depth": depth} for name, depth in _OF_RALLY.items() if name in there]
    return rows + [{"operation": name, "depth": 0} for name in there if name not in _OF_RALLY]


def _by_load(run: RunData, operations: Sequence[str]) -> list[dict[str, Any]]:
    """Return latency and throughput by load for charts: stages of one size are joined, storms apart, sizes ascending.

    Failures count with the time they took (latency.costs), as they do for thresholds and knees. Removals and
    lower loads after the last are left out.
    """
    groups: dict[tuple[float, bool], list[StageResult]] = defaultdict(list)
    for stage in run.stages:
        if stage.kind not in ("destroy", "recover"):
            groups[stage.size, stage.kind == "storm"].append(stage)
    own = [name for name in operations if name in run.own_load]
    points: list[dict[str, Any]] = []
    for (size, storm), group in sorted(groups.items()):
        latencies: dict[str, Any] = {}
        for operation in operations:
            joined = Histogram.merged(costs(stage, operation) for stage in group)
            p50, p99 = joined.percentiles([50, 99]) if joined.total else (None, None)
            latencies[operation] = {"p50": p50, "p99": p99, "count": joined.total}
        points.append(
            {
                "size": size,
                "storm": storm,
                "stages": [stage.number for stage in group],
                "operations": latencies,
                "throughput": _total_throughput(group, own) if run.goes_on else None,
            }
        )
    return points


def _total_throughput(stages: Sequence[StageResult], operations: Sequence[str]) -> float | None:
    """Return the successes per second of these operations together, as the mean over the holds of all stages."""
    totals = [
        sum(rates)
        for stage in stages
        if (rates := [r for o in operations if (r := stage.throughput(o)) is not None])
    ]
    return _rounded(sum(totals) / len(totals)) if totals else None


def _growth(run: RunData) -> list[dict[str, Any]]:
    """Return how fast things were created or removed: by parts of stages, with the things before and after."""
    if run.manifest.workload in ("claim", "cts", "store", "operate"):
        return []
    return [
        {
            "stage": stage.number,
            "size": stage.size,
            "kind": stage.kind,
            "from": since,
            "to": until,
            "seconds": _rounded(end - begin),
            "per_second": _rounded(abs(until - since) / (end - begin)),
        }
        for stage in run.stages
        for (begin, since), (end, until) in itertools.pairwise(stage.growth)
        if end > begin and until != since
    ]


def _why_no_timeline(run: RunData) -> str:
    if run.manifest.timeline == "order":
        return "There are no charts over time: the source gives no clock that all its figures share."
    if not run.curves and not run.gauges.t.size:
        return "There are no charts over time: nothing was measured."
    return ""


def _generator(run: RunData) -> dict[str, Any] | None:
    """Return the generator's health per stage and at its worst; None if the source has no data on it."""
    stages = [_generator_stage(stage) for stage in run.stages]
    if not run.gauges.t.size and all(s["schedule_lag_p99"] is None for s in stages):
        return None
    gauges = run.gauges
    has_gauges = bool(gauges.t.size)
    lag = Histogram.merged(s.histograms[SCHEDULE_LAG] for s in run.stages if SCHEDULE_LAG in s.histograms)
    worst = {
        # Not the maximum at any moment: starting a worker keeps a core busy for a while.
        "cpu": max((s["cpu"] for s in stages if s["cpu"] is not None), default=None),
        "loop_lag_ms": float(gauges.loop_lag.max()) if has_gauges else None,
        "rss_mib": float(gauges.rss.max()) if has_gauges else None,
        "schedule_lag_p99": lag.percentile(99) if lag.total else None,
    }
    parts: list[str] = []
    if worst["cpu"] is not None:
        parts.append(
            f"the busiest worker used at most {figures.share(worst['cpu'])} of its core in any stage"
        )
    if worst["schedule_lag_p99"] is not None:
        parts.append(
            f"99 % of operations were sent within {figures.latency(worst['schedule_lag_p99'])} of their due time"
        )
    if worst["rss_mib"] is not None:
        parts.append(f"all workers together took {figures.number(worst['rss_mib'])} MiB at most")
    text = figures.listed(parts)
    sentences = [_where(run.manifest.places)] if run.manifest.places else []
    sentences += [f"{text[:1].upper()}{text[1:]}."] if text else []
    if run.stalls:
        longest = max(run.stalls, key=lambda stall: stall.seconds)
        often = "once" if len(run.stalls) == 1 else f"{figures.number(len(run.stalls))} times"
        which = "" if len(run.stalls) == 1 else ", the longest"
        sentences.append(
            f"Workers stalled {often}{which}: {show_worker(run, longest)} was {show_stall(longest)}."
        )
    return {
        "worst": worst,
        "stages": stages,
        "stalls": [
            {
                "worker": stall.worker,
                "t": stall.begin,
                "seconds": stall.seconds,
                "end": stall.end,
                "cause": stall.cause,
                "text": f"{show_worker(run, stall)} {show_state(stall)}",
            }
            for stall in _longest_stalls(run, _MOST_STALLS)
        ],
        "sentence": " ".join(sentences),
    }


def _where(places: Places) -> str:
    """Return on which processors target and load ran."""
    target, workers = places.target, places.workers
    if set(target).isdisjoint(workers):
        return f"The target ran on {show_processors(target)}, workers on {show_processors(workers)}."
    if set(target) != set(workers):
        both = show_processors(sorted({*target} & {*workers}))
        return (
            f"The target ran on {show_processors(target)}, workers on {show_processors(workers)}: "
            f"they competed for {both}."
        )
    if len(target) == 1:
        return "Target and generator competed for one processor."
    return f"Target and generator competed for the same {len(target)} processors."


def _longest_stalls(run: RunData, most: int) -> list[Stall]:
    """Return the longest stalls in the order of time."""
    longest = sorted(run.stalls, key=lambda stall: -stall.seconds)[:most]
    return sorted(longest, key=lambda stall: stall.begin)


def _generator_stage(stage: StageResult) -> dict[str, Any]:
    schedule = stage.histograms.get(SCHEDULE_LAG) or Histogram()
    loop = stage.histograms.get(LOOP_LAG) or Histogram()
    return {
        "number": stage.number,
        "size": stage.size,
        "kind": stage.kind,
        "schedule_lag_p99": schedule.percentile(99) if schedule.total else None,
        "schedule_lag_max": schedule.max if schedule.total else None,
        "loop_lag_p99": loop.percentile(99) if loop.total else None,
        "loop_lag_max": loop.max if loop.total else None,
        "cpu": stage.gauges.get("cpu"),
        "rss_mib": stage.gauges.get("rss"),
    }


def _units(run: RunData) -> list[dict[str, Any]]:
    """Return the units that generated the load: `share` of `of`, and `clock_offset`, the seconds its clock was ahead.

    The list is empty for a run on one machine.
    """
    return [unit.model_dump() for unit in run.units]


def _events(run: RunData, cluster: Cluster) -> dict[str, Any]:
    """Return the events of a run. `lost` lists the first few losses; `errors` are grouped by message.

    `marks` are drawn on the charts: faults, lost workers, and changes of the cluster's members and leaders. Charts show
    their `label` if the `text` is too long.
    `limited` are refusals by a rate limit, after which the operation was retried. `classes` counts both by the target's
    own error code, or without one by outcome. `connections` are lost connections.
    """
    lost = [event for event in run.events if event["event"] == "lost"]
    problems = _errors(event for event in run.events if not is_lost_connection(event))
    marks = [_mark(event) for event in run.events if event["event"] in _ON_CHARTS]
    seconds = float(run.gauges.t[-1]) if run.gauges.t.size else 0.0
    marks += [
        {
            "t": stall.begin,
            "kind": STALL,
            "text": f"{show_worker(run, stall)} {show_state(stall)}",
            "label": f"stalled {show_us(stall.seconds * 1e6)}",
        }
        for stall in _longest_stalls(run, _STALLS_ON_CHARTS)
    ]
    marks += cluster_marks(cluster, seconds) + agent_marks(run.events, seconds)
    marks += [] if cluster.leaders else leader_marks(run)
    return {
        "marks": sorted(marks, key=lambda mark: mark["t"]),
        "others": [
            _mark(event) for event in run.events if event["event"] not in (*_TOLD_ELSEWHERE, *_ON_CHARTS)
        ],
        "lost": {
            "count": sum(count_of(event) for event in lost),
            "first": lost[0]["t"] if lost else None,
            "last": lost[-1]["t"] if lost else None,
            "listed": [_without(event, "event") for event in lost[:_SINGLE_EVENTS]],
        },
        "errors": [problem for problem in problems if problem["outcome"] != "limited"],
        "limited": [problem for problem in problems if problem["outcome"] == "limited"],
        "classes": _classes(problems) if facts_of(run.manifest.target.kind).coded_errors else [],
        "connections": _connections(run),
    }


def _classes(problems: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    counts: Counter[tuple[str, str]] = Counter()
    for problem in problems:
        found = _ERROR_CODE.search(problem["message"])
        counts[problem["operation"], found[1] if found else problem["outcome"]] += problem["count"]
    return [
        {"operation": operation, "class": name, "count": count}
        for (operation, name), count in counts.most_common()
    ]


def _connections(run: RunData) -> dict[str, Any] | None:
    """Return lost connections by reason, and how many were re-established during holds; None without any."""
    lost = _errors(event for event in run.events if is_lost_connection(event))
    if not lost:
        return None
    again = [stage.held[tag(CONNECT)].total for stage in run.stages if tag(CONNECT) in stage.held]
    return {"lost": sum(reason["count"] for reason in lost), "again": sum(again), "reasons": lost}


def _mark(event: dict[str, Any]) -> dict[str, Any]:
    kind = str(event["event"])
    told = _without(event, "t", "event", "problem", "remedy")
    words = (
        " ".join(show_value(value) for value in told.values()) if kind == "fault" else event_words(kind, told)
    )
    return {"t": event["t"], "kind": kind, "text": words}


def _without(event: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in names}


def _errors(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return errors and timeouts with a message, the most frequent first."""
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for event in events:
        if event["event"] not in ("error", "timeout"):
            continue
        outcome = str(event.get("outcome", event["event"]))
        key = (str(event.get("operation", "")), outcome, str(event.get("error", "")))
        group = groups.setdefault(
            key,
            {"operation": key[0], "outcome": outcome, "message": key[2], "count": 0, "first": event["t"]},
        )
        group["count"] += count_of(event)
        group["last"] = event["t"]
    return sorted(groups.values(), key=lambda group: (-group["count"], group["first"]))


def _notes(run: RunData) -> list[str]:
    """Return remarks on the data."""
    notes = list(run.notes)
    expiring = 0
    notes += [taken.words for taken in takeovers(run.events)]
    for event in run.events:
        match event["event"]:
            case "left-to-expire":
                expiring += int(event.get("leases", 0))
            case "left-behind":
                notes.append(
                    f"not everything could be removed from the target: {event.get('problem', '')}; "
                    f"when it is back: {event.get('remedy', 'tippingpoint clean')}"
                )
            case "journal-lost":
                notes.append(f"a part of the journal could not be written: {event.get('problem', '')}")
            case "room-unknown":
                notes.append(
                    f"stage {event.get('stage', '')} was started without knowing whether the target has room for it: "
                    f"{event.get('problem', '')}"
                )
            case "fault-failed":
                notes.append(
                    f"the fault {event.get('do', '')} {event.get('member', '')} could not be injected: "
                    f"{event.get('problem', '')}"
                )
            case _:
                pass
    if expiring:
        were = choose(expiring, "was", "were")
        notes.append(f"{show_amount(expiring, 'leases')} could not be given back and {were} left to expire")
    if _planned_target(run).get("identity") == "agent":
        notes.append(
            "all holders logged in as one unit (identity agent): only a patched controller accepts that"
        )
    if run.stages and run.stages[-1].end is None and run.manifest.timeline == "seconds":
        notes.append(f"stage {run.stages[-1].number} was not finished; its figures cover the part that ran")
    if not run.stages:
        notes.append("no stage was started, so there is nothing to show")
    return notes


def _planned_target(run: RunData) -> dict[str, Any]:
    target: Any = (run.manifest.plan or {}).get("target")
    return cast(dict[str, Any], target) if isinstance(target, dict) else {}


@lru_cache(maxsize=16)
def _parsed(text: str, name: str) -> Plan:
    """Return the plan in a text. Several reports in one process need the same plan, and parsing takes 10 ms."""
    return parse_plan(text, source=name)


def _repeat(run: RunData, plan: Plan | None) -> dict[str, Any] | None:
    """Return the plan as YAML, and the command (or the action for units) that runs it; None without a plan."""
    if plan is None:
        return None
    try:
        shipped = _parsed(plan_text(plan.name), plan.name) == plan
    except UserError:
        shipped = False
    command = f"tippingpoint run {plan.name}" if shipped else f"tippingpoint run {plan.name}.yaml"
    if run.units:
        application = run.units[0].name.partition("/")[0]
        # Without this option, Juju parses the plan's text as YAML and refuses it.
        raw, given = (
            ("", f"plan={plan.name}")
            if shipped
            else ("--string-args ", f'plan-yaml="$(cat {plan.name}.yaml)"')
        )
        command = f"juju run {raw}{application}/leader start {given}"
    return {"plan": plan.to_yaml(), "command": command, "shipped": shipped}
