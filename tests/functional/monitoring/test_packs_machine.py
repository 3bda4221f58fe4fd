"""The packs of machines, processes and Prometheus, asked of this machine's exporters through a real Prometheus."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.exporters import EVERY, Exporters
from lab.ports import free_ports
from lab.prometheus import PrometheusLab
from tests.functional.monitoring.scraping import await_figures, only
from tippingpoint.monitoring.query_packs import shipped_packs
from tippingpoint.monitoring.scrape.jobs import itself, static_targets

INTERVAL_S = 10
"""Seconds between scrapes, each of which has as long for its answer. On a machine with a load average of 10 the process
exporter takes over a second to read of every process, and with one of 40 over four."""
WINDOW_S = 3.0 * INTERVAL_S


def test_a_machine_s_figures_agree_with_what_its_kernel_says(tmp_path: Path) -> None:
    # Given a machine with a node exporter and a process exporter, which are one host by their label
    packs = shipped_packs()
    node, processes = (f"127.0.0.1:{port}" for port in free_ports(2))
    found = static_targets(f"{node} host=juju-controller, {processes} host=juju-controller")
    with Exporters() as exporters, PrometheusLab(interval=INTERVAL_S) as lab:
        exporters.node(node)
        exporters.processes(processes, EVERY)

        # When Prometheus scrapes them and something is written to a disk
        own = lab.serving.address
        lab.configure([found, itself(own)])
        with ThreadPoolExecutor() as at_once:
            processes_told = at_once.submit(await_figures, lab.url, packs["process"], window=WINDOW_S)
            # (each of these is of the last scrape, which may have had no answer in time)
            prometheus_told = at_once.submit(
                await_figures,
                lab.url,
                packs["prometheus"],
                until=lambda found: set(found["prometheus-targets-down"].values()) == {0.0},
                window=WINDOW_S,
            )
            host = await_figures(lab.url, packs["host"], lambda: use_disk(tmp_path / "file"), window=WINDOW_S)
        process, prometheus = processes_told.result(), prometheus_told.result()

    # Then each figure is told once, for the host, or for each of its disks and network cards
    assert {where for values in host.values() for where, _ in values} == {"juju-controller"}
    parted = {figure.name for figure in packs["host"].figures if figure.part}
    assert all(
        [*values] == [("juju-controller", "")]
        for name, values in host.items()
        if name not in parted and values
    )
    cores, total = os.cpu_count() or 1, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0.01 < only(host["host-cpu"]) < cores + 0.5
    assert 1e7 < only(host["host-memory"]) < total
    assert only(host["host-memory-available"]) == pytest.approx(
        1 - only(host["host-memory"]) / total, abs=0.1
    )
    assert only(host["host-load-15"]) == pytest.approx(os.getloadavg()[2], rel=0.5, abs=0.5)
    assert only(host["host-disk-writes"]) > 0
    assert 1e5 < only(host["host-disk-written"]) < 1e11
    assert only(host["host-tcp"]) >= 1
    # and programs are told apart
    memory = process["process-memory"]
    assert 1e7 < memory["juju-controller", "prometheus"] < 2e9
    assert 1e6 < memory["juju-controller", "prometheus-node"] < 2e8  # the kernel's 15 characters, and no more
    assert process["process-threads"]["juju-controller", "prometheus"] >= 4
    assert 0 < process["process-cpu"]["juju-controller", "prometheus"] < cores
    assert all(0 <= ratio <= 1 for ratio in process["process-files-used"].values())
    # while exporters and Prometheus, which tell of themselves too, are not there a second time
    assert {where for where, _ in memory} == {"juju-controller"}
    # and Prometheus knows that everything answers
    assert set(prometheus["prometheus-targets-down"].values()) == {0.0}
    assert prometheus["prometheus-configured"] == {(own, ""): 1.0}
    assert 100 < prometheus["prometheus-series"][own, ""] < 1e5
    assert prometheus["prometheus-samples"][own, ""] > 50
    assert prometheus["prometheus-dropped"] == {(own, ""): 0.0}


def use_disk(file: Path) -> None:
    """Have a disk write a megabyte."""
    with file.open("wb") as written:
        written.write(os.urandom(1 << 20))
        written.flush()
        os.fsync(written.fileno())
