"""The demo: one command runs a plan on a private cluster, and its report has figures of the members."""

from __future__ import annotations

import json
from pathlib import Path

from tests.functional.lab.demos import demo

_SHORT = json.dumps([{"leases": size, "over": "1s", "hold": "5s"} for size in (20, 40)])


def test_a_report_of_etcd_tells_its_members_apart(tmp_path: Path) -> None:
    told, run = demo("etcd", tmp_path, f"stages={_SHORT}", "faults=[]")
    assert "etcd is stopped; nothing is left running" in told
    # and what this lab does not export is in the report, not on the terminal
    assert [line for line in told.splitlines() if "missing" in line or "no samples: its source" in line] == []
    assert "demo: the report names the figures that nothing in this lab exports" in told
    assert "no samples: its source" in (run.directory / "report.html").read_text(encoding="utf-8")
    resources = run.resources
    assert resources is not None
    assert resources.hosts == ["m1", "m2", "m3"]
    assert {"etcd-memory", "etcd-cpu", "etcd-peer-out"} <= {figure.name for figure in resources.figures}
    # and there are samples of rates from before the first stage
    peers = next(figure for figure in resources.figures if figure.name == "etcd-peer-out")
    before = [t < run.stages[0].begin for t in resources.t]
    assert all(
        any(v is not None for v, early in zip(s.values, before, strict=True) if early) for s in peers.series
    )


def test_without_prometheus_the_report_comes_all_the_same_and_says_what_it_lacks(tmp_path: Path) -> None:
    stages = json.dumps([{"leases": 20, "over": "1s", "hold": "1s"}])
    missing = str(tmp_path / "no-prometheus")
    told, run = demo("etcd", tmp_path, f"stages={stages}", "faults=[]", TIPPINGPOINT_PROMETHEUS=missing)
    assert (
        f"demo: TIPPINGPOINT_PROMETHEUS: {missing}: expected an executable prometheus; the report lacks"
        in told
    )
    assert run.resources is None
    page = (run.directory / "report.html").read_text(encoding="utf-8")
    assert "Not collected, so there are no charts of the target's CPU, memory, network and disks." in page
