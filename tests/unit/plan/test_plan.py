"""Plans: every mistake is one line with the field, the value and what would be accepted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.plan.base import Fault, Threshold
from tippingpoint.plan.claim import ClaimFind, ClaimPlan, ClaimWorkload, Stage
from tippingpoint.plan.grow import GROW_OPERATIONS, GrowPlan, GrowStage, GrowWorkload
from tippingpoint.plan.read import Plan, load_plan, parse_plan, plan_schema, validate_plan
from tippingpoint.plan.shipped import shipped_plans
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.juju.plan import JujuTarget
from tippingpoint.util.durations import format_duration, parse_duration

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
        ClaimFind, start=st.just(start), limit=st.integers(start, 10**7), hold=st.integers(2, 600).map(float)
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
juju_names = st.none() | st.text(min_size=1, max_size=8)
juju_targets = st.one_of(
    st.builds(JujuTarget, kind=st.just("juju"), controller=juju_names, model=juju_names),
    st.builds(JujuTarget, kind=st.just("juju"), credentials=st.just(Path("/etc/me.yaml")), model=juju_names),
)
agent_targets = st.builds(
    JujuTarget, kind=st.just("juju"), identity=st.just("agent"), agent=st.just(Path("/var/lib/agent.conf"))
)
juju_workloads = st.floats(5, 300).flatmap(
    lambda claim: st.builds(ClaimWorkload, claim_time=st.just(claim), renew_time=st.floats(0.01, 4.9))
)
spawn_stages = st.integers(0, 60).flatmap(
    lambda applications: st.builds(
        GrowStage, machines=st.integers(1, 10**6), applications=st.just(applications),
        units=st.integers(0, 10**6), relations=st.integers(0, applications * (applications - 1) // 2),
        hold=seconds, over=seconds,
    )
)  # fmt: skip
spawn_workloads = st.builds(
    GrowWorkload,
    kind=st.just("grow"),
    batch=st.integers(1, 10_000),
    concurrency=st.none() | st.integers(1, 10_000),
    agents=st.booleans(),
    observe_every=seconds,
    timeout=st.floats(0.01, 604800),
)
spawn_thresholds = st.builds(Threshold, operation=st.sampled_from(GROW_OPERATIONS), p50=seconds)
plans = st.one_of(
    st.builds(ClaimPlan, name=names, workload=juju_workloads, target=juju_targets | agent_targets,
              stages=st.lists(stages, min_size=1, max_size=3)),
    st.builds(GrowPlan, name=names, workload=spawn_workloads, target=juju_targets,
              stages=st.lists(spawn_stages, min_size=1, max_size=3), thresholds=st.lists(spawn_thresholds, max_size=3)),
    st.builds(ClaimPlan, name=names, description=st.text(), workload=workloads,
              thresholds=st.lists(thresholds, max_size=3),
              stages=st.lists(stages, min_size=1, max_size=5), faults=st.lists(faults, max_size=2)),
    st.builds(ClaimPlan, name=names, workload=workloads, thresholds=st.lists(thresholds, min_size=1, max_size=3),
              find=finds, target=targets),
)  # fmt: skip


@given(plans)
@example(ClaimPlan(name="0e0", stages=[Stage(leases=1)]))
def test_a_printed_plan_parses_back_to_itself(plan: Plan) -> None:
    assert parse_plan(plan.to_yaml()) == plan


@given(plans)
def test_a_plan_survives_the_journey_to_a_worker(plan: Plan) -> None:
    assert validate_plan(json.loads(plan.model_dump_json())) == plan


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
JUJU = "name: x\ntarget: {kind: juju}\nstages: [{leases: 10}]"
SPAWN = "name: x\ntarget: {kind: juju}\nworkload: {kind: grow}\nstages: [{applications: 1}]"


@pytest.mark.parametrize(
    ("plan", "overrides", "message"),
    [
        ("name: x\nstages: [{leases: many}]", [], r"stages\.0\.leases: many: expected a whole number$"),
        ("name: x\nstages: [{leasse: 10}]", [], r"stages\.0\.leasse: .*did you mean leases\?"),
        (OK + "\nworklaod: {}", [], r"worklaod: .*did you mean workload\?"),
        (OK, ["workload.renew_time=2m"], r"workload\.renew_time: 2m: expected less than claim_time \(1m\)"),
        ("name: x\nstages: []", [], r"stages: none: expected 1 to 1000 stages"),
        (f"name: x\nstages: [{', '.join(['{leases: 1}'] * 1001)}]", [], r"stages: .*1000"),
        ("name: x\nstages: [{leases: 100000000}]", [], r"stages\.0\.leases: 100000000: .*10000000"),
        ("name: x\nfind: {}", [], r"thresholds: none: expected at least one"),
        ("name: x\nfind: {hold: 5s}\nthresholds: [{operation: extend, p99: 1s}]", [],
         r"find\.hold: 5s: expected at least workload\.renew_time \(30s\)"),
        (OK, ["find={}"], r"find: given beside stages: expected"),
        ("stages: [{leases: 10}]", [], "name: missing"),
        ("- 1", [], "plan: a list: expected a mapping"),
        ("", [], "plan: empty: expected a mapping"),
        ("text", [], "plan: a single value: expected a mapping"),
        ("a: [", [], "plan: .*expected a plan in YAML"),
        (OK, ["stages.3.leases=1"], "--set: .*expected a position from 0 to 0"),
        (OK, ["nonsense"], "--set: nonsense: expected key=value"),
        (OK, ["faults=[{do: kill}]"], r"faults\.0\.member: .*expected a lab member's name"),
        (OK, ["thresholds=[{operation: extend}]"], r"thresholds\.0\.no limit: .*expected one of p50"),
        (OK, ["thresholds=[{operation: claim, p99: soon}]"], r"thresholds\.0\.p99: soon: expected a duration"),
        (OK, ["stages.0.leases=2.5"], r"stages\.0\.leases: 2\.5: expected a whole number$"),
        (OK, ["workers=0"], r"workers: 0: expected at least 1$"),
        (OK, ["workers=two"], r"workers: two: expected a whole number$"),
        (OK, ["name=3"], r"name: 3: expected a text, or a number in quotes$"),
        (OK, ["stages=5"], r"stages: 5: expected a list, such as \[a, b\]$"),
        (OK, ["faults.0.do=kill"], r"faults: \{'0': \{'do': 'kill'\}\}: expected a list, such as \[a, b\]$"),
        (OK, ["after=recovr"], r"after: recovr: expected recover \(did you mean recover\?\)$"),
        (OK, ["thresholds=[{operation: claim, p99: 1s, abort: perhaps}]"],
         r"thresholds\.0\.abort: perhaps: expected true or false$"),
        (OK, ["thresholds=[{operation: claim, error_rate: 5%}]"], r"thresholds\.0\.error_rate: 5%: expected a number$"),
        (OK, ["thresholds=[{operation: claim, error_rate: 2}]"], r"thresholds\.0\.error_rate: 2: expected at most 1$"),
        (OK, ["thresholds=[{operation: renew, lost_rate: 0}]"],
         r"thresholds\.0\.operation: renew: expected one of claim, extend$"),
        (OK, ["thresholds=[{operation: claim, lost_rate: 0}]"],
         r"thresholds\.0\.lost_rate: 0\.0: expected only with operation extend$"),
        (OK, ["target.kind=lxd"], r"target\.kind: lxd: expected one of etcd, juju, pacemaker, for claim$"),
        (OK + "\nworkload: {units: 2}", ["workload.kind=spawn", "target.kind=lxd"],
         r"workload\.units: 2: expected one of kind, until, .*, memory, for spawn"),
        (OK, ["target.cloud=a"], r"target\.cloud: a: expected one of kind, endpoints, .*, for etcd"),
        (OK, ["thresholds=[{p99: 1s}]"], r"thresholds\.0\.operation: missing: expected either an operation or "),
        (OK, ["thresholds=[{operation: claim, figure: etcd-cpu, at_most: 2}]"], r"thresholds\.0\.operation: claim: "),
        (OK, ["thresholds=[{figure: etcd-cpu}]"], r"thresholds\.0\.at_most: missing: expected the most that"),
        (OK, ["thresholds=[{figure: etcd-cpu, at_most: 2, max: 1s}]"], r"thresholds\.0\.max: 1.0: expected only with"),
        (OK, ["thresholds=[{figure: etcd-cpu, at_most: much}]"], r"thresholds\.0\.at_most: much: expected a number"),
        (OK, ["thresholds=[{figure: etcd-cpu, at_most: 0}]"], r"thresholds\.0\.at_most: 0: expected a number above 0"),
        (OK, ["thresholds=[{operation: claim, role: leader, p99: 1s}]"], r"thresholds\.0\.role: leader: .*only with"),
        (OK, ["after=recover", "thresholds=[{figure: etcd-cpu, at_most: 2}]"], r"after: recover: .*operations only"),
        (OK, ["stages.0.hold=.nan"], r"stages\.0\.hold"),
        (OK, ["stages.²=2"], "--set: .*expected a position from 0 to 0"),
        (OK, ["stages." + "0" * 5000 + "=2"], "--set: .*expected a position from 0 to 0"),
        ("name: x\nstages: []", ["stages.0.leases=1"], "--set: .*the list has no position 0: it is empty"),
        (OK + "\ndescription: 2001-99-99", [], "plan: month must be in .*: expected a plan in YAML"),
        (OK, ["description=2001-99-99"], "--set: description=2001-99-99: expected a value in YAML"),
        (OK + "\ndescription: !!timestamp x", [], "plan: .*expected a plan in YAML"),
        (OK + "\ndescription: !!bool x", [], "plan: .*expected a plan in YAML"),
        (OK + "\ndescription: 0x" + "f" * 9999, [], "description: a number too long to show: "),
        (OK + '\n"two\\nlines": 1', [], "two lines: 1: expected one of"),
        ("[" * 100_000, [], "plan: nested too deeply: "),
        ("#" * 131_073, [], "plan: 131073 characters, more than 131072: "),
        (OK, ["target.endpoints=[ftp://x]"], r"target\.endpoints\.0: ftp://x: expected http\(s\)://host:port"),
        (OK, ["target.endpoints=[http://x:1/v2]"], r"target\.endpoints\.0: "),
        (OK, ["target.endpoints=[http://x:65536]"], r"target\.endpoints\.0: "),
        (OK, ["target.endpoints=[http://bücher:2379]"], r"target\.endpoints\.0: http://bücher:2379: "),
        (OK, ["faults=[{do: kill-daemon, member: n}]"], r"faults\.0\.daemon: None: expected the name of a daemon"),
        (OK, ["faults=[{do: kill, member: n, daemon: d}]"], r"faults\.0\.daemon: 'd': expected none for kill"),
        (OK, ["faults=[{do: drop-claims}]"], r"faults\.0\.stage: missing: expected .*drop-claims"),
        (OK, ["faults=[{do: drop-claims, stage: 2}]"], r"faults\.0\.stage: 2: expected one of the 1 listed"),
        (OK, ["faults=[{do: kill, member: m1, stage: 1, at: 30s}]"],
         r"faults\.0\.at: 30s: expected less than the hold of stage 1 \(30s\)"),
        ("name: x\nfind: {}\nthresholds: [{operation: claim, p99: 1s}]",
         ["faults=[{do: drop-claims, stage: 1}]"], r"faults\.0\.stage: 1: expected none, as find lists no stages"),
        (OK, ["target.cert=/a"], "target.cert and key go together"),
        (OK, ["target.kind=jujuu"], r"target\.kind: jujuu: expected one of etcd, juju"),
        (OK, ["target=5"], r"target: 5: expected a mapping"),
        (OK, ["target.controller=a"], r"target\.controller: a: expected one of kind, endpoints"),
        (JUJU, ["target.controler=a"], r"target\.controler: a: .*did you mean controller\?"),
        (JUJU, ["target.endpoints=[http://x:1]"], r"target\.endpoints: .*expected one of kind, controller"),
        (JUJU, ["target.model=''"], r"target\.model: : expected at least 1 character"),
        (JUJU, ["target.controller=a", "target.credentials=/b"], r"target\.credentials: /b: .*not both"),
        (JUJU, ["target.identity=agent"], r"target\.agent: missing: expected an agent\.conf"),
        (JUJU, ["workload.claim_time=4s", "workload.renew_time=1s"], r"workload\.claim_time: 4s: expected 5s to 5m"),
        (JUJU, ["workload.batch=3"], r"workload\.batch: 3: expected one of kind, units"),
        (SPAWN, ["workload.kind=spwan"], r"workload\.kind: spwan: expected one of claim, spawn"),
        (SPAWN, ["workload=spawn"], r"workload: spawn: expected a mapping"),
        (SPAWN, ["workload.batchs=3"], r"workload\.batchs: 3: .*did you mean batch\?"),
        (SPAWN, ["target.kind=etcd"], r"target\.kind: etcd: expected one of juju, for grow"),
        (SPAWN, ["target=x"], r"target: x: expected a mapping"),
        (SPAWN, ["target.identity=agent", "target.agent=/x"], r"target\.identity: agent: expected hollow"),
        (SPAWN, ["stages.0.leases=1"], r"stages\.0\.leases: 1: expected one of machines, applications"),
        (SPAWN, ["stages.0.aplications=1"], r"stages\.0\.aplications: 1: .*did you mean applications\?"),
        (SPAWN, ["stages.0.machines=0"], r"stages\.0\.machines: 0: expected at least 1"),
        (SPAWN, ["stages.0.relations=1"], r"stages\.0\.relations: 1: expected at most 0"),
        (SPAWN, ["stages=[]"], r"stages: none: expected 1 to 1000 stages, or find"),
        (SPAWN, ["find={}"], r"find: given beside stages: expected either stages or find"),
        (SPAWN, ["thresholds=[{operation: claim, p99: 1s}]"], r"thresholds\.0\.operation: claim: expected one of add-"),
        (SPAWN, ["faults=[{do: drop-claims, stage: 1}]"], r"faults\.0\.do: drop-claims: expected kill, stop"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(plan: str, overrides: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_plan(plan, overrides)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (
            OK + "\nname: other",
            r"plan: name is given twice, in line 1 and in line [0-9]+: expected a plan in YAML",
        ),
        (OK + "\nworkload: {units: 2, units: 3}", "workload is given twice|units is given twice, in line"),
        ('name: x\ntarget: {kind: etcd, "kind": juju}', "kind is given twice, in line 2 and in line 2"),
    ],
)
def test_a_key_that_is_given_twice_is_refused_with_its_lines(plan: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_plan(plan)
    assert "\n" not in str(refused.value)


def test_an_override_that_gives_a_key_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"--set: .*hold is given twice"):
        parse_plan(OK, ["stages=[{leases: 1, hold: 1s, hold: 2s}]"])


@pytest.mark.parametrize("text", ["0100", "012", "1:30", "1_000", "0b11", "yes", "2001-01-01", "+-1", "08"])
def test_what_is_a_number_in_old_yaml_alone_is_refused_where_a_number_is_meant(text: str) -> None:
    for plan, overrides in ((OK.replace("10}", f"{text}}}"), []), (OK, [f"stages.0.leases={text}"])):
        with pytest.raises(UserError, match=r"stages\.0\.leases: ") as refused:
            parse_plan(plan, overrides)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0100", 100.0), ("012", 12.0), (".5", 0.5), ("1e1", 10.0), ("0.50", 0.5), ("7", 7.0)],
)
def test_a_duration_is_read_as_people_mean_it(text: str, seconds: float) -> None:
    assert parse_plan(OK, [f"stages.0.hold={text}"]).stages[0].hold == seconds


@pytest.mark.parametrize("text", ["0100", "no", "on", "1:30", "1_000", "52:54:00"])
def test_a_text_stays_as_it_was_written(text: str) -> None:
    assert parse_plan(OK, [f"description={text}"]).description == text


@pytest.mark.parametrize(("text", "truth"), [("yes", True), ("true", True), ("no", False), ("off", False)])
def test_a_truth_value_may_be_yes_or_no(text: str, truth: bool) -> None:
    plan = parse_plan(OK, [f"thresholds=[{{operation: claim, p99: 1s, abort: {text}}}]"])
    assert plan.thresholds[0].abort is truth


@pytest.mark.parametrize(
    ("plan", "overrides"),
    [
        (OK, ["target.endpoints=[http://user:secret@h]"]),
        (OK, ["target.endpoints=http://user:secret@h"]),
        (OK, ["target.endpoints=[https://user:sec/secret ret@h]"]),
        (OK, ["target.pprof=[http://user:secret@h:6060]"]),
        (OK, ["target=http://user:secret@h"]),
        (OK, ["target.endpoint=http://user:secret@h"]),
        (OK, ["http://user:secret@h"]),
        (OK + "\ntarget: {endpoints: [http://user:secret@h", []),
        ("http://user:secret@h", []),
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(plan: str, overrides: list[str]) -> None:
    with pytest.raises(UserError) as refused:
        parse_plan(plan, overrides)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_user_in_an_endpoint_belongs_into_credentials() -> None:
    with pytest.raises(UserError, match=r"target\.endpoints\.0: .*the user in target\.credentials"):
        parse_plan(OK, ["target.endpoints=[http://root@h:2379]"])


def test_profiles_are_asked_for_at_an_address() -> None:
    plan = parse_plan(OK, ["target.pprof=[http://h:6060]"])
    assert plan.target.profiled == ["http://h:6060"]
    assert parse_plan(OK).target.profiled == []
    with pytest.raises(
        UserError, match=r"^target\.pprof\.0: http://h/debug/pprof: expected http\(s\)://host:port$"
    ):
        parse_plan(OK, ["target.pprof=[http://h/debug/pprof]"])


@pytest.mark.parametrize("url", ["http://h", "https://etcd-1.example.org:2379", "http://[::1]:2379"])
def test_endpoints_people_write(url: str) -> None:
    assert parse_plan(OK, [f"target.endpoints=['{url}']"]).target.endpoints == [url]


@pytest.mark.parametrize(
    "line",
    ["b{n}: &b{n} [{uses}]", "b{n}: &b{n} {{<<: [{uses}]}}"],
)
def test_a_few_lines_that_stand_for_very_many_are_refused_at_once(line: str) -> None:
    # given lists (or merged mappings) of ten of the one before, thirty levels deep
    first = "b0: &b0 {x: 1}"
    lines = [line.format(n=n, uses=", ".join([f"*b{n - 1}"] * 10)) for n in range(1, 30)]
    # when they are read, also in place of a field
    with pytest.raises(UserError) as refused:
        parse_plan("\n".join([OK, first, *lines, "description: *b29"]))
    # then they are refused in one short line
    assert len(str(refused.value)) < 400


def test_a_file_too_large_for_a_plan_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(OK + "\n#" + "x" * 1_048_576)
    with pytest.raises(UserError, match="expected a readable text file, at most 1 MiB"):
        load_plan(str(path))


def test_a_plan_is_read_from_a_pipe() -> None:
    """As `tippingpoint run <(make-plan)` and `make-plan | tippingpoint run /dev/stdin` are."""
    reading, writing = os.pipe()
    with open(writing, "w") as file:
        file.write(OK)
    assert load_plan(f"/dev/fd/{reading}") == parse_plan(OK)
    os.close(reading)


@pytest.mark.parametrize("name", ["x" * 5000, "x/" * 3000, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(UserError, match=r"^plan: ") as refused:
        load_plan(name)
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
    schema = json.loads(json.dumps(plan_schema()))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)  # once, and not for each plan
    valid = kind(schema)
    for name, text in shipped_plans().items():
        assert load_plan(name).name == name
        valid.validate(yaml.safe_load(text))


def test_an_unknown_plan_names_the_nearest() -> None:
    with pytest.raises(
        UserError, match=r"^plan: etcd-dem: expected a file, or a shipped plan such as etcd-demo, "
    ):
        load_plan("etcd-dem")


MORE = {"machines": 64, "applications": 8, "units": 127, "relations": 28}


@pytest.mark.parametrize(
    ("stages", "unit", "loads"),
    [
        ([MORE, {"machines": 0}], "units", [("ramp", 1016), ("destroy", 1016)]),
        ([MORE, MORE | {"units": 1}, MORE], "units", [("ramp", 1016), ("destroy", 1016), ("ramp", 1016)]),
        ([MORE, MORE | {"machines": 2}], "units", [("ramp", 1016), ("destroy", 1016)]),
        ([MORE, MORE | {"relations": 0, "machines": 65}], "units", [("ramp", 1016), ("destroy", 1016)]),
        ([MORE, MORE | {"units": 128, "relations": 0}], "units", [("ramp", 1016), ("ramp", 1024)]),
        ([MORE, MORE], "units", [("ramp", 1016), ("ramp", 1016)]),
        (
            [{"machines": 10}, {"machines": 100}, {"machines": 0}],
            "machines",
            [("ramp", 10), ("ramp", 100), ("destroy", 100)],
        ),
        (
            [{"applications": 9, "units": 0}, {"applications": 3, "units": 0}],
            "applications",
            [("ramp", 9), ("destroy", 9)],
        ),
        (
            [{"applications": 9, "units": 0}, {"applications": 9, "units": 0, "relations": 36}],
            "relations",
            [("ramp", 0), ("ramp", 36)],
        ),
        ([{"machines": 64}, {"applications": 8}], "units", [("ramp", 0), ("ramp", 8)]),
        ([{"machines": 0}], "units", [("ramp", 0)]),
    ],
)
def test_a_spawn_plan_says_what_its_stages_loads_are(
    stages: list[dict[str, int]], unit: str, loads: list[tuple[str, int]]
) -> None:
    """Loads count what the plan makes; a stage that has less than the one before destroys that one's load."""
    plan = validate_plan(
        {"name": "x", "target": {"kind": "juju"}, "workload": {"kind": "grow"}, "stages": stages}
    )
    assert (plan.load_unit, plan.loads) == (unit, loads)


def test_a_claim_plans_loads_are_its_leases() -> None:
    plan = parse_plan("name: x\nstages: [{leases: 10}, {leases: 4}]")
    assert (plan.load_unit, plan.loads) == ("leases", [("ramp", 10), ("ramp", 4)])


@given(
    st.sampled_from(
        [
            *(
                "stages.0.hold",
                "stages.0.over",
                "stages.0.leases",
                "thresholds.0.p99",
                "thresholds.0.error_rate",
            ),
            *(
                "workload.claim_time",
                "workload.units",
                "workload.timeout",
                "target.connections",
                "workers",
                "seed",
            ),
        ]
    ),
    st.sampled_from("smh") | st.just("") | st.just("ms"),
    st.integers(1, 6000).map(lambda digits: "9" * digits)
    | st.sampled_from(["1e400", "-1e400", ".inf", "-.inf", ".nan", "0x" + "f" * 400, "1e-400", "1_0" * 300]),
)
def test_numbers_beyond_all_measure_are_refused_in_one_line(field: str, unit: str, number: str) -> None:
    """Given a number that no double holds, then the plan is refused, or has it where it is within limits."""
    line = ""
    try:
        load_plan("etcd-leases", [f"{field}={number}{unit}"]).model_dump_json()
    except UserError as refused:
        line = str(refused)
    assert line.isprintable()
    assert len(line) < 600


@pytest.mark.parametrize(
    "kind",
    ["[etcd]", "{a: b}", "[]", "{}", "[[etcd]]", '"\\ud800"', "2024-01-01", "1", "true", "!!binary aGk="],
)
@pytest.mark.parametrize("of", ["target", "workload"])
def test_a_kind_that_is_no_name_is_refused_in_one_line(of: str, kind: str) -> None:
    kinds = {"target": "etcd", "workload": "claim", of: kind}
    text = "name: x\nstages: [{leases: 1, hold: 1s}]\n" + "".join(
        f"{section}: {{kind: {written}}}\n" for section, written in kinds.items()
    )
    for read in (lambda: parse_plan(text), lambda: load_plan("etcd-leases", [f"{of}.kind={kind}"])):
        with pytest.raises(UserError) as refused:
            read()
        assert "\n" not in str(refused.value)
        str(refused.value).encode()


def test_half_a_character_is_no_text_of_a_plan() -> None:
    for text in ('name: "\\ud800"', '"\\udfff": x', 'name: x\nstages: [{leases: "\\udc00"}]'):
        with pytest.raises(UserError, match="a lone surrogate, which is half a character"):
            parse_plan(text)
