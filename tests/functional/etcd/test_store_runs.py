"""Whole runs of the store workload on a real etcd cluster, through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.program import keys, leases_left, no_traceback, only_run, run, settings, write_plan
from tippingpoint.plan.store import MIXED
from tippingpoint.rundir.results import RunData


def store_plan(directory: Path, *stages: dict[str, Any], **fields: Any) -> Path:
    """A plan of the whole mix, with limits that any etcd meets."""
    mix = {"mix": dict.fromkeys(MIXED, 1), "serializable": 0.3, "limit": 20, "pages": 2, "prefixes": 4}
    workload = {"kind": "store", **mix, "lease_ttl": "2s", "lease_keys": 2, "timeout": "60s"}
    changed = fields.pop("workload", {})
    thresholds = [{"operation": "put", "error_rate": 0}, {"operation": "watch-event", "error_rate": 0}]
    return write_plan(
        directory,
        workload={**workload, **changed},
        stages=[{"operations": 100, "watchers": 8, "keys": 100, "over": 0, **stage} for stage in stages],
        thresholds=fields.pop("thresholds", thresholds),
        **fields,
    )


def test_what_an_operator_does_to_members_is_felt_and_violates_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    # given acts on members, and a quota that is full for a moment
    acts: list[tuple[str, str, float]] = [
        *(("compact", "m1", 0.2), ("defrag", "m1", 0.7), ("defrag", "m2", 1.2), ("snapshot", "m3", 1.7)),
        *(("move-leader", "m1", 2.2), ("slow-disk", "m1", 2.7), ("move-leader", "m2", 4.2)),
        ("fill-quota", "m1", 5.2),
    ]
    faults = [
        {"do": do, "member": member, "stage": 1, "at": at}
        | ({"undo_after": "1s"} if do in ("slow-disk", "fill-quota") else {})
        for do, member, at in acts
    ]
    plan = store_plan(tmp_path, {"hold": "10s"}, faults=faults, thresholds=[])
    # when it is run
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    # then all of them were done
    done_acts = [event["do"] for event in measured.events if event["event"] == "fault"]
    assert sorted(done_acts) == sorted([*(do for do, *_ in acts), "free-disk", "free-quota"])
    # and writes were refused while the quota was full, and made again after that
    refused = [event for event in measured.events if event["event"] == "error" and "space" in event["error"]]
    assert refused
    assert measured.manifest.status == "complete"
    # and nothing that was acknowledged was lost
    assert violations(measured) == []
    assert not [key for key in keys(etcd.endpoints[0]) if measured.manifest.id in key]


def test_members_that_are_killed_and_come_back_violate_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    # given each member dead for a second, one after the other, among them whoever leads
    faults = [
        {"do": "kill", "member": f"m{number}", "stage": 1, "at": 4 * number - 3.5, "undo_after": "1s"}
        for number in (1, 2, 3)
    ]
    plan = store_plan(tmp_path, {"hold": "14s"}, faults=faults, thresholds=[])
    # when watchers and writers meet that
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    # then watchers came up again, and each saw every event once, in order
    (stage,) = measured.stages
    assert stage.count("watch") > 8
    assert violations(measured) == []
    assert stage.count("watch-event", "lost") == 0


def violations(measured: RunData) -> list[dict[str, Any]]:
    return [event for event in measured.events if event["event"] == "violation"]


def left(lab: EtcdLab, api: str, run_id: str) -> bool:
    """Whether something is there of a run."""
    if api == "v3":
        return any(run_id in key for key in keys(lab.endpoints[0])) or leases_left(lab) != []
    try:
        with urlopen(f"{lab.endpoints[0]}/v2/keys/tippingpoint?recursive=true") as answer:
            return run_id in answer.read().decode()
    except HTTPError:
        return False


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_run_writes_reads_watches_and_leaves_nothing(etcd: EtcdLab, tmp_path: Path, api: str) -> None:
    if api not in etcd.apis:
        pytest.skip(f"this etcd has no {api}")
    # given a plan of all operations, with watchers, and leases that run out
    plan = store_plan(tmp_path, {"expiring": 5, "hold": "5s"})
    # when it is run
    done = run("run", plan, *settings(etcd), "--set", f"target.api={api}", "--out", tmp_path / "runs")
    # then its thresholds are met and every operation was made
    assert done.returncode == 0, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "complete"
    (stage,) = measured.stages
    assert not [name for name in (*MIXED, "expire", "watch-event") if not stage.count(name)]
    assert sum(stage.failures(name) for name in measured.operations) == 0
    # and each watcher came up once, and all of them were there
    assert stage.count("watch") == 8
    assert stage.gauges["held"] == 8
    # and etcd did nothing that a store may never do
    assert violations(measured) == []
    # and the target is as it was
    assert not left(etcd, api, measured.manifest.id)
