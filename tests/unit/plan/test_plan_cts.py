"""Plans of a cluster's own tests."""

from __future__ import annotations

import pytest

from tippingpoint.errors import UserError
from tippingpoint.plan.cts import SEED_TESTS, CtsPlan
from tippingpoint.plan.read import load_plan, parse_plan
from tippingpoint.plan.share import part_of

MINIMAL = "name: n\ntarget: {kind: pacemaker}\nworkload: {kind: cts}\n"


def plan_of(text: str) -> CtsPlan:
    plan = parse_plan(text)
    assert isinstance(plan, CtsPlan)
    return plan


def test_a_plan_that_names_no_tests_has_those_of_the_suite_once_on_the_cluster_as_it_is() -> None:
    plan = plan_of(MINIMAL)
    assert tuple(plan.workload.tests) == SEED_TESTS
    assert (plan.load_unit, plan.loads) == ("tests", [("ramp", 14)])


def test_stages_with_nodes_are_counted_in_nodes_and_need_a_lab() -> None:
    plan = plan_of(MINIMAL + "stages: [{nodes: 2}, {nodes: 16}]\n")
    assert (plan.load_unit, plan.loads) == ("nodes", [("ramp", 2), ("ramp", 16)])
    assert "nodes" in plan.lab_for


def test_tests_that_change_the_configuration_only_need_no_lab() -> None:
    assert plan_of(MINIMAL.replace("cts}", "cts, tests: [StandbyNodes, Reattach]}")).lab_for == ""
    assert plan_of(MINIMAL.replace("cts}", "cts, tests: [StandbyNodes, Flip, Flip]}")).lab_for == "Flip"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (MINIMAL.replace("cts}", "cts, tests: [Flop]}"), "Flop"),
        (MINIMAL.replace("cts}", "cts, timeout: 10ms}"), "timeout: 10ms: expected at least 1s"),
        (MINIMAL.replace("cts}", "cts, timeout: 10s, idle: 1m}"), "idle: 1m: expected more than 0s"),
        (MINIMAL + "stages: [{nodes: 2}, {hold: 1s}]\n", "stages.1.nodes: None: expected in every stage"),
        (MINIMAL + "thresholds: [{operation: extend, p99: 1s}]\n", "operation: extend: expected one of test"),
        (MINIMAL.replace("pacemaker", "etcd"), "pacemaker"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_plan(text)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_stage_waits_for_a_test_that_fails_and_for_both_ways_to_repair_the_cluster() -> None:
    # given tests of 90 s, the repair of a cluster after one of them, and the kill of all nodes after a failed repair
    plan = plan_of(MINIMAL.replace("cts}", "cts, timeout: 90s, idle: 40s}"))
    begin, test, repair, kill = 4 * [90]
    # then the next test is still waited for
    assert plan.patience > begin + test + repair + kill


def test_the_tests_of_a_plan_cannot_be_shared_among_units() -> None:
    with pytest.raises(UserError, match=r"workload\.kind: cts: expected one unit"):
        part_of(plan_of(MINIMAL), 0, 2)


@pytest.mark.parametrize("name", ["pacemaker-cts", "pacemaker-cts-small", "pacemaker-nodes"])
def test_shipped_plans_come_back_as_they_are(name: str) -> None:
    plan = load_plan(name)
    assert parse_plan(plan.to_yaml()) == plan
