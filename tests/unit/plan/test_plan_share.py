"""How a plan is divided among the units that run it together: evenly, and nothing is lost or done twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.grow import GrowPlan, GrowStage
from tippingpoint.plan.read import Plan, load_plan, validate_plan
from tippingpoint.plan.share import part_of, probe_part, size_of
from tippingpoint.plan.shipped import shipped_plans
from tippingpoint.plan.spawn import SpawnPlan


def parts(plan: Plan, of: int) -> list[Plan]:
    return [part_of(plan, index, of) for index in range(of)]


def claim(*leases: int, over: float = 5.0) -> Plan:
    return validate_plan({"name": "t", "stages": [{"leases": count, "over": over} for count in leases]})


def fill(stages: list[tuple[int, int]], **pace: Any) -> Plan:
    return validate_plan(
        {
            "name": "t",
            "target": {"kind": "lxd"},
            "workload": {"kind": "spawn", **(pace or {"concurrency": 64})},
            "stages": [{"groups": groups, "instances": instances} for groups, instances in stages],
        }
    )


def model(*stages: dict[str, int], **workload: Any) -> Plan:
    return validate_plan(
        {
            "name": "t",
            "target": {"kind": "juju"},
            "workload": {"kind": "grow", **workload},
            "stages": list(stages),
        }
    )


def refusal(plan: Plan, index: int, of: int) -> str:
    try:
        part_of(plan, index, of)
    except UserError as refused:
        return str(refused)
    return ""


def spread(counts: list[int]) -> int:
    return max(counts) - min(counts)


def test_100_units_share_16000_leases_evenly() -> None:
    shares = parts(load_plan("juju-leases"), 100)
    assert {share.loads[-1] for share in shares} == {("ramp", 160)}


@pytest.mark.parametrize("name", sorted(shipped_plans()))
def test_one_unit_alone_has_the_plan_itself(name: str) -> None:
    plan = load_plan(name)
    assert part_of(plan, 0, 1) == plan


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=5), st.integers(1, 200))
def test_every_lease_is_one_units_and_none_has_two_more_than_another(leases: list[int], of: int) -> None:
    plan = claim(*leases)
    shares = parts(plan, of)
    for stage, count in enumerate(leases, start=1):
        sizes = [size_of(plan, share, stage) for share in shares]
        assert sum(sizes) == count
        assert spread(sizes) <= 1


@given(st.integers(1, 5000), st.integers(1, 60), st.integers(1, 60))
def test_a_share_never_grows_when_units_join(leases: int, of: int, joining: int) -> None:
    plan = claim(leases)
    for index in range(of):
        before, after = (part_of(plan, index, units).loads[0][1] for units in (of, of + joining))
        assert after <= before


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=5),
    st.integers(1, 30),
    st.integers(1, 100),
)
def test_a_fill_is_divided_with_its_limit(stages: list[tuple[int, int]], of: int, limit: int) -> None:
    plan = fill(stages, concurrency=limit)
    shares = [share for share in parts(plan, of) if isinstance(share, SpawnPlan)]
    for stage in range(1, len(stages) + 1):
        assert sum(size_of(plan, share, stage) for share in shares) == plan.loads[stage - 1][1]
    having = [share for share in shares if any(stage.size for stage in share.stages)]
    assert sum(share.workload.concurrency or 0 for share in having) <= limit
    # what is divided is groups, or else the things of each group
    for asked, *divided in zip(stages, *(share.stages for share in shares), strict=True):
        groups, instances = (
            [getattr(each, name) for each in divided[:limit]] for name in ("groups", "instances")
        )
        assert spread(groups) <= 1
        assert spread(instances) <= 1
        assert not asked[0] * asked[1] or spread(groups) == 0 or spread(instances) == 0


def test_fewer_groups_than_units_are_divided_by_what_is_in_them() -> None:
    plan = fill([(1, 10), (4, 10)])
    assert [share.loads for share in parts(plan, 2)] == [[("ramp", 5), ("ramp", 20)]] * 2


def test_a_limit_of_fewer_than_there_are_units_leaves_the_last_ones_without_load() -> None:
    plan = fill([(3, 7)], batch=2)
    shares = parts(plan, 3)
    assert [share.workload.batch for share in shares if isinstance(share, SpawnPlan)] == [1, 1, 1]
    assert [share.loads[0][1] for share in shares] == [14, 7, 0]


def test_a_rate_is_divided_and_its_turns_do_not_fall_together() -> None:
    plan = fill([(4, 10)], rate=8)
    shares = parts(plan, 4)
    assert [share.workload.rate for share in shares if isinstance(share, SpawnPlan)] == [2.0] * 4
    assert [plan.begins_after(1, index) for index in range(4)] == [0, 0.125, 0.25, 0.375]


@given(st.integers(1, 300), st.integers(1, 40))
def test_claims_of_all_units_are_spread_as_those_of_one(leases: int, of: int) -> None:
    plan = claim(leases, over=6.0)
    moments: list[float] = []
    for index in range(of):
        own = part_of(plan, index, of).loads[0][1]
        begin = plan.begins_after(1, index)
        moments += [begin + number * 6.0 * of / leases for number in range(own)]
    assert sorted(moments) == pytest.approx([number * 6.0 / leases for number in range(leases)])


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "machines": st.integers(0, 40),
                "applications": st.integers(0, 30),
                "units": st.integers(0, 20),
                "relations": st.integers(0, 40),
            }
        ).filter(
            lambda stage: (
                (stage["machines"] or not stage["applications"] * stage["units"])
                and stage["relations"] <= stage["applications"] * (stage["applications"] - 1) // 2
            )
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(2, 12),
)
def test_a_models_growth_is_divided_or_refused_by_all_alike(stages: list[dict[str, int]], of: int) -> None:
    plan = model(*stages)
    assert isinstance(plan, GrowPlan)
    refused = {refusal(plan, index, of) for index in range(of)}
    assert len(refused) == 1
    if refused != {""}:
        return
    shares = parts(plan, of)
    for stage in range(1, len(stages) + 1):
        assert sum(size_of(plan, share, stage) for share in shares) == plan.loads[stage - 1][1]
    for share in shares:
        # a part is a plan of its own, as its workers check none
        assert validate_plan(share.model_dump(mode="json", exclude_none=True)) == share
        if any(size_of(plan, share, stage) for stage in range(1, len(stages) + 1)):
            assert share.load_unit == plan.load_unit


def test_a_models_stage_with_fewer_machines_than_units_is_refused() -> None:
    plan = model({"machines": 3, "applications": 8, "units": 2})
    with pytest.raises(UserError, match=r"^stages\.0\.machines: 3: expected at least 4, one for each unit"):
        part_of(plan, 1, 4)


def test_more_relations_than_the_parts_applications_can_have_are_refused() -> None:
    plan = model(
        {"machines": 4, "applications": 8, "units": 1},
        {"machines": 4, "applications": 8, "units": 1, "relations": 28},
    )
    with pytest.raises(UserError, match=r"^stages\.1\.relations: 28: expected fewer, or fewer units"):
        part_of(plan, 0, 2)


def test_units_share_the_loads_of_a_search() -> None:
    plan = load_plan("etcd-find")
    assert isinstance(plan, ClaimPlan)
    assert [probe_part(plan, 7, index, 3)[1] for index in range(3)] == [3, 2, 2]


def test_what_users_ask_for_is_asked_by_one_unit() -> None:
    shares = parts(fill([(4, 10)], rate=8), 3)
    assert [share.workload.observe_every for share in shares if not isinstance(share, ClaimPlan)] == [
        10,
        0,
        0,
    ]


def test_a_model_without_its_load_keeps_its_machines_on_all_units() -> None:
    # given a model of eight units that two units of a generator share, each with two machines
    fields = {"applications": 2, "units": 4, "machines": 4, "hold": "1s"}
    plan = validate_plan(
        {"name": "t", "target": {"kind": "juju"}, "workload": {"kind": "grow"}, "stages": [fields]}
    )
    assert isinstance(plan, GrowPlan)
    for index in range(2):
        # when the load goes down to none
        for load, units in ((8, 4), (4, 2), (0, 0)):
            asked, size, _ = probe_part(plan, load, index, 2)
            # then each has its share of units, and its machines stay
            assert isinstance(asked, GrowStage)
            assert (asked.machines, asked.size, size) == (2, units, units)


def test_how_many_units_a_call_adds_is_not_divided() -> None:
    (share, _) = parts(model({"machines": 2, "applications": 2, "units": 2}, batch=63, concurrency=10), 2)
    assert isinstance(share, GrowPlan)
    assert (share.workload.batch, share.workload.concurrency) == (63, 5)
