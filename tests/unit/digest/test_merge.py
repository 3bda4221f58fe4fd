"""Units' parts gathered into one run: the same as if all journals lay in one directory, and what is missing is said."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.digest.parts_of_units import PLAN, RUN, as_one_run, names, shared, word, write_part
from tests.unit.digest.test_unit_digest import HEAD, packed
from tests.unit.made.lxd_runs import FILL_PLAN, Fill, write_fill
from tests.unit.made.synthetic import STARTED, MadeGrowth, MadeStage, write_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.compare import compare
from tippingpoint.conduct.figure_messages import FiguresTold
from tippingpoint.conduct.run_state import Turn, UnitWord
from tippingpoint.digest.merge import gather
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.errors import UserError
from tippingpoint.report import write_report
from tippingpoint.rundir.figure_values import FigureValue
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.stages import StageResult

STAGES = [MadeStage(500), MadeStage(1000), MadeStage(2000)]
PERCENTILES = [0, 50, 90, 95, 99, 99.9, 100]


def gathered(path: Path, digests: Mapping[str, str], units: int, **fields: Any) -> RunData:
    words = fields.pop("words", {unit: word() for unit in names(units)})
    return load_run(gather(shared(units, **fields), digests, words, path))


def digests_of(path: Path, units: int, **options: Any) -> dict[str, str]:
    return {
        unit: make_digest(write_part(path, number, STAGES, **options))
        for number, unit in enumerate(names(units))
    }


def assert_same_figures(ours: StageResult, theirs: StageResult) -> None:
    assert (ours.number, ours.kind) == (theirs.number, theirs.kind)
    assert ours.begin == pytest.approx(theirs.begin, abs=0.002)
    assert ours.hold_begin == pytest.approx(theirs.hold_begin, abs=0.002)
    for told, exact in ((ours.histograms, theirs.histograms), (ours.held, theirs.held)):
        assert told.keys() == exact.keys()
        for tag, histogram in exact.items():
            assert told[tag].percentiles(PERCENTILES) == histogram.percentiles(PERCENTILES)
            assert (told[tag].counts == histogram.counts).all()
    assert ours.gauges == pytest.approx(theirs.gauges, abs=0.01)


made_stages = st.lists(
    st.builds(
        MadeStage,
        size=st.integers(10, 3000),
        claim_ms=st.floats(0.05, 900),
        extend_ms=st.floats(0.05, 900),
        spread=st.floats(0.01, 1.5),
        kind=st.sampled_from(["ramp", "storm"]),
        over=st.integers(0, 4),
        hold=st.integers(1, 12),
        cpu=st.floats(0.01, 1.0),
        failures=st.dictionaries(
            st.sampled_from(["claim.error", "extend.lost", "claim.denied", "extend.timeout"]),
            st.integers(1, 50),
        ),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None)
@given(stages=made_stages, units=st.integers(1, 4), workers=st.integers(1, 3), seed=st.integers(0, 1000))
def test_percentiles_of_gathered_digests_are_those_of_all_journals_together(
    stages: list[MadeStage], units: int, workers: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # given parts of one run, each by some workers
    path = tmp_path_factory.mktemp("parts")
    parts = [
        write_part(path, number, stages, workers=workers, seed=seed + number, plan=PLAN)
        for number in range(units)
    ]
    # when their digests, with room for everything, are gathered
    digests = {unit: make_digest(part, 10**6) for unit, part in zip(names(units), parts, strict=True)}
    ours = gathered(path / "out", digests, units, turns=[])
    # then it is the run that all journals make together
    theirs = load_run(as_one_run(path / "all", parts))
    assert len(ours.stages) == len(theirs.stages)
    for one, other in zip(ours.stages, theirs.stages, strict=True):
        assert_same_figures(one, other)
        assert one.end == pytest.approx(other.end, abs=0.002)
    for tag, curve in theirs.curves.items():
        assert ours.curves[tag].count.sum() == curve.count.sum()
    for operation, curve in theirs.costs.items():
        assert ours.costs[operation].count.sum() == curve.count.sum()
        assert ours.costs[operation].max.max() == curve.max.max()


def test_curves_over_time_keep_their_course(tmp_path: Path) -> None:
    # given two parts in which latency doubles from stage to stage
    stages = [MadeStage(500, extend_ms=ms, extends_per_second=200, hold=20) for ms in (10, 20, 40)]
    parts = [write_part(tmp_path, number, stages) for number in range(2)]
    digests = {unit: make_digest(part) for unit, part in zip(names(2), parts, strict=True)}
    ours, theirs = gathered(tmp_path, digests, 2, seconds=80), load_run(as_one_run(tmp_path / "all", parts))
    assert ours.bin_seconds == theirs.bin_seconds == 1.0
    exact, told = theirs.curves["extend.ok"], ours.curves["extend.ok"]
    assert told.t.tolist() == exact.t.tolist()
    assert told.count.tolist() == exact.count.tolist()
    assert told.p50 == pytest.approx(exact.p50, rel=0.05)
    assert told.p99 == pytest.approx(exact.p99, rel=0.15)
    assert ours.gauges.held.tolist() == theirs.gauges.held.tolist()


def test_joined_intervals_keep_rates_and_do_not_cross_phases(tmp_path: Path) -> None:
    # given parts of which a digest tells over several seconds only
    stages = [
        MadeStage(size, over=5, hold=90, extends_per_second=rate) for size, rate in ((500, 100), (1000, 400))
    ]
    parts = [write_part(tmp_path, number, stages) for number in range(2)]
    digests = {unit: make_digest(part, 12_000) for unit, part in zip(names(2), parts, strict=True)}
    ours, theirs = gathered(tmp_path, digests, 2, seconds=200), load_run(as_one_run(tmp_path / "all", parts))
    assert ours.bin_seconds > 1
    for one, other in zip(ours.stages, theirs.stages, strict=True):
        assert {tag: h.total for tag, h in one.held.items()} == {
            tag: h.total for tag, h in other.held.items()
        }
    curve = ours.curves["extend.ok"]
    rates = curve.count / ours.bin_seconds
    assert rates[(curve.t >= 20) & (curve.t < 80)] == pytest.approx(200, rel=0.2)
    assert rates[(curve.t >= 110) & (curve.t < 180)] == pytest.approx(800, rel=0.2)
    assert any("a point over time covers" in note for note in ours.notes)


def test_times_are_on_the_runs_clock_and_offsets_are_told(tmp_path: Path) -> None:
    # given a unit whose clock is two minutes ahead and one whose clock is 3 s behind, with workers begun before the run
    clocks = (0.0, 120.0, -3.0)
    digests = {
        unit: make_digest(write_part(tmp_path, number, STAGES, clock=clock))
        for number, (unit, clock) in enumerate(zip(names(3), clocks, strict=True))
    }
    words = {unit: word(offset=clock) for unit, clock in zip(names(3), clocks, strict=True)}
    # when it is gathered
    run = gathered(tmp_path, digests, 3, words=words)
    # then stages begin together
    assert [stage.begin for stage in run.stages] == [0.0, 10.0, 20.0]
    assert [stage.hold_begin for stage in run.stages] == [2.0, 12.0, 22.0]
    assert [unit.clock_offset for unit in run.units] == list(clocks)
    page = write_report(analyse(run), "md")
    assert "+120 s ± 1 ms" in page
    assert "-3 s ± 1 ms" in page


def test_the_first_unit_heard_is_the_clock_that_the_others_are_compared_with(tmp_path: Path) -> None:
    # given units of which the first was never heard, the second measured nothing, as did the last
    digests = {unit: make_digest(write_part(tmp_path, n, STAGES)) for n, unit in enumerate(names(4))}
    offsets = dict(zip(names(4)[1:], (None, 0.5, None), strict=True))
    # when it is gathered
    run = gathered(
        tmp_path, digests, 4, words={unit: word(offset=offset) for unit, offset in offsets.items()}
    )
    # then the second is what the run goes by, and the last is not known
    assert [unit.clock_offset for unit in run.units] == [None, 0.0, 0.5, None]
    assert [unit.clock_error for unit in run.units] == [None, 0.0, 0.001, None]


def test_what_was_made_before_the_run_began_is_left_out(tmp_path: Path) -> None:
    # given a part that began 40 s before the first turn, and had its loop watched meanwhile
    part = write_part(tmp_path, 0, [MadeStage(1, kind="ramp", over=0, hold=40), *STAGES])
    text = (part / "worker-h-0.jsonl").read_text()
    lines = [line for line in text.splitlines() if not ('"stage":1,' in line or '"t":0.0' in line)]
    (part / "worker-h-0.jsonl").write_text("".join(f"{line}\n" for line in lines))
    run = gathered(tmp_path, {names(1)[0]: make_digest(part)}, 1, started=STARTED + 40)
    assert [stage.begin for stage in run.stages] == [0.0, 10.0, 20.0]
    assert run.curves["generator.loop-lag"].count.sum() == 30 * 20


def test_stages_have_the_whole_plans_size(tmp_path: Path) -> None:
    parts = [
        write_part(tmp_path, number, [MadeStage(size // 4) for size in (500, 1000, 2000)])
        for number in range(4)
    ]
    run = gathered(tmp_path, {u: make_digest(p) for u, p in zip(names(4), parts, strict=True)}, 4)
    assert [stage.size for stage in run.stages] == [500, 1000, 2000]
    assert run.manifest.title == "etcd-leases"
    assert write_report(analyse(run), "html")


def test_a_storm_that_was_asked_for_does_not_move_the_stages_after_it(tmp_path: Path) -> None:
    stages = [MadeStage(125), MadeStage(250), MadeStage(250, kind="storm"), MadeStage(500)]
    parts = [write_part(tmp_path, number, stages) for number in range(4)]
    digests = {u: make_digest(p) for u, p in zip(names(4), parts, strict=True)}
    last = Turn(number=4, stage=3, kind="ramp", of=4, begin=STARTED, hold=STARTED, lasts=60)
    for turns in ([last], []):
        run = gathered(tmp_path, digests, 4, turns=turns)
        assert [(s.size, s.kind) for s in run.stages] == [
            (500, "ramp"),
            (1000, "ramp"),
            (1000, "storm"),
            (2000, "ramp"),
        ]


def test_a_unit_that_joined_later_has_a_share_from_then_on(tmp_path: Path) -> None:
    # given a unit that was there for the last stage only, and one that came too late for any
    whole = write_part(tmp_path, 0, STAGES)
    late = write_part(tmp_path, 1, [MadeStage(2000)])
    journal = (late / "worker-h-0.jsonl").read_text().replace('"stage":1,', '"stage":3,')
    (late / "worker-h-0.jsonl").write_text(journal)
    manifest = Manifest.load(late)
    manifest.started += 20
    manifest.save(late)
    turn = Turn(number=3, stage=3, kind="ramp", of=2, begin=STARTED, hold=STARTED, lasts=60)
    digests = {"load-claimer/0": make_digest(whole), "load-claimer/1": make_digest(late)}
    run = gathered(tmp_path, digests, 3, turns=[turn])
    assert [stage.begin for stage in run.stages] == [0.0, 10.0, 20.0]
    assert run.stages[2].gauges["held"] == 4000
    assert [(unit.name, unit.status) for unit in run.units] == [
        ("load-claimer/0", "complete"),
        ("load-claimer/1", "complete"),
        ("load-claimer/2", "idle"),
    ]
    assert analyse(run).verdict.outcome == "met"


# ---- a unit that stood still -----------------------------------------------------------------------


@pytest.mark.parametrize("room", [40_000, 6_000])
def test_what_was_late_because_a_unit_stood_still_is_withheld_and_names_it(tmp_path: Path, room: int) -> None:
    # given two units, one of which stood still for three quarters of a second, and limits that the others kept
    plan = {**PLAN, "thresholds": [{"operation": "extend", "max": "500ms"}]}
    stages = [[MadeStage(500, hold=8, stood_still_ms=still)] for still in (0.0, 750.0)]
    parts = [write_part(tmp_path, number, made, plan=plan) for number, made in enumerate(stages)]
    digests = {unit: make_digest(part, room) for unit, part in zip(names(2), parts, strict=True)}
    # when they are gathered and judged, with all digits or few
    run = gathered(tmp_path, digests, 2, plan=plan)
    verdict = analyse(run).verdict
    # then it is nobody else's
    assert verdict.outcome == "withheld"
    assert "the generator itself was stopped for 750 ms" in verdict.sentence
    assert [(stall.worker, stall.seconds) for stall in run.stalls] == [("load-claimer/1 worker h-0", 0.75)]
    for format in ("html", "md", "json"):
        assert "load-claimer/1 worker h-0 stopped for 750 ms" in write_report(analyse(run), format)


# ---- what is missing ------------------------------------------------------------------------------


def test_a_missing_unit_withholds_the_verdict_and_says_why(tmp_path: Path) -> None:
    digests = digests_of(tmp_path, 3)
    run = gathered(tmp_path, digests, 4, missing={"load-claimer/3": "silent for more than 3m"})
    verdict = analyse(run).verdict
    why = "load-claimer/3 is missing: silent for more than 3m, its share of the load was not measured"
    assert (verdict.outcome, verdict.sentence) == ("withheld", f"Withheld: {why}.")
    assert why in verdict.reasons
    assert [w.name for w in run.manifest.workers if w.status == "cut"] == ["load-claimer/3"]
    assert [(unit.name, unit.status) for unit in run.units][3] == ("load-claimer/3", "missing")
    for format in ("html", "md", "json", "junit"):
        assert "load-claimer/3" in write_report(analyse(run), format)


def test_a_missing_unit_withholds_the_verdict_of_a_plan_without_thresholds(tmp_path: Path) -> None:
    plan = {**PLAN, "thresholds": []}
    run = gathered(tmp_path, digests_of(tmp_path, 1), 2, plan=plan)
    assert analyse(run).verdict.sentence == (
        "Withheld: load-claimer/1 is missing: its result did not arrive, its share of the load was not measured."
    )


def test_a_miss_by_latency_stands_although_a_unit_is_missing_and_one_by_throughput_does_not(
    tmp_path: Path,
) -> None:
    slow = {**PLAN, "thresholds": [{"operation": "claim", "p50": "1ms"}]}
    few = {**PLAN, "thresholds": [{"operation": "extend", "throughput": 1000}]}
    digests = digests_of(tmp_path, 1)
    assert analyse(gathered(tmp_path, digests, 2, plan=slow)).verdict.outcome == "missed"
    verdict = analyse(gathered(tmp_path, digests, 2, plan=few)).verdict
    assert verdict.outcome == "withheld"
    assert "a share of the load is missing" in verdict.sentence
    assert analyse(gathered(tmp_path, digests, 1, plan=few)).verdict.outcome == "missed"


def test_a_unit_that_went_away_counts_for_what_it_measured(tmp_path: Path) -> None:
    # given a unit that ended after two stages
    digests = digests_of(tmp_path, 1)
    part = write_part(tmp_path, 1, STAGES[:2], status="cut", reason="the run's process is gone")
    digests["load-claimer/1"] = make_digest(part)
    run = gathered(tmp_path, digests, 2)
    verdict = analyse(run).verdict
    why = "load-claimer/1 was cut: the run's process is gone, its share of the load was missing from then on"
    assert verdict.sentence == f"Withheld: {why}; passed up to 1,000 leases."
    assert run.stages[0].gauges["held"] == 1000
    assert run.stages[2].gauges["held"] == 2000


@pytest.mark.parametrize(("units", "more"), [(100, "96 more units"), (5, "1 more unit")])
def test_many_missing_units_are_one_sentence(tmp_path: Path, units: int, more: str) -> None:
    verdict = analyse(gathered(tmp_path, digests_of(tmp_path, 1), units)).verdict
    assert verdict.sentence == (
        f"Withheld: load-claimer/1, load-claimer/2, load-claimer/3 and {more} are missing: its result did not "
        "arrive, their shares of the load were not measured."
    )


def test_a_run_of_which_nothing_came_is_no_traceback(tmp_path: Path) -> None:
    run = gathered(tmp_path, {}, 2, words={}, turns=[], started=None)
    assert run.stages == []
    assert {unit.status for unit in run.units} == {"idle"}
    for format in ("html", "md", "json", "junit"):
        assert write_report(analyse(run), format)


def test_a_run_in_which_every_unit_failed_has_failed(tmp_path: Path) -> None:
    words = {unit: word(phase="failed", problem="target.endpoints: refused") for unit in names(2)}
    run = gathered(tmp_path, {}, 2, words=words, turns=[], started=None)
    assert (
        analyse(run).verdict.sentence == "Failed: load-claimer/0, load-claimer/1: target.endpoints: refused."
    )


def test_a_run_that_goes_on_is_not_yet_judged(tmp_path: Path) -> None:
    run = gathered(tmp_path, digests_of(tmp_path, 1), 2, over=False)
    verdict = analyse(run).verdict
    assert verdict.outcome == "withheld"
    assert "the run was cut: not all of its units have ended their parts" in verdict.reasons


def test_figures_that_the_leader_asked_for_are_those_of_the_stages(tmp_path: Path) -> None:
    limit = {"figure": "etcd-memory", "role": "leader", "at_most": "1GB"}
    known = FiguresTold(
        texts=["etcd-0", "it was away"],
        values=[(1, 0, 5e8, 1, 0.01, 0), (2, 0, None, 0, None, 2), (3, 7, 1.0, 0, None, 0)],
        unwatched="it was away",
    )
    plan = {**PLAN, "thresholds": [limit]}
    run = gathered(tmp_path, digests_of(tmp_path, 2), 2, plan=plan, figures=known)
    name = "etcd-memory of the leader"
    assert [stage.figures.get(name) for stage in run.stages] == [
        FigureValue(stage=1, name=name, value=5e8, host="etcd-0", error=0.01),
        FigureValue(stage=2, name=name, value=None, why="it was away"),
        None,
    ]
    (note,) = (event["text"] for event in run.events if event["event"] == "note")
    assert note == "figures with abort were not watched all the time: it was away"


def test_a_run_that_was_stopped_says_why_once(tmp_path: Path) -> None:
    interrupted = [{"t": 30.0, "event": "interrupted"}, {"t": 30.1, "event": "cleaned", "removed": 3}]
    digests = digests_of(
        tmp_path, 3, events=interrupted, status="interrupted", reason="ended early on request"
    )
    run = gathered(tmp_path, digests, 3, stopped="asked for by an action")
    assert (run.manifest.status, run.manifest.reason) == ("interrupted", "asked for by an action")
    assert {unit.status for unit in run.units} == {"complete"}
    assert [event["event"] for event in run.events] == ["interrupted", "cleaned"]
    assert run.events[-1]["removed"] == 9


def test_what_a_unit_left_behind_is_removed_by_its_action(tmp_path: Path) -> None:
    left = [{"t": 30.0, "event": "left-behind", "problem": "quorum lost", "remedy": "tippingpoint clean /x"}]
    run = gathered(tmp_path, digests_of(tmp_path, 1, events=left), 1)
    assert "load-claimer/0: quorum lost; when it is back: juju run load-claimer/0 clean" in write_report(
        analyse(run), "json"
    )


def test_the_command_that_repeats_a_plan_of_ones_own_hands_juju_text(tmp_path: Path) -> None:
    run = gathered(tmp_path, digests_of(tmp_path, 1), 1)
    command = 'juju run --string-args load-claimer/leader start plan-yaml=\\"$(cat etcd-leases.yaml)\\"'
    assert command in write_report(analyse(run), "json")


def test_a_note_names_its_unit_once_and_a_part_that_was_taken_up_is_told_of_its_unit(tmp_path: Path) -> None:
    # given a unit whose part was cut in its second stage and taken up: both of its halves have the same note
    note = {"t": 0.0, "event": "note", "text": "there was no lock"}
    taken = {"t": 20.0, "event": "taken-up", "stage": 2, "after": 9.0, "there": 5, "again": True}
    run = gathered(tmp_path, digests_of(tmp_path, 1, events=[note, note, taken]), 1)
    assert "load-claimer/0: there was no lock" in run.notes
    why = (
        "load-claimer/0 was cut, and resumed 9 s later, in stage 2: "
        "earlier measurements of that stage are left out"
    )
    verdict = analyse(run).verdict
    assert (verdict.outcome, verdict.reasons) == ("withheld", [why])
    assert why in write_report(analyse(run), "md")


@pytest.mark.parametrize(
    "words", [{"load-claimer/0": word(phase="failed", problem="lab: bob was refused")}, {}]
)
def test_a_run_that_nobody_could_begin_says_why(tmp_path: Path, words: dict[str, UnitWord]) -> None:
    run = gathered(
        tmp_path,
        {},
        1,
        words=words,
        started=None,
        turns=[],
        missing={"load-claimer/0": "lab: bob was refused"},
    )
    verdict = analyse(run).verdict
    assert (verdict.outcome, verdict.sentence) == ("failed", "Failed: load-claimer/0: lab: bob was refused.")
    assert verdict.sentence in write_report(analyse(run), "md")


def test_gathering_again_replaces(tmp_path: Path) -> None:
    # given a run that was gathered before a result came, and notes of somebody else beside it
    digests = digests_of(tmp_path, 2)
    first = gather(shared(2), {**digests, "load-claimer/1": "garbage"}, {}, tmp_path / "out")
    (first / "load-claimer-1.digest").write_text("kept")
    assert [w.status for w in Manifest.load(first).workers] == ["complete", "cut"]
    # when it is gathered again, twice
    words = {unit: word() for unit in names(2)}
    assert gather(shared(2), digests, words, tmp_path / "out") == first
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    gather(shared(2), digests, words, tmp_path / "out")
    # then it is what it is now, all of it
    assert {path.name: path.read_bytes() for path in first.iterdir()} == before
    assert [w.status for w in load_run(first).manifest.workers] == ["complete", "complete"]
    assert (first / "load-claimer-1.digest").read_text() == "kept"
    # and units that are gone leave nothing
    gather(shared(1), digests, words, tmp_path / "out")
    assert sorted(path.name for path in first.glob("worker-*")) == [
        "worker-load-claimer-0.hlog",
        "worker-load-claimer-0.jsonl",
    ]


def test_gathered_runs_are_compared_like_any(tmp_path: Path) -> None:
    fast = gathered(tmp_path / "a", digests_of(tmp_path / "a", 2), 2)
    slow_parts = [
        write_part(tmp_path / "b", n, [MadeStage(s, extend_ms=9) for s in (500, 1000, 2000)]) for n in (0, 1)
    ]
    slow = gathered(tmp_path / "b", {u: make_digest(p) for u, p in zip(names(2), slow_parts, strict=True)}, 2)
    compared = compare([fast, slow])
    changes = {
        row.size: row.against[0].change
        for row in compared.rows
        if (row.operation, row.measure) == ("extend", "p50")
    }
    assert sorted(changes) == [500, 1000, 2000]
    assert all(change is not None and 4 < change < 5 for change in changes.values())


def test_growth_and_members_of_fills_add_up(tmp_path: Path) -> None:
    # given a fill by two units, in which a member is lost
    parts = [
        write_fill(tmp_path / f"fill-{n}", [Fill(20), Fill(40, lose="lxd2")], plan=FILL_PLAN)
        for n in range(2)
    ]
    digests: dict[str, str] = {}
    for number, part in enumerate(parts):
        manifest = Manifest.load(part)
        manifest.id = f"{RUN}.{number}"
        manifest.started = STARTED
        manifest.save(part)
        digests[names(2)[number]] = make_digest(part, 100_000)
    plan = {**FILL_PLAN, "stages": FILL_PLAN["stages"][:2]}
    ours = gathered(tmp_path, digests, 2, plan=plan, seconds=200)
    theirs = load_run(as_one_run(tmp_path / "all", parts))
    for one, other in zip(ours.stages, theirs.stages, strict=True):
        assert np.asarray(one.growth) == pytest.approx(np.asarray(other.growth), abs=0.01)
    told = [(e["event"], e.get("member")) for e in ours.events if e["event"] in ("member", "leader", "lost")]
    assert told == [
        (e["event"], e.get("member")) for e in theirs.events if e["event"] in ("member", "leader", "lost")
    ]
    page = write_report(analyse(ours), "html")
    assert 'id="units"' in page
    assert 'id="members"' in page


def test_a_model_that_grows_by_units_adds_up(tmp_path: Path) -> None:
    stages = [MadeGrowth(50, 50, {"add-unit": (40, 60), "status": (9, 20)}) for _ in range(2)]
    plan = {
        "name": "juju-units",
        "target": {"kind": "juju"},
        "workload": {"kind": "grow"},
        "stages": [{"applications": 10, "units": 10}, {"applications": 10, "units": 20}],
    }
    parts = [write_part(tmp_path, n, stages, plan=plan, workload="grow", load_unit="units") for n in range(2)]
    ours = gathered(tmp_path, {u: make_digest(p) for u, p in zip(names(2), parts, strict=True)}, 2, plan=plan)
    theirs = load_run(as_one_run(tmp_path / "all", parts))
    assert [stage.size for stage in ours.stages] == [100, 200]
    assert ours.stages[0].count("add-unit") == theirs.stages[0].count("add-unit")
    assert ours.stages[0].throughput("add-unit") == pytest.approx(theirs.stages[0].throughput("add-unit"))


def test_a_search_is_gathered_from_its_one_unit(tmp_path: Path) -> None:
    plan = {
        "name": "etcd-find",
        "find": {"start": 100, "limit": 1000, "hold": "40s"},
        "thresholds": PLAN["thresholds"],
    }
    events = [
        *(
            {
                **{"t": 9.0 * number, "event": "probe", "stage": number, "size": 1000, "held": True},
                **{"fresh": number == 1, "margins": [["extend p99", -1.5, 0.05]], "broken": []},
                **{"began": 9.0 * (number - 1), "seconds": 9.0, "strained": ""},
            }
            for number in (1, 2)
        ),
        {"t": 29.0, "event": "found", "ended": "limit", "limit": None, "low": 1000, "high": None},
    ]
    stages = [MadeStage(1000, kind="find"), MadeStage(1000, kind="find")]
    part = write_part(tmp_path, 0, stages, events=events)
    run = gathered(tmp_path, {"load-claimer/0": make_digest(part)}, 1, plan=plan, started=None, turns=[])
    assert [(stage.size, stage.kind) for stage in run.stages] == [(1000, "find"), (1000, "find")]
    assert analyse(run).verdict.sentence == (
        "Met: the limit is above 1,000 leases, the largest load that the plan allows: it passed in 2 of 2 probes."
    )
    assert write_report(analyse(run), "html")


# ---- what cannot be believed ----------------------------------------------------------------------

FAR = [{"stage": 1, "size": 5, "phase": "begin", "begin": 10**9, "length": 10**9}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "its result cannot be read: digest: "),
        ("A" * 70_000, "its result cannot be read: digest: "),
        (packed({**HEAD, "run": "20200101-000000-other-0001.0"}), "its result belongs to another run"),
        (packed({**HEAD, "run": RUN}), "its result belongs to another run"),
        (packed({**HEAD, "unit": "load-claimer/7", "run": f"{RUN}.1"}), "its result belongs to another run"),
        (packed({**HEAD, "run": f"{RUN}.1", "unit": "", "phases": FAR}), "its times do not fit the run"),
        (packed({**HEAD, "run": f"{RUN}.1", "unit": "", "started": 0.0}), "its times do not fit the run"),
        (packed({**HEAD, "run": f"{RUN}.1", "unit": "", "started": 9e10}), "its times do not fit the run"),
        (packed({**HEAD, "run": f"{RUN}.1", "unit": "", "phases": []}), "it measured nothing"),
    ],
)
def test_a_result_that_is_none_is_a_missing_unit_with_one_line_why(
    tmp_path: Path, text: str, why: str
) -> None:
    # given one good result and one that is not
    good = digests_of(tmp_path, 1)
    alone = gathered(tmp_path / "alone", good, 1)
    # when both are gathered
    run = gathered(tmp_path, {**good, "load-claimer/1": text}, 2)
    # then the good one counts alone, and the other is said to be missing
    (missing,) = [unit for unit in run.units if unit.status == "missing"]
    assert missing.name == "load-claimer/1"
    assert missing.why.startswith(why)
    assert "\n" not in missing.why
    assert analyse(run).verdict.outcome == "withheld"
    for one, other in zip(run.stages, alone.stages, strict=True):
        assert_same_figures(one, other)
    assert run.bin_seconds == alone.bin_seconds


def test_events_of_a_digest_cannot_pass_for_others(tmp_path: Path) -> None:
    forged = [
        {"t": 1.0, "event": "stage", "stage": 9, "size": 1, "kind": "ramp", "phase": "begin"},
        {
            "t": 1.0,
            "event": "tick",
            "held": 1,
            "waiting": 0,
            "in_flight": 0,
            "cpu": 9.0,
            "loop_lag": 0,
            "rss": 0,
        },
        {"t": 1.0, "event": "found", "held": 1},
        {"t": 1.0, "event": "unit", "name": "x"},
        {"t": 1.0, "event": "gathered", "interval": 10**6},
        {"t": 1.0, "event": "left-to-expire", "leases": "many"},
        {"t": 9e8, "event": "fault", "self": 1, "do": "kill"},
    ]
    text = packed({**HEAD, "unit": "", "events": forged})
    run = gathered(tmp_path, {"load-claimer/0": text}, 1)
    assert [stage.number for stage in run.stages] == [1]
    assert [(event["event"], event["t"]) for event in run.events] == [("fault", 1.0)]
    assert [unit.name for unit in run.units] == ["load-claimer/0"]
    assert run.bin_seconds == 1.0
    assert write_report(analyse(run), "html")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=5,
)
phases = st.lists(
    st.fixed_dictionaries(
        {
            "stage": st.integers(0, 4),
            "size": st.integers(0, 100),
            "kind": st.sampled_from(["ramp", "storm", "destroy", "find"]),
            "phase": st.sampled_from(["", "begin", "hold", "drain", "end"]),
            "begin": st.integers(0, 40_000),
            "length": st.integers(0, 9_000),
        }
    ),
    max_size=5,
)
KINDS = (
    "error",
    "lost",
    "member",
    "placed",
    "leader",
    "retry",
    "gave-up",
    "prepared",
    "left-behind",
    "note",
    "fault",
)
FIELDS = (
    *("operation", "outcome", "error", "count", "counts", "member", "status", "lease", "held_for", "seconds"),
    *("do", "worker", "text", "problem", "kind", "removed", "containers"),
)
events = st.lists(
    st.fixed_dictionaries(
        {"t": st.floats(0, 100), "event": st.sampled_from([*KINDS, "x"])},
        optional=dict.fromkeys(FIELDS, json_values),
    ),
    max_size=4,
)


@settings(max_examples=100, deadline=None)
@given(
    changes=st.dictionaries(st.sampled_from(sorted(HEAD)), json_values, max_size=2),
    phases=phases,
    events=events,
    numbers=st.lists(st.integers(0, 9), max_size=30).map(bytes),
    offset=st.none() | st.floats(-1e11, 1e11),
)
def test_whatever_a_unit_hands_over_there_is_a_report(
    changes: dict[str, Any],
    phases: list[dict[str, Any]],
    events: list[dict[str, Any]],
    numbers: bytes,
    offset: float | None,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("fuzz")
    placed: list[dict[str, Any]] = []
    for phase in sorted(
        phases,
        key=lambda phase: (phase["stage"], ["", "begin", "hold", "drain", "end"].index(phase["phase"])),
    ):
        begin = placed[-1]["begin"] + placed[-1]["length"] if placed else 0
        placed.append({**phase, "begin": begin})
    head = {
        **HEAD,
        "unit": "",
        "started": STARTED,
        "phases": placed,
        "events": events,
        "histograms": 1,
        **changes,
    }
    words = {"load-claimer/0": word(offset=offset)}
    run = gathered(path, {"load-claimer/0": packed(head, numbers)}, 1, words=words)
    assert len(run.units) == 1
    analysis = analyse(run)
    for format in ("html", "md", "json", "junit"):
        assert write_report(analysis, format)


def test_a_plan_that_is_none_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"run: .*: expected a plan that this version reads"):
        gather(shared(1, plan={"name": "x", "stages": "none"}), {}, {}, tmp_path)


def test_where_nothing_can_be_written_it_says_so_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(UserError, match="--out: "):
        gather(shared(1), {}, {}, tmp_path / "out")


def test_an_ordinary_run_has_no_units(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", STAGES, plan=PLAN))
    assert run.units == []
    assert 'id="units"' not in write_report(analyse(run), "html")
    assert "## Units" not in write_report(analyse(run), "md")
