"""How many workers a run has: its plan's own number, or what its load needs."""

from __future__ import annotations

from typing import Any

import pytest

from tippingpoint.plan.read import validate_plan
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.worker_count import worker_count
from tippingpoint.targets.registry import target_of

CORES = 4


def workers(share: tuple[int, int] | None = None, **fields: Any) -> int:
    """How many workers a plan with these fields has on four cores."""
    plan = validate_plan({"name": "x", **fields})
    part = PlanShare(plan, (0, 1))
    if share is not None:
        part.take(share)
    return worker_count(part, target_of(plan.target.kind).connections(plan), CORES)


def leases(number: int, over: float = 5, renew: float = 30, units: int = 3, **fields: Any) -> dict[str, Any]:
    """The fields of a plan with one stage of leases."""
    stage = {"leases": number, "over": over, "hold": 10}
    workload = {"units": units, "claim_time": 60, "renew_time": renew}
    return {"stages": [stage], "workload": workload, **fields}


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        (leases(334), 1),
        (leases(334, target={"kind": "juju"}), 1),
        (leases(2000, over=60), 1),
        (leases(1000, over=10, renew=1), 2),
        (leases(1000, over=1, units=1), 2),
        (leases(1000, over=5, target={"kind": "juju"}), 3),
        (leases(1000, over=600, target={"kind": "juju"}), 2),
        (leases(100, over=0), CORES),
        (leases(100_000, over=30), CORES),
        (leases(10, faults=[{"do": "drop-claims", "stage": 1, "at": 1}]), CORES),
        ({"find": {}, "thresholds": [{"operation": "claim", "p99": "1s"}]}, CORES),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_claim_plan_has_as_many_workers_as_its_load_needs(fields: dict[str, Any], count: int) -> None:
    assert workers(**fields) == count


def test_a_plan_may_say_how_many_workers_it_has() -> None:
    assert workers(**leases(10), workers=3) == 3
    assert workers(**leases(100_000, over=0), workers=1) == 1
    assert workers(**leases(10), workers=9) == 9


def test_a_units_part_has_workers_for_the_whole_plan_as_its_share_may_grow() -> None:
    assert workers(**leases(2000), share=(0, 4)) == workers(**leases(2000)) == 3


@pytest.mark.parametrize(
    ("groups", "given", "count"), [(1, None, 1), (3, None, 3), (9, None, CORES), (2, 3, 2)]
)
def test_a_plan_that_makes_things_has_no_more_workers_than_groups(
    groups: int, given: int | None, count: int
) -> None:
    stages = [{"groups": groups, "instances": 2}]
    fields = {"target": {"kind": "lxd"}, "workload": {"kind": "spawn", "rate": 1}, "stages": stages}
    assert workers(**fields, workers=given) == count
    assert workers(**fields, workers=given, share=(0, 1)) == count


def test_a_model_that_grows_has_a_worker_for_each_core() -> None:
    grow = {"target": {"kind": "juju"}, "workload": {"kind": "grow"}, "stages": [{"applications": 1}]}
    assert workers(**grow) == CORES
