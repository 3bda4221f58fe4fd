"""The relation scale-run, version 1, from both sides: docs/reference/scale-run.md says what is in it."""

from __future__ import annotations

import json
from typing import Any

import ops
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ops import testing
from tippingpoint_charm.relations import scale_run
from tippingpoint_charm.relations.scale_run import PartResult, Reported

from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.plan.read import validate_plan

PLAN = validate_plan(
    {
        "name": "small",
        "target": {"kind": "etcd"},
        "workload": {"kind": "claim"},
        "stages": [{"leases": 10, "hold": "10s"}],
    }
)
RUN = begin_run(PLAN, ["load-claimer/0", "load-claimer/1"], 1.8e9)
DIGEST = "eJyrVkrLz1eyUkpKLFKqBQAeUgR8"


def word(unit: int) -> UnitWord:
    return UnitWord(run=RUN.id, phase="up", turn=unit + 1, t=1.8e9, cores=4)


RESULT = {"run": RUN.id, "digest": DIGEST}


class Provider(ops.CharmBase):
    """Publishes what a generator would; what that is, the configuration of the test says."""

    says: tuple[SharedRun | None, UnitWord | None, dict[str, str] | None] = (None, None, None)

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        framework.observe(self.on.update_status, self._publish)

    def _publish(self, _: ops.EventBase) -> None:
        scale_run.publish(self, *self.says)
        self.problem = scale_run.problem(self)


class Requirer(ops.CharmBase):
    """Publishes and reads as a collector does."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        framework.observe(self.on.update_status, self._read)

    def _read(self, _: ops.EventBase) -> None:
        scale_run.publish_collector(self)
        self.reported = scale_run.read(self)
        self.apart = [
            scale_run.read_changed(relation, unit)
            for relation in self.model.relations["scale-run"]
            for unit in (None, *sorted(relation.units, key=lambda each: each.name))
        ]


def provider(unit: int) -> testing.Context[Provider]:
    meta = {"name": "load-claimer", "provides": {"scale-run": {"interface": "scale_run"}}}
    return testing.Context(Provider, meta=meta, unit_id=unit)


def requirer() -> testing.Context[Requirer]:
    meta = {"name": "metrics-collector", "requires": {"scale-run": {"interface": "scale_run"}}}
    return testing.Context(Requirer, meta=meta)


def published(
    unit: int = 0,
    run: SharedRun | None = RUN,
    result: dict[str, str] | None = None,
    before: testing.Relation | None = None,
    leader: bool = True,
) -> tuple[testing.Relation, str]:
    """The relation after a generator's unit said this, and what it finds wrong with the collector."""
    relation = (
        before if before is not None else testing.Relation("scale-run", remote_app_name="metrics-collector")
    )
    ctx = provider(unit)
    with ctx(ctx.on.update_status(), testing.State(leader=leader, relations=[relation])) as manager:
        manager.charm.says = (run, word(unit) if run else None, result)
        out = manager.run()
        return out.get_relations("scale-run")[0], manager.charm.problem


def collected(app: dict[str, str], units: dict[int, dict[str, str]], name: str = "load-claimer") -> Reported:
    """What a collector reads of a generator's bags."""
    relation = testing.Relation(
        "scale-run", remote_app_name=name, remote_app_data=app, remote_units_data=units or {0: {}}
    )
    ctx = requirer()
    with ctx(ctx.on.update_status(), testing.State(leader=True, relations=[relation])) as manager:
        manager.run()
        (reported,) = manager.charm.reported
        whole = Reported(reported.application)
        for part in manager.charm.apart:
            assert part.application == reported.application
            whole.problems.extend(part.problems)
        assert set(reported.problems) >= set(whole.problems)
        return reported


class TestBothWays:
    def test_what_a_generator_says_is_what_a_collector_reads(self) -> None:
        """Given a run of two units, one of them done, when the collector reads, then it has the run, both words by
        unit, and the one result."""
        first, _ = published(0)
        second, _ = published(1, result=RESULT, leader=False)
        assert not second.local_app_data
        reported = collected(
            dict(first.local_app_data), {0: dict(first.local_unit_data), 1: dict(second.local_unit_data)}
        )
        assert reported == Reported(
            application="load-claimer",
            run=RUN,
            words={"load-claimer/0": word(0), "load-claimer/1": word(1)},
            results={"load-claimer/1": PartResult(run=RUN.id, digest=DIGEST)},
            problems=[],
        )

    def test_across_models_units_have_their_own_names(self) -> None:
        """Given Juju calls the generator remote-..., then words go by the names that the run has."""
        first, _ = published(0)
        reported = collected(dict(first.local_app_data), {0: dict(first.local_unit_data)}, "remote-0a1b2c")
        assert reported.application == "remote-0a1b2c"
        assert list(reported.words) == ["load-claimer/0"]

    def test_what_holds_no_longer_is_taken_away(self) -> None:
        """Given a word was said, when there is none any more, then the bag has none."""
        first, _ = published(0, result=RESULT)
        second, _ = published(0, run=None, before=first)
        assert dict(second.local_app_data) == {"version": "1"}
        assert second.local_unit_data["unit"] == "load-claimer/0"
        assert not {"word", "result"} & set(second.local_unit_data)

    def test_a_collector_says_its_version_to_generators(self) -> None:
        ctx = requirer()
        out = ctx.run(
            ctx.on.update_status(), testing.State(leader=True, relations=[testing.Relation("scale-run")])
        )
        assert dict(out.get_relations("scale-run")[0].local_app_data) == {"version": "1"}

    @pytest.mark.parametrize(
        ("bag", "said"),
        [
            ({}, ""),
            ({"version": "1", "more": "x"}, ""),
            ({"version": "2"}, "scale-run: metrics-collector speaks version 2: expected 1"),
        ],
    )
    def test_a_generator_tells_of_a_collector_of_another_version(
        self, bag: dict[str, str], said: str
    ) -> None:
        """Given another version, then it is one line, and the run is published all the same."""
        relation = testing.Relation("scale-run", remote_app_name="metrics-collector", remote_app_data=bag)
        after, problem = published(before=relation)
        assert problem == said
        assert after.local_app_data["run"]


def bags(**changed: str) -> tuple[dict[str, str], dict[str, str]]:
    """Good bags of application and unit with these changes; run is the application's."""
    app = {"version": "1", "run": RUN.model_dump_json()}
    unit = {
        "version": "1",
        "unit": "load-claimer/0",
        "word": word(0).model_dump_json(),
        "result": json.dumps(RESULT),
    }
    return app | {k: v for k, v in changed.items() if k == "run"}, unit | {
        k: v for k, v in changed.items() if k != "run"
    }


MALFORMED = ["x", "{", "[]", "null", "{}", '{"version": 2}', "[" * 5000]


class TestNotUnderstood:
    @pytest.mark.parametrize("text", MALFORMED)
    @pytest.mark.parametrize("key", ["run", "word", "result"])
    def test_a_malformed_value_is_as_none_and_one_line(self, key: str, text: str) -> None:
        app, unit = bags(**{key: text})
        reported = collected(app, {0: unit})
        assert (reported.run is None) == (key == "run")
        assert (reported.words == {}) == (key == "word")
        assert (reported.results == {}) == (key == "result")
        who = "load-claimer" if key == "run" else "load-claimer/0"
        assert reported.problems == [
            f"scale-run: {who}: {key}: expected what docs/reference/scale-run.md says"
        ]

    def test_another_version_is_as_nothing(self) -> None:
        app, unit = bags()
        reported = collected(app | {"version": "2"}, {0: unit | {"version": "7\n" + "x" * 200}})
        assert (reported.run, reported.words, reported.results) == (None, {}, {})
        first, second = reported.problems
        assert first == "scale-run: load-claimer speaks version 2: expected 1"
        assert second.startswith("scale-run: load-claimer/0 speaks version 7 xxx")
        assert "\n" not in second

    def test_content_without_a_version_is_as_nothing(self) -> None:
        app, unit = bags()
        del app["version"], unit["version"]
        reported = collected(app, {0: unit})
        assert (reported.run, reported.words, reported.results) == (None, {}, {})
        assert reported.problems == [
            "scale-run: load-claimer names no version: expected 1",
            "scale-run: load-claimer/0 names no version: expected 1",
        ]

    def test_empty_bags_and_unknown_keys_are_no_problem(self) -> None:
        """Given a unit that has said nothing yet (Juju's own keys are there), and keys of a later time, then all is
        well."""
        app, unit = bags()
        reported = collected(
            app | {"later": "x"}, {0: unit | {"later": "x"}, 1: {"ingress-address": "192.0.2.1"}, 2: {}}
        )
        assert reported.problems == []
        assert list(reported.words) == ["load-claimer/0"]

    def test_two_units_of_one_name_are_one(self) -> None:
        _, unit = bags()
        reported = collected({}, {0: unit, 1: unit | {"word": word(5).model_dump_json()}})
        assert reported.words == {"load-claimer/0": word(0)}
        assert reported.problems == [
            "scale-run: load-claimer/1: unit: load-claimer/0: expected a name that no other unit has"
        ]

    @pytest.mark.parametrize("name", ["load claimer/0", "../../x/0", "load-claimer", "A/1", "a/" + "1" * 20])
    def test_a_name_that_is_no_units_is_refused(self, name: str) -> None:
        """Given a name that could be a path, then the unit is left out: collectors name files by it."""
        reported = collected({}, {0: bags(unit=name)[1]})
        assert (reported.words, reported.results) == ({}, {})
        assert len(reported.problems) == 1

    @pytest.mark.parametrize(
        "result",
        [
            {"run": "../x", "digest": DIGEST},
            {"run": RUN.id, "digest": "x" * 65_537},
            {"run": RUN.id, "digest": "<script>"},
            {"run": RUN.id, "digest": ""},
            {"run": RUN.id},
        ],
    )
    def test_a_result_that_is_none_is_left_out(self, result: dict[str, str]) -> None:
        reported = collected({}, {0: bags(result=json.dumps(result))[1]})
        assert reported.results == {}
        assert reported.problems == [
            "scale-run: load-claimer/0: result: expected what docs/reference/scale-run.md says"
        ]


TEXTS = st.one_of(
    st.text(max_size=60),
    st.sampled_from(["1", "2", "", "load-claimer/0", *MALFORMED[:-1]]),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ).map(json.dumps),
)
BAGS = st.dictionaries(st.sampled_from(["version", "unit", "word", "result", "run"]), TEXTS)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(app=BAGS, units=st.lists(BAGS, max_size=3))
def test_whatever_is_written_is_read(app: dict[str, str], units: list[dict[str, str]]) -> None:
    """Given anything in the bags, then nothing raises, and each problem is one line."""
    reported = collected(app, dict(enumerate(units)))
    assert all("\n" not in line and len(line) < 300 for line in reported.problems)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    path=st.sampled_from(["run", "word", "result"]), key=st.data(), value=TEXTS | st.integers() | st.none()
)
def test_one_wrong_field_makes_no_exception(path: str, key: st.DataObject, value: Any) -> None:
    """Given good content with one field replaced by anything, then it is read or left out."""
    good = {"run": RUN.model_dump(mode="json"), "word": word(0).model_dump(mode="json"), "result": RESULT}[
        path
    ]
    name = key.draw(st.sampled_from(sorted(good)))
    app, unit = bags(**{path: json.dumps(good | {name: value})})
    assert len(collected(app, {0: unit}).problems) <= 1


class Told(ops.CharmBase):
    """A generator that says where its figures are, and a collector that reads it."""

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        framework.observe(self.on.update_status, self._tell)

    def _tell(self, _: ops.EventBase) -> None:
        scale_run.publish_exporter(self, 9477)
        self.found = scale_run.read_exporters(self)


def test_a_unit_says_where_its_figures_are() -> None:
    relation = testing.Relation("scale-run")
    ctx = testing.Context(Told, meta={"name": "told", "provides": {"scale-run": {"interface": "scale_run"}}})

    out = ctx.run(ctx.on.update_status(), testing.State(relations=[relation]))

    assert out.get_relation(relation.id).local_unit_data["exporter"] == "192.0.2.0:9477"


def test_where_figures_are_is_read_by_the_units_own_names() -> None:
    bags = {
        0: {"version": "1", "unit": "load-claimer/0", "exporter": "192.0.2.1:9477"},
        1: {"version": "1", "unit": "load-claimer/0", "exporter": "192.0.2.2:9477"},
        2: {"version": "2", "unit": "load-claimer/2", "exporter": "192.0.2.3:9477"},
        3: {"version": "1", "unit": "../3", "exporter": "192.0.2.4:9477"},
        4: {"version": "1", "exporter": "192.0.2.5:9477"},
    }
    relation = testing.Relation("scale-run", remote_app_name="remote-3f", remote_units_data=bags)
    ctx = testing.Context(Told, meta={"name": "told", "provides": {"scale-run": {"interface": "scale_run"}}})

    with ctx(ctx.on.update_status(), testing.State(relations=[relation])) as manager:
        manager.run()
        found = manager.charm.found

    assert found == {"load-claimer/0": "192.0.2.1:9477", "remote-3f/4": "192.0.2.5:9477"}
