"""What a report says of a fault is what another client sees, which shares nothing with the run but the target."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.etcd.prober import Prober
from tests.functional.program import only_run, run, settings, write_plan
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.recovery.aftermath import Aftermath
from tippingpoint.rundir.intervals import read_intervals
from tippingpoint.rundir.results import RunData

_TRIES = 3
"""The most runs of one test: before the fault, a machine may be so slow that nothing is overdue while it is there."""


def with_prober(etcd_private: EtcdLab, directory: Path, fault: str) -> tuple[RunData, Aftermath, Prober]:
    """A run of a plan that takes the target away, in full or until it has elected a new leader, with a prober beside
    it; and what the run says of the time after the fault."""
    members = sorted(etcd_private.pids)
    do, hit, back_after = (
        ("kill", [etcd_private.leader()], "10s") if fault == "kill the leader" else ("stop", members, "3s")
    )
    plan = write_plan(
        directory,
        workload={"units": 1, "claim_time": "60s", "renew_time": "500ms", "timeout": "20s"},
        stages=[{"leases": 40, "over": "1s", "hold": "24s"}],
        faults=[
            {"do": do, "member": member, "stage": 1, "at": "8s", "undo_after": back_after} for member in hit
        ],
        thresholds=[{"operation": "extend", "p99": "1s"}],
    )
    with Prober(etcd_private.endpoints) as prober:
        done = run("run", plan, *settings(etcd_private), "--out", directory / "runs")
    assert "Traceback" not in done.stderr
    measured = only_run(directory / "runs")
    return measured, analyse(measured).aftermaths[0], prober


@pytest.mark.parametrize("fault", ["kill the leader", "stop all"])
def test_a_prober_sees_the_same_recovery(etcd_private: EtcdLab, tmp_path: Path, fault: str) -> None:
    # given a run in which the target is taken away, and a prober beside it
    for number in range(_TRIES):
        (tmp_path / str(number)).mkdir()
        measured, after, prober = with_prober(etcd_private, tmp_path / str(number), fault)
        assert after.limit_us is not None
        if after.limit_us <= 1.5e6:
            break
    # then the report's times are the prober's, to within a second and what it says that they may be wrong by (where the
    # machine is slow, and its seconds are long, to within such a second, and what the prober itself takes)
    began = measured.manifest.started + after.t
    noticed, back = prober.noticed_and_back(began, began + after.watched, after.limit_us / 1e6)
    intervals = read_intervals(measured.directory, after.t, after.t + after.watched)
    longest = max([1.0, *(interval.end - interval.begin for interval in intervals)])
    within = longest + after.exact_to + prober.longest_before(began)
    assert after.noticed is not None, after
    assert after.recovered is not None, after
    # (a client of the killed member loses its connection at once, while the prober may be at another)
    earliest = 0.0 if after.noticed_by.endswith("failed") else noticed - within
    assert earliest <= after.noticed < noticed + within, (after, noticed, back)
    assert abs(after.recovered - back) < within, (after, noticed, back)
    times = f"noticed {after.noticed:.2f} and {noticed:.2f}, back {after.recovered:.2f} and {back:.2f}"
    print(f"{fault}: {times} ({after.noticed_by})")
