"""Whatever is in parameters, configuration and databags: no hook ends in an error, and no action in a traceback."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops import testing
from tippingpoint_charm.parameters import Clean, EvictMember, Parameters, Report, Start, Status

from tests.charms.generators import ScriptedAgent, Unit, a_run, run_in, state_of, units_of
from tippingpoint.conduct.run_state import Turn
from tippingpoint.errors import UserError

FUZZED = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
OURS = "load-claimer/0"
STATUSES = testing.ActiveStatus | testing.BlockedStatus | testing.MaintenanceStatus | testing.WaitingStatus

texts = st.text(max_size=60)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


def _almost(document: str) -> st.SearchStrategy[str]:
    """JSON that was right but for one field, or was cut."""
    fields: dict[str, Any] = json.loads(document)
    changed = st.tuples(st.sampled_from(sorted(fields)), values).map(
        lambda change: json.dumps({**fields, change[0]: change[1]})
    )
    lacking = st.sampled_from(sorted(fields)).map(
        lambda name: json.dumps({key: value for key, value in fields.items() if key != name})
    )
    cut = st.integers(0, len(document)).map(lambda length: document[:length])
    return st.just(document) | changed | lacking | cut


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


RUN = a_run([OURS, "load-claimer/1"])
HELD = RUN.model_copy(
    update={"turns": [Turn(number=1, stage=1, kind="ramp", of=2, begin=RUN.made, lasts=5.0)], "started": 1.0}
)
WORD = json.dumps(
    {"version": 1, "run": RUN.id, "phase": "ready", "turn": 0, "t": RUN.made, "clock": "", "offset": 0.1}
)
runs = (
    st.sampled_from([RUN, HELD]).flatmap(lambda run: _almost(run.model_dump_json(exclude_none=True))) | texts
)
words = _almost(WORD) | texts
results = _almost(json.dumps({"run": RUN.id, "digest": "D"})) | texts
bags = st.fixed_dictionaries({}, optional={"word": words, "result": results, "other": texts})


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[Unit, ScriptedAgent]]:
    """One unit with an agent, installed once: what is tried is what comes after."""
    with tempfile.TemporaryDirectory(prefix="tp-") as directory:
        unit = Unit(Path(directory))
        with ScriptedAgent(unit).at_its_socket() as agent:
            unit.run(unit.on.install(), state_of(unit))
            yield unit, agent


def check(out: testing.State) -> None:
    assert isinstance(out.unit_status, STATUSES)
    assert "\n" not in out.unit_status.message
    assert "Traceback" not in out.unit_status.message


@FUZZED
@given(
    run=runs,
    own=bags,
    peers=st.dictionaries(st.integers(1, 4), bags, max_size=3),
    leader=st.booleans(),
    event=st.sampled_from(
        ["changed", "departed", "agent_changed", "leader_elected", "update_status", "status", "stop", "storm"]
    ),
)
def test_databags(
    place: tuple[Unit, ScriptedAgent],
    run: str,
    own: dict[str, str],
    peers: dict[int, dict[str, str]],
    leader: bool,
    event: str,
) -> None:
    unit, agent = place
    agent.word = unit.word(RUN, "ready")
    relation = testing.PeerRelation(
        "units", local_app_data={"run": run}, local_unit_data=own, peers_data={9: {}, **peers}
    )
    base = state_of(unit, leader=leader)
    before = testing.WaitingStatus("what a hook leaves that is not about us")
    state = dataclasses.replace(base, relations=[relation], unit_status=before)
    number = min(peers, default=9)
    match event:
        case "changed":
            check(unit.run(unit.on.relation_changed(relation, remote_unit=number), state))
        case "departed":
            gone = unit.on.relation_departed(relation, remote_unit=number, departing_unit=number)
            check(unit.run(gone, state))
        case "agent_changed":
            check(unit.agent_changed(state))
        case "leader_elected" | "update_status":
            check(unit.run(getattr(unit.on, event)(), state))
        case _:
            if not unit.attempt(event, state):
                check(unit.after)


@FUZZED
@given(word=values | _almost(WORD).map(_loaded), result=values | results.map(_loaded))
def test_the_agents_answers(place: tuple[Unit, ScriptedAgent], word: Any, result: Any) -> None:
    unit, agent = place
    agent.answers["word"] = lambda _: {"word": word, "result": result}
    try:
        check(unit.run(unit.on.config_changed(), state_of(unit, run=RUN, peers={1: {}})))
    finally:
        del agent.answers["word"]


@FUZZED
@given(target=texts, projects=texts)
@pytest.mark.parametrize("name", ["load-claimer", "container-spawner"])
def test_configuration(root: Path, name: str, target: str, projects: str) -> None:
    unit = Unit(root, name)
    config = {"target": target} | ({"lxd-projects": projects} if name == "container-spawner" else {})
    with ScriptedAgent(unit).at_its_socket():
        check(unit.run(unit.on.config_changed(), state_of(unit, config=config)))


@FUZZED
@given(
    plan=texts | st.sampled_from(["etcd-leases-small", "juju-leases"]),
    text=texts | st.sampled_from(["name: a\nstages: [{leases: 5}]"]),
    overrides=st.lists(
        texts
        | st.tuples(
            st.sampled_from(["name", "target", "target.kind", "stages", "stages.0.leases", "workload.kind"]),
            texts,
        ).map("=".join),
        max_size=3,
    ),
)
def test_what_is_to_start(
    place: tuple[Unit, ScriptedAgent], plan: str, text: str, overrides: list[str]
) -> None:
    unit, _ = place
    given = {"plan": plan, "plan_yaml": text, "overrides": "\n".join(overrides)}
    params = {name: value for name, value in given.items() if value}
    if not unit.attempt("start", state_of(unit), **params):
        assert run_in(unit.after) is not None
        check(unit.after)


@pytest.mark.parametrize("kind", [Parameters, Start, Status, Report, Clean, EvictMember])
@FUZZED
@given(
    params=st.dictionaries(
        st.sampled_from(["plan", "plan-yaml", "overrides", "run", "format", "json", "member"]) | texts,
        values,
        max_size=4,
    )
)
def test_parameters_that_juju_would_not_let_through(kind: type[Parameters], params: dict[str, Any]) -> None:
    try:
        kind.read(params)
    except UserError as problem:
        refused = str(problem)
    else:
        refused = ""
        assert set(params) <= {field.alias for field in kind.model_fields.values()}
    assert "\n" not in refused


def test_a_parameter_that_no_one_knows_is_named_with_those_that_are() -> None:
    with pytest.raises(UserError, match=r"^verbose: True: expected run, format, part$"):
        Report.read({"verbose": True})


def test_what_is_malformed_is_not_conducted(place: tuple[Unit, ScriptedAgent]) -> None:
    """Given a run whose turn is of a stage that its plan has not, it is as if there were none."""
    unit, agent = place
    agent.asked.clear()
    turn = Turn(number=1, stage=99, kind="ramp", of=1, begin=RUN.made, lasts=5.0)
    out = unit.run(unit.on.config_changed(), state_of(unit, run=RUN.model_copy(update={"turns": [turn]})))
    assert agent.orders["run"] is None
    assert units_of(out).local_app_data["run"]
