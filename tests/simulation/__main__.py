"""Plays whole runs that are drawn from seeds, in virtual time, and asks the same questions of each.

    ./scripts/simulate --runs 500             # seeds 0 to 499
    ./scripts/simulate --runs 1 --seed 17     # one of them again

What is found is printed with the command that plays it again.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from tests.simulation.planted import look_for_all
from tests.simulation.seeds import play_and_ask
from tests.simulation.truth import limit_of


def _only_what_lives(unraisable: sys.UnraisableHookArgs) -> None:
    """Say nothing of what the dead would still do where Python collects them."""
    if not inspect.iscoroutine(unraisable.object):
        sys.__unraisablehook__(unraisable)


def main() -> int:
    """Play the runs; returns 1 if anything was found."""
    sys.unraisablehook = _only_what_lives
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    parser = argparse.ArgumentParser(
        prog="simulate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=100, help="how many runs; 100 by default")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; 0 by default")
    parser.add_argument("--large", action="store_true", help="draw larger and longer runs, of up to 12 units")
    parser.add_argument(
        "--planted",
        action="store_true",
        help="plant known defects, and look for each in these runs (planted.py)",
    )
    options = parser.parse_args()
    if options.planted:
        return 1 if look_for_all(options.runs, first=options.seed, large=options.large) else 0
    begun = time.process_time()
    drawn_kinds: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    virtual, found = 0.0, 0
    known, hold_it = 0, 0
    for seed in range(options.seed, options.seed + options.runs):
        with tempfile.TemporaryDirectory() as out:
            try:
                asked = play_and_ask(seed, Path(out), large=options.large)
                drawn_kinds.update(asked.kinds)
                outcomes[asked.outcome] += 1
                virtual += asked.seconds
                if asked.searched is not None and (limit := limit_of(asked.searched)) is not None:
                    known += 1
                    hold_it += asked.interval[0] <= limit <= asked.interval[1]
            except Exception as problem:
                found += 1
                size = " --large" if options.large else ""
                print(f"\n./scripts/simulate --runs 1 --seed {seed}{size}\n{problem}", flush=True)
                if options.runs == 1:
                    traceback.print_exc()
    cpu = time.process_time() - begun
    print(
        f"\n{options.runs} runs, {virtual / 3600:,.1f} h of virtual time in {cpu:,.0f} s of CPU time: {found} found"
    )
    print("drawn: " + ", ".join(f"{kind} {count:,}" for kind, count in drawn_kinds.most_common()))
    print("ended: " + ", ".join(f"{outcome} {count:,}" for outcome, count in outcomes.most_common()))
    if known:
        print(f"searches: {hold_it} of {known} intervals hold the true limit ({100 * hold_it / known:.0f} %)")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
