"""Where a cluster evicts its own controller: pacemaker-cib, with the default cluster-ipc-limit and a raised one.

    .venv/bin/python tests/benchmarks/bench_pacemaker_cliff.py [--rounds N] [--nodes N] [--release R] [--limit N]

As root. Each round starts two new clusters of the lab's (lab/pacemaker/cluster.py), one after the other: one with
Pacemaker's default of cluster-ipc-limit (500) and one with LIMIT. Each gets a whole run of pacemaker-cib. A line says
what the run found, how many of its extensions were not answered rightly, and how often a daemon was evicted by the
nodes' logs, which the run does not read. Evictions are a matter of how the daemons share the machine's processors:
the machine should have nothing else to do.

The issue's goal: the run finds the cliff in every round with the default, and in none with the raised limit up to the
same load.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.pacemaker.cluster import PacemakerLab  # noqa: E402
from tests.benchmarks.pacemaker_run import whole_run  # noqa: E402
from tippingpoint.analysis.analyse import analyse  # noqa: E402

EVICTED = "Evicting client"


def measured(nodes: int, release: str, limit: int | None) -> int | None:
    """Run the plan on a new cluster, and print what was found; returns the load at which the DC changed, if it did."""
    properties = {} if limit is None else {"cluster-ipc-limit": str(limit)}
    with PacemakerLab(nodes, properties=properties, release=release) as lab:
        run = whole_run(lab, "pacemaker-cib")
        cliff = analyse(run).tipping.cliff
        logs = (lab.directory / name / "log/pacemaker/pacemaker.log" for name in lab.names)
        evicted = sum(path.read_text(errors="replace").count(EVICTED) for path in logs if path.exists())
    wrong = sum(stage.failures("extend") for stage in run.stages)
    p99 = max(stage.response("extend").percentile(99) for stage in run.stages) / 1e3
    found = f"cliff at {cliff.first_broken}: {cliff.evidence}" if cliff is not None else "no cliff"
    print(
        f"cluster-ipc-limit {limit or 'default':>8}  evicted {evicted:>2}  extends wrong {wrong:>5}  "
        f"worst p99 {p99:>8.1f} ms  {found}",
        flush=True,
    )
    return cliff.first_broken if cliff is not None and cliff.by == "leader" else None


def main() -> int:
    """Run all rounds; returns 0 if the goal is met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--release", default="")
    parser.add_argument("--limit", type=int, default=20_000)
    options = parser.parse_args()
    print(f"{options.nodes} nodes, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before")
    pairs = [
        tuple(measured(options.nodes, options.release, limit) for limit in (None, options.limit))
        for _ in range(options.rounds)
    ]
    found = [default for default, _ in pairs if default is not None]
    again = [raised for default, raised in pairs if raised is not None and raised <= (default or raised)]
    print(
        f"found with the default {len(found)} of {options.rounds} times, at {found}; with the raised limit at the same "
        f"load or below {len(again)} times (goal: {options.rounds}, and 0)"
    )
    return 0 if len(found) == options.rounds and not again else 1


if __name__ == "__main__":
    sys.exit(main())
