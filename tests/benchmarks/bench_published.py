"""What the published sizes cost us: a published plan at a share of its own size, to its report and its removal.

    .venv/bin/python tests/benchmarks/bench_published.py ROW [--share 1/16] [--keep DIR]

ROW is one of those that `--help` lists. SHARE is of the sizes of the plan's stages: 1/16, 1/4 or 1. Holds are shorter
than the plan's, and polls closer together, as the row says: sizes are whole, and times are not. A row on a stub or a
simulator says so, and is no measurement of that target. What was not run is not printed.

A row is one line of a Markdown table. CPU-seconds are of all our processes (the runner and its workers), memory is the
sum of each process's greatest resident memory; the target's own are in neither. Journals are all files of the run but
the report. The report opens in a headless Chromium, the median of five: from the start of navigation to the end of the
load event, by when its charts are drawn.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from playwright.sync_api import sync_playwright  # noqa: E402

from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.juju.simulator import JujuLab  # noqa: E402
from tests.benchmarks.watched_run import Used, program, used_by  # noqa: E402
from tests.browser.conftest import find_chromium  # noqa: E402
from tippingpoint.plan.read import parse_plan  # noqa: E402
from tippingpoint.plan.shipped import plan_text  # noqa: E402
from tippingpoint.rundir.results import RunData, load_run  # noqa: E402

OPENINGS = 5


@dataclass(frozen=True)
class Load:
    """What a row runs: a command of ours, and how many things of what kind that makes."""

    command: list[str]
    size: int
    unit: str
    environment: dict[str, str] = dataclasses.field(default_factory=dict[str, str])


Row = Callable[[Fraction, Path], contextlib.AbstractContextManager[Load]]
"""Has the row's target serve, for a share of the plan's size and the directory that the run is kept in."""


def run_of(plan: str, out: Path, settings: list[str]) -> list[str]:
    """The command line that runs a shipped plan with settings."""
    return program("run", plan, "--out", str(out), *(part for each in settings for part in ("--set", each)))


@contextlib.contextmanager
def stub(file: str, place: Path) -> Generator[None]:
    """Have one of our STUBS serve, in a process of its own, which is told a place and says when it serves."""
    command = [sys.executable, str(REPOSITORY / "tests/benchmarks" / file), str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        assert serving.stdin is not None
        serving.stdout.readline()
        try:
            yield
        finally:
            serving.stdin.close()


@contextlib.contextmanager
def openstack_stub() -> Generator[list[str]]:
    """Serve the STUB of OpenStack; the settings of a target there."""
    with tempfile.TemporaryDirectory() as made:
        clouds = Path(made) / "clouds.yaml"
        with stub("openstack_stub.py", clouds):
            yield [f"target.credentials={clouds}", "target.cloud=stub"]


@contextlib.contextmanager
def openstack_fill(share: Fraction, out: Path) -> Generator[Load]:
    """A cloud is filled to 168,000 servers. STUB. Batches of 1000, not 100; holds of 4 s; 5 polls a second, not 1."""
    yield from filled(share, out, ["workload.batch=1000", "workload.poll_every=200ms"])


@contextlib.contextmanager
def openstack_fill_together(share: Fraction, out: Path) -> Generator[Load]:
    """The same by one call for 100 servers (target.multi_create). STUB. Batches of 10,000, not 100; holds of 4 s."""
    yield from filled(share, out, ["workload.batch=10000", "target.multi_create=100"])


def filled(share: Fraction, out: Path, settings: list[str]) -> Iterator[Load]:
    """Have the stub serve for a fill."""
    sizes = [int(size * share) for size in (27000, 55000, 75000, 100000, 150000, 168000)]
    with openstack_stub() as target:
        stages = ", ".join(f"{{instances: {size}, hold: 4s}}" for size in sizes)
        paced = [*settings, "workload.observe_every=6s"]
        command = run_of("openstack-fill", out, [*target, f"stages=[{stages}]", *paced])
        yield Load(command, sizes[-1], "servers")


@contextlib.contextmanager
def openstack_boot_delete(share: Fraction, out: Path) -> Generator[Load]:
    """5000 servers are booted and deleted, 150 at a time. STUB. The plan's own times."""
    size = int(5000 * share)
    with openstack_stub() as target:
        command = run_of("openstack-boot-delete", out, [*target, f"stages=[{{instances: {size}, hold: 0s}}]"])
        yield Load(command, size, "servers")


@contextlib.contextmanager
def openstack_tenants(share: Fraction, out: Path) -> Generator[Load]:
    """500 projects with a network, a subnet and a router each, and 10 servers in each. STUB. Holds of 4 s."""
    projects = int(500 * share)
    with openstack_stub() as target:
        stages = ", ".join(f"{{groups: {projects}, instances: {each}, hold: 4s}}" for each in (0, 2, 10))
        command = run_of("openstack-tenants", out, [*target, f"stages=[{stages}]"])
        yield Load(command, projects * 10, "servers")


@contextlib.contextmanager
def lxd_cluster(share: Fraction, out: Path) -> Generator[Load]:
    """50 members have 5000 containers that run, in 50 projects. STUB. The stages of the plan, with holds of 10 s."""
    with tempfile.TemporaryDirectory() as made:
        socket = Path(made) / "lxd.socket"
        with stub("lxd_stub.py", socket):
            settings = [
                f"target.socket={socket}",
                f"stages=[{cluster_stages(share)}]",
                "workload.evict=false",
            ]
            yield Load(run_of("lxd-cluster", out, settings), 100 * int(50 * share), "containers")


@contextlib.contextmanager
def lxd_cluster_created(share: Fraction, out: Path) -> Generator[Load]:
    """One real LXD has 5000 containers in 50 projects, created and not started. The plan's stages, holds of 10 s.

    It is not clustered: in a cluster, LXD 5.0.2 sends each creation to itself over the network and keeps a connection
    for the events of each, so that containers come slower and slower.
    """
    from lab.lxd.cluster import LxdLab

    with LxdLab(members=1, clustered=False) as lab:
        settings = [f"target.credentials={lab.credentials}", f"stages=[{cluster_stages(share)}]"]
        created = ["workload.until=created", "workload.evict=false"]
        yield Load(run_of("lxd-cluster", out, [*settings, *created]), 100 * int(50 * share), "containers")


def cluster_stages(share: Fraction) -> str:
    """The stages of lxd-cluster at a share of its projects."""
    projects = sorted({max(1, int(count * share)) for count in (5, 10, 20, 30, 40, 50)})
    return ", ".join(f"{{groups: {count}, instances: 100, hold: 10s}}" for count in projects)


@contextlib.contextmanager
def etcd_leases(share: Fraction, out: Path) -> Generator[Load]:
    """The ramp of etcd-leases, to 100,000 leases on one real etcd. One unit, not 3; 400 claims a second, not 200 and
    fewer; holds of 10 s, the last of 70 s."""
    sizes = [int(100_000 * share * part) for part in (Fraction(1, 16), Fraction(1, 4), Fraction(1, 2), 1)]
    with EtcdLab(members=1) as lab:
        over = [max(2, round((size - below) / 400)) for below, size in pairwise([0, *sizes])]
        holds = [10, 10, 10, 70]
        stages = ", ".join(
            f"{{leases: {size}, over: {seconds}s, hold: {hold}s}}"
            for size, seconds, hold in zip(sizes, over, holds, strict=True)
        )
        settings = [f"target.endpoints={lab.endpoints}", f"stages=[{stages}]", "workload.units=1"]
        yield Load(run_of("etcd-leases", out, settings), sizes[-1], "leases")


@contextlib.contextmanager
def units(share: Fraction, out: Path) -> Generator[Load]:
    """100 units conducted, gathered and reported, with 100 leases of 3 holders each on one real etcd. Holds of 20 s."""
    count = int(100 * share)
    with EtcdLab(members=1) as lab:
        stages = [{"leases": leases * count, "over": "10s", "hold": "20s"} for leases in (25, 50, 100)]
        plan = parse_plan(plan_text("etcd-leases"), [f"target.endpoints={lab.endpoints}", "workers=1"])
        fields = {**plan.model_dump(mode="json"), "stages": stages}
        yield Load(units_command([fields] * count, out), count, "units")


@contextlib.contextmanager
def juju_leases(share: Fraction, out: Path) -> Generator[Load]:
    """The ramp to 16,000 leases of 3 units, 48,000 connections. Three units, each on a SIMULATED controller of its own.
    Ramps are 2 times as fast, holds are 8 s, and the last one 70 s."""
    ramp = [(100, 5, 8), (1000, 30, 8), (2000, 30, 8), (4000, 60, 8), (8000, 120, 8), (16000, 240, 70)]
    stages = [
        {"leases": int(leases * share), "over": f"{over}s", "hold": f"{hold}s"} for leases, over, hold in ramp
    ]
    with juju_units("juju-leases", 3, stages, [], out) as command:
        yield Load(command, 3 * int(16000 * share), "connections")


@contextlib.contextmanager
def juju_restart_storm(share: Fraction, out: Path) -> Generator[Load]:
    """20,000 leases of 3 units, whose 60,000 connections are dropped and back at once. Four units, each on a SIMULATED
    controller of its own. The ramp is 4 times as fast, and the storm is 10 s into the hold."""
    leases = int(20000 * share)
    stages = [{"leases": leases, "over": "180s", "hold": "90s"}]
    faults = [{"do": "drop-claims", "stage": 1, "at": "10s"}]
    with juju_units("juju-restart-storm", 4, stages, faults, out) as command:
        yield Load(command, 3 * leases, "connections")


@contextlib.contextmanager
def juju_units(
    name: str, count: int, stages: list[dict[str, Any]], faults: list[dict[str, Any]], out: Path
) -> Generator[list[str]]:
    """Have so many SIMULATED controllers serve; the command of a run by as many units."""
    with contextlib.ExitStack() as serving:
        plans: list[dict[str, Any]] = []
        for _ in range(count):
            lab = serving.enter_context(JujuLab(servers=3))
            plan = parse_plan(plan_text(name), [f"target.credentials={lab.credentials}", "workers=1"])
            plans.append({**plan.model_dump(mode="json"), "stages": stages, "faults": faults})
        yield units_command(plans, out)


def units_command(plans: list[dict[str, Any]], out: Path) -> list[str]:
    """The command of a run by units, each with its plan."""
    file = out / "plans.json"
    file.write_text(json.dumps(plans))
    return [sys.executable, str(REPOSITORY / "tests/benchmarks/units_run.py"), str(file), str(out)]


ROWS: dict[str, Row] = {
    "openstack-fill": openstack_fill,
    "openstack-fill-together": openstack_fill_together,
    "openstack-boot-delete": openstack_boot_delete,
    "openstack-tenants": openstack_tenants,
    "lxd-cluster": lxd_cluster,
    "lxd-cluster-created": lxd_cluster_created,
    "etcd-leases": etcd_leases,
    "units": units,
    "juju-leases": juju_leases,
    "juju-restart-storm": juju_restart_storm,
}
COLUMNS = (
    "row", "share", "size", "took", "CPU", "CPU each", "peak memory", "memory each", "journals", "report", "opens in",
    "report's CPU", "report's memory", "outcome",
)  # fmt: skip


def measure(name: str, share: Fraction, out: Path) -> list[str]:
    """Run a row; its cells."""
    with ROWS[name](share, out) as load:
        run = used_by(load.command, load.environment)
        print(run.told[-2500:], file=sys.stderr)
        pages = [*out.rglob("report.html")]
        if not pages:
            raise SystemExit(f"{name}: exit code {run.exit_code}, and no report")
        page = max(pages, key=lambda path: path.stat().st_mtime)
        report = used_by(program("report", "--format", "html", str(page.parent)))
    journals = sum(path.stat().st_size for path in out.rglob("*") if path.is_file() and path not in pages)
    return [
        name,
        str(share),
        f"{load.size:,} {load.unit}",
        f"{run.seconds:.0f} s",
        f"{run.cpu_s:.1f} s",
        f"{1000 * run.cpu_s / load.size:.2f} ms",
        f"{run.peak_mib:.0f} MiB",
        f"{1024 * run.peak_mib / load.size:.1f} KiB",
        f"{journals / 1e6:.2f} MB",
        f"{page.stat().st_size / 1e6:.2f} MB",
        f"{seconds_to_open(page):.2f} s",
        f"{report.cpu_s:.1f} s",
        f"{report.peak_mib:.0f} MiB",
        outcome(load_run(page.parent), run),
    ]


def outcome(measured: RunData, run: Used) -> str:
    """What became of the run: its status and exit code, and what its last stage held, or made and removed."""
    last = measured.stages[-1]
    held = last.gauges.get("held", last.count("total", "ok"))
    said = f"{measured.manifest.status}, exit {run.exit_code}, {held:,.0f} of {last.size:,} at the end"
    for line in run.told.splitlines():
        if line.startswith('{"directory"'):
            told = json.loads(line)
            said += f"; largest digest {told['digest']:,} and the shared run {told['run']:,} characters"
    return said


def seconds_to_open(page: Path) -> float:
    """The median time that a page takes to be ready in headless Chromium."""
    times: list[float] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        for _ in range(OPENINGS):
            context = browser.new_context(viewport={"width": 1180, "height": 900}, offline=True)
            opened = context.new_page()
            opened.goto(page.as_uri(), timeout=0)  # a busy machine takes its time, and the row is kept
            entry = "performance.getEntriesByType('navigation')[0].loadEventEnd"
            times.append(float(opened.evaluate(entry)) / 1000)
            context.close()
        browser.close()
    return statistics.median(times)


def main() -> None:
    rows = "\n".join(f"  {name:24} {row.__doc__}" for name, row in ROWS.items())
    parser = argparse.ArgumentParser(
        description=f"{__doc__}\n{rows}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("row", choices=ROWS, metavar="ROW")
    parser.add_argument("--share", type=Fraction, default=Fraction(1, 16))
    parser.add_argument("--keep", type=Path, help="keep the run's directory there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-published-") as made:
        out = options.keep or Path(made)
        out.mkdir(parents=True, exist_ok=True)
        cells = measure(options.row, options.share, out)
    for line in (COLUMNS, ["---"] * len(COLUMNS), cells):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
