"""The machines that a plan asks of a MAAS, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.targets.maas.plan import MaasTarget

GIB = 1 << 30
SIZES: dict[str, Any] = {
    "small": {"count": 7, "cpu": 2, "memory": "4GiB", "networks": ["maas"], "disks": ["10GiB", "60GiB"]},
    "medium": {"count": 2, "cpu": 4, "memory": "8GiB", "networks": ["maas", "storage"], "disks": ["60GiB"]},
}


def section(**fields: Any) -> MaasTarget:
    return MaasTarget.model_validate({"kind": "maas", **fields})


def plan(instances: int = 1, target: MaasTarget | None = None, **workload: Any) -> SpawnPlan:
    return SpawnPlan.model_validate(
        {
            "name": "machines",
            "target": target or section(),
            "workload": {"kind": "spawn", "concurrency": 1, "until": "started", **workload},
            "stages": [{"instances": instances, "hold": "1s"}],
        }
    )


def test_machines_are_of_the_sizes_in_the_order_of_the_plan() -> None:
    made = section(machines=SIZES)
    assert [made.machine(number).cpu for number in range(9)] == [2] * 7 + [4] * 2
    assert made.machine(6).memory == 4 * GIB
    assert made.machine(6).disks == [10 * GIB, 60 * GIB]
    assert made.machine(8).networks == ["maas", "storage"]
    with pytest.raises(IndexError):
        made.machine(9)


def test_without_sizes_there_are_as_many_as_a_stage_says() -> None:
    assert plan(5000).stages[0].instances == 5000
    assert section().machine(4999).networks == ["maas"]


def test_a_plan_that_was_written_is_the_same_plan() -> None:
    made = section(machines=SIZES)
    assert MaasTarget.model_validate_json(made.model_dump_json()) == made


def test_a_stage_with_more_machines_than_there_are_sizes_for_is_refused() -> None:
    assert plan(9, section(machines=SIZES)).target == section(machines=SIZES)
    with pytest.raises(
        ValidationError, match=r"stages.0.instances: 10: expected at most 9, as target.machines has that many"
    ):
        plan(10, section(machines=SIZES))


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"until": "reachable"}, "workload.until: reachable: expected created"),
        ({"evict": True}, "workload.evict: true"),
        (
            {"until": "switched"},
            "workload.until: switched: expected created, started or probed, as nobody switches",
        ),
    ],
)
def test_what_a_maas_cannot_do_is_refused(workload: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        plan(**workload)


def test_machines_with_power_of_their_own_are_switched() -> None:
    made = {"kind": "registered", "power_type": "redfish"}
    assert plan(until="switched", target=section(made=made)).workload.until == "switched"
    assert plan(until="switched", target=section(made={"kind": "composed"})).workload.until == "switched"


@pytest.mark.parametrize(
    "size",
    [
        {"count": 0},
        {"memory": "much"},
        {"memory": "4KiB"},
        {"networks": []},
        {"disks": ["0GiB"]},
        {"cores": 2},
    ],
)
def test_a_size_that_no_machine_has_is_refused(size: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        section(machines={"small": size})
