"""How long a run takes, as far as its plan says."""

from __future__ import annotations

from typing import Any

import pytest

from tippingpoint.plan.lasting import Lasting, Schedule
from tippingpoint.plan.read import Plan, validate_plan

LEASES: dict[str, Any] = {
    "name": "ramp",
    "stages": [{"leases": 10, "over": "2s", "hold": "10s"}, {"leases": 20, "over": "3s", "hold": "20s"}],
}
STORM = {"do": "drop-claims", "stage": 1, "at": "4s"}


def plan(**changes: Any) -> Plan:
    return validate_plan({**LEASES, **changes})


def test_listed_stages_last_about_as_long_as_they_are_brought_up_and_held() -> None:
    assert Schedule(plan()).whole == Lasting(35.0, "about")
    assert Lasting(205.0, "about").words == "about 3 min 25 s"


def test_a_restart_storm_makes_its_stage_longer_as_that_is_held_in_full_after_it() -> None:
    assert Schedule(plan(faults=[STORM])).whole == Lasting(39.0, "about")


@pytest.mark.parametrize(
    ("ramp", "hold", "storms", "left"),
    [
        (0.5, None, 0, 1.5 + 14 + 23),  # the rest of the ramp, and all of the hold with its storm
        (9.0, None, 0, 0.0 + 14 + 23),  # a ramp that takes longer than the plan says
        (2.0, 3.0, 0, 3.0 + 10 + 23),  # before the storm
        (0.0, None, 1, 10.0 + 23),  # the storm's claims
        (0.0, 6.0, 1, 6.0 + 23),  # after the storm
    ],
)
def test_what_is_left_of_a_stage_counts_with_the_stages_after_it(
    ramp: float, hold: float | None, storms: int, left: float
) -> None:
    schedule = Schedule(plan(faults=[STORM]))
    assert schedule.left(1, ramp=ramp, hold=hold, storms=storms) == Lasting(left, "about")


def test_a_fill_lasts_at_least_as_long_as_its_holds() -> None:
    spawn = {
        "name": "fill",
        "target": {"kind": "lxd", "credentials": "c.yaml"},
        "workload": {"kind": "spawn", "rate": 1},
        "stages": [{"instances": 2, "hold": "5s"}, {"instances": 4, "hold": "7s"}],
    }
    assert Schedule(validate_plan(spawn)).whole == Lasting(12.0, "at least")
    without = [{"instances": 2, "hold": "0s"}]
    assert Schedule(validate_plan({**spawn, "stages": without})).whole is None


@pytest.mark.parametrize(("within", "left"), [("2m", Lasting(90.0, "at most")), (None, None)])
def test_a_search_lasts_at_most_as_long_as_it_may(within: str | None, left: Lasting | None) -> None:
    find = {"load": "leases", "hold": "40s", **({"within": within} if within else {})}
    searching = {"name": "find", "find": find, "thresholds": [{"operation": "extend", "p99": "1s"}]}
    assert Schedule(validate_plan(searching)).left_of_search(30.0) == left
