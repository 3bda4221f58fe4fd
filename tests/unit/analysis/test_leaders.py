"""A leader that changes without a fault is a cliff, where the target says that its leader is steady."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.made.made_runs import STAGE_SECONDS, made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.leaders import EXPLAINS_FOR, unexplained
from tippingpoint.rundir.results import RunData

SIZES = [50, 100, 200, 400]
PLAN = """
name: made
target: {kind: pacemaker, tls: anonymous}
workload: {renew_time: 1s, claim_time: 60s}
stages: [{leases: 50}, {leases: 100}, {leases: 200}, {leases: 400}]
thresholds: [{operation: extend, p99: 1s}]
"""


def leads(t: float, member: str) -> dict[str, Any]:
    return {"t": t, "event": "leader", "member": member}


def fault(t: float, do: str, member: str | None = "node1") -> dict[str, Any]:
    return {"t": t, "event": "fault", "do": do, "member": member}


def run_with(events: list[dict[str, Any]], target: str = "pacemaker") -> RunData:
    """A run in which every answer is right and quick at any load."""
    stages = [
        made_stage(number, size, {"claim.ok": [5.0] * size, "extend.ok": [5.0] * (30 * size)})
        for number, size in enumerate(SIZES, start=1)
    ]
    return made_run(stages, events=events, target=target, plan=PLAN if target == "pacemaker" else None)


def test_a_dc_that_changes_while_every_answer_is_right_is_the_cliff() -> None:
    result = analyse(run_with([leads(1, "node1"), leads(2 * STAGE_SECONDS + 9, "node2")]))
    cliff = result.tipping.cliff
    assert cliff is not None
    assert (cliff.by, cliff.last_held, cliff.first_broken, cliff.stage) == ("leader", 100, 200, 3)
    assert cliff.evidence == "the DC changed without a fault (node1 to node2)"
    assert result.tipping.sentence.startswith(
        "Tips between 100 and 200 leases: the DC changed without a fault (node1 to node2) at 200"
    )
    assert result.verdict.outcome == "missed"
    assert result.verdict.sentence == (
        "Missed: 200 leases were not sustained: the DC changed without a fault (node1 to node2); "
        "passed up to 100 leases."
    )


def test_a_larger_load_that_went_well_does_not_excuse_it() -> None:
    result = analyse(run_with([leads(1, "node1"), leads(STAGE_SECONDS + 1, "node2")]))
    assert result.tipping.cliff is not None
    assert result.tipping.cliff.first_broken == 100
    assert not result.tipping.notes


def test_several_changes_are_one_cliff_that_names_them() -> None:
    t = 3 * STAGE_SECONDS
    result = analyse(
        run_with([leads(1, "node1"), leads(t + 1, "node2"), leads(t + 5, "node3"), leads(t + 9, "node1")])
    )
    assert result.tipping.cliff is not None
    assert result.tipping.cliff.evidence == (
        "the DC changed 3 times without a fault (node1 to node2 to node3 to node1)"
    )


def test_a_controller_that_ends_by_itself_is_the_cliff_though_the_dc_stays() -> None:
    t = 2 * STAGE_SECONDS
    gone, back = (
        {"event": "controller", "member": "node2", "status": status} for status in ("gone", "joined")
    )
    result = analyse(
        run_with([leads(1, "node1"), {"t": t + 3, **gone}, {"t": t + 5, **back}, {"t": t + 8, **gone}])
    )
    cliff = result.tipping.cliff
    assert cliff is not None
    assert (cliff.by, cliff.last_held, cliff.first_broken) == ("leader", 100, 200)
    assert cliff.evidence == "a controller ended 2 times without a fault (node2, node2)"
    # when a fault did it, it is none
    assert analyse(run_with([fault(t + 1, "kill-daemon"), {"t": t + 3, **gone}])).tipping.cliff is None


@pytest.mark.parametrize(
    ("faults", "explained"),
    [
        ([fault(60, "kill"), fault(65, "start")], True),
        ([fault(5, "kill")], True),  # it is down still
        ([fault(5, "partition"), fault(69.0 - EXPLAINS_FOR + 1, "heal")], True),
        ([fault(5, "kill"), fault(69.0 - EXPLAINS_FOR - 1, "start")], False),  # it was back long before
        ([fault(70, "kill")], False),  # it came after
        ([fault(2, "fail-fencing"), fault(3, "kill"), fault(4, "mend-fencing")], True),  # it is down still
        ([fault(60, "drop-claims", None)], True),
        # one that took until after the change
        ([{**fault(75, "defrag"), "seconds": 10.0}], True),
    ],
)
def test_a_fault_of_that_time_explains_a_change(faults: list[dict[str, Any]], explained: bool) -> None:
    events = sorted([leads(1, "node1"), leads(69, "node2"), *faults], key=lambda event: event["t"])
    assert unexplained(events) == ([] if explained else [(69.0, "node1", "node2")])


def test_the_first_leader_and_one_told_again_are_no_change() -> None:
    result = analyse(run_with([leads(1, "node1"), leads(40, "node1")]))
    assert result.tipping.cliff is None
    assert result.verdict.outcome == "met"


def test_leaders_of_other_targets_may_change() -> None:
    result = analyse(run_with([leads(1, "m1"), leads(40, "m2")], target="etcd"))
    assert result.tipping.cliff is None


def test_a_change_just_after_the_last_hold_counts_for_it() -> None:
    result = analyse(run_with([leads(1, "node1"), leads(4 * STAGE_SECONDS + 2, "node2")]))
    assert result.tipping.cliff is not None
    assert result.tipping.cliff.first_broken == 400
