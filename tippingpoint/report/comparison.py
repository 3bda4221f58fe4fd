"""Builds a comparison's document: a plain, versioned dictionary, which is the JSON format. Other formats render it.

Units are those of document.py. In `rows` a percentile's change is its ratio to the first run, and a rate's change is a
difference. A bound that the samples cannot give is None. Lists with one entry per run are in the order of `runs`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from statistics import fmean
from typing import Any

from tippingpoint import __version__
from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.cost import Cost
from tippingpoint.analysis.latency import costs
from tippingpoint.compare.baselines import RallyTable
from tippingpoint.compare.cells import PERCENTILES
from tippingpoint.compare.clauses import ratio_words
from tippingpoint.compare.comparison import ALL_CALLS, Comparison, Overall, Recovery, Row
from tippingpoint.compare.costs import is_shown
from tippingpoint.compare.names import letter
from tippingpoint.compare.pair import Against
from tippingpoint.compare.published import PublishedRow
from tippingpoint.compare.recovery import show_back
from tippingpoint.compare.repeats import ERRS, Change, Release
from tippingpoint.compare.sentence import told_words
from tippingpoint.importers.rally_results import CALLED
from tippingpoint.plan.kinds import target_name
from tippingpoint.report import figures
from tippingpoint.report.document import FORMAT, tipping_entry
from tippingpoint.report.sections.cautions import build_cautions
from tippingpoint.report.sections.instances import beside_runs
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.operations import OPERATIONS
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

_SHORT = 20
"""The maximum number of characters of a name in a heading or legend. Letters replace longer names."""
_ALIKE = 1.5
"""Two releases are called alike only if a difference by more than this factor is ruled out."""
_SERIES = 4
"""The least number of runs for a chart of the trend over the runs."""
_MOST = 0.75
"""The least share of runs that must have the load of the trend."""


def build_comparison(comparison: Comparison) -> dict[str, Any]:
    """Build a comparison's document. Its curves have all loads of every run, shared or not."""
    runs = comparison.runs
    curves = _curves([release.runs for release in comparison.releases])
    charted = [curve["operation"] for curve in curves]
    seen = {*charted, *(row.operation for row in comparison.rows)}
    entries = _runs(comparison)
    return {
        "format": FORMAT,
        "kind": "comparison",
        "made_by": f"tippingpoint {__version__}",
        "title": _title(comparison),
        "outcome": comparison.outcome,
        "both_ways": _both_ways(comparison),
        "cannot_tell": _cannot_tell(comparison),
        "sentence": comparison.sentence,
        "changes": comparison.changes,
        "regressed": comparison.regressed,
        "tolerance": comparison.tolerance,
        "errs": ERRS,
        "load_unit": comparison.load_unit,
        "main": comparison.main,
        "runs": entries,
        "named_by_version": all(entry["version"].endswith(entry["label"]) for entry in entries),
        "operations": sorted(seen, key=_place),
        "charted": [name for name in charted if name == comparison.main]
        + [name for name in charted if name != comparison.main],
        "rated": [curve["operation"] for curve in curves if _rated(curve, runs)],
        "curves": curves,
        "series": _series(comparison, curves),
        "repeated": comparison.repeated,
        "control": _control(comparison),
        "tips": comparison.tips,
        "tip_changes": [_bounded(change) for change in comparison.tip_changes],
        "overall": [_overall(one) for one in comparison.overall],
        "recovery": [_recovery(one) for one in comparison.recovery],
        "worse": comparison.worse,
        "better": comparison.better,
        "withheld": comparison.withheld,
        "unsure": sum(a.judgement == "unsure" for row in comparison.rows for a in row.against),
        "not_comparable": comparison.not_comparable,
        "differs": comparison.differs,
        "rows": [_row(row) for row in comparison.rows],
        "resources": [
            {
                **asdict(figure),
                "what": figure.title + (f", {figure.part}" if figure.part else ""),
            }
            for figure in comparison.resources
        ],
        "costs": [
            {
                **asdict(cost),
                "what": f"{cost.title}{f', {cost.part}' if cost.part else ''}, for each {cost.per}",
                "words": [_cost_words(of_run) for of_run in cost.costs],
            }
            for cost in comparison.costs
        ],
        "operation_costs": [
            {
                "what": one.costs.what,
                "includes": one.costs.key.includes,
                "values": one.costs.values,
                "words": one.costs.words,
                "against": [
                    {**(_bounded(against) or {}), "words": ratio_words(against)} for against in one.against
                ],
            }
            for one in comparison.operation_costs
        ],
        "without_resources": [
            entry["label"]
            for entry, release in zip(entries, comparison.releases, strict=True)
            if any(run.resources is None for run in release.runs)
        ],
        "published": {
            "names": comparison.beside_names,
            "colours": _colours(comparison),
            "rows": [_published(row) for row in comparison.published],
        },
        "beside": [
            {
                **baseline.model_dump(),
                "timings": beside_runs(baseline, comparison.analyses),
                "same": [_same_rows(table, runs) for table in baseline.tables],
            }
            for baseline in comparison.beside
        ],
    }


def _same_rows(table: RallyTable, runs: Sequence[RunData]) -> list[list[dict[str, Any]]]:
    """Return the runs' own figures for the action of each row of a Rally table; `run` counts from 0.

    They are in seconds and percent, for successes only, as in Rally (MainStatsTable of
    rally/task/processing/charts.py).
    """
    return [
        [
            {
                "run": number,
                "size": stage.size,
                **{name: _seconds(getattr(times, name)) for name in ("min", "max")},
                "avg": _seconds(times.mean),
                "p90": _seconds(times.percentile(90)),
                "p95": _seconds(times.percentile(95)),
                "success": round(100 * stage.count(operation) / stage.attempts(operation), 1),
                "count": stage.attempts(operation),
            }
            for number, run in enumerate(runs)
            for stage in run.stages
            if stage.kind != "destroy" and (times := stage.response(operation)).total
        ]
        for operation in (CALLED.get(row.operation, row.operation) for row in table.rows)
    ]


def _seconds(microseconds: float) -> float:
    return round(microseconds / 1e6, 3)


def _title(comparison: Comparison) -> str:
    """Return a title that is short enough for a page."""
    kinds = list(
        dict.fromkeys(
            [run.manifest.target.kind for run in comparison.runs]
            + [baseline.target.kind for baseline in comparison.beside]
        )
    )
    names = list(dict.fromkeys([*comparison.names, *comparison.beside_names]))
    if len(names) > _SERIES:
        return f"{' and '.join(kinds)}: {len(names)} runs, from {names[0]} to {names[-1]}"
    said = " / ".join(names)
    return said if any(kind.casefold() in said.casefold() for kind in kinds) else f"{kinds[0]}: {said}"


def _both_ways(comparison: Comparison) -> str:
    """Say so if some figures got worse and others better; empty otherwise."""
    if comparison.outcome not in ("worse", "better") or not (comparison.worse and comparison.better):
        return ""
    if comparison.outcome not in comparison.tips:
        return "some figures got worse, others better"
    other = "better" if comparison.outcome == "worse" else "worse"
    return f"got {comparison.outcome}, though {other} in some figures"


def _cannot_tell(comparison: Comparison) -> str:
    """Return the interval that is too wide to rule out a difference if none was found; empty otherwise.

    It is the interval of the loads at which releases tip or, if it is unknown how these compare, of the typical time of
    a call: runs that all held the largest load may differ at any other.
    """
    if comparison.outcome != "none":
        return ""
    for place, change in enumerate(comparison.tip_changes):
        if change is None and comparison.tips[place] == "same" and comparison.reaches[0].broken is not None:
            continue
        typical = [one.against[place] for one in comparison.overall if one.operation == ALL_CALLS]
        low, high = (change.low, change.high) if change is not None else (None, None)
        if change is None and typical:
            low, high = typical[0].low, typical[0].high
        if low is None or high is None or low * _ALIKE < 1 or high > _ALIKE:
            return figures.interval(low or None, high if high is None or math.isfinite(high) else None, "")
    return ""


def _runs(comparison: Comparison) -> list[dict[str, Any]]:
    short = all(len(name) <= _SHORT for name in comparison.names)
    alike = len({run.manifest.title for run in comparison.runs}) == 1
    return [
        {
            "letter": letter(number),
            "label": name if short else letter(number),
            "name": name,
            "id": run.manifest.id,
            "title": run.manifest.title,
            "titled": not alike and run.manifest.title not in (name, run.manifest.id),
            "version": target_name(run.manifest.target.kind, run.manifest.target.version),
            "started": _day(run),
            "reach": {
                **asdict(reach),
                "words": replace(reach, doubt="").words(comparison.load_unit),
            },
            "tipping": tipping_entry(analysis.tipping),
            "caveats": list(dict.fromkeys(line for one in release.analyses for line in _caveats(one))),
            "repeats": _repeats(release, comparison.load_unit),
        }
        for number, (release, run, name, analysis, reach) in enumerate(
            zip(
                comparison.releases,
                comparison.runs,
                comparison.names,
                comparison.analyses,
                comparison.reaches,
                strict=True,
            )
        )
    ]


def _day(run: RunData) -> str:
    """Return when a run was made; empty for a published result, because only its log was read then."""
    if run.manifest.source == "baseline":
        return ""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.manifest.started))


def _caveats(analysis: Analysis) -> list[str]:
    """Return the remarks that limit how far a run's figures can be trusted."""
    run, verdict = analysis.run, analysis.verdict
    said = verdict.sentence if verdict.outcome in ("withheld", "failed") else ""
    lines = list(verdict.reasons)
    if run.manifest.status not in ("complete", "failed"):
        lines.insert(0, f"{run.manifest.status}: {run.manifest.reason}".removesuffix(": "))
    lines = [*([said] if said else []), *(line for line in lines if line not in said)]
    return list(dict.fromkeys([*lines, *build_cautions(analysis)]))


def _place(operation: str) -> tuple[int, str]:
    return (OPERATIONS.index(operation) if operation in OPERATIONS else len(OPERATIONS)), operation


def _repeats(release: Release, unit: str) -> list[dict[str, Any]]:
    """Return the results of each run of a release; empty for a single run, which the release's entry covers."""
    if len(release.runs) == 1:
        return []
    return [
        {
            "id": run.manifest.id,
            "started": _day(run),
            "words": replace(reach, doubt="").said(unit),
            "sentence": analysis.tipping.sentence,
        }
        for run, reach, analysis in zip(release.runs, release.reaches, release.analyses, strict=True)
    ]


def _control(comparison: Comparison) -> dict[str, Any] | None:
    control = comparison.control
    if control is None:
        return None
    return {
        "words": comparison.control_words,
        "repeats": _repeats(control, comparison.load_unit),
        "runs": len(control.runs),
    }


def _overall(one: Overall) -> dict[str, Any]:
    return {**asdict(one), "against": [_bounded(against) for against in one.against]}


def _recovery(one: Recovery) -> dict[str, Any]:
    words = [show_back(of) for of in one.values]
    return {**asdict(one), "words": words, "against": [_bounded(against) for against in one.against]}


def _bounded(change: Against | Change | None) -> dict[str, Any] | None:
    """Return a change, with None for bounds that do not exist."""
    if change is None:
        return None
    entry = asdict(change)
    for name in ("low", "high"):
        if entry[name] is not None and not math.isfinite(entry[name]):
            entry[name] = None
    return entry


def _curves(releases: Sequence[Sequence[RunData]]) -> list[dict[str, Any]]:
    """Return, by operation, each release's p50 and p99 (microseconds) and throughput (per second) at each size of step.

    They are means over the runs that have such a step, geometric for latencies.
    """
    curves: list[dict[str, Any]] = []
    runs = [run for release in releases for run in release]
    for operation in sorted({operation for run in runs for operation in run.operations}, key=_place):
        points = [_mean_points([_points(run, operation) for run in release]) for release in releases]
        sizes = sorted({size for of_run in points for size, point in of_run.items() if point is not None})
        if sizes:
            curves.append(
                {
                    "operation": operation,
                    "sizes": sizes,
                    **{
                        name: [[(of_run.get(size) or {}).get(name) for size in sizes] for of_run in points]
                        for name in ("p50", "p99", "throughput")
                    },
                }
            )
    return curves


def _points(run: RunData, operation: str) -> dict[float, dict[str, float | None] | None]:
    steps: dict[float, list[StageResult]] = {}
    for stage in run.stages:
        if stage.is_step:
            steps.setdefault(stage.size, []).append(stage)
    return {size: _point(run, stages, operation) for size, stages in steps.items()}


def _mean_points(
    runs: Sequence[dict[float, dict[str, float | None] | None]],
) -> dict[float, dict[str, float | None] | None]:
    if len(runs) == 1:
        return runs[0]
    means: dict[float, dict[str, float | None] | None] = {}
    for size in dict.fromkeys(size for of_run in runs for size in of_run):
        there = [point for of_run in runs if (point := of_run.get(size)) is not None]
        mean: dict[str, float | None] = {}
        for name in ("p50", "p99", "throughput"):
            values = [value for point in there if (value := point[name]) is not None]
            mean[name] = (fmean if name == "throughput" else _geometric)(values) if values else None
        means[size] = mean if there else None
    return means


def _geometric(values: Sequence[float]) -> float:
    return math.exp(fmean(math.log(max(value, 1.0)) for value in values))


def _rated(curve: dict[str, Any], runs: Sequence[RunData]) -> bool:
    """Return whether an operation has a throughput worth a chart: it goes on throughout a stage, unlike a claim."""
    measured = [[rate for rate in of_run if rate is not None] for of_run in curve["throughput"]]
    return any(
        curve["operation"] in run.own_load and sum(map(bool, rates)) > len(rates) / 2
        for run, rates in zip(runs, measured, strict=True)
    )


def _point(run: RunData, stages: Sequence[StageResult], operation: str) -> dict[str, float | None] | None:
    latencies = Histogram.merged(costs(stage, operation) for stage in stages)
    if not latencies.total:
        return None
    rates = [rate for stage in stages if (rate := stage.throughput(operation)) is not None]
    clock_known = run.manifest.timeline == "seconds"
    return {
        "p50": latencies.percentile(50),
        "p99": latencies.percentile(99),
        "throughput": sum(rates) / len(rates) if rates and clock_known else None,
    }


def _series(comparison: Comparison, curves: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the trend of the main operation at the largest load that most runs have; None for a few runs."""
    curve = next((curve for curve in curves if curve["operation"] == comparison.main), None)
    if len(comparison.runs) < _SERIES or curve is None:
        return None
    having = [
        sum(of_run[place] is not None for of_run in curve["p50"]) for place in range(len(curve["sizes"]))
    ]
    place = max(place for place, count in enumerate(having) if count >= _MOST * max(having))
    return {
        "operation": comparison.main,
        "size": curve["sizes"][place],
        "p50": [of_run[place] for of_run in curve["p50"]],
        "p99": [of_run[place] for of_run in curve["p99"]],
    }


def _cost_words(cost: Cost | None) -> str:
    if cost is None:
        return "–"
    if not is_shown(cost):
        return "no more than noise"
    return f"{cost.line_words} ({cost.interval or 'no interval'})"


def _row(row: Row) -> dict[str, Any]:
    entry = asdict(row)
    for against in entry["against"]:
        for name in ("change", "low", "high"):
            value = against[name]
            unbound = value == 0 if name == "low" and row.measure in PERCENTILES else False
            if unbound or (value is not None and not math.isfinite(value)):
                against[name] = None
    return entry


def _colours(comparison: Comparison) -> list[int]:
    """Return a colour's number for each published result: that of its run, or one beyond those of the runs."""
    own = iter(range(len(comparison.names), len(comparison.names) + len(comparison.beside)))
    return [
        comparison.names.index(name) if name in comparison.names else next(own)
        for name in comparison.beside_names
    ]


def _published(row: PublishedRow) -> dict[str, Any]:
    """Return a row with the lengths of its bars, as shares of the longest value, or of the ratio without values."""
    lengths = _lengths(row)
    longest = max((abs(length) for length in lengths if length is not None), default=0.0)
    return {
        **asdict(row),
        "told": [
            None
            if told is None
            else {
                **asdict(told),
                "figure": told.figure.model_dump() if told.figure is not None else None,
                "words": told_words(told, row.unit),
                "length": abs(length) / longest if length is not None and longest else None,
            }
            for told, length in zip(row.told, lengths, strict=True)
        ],
    }


def _lengths(row: PublishedRow) -> list[float | None]:
    there = [told for told in row.told if told is not None]
    if any(told.difference is not None for told in there):
        return [told.difference if told is not None else None for told in row.told]
    if all(told.value is not None for told in there):
        return [told.value if told is not None else None for told in row.told]
    return [told.ratio if told is not None else None for told in row.told]
