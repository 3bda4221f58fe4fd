"""Journals of which something is missing: found, told, and no threshold is met on them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.digest.parts_of_units import PLAN, names, shared, word, write_part
from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.digest.merge import gather
from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.report import write_report
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Journal
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import RunData, load_run

LIMITS = {
    "met": [{"operation": "extend", "p50": "1s", "error_rate": 1}],
    "missed": [{"operation": "extend", "max": "300ms"}],
}
STAGES = [
    MadeStage(300, over=2, hold=4),
    MadeStage(600, over=2, hold=6, failures={"extend.timeout": 30, "extend.lost": 2}),
]
"""What the second misses is at one moment, as what a target does when it stops: 32 of some hundred extensions."""


def plan_of(limits: str) -> dict[str, object]:
    return {**PLAN, "stages": [{"leases": 300}, {"leases": 600}], "thresholds": LIMITS[limits]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By outcome a run of two workers that nothing is missing of."""
    found = {}
    for limits in LIMITS:
        stages = [MadeStage(**{**vars(stage), "claim_ms": 200.0}) for stage in STAGES]
        path = tmp_path_factory.mktemp(limits)
        found[limits] = write_run(path, stages, workers=2, plan=plan_of(limits), events=FAULT)
    return found


FAULT = [
    {"t": 3.0, "event": "fault", "do": "kill", "member": "m1"},
    {"t": 4.0, "event": "fault", "do": "start", "member": "m1"},
]


def data_lines(path: Path) -> list[int]:
    """The lines of a journal that say something of the run: comments and titles of interval logs do not."""
    lines = path.read_bytes().split(b"\n")
    return [n for n, line in enumerate(lines) if line and not line.startswith((b"#", b'"'))]


def cut(path: Path, gone: Iterable[int]) -> None:
    """Take lines out of a file."""
    lines, out = path.read_bytes().split(b"\n"), set(gone)
    path.write_bytes(b"\n".join(line for n, line in enumerate(lines) if n not in out))


def expect_told(run: RunData, outcomes: Sequence[str] = ("withheld", "missed")) -> None:
    """A damaged run is not met, and every view of its report says that it is damaged."""
    analysis = analyse(run)
    verdict = analysis.verdict
    assert run.damage
    assert verdict.outcome in outcomes, verdict
    assert all(found.sentence in verdict.reasons for found in run.damage)
    for view in ("html", "md", "json"):
        assert "is damaged: " in write_report(analysis, view)
    suite = ElementTree.fromstring(write_report(analysis, "junit"))
    assert int(suite.get("errors", 0)) + int(suite.get("failures", 0)) > 0


@pytest.mark.parametrize("outcome", ["met", "missed"])
def test_of_a_whole_journal_nothing_is_missing(runs: dict[str, Path], outcome: str) -> None:
    run = load_run(runs[outcome])
    assert run.damage == []
    assert analyse(run).verdict.outcome == outcome
    assert "damaged" not in write_report(analyse(run), "md")


def test_lines_cut_out_of_a_histogram_log_make_no_miss_a_success(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    # given a run that missed what it did at one moment
    directory = Path(shutil.copytree(runs["missed"], tmp_path / "run"))
    begin = load_run(directory).stages[1].hold_begin
    assert begin is not None
    # when the intervals around that are cut out of its histogram logs
    for path in directory.glob("*.hlog"):
        lines = path.read_text().split("\n")
        late = [
            n
            for n in data_lines(path)
            if begin <= float(lines[n].split(",")[1]) < begin + 2 and "extend." in lines[n]
        ]
        assert late
        cut(path, late)
    run = load_run(directory)
    # then it says how much is missing, and when, and is withheld
    expect_told(run, ["withheld"])
    assert re.fullmatch(
        r"the journal of worker h-0 is damaged: \d+ samples are missing between 8.0 s and 10.0 s",
        run.damage[0].sentence,
    )
    assert analyse(run).verdict.sentence.startswith("Withheld: extend max was ")
    # and what was measured before that is as it was
    assert [check.met for check in analyse(run).verdict.checks] == [True, None]


@settings(max_examples=60, deadline=None)
@given(data=st.data(), outcome=st.sampled_from(["met", "missed"]))
def test_whatever_lines_are_cut_no_run_becomes_met_and_it_is_always_told(
    data: st.DataObject, outcome: str, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    # given a run
    directory = Path(shutil.copytree(runs[outcome], tmp_path_factory.mktemp("cut") / "run"))
    journals = sorted([*directory.glob("*.hlog"), *directory.glob("*.jsonl")])
    # when any lines are cut out of some of its journals
    for path in data.draw(st.lists(st.sampled_from(journals), min_size=1, unique=True), "journals"):
        there = data_lines(path)
        first = data.draw(st.integers(0, len(there) - 1), "first")
        last = data.draw(st.integers(first, len(there) - 1), "last")
        kept = data.draw(st.sets(st.integers(first + 1, last), max_size=5), "kept") if last > first else set()
        cut(path, [there[place] for place in range(first, last + 1) if place not in kept])
    # then it is not met, and says why
    expect_told(load_run(directory), ("withheld", "missed", "failed"))


@pytest.mark.parametrize("pattern", ["worker-h-1.hlog", "worker-h-1.jsonl", "worker-h-1.*", "events.jsonl"])
def test_a_journal_that_is_gone_is_told(runs: dict[str, Path], tmp_path: Path, pattern: str) -> None:
    directory = Path(shutil.copytree(runs["met"], tmp_path / "run"))
    for path in directory.glob(pattern):
        path.unlink()
    expect_told(load_run(directory), ["withheld"])


def test_a_run_without_thresholds_is_withheld_too(tmp_path: Path) -> None:
    directory = write_run(tmp_path, STAGES)
    assert analyse(load_run(directory)).verdict.outcome == "met"
    path = directory / "worker-h-0.hlog"
    cut(path, data_lines(path)[3:6])
    expect_told(load_run(directory), ["withheld"])


def test_what_a_worker_that_was_cut_had_not_written_is_no_damage(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    # given a run one of whose workers was killed, and its journals end with that, in the middle of a line
    directory = Path(shutil.copytree(runs["met"], tmp_path / "run"))
    manifest = Manifest.load(directory)
    manifest.workers[1].status, manifest.status = "cut", "cut"
    manifest.save(directory)
    for path in directory.glob("worker-h-1.jsonl"):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) * 2 // 3])
    # then it was cut, which is told, and nothing else is
    run = load_run(directory)
    assert run.damage == []
    assert analyse(run).verdict.outcome == "withheld"
    # when a line before that is gone, that is told too
    cut(directory / "worker-h-1.hlog", data_lines(directory / "worker-h-1.hlog")[4:5])
    expect_told(load_run(directory), ["withheld"])


def test_a_line_twice_is_damage(runs: dict[str, Path], tmp_path: Path) -> None:
    for name in ("worker-h-0.hlog", "worker-h-0.jsonl", "events.jsonl"):
        directory = Path(shutil.copytree(runs["met"], tmp_path / name))
        lines = (directory / name).read_bytes().split(b"\n")
        again = data_lines(directory / name)[0]
        lines.insert(again, lines[again])
        (directory / name).write_bytes(b"\n".join(lines))
        expect_told(load_run(directory), ["withheld"])


# ---- runs of many units ------------------------------------------------------------------------------


def test_a_units_damage_withholds_the_run_and_names_the_unit(tmp_path: Path) -> None:
    # given two units whose parts are met, and of one of them a second is missing
    plan = plan_of("met")
    parts = [write_part(tmp_path, number, STAGES, plan=plan) for number in range(2)]
    whole = {unit: make_digest(part) for unit, part in zip(names(2), parts, strict=True)}
    path = parts[1] / "worker-h-0.hlog"
    cut(path, data_lines(path)[6:9])
    damaged = {**whole, names(2)[1]: make_digest(parts[1])}
    words = {unit: word() for unit in names(2)}
    # when they are gathered
    before = load_run(gather(shared(2, plan), whole, words, tmp_path / "before"))
    run = load_run(gather(shared(2, plan), damaged, words, tmp_path / "out"))
    # then only the second is withheld
    assert (before.damage, analyse(before).verdict.outcome) == ([], "met")
    expect_told(run, ["withheld"])
    assert "load-claimer/1 worker h-0" in run.damage[0].sentence
    # and what is cut out of the gathered run itself is found there, too
    path = before.directory / "worker-load-claimer-0.hlog"
    cut(path, data_lines(path)[6:9])
    expect_told(load_run(before.directory), ["withheld"])


def test_a_journal_that_grows_is_not_damaged(tmp_path: Path) -> None:
    # given a worker that has written some seconds, and goes on
    directory = write_run(tmp_path, [], workers=0, status="complete")
    journal = Journal(directory, "0", 0.0)
    gauges = {"held": 1, "waiting": 0, "in_flight": 0, "cpu": 0.1, "loop_lag": 1.0, "rss": 50.0}
    for second in range(5):
        journal.interval(second, second + 1, {"extend.ok": Histogram.of([5] * 7)})
        journal.tick(second + 1, **gauges)
        assert load_run(directory).damage == []
    journal.interval(5, 6, {"extend.ok": Histogram.of([5] * 7)})
    assert load_run(directory).damage == []
    journal.close(tmp_path)
    assert load_run(directory).damage == []
