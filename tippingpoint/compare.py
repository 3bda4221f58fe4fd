"""Runs side by side: per operation and stage, what got worse, what got better, what cannot be told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tippingpoint.durations import show_us
from tippingpoint.errors import UserError
from tippingpoint.hdr import Histogram
from tippingpoint.intervals import Interval, difference_of_shares, ratio_of_percentiles
from tippingpoint.latency import costs
from tippingpoint.results import OPERATIONS, RunData, StageKind, StageResult
from tippingpoint.tipping import Tipping, find_tipping
from tippingpoint.wording import show_list, show_load, show_share, show_size

Judgement = Literal["worse", "better", "same", "unsure"]

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}
RATES: dict[str, tuple[str, ...]] = {"error_rate": ("error", "timeout"), "lost_rate": ("lost",)}
LEVEL = 0.95
"""The confidence that no figure of the whole comparison is called worse or better by chance (Bonferroni)."""
SAME_SHARE = 0.001
"""Rates that differ by less than one in a thousand, for certain, are the same."""


@dataclass(frozen=True)
class Against:
    """One run's figure against the baseline's."""

    change: float | None
    """Percentiles: the ratio to the baseline. Rates: the difference to it. None when there is no figure."""
    low: float | None
    high: float | None
    """The 95 % interval of `change` by itself; `high` is infinite where a sample is too small for a bound."""
    judgement: Judgement
    """Rests on the wider interval that is right for all rows together (LEVEL)."""


@dataclass(frozen=True)
class Row:
    """One figure of one operation at one stage size, in every run; the first run is the baseline."""

    operation: str
    size: int
    storm: bool
    """Of stages of kind storm, which are compared with storms only (and removals with removals)."""
    measure: str
    """p50 p90 p95 p99 (microseconds), error_rate or lost_rate (shares in 0..1)."""
    values: list[float | None]
    """One per run; None where the run did not measure it."""
    counts: list[int]
    """How many operations each value rests on."""
    against: list[Against]
    """One per run after the first."""
    destroy: bool = False
    """Of stages of kind destroy, in which things were removed."""


@dataclass(frozen=True)
class Comparison:
    """Runs against the first of them."""

    titles: list[str]
    versions: list[str]
    """The targets' kinds and versions, as "etcd 3.5.16"."""
    load_unit: str
    tolerance: float
    rows: list[Row]
    worse: list[str]
    better: list[str]
    """One line for each figure that changed for certain, the largest change first."""
    not_comparable: list[str]
    """What only some of the runs have: stage sizes, storms, operations."""
    tippings: list[Tipping]
    """One per run."""
    tipped_first: str
    """Which run tipped at the smallest load, in one sentence."""
    sentence: str

    @property
    def regressed(self) -> bool:
        """Whether anything got worse by more than the tolerance (exit code 1)."""
        return bool(self.worse)


@dataclass(frozen=True)
class _Cell:
    """What one run measured of one operation at one load."""

    latencies: Histogram
    attempts: int
    failures: dict[str, int]


_Key = tuple[StageKind, int, str]
"""Kind (ramp stands for every step of the ladder), size, operation."""


def compare(runs: Sequence[RunData], tolerance: float = 0.10) -> Comparison:
    """Every run against the first one, at the stage sizes they share; one alone stands beside published figures.

    A percentile is worse when its ratio to the baseline is certain to be above 1 + `tolerance`, better when it
    is certain to be below 1 / (1 + `tolerance`), the same when certain to be between; unsure otherwise.
    A rate is worse when it is certain to have risen by more than `tolerance` of the baseline's.
    Samples are taken as independent; what makes two runs of the same target differ as a whole is not in the
    histograms of one run, and that is what `tolerance` is for. UserError for no run, runs that
    count different things, or a tolerance that is negative or not finite.
    """
    if not runs:
        raise UserError("compare", f"{len(runs)} run", "one run or more")
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise UserError("--tolerance", tolerance, "a share from 0 up, such as 0.1")
    units = {run.manifest.load_unit for run in runs}
    if len(units) > 1:
        raise UserError(
            "compare", f"stages in {' and '.join(sorted(units))}", "runs whose stages count the same"
        )
    unit = runs[0].manifest.load_unit
    tables = [_table(run) for run in runs]
    keys = sorted({key for table in tables for key in table}, key=_place)
    shared = [key for key in keys if sum(key in table for table in tables) > 1 and key in tables[0]]
    tests = sum(
        sum(key in table for table in tables[1:]) * (len(PERCENTILES) + len(_rates(key[2]))) for key in shared
    )
    level = 1 - (1 - LEVEL) / max(1, tests)
    rows = [
        row for key in shared for row in _rows(key, [table.get(key) for table in tables], level, tolerance)
    ]
    titles = _titles(runs)
    worse, better = _changes(rows, titles, unit)
    tippings = [find_tipping(run) for run in runs]
    tipped_first = _tipped_first(titles, tippings, runs, unit)
    return Comparison(
        titles=titles,
        versions=[f"{run.manifest.target.kind} {run.manifest.target.version}".strip() for run in runs],
        load_unit=unit,
        tolerance=tolerance,
        rows=rows,
        worse=worse,
        better=better,
        not_comparable=_not_comparable(keys, tables, titles, unit),
        tippings=tippings,
        tipped_first=tipped_first,
        sentence=(
            f"{_summary(rows, worse, better, titles[0])} {tipped_first}"
            if len(runs) > 1
            else f"There is one run, and nothing to hold against it. {tippings[0].sentence}"
        ),
    )


def _titles(runs: Sequence[RunData]) -> list[str]:
    titles = [run.manifest.title for run in runs]
    return titles if len(set(titles)) == len(titles) else [run.manifest.id for run in runs]


def _place(key: _Key) -> tuple[bool, bool, int, int, str]:
    kind, size, operation = key
    known = OPERATIONS.index(operation) if operation in OPERATIONS else len(OPERATIONS)
    return kind == "destroy", kind == "storm", size, known, operation


def _rates(operation: str) -> list[str]:
    return ["error_rate", "lost_rate"] if operation == "extend" else ["error_rate"]


def _table(run: RunData) -> dict[_Key, _Cell]:
    """Stages of the same size taken together; storms and removals apart."""
    stages: dict[tuple[StageKind, int], list[StageResult]] = {}
    for stage in run.stages:
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
                latencies = Histogram.merged(costs(stage, operation) for stage in same)
                table[kind, size, operation] = _Cell(latencies, attempts, failures)
    return table


def _rows(key: _Key, cells: Sequence[_Cell | None], level: float, tolerance: float) -> list[Row]:
    kind, size, operation = key
    storm, destroy = kind == "storm", kind == "destroy"
    rows: list[Row] = []
    for measure, percentile in PERCENTILES.items():
        totals = [cell.latencies.total if cell else 0 for cell in cells]
        values = [
            float(cell.latencies.percentile(percentile)) if cell and total else None
            for cell, total in zip(cells, totals, strict=True)
        ]
        against = [_percentile_against(cells[0], cell, percentile, level, tolerance) for cell in cells[1:]]
        rows.append(Row(operation, size, storm, measure, values, totals, against, destroy))
    for measure in _rates(operation):
        values = [cell.failures[measure] / cell.attempts if cell else None for cell in cells]
        counts = [cell.attempts if cell else 0 for cell in cells]
        against = [_rate_against(cells[0], cell, measure, level, tolerance) for cell in cells[1:]]
        rows.append(Row(operation, size, storm, measure, values, counts, against, destroy))
    return rows


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
    margin = tolerance * base.failures[measure] / base.attempts
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


def _changes(rows: Sequence[Row], titles: Sequence[str], unit: str) -> tuple[list[str], list[str]]:
    found: dict[str, list[tuple[float, str]]] = {"worse": [], "better": []}
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
    """Rates before latencies, then by how far they moved."""
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
    keys: Sequence[_Key], tables: Sequence[dict[_Key, _Cell]], titles: Sequence[str], unit: str
) -> list[str]:
    lines: list[str] = []
    for kind, size, operation in keys:
        has = [title for title, table in zip(titles, tables, strict=True) if (kind, size, operation) in table]
        if len(has) < len(titles):
            lines.append(f"{operation} {show_load(size, unit, kind)}: only in {show_list(has)}")
    return lines


def _tipped_first(
    titles: Sequence[str], tippings: Sequence[Tipping], runs: Sequence[RunData], unit: str
) -> str:
    tipped = [
        (tipping.cliff.first_broken, title)
        for title, tipping in zip(titles, tippings, strict=True)
        if tipping.cliff is not None and not tipping.cliff.during_fault
    ]
    if not tipped:
        return "No run tipped at the loads tried."
    least = min(size for size, _ in tipped)
    first = [title for size, title in tipped if size == least]
    later = [f"{title} at {show_size(size)}" for size, title in sorted(tipped) if size != least]
    loads = {
        title: max((stage.size for stage in run.stages if stage.is_step), default=0)
        for title, run in zip(titles, runs, strict=True)
    }
    stood = [
        f"{title} held through {show_size(loads[title])}"
        for title in titles
        if title not in {name for _, name in tipped}
    ]
    rest = "; ".join(later + stood)
    return f"{show_list(first)} tipped first, at {show_size(least)} {unit}{'; ' + rest if rest else ''}."


def _summary(rows: Sequence[Row], worse: Sequence[str], better: Sequence[str], baseline: str) -> str:
    if not rows:
        return f"Nothing to compare: no stage size of {baseline} was measured in another run."
    judgements = [against.judgement for row in rows for against in row.against]
    unsure = judgements.count("unsure")
    parts = [
        f"{len(worse)} figures got worse",
        f"{len(better)} better",
        f"{judgements.count('same')} are the same",
    ]
    if unsure:
        parts.append(f"{unsure} rest on too few samples to tell")
    worst = f" Worst: {worse[0]}." if worse else ""
    return f"Against {baseline}: {', '.join(parts)}.{worst}"
