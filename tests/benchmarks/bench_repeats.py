"""How often a comparison of repeats errs on a machine: the same etcd twice, and one with a quarter less CPU.

    .venv/bin/python tests/benchmarks/bench_repeats.py [--blocks 20] [--first 0] [--seed 2026] [--out runs/repeats]
        [--again] [--markdown]

Root is needed. A block is nine runs, in the order of `compare-releases` (lab/compare_releases.py): one etcd, the same
with a quarter less CPU, and the first once more, forwards and backwards, three times each. Every run has a private etcd
of one member, which may use a small part of a core. The plan is a ramp of three loads. The first is one that both hold,
the middle one is between their capacities, and the last is more than both serve, and held for longer. A user who looked
for a quarter would choose such loads. Renewals keep no step with the quota, which is given every 100 ms.

Meanwhile a program of our own burns a whole core for 2 to 15 s, pauses for 5 to 30 s, and so on. The seed and the block
say when. What else the machine does is not ours: its share of the machine is printed.

Each block is compared by `compare`, as `tippingpoint compare` does, over all figures that it judges together. The
target's own figures are not collected, because a Prometheus would need a dozen scrapes before each run.

| comparison | right is |
|---|---|
| the first etcd beside itself, 3 runs and 3 | no difference |
| beside a quarter less, 3 and 3 | worse |
| the same, with the first etcd again as a control: what `compare-releases` shows | worse |

Runs are kept in OUT, and each block is a line of OUT/SEED.jsonl as soon as it ends. So the same command goes on where
it was cut. `--again` compares kept runs by the code of today. `--first` leaves out blocks that somebody has looked at
while changing the code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.compare_releases import order_of  # noqa: E402
from lab.control import LabError  # noqa: E402
from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.etcd.programs import find_etcd  # noqa: E402
from lab.tether import tethered  # noqa: E402
from tests.benchmarks.sides import ran_seconds  # noqa: E402
from tippingpoint.compare.compare import compare  # noqa: E402
from tippingpoint.compare.comparison import Comparison  # noqa: E402
from tippingpoint.errors import TargetError, UserError  # noqa: E402
from tippingpoint.plan.read import parse_plan  # noqa: E402
from tippingpoint.play.runner import Runner  # noqa: E402
from tippingpoint.rundir.results import load_run  # noqa: E402

WHOLE, LESS, AGAIN = "whole", "less", "whole-control"
CORES = {WHOLE: 0.048, LESS: 0.036, AGAIN: 0.048}
"""What the etcd of each name may use of a core."""
REPEATS = 3
TOLERANCE = 0.10
"""The command's own."""
PLAN: dict[str, Any] = {
    "name": "repeats",
    "target": {"kind": "etcd"},
    "workload": {"units": 1, "claim_time": "10s", "renew_time": "137ms", "timeout": "5s"},
    "stages": [
        {"leases": leases, "over": "500ms", "hold": f"{seconds}s"}
        for leases, seconds in ((110, 2), (150, 3), (230, 8))
    ],
    "thresholds": [{"operation": operation, "error_rate": 0.01} for operation in ("claim", "extend")],
    "workers": 1,
}
COMPARISONS = {
    "same": ("the same etcd, 3 runs and 3", "none"),
    "less": ("a quarter less CPU, 3 and 3", "worse"),
    "less, control": ("a quarter less CPU, 3 and 3, control of 3", "worse"),
}
"""Each comparison in words, and the outcome that is right."""
_SAID = {"none": "no difference"}
_BURN = """
import random, sys, time
chance = random.Random(sys.argv[1])
while True:
    time.sleep(chance.uniform(5, 30))
    until = time.monotonic() + chance.uniform(2, 15)
    while time.monotonic() < until:
        pass
"""


@contextmanager
def foreign_load(seed: str, used: list[float]) -> Generator[None]:
    """Burn a core now and then; at the end the CPU-seconds of it are added to `used`."""
    program = [sys.executable, "-I", "-S", "-c", _BURN, seed]
    process = subprocess.Popen(tethered(program), start_new_session=True)  # a signal is for the runs
    try:
        yield
    finally:
        used.append(ran_seconds(process.pid))
        process.kill()
        process.wait()


@dataclass
class Block:
    """Nine runs, and what they took."""

    runs: dict[str, list[Path]]
    failed: str
    """Why a run measured nothing; empty if all did."""
    seconds: float
    cpu_s: float
    """CPU-seconds of the runs and of their etcd."""
    burnt_s: float
    """CPU-seconds of our foreign load."""
    others_s: float
    """CPU-seconds of all else on the machine."""


def run_block(directory: Path, seed: str) -> Block:
    """Run a block in a fresh directory."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    began, busy, ours = time.monotonic(), _busy_seconds(), _children_seconds()
    runs: dict[str, list[Path]] = {}
    burnt: list[float] = []
    failed = ""
    try:
        with foreign_load(seed, burnt):
            for names in order_of([WHOLE, LESS], REPEATS):
                for name in names:
                    out = directory / f"{len(runs.get(name, []))}-{name}"
                    runs.setdefault(name, []).append(_run(name, out))
    except LabError as problem:
        failed = str(problem)
    taken = _children_seconds() - ours
    return Block(
        runs,
        failed,
        time.monotonic() - began,
        taken - sum(burnt),
        sum(burnt),
        max(_busy_seconds() - busy - taken, 0.0),
    )


def _run(name: str, out: Path) -> Path:
    with EtcdLab(1, cpu=CORES[name]) as lab:
        plan = parse_plan(yaml.safe_dump(PLAN), [f"name=etcd-{name}", *lab.settings()], "repeats")
        try:
            return uvloop.run(Runner(plan, out).run())
        except (TargetError, UserError) as problem:
            raise LabError(f"{name}: {problem}", "a run that measured something") from None


def outcomes(runs: dict[str, list[Path]]) -> dict[str, dict[str, Any]]:
    """Compare a block's runs; returns the outcome of each comparison, and what it says."""
    loaded = {name: [load_run(path) for path in paths] for name, paths in runs.items()}
    whole, less, again = (loaded[name] for name in (WHOLE, LESS, AGAIN))
    return {
        "same": _told(compare([whole, again], TOLERANCE)),
        "less": _told(compare([whole, less], TOLERANCE)),
        "less, control": _told(compare([whole, less], TOLERANCE, control=again)),
    }


def _told(comparison: Comparison) -> dict[str, Any]:
    reaches = [[[one.held, one.broken] for one in release.reaches] for release in comparison.releases]
    return {
        "outcome": comparison.outcome,
        "tips": reaches,
        "worse": comparison.worse,
        "better": comparison.better,
        "withheld": comparison.withheld,
    }


def _busy_seconds() -> float:
    """CPU-seconds that all cores have been busy for."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Run the blocks that are not there yet, and print how many comparisons of all blocks are right."""
    parser = argparse.ArgumentParser(
        description="How often a comparison of repeats is right, on this machine."
    )
    parser.add_argument("--blocks", type=int, default=20, help="nine runs each, of some 20 s")
    parser.add_argument("--first", type=int, default=0, help="the first block that counts")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=Path("runs/repeats"), help="where runs are kept")
    parser.add_argument("--again", action="store_true", help="compare kept runs anew, and run none")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options.out.mkdir(parents=True, exist_ok=True)
    file: Path = options.out / f"{options.seed}.jsonl"
    done = _read(file)
    for number in range(options.blocks):
        if options.again or number in done:
            continue
        directory = options.out / str(options.seed) / str(number)
        at = time.strftime("%Y-%m-%d %H:%M")
        block = run_block(directory, f"{options.seed}-{number}")
        line: dict[str, Any] = {
            "block": number,
            "plan": PLAN,
            "cores": CORES,
            "at": at,
            "seconds": round(block.seconds),
            "cpu_s": round(block.cpu_s, 1),
            "burnt_s": round(block.burnt_s, 1),
            "others_s": round(block.others_s, 1),
            "load": os.getloadavg()[0],
            "failed": block.failed,
            "runs": {name: [str(path) for path in paths] for name, paths in block.runs.items()},
            "told": {} if block.failed else outcomes(block.runs),
        }
        with file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        done[number] = line
        said = {name: told["outcome"] for name, told in line["told"].items()} or block.failed
        print(
            json.dumps({key: line[key] for key in ("block", "at", "seconds", "load")} | {"said": said}),
            flush=True,
        )
    blocks = [done[number] for number in sorted(done) if options.first <= number < options.blocks]
    if options.again:
        for line in blocks:
            if not line["failed"]:
                line["told"] = outcomes(
                    {name: list(map(Path, paths)) for name, paths in line["runs"].items()}
                )
    _print(blocks, markdown=options.markdown)


def _read(file: Path) -> dict[int, dict[str, Any]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if any(line["plan"] != PLAN or line["cores"] != CORES for line in lines):
        raise SystemExit(f"{file}: made with another plan: expected another --out or --seed")
    return {line["block"]: line for line in lines}


def _print(blocks: Sequence[dict[str, Any]], *, markdown: bool) -> None:
    row = "| {} | {} | {} | {} | {} |" if markdown else "{:42} {:14} {:>5} {:>3}  {}"
    print(row.format("comparison", "right is", "right", "of", "else"))
    if markdown:
        print("|---|---|---:|---:|---|")
    for name, (words, right) in COMPARISONS.items():
        said = Counter(line["told"][name]["outcome"] if line["told"] else "failed" for line in blocks)
        other = [f"{_SAID.get(one, one)}: {count}" for one, count in said.items() if one != right]
        print(row.format(words, _SAID.get(right, right), said[right], len(blocks), ", ".join(other) or "–"))
    if not blocks:
        return
    seconds, cores = sum(line["seconds"] for line in blocks), os.cpu_count() or 1
    shares = [f"{sum(line[key] for line in blocks) / seconds / cores:.0%}" for key in ("burnt_s", "others_s")]
    loads = [line["load"] for line in blocks]
    version = subprocess.run([find_etcd(), "--version"], capture_output=True, text=True, check=True).stdout
    print(
        f"{len(blocks)} blocks from {blocks[0]['at']} to {blocks[-1]['at']}, {seconds / 60:.0f} minutes, "
        f"{sum(line['cpu_s'] for line in blocks):,.0f} CPU-seconds of runs and etcd; "
        f"of the machine our foreign load took {shares[0]} and other programs {shares[1]}; "
        f"load average {min(loads):.1f} to {max(loads):.1f}; {version.splitlines()[0]}; {_machine()}, {cores} cores"
    )


def _machine() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
