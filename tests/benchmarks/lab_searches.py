"""What benchmarks that search real labs again and again share: one search, and what else the machine did meanwhile.

A search is a run of the program, as a user starts it. Its result is a mapping for a line of JSON: the answer, whether
it was withheld and what the report says against it, CPU-seconds, and for etcd what the members look like afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from lab.etcd.cluster import EtcdLab
from lab.lxd.cluster import LxdLab
from lab.tether import tethered
from tests.benchmarks.sides import ran_seconds
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report.sections.cautions import build_cautions
from tippingpoint.rundir.results import load_run

_INSIDE = {
    "database_bytes": "etcd_mvcc_db_total_size_in_bytes",
    "database_in_use_bytes": "etcd_mvcc_db_total_size_in_use_in_bytes",
    "keys": "etcd_debugging_mvcc_keys_total",
    "leases_granted": "etcd_debugging_lease_granted_total",
    "leases_revoked": "etcd_debugging_lease_revoked_total",
    "leases_expired": "etcd_server_lease_expired_total",
    "heap_bytes": "go_memstats_heap_inuse_bytes",
    "resident_bytes": "process_resident_memory_bytes",
    "raft_applied": "etcd_server_proposals_applied_total",
    "snapshots": "etcd_debugging_snap_save_total_duration_seconds_count",
    "leader_changes": "etcd_server_leader_changes_seen_total",
    "fsync_s": "etcd_disk_wal_fsync_duration_seconds_sum",
    "commit_s": "etcd_disk_backend_commit_duration_seconds_sum",
}
"""What is recorded of a member after a search, and etcd's name for it. A release that lacks one has no entry for it."""
_BUSY = """
import os, random, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
chance = random.Random(sys.argv[2])
low, high, pause = map(float, sys.argv[3:])
while True:
    duty, until = chance.uniform(low, high), time.monotonic() + chance.uniform(5, 20)
    while time.monotonic() < until:
        begun = time.monotonic()
        while time.monotonic() < begun + 0.05 * duty:
            pass
        time.sleep(0.05 * (1 - duty))
    time.sleep(chance.uniform(0, pause))
"""


class BusyLoop:
    """A busy loop on one processor, as another program would be there; `cpu_s` is what it has taken so far."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    @property
    def cpu_s(self) -> float:
        return ran_seconds(self._pid)


@contextmanager
def busy_loop(processor: int, seed: str, duty: tuple[float, float], pause_s: float) -> Generator[BusyLoop]:
    """Keep a processor busy: spans of 5 to 20 s, each with a duty drawn from these bounds, and pauses up to that."""
    words = [str(processor), seed, *map(str, duty), str(pause_s)]
    process = subprocess.Popen(tethered([sys.executable, "-I", "-S", "-c", _BUSY, *words]))
    try:
        yield BusyLoop(process.pid)
    finally:
        process.kill()
        process.wait()


def search(lab: EtcdLab | LxdLab, plan: Mapping[str, Any], loop: BusyLoop | None = None) -> dict[str, Any]:
    """Search a lab by a plan, and return what a line of JSON records of it.

    `others_cpu_s` is what neither the run, nor the target's members, nor our own loop took of the machine.
    """
    begun, before, load = time.monotonic(), _taken(lab, loop), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        written = Path(directory) / "plan.yaml"
        written.write_text(yaml.safe_dump(dict(plan)))
        settings = [part for setting in lab.settings() for part in ("--set", setting)]
        command = [sys.executable, "-m", "tippingpoint", "run", str(written), *settings]
        done = subprocess.run(
            [*command, "--out", f"{directory}/runs"], capture_output=True, text=True, check=False
        )
        seconds, after = time.monotonic() - begun, _taken(lab, loop)
        runs = list(Path(directory, "runs").glob("*"))
        said = _said(runs[0]) if runs else {"limit": None, "sentence": done.stderr.strip()[-400:]}
    spent = {name: round(after[name] - before[name], 2) for name in before}
    others = spent.pop("machine") - sum(spent.values())
    return {
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
        "seconds": round(seconds, 1),
        "load_before": round(load, 2),
        **said,
        "cpu_s": {**spent, "others": round(others, 2)},
        "inside": inside(lab) if isinstance(lab, EtcdLab) else {},
    }


def inside(lab: EtcdLab) -> dict[str, dict[str, float]]:
    """Return what each member looks like now: `_INSIDE` by its own metrics, and how many leases it knows."""
    found: dict[str, dict[str, float]] = {}
    for name, endpoint in zip(lab.names, lab.endpoints, strict=True):
        with urllib.request.urlopen(f"{endpoint}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        metrics = dict(line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
        found[name] = {ours: float(metrics[its]) for ours, its in _INSIDE.items() if its in metrics}
        asked = urllib.request.Request(f"{endpoint}/v3/lease/leases", b"{}", method="POST")
        with urllib.request.urlopen(asked) as answer:
            found[name]["leases"] = len(json.loads(answer.read()).get("leases", []))
    return found


def append(file: Path, line: Mapping[str, Any]) -> None:
    """Add a line of JSON, which is whole on the disk when this returns."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")
        lines.flush()
        os.fsync(lines.fileno())


def kept(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, without one that was cut; empty if there is no file."""
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [json.loads(line) for line in lines]


def _said(run: Path) -> dict[str, Any]:
    """Return a run's answer, and all that its report says against it."""
    analysis = analyse(load_run(run))
    found, verdict = analysis.found, analysis.verdict
    places = analysis.run.manifest.places
    common = {
        "outcome": verdict.outcome,
        "places": places.model_dump() if places is not None else None,
        "against": [*verdict.reasons, *build_cautions(analysis)],
    }
    if found is None:
        return {"limit": None, "sentence": verdict.sentence, **common}
    answer = found.answer
    return {
        "limit": answer.limit,
        "low": answer.low,
        "high": answer.high if isfinite(answer.high) else None,
        "sentence": found.sentence,
        "ended": answer.ended,
        "withheld": answer.withheld,
        "drifts": answer.drifts,
        "stays_hurt": answer.stays_hurt,
        "probes": [
            {
                "size": probe.size,
                "held": probe.held,
                "margins": {name: round(value, 3) for name, value, _ in probe.margins},
            }
            for probe in found.probes
        ],
        **common,
    }


def _taken(lab: EtcdLab | LxdLab, loop: BusyLoop | None) -> dict[str, float]:
    """Return CPU-seconds so far: of the machine, of what we waited for, of the target's members, and of the loop."""
    used = os.times()
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return {
        "machine": (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK"),
        "generator": used.children_user + used.children_system,
        "target": sum(map(ran_seconds, lab.pids.values())),
        "loop": loop.cpu_s if loop is not None else 0.0,
    }
