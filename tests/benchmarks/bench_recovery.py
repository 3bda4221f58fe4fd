"""Tells a planted retry loop from a plain overload, again and again: `bench_recovery.py [RUNS] [AT_ONCE]`.

Both are profiles of the simulated controller (lab/juju/store.py): the same capacity, and the same clients that wait for
half a second and try again. The one called retry-loop wastes its capacity on requests that their clients have given up.
What is judged is what the report says. A figure about us: nothing here is a measurement of Juju.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from lab.juju.simulator import JujuLab
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.recovery.comeback import Comeback
from tippingpoint.rundir.results import load_run

PLAN = {
    "name": "comes-back",
    "target": {"kind": "juju"},
    "workload": {"units": 1, "claim_time": "60s", "renew_time": "500ms", "timeout": "500ms"},
    "stages": [
        {"leases": 80, "over": "1s", "hold": "6s"},
        {"leases": 200, "over": "1s", "hold": "6s"},
    ],
    "thresholds": [{"operation": "extend", "error_rate": 0.05}],
    "after": "recover",
    "workers": 1,
}


def come_back(profile: str) -> Comeback | None:
    """Return what a run on a controller of that profile says."""
    with tempfile.TemporaryDirectory() as directory, JujuLab(profile=profile, patched=True) as lab:
        plan = Path(directory) / "plan.yaml"
        plan.write_text(yaml.safe_dump(PLAN))
        settings = [part for setting in lab.settings() for part in ("--set", setting)]
        subprocess.run(
            [sys.executable, "-m", "tippingpoint", "run", plan, *settings, "--out", f"{directory}/runs"],
            env={**os.environ, **lab.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        (run,) = Path(directory, "runs").iterdir()
        return analyse(load_run(run)).comeback


def main() -> int:
    """Run both profiles, print what was said of each run, and return 0 if all were told apart."""
    parser = argparse.ArgumentParser(description="Tell a planted retry loop from a plain overload.")
    parser.add_argument("runs", type=int, nargs="?", default=20, help="of each profile")
    parser.add_argument(
        "at_once", type=int, nargs="?", default=1, help="a busy machine says nothing of a target"
    )
    options = parser.parse_args()
    told = 0
    with ThreadPoolExecutor(options.at_once) as pool:
        for profile, metastable in (("plain", False), ("retry-loop", True)):
            unknown = right = 0
            for comeback in pool.map(come_back, [profile] * options.runs):
                print(f"  {profile}: {comeback.sentence if comeback is not None else 'nothing'}", flush=True)
                if comeback is None or comeback.doubt:
                    unknown += 1
                else:
                    right += comeback.metastable == metastable
            wrong = options.runs - unknown - right
            print(f"{profile}: {right} of {options.runs} right, {wrong} wrong, {unknown} unknown", flush=True)
            told += right
    return 0 if told == 2 * options.runs else 1


if __name__ == "__main__":
    sys.exit(main())
