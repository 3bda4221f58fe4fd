"""How far other programs on the target's core move what a run measures: from which share on could they explain a miss?

    .venv/bin/python tests/benchmarks/bench_others.py [--minutes 8] [--seed 1] [--share 0.85] [--markdown]

It needs root and two cores, and lets other programs wait meanwhile. A real etcd of one member is alone on one core, the
generator on another. First a search finds the limit of the quiet member (p99 of an extension over 50 ms). Then leases
of a fixed number, a share of that limit, are held for minutes. Meanwhile a busy loop runs on the member's core, at a
duty that is drawn anew for each BLOCK seconds: DUTIES of 100 ms. Each block is a hold, whose p99 is that of all
extensions but for those of its first second.

What else runs on the machine is part of the measurement: the kernel counts it (machine.jsonl). So that it does not hide
what the loop does, the kernel lets target, loop and generator run before it (SCHED_RR, by turns of QUANTUM_MS, about as
long as those of its usual scheduler). It gets what they leave, which the table shows as `left over`: in `others` it
counts like the loop does, although it keeps nobody waiting.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.places import on_processors  # noqa: E402
from tippingpoint.analysis.analyse import analyse  # noqa: E402
from tippingpoint.rundir.histogram import Histogram  # noqa: E402
from tippingpoint.rundir.journal import read_interval_log  # noqa: E402
from tippingpoint.rundir.results import RunData, load_run  # noqa: E402

DUTIES = (0.0, 0.0, 0.05, 0.1, 0.2, 0.4)
"""Quiet blocks are twice as many: what the others are compared with is to be known best."""
BLOCK, SETTLES, PERIOD = 8.0, 1.0, 0.1
"""Seconds."""
LIMIT_US = 50_000
QUANTUM_MS = 3
LOOP = """
import sys, time
busy, period = float(sys.argv[1]) * float(sys.argv[2]), float(sys.argv[2])
while True:
    began = time.monotonic()
    while time.monotonic() < began + busy: pass
    time.sleep(max(0.0, began + period - time.monotonic()))
"""


@dataclass(frozen=True)
class Block:
    duty: float
    p99_us: int
    others: float
    """The share of the core that all other programs took."""
    loop: float
    """The share that the loop alone took."""
    waited: float
    """Seconds for which the member's threads waited for each that they ran."""


def run_first(cleanup: ExitStack) -> None:
    """Let this process, and all that it starts, run before whatever else the machine does."""
    quantum = Path("/proc/sys/kernel/sched_rr_timeslice_ms")
    before = quantum.read_text()
    cleanup.callback(quantum.write_text, before)
    quantum.write_text(str(QUANTUM_MS))
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def run(lab: EtcdLab, core: int, plan: dict[str, Any], out: Path, *, knows: bool) -> subprocess.Popen[bytes]:
    """Begin a run, which knows the processes of the lab or not."""
    out.mkdir()
    (out / "plan.yaml").write_text(yaml.safe_dump(plan))
    settings = [
        part for setting in lab.settings() if knows or "lab=" not in setting for part in ("--set", setting)
    ]
    command = [
        sys.executable,
        "-m",
        "tippingpoint",
        "run",
        out / "plan.yaml",
        *settings,
        "--out",
        out / "runs",
    ]
    return subprocess.Popen(
        ["taskset", "-c", str(core), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def written(out: Path) -> RunData:
    return load_run(next(out.glob("runs/*")))


def plan_of(more: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "others",
        "target": {"kind": "etcd"},
        "workload": {"units": 1, "claim_time": "20s", "renew_time": "1s", "timeout": "10s"},
        "thresholds": [{"operation": "extend", "p99": f"{LIMIT_US}us"}],
        "workers": 1,
        **more,
    }


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def held_beside(
    lab: EtcdLab,
    cores: Sequence[int],
    leases: int,
    minutes: float,
    draw: random.Random,
    out: Path,
) -> list[Block]:
    """Hold leases, with a busy loop beside the member; returns a block for each duty."""
    plan = plan_of({"stages": [{"leases": leases, "over": "5s", "hold": f"{60 * minutes + 20}s"}]})
    process = run(lab, cores[1], plan, out, knows=True)
    began: list[tuple[float, float, float]] = []
    try:
        while not list(out.glob("runs/*/worker-0.hlog")):
            time.sleep(0.1)
        time.sleep(15)
        duties: list[float] = []
        until = time.monotonic() + 60 * minutes
        while time.monotonic() < until and process.poll() is None:
            duties = duties or draw.sample(DUTIES, len(DUTIES))
            duty = duties.pop()
            with on_processors(sorted(os.sched_getaffinity(0))[:1]):
                loop = subprocess.Popen([sys.executable, "-c", LOOP, str(duty), str(PERIOD)])
            time.sleep(SETTLES)
            at, ran = time.time(), cpu_of(loop.pid)
            time.sleep(BLOCK - SETTLES)
            began.append((at, duty, (cpu_of(loop.pid) - ran) / (BLOCK - SETTLES)))
            loop.kill()
            loop.wait()
    finally:
        process.terminate()
        process.wait()
    return [block_of(written(out), at, duty, loop) for at, duty, loop in began]


def block_of(found: RunData, at: float, duty: float, loop: float) -> Block:
    begin = at - found.manifest.started
    end = begin + BLOCK - SETTLES
    calls = Histogram()
    for path in found.directory.glob("worker-*.hlog"):
        log_of = read_interval_log(path)
        for tag, since, length, encoded in zip(
            log_of.tags, log_of.begins, log_of.lengths, log_of.encoded, strict=True
        ):
            if tag == "extend.ok" and begin <= since and since + length <= end + 0.5:
                calls.add(Histogram.decode(encoded.decode()))
    seconds = [used for used in found.machine if begin + 0.5 < used.t <= end + 0.5]
    total = sum(used.seconds * used.cpus for used in seconds)
    ran = sum(used.target or 0.0 for used in seconds)
    return Block(
        duty=duty,
        p99_us=calls.percentile(99),
        others=sum(used.others or 0.0 for used in seconds) / total,
        loop=loop,
        waited=sum(used.waited or 0.0 for used in seconds) / ran,
    )


def table(blocks: Sequence[Block], markdown: bool) -> None:
    quiet = [log(block.p99_us) for block in blocks if block.duty == 0]
    middle, scatter = statistics.median(quiet), statistics.stdev(quiet) if len(quiet) > 1 else 1.0
    head = [
        "duty",
        "blocks",
        "others",
        "loop",
        "left over",
        "waited per second run",
        "p99",
        "of quiet",
        "in scatters",
    ]
    head.append("over its limit")
    rows = [head]
    for duty in sorted(set(DUTIES)):
        of = [block for block in blocks if block.duty == duty]
        if not of:
            continue
        p99 = statistics.median(log(block.p99_us) for block in of)
        others, loop = (statistics.median(getattr(b, name) for b in of) for name in ("others", "loop"))
        rows.append(
            [
                f"{duty:.0%}", str(len(of)), f"{others:.1%}", f"{loop:.1%}", f"{others - loop:.1%}",
                f"{statistics.median(block.waited for block in of):.2f}", f"{exp(p99) / 1000:.1f} ms",
                f"{exp(p99 - middle):.2f}", f"{(p99 - middle) / scatter:+.1f}",
                f"{sum(block.p99_us > LIMIT_US for block in of) / len(of):.0%}",
            ]
        )  # fmt: skip
    print(f"p99 of quiet blocks scatters by {scatter:.0%} (standard deviation of its logarithm)")
    for row in rows:
        print(("| " + " | ".join(row) + " |") if markdown else "  ".join(f"{cell:>11}" for cell in row))
        if markdown and row is head:
            print("|" + "---|" * len(head))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.85)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    draw = random.Random(options.seed)
    with ExitStack() as cleanup:
        directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bench-others-")))
        run_first(cleanup)
        with on_processors(sorted(os.sched_getaffinity(0))[:1]):
            lab = cleanup.enter_context(EtcdLab(1))
        find = {
            "start": 1000,
            "limit": 30_000,
            "over": "2s",
            "hold": "8s",
            "resolution": 0.1,
            "within": "100s",
        }
        run(lab, cores[1], plan_of({"find": find}), directory / "find", knows=False).wait()
        found = analyse(written(directory / "find")).found
        assert found is not None
        print(found.sentence, flush=True)
        limit = found.answer.limit or found.answer.low
        for share in (options.share, 0.8 * options.share):
            leases, out = round(share * limit), directory / f"at-{share:g}"
            blocks = held_beside(lab, cores, leases, options.minutes / 2, draw, out)
            print(f"\n{share:.0%} of the limit, {leases:,} leases:")
            table(blocks, options.markdown)


if __name__ == "__main__":
    main()
