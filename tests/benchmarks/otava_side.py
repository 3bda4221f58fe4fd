"""Apache Otava's side of bench_trend, for an interpreter that has it: places of changes for histories, as JSON lines.

A line of the input is a list of values, null for a run without one. The answer has a line for each, the list of places
that `otava analyze` would name: E-divisive in windows with its t-test, all settings as Otava has them.
"""

from __future__ import annotations

import json
import sys

from otava.series import AnalysisOptions, Metric, Series


def main() -> None:
    for line in sys.stdin:
        values = json.loads(line)
        series = Series(
            "history", None, list(range(len(values))), {"figure": Metric()}, {"figure": values}, {}
        )
        found = series.analyze(AnalysisOptions()).change_points["figure"]
        print(json.dumps([int(change.index) for change in found]), flush=True)


if __name__ == "__main__":
    main()
