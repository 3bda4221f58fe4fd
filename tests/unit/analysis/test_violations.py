"""What a store must never show is a cliff of its own kind, whatever else went well."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.made.made_runs import STAGE_SECONDS, made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.fault_spans import FaultSpan, fault_spans, lasting_faults
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData

SIZES = [100, 200, 400]
PLAN = """
name: made
target: {kind: etcd}
workload: {kind: store, mix: {put: 1}}
stages: [{operations: 100, keys: 9}, {operations: 200, keys: 9}, {operations: 400, keys: 9}]
thresholds: [{operation: put, p99: 1s}]
"""


def violation(t: float, kind: str, **fields: Any) -> dict[str, Any]:
    return {"t": t, "event": "violation", "kind": kind, "count": 1, **fields}


def run_with(events: list[dict[str, Any]]) -> RunData:
    """A run in which every put is answered in time at any load."""
    stages = [
        made_stage(number, size, {"put.ok": [5.0] * int(size * STAGE_SECONDS)})
        for number, size in enumerate(SIZES, start=1)
    ]
    run = made_run(stages, events=events, target="etcd", plan=PLAN)
    run.manifest.workload = "store"
    return run


def test_a_stale_read_is_the_cliff_and_names_its_key_and_revisions() -> None:
    # given a stale read at the second load, and a larger load without any
    seen = violation(STAGE_SECONDS + 2, "stale-read", key="0001/0000000007", revision=40, expected=42)
    result = analyse(run_with([seen]))
    # then the second load is the cliff, and its evidence is the read
    cliff = result.tipping.cliff
    assert cliff is not None
    assert (cliff.by, cliff.first_broken) == ("violation", 200)
    assert cliff.evidence == (
        "a read was older than an acknowledged write (key 0001/0000000007 at revision 40, acknowledged at 42)"
    )
    # and the verdict is a miss, although every threshold is met
    assert result.verdict.outcome == "missed"
    assert cliff.evidence in result.verdict.sentence


def test_a_violation_in_a_restart_storm_is_a_cliff_of_its_load() -> None:
    # given a storm in the second half of the second load, and an event out of order in it
    run = run_with([violation(1.7 * STAGE_SECONDS, "event-reordered", key="0000/1", revision=5, expected=6)])
    storm = made_stage(2, SIZES[1], {"put.ok": [5.0] * 100}, kind="storm")
    storm.begin, storm.hold_begin, storm.end = (share * STAGE_SECONDS for share in (1.5, 1.5, 2.0))
    run.stages[1].end = 1.5 * STAGE_SECONDS
    run.stages.insert(2, storm)
    cliff = analyse(run).tipping.cliff
    assert cliff is not None
    assert (cliff.by, cliff.first_broken) == ("violation", SIZES[1])


def test_events_that_watchers_lost_are_counted_and_the_first_are_named() -> None:
    t = 2 * STAGE_SECONDS + 1
    lost = [
        violation(t, "event-lost", key="0000/1", revision=number, expected=number + 1, watcher=3)
        for number in range(10, 15)
    ]
    cliff = analyse(run_with([*lost, violation(t, "event-repeated", key="0000/2", revision=9, expected=9)]))
    assert cliff.tipping.cliff is not None
    assert cliff.tipping.cliff.evidence == (
        "5 events were lost by watchers (watcher 3, key 0000/1 at revision 10, after 11; watcher 3, key 0000/1 at "
        "revision 11, after 12; watcher 3, key 0000/1 at revision 12, after 13; ...); 1 other violation"
    )


def test_a_fault_does_not_excuse_a_violation() -> None:
    t = STAGE_SECONDS + 2
    fault = {"t": t - 1, "event": "fault", "do": "kill", "member": "m1"}
    result = analyse(run_with([fault, violation(t, "key-gone", key="0000/1", revision=0, expected=8)]))
    assert result.tipping.cliff is not None
    assert (result.tipping.cliff.by, result.tipping.cliff.during_fault) == ("violation", False)
    assert result.tipping.cliff.evidence == (
        "an acknowledged key was gone (key 0000/1 absent, acknowledged at 8)"
    )


def test_a_run_without_violations_has_no_cliff() -> None:
    assert analyse(run_with([])).tipping.cliff is None


def test_what_an_operator_did_lasts_from_its_begin_to_its_end() -> None:
    events = [{"t": 20.0, "event": "fault", "do": "defrag", "member": "m1", "seconds": 3.5}]
    assert fault_spans(events) == lasting_faults(events) == [FaultSpan(16.5, 20.0, "defrag", "m1")]


@pytest.mark.parametrize(
    ("do", "fields", "said"),
    [
        ("stop", {}, "; m1 was down on purpose"),
        ("kill", {}, "; m1 was down on purpose"),
        ("partition", {}, "; during partition of m1"),
        ("defrag", {"seconds": 2.0}, "; during defrag of m1"),
    ],
)
def test_a_miss_names_the_fault_beside_it(do: str, fields: dict[str, Any], said: str) -> None:
    run = run_with([{"t": 2 * STAGE_SECONDS + 5, "event": "fault", "do": do, "member": "m1", **fields}])
    slow = Histogram.of(np.full(1000, 2_000_000))
    run.stages[-1].histograms["put.ok"] = run.stages[-1].held["put.ok"] = slow
    verdict = analyse(run).verdict
    assert verdict.outcome == "missed"
    assert said in verdict.sentence
