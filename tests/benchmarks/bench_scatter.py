"""Why answers of a search scatter on a real etcd: a designed experiment over what may matter.

    .venv/bin/python tests/benchmarks/bench_scatter.py [--runs 64] [--seed 2026] [--out runs/scatter]
        [--within 10m] [--again] [--markdown]

| factor | low | high |
|---|---|---|
| used | the lab's first search | its second one, of the same kind |
| first | the first load is 1,500 leases | 16,000, some four times what it bears |
| places | target and generator a core each | both on all cores |
| members | three | one |
| beside | nothing of ours beside it | a busy loop of half a core on the target's last core |
| hold | 8 s | 30 s |
| limit | 99 % of extensions within 50 ms | 90 % |

Every lab is searched twice, fresh and used. So `used` is compared within a lab, and the other six between labs (a
split-plot design). 16 labs are a quarter of the 64 combinations of these six, such that no factor is confounded with
another or with two others (2^(6-2), E = ABC, F = BCD). The next 16 labs are the next quarter: a run of the experiment
is fair to every factor after each 32 searches, and complete after 128. Within a quarter the order is random, from the
seed. At 2 to 5 minutes a search, 32 take about two hours.

Every search is a line of OUT/SEED.jsonl when it ends, with CPU-seconds of all else on the machine, and what the members
look like inside. The same command goes on where it was cut, with a new lab for the one that was cut. `--again` only
prints the tables of what is there.

The first table has each factor's share of the variance of ln(limit), its effect on the limit, and the 95 % interval of
that. Shares are of one whole: those between labs, those within labs, and what is left of either. `used, hold 30s` is
what `used` does at holds of 30 s, divided by what it does at those of 8 s. Searches without a limit are counted, and
have no part in the table; nor has the other search of their lab.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from math import exp, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.control import LabError  # noqa: E402
from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.places import Places, split  # noqa: E402
from tests.benchmarks.lab_searches import append, busy_loop, kept, search  # noqa: E402
from tippingpoint.compare.scatter import student_quantile  # noqa: E402

FloatArray = NDArray[np.float64]

BETWEEN = ("first", "places", "members", "beside", "hold", "limit")
"""The factors that a lab and its two searches share."""
LEVELS = {
    "first": (1500, 16000),
    "places": ("apart", "shared"),
    "members": (3, 1),
    "beside": ("quiet", "busy"),
    "hold": ("8s", "30s"),
    "limit": ("p99", "p90"),
    "used": ("fresh", "used"),
}
DUTY = (0.5, 0.5)
QUARTER, SEARCHES = 16, 2


def quarter(number: int) -> list[dict[str, int]]:
    """Return the combinations of a quarter of the design, by level: 0 is low, 1 is high.

    The quarters differ in the signs of E = ABC and F = BCD, so four of them are all 64 combinations.
    """
    cells: list[dict[str, int]] = []
    for a, b, c, d in product((0, 1), repeat=4):
        e = (a + b + c + number) % 2
        f = (b + c + d + number // 2) % 2
        cells.append(dict(zip(BETWEEN, (a, b, c, d, e, f), strict=True)))
    return cells


def labs(seed: int, count: int) -> list[dict[str, int]]:
    """Return the combination of each lab in order: quarter by quarter, each in a random order."""
    found: list[dict[str, int]] = []
    while len(found) < count:
        number = len(found) // QUARTER
        cells = quarter(number)
        random.Random(f"{seed} {number}").shuffle(cells)
        found += cells
    return found[:count]


def plan_of(cell: Mapping[str, int], within: str) -> dict[str, Any]:
    """Return the plan of a search, which is etcd-find but for the factors."""
    at = {name: LEVELS[name][level] for name, level in cell.items()}
    return {
        "name": "scatter",
        "target": {"kind": "etcd"},
        "workload": {"units": 1, "claim_time": "10s", "renew_time": "1s", "timeout": "10s"},
        "find": {
            "start": at["first"],
            "limit": 64000,
            "over": "3s",
            "hold": at["hold"],
            "resolution": 0.1,
            "within": within,
        },
        "thresholds": [{"operation": "extend", at["limit"]: "50ms", "error_rate": 0.001, "lost_rate": 0}],
    }


def run_lab(number: int, cell: Mapping[str, int], seed: int, within: str, file: Path) -> None:
    """Search a new lab twice, and keep both results."""
    everywhere = Places.everywhere()
    members = int(LEVELS["members"][cell["members"]])
    places = everywhere if cell["places"] else split(everywhere.target, members)
    with EtcdLab(members, places=places) as lab, ExitStack() as ending:
        loop = None
        if cell["beside"]:
            loop = ending.enter_context(busy_loop(places.target[-1], f"{seed} {number}", DUTY, 0.0))
        for used in range(SEARCHES):
            found = search(lab, plan_of(cell, within), loop)
            here = {**cell, "used": used}
            append(file, {"lab": number, "cell": here, "within": within, **found})
            print(f"{found['at']} lab {number}, {_words(here)}: {found['sentence']}", flush=True)


def _words(cell: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {LEVELS[name][level]}" for name, level in cell.items())


def _effect(change: float, error: float, freedom: int) -> str:
    """Return by what the limit is multiplied, with the 95 % interval of that if it can be told."""
    if freedom < 1:
        return f"{exp(change):.2f} times"
    width = student_quantile(freedom, 0.95) * error
    return f"{exp(change):.2f} times ({exp(change - width):.2f} to {exp(change + width):.2f})"


def table(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return rows: a factor, its share of the variance of ln(limit), and what its high level does to the limit."""
    by_lab: dict[int, dict[int, Mapping[str, Any]]] = {}
    for line in lines:
        if line["limit"]:
            by_lab.setdefault(line["lab"], {})[line["cell"]["used"]] = line
    pairs = [pair for pair in by_lab.values() if len(pair) == SEARCHES]
    if len(pairs) < 2:
        return []
    logs = np.array([[log(pair[0]["limit"]), log(pair[1]["limit"])] for pair in pairs])
    signs = np.array([[2.0 * pair[0]["cell"][name] - 1 for name in BETWEEN] for pair in pairs])
    columns = np.column_stack([np.ones(len(pairs)), signs])
    whole = float(((logs - logs.mean()) ** 2).sum())
    # A lab's mean stands for two searches. Of its difference the mean is what `used` does.
    between = _fit(["", *BETWEEN], columns, logs.mean(axis=1), 2.0 / whole, 1.0, "left between labs")
    within = ["used", *(f"used, {name} {LEVELS[name][1]}" for name in BETWEEN)]
    return [*between, *_fit(within, columns, logs[:, 1] - logs[:, 0], 0.5 / whole, 0.5, "left within labs")]


def _fit(
    names: Sequence[str], columns: FloatArray, values: FloatArray, weight: float, of_one: float, rest: str
) -> list[tuple[str, str, str]]:
    """Fit values, one of each lab, by columns of ones and of -1 and 1.

    A sum of squares times `weight` is its share. A variance times `of_one` is that of a lab's mean, or of one search.

    A column without a name has no row, and one that these labs do not tell from those before it is left out.
    """
    used: list[int] = []
    for place in range(len(names)):
        if np.linalg.matrix_rank(columns[:, [*used, place]]) > len(used):
            used.append(place)
    solved, left = _least_squares(columns[:, used], values)
    freedom = len(values) - len(used)
    variance = left / freedom if freedom else 0.0
    scatter = f"scatters by {100 * sqrt(of_one * variance):.0f} %, {freedom} degrees of freedom"
    inverse = np.linalg.inv(columns[:, used].T @ columns[:, used])
    rows: list[tuple[str, str, str]] = []
    for at, place in enumerate(used):
        if not names[place]:
            continue
        _, without = _least_squares(columns[:, [one for one in used if one != place]], values)
        step = 2.0 if place else 1.0  # from -1 to 1, or from nothing to all of it
        error = step * sqrt(variance * float(inverse[at, at]))
        share = f"{100 * weight * (without - left):.1f} %"
        rows.append((names[place], share, _effect(step * float(solved[at]), error, freedom)))
    return [*rows, (rest, f"{100 * weight * left:.1f} %", scatter)]


def _least_squares(columns: FloatArray, values: FloatArray) -> tuple[FloatArray, float]:
    """Return the coefficients, and the sum of squares that they leave."""
    solved, *_ = np.linalg.lstsq(columns, values, rcond=None)
    left = values - columns @ solved
    return np.asarray(solved, dtype=np.float64), float(left @ left)


def aging(lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return rows: what is inside a member, its median after a lab's first search, and after its second."""
    names = dict.fromkeys(name for line in lines for member in line["inside"].values() for name in member)
    rows: list[tuple[str, str, str]] = []
    for name in names:
        cells: list[str] = []
        for used in range(SEARCHES):
            values = [
                member[name]
                for line in lines
                if line["cell"]["used"] == used
                for member in line["inside"].values()
                if name in member
            ]
            cells.append(f"{statistics.median(values):,.0f}" if values else "")
        rows.append((name, cells[0], cells[1]))
    return rows


def show(head: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> None:
    for row in [head, *rows]:
        print(f"| {' | '.join(row)} |" if markdown else f"{row[0]:28} {row[1]:>20}  {row[2]:>20}")
        if row is head and markdown:
            print("|---|---:|---:|")
    print()


def main() -> None:
    """Search the labs that are not there yet, and print what explains the scatter."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, default=64, help="searches in all; 32 are a quarter of the design"
    )
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=Path("runs/scatter"), help="where results are kept")
    parser.add_argument("--within", default="10m", help="the longest search")
    parser.add_argument("--again", action="store_true", help="search nothing")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    file: Path = options.out / f"{options.seed}.jsonl"
    found = kept(file)
    if any(line["within"] != options.within for line in found):
        raise SystemExit(f"--within: {options.within}: expected {found[0]['within']}, as in {file}")
    whole = {line["lab"] for line in found if sum(one["lab"] == line["lab"] for one in found) == SEARCHES}
    planned = labs(options.seed, -(-options.runs // SEARCHES))
    for number, cell in enumerate(planned):
        if options.again or number in whole:
            continue
        try:
            run_lab(number, cell, options.seed, options.within, file)
        except LabError as problem:
            print(f"lab {number}: {problem}", flush=True)
    # Of a lab that was cut, the lab that took its place has the last lines.
    lines = list({(line["lab"], line["cell"]["used"]): line for line in kept(file)}.values())
    without = sum(not line["limit"] for line in lines)
    print(f"{len(lines)} searches, {without} of them without a limit\n")
    rows = table(lines)
    if rows:
        show(("factor", "share of variance", "the high level makes the limit"), rows, options.markdown)
    else:
        print("no table: expected two labs whose two searches have a limit\n")
    show(("median of members", "after the first search", "after the second"), aging(lines), options.markdown)
    shares = [line["cpu_s"]["others"] / line["seconds"] for line in lines]
    if shares:
        print(
            f"other programs took {min(shares):.2f} to {max(shares):.2f} cores, median {statistics.median(shares):.2f}"
        )


if __name__ == "__main__":
    main()
