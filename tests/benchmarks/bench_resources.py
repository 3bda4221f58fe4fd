"""How long it takes to gather figures of 100 hosts over four hours, scraped each 15 s, and to make a report of it.

Run by hand: python tests/benchmarks/bench_resources.py [HOSTS [HOURS]]. A real Prometheus has what was recorded, made
up and written into its database by promtool; the figures are those of the packs for LXD (hosts and processes among
them). Prints wall and CPU seconds and peak memory of ours, and CPU seconds of Prometheus.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import bench_report
import numpy as np

from lab.recorded import Recorded
from tippingpoint.analysis.analyse import analyse
from tippingpoint.monitoring.gather import gather_run
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.report import write_report
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.rundir.resources import FILE, Resources, write_resources
from tippingpoint.rundir.results import RunData, add_resources, load_run

EVERY = 15
STARTED = 1_700_000_000
WORKERS = 4
COUNTERS = {
    **{
        f'node_cpu_seconds_total{{cpu="{cpu}",mode="{mode}"}}': 0.2
        for cpu in range(4)
        for mode in ("user", "system", "idle")
    },
    'node_network_receive_bytes_total{device="eth0"}': 3e6,
    'node_network_transmit_bytes_total{device="eth0"}': 2e6,
    'node_disk_reads_completed_total{device="sda"}': 10,
    'node_disk_writes_completed_total{device="sda"}': 90,
    'node_disk_read_bytes_total{device="sda"}': 1e5,
    'node_disk_written_bytes_total{device="sda"}': 4e6,
    'namedprocess_namegroup_cpu_seconds_total{groupname="lxd",mode="user"}': 0.3,
    'namedprocess_namegroup_write_bytes_total{groupname="lxd"}': 2e6,
}
GAUGES = {
    "node_load1{}": 2.0, "node_load5{}": 2.0, "node_load15{}": 2.0,
    "node_memory_MemTotal_bytes{}": 64e9, "node_memory_MemAvailable_bytes{}": 32e9,
    "node_sockstat_TCP_inuse{}": 300, "node_sockstat_TCP6_inuse{}": 30,
    'namedprocess_namegroup_memory_bytes{groupname="lxd",memtype="resident"}': 200e6,
    'namedprocess_namegroup_num_threads{groupname="lxd"}': 40,
    'namedprocess_namegroup_open_filedesc{groupname="lxd"}': 500,
    "scrape_duration_seconds{}": 0.05,
}  # fmt: skip


def recorded(hosts: int, seconds: int) -> dict[str, dict[str, Iterator[tuple[int, float]]]]:
    """Samples by metric and series; the first host leads and takes five times what others do."""
    moments = np.arange(STARTED - 120, STARTED + seconds + 61, EVERY)
    growing = 1 + np.clip(moments - STARTED, 0, None) / seconds
    found: dict[str, dict[str, Iterator[tuple[int, float]]]] = {}

    def add(series: str, host: int, values: np.ndarray) -> None:
        name, labels = series.rstrip("}").split("{")
        scraped = ",".join(
            [*filter(None, [labels]), f'host="lxd{host}",instance="10.0.0.{host}:9100",job="node"']
        )
        found.setdefault(name, {})[f"{{{scraped}}}"] = zip(moments.tolist(), values.tolist(), strict=True)

    chance = np.random.default_rng(1)
    for host in range(1, hosts + 1):
        level = growing * (5 if host == 1 else 1)
        add("up{}", host, np.ones(len(moments)))
        add("node_time_seconds{}", host, moments + 0.01)
        for series, middle in GAUGES.items():
            add(series, host, middle * level * chance.normal(1, 0.02, len(moments)))
        for series, middle in COUNTERS.items():
            add(series, host, np.cumsum(middle * EVERY * level * np.abs(chance.normal(1, 0.1, len(moments)))))
    return found


def write_run(directory: Path, seconds: int) -> None:
    """A run of that long, on LXD as far as its manifest says."""
    bench_report.SECONDS = seconds
    bench_report.write_journals(directory, WORKERS)
    manifest = Manifest.load(directory)
    manifest.started, manifest.ended, manifest.target = STARTED, STARTED + seconds, TargetEntry(kind="lxd")
    manifest.save(directory)
    with (directory / "worker-0.jsonl").open("a") as events:
        events.write(json.dumps({"t": 0.0, "event": "leader", "member": "lxd1"}) + "\n")


def cpu_of(pid: int) -> float:
    """CPU seconds of a process: utime and stime of proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(directory: Path, url: str, prometheus: int) -> None:
    """Gather, write, read and report, as `tippingpoint collect` does, in a process of its own: this one."""
    before, began, cpu = cpu_of(prometheus), time.perf_counter(), time.process_time()

    async def gather(run: RunData) -> Resources:
        async with Prometheus(url) as asked:
            return await gather_run(run, asked)

    run = load_run(directory)
    read = time.perf_counter() - began
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    gathered = asyncio.run(gather(run))
    write_resources(directory, gathered)
    took = time.perf_counter() - began - read
    theirs = cpu_of(prometheus) - before
    series = sum(len(figure.series) for figure in gathered.figures)
    size = (directory / FILE).stat().st_size
    print(f"{len(gathered.figures)} figures, {series} series of {len(gathered.t)} moments gathered in {took:.1f} s "
          f"(run read in {read:.1f} s and {resident:.0f} MiB), {time.process_time() - cpu:.1f} CPU-s; "
          f"Prometheus {theirs:.1f} CPU-s; {size / 2**20:.1f} MiB; {len(gathered.missing)} missing")  # fmt: skip
    add_resources(run, gathered)
    began_costs = time.perf_counter()
    analysis = analyse(run)
    costs = analysis.costs
    costed = time.perf_counter() - began_costs
    page = write_report(analysis, "html")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(costs)} costs in {costed:.1f} s, page of {len(page) / 2**20:.2f} MiB; run, figures and page in "
          f"{time.perf_counter() - began:.1f} s, {time.process_time() - cpu:.1f} CPU-s, {peak:.0f} MiB")  # fmt: skip


def main() -> None:
    hosts = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seconds = int(3600 * float(sys.argv[2] if len(sys.argv) > 2 else 4))
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "run"
        directory.mkdir()
        write_run(directory, seconds)
        with Recorded(Path(place) / "prometheus", recorded(hosts, seconds)) as prometheus:
            print(f"{hosts} hosts, {seconds / 3600:g} h at {EVERY} s, on a machine with a load average of "
                  f"{os.getloadavg()[0]:.1f} for {os.cpu_count()} cores")  # fmt: skip
            arguments = ["measure", str(directory), prometheus.url, str(prometheus.pid)]
            subprocess.run([sys.executable, __file__, *arguments], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
    else:
        main()
