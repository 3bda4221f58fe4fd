"""Plans of the store workload: loads, shares, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.plan.share import part_of
from tippingpoint.plan.store import StorePlan, StoreStage


def plan_of(**fields: Any) -> StorePlan:
    """A plan with these sections beside a target."""
    document: dict[str, Any] = {
        "name": "x",
        "target": {"kind": "etcd"},
        "workload": {"kind": "store", "mix": {"put": 1, "get": 3}},
        **fields,
    }
    plan = parse_plan(yaml.safe_dump(document))
    assert isinstance(plan, StorePlan)
    return plan


def stages(*stages: dict[str, Any], **workload: Any) -> StorePlan:
    fields = {"kind": "store", "mix": {"put": 1, "get": 3}, **workload}
    return plan_of(workload=fields, stages=[{"keys": 10, **stage} for stage in stages])


def find(**fields: Any) -> StorePlan:
    return plan_of(find={"keys": 10, **fields}, thresholds=[{"operation": "put", "p99": "50ms"}])


@pytest.mark.parametrize(
    ("listed", "load", "unit", "loads"),
    [
        ([{"operations": 100}, {"operations": 200}], "operations", "operations/s", [100, 200]),
        ([{"operations": 100}], "operations", "operations/s", [100]),
        ([{"watchers": 5}, {"watchers": 9}], "watchers", "watchers", [5, 9]),
        (
            [{"operations": 7, "watchers": 5}, {"operations": 7, "watchers": 9}],
            "watchers",
            "watchers",
            [5, 9],
        ),
        ([{"operations": 7, "keys": 1}, {"operations": 7, "keys": 2}], "keys", "keys", [1, 2]),
        (
            [{"operations": 7, "bytes": 10}, {"operations": 7, "bytes": 20}],
            "bytes",
            "bytes a value",
            [10, 20],
        ),
        ([{"expiring": 2}, {"expiring": 4}], "expiring", "expiring leases/s", [2, 4]),
    ],
)
def test_the_load_is_what_differs_between_stages(
    listed: list[dict[str, Any]], load: str, unit: str, loads: list[float]
) -> None:
    plan = stages(*listed)
    assert (plan.load, plan.load_unit) == (load, unit)
    assert [size for _, size in plan.loads] == loads


def test_a_search_varies_one_load_beside_the_others() -> None:
    plan = find(load="watchers", operations=50, start=10, limit=1000)
    assert plan.stage_at(40) == StoreStage(watchers=40, operations=50, keys=10, hold=30.0, over=5.0)
    assert plan.load_at(40.4) == 40


def test_shares_are_of_the_whole_mix() -> None:
    plan = stages({"operations": 1}, mix={"get": 3, "put": 1, "del": 0})
    assert plan.workload.shares() == {"put": 0.25, "get": 0.75}


def test_operations_are_those_of_the_mix_and_of_what_is_beside_it() -> None:
    assert stages({"operations": 1}).operations == ["put", "get"]
    assert stages({"operations": 1, "watchers": 1}).operations == ["put", "get", "watch", "watch-event"]
    assert stages({"expiring": 1}).operations == ["lease-grant", "expire"]


def test_units_share_rates_watchers_keys_and_prefixes() -> None:
    plan = stages({"operations": 30, "watchers": 7, "expiring": 3, "keys": 11}, prefixes=5)
    parts = [part_of(plan, index, 3) for index in range(3)]
    (first, *_), *_ = [part.stages for part in parts]
    assert (first.operations, first.expiring) == (10, 1)
    assert [part.stages[0].watchers for part in parts] == [3, 2, 2]
    assert [part.stages[0].keys for part in parts] == [4, 4, 3]
    assert [part.workload.prefixes for part in parts] == [2, 2, 1]


def test_more_units_than_prefixes_cannot_share_a_plan() -> None:
    with pytest.raises(UserError, match="at least 3"):
        part_of(stages({"operations": 1}, prefixes=2), 0, 3)


def test_a_plan_is_written_as_it_was_read() -> None:
    plan = stages(
        {"operations": 10, "watchers": 3, "bytes": 20}, mix={"txn": 1, "put-new": 2}, lease_ttl="5s"
    )
    assert parse_plan(plan.to_yaml()) == plan


@pytest.mark.parametrize(
    ("fields", "field", "accepted"),
    [
        ({"stages": [{"operations": 5}]}, "stages.0.keys", "at least 1, as the mix has put"),
        ({"stages": [{"keys": 5}]}, "stages.0.operations", "operations, watchers or expiring"),
        (
            {"stages": [{"expiring": 1}], "workload": {"kind": "store", "mix": {}}},
            "workload.mix",
            "at least one operation with a share above 0",
        ),
        (
            {"stages": [{"expiring": 1}], "workload": {"kind": "store", "mix": {"pat": 1}}},
            "workload.mix.pat",
            "put",
        ),
        (
            {"stages": [{"expiring": 1}], "workload": {"kind": "store", "lease_ttl": "1500ms"}},
            "workload.lease_ttl",
            "whole seconds, at least 1s",
        ),
        (
            {"stages": [{"expiring": 1}], "workload": {"kind": "store", "bytes": 100, "bytes_p99": 50}},
            "workload.bytes_p99",
            "at least bytes (100)",
        ),
        ({"stages": [{"expiring": 1}], "target": {"kind": "juju"}}, "target.kind", "etcd"),
        (
            {
                "find": {"load": "watchers", "watchers": 3, "operations": 1, "keys": 1},
                "thresholds": [{"operation": "put", "p99": "1s"}],
            },
            "find.watchers",
            "none, as find looks for it",
        ),
        (
            {"stages": [{"expiring": 1}], "thresholds": [{"operation": "watch-event", "p99": "1s"}]},
            "thresholds.0.operation",
            "one of lease-grant, expire",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(fields: dict[str, Any], field: str, accepted: str) -> None:
    with pytest.raises(UserError) as refused:
        plan_of(**fields)
    assert refused.value.field == field
    assert accepted in refused.value.accepted


def test_what_an_operator_does_needs_a_member_and_only_a_full_quota_is_undone() -> None:
    listed = {"stages": [{"expiring": 1, "hold": "9s"}]}
    fault = {"stage": 1, "at": "1s"}
    plan = plan_of(**listed, faults=[{**fault, "do": "fill-quota", "member": "m1", "undo_after": "2s"}])
    assert plan.faults[0].undo_after == 2.0
    with pytest.raises(UserError, match="a lab member's name for defrag"):
        plan_of(**listed, faults=[{**fault, "do": "defrag"}])
    with pytest.raises(UserError, match="undo_after"):
        plan_of(**listed, faults=[{**fault, "do": "compact", "member": "m1", "undo_after": "2s"}])
