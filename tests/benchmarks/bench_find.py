"""How true a search's answer is, and what it costs, on targets whose limit is known; peers beside it.

    .venv/bin/python tests/benchmarks/bench_find.py [--searches 1000] [--seed 2026] [--sides ours,doubling,...]
        [--rows soft,...] [--resolution 0.2] [--markdown]

MLRsearch's package is in the dependency group `benchmark`; without it that side is left out.

Rows are kinds of targets (tests/simulated_targets.py), those that no model of ours describes (`CHANGING`), targets
whose every call is simulated (`CALLS`), and queues of known capacity (find_queues.py). In each row but those of
`CALLS`, the limit is drawn anew for each search, from 150 to 66,000 with a first load of 100. The truth is the load at
which the
chance that a hold meets the threshold is one half: as drawn, or for queues by simulation; of a target that drifts, at
the search's end. A side is a search:

ours         the Searcher of `find`: margins, early ends of holds, no emptying in between
doubling     ours until 2026: doubles, bisects to 10 %, repeats; every load from nothing, as in all peers
nighthawk    Nighthawk's adaptive controller: doubles, bisects to 1 %, one verdict a load
mlrsearch    MLRsearch's package, three trials a bound, half of which may fail
bisection    probabilistic bisection to our resolution, each verdict right with 0.8

Columns: probes and minutes (means; ramp 3 s, hold 30 s, emptying 5 s), the median and 90th percentile of the error of
the limit, how many intervals hold the truth, their median width, and how many searches name a limit and stand by it.
Where there is no limit to find, an answer covers the truth if it names none.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from math import exp, log
from multiprocessing import Pool
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.find_peers import Holds, Named, bisection, doubling, mlrsearch, nighthawk  # noqa: E402
from tests.benchmarks.find_queues import QUEUES, QueueTarget  # noqa: E402
from tests.simulated_holds import Calls, CallTarget, search_calls  # noqa: E402
from tests.simulated_targets import (  # noqa: E402
    Kind,
    Result,
    Target,
    jumps,
    on_and_off,
    search,
    settles,
    swings,
)
from tippingpoint.analysis.search.searcher import Aim  # noqa: E402
from tippingpoint.plan.base import Threshold  # noqa: E402

AIM = Aim(start=100, limit=100_000, resolution=0.2, hold=30.0, within=None, whole=True)
LOWEST, HIGHEST = 150.0, 66_000.0
KINDS: Mapping[str, Kind] = {
    "sharp, a step": Kind(softness=0.01, shape="step"),
    "sharp": Kind(softness=0.01),
    "soft 0.05": Kind(softness=0.05),
    "soft 0.15": Kind(softness=0.15),
    "soft 0.3": Kind(softness=0.3),
    "as a queue": Kind(softness=0.05, shape="queue"),
    "lapses 5 %": Kind(softness=0.15, lapses=0.05),
    "noise": Kind(softness=0.15, slope=(0.7, 2.0), error=(0.2, 0.4)),
    "drift": Kind(softness=0.1, drift=1.0),
    "memory": Kind(softness=0.1, hurt=0.15),
    "strong memory": Kind(softness=0.1, stays=0.3),
    "no limit within": Kind(softness=0.1),
    "broken at the start": Kind(softness=0.1),
}
CHANGING: Mapping[str, Kind] = {
    "slow heal": Kind(softness=0.1, stays=0.3, heals=8.0),
    "jump": Kind(softness=0.1, path=jumps),
    "foreign load": Kind(softness=0.1, path=on_and_off, recurs=True),
    "sine of 20 %": Kind(softness=0.1, path=swings, recurs=True),
    "plateau": Kind(softness=0.05, shape="plateau"),
    "Pareto noise": Kind(softness=0.1, tails=1.5),
    "latch": Kind(softness=0.1, hurt=1.5),
    "settles": Kind(softness=0.1, path=settles),
    "ages with its load": Kind(softness=0.1, ages=0.015),
    "scars of overload": Kind(softness=0.1, scars=0.4, heals=4.0),
}
"""Targets that change while they are searched, or that no model of ours describes."""
CALLS: Mapping[str, Calls] = {
    "pause each 30 s": Calls(every=30.0, pause=(0.2, 0.34)),
    "pause each 50 s": Calls(every=50.0, pause=(0.2, 0.34)),
    "p99 of 100 calls": Calls("bimodal", timed=100 / 30),
}
"""Targets whose every call is simulated; their limits are from 40 to 400 calls a second."""
FEW = replace(AIM, start=10, limit=10_000)
P99 = Threshold.model_validate({"operation": "extend", "p99": "100ms"})
SIDES: Mapping[str, Callable[[Aim, Holds], Named] | None] = {
    "ours": None,
    "doubling": doubling,
    "nighthawk": nighthawk,
    "mlrsearch": mlrsearch,
    "bisection": bisection,
}
Made = tuple[Target | QueueTarget, Aim, bool]


def made(row: str, draw: random.Random) -> Made:
    """Return a target of a row, what to look for in it, and whether there is a limit to find."""
    if row in QUEUES:
        limit = exp(draw.uniform(log(LOWEST), log(HIGHEST)))
        return QueueTarget(QUEUES[row], limit, draw), AIM, True
    kind = {**KINDS, **CHANGING}[row]
    if row == "no limit within":
        return Target(kind, AIM.limit * 2, draw), AIM, False
    if row == "broken at the start":
        return Target(kind, exp(draw.uniform(log(5), log(80))), draw), AIM, True
    return Target(kind, exp(draw.uniform(log(LOWEST), log(HIGHEST))), draw), AIM, True


def one(row: str, side: str, resolution: float, seed: str) -> tuple[Result, bool, float]:
    """Search one target; returns the result, whether the search stands by it, and the seconds of CPU it took."""
    if row in CALLS:
        return one_of_calls(row, resolution, seed)
    target, aim, there = made(row, random.Random(f"{row} {seed}"))
    aim = replace(aim, resolution=resolution)
    begun = time.process_time()
    peer = SIDES[side]
    if peer is None:
        result = search(target, aim, truth=there)
        return result, result.found is not None, time.process_time() - begun
    now = [0.0]
    count = [0]

    def holds(load: float, hold: float) -> bool:
        probe = target.probe(load, fresh=True, at=now[0], hold=hold)
        now[0] += probe.seconds
        count[0] += 1
        return bool(probe.held)

    named = peer(aim, holds)
    truth = target.limit(now[0], aim.hold) if there else None
    result = Result(truth, named.limit, named.low, named.high, "", count[0], now[0])
    return result, named.stands and named.limit is not None, time.process_time() - begun


def one_of_calls(row: str, resolution: float, seed: str) -> tuple[Result, bool, float]:
    """Search one target of `CALLS` with ours; returns the same as `one`."""
    draw = random.Random(f"{row} {seed}")
    target = CallTarget(CALLS[row], exp(draw.uniform(log(40), log(400))), draw)
    begun = time.process_time()
    ends, seconds, answer = search_calls(target, replace(FEW, resolution=resolution), P99)
    took = time.process_time() - begun
    truth = target.tips(P99, int(FEW.hold))
    found = Result(truth, answer.limit, answer.low, answer.high, answer.ended, len(ends), seconds)
    return found, answer.limit is not None, took


def line(row: str, side: str, found: Sequence[tuple[Result, bool, float]]) -> list[str]:
    """Return a row of the table."""
    results = [result for result, _, _ in found]
    errors = sorted(result.error for result in results if result.error is not None)
    widths = [result.width for result in results if result.width is not None]

    def share(value: float | None) -> str:
        return "" if value is None else f"{100 * value:.1f} %"

    return [
        row,
        side,
        f"{statistics.mean(result.probes for result in results):.1f}",
        f"{statistics.mean(result.seconds for result in results) / 60:.1f}",
        share(statistics.median(errors) if errors else None),
        share(errors[int(0.9 * len(errors))] if errors else None),
        share(statistics.mean(result.covers for result in results)),
        share(statistics.median(widths) if widths else None),
        share(statistics.mean(stands for _, stands, _ in found)),
    ]


HEAD = ["target", "search", "probes", "minutes", "error p50", "error p90", "coverage", "width", "named"]


def show(cells: Sequence[str], markdown: bool) -> None:
    if markdown:
        print(f"| {' | '.join(cells)} |", flush=True)
    else:
        print(f"{cells[0]:20}{cells[1]:12}" + "".join(f"{cell:>11}" for cell in cells[2:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--seed", default="2026")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--rows", default=",".join([*KINDS, *QUEUES, *CHANGING, *CALLS]).replace(", ", ";"))
    parser.add_argument(
        "--resolution", type=float, default=AIM.resolution, help="the width that is asked for"
    )
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    sides = [side for side in asked.sides.split(",") if side != "mlrsearch" or find_spec("MLRsearch")]
    rows = [row.replace(";", ", ") for row in asked.rows.split(",")]
    print(
        f"{asked.searches} searches a row, seed {asked.seed}, resolution {asked.resolution:g}, {os.cpu_count()} cores"
    )
    show(HEAD, asked.markdown)
    if asked.markdown:
        show(["---"] * len(HEAD), True)
    with Pool() as pool:
        for row in rows:
            for side in sides if row not in CALLS else ["ours"]:
                seeds = [f"{asked.seed} {number}" for number in range(asked.searches)]
                found = pool.map(partial(one, row, side, asked.resolution), seeds, chunksize=4)
                show(line(row, side, found), asked.markdown)


if __name__ == "__main__":
    main()
