"""Whether a search of the same target has the same answer again, hours later and beside other work.

    .venv/bin/python tests/benchmarks/bench_repeatable.py [--target etcd|lxd] [--searches 10] [--minutes 90]
        [--seed 2026] [--out runs/repeatable] [--within 10m] [--again]

The target is a private etcd of three members, or an LXD of three (root), on processors of its own. Half of the
searches run beside a busy loop on its last processor that comes and goes: spans of 5 to 20 s with a duty of 10 to 60 %,
and pauses up to 20 s. Half of the quiet ones and half of the others begin with a fresh lab, the rest go on with the lab
of the search before. The order is random, from the seed. Searches begin evenly over the minutes, or later.

Every search is a line of OUT/TARGET-SEED.jsonl when it ends, with CPU-seconds of all else on the machine, and the same
command goes on where it was cut. `--again` only prints what is there.

An answer is withheld if it names no limit, or if the run's verdict is withheld. It names the foreign work if what the
report says against it has the words "other programs". It is wrong in silence if it is not withheld and its 95 %
interval does not hold the median of the quiet answers.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.lxd.cluster import LxdLab  # noqa: E402
from lab.places import Places, split  # noqa: E402
from tests.benchmarks.lab_searches import append, busy_loop, kept, search  # noqa: E402
from tippingpoint.util.text import show_count  # noqa: E402

MEMBERS = 3
DUTY, PAUSE_S = (0.1, 0.6), 20.0
PLANS: dict[str, dict[str, Any]] = {
    "etcd": {
        "name": "repeatable",
        "target": {"kind": "etcd"},
        "workload": {"units": 1, "claim_time": "10s", "renew_time": "1s", "timeout": "10s"},
        "find": {"start": 500, "limit": 64000, "over": "3s", "hold": "8s", "resolution": 0.1},
        "thresholds": [{"operation": "extend", "p99": "50ms", "error_rate": 0.001, "lost_rate": 0}],
    },
    "lxd": {
        "name": "repeatable",
        "target": {"kind": "lxd"},
        "workload": {"kind": "spawn", "until": "started", "timeout": "1m"},
        "find": {
            "load": "rate",
            "groups": 3,
            "start": 0.5,
            "limit": 16,
            "hold": "20s",
            "resolution": 0.1,
        },
        "thresholds": [{"operation": "launch", "p99": "5s", "error_rate": 0.01}],
    },
}
"""What each target is searched by: that of etcd is etcd-find."""


def conditions(seed: int, count: int) -> list[tuple[bool, bool]]:
    """Return of each search whether it is beside the busy loop, and whether it has a fresh lab."""
    each = [(busy, fresh) for busy in (False, True) for fresh in (True, False)]
    drawn = [each[number % 4] for number in range(count - count % 4)]
    drawn += [(False, True), (True, True), (False, False)][: count % 4]
    random.Random(seed).shuffle(drawn)
    return drawn


def make(target: str, places: Places) -> EtcdLab | LxdLab:
    """Return a new lab."""
    return LxdLab(MEMBERS, places=places) if target == "lxd" else EtcdLab(MEMBERS, places=places)


def run(options: argparse.Namespace, file: Path) -> None:
    """Make the searches that are not there yet."""
    done = len(kept(file))
    places = split(Places.everywhere().target, MEMBERS)
    print(places.sentence(), flush=True)
    plan = PLANS[options.target]
    plan = {**plan, "find": {**plan["find"], "within": options.within}}
    of_lab = ExitStack()
    with of_lab:
        lab: EtcdLab | LxdLab | None = None
        used = 0
        for number, (busy, fresh) in enumerate(conditions(options.seed, options.searches)):
            if number < done:
                continue
            begun = time.monotonic()
            if lab is None or fresh:
                of_lab.close()
                lab, used = of_lab.enter_context(make(options.target, places)), 0
            with ExitStack() as meanwhile:
                seed = f"{options.seed} {number}"
                loop = (
                    meanwhile.enter_context(busy_loop(places.target[-1], seed, DUTY, PAUSE_S))
                    if busy
                    else None
                )
                found = search(lab, plan, loop)
            line = {"search": number, "busy": busy, "searches_before": used, "plan": plan, **found}
            append(file, line)
            used += 1
            print(_words(line), flush=True)
            if number + 1 < options.searches:
                time.sleep(max(0.0, begun + 60 * options.minutes / options.searches - time.monotonic()))


def withheld(line: Mapping[str, Any]) -> bool:
    """Whether a search stands by no answer."""
    return not line["limit"] or line["outcome"] == "withheld"


def names_foreign_work(line: Mapping[str, Any]) -> bool:
    """Whether a report says that other programs took part."""
    said = [line["sentence"], line.get("withheld", ""), *line.get("against", [])]
    return any("other programs" in one.lower() for one in said)


def holds(line: Mapping[str, Any], limit: float) -> bool:
    """Whether the 95 % interval of an answer has that limit within it."""
    return bool(line["limit"]) and line["low"] <= limit <= (inf if line["high"] is None else line["high"])


def _words(line: Mapping[str, Any]) -> str:
    beside = f"beside a loop of {line['cpu_s']['loop'] / line['seconds']:.0%}" if line["busy"] else "quiet"
    lab = "fresh lab" if not line["searches_before"] else f"lab searched {line['searches_before']} before"
    others = f"others {line['cpu_s']['others'] / line['seconds']:.2f} cores"
    words = f"{line['at']} {beside}, {lab}, {others}, {line['seconds']:.0f} s: {line['sentence']}"
    return words + (" (withheld)" if withheld(line) else "")


def show(lines: Sequence[Mapping[str, Any]]) -> None:
    """Print each answer, and whether they are one."""
    for line in lines:
        print(_words(line))
    quiet = [float(line["limit"]) for line in lines if not line["busy"] and not withheld(line)]
    silent = sum(withheld(line) for line in lines)
    foreign = sum(withheld(line) and names_foreign_work(line) for line in lines)
    if not quiet:
        print(f"no quiet answer; {silent} of {show_count(len(lines), 'answer')} withheld")
        return
    median = statistics.median(quiet)
    furthest = max(abs(limit / median - 1) for limit in quiet)
    within = {share: sum(abs(limit / median - 1) <= share for limit in quiet) for share in (0.05, 0.1)}
    right = sum(not withheld(line) and holds(line, median) for line in lines)
    print(
        f"median of {show_count(len(quiet), 'quiet answer')}: {median:,.4g}; "
        f"{within[0.1]} within 10 %, {within[0.05]} within 5 %, the furthest {furthest:.0%} from it"
    )
    print(
        f"of {show_count(len(lines), 'answer')} {right} hold the median in their interval, {silent} are withheld "
        f"({foreign} of them name other programs), {len(lines) - right - silent} are wrong in silence"
    )


def main() -> None:
    """Make the searches that are not there yet, and print whether they agree."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", choices=PLANS, default="etcd")
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=90.0, help="that all of them take at least")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=Path("runs/repeatable"), help="where results are kept")
    parser.add_argument("--within", default="10m", help="the longest search")
    parser.add_argument("--again", action="store_true", help="search nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    file: Path = options.out / f"{options.target}-{options.seed}.jsonl"
    if not options.again:
        run(options, file)
    print()
    show(kept(file))


if __name__ == "__main__":
    main()
