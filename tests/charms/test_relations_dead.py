"""A relation that Juju still names although its other application is gone, and one that refuses us."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ops
import pytest
from ops import testing
from scenario import _runtime
from tippingpoint_charm.relations.databag import reason
from tippingpoint_charm.relations.databag import related as all_related

from tests.charms import collector
from tests.charms.related import META, after, context, state

ENDPOINTS = sorted(
    {*META["requires"], *META["provides"]} - {"controller", "controller-http", "etcd", "prometheus-api"}
)
"""Those that a generator says something on."""


class Touched:
    """Which relations a hook reads or writes our own bags of: Juju stores those, and refuses one under two ids."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refusing: int | None = None) -> None:
        self.ids: dict[str, set[int]] = {}
        self._refusing = refusing
        content = ops.model.RelationDataContent
        load, commit = content._load, content._commit

        def loading(bag: Any) -> Any:
            self._touch(bag)
            return load(bag)

        def committing(bag: Any, data: Any) -> None:
            self._touch(bag)
            commit(bag, data)

        monkeypatch.setattr(content, "_load", loading)
        monkeypatch.setattr(content, "_commit", committing)

    def _touch(self, bag: Any) -> None:
        if bag._backend.unit_name.partition("/")[0] != bag._entity.name.partition("/")[0]:
            return
        if bag.relation.id == self._refusing:
            raise ops.ModelError("ERROR cannot read relation settings: relation not found")
        self.ids.setdefault(bag.relation.name, set()).add(bag.relation.id)


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Touched:
    return Touched(monkeypatch)


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    collector.on_machine(monkeypatch, tmp_path)
    return


def twice(endpoint: str, app: str = "other", dead: int = 3, living: int = 7) -> list[testing.RelationBase]:
    """What Juju 4.0 names after `remove-application --force` of an application, and a new one by its name."""
    kind = testing.SubordinateRelation if endpoint == "cos-agent" else testing.Relation
    return [kind(endpoint, remote_app_name=app, id=each) for each in (dead, living)]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_generator_leaves_the_dead_relation_alone(endpoint: str, touched: Touched) -> None:
    """Given a dead relation beside the one that followed it, then no hook touches our bags of both."""
    after(context(), state(*twice(endpoint)))

    assert touched.ids[endpoint] == {7}


def test_the_hook_s_own_relation_is_the_one_that_is_written_to(touched: Touched) -> None:
    """One application may be related twice, by two endpoints of its own: each has its turn in its own hooks."""
    older, newer = twice("metrics-endpoint")
    ctx = context()

    out, _ = after(ctx, state(older, newer), ctx.on.relation_created(older))

    assert touched.ids["metrics-endpoint"] == {older.id}
    assert out.get_relation(older.id).local_app_data["scrape_jobs"]  # type: ignore[attr-defined]


def test_two_applications_are_both_told(touched: Touched) -> None:
    out, _ = after(
        context(),
        state(
            *(testing.Relation("scale-run", remote_app_name=app, id=n) for n, app in enumerate(("a", "b"), 4))
        ),
    )

    assert [bag.local_unit_data.get("exporter") for bag in out.get_relations("scale-run")] == [  # type: ignore[attr-defined]
        "192.0.2.0:9477",
        "192.0.2.0:9477",
    ]


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_relation_that_refuses_keeps_the_others_from_nothing(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a relation whose bags cannot be read or written, then the hook is no failure and others are told."""
    refusing, living = twice(endpoint)
    refusing = type(refusing)(endpoint, remote_app_name="gone", id=3)
    touched = Touched(monkeypatch, refusing=3)

    out, _ = after(context(), state(refusing, living))

    assert touched.ids[endpoint] == {7}
    told = out.get_relation(7)
    assert {**told.local_unit_data, **told.local_app_data}  # type: ignore[attr-defined]


@pytest.mark.usefixtures("at_home")
class TestTheCollector:
    @pytest.mark.parametrize(
        "endpoint", ["scale-run", "metrics-endpoint", "grafana-dashboard", "receive-remote-write"]
    )
    @pytest.mark.parametrize(
        "event", ["relation_created", "update_status", "upgrade_charm", "config_changed"]
    )
    def test_serves_after_a_forced_removal(self, endpoint: str, event: str, touched: Touched) -> None:
        """Given load-claimer removed by force and deployed again, then its relation is answered."""
        dead, living = twice(endpoint, "load-claimer")
        ctx = collector.context()
        happened = getattr(ctx.on, event)
        made = happened(living) if event == "relation_created" else happened()

        ctx.run(made, testing.State(leader=True, relations=[dead, living]))

        assert touched.ids.get(endpoint, {living.id}) == {living.id}

    def test_says_its_version_to_the_new_application(self) -> None:
        dead, living = twice("scale-run", "load-claimer")
        ctx = collector.context()

        out = ctx.run(ctx.on.relation_created(living), testing.State(leader=True, relations=[dead, living]))

        assert out.get_relation(living.id).local_app_data == {"version": "1"}  # type: ignore[attr-defined]

    def test_a_relation_that_refuses_is_no_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        relations = [
            testing.Relation("scale-run", remote_app_name=app, id=n) for n, app in ((3, "a"), (4, "b"))
        ]
        Touched(monkeypatch, refusing=3)
        ctx = collector.context()

        out = ctx.run(ctx.on.relation_created(relations[1]), testing.State(leader=True, relations=relations))

        assert out.get_relation(4).local_app_data == {"version": "1"}  # type: ignore[attr-defined]

    def test_names_an_application_once(self) -> None:
        dead, living = twice("scale-run", "load-claimer")
        ctx = collector.context()

        ctx.run(ctx.on.action("status"), testing.State(relations=[dead, living]))

        assert ctx.action_results is not None
        assert ctx.action_results["related"] == "load-claimer"


def test_what_others_wrote_is_read_of_every_relation() -> None:
    """To read the bags of others harms nothing."""
    ctx = context()
    with ctx(ctx.on.update_status(), state(*twice("metrics-endpoint"))) as manager:
        found = [relation.id for relation in all_related(manager.charm, "metrics-endpoint")]
        manager.run()

    assert found == [3, 7]


def test_a_refusal_without_a_text_is_still_a_whole_sentence() -> None:
    """Juju 4.0.15 refuses to write to a relation that is gone, and says nothing."""
    assert reason(ops.ModelError()) == reason(ops.ModelError("\n")) == "Juju gave no reason"
    assert reason(ops.ModelError("ERROR permission\ndenied\n")) == "ERROR permission denied"


def test_a_collector_survives_the_end_of_a_relation_whose_application_juju_no_longer_names(
    at_home: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Juju 4.0.15 does when a model is destroyed."""
    told = _runtime.Runtime._get_event_env

    def without_the_name(*arguments: Any, **named: Any) -> dict[str, str]:
        return told(*arguments, **named) | {"JUJU_REMOTE_APP": ""}

    monkeypatch.setattr(_runtime.Runtime, "_get_event_env", without_the_name)
    relation = testing.Relation("scale-run", remote_app_name="load-claimer")
    ctx = collector.context()

    out = ctx.run(ctx.on.relation_broken(relation), testing.State(relations=[relation], leader=True))

    assert not isinstance(out.unit_status, testing.ErrorStatus)
