"""Plans of the spawn workload on LXD: what their loads are, and every mistake in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.plan.read import load_plan, parse_plan
from tippingpoint.plan.spawn import SpawnPlan, SpawnStage, SpawnWorkload
from tippingpoint.targets.lxd.plan import LxdTarget

FILL = """
name: fill
target: {kind: lxd}
workload: {kind: spawn, concurrency: 4}
stages:
  - {groups: 2, instances: 5}
  - {groups: 4, instances: 5}
"""

counts = st.integers(0, 1000)
stages = st.lists(
    st.builds(
        SpawnStage,
        groups=counts,
        instances=counts,
        members=st.none() | st.integers(1, 100),
        hold=st.integers(0, 600).map(float),
    ),
    min_size=1,
    max_size=5,
)
paces = st.one_of(
    st.floats(0.1, 100).map(lambda rate: {"rate": round(rate, 3)}),
    st.integers(1, 100).map(lambda number: {"concurrency": number}),
    st.integers(1, 100).map(lambda number: {"batch": number}),
)
plans = st.builds(
    lambda listed, pace, retries, target: SpawnPlan(
        name="any", target=target, workload=SpawnWorkload(kind="spawn", retries=retries, **pace), stages=listed
    ),
    stages,
    paces,
    st.dictionaries(st.sampled_from(["locked", "quorum", "full"]), st.integers(0, 1000)),
    st.builds(LxdTarget, kind=st.just("lxd"), project=st.dictionaries(st.text("abc.", min_size=1), st.text("xyz1"))),
)  # fmt: skip


@given(plans)
def test_a_plan_survives_its_own_yaml(plan: SpawnPlan) -> None:
    assert parse_plan(plan.to_yaml()) == plan


def test_only_things_with_power_are_switched() -> None:
    with pytest.raises(UserError) as problem:
        fill("workload.until=switched")
    assert str(problem.value) == (
        "workload.until: switched: expected created, started, reachable or probed, for lxd"
    )


def fill(*overrides: str) -> SpawnPlan:
    plan = parse_plan(FILL, overrides)
    assert isinstance(plan, SpawnPlan)
    return plan


def test_loads_are_containers() -> None:
    plan = fill()
    assert plan.load_unit == "containers"
    assert plan.loads == [("ramp", 10), ("ramp", 20)]


def test_a_stage_with_fewer_containers_removes_and_has_the_load_before_it() -> None:
    plan = fill("stages=[{groups: 2, instances: 5}, {groups: 0, instances: 0}, {groups: 1, instances: 5}]")
    assert plan.loads == [("ramp", 10), ("destroy", 10), ("ramp", 5)]


def test_loads_are_members_where_only_these_differ() -> None:
    plan = fill("stages=[{groups: 2, instances: 5, members: 3}, {groups: 5, instances: 2, members: 10}]")
    assert plan.load_unit == "members"
    assert plan.loads == [("ramp", 3), ("ramp", 10)]


def test_settings_that_yaml_reads_as_numbers_are_texts_to_lxd() -> None:
    target = fill("target.project={limits.instances: 100, restricted: true}").target
    assert target.project == {"limits.instances": "100", "restricted": "true"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["workload.concurrency=-1"], r"workload\.concurrency: -1: expected at least 1"),
        (["workload.concurrency=null"], r"workload\.rate: none: expected one of rate, concurrency and batch"),
        (["workload.rate=3"], r"workload\.rate: rate 3, concurrency 4: expected one of rate, concurrency"),
        (["workload.until=rebooted"], r"workload\.until: rebooted: expected one of created, started"),
        (["workload.retries={trust: 3}"], r"workload\.retries\.trust: trust: expected one of locked"),
        (["workload.retries={locked: -3}"], r"workload\.retries\.locked: -3: expected at least 0"),
        (["workload.poll_every=0s"], r"workload\.poll_every: 0s: expected at least 100ms"),
        (["workload.agents=true"], r"workload\.agents: True: expected one of kind, until"),
        (["stages.0.instances=-5"], r"stages\.0\.instances: -5: expected at least 0"),
        (["stages.0.groups=-1"], r"stages\.0\.groups: -1: expected at least 0"),
        (["stages.0.members=0"], r"stages\.0\.members: 0: expected at least 1"),
        (["stages.0.units=3"], r"stages\.0\.units: 3: expected one of groups, instances"),
        (["target.remotee=x"], r"target\.remotee: x: .*did you mean remote\?"),
        (["target.remote=x", "target.socket=/y"], r"target\.socket: /y: expected only one of remote"),
        (["target.project={user.tippingpoint: x}"], r"target\.project\.user\.tippingpoint: .*: expected another"),
        (["target.projects=[a, b, a]"], r"target\.projects: a: expected each project once"),
        (["target.projects=[a]", "target.project={limits.cpu: 2}"], r"target\.project\.limits\.cpu: 2: expected no"),
        (["target.project={limits: {a: b}}"], r"target\.project\.limits: .*: expected a text, or a number in quotes"),
        (["thresholds=[{operation: lst, p99: 1s}]"], r"thresholds\.0\.operation: lst: .*did you mean list"),
        (["faults=[{do: drop-claims, stage: 1}]"], r"faults\.0\.do: drop-claims: expected kill, stop"),
        (["faults=[{do: heal, member: m1, undo_after: 1s}]"], r"faults\.0\.undo_after: given: expected only with kill"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_plan(FILL, overrides)
    assert "\n" not in str(refused.value)


def test_the_published_test_is_5000_containers_in_50_projects() -> None:
    plan = load_plan("lxd-cluster")
    assert isinstance(plan, SpawnPlan)
    assert plan.loads[-1] == ("ramp", 5000)
    assert (plan.stages[-1].groups, plan.workload.evict) == (50, True)
