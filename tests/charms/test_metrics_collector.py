"""The metrics-collector charm: what it keeps of what generators say, and what it says itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops import testing

from tests.charms.collector import bag_of_unit, charm, context, on_machine, related, state_of
from tests.examples import examples
from tippingpoint import __version__
from tippingpoint.collect.runs import Runs
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitProgress, UnitWord
from tippingpoint.errors import UserError
from tippingpoint.plan.read import load_plan

UNITS = ["load-claimer/0", "load-claimer/1"]
FUZZED = examples(60)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this unit keeps its things."""
    machine = on_machine(monkeypatch, tmp_path)
    before = os.umask(0o077)
    yield state_of(machine)
    os.umask(before)


def a_run(**changes: object) -> SharedRun:
    made = begin_run(load_plan("juju-leases-small"), UNITS, 1_780_000_000.0)
    return made.model_copy(update=changes)


def a_word(run: SharedRun, **changes: object) -> UnitWord:
    return UnitWord.model_validate({"run": run.id, "phase": "up", "t": run.made, **changes})


def after(event: Any, relation: testing.Relation | None = None, **state: Any) -> testing.State:
    relations = [] if relation is None else [relation]
    return context().run(event, testing.State(relations=relations, **state))


def changed(relation: testing.Relation, unit: int | None = None, **state: Any) -> testing.State:
    event = context().on.relation_changed(relation, **({} if unit is None else {"remote_unit": unit}))
    return after(event, relation, **state)


def test_without_a_generator_it_says_what_to_relate() -> None:
    out = after(context().on.start())

    assert out.unit_status == testing.WaitingStatus(
        "relate load-claimer:scale-run or container-spawner:scale-run"
    )


def test_with_a_generator_and_no_run_it_says_how_to_start_one() -> None:
    out = changed(related())

    assert out.unit_status == testing.ActiveStatus("no run yet: juju run load-claimer/leader start plan=NAME")


def test_the_leader_says_which_version_it_speaks() -> None:
    relation = related()

    out = after(context().on.relation_created(relation), relation, leader=True)

    assert out.get_relation(relation.id).local_app_data == {"version": "1"}


def test_another_unit_says_nothing_and_keeps_all_the_same(state: Path) -> None:
    run = a_run()

    out = changed(related(run), leader=False)

    assert Runs(state / "runs").find("").shared == run
    assert out.get_relations("scale-run")[0].local_app_data == {}


def test_a_run_its_words_and_its_results_are_kept(state: Path) -> None:
    run = a_run()
    word = a_word(run, turn=1)
    relation = related(run, {1: bag_of_unit(UNITS[1], word, {"run": run.id, "digest": "abc"})})

    changed(relation)
    changed(relation, unit=1)

    kept = Runs(state / "runs").find(run.id)
    assert kept.shared == run
    assert kept.words == {UNITS[1]: word}
    assert kept.digests == {UNITS[1]: "abc"}


def test_what_is_kept_can_be_read_by_everybody(state: Path) -> None:
    """`juju scp` reads as another user, whatever the hook's umask was."""
    run = a_run()
    changed(related(run, {0: bag_of_unit(UNITS[0], a_word(run), {"run": run.id, "digest": "abc"})}), unit=0)

    modes = {path.is_dir(): path.stat().st_mode & 0o777 for path in (state / "runs").rglob("*")}

    assert modes == {True: 0o755, False: 0o644}
    assert state.stat().st_mode & 0o777 == 0o755


def test_a_hook_reads_the_unit_that_changed_and_no_other(state: Path) -> None:
    """With 100 units, a hook that looked at all of them would take seconds."""
    run = a_run()
    relation = related(run, {n: bag_of_unit(f"load-claimer/{n}", a_word(run)) for n in range(2)})

    changed(relation, unit=0)

    assert list(Runs(state / "runs").find("").words) == [UNITS[0]]


def test_units_related_from_another_model_are_known_by_their_own_names(state: Path) -> None:
    """There Juju calls the application remote-..., and the run does not."""
    run = a_run()
    bag = bag_of_unit(UNITS[1], a_word(run))
    relation = related(run, {1: bag}, app="remote-3f2a")

    changed(relation)
    changed(relation, unit=1)

    assert list(Runs(state / "runs").find("").words) == [UNITS[1]]


def test_the_status_says_how_far_the_latest_run_is() -> None:
    run = a_run(turns=[Turn(number=1, stage=1, kind="ramp", of=2, begin=1_780_000_010.0, lasts=20)])
    told = UnitProgress(stage=1, stages=5, size=5, held=5, p99_ms=31.0)
    relation = related(run, {0: bag_of_unit(UNITS[0], a_word(run, turn=1, progress=told))})
    changed(relation)

    out = changed(relation, unit=0)

    assert out.unit_status == testing.ActiveStatus(f"1 run, last: {run.id} stage 1/5, 5 leases, p99 31 ms")


def test_the_status_says_what_the_latest_run_came_to(state: Path) -> None:
    run = a_run(over=True)
    changed(related(a_run(id="20200101-000000-juju-leases-small-1f3a")))
    changed(related(run))
    Runs(state / "runs").find("").verdict_file.write_text('{"outcome": "met", "sentence": "All was well."}')

    out = after(context().on.update_status(), related(run))

    assert out.unit_status == testing.ActiveStatus(f"2 runs, last: {run.id} met")


def test_what_is_kept_outlives_the_units_and_the_relation(state: Path) -> None:
    run = a_run()
    relation = related(run, {0: bag_of_unit(UNITS[0], a_word(run), {"run": run.id, "digest": "abc"})})
    changed(relation)
    changed(relation, unit=0)

    after(context().on.relation_departed(relation, remote_unit=0, departing_unit=0), relation)
    out = after(context().on.relation_broken(relation), relation)

    assert Runs(state / "runs").find(run.id).digests == {UNITS[0]: "abc"}
    assert out.unit_status.message.startswith(f"1 run, last: {run.id}")


def test_a_refresh_keeps_what_was_there_and_reads_what_came_meanwhile(state: Path) -> None:
    old, run = a_run(id="20200101-000000-juju-leases-small-1f3a"), a_run()
    changed(related(old))
    units = {n: bag_of_unit(f"load-claimer/{n}", a_word(run)) for n in range(2)}

    out = after(context().on.upgrade_charm(), related(run, units))

    assert out.workload_version == __version__
    kept = Runs(state / "runs")
    assert [found.id for found in kept.newest_first()] == [run.id, old.id]
    assert set(kept.find("").words) == set(UNITS)


def test_two_generators_have_their_own_runs(state: Path) -> None:
    claims = a_run()
    spawns = a_run(id="20300101-000000-lxd-idle-1f3a", units=["container-spawner/0"])
    changed(related(claims))
    changed(related(spawns, app="container-spawner"))

    assert [run.id for run in Runs(state / "runs").newest_first()] == [spawns.id, claims.id]


def test_removing_the_charm_removes_what_it_kept(state: Path) -> None:
    changed(related(a_run()))
    assert state.exists()

    after(context().on.remove())

    assert not state.exists()


def test_another_version_of_the_relation_is_blocked_and_says_so(state: Path) -> None:
    relation = dataclasses.replace(related(), remote_app_data={"version": "2", "run": "..."})

    out = changed(relation)

    assert out.unit_status == testing.BlockedStatus("scale-run: load-claimer speaks version 2: expected 1")
    assert not state.exists()


def test_a_malformed_word_blocks_until_it_is_mended_or_its_unit_goes(state: Path) -> None:
    ctx, run = context(), a_run()
    bad = related(run, {0: {"version": "1", "unit": UNITS[0], "word": "{"}})
    out = ctx.run(ctx.on.relation_changed(bad, remote_unit=0), testing.State(relations=[bad]))
    assert isinstance(out.unit_status, testing.BlockedStatus)
    assert out.unit_status.message.startswith("scale-run: load-claimer/0: word: ")

    mended = dataclasses.replace(bad, remote_units_data={0: bag_of_unit(UNITS[0], a_word(run))})
    fine = ctx.run(
        ctx.on.relation_changed(mended, remote_unit=0), dataclasses.replace(out, relations=[mended])
    )
    gone = ctx.run(ctx.on.relation_departed(bad, remote_unit=0, departing_unit=0), out)

    assert not isinstance(fine.unit_status, testing.BlockedStatus)
    assert not isinstance(gone.unit_status, testing.BlockedStatus)


def test_a_full_disk_is_no_crash_and_is_tried_again(state: Path) -> None:
    """Given no room, when a result arrives, then the status says so, and with room it is kept after all."""
    ctx, run = context(), a_run()
    relation = related(run, {0: bag_of_unit(UNITS[0], a_word(run), {"run": run.id, "digest": "abc"})})
    state.mkdir(parents=True)
    (state / "runs").write_text("a file in the way")  # which root, too, gets no directory past

    out = ctx.run(ctx.on.relation_changed(relation, remote_unit=0), testing.State(relations=[relation]))
    assert isinstance(out.unit_status, testing.BlockedStatus)
    (state / "runs").unlink()
    out = ctx.run(ctx.on.update_status(), out)

    assert Runs(state / "runs").find("").digests == {UNITS[0]: "abc"}
    assert isinstance(out.unit_status, testing.ActiveStatus)


texts = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=200),
    st.just(a_run().model_dump_json()),
    st.builds(lambda phase: a_word(a_run(), problem=phase).model_dump_json(), st.text(max_size=20)),
    st.sampled_from(
        [
            "{}",
            "[]",
            "null",
            "1",
            '"x"',
            '{"run": "../x", "digest": "abc"}',
            '{"run": "x", "digest": 1}',
            "[" * 5000,
        ]
    ),
)
bags = st.dictionaries(
    st.sampled_from(["version", "run", "word", "result", "unit", "more"]),
    st.one_of(texts, st.sampled_from(["1", "load-claimer/0", "../../x/0"])),
)


@FUZZED
@given(app=bags, unit=bags)
def test_no_databag_is_a_crash(
    tmp_path_factory: pytest.TempPathFactory, app: dict[str, str], unit: dict[str, str]
) -> None:
    place = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch:
        on_machine(patch, place)
        relation = dataclasses.replace(related(), remote_app_data=app, remote_units_data={0: unit})
        for event in (
            context().on.relation_changed(relation),
            context().on.relation_changed(relation, remote_unit=0),
            context().on.upgrade_charm(),
        ):
            out = after(event, relation)
            assert isinstance(out.unit_status, testing.BlockedStatus | testing.ActiveStatus)
            assert "\n" not in out.unit_status.message
    assert {path.name for path in place.iterdir()} <= {"pack", "var"}
    assert {path.name for path in place.glob("var/*/*")} <= {"tippingpoint-metrics-collector-0"}


def refused(action: str, params: dict[str, Any], **state: Any) -> str:
    """The line that an action fails with."""
    ctx = context()
    with pytest.raises(testing.ActionFailed) as failed:
        ctx.run(ctx.on.action(action, params), testing.State(**state))
    assert "\n" not in failed.value.message
    return failed.value.message


def answered(action: str, params: dict[str, Any] | None = None, **state: Any) -> dict[str, Any]:
    """The results of an action."""
    ctx = context()
    ctx.run(ctx.on.action(action, params or {}), testing.State(**state))
    assert ctx.action_results is not None
    return ctx.action_results


@pytest.mark.parametrize("action", ["report", "export"])
def test_without_a_run_actions_say_that_none_has_arrived(action: str) -> None:
    assert refused(action, {}) == (
        "run: the latest: expected a run; none has arrived yet (start one on a generator)"
    )


def test_a_run_that_is_not_here_is_refused_with_those_that_are() -> None:
    run = a_run()
    changed(related(run))

    assert refused("report", {"run": "other"}) == f"run: other: expected a run of this collector: {run.id}"


def test_a_run_without_results_has_no_report_yet() -> None:
    run = a_run()
    changed(related(run))

    assert refused("report", {}) == (f"run: {run.id}: expected a run with a result; no unit has sent one yet")


@pytest.mark.parametrize(
    ("action", "params", "line"),
    [
        ("report", {"format": "xml"}, "format: xml: expected md, html, json or junit"),
        ("report", {"run": "../x"}, "run: ../x: expected "),
        (
            "compare",
            {"runs": "a"},
            "runs: a: expected two runs or more, or a run and seed:NAME, separated by commas",
        ),
        ("compare", {"runs": "a,b", "tolerance": -1}, "tolerance: -1.0: expected "),
    ],
)
def test_a_parameter_that_is_wrong_is_named(action: str, params: dict[str, Any], line: str) -> None:
    assert refused(action, params).startswith(line)


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
names = st.sampled_from(["run", "format", "runs", "tolerance", "more", ""])


@given(
    kind=st.sampled_from(["Report", "Compare", "Export", "Parameters"]),
    params=st.dictionaries(names, anything),
)
def test_parameters_are_understood_or_refused_in_one_line(kind: str, params: dict[str, Any]) -> None:
    """Whatever Juju lets through, as older ones do."""
    try:
        getattr(charm.parts["actions"], kind).read(params)
        line = "- : expected -"
    except UserError as refused:
        line = str(refused)
    assert ": expected " in line
    assert "\n" not in line


@FUZZED
@given(
    asked=st.one_of(
        st.tuples(
            st.sampled_from(["report", "export"]), st.fixed_dictionaries({"run": st.text(max_size=30)})
        ),
        st.tuples(
            st.just("compare"),
            st.fixed_dictionaries({"runs": st.text(max_size=30), "tolerance": st.floats()}),
        ),
    )
)
def test_no_action_is_a_crash(asked: tuple[str, dict[str, Any]]) -> None:
    """With no run here, what the schema lets through is refused in one line."""
    assert ": expected " in refused(*asked)


def test_runs_are_listed_with_the_newest_first() -> None:
    old, run = a_run(id="20200101-000000-juju-leases-small-1f3a", over=True), a_run()
    for each in (run, old):
        changed(related(each, {0: bag_of_unit(UNITS[0], a_word(each))}), unit=0)

    results = answered("list-runs")

    assert results["count"] == "2"
    assert results["runs"].splitlines() == [
        f"{run.id}  2 units, 0 reported  preparing: 0 of 2 units ready",
        f"{old.id}  2 units, 0 reported  ending: waiting for the results of 2 of 2 units",
    ]


def test_more_runs_than_can_be_listed_are_counted() -> None:
    for number in range(charm.LISTED + 3):
        changed(related(a_run(id=f"20261121-{number:06}-plan-1f3a")))

    results = answered("list-runs")

    assert results["count"] == str(charm.LISTED + 3)
    assert results["runs"].splitlines()[-1] == "and 3 older ones"


def test_the_status_action_says_what_every_unit_said_last() -> None:
    run = a_run(missing={UNITS[1]: "silent for more than 3m"})
    relation = related(run, {0: bag_of_unit(UNITS[0], a_word(run, phase="failed", problem="no room"))})
    changed(relation, unit=0)

    results = answered("status", relations=[relation])

    assert results["related"] == "load-claimer"
    assert results["run"] == run.id
    assert results["units"].splitlines() == [
        "load-claimer/0: failed: no room",
        "load-claimer/1: nothing heard; missing: silent for more than 3m",
    ]
