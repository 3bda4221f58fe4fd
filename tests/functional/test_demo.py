"""The demo: one command runs a plan on a private cluster, and its report has figures of the members."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tippingpoint.rundir.results import RunData, load_run

_CHECKOUT = Path(__file__).resolve().parents[2]
_SHORT = json.dumps([{"leases": size, "over": "1s", "hold": "5s"} for size in (20, 40)])

pytestmark = pytest.mark.timeout(180)


def demo(target: str, out: Path, *settings: str, **environment: str) -> tuple[str, RunData]:
    """What it says, and the run that it made."""
    command = [sys.executable, "-m", "lab.demo", target, f"--out={out}"]
    command += [f"--set={setting}" for setting in settings]
    done = subprocess.run(
        command,
        cwd=_CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (manifest,) = out.glob("*/manifest.json")
    return done.stdout + done.stderr, load_run(manifest.parent)


def test_a_report_of_etcd_tells_its_members_apart(tmp_path: Path) -> None:
    told, run = demo("etcd", tmp_path, f"stages={_SHORT}", "faults=[]")
    assert "etcd is stopped; nothing is left running" in told
    # and what this lab does not export is in the report, not on the terminal
    assert [line for line in told.splitlines() if "missing" in line or "nothing was sampled" in line] == []
    assert "demo: the report names the figures that nothing in this lab exports" in told
    assert "nothing was sampled" in (run.directory / "report.html").read_text(encoding="utf-8")
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
    assert "Not gathered, so there are no charts of the target's CPU, memory, network and disks." in page


@pytest.mark.lxd
def test_a_report_of_lxd_tells_the_leader_from_its_followers(tmp_path: Path) -> None:
    stages = json.dumps([{"groups": 1, "instances": 6, "hold": "5s"}])
    _told, run = demo("lxd", tmp_path, f"stages={stages}")
    resources = run.resources
    assert resources is not None
    figures = {figure.name: figure for figure in resources.figures}
    assert {series.host for series in figures["lxd-memory"].series} == {"m1", "m2", "m3"}
    assert resources.leading(resources.t[-1]) in {"m1", "m2", "m3"}
    # and what the members share is told once
    assert {series.host for series in figures["host-cpu"].series} == {"machine"}
