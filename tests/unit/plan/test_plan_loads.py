"""Loads of every kind: what a stage or a search may say, what a plan counts its loads in, and how they are shared."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.plan.claim import ClaimPlan, Stage
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.read import Plan, parse_plan, validate_plan
from tippingpoint.plan.share import part_of, size_of
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.util.text import show_amount


def claim(*stages: dict[str, Any], **fields: Any) -> ClaimPlan:
    plan = validate_plan({"name": "t", "stages": [*stages], **fields})
    assert isinstance(plan, ClaimPlan)
    return plan


def searching(find: dict[str, Any], **fields: Any) -> ClaimPlan:
    return claim(find=find, thresholds=[{"operation": "claim", "p99": "1s"}], **fields)


def fill(*stages: dict[str, Any], find: dict[str, Any] | None = None, **workload: Any) -> SpawnPlan:
    thresholds = [{"operation": "launch", "p99": "1s"}]
    plan = validate_plan(
        {
            "name": "t",
            "target": {"kind": "lxd"},
            "workload": {"kind": "spawn", "until": "started", **workload},
            "stages": [*stages],
            **({"find": find, "thresholds": thresholds} if find is not None else {}),
        }
    )
    assert isinstance(plan, SpawnPlan)
    return plan


def model(*stages: dict[str, Any], find: dict[str, Any] | None = None) -> GrowPlan:
    thresholds = [{"operation": "add-unit", "p99": "1s"}]
    plan = validate_plan(
        {
            "name": "t",
            "target": {"kind": "juju"},
            "workload": {"kind": "grow"},
            "stages": [*stages],
            **({"find": find, "thresholds": thresholds} if find is not None else {}),
        }
    )
    assert isinstance(plan, GrowPlan)
    return plan


RATES = [{"instances": 10, "rate": 1}, {"instances": 20, "rate": 2.5}]


@pytest.mark.parametrize(
    ("plan", "unit", "loads"),
    [
        (claim({"leases": 5}, {"leases": 9}), "leases", [5, 9]),
        (claim({"renewals": 2}, {"renewals": 2.5}), "renewals/s", [2, 2.5]),
        (claim({"leases": 60, "renewals": 2}, {"leases": 60, "renewals": 5}), "renewals/s", [2, 5]),
        (claim({"leases": 60, "renewals": 2}, {"leases": 90, "renewals": 2}), "leases", [60, 90]),
        (claim({"claims": 3}, {"claims": 7}), "claims/s", [3, 7]),
        (claim({"leases": 9, "claims": 3}), "claims/s", [3]),
        (fill(*RATES), "containers/s", [1, 2.5]),
        (fill(*RATES, rate=9), "containers/s", [1, 2.5]),
        (fill(*RATES, cycle=True), "iterations/s", [1, 2.5]),
        (fill({"instances": 3}, {"instances": 4}, rate=2), "containers", [3, 4]),
        (
            fill({"instances": 3, "concurrency": 1}, {"instances": 6, "concurrency": 3}),
            "containers at a time",
            [1, 3],
        ),
        (
            fill({"instances": 3, "batch": 1}, {"instances": 3, "batch": 3}, cycle=True),
            "iterations a batch",
            [1, 3],
        ),
        (
            model({"applications": 1, "units": 4}, {"applications": 1, "units": 8, "batch": 4}),
            "units a call",
            [1, 4],
        ),
        (searching({"load": "renewals"}), "renewals/s", []),
        (searching({"load": "arrivals", "leases": 9}), "arrivals/s", []),
        (fill(find={"load": "rate"}), "containers/s", []),
        (model(find={}), "units", []),
    ],
)
def test_loads_are_counted_in_what_the_plan_varies(plan: Plan, unit: str, loads: list[float]) -> None:
    assert plan.load_unit == unit
    assert [load for _, load in plan.loads] == loads
    assert all(isinstance(load, int) == (load == int(load)) for _, load in plan.loads)


def test_one_of_each_unit_is_called_so() -> None:
    assert show_amount(1, "containers/s") == "1 container/s"
    assert show_amount(1, "iterations at a time") == "1 iteration at a time"
    assert show_amount(2.5, "renewals/s") == "2.5 renewals/s"


def test_renewals_are_made_by_as_many_leases_as_they_need_or_by_those_that_the_stage_names() -> None:
    assert (Stage(renewals=10).held(30), Stage(renewals=10).renewed_every(30)) == (300, 30)
    named = Stage(leases=60, renewals=10)
    assert (named.held(30), named.renewed_every(30)) == (60, 6)
    assert Stage(leases=60).renewed_every(30) == 30
    assert Stage(claims=10).held(30) == 0


def test_a_search_has_a_stage_for_each_load() -> None:
    assert searching({}).stage_at(7) == Stage(leases=7)
    assert searching({"load": "claims", "leases": 50, "hold": "9s"}).stage_at(2.5) == Stage(
        leases=50, claims=2.5, hold=9
    )
    arriving = searching({"load": "arrivals", "leases": 100}, workload={"units": 3})
    assert arriving.stage_at(60) == Stage(leases=100, over=5)  # 300 units come
    assert arriving.load_at(60) == 60
    rate = fill(find={"load": "rate", "hold": "10s", "groups": 2}).stage_at(1.5)
    assert (rate.rate, rate.groups, rate.size, rate.hold) == (1.5, 2, 16, 0)
    many = fill(find={"groups": 3}, concurrency=2)
    assert (many.stage_at(12).size, many.load_at(2)) == (12, 2)
    at_once = fill(find={"load": "concurrency", "instances": 40, "limit": 40}).stage_at(8)
    assert (at_once.concurrency, at_once.size) == (8, 40)
    batch = model(find={"load": "batch", "units": 60, "limit": 60}).stage_at(12)
    assert (batch.batch, batch.size) == (12, 60)


@given(leases=st.integers(1, 5000), load=st.floats(0.001, 1000))
def test_a_search_for_renewals_never_lets_leases_lapse(leases: int, load: float) -> None:
    plan = searching({"load": "renewals", "leases": 5000, "start": 100, "limit": 1000})
    stage = plan.model_copy(
        update={"find": plan.find.model_copy(update={"leases": leases}) if plan.find else None}
    ).stage_at(load)
    held = stage.held(plan.workload.renew_time)
    assert 1 <= held <= leases
    if held > 1:
        assert stage.renewed_every(plan.workload.renew_time) < plan.workload.claim_time


def test_a_step_after_the_last_stage_is_like_it() -> None:
    plan = claim({"leases": 60, "claims": 4}, {"leases": 60, "claims": 8, "hold": "7s"})
    assert plan.stage_at(2) == Stage(leases=60, claims=2, hold=7)
    assert plan.stage_at(0).held(30) == 0


def test_a_lower_load_of_things_is_shaped_like_a_listed_stage() -> None:
    plan = fill({"groups": 2, "instances": 3}, {"groups": 4, "instances": 5, "hold": "7s"}, rate=2)
    lower = plan.stage_at(15)
    assert (lower.groups, lower.size, lower.hold) == (4, 16, 7)
    assert plan.stage_at(6) == plan.stages[0]
    assert plan.stage_at(0).size == 0
    units = model({"applications": 2, "units": 4}, {"applications": 4, "units": 10, "relations": 3})
    assert [units.stage_at(load).amounts["units"] for load in (20, 8, 0)] == [20, 8, 0]
    assert units.stage_at(20).relations == 3


def test_a_lower_pace_makes_things_for_as_long_as_the_one_that_broke() -> None:
    plan = fill(*RATES)
    assert not plan.workload.cycle
    lower = plan.stage_at(1.25)
    assert (lower.rate, lower.size) == (1.25, 5)
    assert lower.on_top(plan.stages[-1]).size == 25
    cycle = fill(*RATES, cycle=True).stage_at(1.25)
    assert (cycle.rate, cycle.size) == (1.25, 10)
    at_once = fill({"instances": 3, "concurrency": 1}, {"instances": 9, "concurrency": 3})
    assert (at_once.stage_at(2).concurrency, at_once.stage_at(2).size) == (2, 6)
    batch = model({"applications": 2, "units": 4}, {"applications": 2, "units": 8, "batch": 4})
    assert (batch.stage_at(2).batch, batch.stage_at(2).on_top(batch.stages[-1]).units) == (2, 12)


@pytest.mark.parametrize(
    ("plan", "accumulates"),
    [
        (fill(*RATES), True),
        (fill(*RATES, cycle=True), False),
        (fill({"instances": 3}, {"instances": 4}, rate=2), False),
        (model(find={"load": "batch", "units": 60, "limit": 60}), True),
        (model(find={}), False),
        (claim({"claims": 3}, {"claims": 7}), False),
    ],
)
def test_things_of_a_pace_stay_unless_they_are_removed_at_once(plan: Plan, accumulates: bool) -> None:
    assert not isinstance(plan, CtsPlan)
    assert plan.accumulates == accumulates


LXD = "name: t\ntarget: {kind: lxd}\nthresholds: [{operation: launch, p99: 1s}]\n"
JUJU = "name: t\ntarget: {kind: juju}\nthresholds: [{operation: claim, p99: 1s}]\n"
GROW = "name: t\ntarget: {kind: juju}\nworkload: {kind: grow}\nthresholds: [{operation: add-unit, p99: 1s}]\n"
ETCD = "name: t\nthresholds: [{operation: claim, p99: 1s}]\n"


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (ETCD + "stages: [{hold: 5s}]", r"stages\.0\.leases: missing: expected at least 1, or renewals or claims"),
        (ETCD + "stages: [{leases: 0}]", r"stages\.0\.leases: 0: expected at least 1, or renewals or claims"),
        (ETCD + "stages: [{claims: 0}]", r"stages\.0\.claims: 0: expected more than 0"),
        (ETCD + "stages: [{claims: 2}, {leases: 2}]", r"stages\.1\.claims: None: expected in every stage, or in none"),
        (ETCD + "stages: [{leases: 600, renewals: 9}]", r"stages\.0\.renewals: 9: expected more than 10, or each of"),
        (ETCD + "stages: [{leases: 1, renewals: 999}]", r"stages\.0\.renewals: 999: expected at most 100, as each of"),
        (ETCD + "stages: [{renewals: 999999}]", r"stages\.0\.renewals: 999999: expected at most 333333, as no more"),
        (ETCD + "find: {start: 2.5}", r"find\.start: 2\.5: expected a whole number of leases"),
        (ETCD + "find: {load: claims, start: 9, limit: 2.5}", r"find\.limit: 2\.5: expected at least start \(9\)"),
        (ETCD + "find: {load: arrivals}", r"find\.leases: missing: expected how many come to be held at each rate"),
        (
            ETCD + "find: {load: arrivals, leases: 9, over: 3s}",
            r"find\.over: 3s: expected none, as find looks for how fast units arrive",
        ),
        (
            ETCD + "find: {load: arrivals, leases: 9}\nafter: recover",
            r"after: recover: expected a load that can go down; arrivals are over once all are there",
        ),
        (ETCD + "find: {leases: 9}", r"find\.leases: 9: expected none, as find looks for the number of leases"),
        (
            ETCD + "find: {load: containers}",
            r"find\.load: containers: expected one of leases, renewals, claims, arrivals",
        ),
        (JUJU + "stages: [{claims: 2}]", r"stages\.0\.claims: 2: expected leases or renewals, as juju has no call"),
        (JUJU + "find: {load: claims}", r"find\.load: claims: expected leases or renewals, as juju has no call"),
        (LXD + "workload: {kind: spawn}\nstages: [{instances: 1}]", r"workload\.rate: none: expected one of rate"),
        (LXD + "workload: {kind: spawn, concurrency: 2}\nstages: [{instances: 1, rate: 1}]",
         r"stages\.0\.rate: concurrency 2, rate 1: expected one of rate"),
        (LXD + "workload: {kind: spawn}\nstages: [{instances: 1, rate: 1}, {instances: 2, batch: 1}]",
         r"stages\.1\.batch: 1: expected rate, as before"),
        (LXD + "workload: {kind: spawn}\nstages: [{instances: 5, rate: 1}, {instances: 5, rate: 2}]",
         r"stages\.1\.instances: 5: expected another number than before, or workload\.cycle"),
        (LXD + "workload: {kind: spawn}\nfind: {}", r"workload\.rate: none: expected one of rate"),
        (LXD + "workload: {kind: spawn, batch: 2}\nfind: {load: rate}", r"workload\.rate: batch, find\.load rate: exp"),
        (LXD + "workload: {kind: spawn}\nfind: {load: batch}", r"find\.instances: missing: expected how many things"),
        (LXD + "workload: {kind: spawn}\nfind: {load: batch, instances: 9, limit: 10}",
         r"find\.instances: 9: expected at least 10, for limit 10"),
        (LXD + "workload: {kind: spawn}\nfind: {load: rate, instances: 9}", r"find\.instances: 9: expected none, as"),
        (GROW + "find: {load: batch}", r"find\.units: missing: expected how many units each batch makes"),
        (GROW + "find: {units: 3}", r"find\.units: 3: expected none, as find looks for the number"),
        ("name: t\nstages: [{leases: 2}]\nafter: recover", r"after: recover: expected thresholds, as it waits until"),
        (LXD + "workload: {kind: spawn, rate: 1}\nstages: [{instances: 2}]\nafter: recover",
         r"after: recover: expected a threshold on one of poll, .*, list, .*, as nothing is made while the"),
        (LXD + "workload: {kind: spawn, rate: 1}\nstages: [{instances: 2}, {instances: 1}]\nafter: recover",
         r"after: recover: expected a last stage that removes nothing"),
        (LXD + "workload: {kind: spawn, rate: 1}\nstages: [{instances: 2, hold: 0s}]\nafter: recover",
         r"after: recover: expected a last hold above 0s"),
        (LXD + "workload: {kind: spawn, rate: 1, cycle: true, until: started}\nstages: [{instances: 2}]\n"
         "after: recover", r"after: recover: expected loads of rate, concurrency or batch, as iterations leave"),
        (LXD + "workload: {kind: spawn, rate: 1}\nstages: [{instances: 2, members: 1}, {instances: 2, members: 2}]\n"
         "after: recover", r"after: recover: expected stages of other sizes, as a cluster keeps its members"),
        ("name: t\ntarget: {kind: lxd}\nthresholds: [{operation: delete, p99: 1s}]\nworkload: {kind: spawn}\n"
         "find: {load: rate}\nafter: recover", r"after: recover: expected a threshold on one of create, .*, as no"),
        (GROW + "find: {}\nafter: recover", r"after: recover: expected a threshold on one of status, full-status, as"),
        (GROW.replace("grow}", "grow, observe_every: 0s}") + "find: {}\nafter: recover",
         r"after: recover: expected workload\.observe_every above 0s, as nothing else"),
        ("name: t\ntarget: {kind: pacemaker}\nworkload: {kind: cts}\nfind: {}",
         r"find: given: expected stages, as tests of a cluster have no load to search"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(plan: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_plan(plan)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "plan",
    [
        claim({"leases": 60, "renewals": 2.5, "claims": 0.5}, {"leases": 7, "renewals": 4, "claims": 2}),
        searching({"load": "claims", "start": 2.5, "limit": 40}),
        fill(*RATES),
        fill(find={"load": "rate", "start": 0.5}),
        model(find={"load": "batch", "units": 60, "limit": 60}),
    ],
)
def test_a_printed_plan_parses_back_to_itself(plan: Plan) -> None:
    printed = plan.to_yaml()
    assert parse_plan(printed) == plan
    assert ".0\n" not in printed


@given(of=st.integers(1, 9), leases=st.integers(0, 50), rate=st.floats(0.9, 500))
def test_units_share_the_rates_of_a_stage(of: int, leases: int, rate: float) -> None:
    plan = claim({"leases": leases, "claims": rate})
    shares = [part_of(plan, index, of) for index in range(of)]
    assert sum(size_of(plan, part, 1) for part in shares) == pytest.approx(rate)
    assert sum(part.stages[0].held(30) for part in shares if isinstance(part, ClaimPlan)) == leases


@given(of=st.integers(1, 9), leases=st.integers(20, 50), rate=st.floats(1, 100))
def test_units_renew_their_leases_as_often_as_one_would(of: int, leases: int, rate: float) -> None:
    plan = claim({"leases": leases, "renewals": rate})
    shares = [part_of(plan, index, of) for index in range(of)]
    assert sum(size_of(plan, part, 1) for part in shares) == pytest.approx(rate)
    every = [part.stages[0].renewed_every(30) for part in shares if isinstance(part, ClaimPlan)]
    assert every == [pytest.approx(leases / rate)] * of


@pytest.mark.parametrize("of", [1, 2, 3])
def test_units_share_a_search_by_its_stages(of: int) -> None:
    things = fill(find={"load": "rate", "hold": "10s", "groups": 6})
    shares = [part_of(things.only(things.stage_at(3)), index, of) for index in range(of)]
    assert sum(part.stages[0].size for part in shares) == 30
    assert sum(part.stages[0].rate or 0 for part in shares) == pytest.approx(3)
    leases = searching({})
    assert sum(part_of(leases.only(leases.stage_at(50)), n, of).stages[0].held(30) for n in range(of)) == 50
    whole = model(find={"machines": 4, "applications": 3})
    assert sum(part_of(whole.only(whole.stage_at(30)), n, of).stages[0].size for n in range(of)) == 30


def test_a_closed_loop_is_shared_by_no_more_than_its_smallest_stage_allows() -> None:
    plan = fill(
        {"groups": 8, "instances": 1, "concurrency": 2}, {"groups": 8, "instances": 2, "concurrency": 6}
    )
    assert plan.shared_by == 2
    sizes = [[size_of(plan, part_of(plan, index, 4), stage) for index in range(4)] for stage in (1, 2)]
    assert sizes == [[1, 1, 0, 0], [3, 3, 0, 0]]
