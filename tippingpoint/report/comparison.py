"""A comparison as one plain, versioned dictionary: its JSON format, and what its other formats are views of.

Units are those of document.py; in `rows` a percentile's change is a ratio to the first run, a rate's a difference.
An infinite bound of an interval is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tippingpoint import __version__
from tippingpoint.baselines import Baseline
from tippingpoint.compare import Comparison, Row
from tippingpoint.hdr import Histogram
from tippingpoint.latency import costs
from tippingpoint.report.document import FORMAT, tipping_entry
from tippingpoint.report.instances import beside_runs
from tippingpoint.results import OPERATIONS, RunData


def build_comparison(
    comparison: Comparison, beside: Sequence[Baseline], runs: Sequence[RunData] = ()
) -> dict[str, Any]:
    """Everything a report says of a comparison; `by_load` is from all loads of the `runs` when they are given."""
    by_load = _loads_of_runs(runs) if runs else _shared_loads(comparison.rows)
    charted = {str(point["operation"]) for point in by_load}
    seen = charted | {row.operation for row in comparison.rows}
    letters = [_letter(number) for number in range(len(comparison.titles))]
    return {
        "format": FORMAT,
        "kind": "comparison",
        "made_by": f"tippingpoint {__version__}",
        "sentence": comparison.sentence,
        "tipped_first": comparison.tipped_first,
        "regressed": comparison.regressed,
        "tolerance": comparison.tolerance,
        "load_unit": comparison.load_unit,
        "runs": [
            {"letter": letter, "title": title, "version": version, "tipping": tipping_entry(tipping)}
            for letter, title, version, tipping in zip(
                letters, comparison.titles, comparison.versions, comparison.tippings, strict=True
            )
        ],
        "operations": sorted(seen, key=_place),
        "charted": sorted(charted, key=_place),
        "by_load": by_load,
        "worse": comparison.worse,
        "better": comparison.better,
        "unsure": sum(a.judgement == "unsure" for row in comparison.rows for a in row.against),
        "not_comparable": comparison.not_comparable,
        "rows": [_row(row) for row in comparison.rows],
        "beside": [{**baseline.model_dump(), "timings": beside_runs(baseline, runs)} for baseline in beside],
    }


def _letter(number: int) -> str:
    """A, B, ... Z, AA, AB: short names for the runs, the first being what the others are held against."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _place(operation: str) -> tuple[int, str]:
    return (OPERATIONS.index(operation) if operation in OPERATIONS else len(OPERATIONS)), operation


def _loads_of_runs(runs: Sequence[RunData]) -> list[dict[str, Any]]:
    """Per operation and size, p50 and p99 of each run (microseconds, None where it has none); of steps only."""
    points: list[dict[str, Any]] = []
    for operation in sorted({operation for run in runs for operation in run.operations}, key=_place):
        for size in sorted({stage.size for run in runs for stage in run.stages}):
            joined = [
                Histogram.merged(
                    costs(stage, operation) for stage in run.stages if stage.size == size and stage.is_step
                )
                for run in runs
            ]
            if any(histogram.total for histogram in joined):
                points.append(
                    {
                        "operation": operation,
                        "size": size,
                        "p50": [h.percentile(50) if h.total else None for h in joined],
                        "p99": [h.percentile(99) if h.total else None for h in joined],
                    }
                )
    return points


def _shared_loads(rows: Sequence[Row]) -> list[dict[str, Any]]:
    points: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        if row.measure in ("p50", "p99") and not row.storm and not row.destroy:
            key = (row.operation, row.size)
            point = points.setdefault(key, {"operation": row.operation, "size": row.size})
            point[row.measure] = row.values
    return [points[key] for key in sorted(points, key=lambda key: (_place(key[0]), key[1]))]


def _row(row: Row) -> dict[str, Any]:
    entry = asdict(row)
    for against in entry["against"]:
        for name in ("change", "low", "high"):
            if against[name] is not None and not math.isfinite(against[name]):
                against[name] = None
    return entry
