"""Compares runs: where each tips, and what got worse or better, or is uncertain, per operation and stage size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.analysis.confidence import Interval, difference_of_shares, ratio_of_percentiles
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.compare.baselines import Baseline
from tippingpoint.compare.costs import CostComparison, compare_costs
from tippingpoint.compare.names import Named, differences, short_names
from tippingpoint.compare.published import PublishedRow, compare_published
from tippingpoint.compare.reach import Judgement, Reach, not_judged, reach_of, tips_against
from tippingpoint.compare.resources import ResourceComparison, compare_resources
from tippingpoint.compare.sentence import (
    published_words,
    range_words,
    resource_words,
    telling_load,
    times,
    tipping_words,
)
from tippingpoint.errors import UserError
from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.operations import OPERATIONS, OWN_LOAD
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.durations import show_us
from tippingpoint.util.text import show_list, show_load, show_share, show_size

Outcome = Literal["worse", "better", "same", "unsure", "apart", "published"]

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
RATES: dict[str, tuple[str, ...]] = {"error_rate": ("error", "timeout"), "lost_rate": ("lost",)}
LEVEL = 0.95
"""The confidence that no figure of the whole comparison is called worse or better by chance (Bonferroni)."""
SAME_SHARE = 0.001
"""Rates that differ by less than one in a thousand, for certain, are the same."""


@dataclass(frozen=True)
class Against:
    """One run's figure compared with the baseline's."""

    change: float | None
    """For percentiles the ratio to the baseline, for rates the difference. None without a figure."""
    low: float | None
    high: float | None
    """The 95 % interval of `change` alone. `high` is infinite if a sample is too small for a bound."""
    judgement: Judgement | None
    """The judgement by the wider interval for all rows together (LEVEL); None if `beyond` says why."""
    beyond: str = ""
    """Why nothing is judged at this load: it is past the cliff of one of the two runs, or one did not hold it."""


@dataclass(frozen=True)
class Row:
    """One figure of one operation at one stage size, in every run; the first run is the baseline."""

    operation: str
    size: float
    storm: bool
    """Whether the stages are storms, which are compared with storms only."""
    measure: str
    """p50 p90 p95 p99 (microseconds), error_rate or lost_rate (shares in 0..1)."""
    values: list[float | None]
    """One value per run; None if the run did not measure it."""
    counts: list[int]
    """The number of operations in each value."""
    against: list[Against]
    """One comparison per run after the first."""
    destroy: bool = False
    """Whether the stages are removals, which are compared with removals only."""


@dataclass(frozen=True)
class Comparison:
    """Runs compared with the first of them, and published results compared with the first of those."""

    runs: list[RunData]
    names: list[str]
    """One name per run, as short as possible: the version if the versions differ."""
    beside: list[Baseline]
    beside_names: list[str]
    """One name per published result; if it has a run, that run's name."""
    load_unit: str
    """The unit of loads; empty without runs."""
    tolerance: float
    main: str
    """The workload's main operation: claim, launch, boot_server, add-unit; empty if none was measured."""
    rows: list[Row]
    tips: list[Judgement]
    """For each run after the first, whether it tips at a lower load than the first (worse) or a higher one (better)."""
    outcome: Outcome
    """The outcome of the worst run: by its tipping point, or by figures if that is the same or uncertain.

    apart: no load was held by both. published: there are fewer than two runs.
    """
    worse: list[str]
    better: list[str]
    """One line for a tipping point and for each figure that changed significantly, the largest change first."""
    not_comparable: list[str]
    """Stage sizes, storms and operations that only some runs have."""
    differs: list[str]
    """The settings in which the runs' plans differ, if all have plans."""
    analyses: list[Analysis]
    """One analysis per run."""
    reaches: list[Reach]
    """One reach per run."""
    resources: list[ResourceComparison]
    costs: list[CostComparison]
    published: list[PublishedRow]
    """Figures that several results in `beside` give."""
    sentence: str
    """The tipping points and costs in words."""
    changes: str
    """How many figures changed, and which changed most."""

    @property
    def regressed(self) -> bool:
        """Whether a run tips at a lower load or, with the same or uncertain tipping points, has a worse figure.

        The command then ends with exit code 1.
        """
        return self.outcome == "worse"


@dataclass(frozen=True)
class _Cell:
    """One run's measurements of one operation at one load."""

    latencies: Histogram
    attempts: int
    failures: dict[str, int]


_Key = tuple[StageKind, float, str]
"""Kind (ramp stands for every step of the ladder), size, operation."""


def compare(runs: Sequence[RunData], tolerance: float = 0.10, beside: Sequence[Baseline] = ()) -> Comparison:
    """Compare every run with the first one. A single run is shown with published figures.

    Tipping points come first: at a lower load is worse, at a higher load better. Figures at loads that both held come
    next; those past the cliff of either are not judged. A percentile is worse if its ratio to the baseline is certainly
    above 1 + `tolerance`, better if certainly below 1 / (1 + `tolerance`), the same if certainly between, and otherwise
    unsure. A rate is worse if it certainly rose by more than `tolerance` of the smaller one.

    Samples are taken as independent. Two runs on the same target also differ as a whole, which the histograms of one
    run cannot show; `tolerance` is for that. Published results (`beside`) are compared with each other by figures.

    Raises UserError without any run if `beside` has no figure in common, for runs with different units of load, for a
    run without stages, and for a negative or infinite tolerance.
    """
    published = compare_published(beside)
    if not runs and not published:
        names = ", ".join(baseline.name for baseline in beside) or "0 runs"
        raise UserError("compare", names, "one run or more, or published results with a figure in common")
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise UserError("--tolerance", tolerance, "a share from 0 up, such as 0.1")
    units = {run.manifest.load_unit for run in runs}
    if len(units) > 1:
        raise UserError(
            "compare", f"stages in {' and '.join(sorted(units))}", "runs whose stages count the same"
        )
    unit = next(iter(units), "")
    for run in runs:
        if not run.stages:
            why = "this one has no journals" if not run.operations else "in this one none was begun"
            raise UserError("compare", run.manifest.id, f"runs with stages, and {why}")
    names, beside_names = _names(runs, beside)
    analyses = [analyse(run) for run in runs]
    reaches = [reach_of(analysis) for analysis in analyses]
    tips: list[Judgement] = [
        tips_against(reaches[0], reach, same_thresholds=_thresholds(run) == _thresholds(runs[0]))
        for run, reach in zip(runs[1:], reaches[1:], strict=True)
    ]
    tables = [_table(run) for run in runs]
    keys = sorted({key for table in tables for key in table}, key=_place)
    shared = [key for key in keys if sum(key in table for table in tables) > 1 and key in tables[0]]
    beyond = {key: _beyond(key, names, reaches) for key in shared}
    tests = sum(
        sum(key in table and not why for table, why in zip(tables[1:], beyond[key], strict=True))
        * (len(PERCENTILES) + len(_rates(key[2])))
        for key in shared
    )
    level = 1 - (1 - LEVEL) / max(1, tests)
    rows = [
        row
        for key in shared
        for row in _rows(key, [table.get(key) for table in tables], beyond[key], level, tolerance)
    ]
    worse, better = _changes(rows, tips, reaches, names, unit)
    main = _main(runs)
    resources = compare_resources(runs)
    parts = [
        tipping_words(names, reaches, unit),
        _main_words(rows, main, names, reaches, unit),
        *_contrary_words(rows, tips, main, names, unit),
        resource_words(names, resources, reaches, unit),
        published_words(beside_names, published, alone=not runs),
    ]
    in_doubt = [
        f"{name}: {analysis.verdict.sentence}"
        for name, analysis in zip(names, analyses, strict=True)
        if analysis.verdict.outcome in ("withheld", "failed")
    ]
    for name, reach in zip(names[1:], reaches[1:], strict=True):
        if (late := not_judged(reaches[0], reach)) is not None:
            whose, since = names[0] if late is reaches[0] else name, show_size(late.unjudged or 0)
            in_doubt.append(
                f"Which of {names[0]} and {name} tips first is uncertain: thresholds of {whose} were not "
                f"judged from {since} {unit} on."
            )
    return Comparison(
        runs=list(runs),
        names=names,
        beside=list(beside),
        beside_names=beside_names,
        load_unit=unit,
        tolerance=tolerance,
        main=main,
        rows=rows,
        tips=tips,
        outcome=_outcome(rows, tips),
        worse=worse,
        better=better,
        not_comparable=_not_comparable(keys, tables, names, unit),
        differs=differences([run.manifest.plan or {} for run in runs]),
        analyses=analyses,
        reaches=reaches,
        resources=resources,
        costs=compare_costs(analyses),
        published=published,
        sentence=" ".join([f"{'; '.join(part for part in parts if part)}.", *in_doubt]),
        changes=_summary(rows, tips, names, unit),
    )


def _names(runs: Sequence[RunData], beside: Sequence[Baseline]) -> tuple[list[str], list[str]]:
    """Return the names of runs and published results. A result and the run of its transcript have the same name."""
    named = {one.id: one for one in map(Named.of_baseline, beside)}
    of_runs = [Named.of_run(run) for run in runs]
    known = {one.id for one in of_runs}
    alone = [one for name, one in named.items() if name not in known]
    names = short_names([*of_runs, *alone])
    by_id = {one.id: name for one, name in zip([*of_runs, *alone], names, strict=True)}
    return names[: len(runs)], [by_id[name] for name in named]


def _thresholds(run: RunData) -> object:
    return (run.manifest.plan or {}).get("thresholds")


def _beyond(key: _Key, names: Sequence[str], reaches: Sequence[Reach]) -> list[str]:
    """Return for each run after the first why it is not judged at a load; empty if it is."""
    kind, size, _ = key

    def words(place: int) -> str:
        why = reaches[place].beyond(kind, size)
        return f"{why} {names[place]}" if why else ""

    return [words(0) or words(place) for place in range(1, len(names))]


def _outcome(rows: Sequence[Row], tips: Sequence[Judgement]) -> Outcome:
    if not tips:
        return "published"
    found: set[Outcome] = set()
    for place, tip in enumerate(tips):
        figures = {row.against[place].judgement for row in rows}
        found.add(tip if tip in ("worse", "better") else _worst(figures))
    return _worst(found)


def _worst(found: Collection[str | None]) -> Outcome:
    every: tuple[Outcome, ...] = ("worse", "better", "same", "unsure")
    for outcome in every:
        if outcome in found:
            return outcome
    return "apart"


def _main(runs: Sequence[RunData]) -> str:
    """Return the workload's main operation: a claim, a launch, a boot, or the last step for a unit of load."""
    measured = {operation for run in runs for operation in run.operations}
    wanted = (
        "claim",
        "launch",
        "boot_server",
        "add-unit",
        *(own for load in OWN_LOAD.values() for own in load),
    )
    return next((operation for operation in wanted if operation in measured), "")


def _main_words(
    rows: Sequence[Row], main: str, names: Sequence[str], reaches: Sequence[Reach], unit: str
) -> str:
    """Say how much the main operation changed at the most telling load, if the change is certain."""
    of_main = [row for row in rows if row.operation == main and not row.storm and not row.destroy]
    load = telling_load([row.size for row in of_main], reaches)
    said: list[str] = []
    for row in of_main:
        if row.size == load and row.measure in ("p50", "p99"):
            certain = [
                (against.change, name)
                for against, name in zip(row.against, names[1:], strict=True)
                if against.judgement in ("worse", "better") and against.change is not None
            ]
            if certain:
                said.append(f"{row.measure} {range_words(certain, len(names))}")
    return f"{main} {' and '.join(said)} at {load:,} {unit}" if said else ""


def _contrary_words(
    rows: Sequence[Row], tips: Sequence[Judgement], main: str, names: Sequence[str], unit: str
) -> list[str]:
    """Name the figure that changed most in the opposite direction to a run's tipping point."""
    said: list[str] = []
    for number, tip in enumerate(tips, start=1):
        other = {"better": "worse", "worse": "better"}.get(tip)
        contrary = [
            row
            for row in rows
            if other is not None and row.against[number - 1].judgement == other and row.operation != main
        ]
        if contrary:
            row = max(contrary, key=lambda row: _weight(row, number))
            who = f" ({names[number]})" if len(names) > 2 else ""
            where = show_load(row.size, unit, "storm" if row.storm else "destroy" if row.destroy else "ramp")
            if row.measure in RATES:
                before, after = (show_share(row.values[place] or 0.0) for place in (0, number))
                said.append(
                    f"though {row.operation} {row.measure.replace('_', ' ')} {where} {before} to {after}{who}"
                )
            else:
                change = times(row.against[number - 1].change)
                said.append(f"though {row.operation} {row.measure} {where} is {change}{who}")
    return said


def _place(key: _Key) -> tuple[bool, bool, float, int, str]:
    kind, size, operation = key
    known = OPERATIONS.index(operation) if operation in OPERATIONS else len(OPERATIONS)
    return kind == "destroy", kind == "storm", size, known, operation


def _rates(operation: str) -> list[str]:
    return ["error_rate", "lost_rate"] if operation == "extend" else ["error_rate"]


def _table(run: RunData) -> dict[_Key, _Cell]:
    """Merge the stages of each size; storms and removals are kept apart, and lower loads after the last left out."""
    stages: dict[tuple[StageKind, float], list[StageResult]] = {}
    for stage in run.stages:
        if stage.kind == "recover":
            continue  # such a load is judged by what came before it
        stages.setdefault(("ramp" if stage.is_step else stage.kind, stage.size), []).append(stage)
    table: dict[_Key, _Cell] = {}
    for (kind, size), same in stages.items():
        for operation in run.operations:
            attempts = sum(stage.attempts(operation) for stage in same)
            if attempts:
                failures = {
                    rate: sum(stage.count(operation, outcome) for stage in same for outcome in outcomes)
                    for rate, outcomes in RATES.items()
                }
                latencies = Histogram.merged(freed_costs(stage, operation) for stage in same)
                table[kind, size, operation] = _Cell(latencies, attempts, failures)
    return table


def _rows(
    key: _Key, cells: Sequence[_Cell | None], beyond: Sequence[str], level: float, tolerance: float
) -> list[Row]:
    kind, size, operation = key
    storm, destroy = kind == "storm", kind == "destroy"
    rows: list[Row] = []
    for measure, percentile in PERCENTILES.items():
        totals = [cell.latencies.total if cell else 0 for cell in cells]
        values = [
            float(cell.latencies.percentile(percentile)) if cell and total else None
            for cell, total in zip(cells, totals, strict=True)
        ]
        against = [
            _judged_within(_percentile_against(cells[0], cell, percentile, level, tolerance), why)
            for cell, why in zip(cells[1:], beyond, strict=True)
        ]
        rows.append(Row(operation, size, storm, measure, values, totals, against, destroy))
    for measure in _rates(operation):
        values = [cell.failures[measure] / cell.attempts if cell else None for cell in cells]
        counts = [cell.attempts if cell else 0 for cell in cells]
        against = [
            _judged_within(_rate_against(cells[0], cell, measure, level, tolerance), why)
            for cell, why in zip(cells[1:], beyond, strict=True)
        ]
        rows.append(Row(operation, size, storm, measure, values, counts, against, destroy))
    return rows


def _judged_within(against: Against, beyond: str) -> Against:
    return replace(against, judgement=None, beyond=beyond) if beyond else against


_UNKNOWN = Against(None, None, None, "unsure")


def _percentile_against(
    base: _Cell | None, cell: _Cell | None, percentile: float, level: float, tolerance: float
) -> Against:
    if base is None or cell is None or not base.latencies.total or not cell.latencies.total:
        return _UNKNOWN
    alone = ratio_of_percentiles(base.latencies, cell.latencies, percentile, LEVEL)
    among_all = ratio_of_percentiles(base.latencies, cell.latencies, percentile, level)
    judgement = _judged(among_all, 1 / (1 + tolerance), 1 + tolerance)
    return Against(alone.estimate, alone.low, alone.high, judgement)


def _rate_against(
    base: _Cell | None, cell: _Cell | None, measure: str, level: float, tolerance: float
) -> Against:
    if base is None or cell is None:
        return _UNKNOWN
    counts = (base.failures[measure], base.attempts, cell.failures[measure], cell.attempts)
    alone, among_all = difference_of_shares(*counts, LEVEL), difference_of_shares(*counts, level)
    # A share of the smaller rate, so that swapping the runs swaps worse and better.
    margin = tolerance * min(base.failures[measure] / base.attempts, cell.failures[measure] / cell.attempts)
    judgement = _judged(among_all, -margin, margin)
    within = max(margin, SAME_SHARE)
    if judgement == "unsure" and -within <= among_all.low and among_all.high <= within:
        judgement = "same"
    return Against(alone.estimate, alone.low, alone.high, judgement)


def _judged(interval: Interval, least: float, most: float) -> Judgement:
    if interval.low > most:
        return "worse"
    if interval.high < least:
        return "better"
    return "same" if least <= interval.low and interval.high <= most else "unsure"


def _changes(
    rows: Sequence[Row],
    tips: Sequence[Judgement],
    reaches: Sequence[Reach],
    titles: Sequence[str],
    unit: str,
) -> tuple[list[str], list[str]]:
    found: dict[str, list[tuple[float, str]]] = {"worse": [], "better": []}
    for number, tip in enumerate(tips, start=1):
        if tip in found:
            who = f"{titles[number]}: " if len(titles) > 2 else ""
            where, base = reaches[number].words(unit), reaches[0].words("")
            evidence = f" ({reaches[number].evidence})" if tip == "worse" and reaches[number].evidence else ""
            found[tip].append((inf, f"{who}tips {where}{evidence}, where {titles[0]} tips {base}"))
    for row in rows:
        for number, against in enumerate(row.against, start=1):
            if against.judgement in found:
                found[against.judgement].append(
                    (_weight(row, number), _change_words(row, number, titles, unit))
                )
    worse, better = (
        [line for _, line in sorted(lines, key=lambda pair: -pair[0])] for lines in found.values()
    )
    return worse, better


def _weight(row: Row, number: int) -> float:
    """Rank a change: rates before latencies, then by its size."""
    change = row.against[number - 1].change or 0.0
    return 1e6 + abs(change) if row.measure in RATES else float(abs(np.log(max(change, 1e-9))))


def _change_words(row: Row, number: int, titles: Sequence[str], unit: str) -> str:
    before, after, against = row.values[0] or 0.0, row.values[number] or 0.0, row.against[number - 1]
    where = show_load(row.size, unit, "storm" if row.storm else "destroy" if row.destroy else "ramp")
    who = f"{titles[number]}: " if len(titles) > 2 else ""
    if row.measure in RATES:
        name = row.measure.replace("_", " ")
        return f"{who}{row.operation} {name} {where}: {show_share(before)} to {show_share(after)}"
    return (
        f"{who}{row.operation} {row.measure} {where}: {show_us(before)} to {show_us(after)} "
        f"({_times(against.change)}, 95 % interval {_times(against.low)} to {_times(against.high)})"
    )


def _times(ratio: float | None) -> str:
    return f"x{ratio:.3g}" if ratio is not None and np.isfinite(ratio) else "no bound"


def _not_comparable(
    keys: Sequence[_Key], tables: Sequence[dict[_Key, _Cell]], names: Sequence[str], unit: str
) -> list[str]:
    """Return one line for all sizes and operations that the same runs have and others lack."""
    operations: dict[tuple[StageKind, float, tuple[str, ...]], list[str]] = {}
    for kind, size, operation in keys:
        has = tuple(
            name for name, table in zip(names, tables, strict=True) if (kind, size, operation) in table
        )
        if len(has) < len(names):
            operations.setdefault((kind, size, has), []).append(operation)
    sizes: dict[tuple[StageKind, tuple[str, ...], tuple[str, ...]], list[float]] = {}
    for (kind, size, has), of_size in operations.items():
        sizes.setdefault((kind, has, tuple(of_size)), []).append(size)
    return [
        f"{show_list(of_size)} {_show_loads(found, unit, kind)}: {_only_in(has, names)}"
        for (kind, has, of_size), found in sizes.items()
    ]


def _only_in(has: Sequence[str], names: Sequence[str]) -> str:
    lacking = [name for name in names if name not in has]
    return f"not in {show_list(lacking)}" if len(lacking) < len(has) else f"only in {show_list(has)}"


def _show_loads(sizes: Sequence[float], unit: str, kind: StageKind) -> str:
    if len(sizes) == 1:
        return show_load(sizes[0], unit, kind)
    before = show_load(sizes[0], unit, kind).split(show_size(sizes[0]))[0]
    return f"{before}{show_list([show_size(size) for size in sizes])} {unit}"


def _summary(rows: Sequence[Row], tips: Sequence[Judgement], names: Sequence[str], unit: str) -> str:
    if not tips:
        return ""
    if not rows:
        return f"No load of {names[0]} was measured in another run, so only tipping points are compared."
    judged = [(row, number) for row in rows for number in range(len(tips)) if row.against[number].judgement]
    beyond = sum(bool(against.beyond) for row in rows for against in row.against)
    if not judged:
        return f"No load of {names[0]} that another run measured was held by both, so only tipping points are judged."
    count = Counter(row.against[number].judgement for row, number in judged)
    said = [f"{count['worse'] or 'none'} got worse"]
    said += [f"{count['better']} got better"] if count["better"] else []
    said += [f"{count['same']} stayed the same"] if count["same"] else []
    said += [f"{count['unsure']} have too few samples to tell"] if count["unsure"] else []
    said += [f"{beyond} are at loads that were not held and are not judged"] if beyond else []
    worst = max(
        ((row, number + 1) for row, number in judged if row.against[number].judgement == "worse"),
        key=lambda place: _weight(*place),
        default=None,
    )
    told = f" Worst: {_change_words(*worst, names, unit)}." if worst else ""
    return f"Figures against {names[0]}, at loads that both held: {', '.join(said)}.{told}"
