"""Profiles that a run takes of a real etcd."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lab.etcd.cluster import EtcdLab
from tests.functional.program import no_traceback, only_run, run, settings, write_plan
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.profiles import profiled_of
from tippingpoint.analysis.tipping import TippingPoint
from tippingpoint.report import write_report
from tippingpoint.rundir.profiles import taken_profiles

WORKLOAD = {"units": 1, "claim_time": "10s", "renew_time": "200ms", "timeout": "5s"}


def test_a_run_profiles_a_member_that_allows_it_and_says_which_does_not(
    new_etcd: Callable[..., EtcdLab], etcd: EtcdLab, tmp_path: Path
) -> None:
    # given an etcd with --enable-pprof that lets in who shows a certificate, and a member of another without it
    lab, closed = new_etcd(1, tls=True, pprof=True), etcd.endpoints[0]
    # (held for so long that there are samples of an etcd that has little CPU time)
    stages = [{"leases": leases, "over": "500ms", "hold": "5s"} for leases in (100, 300)]
    plan = write_plan(tmp_path, stages=stages, workload=WORKLOAD, workers=1)
    # when a run is to profile both
    asked = f"target.pprof=[{lab.endpoints[0]}, {closed}]"
    done = run("run", plan, *settings(lab), "--set", asked, "--out", tmp_path / "runs")
    assert no_traceback(done.stdout, done.stderr)
    # then the one was profiled in both stages, and the report says why the other was not
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "complete", done.stderr
    of_cpu = [each for each in taken_profiles(measured.events) if each.kind == "CPU"]
    assert [(each.stage, each.member) for each in of_cpu] == [(1, 1), (2, 1)]
    analysis = analyse(measured)
    told = json.loads(write_report(analysis, "json"))["profiles"]["sentences"]
    refused = f"{closed.removeprefix('http://')}: HTTP 404: pprof is not enabled there"
    assert any(refused in sentence for sentence in told), told
    assert refused in done.stdout
    # and the profiles are of etcd
    profiles = [each.read(measured.directory) for each in of_cpu]
    names = {
        name for each in profiles if each is not None for sample in each.samples for name in sample.stack
    }
    assert any("etcdserver" in name for name in names), names
    # and were the second load the one that tips it, they would be compared
    tips = replace(analysis.tipping, point=TippingPoint(100, 300, "knee", "extend", "made up"))
    compared = profiled_of(analysis.findings, tips)
    assert compared is not None
    shift = compared.shifts[0]
    assert (shift.kind, shift.plateau_load, shift.tipped_load) == ("CPU", 100, 300)
    assert shift.tipped_rate > 0
    assert shift.functions
