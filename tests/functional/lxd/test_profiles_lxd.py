"""Profiles that a run takes of a real LXD, whose administrator allows it for one member."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from lab.lxd.cluster import LxdLab
from tests.functional.lxd.lxd_runs import EACH, GROUPS, only_a_stage, run_at, spawn_plan
from tests.functional.program import only_run
from tippingpoint.rundir.profiles import taken_profiles


def test_a_run_profiles_a_member_by_its_debug_address(lxd: LxdLab, tmp_path: Path) -> None:
    # given a member with a debug address
    debug = f"{urlsplit(lxd.address('m1')).hostname}:8444"
    plan = spawn_plan(tmp_path, stages=only_a_stage(EACH, "5s", GROUPS), workload={"observe_every": "1s"})
    lxd.lxc("config", "set", "core.debug_address", debug, on="m1")
    try:
        # when a run is to profile it
        done = run_at(lxd, "run", plan, "--set", f"target.pprof=[http://{debug}]", "--out", tmp_path / "runs")
    finally:
        lxd.lxc("config", "unset", "core.debug_address", on="m1")
    # then its CPU is profiled, and the profile is of LXD
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    taken = {each.kind: each for each in taken_profiles(measured.events)}
    assert {(each.stage, each.member) for each in taken.values()} == {(1, 1)}
    of_cpu, of_locks = (taken[kind].read(measured.directory) for kind in ("CPU", "lock wait"))
    assert of_cpu is not None
    names = {name for sample in of_cpu.samples for name in sample.stack}
    assert any("lxd/lxd" in name for name in names), names
    # and LXD samples no waits for locks
    assert of_locks is not None
    assert list(of_locks.samples) == []
    # and the report says that no load is there to compare with
    assert (
        "Profiles of 1 stage are in the run's directory, and none was compared, because no load tipped the target."
        in done.stdout
    )
