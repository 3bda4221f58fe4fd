"""Nodes x resources x updates a second: latency, where a cluster tips, and how long it stands still for a dead node.

    .venv/bin/python tests/benchmarks/bench_pacemaker_sizes.py [--nodes 3,8,16] [--resources 0,200] [--limit N]
        [--releases 2.0.5,2.1.5,3.0.0]

As root. Each combination gets a new cluster of the lab's (lab/pacemaker/cluster.py). It starts so many resources, and
has then two whole runs: pacemaker-cib, and 50 updates a second while a node that is not the DC is killed. That node
cannot be fenced, so it stays dead. A line of a Markdown table has:

p50, p99 at N/s   of extensions, with what failed at what it cost, at that many updates a second
tips              between how many updates a second, and by what
DC changes        in the whole ramp
wrong             extensions that were not answered rightly, of all
silence           the longest time without any acknowledged update after the kill; and by Corosync's formula, which is
                  2.2 x (token + 650 ms x (nodes - 2)): a token's timeout, and a consensus of 1.2 times that

All nodes share this machine's processors, so it should have nothing else to do.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.control import LabError  # noqa: E402
from lab.pacemaker.cluster import PacemakerLab  # noqa: E402
from tests.benchmarks.pacemaker_run import whole_run  # noqa: E402
from tippingpoint.analysis.analyse import analyse  # noqa: E402
from tippingpoint.analysis.latency import costs  # noqa: E402
from tippingpoint.analysis.leaders import unexplained  # noqa: E402

PER_LEASE = 10
"""Updates a second of each lease of pacemaker-cib."""
SHOWN = (50, 200, 400, 800)
_STARTED_WITHIN_S = 900.0


def start_resources(lab: PacemakerLab, count: int) -> float:
    """Make so many resources in one update; returns the seconds until all of them run."""
    primitives = "".join(
        f'<primitive id="r{number}" class="ocf" provider="pacemaker" type="Dummy"/>'
        for number in range(count)
    )
    content = f"<resources>{primitives}</resources>"
    begun = time.monotonic()
    lab.run_on(
        "node1",
        "cibadmin",
        "--modify",
        "--allow-create",
        "--scope",
        "resources",
        "--xml-pipe",
        content=content,
    )
    while time.monotonic() < begun + _STARTED_WITHIN_S:
        if sum(bool(resource.active) for resource in lab.status().resources.values()) >= count:
            return time.monotonic() - begun
        time.sleep(0.5)
    raise SystemExit(f"{count} resources have not started within {_STARTED_WITHIN_S:g} s")


def silence(lab: PacemakerLab) -> float | None:
    """The longest time without an acknowledged update around the death of a node that is not the DC, in seconds. None
    where the run saw none."""
    dead = next(name for name in reversed(lab.names) if name != lab.leader())
    hold = 3 * lab.membership_s + 5
    plan: dict[str, Any] = {
        "name": "a-node-dies",
        "target": {"kind": "pacemaker"},
        "workload": {"units": 1, "claim_time": "60s", "renew_time": "1s", "timeout": f"{hold:.0f}s"},
        "stages": [{"leases": 50, "over": "1s", "hold": f"{hold:.0f}s"}],
        "faults": [
            {"do": "fail-fencing", "member": dead, "stage": 1, "at": "1s"},
            {"do": "kill", "member": dead, "stage": 1, "at": "3s"},
        ],
    }
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "plan.yaml"
        path.write_text(yaml.safe_dump(plan), encoding="utf-8")
        measured = whole_run(lab, path)
    return max((event["seconds"] for event in measured.events if event["event"] == "silence"), default=None)


def line(nodes: int, resources: int, release: str, limit: int | None) -> str:
    """One combination's line of the table."""
    properties = {} if limit is None else {"cluster-ipc-limit": str(limit)}
    with PacemakerLab(nodes, properties=properties, release=release) as lab:
        started = start_resources(lab, resources) if resources else 0.0
        measured = whole_run(lab, "pacemaker-cib")
        stood_still, expected = None, lab.membership_s
        with contextlib.suppress(LabError):  # the ramp may have cost nodes for good
            lab.await_whole()
            stood_still = silence(lab)
    found = analyse(measured)
    at = {stage.size * PER_LEASE: costs(stage, "extend") for stage in measured.stages if stage.is_step}
    latencies = [
        f"{at[size].percentile(50) / 1e3:.1f}, {at[size].percentile(99) / 1e3:.0f}" if size in at else "-"
        for size in SHOWN
    ]
    wrong = sum(stage.failures("extend") for stage in measured.stages)
    total = wrong + sum(stage.count("extend") for stage in measured.stages)
    cliff = found.tipping.cliff
    tips = (
        "no"
        if cliff is None
        else (f"{(cliff.last_held or 0) * PER_LEASE} to {cliff.first_broken * PER_LEASE}, {cliff.by}")
    )
    changes = len(unexplained(measured.events))
    cells = [nodes, resources, release or "installed", limit or "default", *latencies, tips, changes]
    cells += [
        f"{wrong} of {total}",
        f"{'-' if stood_still is None else f'{stood_still:.2f}'}, {expected:.2f}",
        f"{started:.0f}" if resources else "-",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="3,8,16")
    parser.add_argument("--resources", default="0,200")
    parser.add_argument("--releases", default="")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before")
    heads = ["nodes", "resources", "release", "ipc limit", *(f"{size}/s: p50, p99 ms" for size in SHOWN)]
    heads += ["tips, by", "DC changes", "wrong", "silence, formula s", "start s"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}", flush=True)
    for release in options.releases.split(","):
        for nodes in options.nodes.split(","):
            for resources in options.resources.split(","):
                print(line(int(nodes), int(resources), release, options.limit), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
