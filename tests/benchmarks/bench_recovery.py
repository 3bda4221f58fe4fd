"""Tells a planted retry loop from a plain overload, again and again: `bench_recovery.py [RUNS] [AT ONCE]`.

Both are profiles of the simulated controller (lab/juju/store.py): the same capacity, and the same clients that wait for
half a second and try again. The one called retry-loop wastes its capacity on requests that their clients have given up.
What is judged is what the report says. A figure about us: nothing here is a measurement of Juju.
"""

from __future__ import annotations

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
    runs, at_once = (int(argument) for argument in (sys.argv[1:] + ["20", "2"][len(sys.argv) - 1 :])[:2])
    wrong = 0
    with ThreadPoolExecutor(at_once) as pool:
        for profile, metastable in (("plain", False), ("retry-loop", True)):
            said = list(pool.map(come_back, [profile] * runs))
            right = sum(
                each is not None and each.metastable == metastable and each.back_at is not None
                for each in said
            )
            wrong += runs - right
            print(f"{profile}: told in {right} of {runs}", flush=True)
            for each in said:
                print(f"  {each.sentence if each is not None else 'nothing'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
