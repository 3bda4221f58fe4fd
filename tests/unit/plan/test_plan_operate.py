"""Plans of the operate workload: loads, shapes, shares, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.plan.operate import OperatePlan, OperateStage
from tippingpoint.plan.read import parse_plan
from tippingpoint.plan.share import part_of


def plan_of(**fields: Any) -> OperatePlan:
    """A plan with these sections beside a target."""
    document: dict[str, Any] = {
        "name": "x",
        "target": {"kind": "juju"},
        "workload": {"kind": "operate"},
        **fields,
    }
    plan = parse_plan(yaml.safe_dump(document))
    assert isinstance(plan, OperatePlan)
    return plan


def stages(*listed: dict[str, Any], **workload: Any) -> OperatePlan:
    return plan_of(workload={"kind": "operate", **workload}, stages=[*listed])


def find(**fields: Any) -> OperatePlan:
    return plan_of(find=fields, thresholds=[{"operation": "connect", "p99": "1s"}])


@pytest.mark.parametrize(
    ("listed", "load", "unit", "loads"),
    [
        ([{"models": 2}, {"models": 4}], "models", "models", [2, 4]),
        (
            [{"models": 2, "applications": 2}, {"models": 2, "applications": 3}],
            "applications",
            "applications a model",
            [2, 3],
        ),
        ([{"units": 2}, {"units": 3}], "units", "units an application", [2, 3]),
        ([{"operators": 2}, {"operators": 9}], "operators", "operators", [2, 9]),
        ([{"statuses": 0.5}, {"statuses": 2}], "statuses", "statuses/s", [0.5, 2]),
        ([{"logs": 10}, {"logs": 20}], "logs", "log lines/s", [10, 20]),
        ([{"models": 7}], "models", "models", [7]),
    ],
)
def test_the_load_is_what_differs_between_stages(
    listed: list[dict[str, Any]], load: str, unit: str, loads: list[float]
) -> None:
    """Given stages, when a plan is read, then its load is the first that differs, and models without any."""
    plan = stages(*listed)
    assert (plan.load, plan.load_unit) == (load, unit)
    assert [size for _, size in plan.loads] == loads


def test_the_goal_of_a_stage_is_the_units_of_all_models() -> None:
    """Given models of applications with units, when the goal is asked for, then it is the number of all units."""
    plan = stages({"models": 3, "applications": 4, "units": 5})
    assert plan.goal(plan.stages[0]) == (60, "units")
    assert plan.to_remove == 60


def test_relations_are_between_the_nearest_applications() -> None:
    """Given a number of relations, when a model gets its shape, then the nearest applications are related first."""
    shape = OperateStage(applications=4, relations=5).shape
    assert shape.relations == [[0, 1], [1, 2], [2, 3], [0, 2], [1, 3]]


def test_models_take_the_shapes_of_a_plan_in_turn() -> None:
    """Given two shapes and three models, when these are made, then the third is like the first."""
    plan = stages(
        {"models": 3}, shapes=[{"applications": [1, 2], "relations": [[1, 0]]}, {"applications": [4]}]
    )
    assert [shape.units for shape in plan.shapes_of(plan.stages[0])] == [3, 4, 3]
    assert plan.shapes_of(plan.stages[0])[0].pairs == {(0, 1)}
    assert plan.goal(plan.stages[0])[0] == 10


def test_what_is_timed_follows_from_what_is_done() -> None:
    """Given loads and a mix, when thresholds are read, then they may be about what is done, and about nothing else."""
    plan = stages(
        {"operators": 1, "changes": 1, "applications": 2, "relations": 1}, mix={"status": 1, "run": 2}
    )
    assert plan.operations == ["connect", "hook", "relation-change", "juju-status", "juju-run"]
    assert stages({"statuses": 1}, update_status="0s").operations == ["connect", "juju-status"]


def test_the_rate_of_a_stage_is_that_of_all_it_does() -> None:
    """Given hooks, rates and operators, when the rate is asked for, then it is their sum."""
    plan = stages({"models": 10, "units": 6, "operators": 4, "statuses": 3}, think="2s", update_status="60s")
    assert plan.rate_of(plan.stages[0]) == pytest.approx(1 + 3 + 2)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"stages": [{"applications": 2, "relations": 2}]}, "relations: 2: expected at most 1"),
        ({"stages": [{"applications": 100, "units": 11}]}, "units: 11: expected at most 10"),
        ({"stages": [{"changes": 1}]}, "stages.0.relations: 0: expected at least 1, for changes"),
        ({"stages": [{"secrets": 1}]}, "stages.0.relations: 0: expected at least 1, for secrets"),
        (
            {"workload": {"kind": "operate", "shapes": [{"applications": [1]}]}, "stages": [{"units": 2}]},
            "stages.0.units: 2: expected none, as workload.shapes says it",
        ),
        (
            {"workload": {"kind": "operate", "shapes": [{"applications": [1, 1], "relations": [[0, 2]]}]}},
            "relations.0: [0, 2]: expected two different places below 2",
        ),
        ({"workload": {"kind": "operate", "mix": {"status": 0}}}, "expected at least one command"),
        ({"workload": {"kind": "operate", "think": "0s"}}, "think: 0s: expected at least 10ms"),
        (
            {"find": {"load": "models", "models": 2}, "thresholds": [{"operation": "connect", "p99": "1s"}]},
            "models: 2: expected none, as find looks for it",
        ),
        (
            {
                "find": {"load": "relations", "start": 1, "limit": 4, "applications": 3},
                "thresholds": [{"operation": "connect", "p99": "1s"}],
            },
            "relations: 4: expected at most 3",
        ),
        ({"stages": [{}], "target": {"kind": "juju", "model": "m"}}, "target.model: m: expected none"),
        (
            {"stages": [{}], "thresholds": [{"operation": "juju-status", "p99": "1s"}]},
            "thresholds.0.operation: juju-status: expected one of connect, hook",
        ),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], refusal: str) -> None:
    """Given a plan that cannot be carried out, when it is read, then one line says which field, and what it may be."""
    with pytest.raises(UserError) as refused:
        plan_of(**fields)
    assert refusal in str(refused.value)


@given(
    models=st.integers(1, 50),
    operators=st.integers(0, 30),
    of=st.integers(1, 6),
)
def test_parts_add_up_to_the_whole(models: int, operators: int, of: int) -> None:
    """Given a number of units of the generator, when they share a plan, then their parts are the whole."""
    plan = stages({"models": models, "operators": operators, "statuses": 3.0})
    if of > models:
        with pytest.raises(UserError, match="at least"):
            part_of(plan, 0, of)
        return
    parts = [part_of(plan, index, of).stages[0] for index in range(of)]
    assert all(isinstance(part, OperateStage) for part in parts)
    assert sum(part.models for part in parts if isinstance(part, OperateStage)) == models
    assert sum(part.operators for part in parts if isinstance(part, OperateStage)) == operators
    rates = [part.statuses or 0.0 for part in parts if isinstance(part, OperateStage)]
    assert sum(rates) == pytest.approx(3.0)


def test_parts_keep_the_shapes_of_their_models() -> None:
    """Given shapes, when two units share four models, then each has the shapes of its own models."""
    plan = stages({"models": 4}, shapes=[{"applications": [1]}, {"applications": [2]}, {"applications": [3]}])
    whole = [shape.units for shape in plan.shapes_of(plan.stages[0])]
    for index in range(2):
        part = part_of(plan, index, 2)
        assert isinstance(part, OperatePlan)
        assert [shape.units for shape in part.shapes_of(part.stages[0])] == whole[index::2]


def test_a_search_varies_one_load_beside_the_others() -> None:
    """Given a search over models, when a load is tried, then the stage has as many models and the rest as given."""
    plan = find(load="models", start=2, limit=40, applications=3, units=2, statuses=0.5)
    stage = plan.stage_at(7.4)
    assert (stage.models, stage.applications, stage.units, stage.statuses) == (7, 3, 2, 0.5)
    assert plan.load_at(7.4) == 7
