"""How many connections one worker process carries, on what memory, and whether it keeps its schedule.

    .venv/bin/python tests/benchmarks/bench_juju_many.py [--leases N] [--rate R] [--over S] [--hold S]

One run of the command line with `workers: 1` on a SIMULATED controller (lab/juju/simulator.py, its store instant) that
serves on several loopback addresses: 5,334 leases that 3 units each want make 16,002 connections, logged in as
themselves with `--identity hollow`, as one agent (on a patched controller) without. Leases are renewed so often
that RATE extensions a second are due, and every connection is pinged each minute beside that; hold it for longer
than a minute to have the pings in. The program begins with 1,024 open files, as a login shell does, and has to
raise that itself. At the end the same plan is asked for with more connections than this machine allows.

Memory is the worker's resident memory while the load is held (its greatest), less what it was when it was ready
and had no connection, over the connections: everything that a unit needs is in it, not its socket alone. Lag is
how late an operation was sent for reasons of our own (the journal's generator.schedule-lag), in microseconds.
Cores are the worker's CPU time over time, medians of its seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.juju.simulator import JujuLab  # noqa: E402
from tests.benchmarks.juju_side import agent_conf, make_agent  # noqa: E402
from tippingpoint.rundir.journal import read_events  # noqa: E402
from tippingpoint.rundir.results import RunData, load_run  # noqa: E402
from tippingpoint.rundir.stages import StageResult  # noqa: E402
from tippingpoint.rundir.tags import SCHEDULE_LAG  # noqa: E402
from tippingpoint.targets.juju.api.access import from_store  # noqa: E402

KIB_WANTED = 50.0
LAG_WANTED_US = 100_000
FEW_FILES = 1024
SERVERS = 4
"""Addresses of the simulator: one address has ports for 28,000 connections at most."""


def settings(leases: int, units: int, rate: float, over: float, hold: float) -> list[str]:
    """The plan of this load, as `--set` pairs."""
    renew = leases / rate
    times = f"claim_time: {max(5.0, 2 * renew):.3f}, renew_time: {renew:.3f}, timeout: 30"
    return [
        f"stages=[{{leases: {leases}, over: {over}, hold: {hold}}}]",
        f"workload={{units: {units}, {times}}}",
        "thresholds=[]",
        "workers=1",
    ]


def run(arguments: list[str], out: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """One run of the command line by somebody with a login shell's limit of open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    command = [sys.executable, "-m", "tippingpoint", "run", "juju-leases-small", "--out", str(out)]
    for setting in arguments:
        command += ["--set", setting]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env=os.environ | environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, hard)),
    )


def measure(options: argparse.Namespace) -> int:
    """Run it, print the figures; 1 when they are not what is wanted."""
    hollow = options.identity == "hollow"
    with tempfile.TemporaryDirectory() as made, JujuLab(servers=SERVERS, patched=not hollow) as lab:
        where = lab.settings()
        if not hollow:
            model, agent = asyncio.run(make_agent(from_store(lab.controller, lab.data)))
            where = ["target.identity=agent", f"target.agent={agent_conf(Path(made), lab, model, agent)}"]
        load = settings(options.leases, options.units, options.rate, options.over, options.hold)
        ended = run([*where, *load], Path(made) / "runs", lab.environment)
        runs = [path for path in (Path(made) / "runs").glob("*") if path.is_dir()]
        if len(runs) != 1:
            raise SystemExit(f"tippingpoint: {ended.stderr.strip()}")
        measured = load_run(runs[0])
        good = report(measured, options)
        refuse(where, options, Path(made) / "refused", lab.environment)
    return 0 if good else 1


def report(measured: RunData, options: argparse.Namespace) -> bool:
    """Print what the run measured; whether it is what is wanted."""
    if measured.manifest.status != "complete":
        raise SystemExit(f"tippingpoint: {measured.manifest.status}: {measured.manifest.reason}")
    (stage,) = measured.stages
    before, after = _memory(measured, stage)
    connections = stage.count("connect", "ok")
    each = (after - before) * 1024 / connections
    assert stage.hold_begin is not None
    assert stage.end is not None
    lag = stage.held[SCHEDULE_LAG].percentiles([50, 99, 100])
    lag_all = stage.histograms[SCHEDULE_LAG].percentiles([50, 99, 100])
    renewals = stage.held["extend.ok"].total / (stage.end - stage.hold_begin)
    bad = {f"{o} {w}": stage.count(o, w) for o in ("connect", "claim", "extend")
           for w in ("limited", "lost", "timeout", "error")}  # fmt: skip
    print(f"on a SIMULATED controller at {SERVERS} loopback addresses, identity {options.identity}, 1 worker")
    print(f"connections          {connections} in {stage.hold_begin - stage.begin:.1f} s")
    print(f"renewals             {renewals:.0f}/s while held, for {stage.end - stage.hold_begin:.0f} s")
    print(
        f"failures             {', '.join(f'{n} {what}' for what, n in bad.items() if n) or 'none'}; "
        f"connections lost {_lost(measured)}"
    )
    print(f"memory               {before:.0f} MiB without, {after:.0f} MiB with: {each:.1f} KiB a connection "
          f"(wanted: at most {KIB_WANTED:g})")  # fmt: skip
    print(f"schedule lag, held   p50 {lag[0]} us, p99 {lag[1]} us, max {lag[2]} us "
          f"(wanted: p99 below {LAG_WANTED_US})")  # fmt: skip
    print(f"schedule lag, all    p50 {lag_all[0]} us, p99 {lag_all[1]} us, max {lag_all[2]} us")
    print(f"CPU cores            {_cores(measured, stage, holding=False):.2f} while connecting, "
          f"{_cores(measured, stage, holding=True):.2f} while held")  # fmt: skip
    return each <= KIB_WANTED and lag[1] < LAG_WANTED_US and lag_all[1] < LAG_WANTED_US


def _ticks(measured: RunData) -> list[dict[str, Any]]:
    events = read_events(measured.directory / "worker-0.jsonl").events
    return [event for event in events if event["event"] == "tick"]


def _memory(measured: RunData, stage: StageResult) -> tuple[float, float]:
    """The worker's resident MiB just before the stage, and its greatest while it was held."""
    before = [tick["rss"] for tick in _ticks(measured) if tick["t"] <= stage.begin]
    after = [tick["rss"] for tick in _ticks(measured) if stage.hold_begin < tick["t"] <= stage.end]
    return before[-1], max(after)


def _cores(measured: RunData, stage: StageResult, holding: bool) -> float:
    since, until = (stage.hold_begin, stage.end) if holding else (stage.begin, stage.hold_begin)
    shares = sorted(tick["cpu"] for tick in _ticks(measured) if since < tick["t"] <= until)
    return shares[len(shares) // 2]


def _lost(measured: RunData) -> int:
    return sum(
        event["count"]
        for event in measured.events
        if event["event"] == "error" and event["operation"] == "connection"
    )


def refuse(where: list[str], options: argparse.Namespace, out: Path, environment: dict[str, str]) -> None:
    """Ask for more connections than any process here may have, and print how that is refused."""
    most = int(Path("/proc/sys/fs/nr_open").read_text())
    load = settings(options.leases, options.units, options.rate, options.over, options.hold)
    load.append(f"stages.0.leases={most // options.units + 1}")
    refused = run([*where, *load], out, environment)
    print(f"too many             exit {refused.returncode}: {refused.stderr.strip()}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--leases", type=int, default=5334)
    parser.add_argument("--units", type=int, default=3)
    parser.add_argument("--rate", type=float, default=500.0, help="extensions due a second")
    parser.add_argument("--over", type=float, default=60.0, help="seconds in which the connections are begun")
    parser.add_argument("--hold", type=float, default=90.0, help="seconds the load is held")
    parser.add_argument("--identity", choices=("agent", "hollow"), default="agent")
    sys.exit(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
