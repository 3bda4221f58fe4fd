"""Who leads the target is on a run's time line, without a lab that says so."""

from __future__ import annotations

import json
import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.program import only_run, settings, start, until, write_plan
from tests.functional.spawn_runs import ended, going, named, wait_for
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_new_leader_of_etcd_is_on_the_time_line(etcd_private: EtcdLab, tmp_path: Path, api: str) -> None:
    # given a run that holds its leases
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": "200ms", "hold": "20m"}])
    process = start(
        "run", plan, *settings(etcd_private), "--set", f"target.api={api}", "--out", tmp_path / "runs"
    )
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "leader")
        wait_for(tmp_path / "runs", process, "stage", 2, phase="hold")
        # when the leader is killed, by nobody whom the run knows
        first = etcd_private.leader()
        wait_for(tmp_path / "runs", process, "leader", member=first)
        os.kill(etcd_private.pids[first], signal.SIGKILL)
        until(lambda: first not in etcd_private.pids)
        second = etcd_private.leader()
        wait_for(tmp_path / "runs", process, "leader", member=second)
        process.send_signal(signal.SIGINT)
        ended(process)
    # then the run has seen both, in this order (a slow cluster may elect more than once), and the report says when each
    # came to lead
    leaders = [event["member"] for event in named(directory, "leader")]
    assert second in leaders[leaders.index(first) + 1 :]
    assert all(before != after for before, after in pairwise(leaders))
    measured = only_run(tmp_path / "runs")
    report = json.loads(write_report(analyse(measured), "json"))
    marks = [mark for mark in report["events"]["marks"] if mark["kind"] == "leader"]
    assert [mark["text"] for mark in marks] == [f"{leader} leads" for leader in leaders[1:]]
    assert measured.stages[0].begin < marks[-1]["t"]
    (told,) = [entry for entry in report["happened"] if entry["what"] == f"{second} leads"]
    assert (told["count"], told["stages"]) == (leaders[1:].count(second), [1])
    assert report["members"] == []
