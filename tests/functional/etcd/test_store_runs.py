"""Whole runs of the store workload on a real etcd cluster, through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def violations(measured: RunData) -> list[dict[str, Any]]:
    return [event for event in measured.events if event["event"] == "violation"]


def test_a_run_writes_reads_watches_and_leaves_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a plan of all operations, with watchers, and leases that run out
    plan = store_plan(tmp_path, {"expiring": 5, "hold": "5s"})
    # when it is run
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
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
    assert not [key for key in keys(etcd.endpoints[0]) if measured.manifest.id in key]
    assert leases_left(etcd) == []
