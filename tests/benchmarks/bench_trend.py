"""How well changes are found in histories of runs: beside Apache Otava and `ruptures` (PELT), on the same histories.

    TIPPINGPOINT_TREND_PEERS=VENV .venv/bin/python tests/benchmarks/bench_trend.py [--histories 400] [--seed 2026]
        [--tables alarms,found,drift] [--markdown]

VENV is an environment with Apache Otava, which pins what this project has in other versions; without it that side is
left out: `uv venv VENV && uv pip install --python VENV apache-otava==0.8.0`. PELT is in the dependency group
`benchmark`. All sides look at the same histories, in one process each:

ours   find_changes, as `tippingpoint trend` calls it
otava  Otava's own settings: E-divisive in windows of 50 runs, then a t-test with p < 0.001, changes of any size
pelt   means, levels of two runs or more, the penalty of BIC (2 s^2 ln n, s by the differences of neighbours)

A history has 40 runs. The logarithms of a figure scatter with the standard deviation of the row, normally, or:

t(4)          Student's t with 4 degrees of freedom
ar(R)         autocorrelated: each run has R of the deviation of the run before
one outlier   one run, any but the last, is half as large again
gaps          a fifth of the runs lacks the figure (PELT, which knows no gaps, sees the rest)

`alarms`: the share of histories without a change in which one is told; `10 figures` are looked at together; `growing`
histories are looked at after each run from the tenth on, and an alarm at any look counts. Histories that `growing` has
are a tenth as many.

`found`: a change begins 1, 2, 3, 5 or 10 runs before the end. The columns are the shares of histories in which it is
told within two runs of its place. `told after` is the first of these at which half are told: the delay. One run alone
is an outlier to ours, whatever its size.

`drift`: a figure rises slowly, over the 20 runs in the middle or over all: the share in which anything is told, how
many changes are told where any is, and how often it is one, called a drift.

The ratios divide a side's share by ours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import ruptures

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.bench_find import show  # noqa: E402
from tippingpoint.compare.trend.changes import Measured, find_changes  # noqa: E402

PEERS = "TIPPINGPOINT_TREND_PEERS"
RUNS, FIRST_LOOK, NEAR = 40, 10, 2
AFTER = (1, 2, 3, 5, 10)
"""How many runs a new level has when the history is looked at."""
OUTLIER, GAPS = 1.5, 0.2
CHANGES, SCATTERS = (0.03, 0.05, 0.10, 0.20), (0.02, 0.05, 0.10)
Logs = np.ndarray
Draw = Callable[[np.random.Generator], Logs]


def autocorrelated(share: float) -> Draw:
    def draw(random: np.random.Generator) -> Logs:
        own = random.normal(size=RUNS)
        for run in range(1, RUNS):
            own[run] = share * own[run - 1] + np.sqrt(1 - share**2) * own[run]
        return own

    return draw


SHAPES: dict[str, Draw] = {
    "t(4)": lambda random: random.standard_t(4, size=RUNS) / np.sqrt(2),
    **{f"ar({share})": autocorrelated(share) for share in (0.2, 0.3, 0.5, 0.8)},
}
KINDS = ("normal", *SHAPES, "one outlier", "gaps")


@dataclass(frozen=True)
class Told:
    """A change that a side tells."""

    at: int
    drifts: bool = False


Call = Sequence[Logs]
"""Series that are looked at together; nan is a run without the figure."""
Side = Callable[[Sequence[Call]], list[list[list[Told]]]]
"""Returns what is told of each series of each call."""


def ours(calls: Sequence[Call]) -> list[list[list[Told]]]:
    told: list[list[list[Told]]] = []
    for call in calls:
        series = [Measured(valued(logs), [0.0] * len(logs)) for logs in call]
        told.append([[Told(one.at, one.drifts) for one in found] for found in find_changes(series)])
    return told


def otava(calls: Sequence[Call]) -> list[list[list[Told]]]:
    return [[[Told(place) for place in _otava(logs)] for logs in call] for call in calls]


def _otava(logs: Logs) -> list[int]:
    process = _otava_process()
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(valued(logs)), file=process.stdin, flush=True)
    return json.loads(process.stdout.readline())


@cache
def _otava_process() -> subprocess.Popen[str]:
    """One for all histories: its imports take longer than many of them. It ends with its input."""
    python, side = Path(os.environ[PEERS]) / "bin" / "python", Path(__file__).with_name("otava_side.py")
    return subprocess.Popen([python, side], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def pelt(calls: Sequence[Call]) -> list[list[list[Told]]]:
    return [[_pelt(logs) for logs in call] for call in calls]


def _pelt(logs: Logs) -> list[Told]:
    there = np.flatnonzero(~np.isnan(logs))
    logs = logs[there]
    scatter = float(np.median(np.abs(np.diff(logs)))) / 0.6745 / np.sqrt(2)
    model = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(logs)
    places = model.predict(pen=2 * scatter**2 * np.log(len(logs)))[:-1]
    return [Told(int(there[place])) for place in places]


SIDES: dict[str, Side] = {"ours": ours, **({"otava": otava} if PEERS in os.environ else {}), "pelt": pelt}


def valued(logs: Logs) -> list[float | None]:
    return [None if np.isnan(value) else float(np.exp(value)) for value in logs]


def drawn(kind: str, sigma: float, seed: str) -> Logs:
    """Return a history without a change. Those of a seed have the same noise, whatever their scatter."""
    random = np.random.default_rng([*map(ord, f"{kind} {seed}")])
    logs = sigma * SHAPES.get(kind, lambda random: random.normal(size=RUNS))(random)
    if kind == "one outlier":
        logs[random.integers(RUNS - 1)] += np.log(OUTLIER)
    if kind == "gaps":
        logs[random.random(RUNS) < GAPS] = np.nan
    return logs


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def against(shares: dict[str, float]) -> list[str]:
    """Return each peer's share as a multiple of ours."""
    peers = [share for side, share in shares.items() if side != "ours"]
    return [f"{share / shares['ours']:.2f}" if shares["ours"] else "-" for share in peers]


def alarms(seeds: Sequence[str], markdown: bool) -> None:
    peers = [side for side in SIDES if side != "ours"]
    head(["without a change", "scatter", *SIDES, *(f"{side} / ours" for side in peers)], markdown)
    rows = [("normal", sigma) for sigma in SCATTERS] + [(kind, 0.05) for kind in KINDS[1:]]
    for kind, sigma in rows:
        alarm_row(kind, sigma, [[drawn(kind, sigma, seed)] for seed in seeds], markdown)
    together = [[drawn("normal", 0.05, f"{seed} {figure}") for figure in range(10)] for seed in seeds]
    alarm_row("10 figures", 0.05, together, markdown)
    for kind in ("normal", "ar(0.5)"):
        histories = [drawn(kind, 0.05, seed) for seed in seeds[::10]]
        lengths = range(FIRST_LOOK, RUNS + 1)
        shares = {
            side: np.mean(
                [any(any(call) for call in find([[logs[:n]] for n in lengths])) for logs in histories]
            )
            for side, find in SIDES.items()
        }
        show([f"growing, {kind}", "5 %", *map(percent, shares.values()), *against(shares)], markdown)


def alarm_row(name: str, sigma: float, calls: Sequence[Call], markdown: bool) -> None:
    shares = {side: float(np.mean([any(told) for told in find(calls)])) for side, find in SIDES.items()}
    show([name, f"{100 * sigma:.0f} %", *map(percent, shares.values()), *against(shares)], markdown)


def found(seeds: Sequence[str], markdown: bool) -> None:
    columns = [f"{runs} run{'s' * (runs > 1)}" for runs in AFTER]
    head(["scatter", "of", "change", "side", *columns, "told after", "with 3: / ours"], markdown)
    rows = [("normal", sigma, change) for sigma in SCATTERS for change in CHANGES]
    rows += [(kind, 0.05, 0.20) for kind in ("t(4)", "ar(0.5)", "one outlier", "gaps")]
    for kind, sigma, change in rows:
        histories = [drawn(kind, sigma, seed) for seed in seeds]
        three = 0.0
        for side, find in SIDES.items():
            shares: list[float] = []
            for runs in AFTER:
                at = RUNS - runs
                rise = np.where(np.arange(RUNS) >= at, np.log(1 + change), 0.0)
                told = find([[logs + rise] for logs in histories])
                shares.append(float(np.mean([_names(one, at) for (one,) in told])))
            three = shares[2] if side == "ours" else three
            late = [runs for runs, share in zip(AFTER, shares, strict=True) if share >= 0.5]
            cells = [kind, f"{100 * sigma:.0f} %", f"{100 * change:.0f} %", side, *map(percent, shares)]
            show(
                [*cells, str(late[0]) if late else "-", f"{shares[2] / three:.2f}" if three else "-"],
                markdown,
            )


def _names(told: Sequence[Told], at: int) -> bool:
    return any(abs(one.at - at) <= NEAR for one in told)


def drift(seeds: Sequence[str], markdown: bool) -> None:
    head(["rises by", "over", "scatter", "side", "told", "changes", "one drift"], markdown)
    for change, first, last in ((0.1, 10, 30), (0.2, 10, 30), (0.2, 0, RUNS)):
        way = np.clip((np.arange(RUNS) - first) / (last - first), 0, 1)
        calls = [[drawn("normal", 0.05, seed) + np.log(1 + change) * way] for seed in seeds]
        for side, find in SIDES.items():
            told = [one for (one,) in find(calls)]
            counts = [len(one) for one in told if one]
            drifts = float(np.mean([len(one) == 1 and one[0].drifts for one in told]))
            cells = [
                f"{100 * change:.0f} %",
                f"{last - first} runs",
                "5 %",
                side,
                percent(len(counts) / len(told)),
            ]
            show([*cells, f"{np.mean(counts):.1f}" if counts else "-", percent(drifts)], markdown)


def head(names: Sequence[str], markdown: bool) -> None:
    print()
    show(list(names), markdown)
    if markdown:
        show(["---"] * len(names), True)


TABLES = {"alarms": alarms, "found": found, "drift": drift}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=400)
    parser.add_argument("--seed", default="2026")
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    print(f"{asked.histories} histories a row, seed {asked.seed}, {', '.join(SIDES)}")
    for table in asked.tables.split(","):
        TABLES[table]([f"{asked.seed} {number}" for number in range(asked.histories)], asked.markdown)


if __name__ == "__main__":
    main()
