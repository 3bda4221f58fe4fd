"""Plans: every mistake is one line with the field, the value and what would be accepted."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.durations import format_duration, parse_duration
from tippingpoint.errors import UserError
from tippingpoint.plan import (
    ClaimWorkload,
    EtcdTarget,
    Fault,
    Find,
    Plan,
    Stage,
    Threshold,
    load_plan,
    parse_plan,
    shipped_plans,
)

seconds = st.floats(0, 604800, allow_nan=False).map(lambda value: float(f"{value:.6g}"))
stages = st.builds(Stage, leases=st.integers(1, 10**7), hold=seconds, over=seconds)
thresholds = st.builds(
    Threshold,
    operation=st.sampled_from(["claim", "extend"]),
    p99=seconds,
    error_rate=st.none() | st.floats(0, 1),
    throughput=st.none() | st.floats(0.001, 1e6),
)
finds = st.integers(1, 1000).flatmap(
    lambda start: st.builds(
        Find, start=st.just(start), limit=st.integers(start, 10**7), hold=st.integers(2, 600).map(float)
    )
)
workloads = st.floats(1.5, 600).flatmap(
    lambda claim: st.builds(
        ClaimWorkload, units=st.integers(1, 1000), claim_time=st.just(claim), renew_time=st.floats(0.01, 1.4)
    )
)
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
faults = st.builds(
    Fault,
    do=st.just("kill"),
    member=st.text("m123", min_size=1, max_size=4),
    at=seconds,
    undo_after=st.none() | seconds,
)
targets = st.builds(EtcdTarget, api=st.sampled_from(["v2", "v3"]), ca=st.just(Path("/etc/ca.pem")))
plans = st.one_of(
    st.builds(Plan, name=names, description=st.text(), workload=workloads, thresholds=st.lists(thresholds, max_size=3),
              stages=st.lists(stages, min_size=1, max_size=5), faults=st.lists(faults, max_size=2)),
    st.builds(Plan, name=names, workload=workloads, thresholds=st.lists(thresholds, min_size=1, max_size=3),
              find=finds, target=targets),
)  # fmt: skip


@given(plans)
def test_a_printed_plan_parses_back_to_itself(plan: Plan) -> None:
    assert parse_plan(plan.to_yaml()) == plan


@given(plans)
def test_a_plan_survives_the_journey_to_a_worker(plan: Plan) -> None:
    assert Plan.model_validate_json(plan.model_dump_json()) == plan


@given(st.floats(0, 1e6, allow_nan=False))
def test_durations_print_and_parse_to_the_same_number(value: float) -> None:
    assert parse_duration(format_duration(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("250ms", 0.25), ("1m30s", 90), ("2h", 7200), ("1m31.99s", 91.99), ("10", 10), ("7us", 7e-6)],
)
def test_durations_people_write(text: str, value: float) -> None:
    assert parse_duration(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "abc", "1x", "1m 30", "s", "--3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration"):
        parse_duration(text)


OK = "name: x\nstages: [{leases: 10}]"


@pytest.mark.parametrize(
    ("plan", "overrides", "message"),
    [
        ("name: x\nstages: [{leases: many}]", [], r"stages\.0\.leases: many: expected a valid integer"),
        ("name: x\nstages: [{leasse: 10}]", [], r"stages\.0\.leasse: .*did you mean leases\?"),
        (OK + "\nworklaod: {}", [], r"worklaod: .*did you mean workload\?"),
        (OK, ["workload.renew_time=2m"], r"workload\.renew_time: 2m: expected less than claim_time \(1m\)"),
        ("name: x\nstages: []", [], r"stages: 0 listed: expected 1 to 1000 stages"),
        (f"name: x\nstages: [{', '.join(['{leases: 1}'] * 1001)}]", [], r"stages: .*1000"),
        ("name: x\nstages: [{leases: 100000000}]", [], r"stages\.0\.leases: 100000000: .*10000000"),
        ("name: x\nfind: {}", [], r"thresholds: none: expected at least one"),
        ("name: x\nfind: {hold: 5s}\nthresholds: [{operation: extend, p99: 1s}]", [],
         r"find\.hold: 5s: expected at least workload\.renew_time \(30s\)"),
        (OK, ["find={}"], r"stages: 1 listed: expected"),
        ("stages: [{leases: 10}]", [], "name: missing"),
        ("- 1", [], "plan: list: expected a mapping"),
        ("a: [", [], "plan: .*expected YAML"),
        (OK, ["stages.3.leases=1"], "--set: .*expected a position from 0 to 0"),
        (OK, ["nonsense"], "--set: nonsense: expected key=value"),
        (OK, ["faults=[{do: kill}]"], r"faults\.0\.member: .*expected a lab member's name"),
        (OK, ["thresholds=[{operation: extend}]"], r"thresholds\.0\.no limit: .*expected one of p50"),
        (OK, ["thresholds=[{operation: claim, p99: soon}]"], r"thresholds\.0\.p99: soon: expected a duration"),
        (OK, ["stages.0.hold=.nan"], r"stages\.0\.hold"),
        (OK, ["target.endpoints=[ftp://x]"], r"target\.endpoints\.0: ftp://x"),
        (OK, ["target.cert=/a"], "target.cert and key go together"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(plan: str, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_plan(plan, overrides)
    assert "\n" not in str(refused.value)


@given(st.text())
def test_any_text_is_a_plan_or_refused_in_one_line(text: str) -> None:
    said = ""
    try:
        parse_plan(text)
    except UserError as refused:
        said = str(refused)
    assert "\n" not in said


def test_overrides_reach_into_lists_and_mappings() -> None:
    plan = parse_plan(OK, ["stages.0.leases=50", "workload.renew_time=10s", "target.endpoints=[http://h:1]"])
    assert plan.stages[0].leases == 50
    assert plan.workload.renew_time == 10
    assert plan.target.endpoints == ["http://h:1"]


def test_shipped_plans_are_valid_and_match_the_schema() -> None:
    schema = json.loads(json.dumps(Plan.model_json_schema()))
    for name, text in shipped_plans().items():
        assert load_plan(name).name == name
        jsonschema.validate(yaml.safe_load(text), schema)


def test_an_unknown_plan_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean etcd-demo"):
        load_plan("etcd-dem")
