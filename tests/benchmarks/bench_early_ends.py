"""How many early ends of holds are wrong: what the whole hold would have shown is the contrary.

    .venv/bin/python tests/benchmarks/bench_early_ends.py [--searches 100] [--seed 2240] [--rows 'smooth;...']
        [--markdown]

Rows are kinds of targets (tests/simulated_holds.py) whose every call is simulated: latencies that are log-normal, or
those of an M/M/1 queue; calls of 10 or 200 ms; and targets that pause. Each row searches for the load at which p99 is
100 ms, which is drawn anew from 60 to 2,000 calls a second; `p50` and `p99.9` limit that percentile. Each search begins
at a tenth to a half of that. Holds last 30 s, in some rows 8 s.

Columns: searches, their holds, the early ends among them as held and as broken, how many of each are wrong, the share
of both, and the mean length of a search in minutes.
"""

from __future__ import annotations

import argparse
import random
import sys
from functools import partial
from math import exp, log
from multiprocessing import Pool
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.simulated_holds import Calls, CallTarget, HoldEnd, search_calls  # noqa: E402
from tippingpoint.analysis.search.searcher import Aim  # noqa: E402
from tippingpoint.plan.base import Threshold  # noqa: E402

ROWS: dict[str, tuple[Calls, float, str]] = {
    "smooth": (Calls(), 30.0, "p99"),
    "queue": (Calls("queue"), 30.0, "p99"),
    "bimodal": (Calls("bimodal"), 30.0, "p99"),
    "pause each 30 s": (Calls(every=30.0, pause=(0.1, 0.8)), 30.0, "p99"),
    "pause each 10 s": (Calls(every=10.0, pause=(0.05, 0.3)), 30.0, "p99"),
    "bimodal, pause each 30 s": (Calls("bimodal", every=30.0, pause=(0.1, 0.8)), 30.0, "p99"),
    "smooth, hold 8 s": (Calls(), 8.0, "p99"),
    "bimodal, hold 8 s": (Calls("bimodal"), 8.0, "p99"),
    "pause each 30 s, hold 8 s": (Calls(every=30.0, pause=(0.1, 0.4)), 8.0, "p99"),
    "bimodal, p50": (Calls("bimodal"), 30.0, "p50"),
    "bimodal, p99.9": (Calls("bimodal"), 30.0, "p999"),
}
_PERCENTILES = {"p50": 50.0, "p99": 99.0, "p999": 99.9}
HEAD = [
    "target",
    "searches",
    "holds",
    "held early",
    "wrong",
    "broke early",
    "wrong",
    "share wrong",
    "minutes",
]


def one(row: str, seed: str) -> tuple[list[HoldEnd], float]:
    """Search one target of a row."""
    calls, hold, limit = ROWS[row]
    draw = random.Random(f"{row} {seed}")
    tips = exp(draw.uniform(log(60), log(2000)))
    aim = Aim(
        start=max(20.0, round(tips * draw.uniform(0.1, 0.5))),
        limit=4000,
        resolution=0.2,
        hold=hold,
        within=None,
        whole=True,
    )
    threshold = Threshold.model_validate({"operation": "extend", limit: "100ms"})
    ends, seconds, _ = search_calls(CallTarget(calls, tips, draw, _PERCENTILES[limit]), aim, threshold)
    return ends, seconds


def line(row: str, found: list[tuple[list[HoldEnd], float]]) -> list[str]:
    """Return a row of the table."""
    ends = [end for each, _ in found for end in each]
    held = [end for end in ends if end.early is True]
    broke = [end for end in ends if end.early is False]
    wrong_held, wrong_broke = sum(not end.whole for end in held), sum(end.whole for end in broke)
    of = len(held) + len(broke)
    counts = (len(found), len(ends), len(held), wrong_held, len(broke), wrong_broke)
    share = f"{100 * (wrong_held + wrong_broke) / of:.2f} %" if of else ""
    minutes = sum(seconds for _, seconds in found) / len(found) / 60
    return [row, *(f"{count:,}" for count in counts), share, f"{minutes:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=100)
    parser.add_argument("--seed", default="2240")
    parser.add_argument("--rows", default=";".join(ROWS), help="separated by semicolons")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()

    def show(cells: list[str]) -> None:
        if asked.markdown:
            print(f"| {' | '.join(cells)} |", flush=True)
        else:
            print(f"{cells[0]:28}" + "".join(f"{cell:>12}" for cell in cells[1:]), flush=True)

    show(HEAD)
    if asked.markdown:
        show(["---"] * len(HEAD))
    with Pool() as pool:
        for row in asked.rows.split(";"):
            seeds = [f"{asked.seed} {number}" for number in range(asked.searches)]
            show(line(row, pool.map(partial(one, row), seeds, chunksize=2)))


if __name__ == "__main__":
    main()
