"""A part that was taken up again, put together from its directories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tippingpoint.agent.joining import digest_of, join
from tippingpoint.analysis.analyse import analyse
from tippingpoint.digest.unit_digest import read_digest
from tippingpoint.report import write_report
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Manifest, RunStatus, TargetEntry, WorkerEntry
from tippingpoint.rundir.recorder import Recorded
from tippingpoint.rundir.results import load_run
from tippingpoint.rundir.takeovers import KIND, takeovers

STARTED = 1_790_000_000.0
GAUGES = {"held": 5, "waiting": 0, "in_flight": 0, "up": True, "cpu": 0.1, "loop_lag": 1.0, "rss": 50.0}


def written(
    directory: Path, name: str, started: float, stages: Sequence[int], status: RunStatus, last_ends: bool
) -> Path:
    """A part that played these stages, 10 s each, with one `create` a second; cut in its last one or not."""
    path = directory / name
    path.mkdir()
    manifest = Manifest(id=name, title="fill", target=TargetEntry(kind="lxd"), started=started, status=status)
    first = stages[0] if stages else 1
    updates = {"workload": "spawn", "load_unit": "containers", "first_stage": first}
    manifest.model_copy(update={**updates, "workers": [WorkerEntry(name="0", status="complete")]}).save(path)
    events = Events(path / "events.jsonl")
    events.write(1.0, "note", text=f"of {name}")
    events.close(path)
    journal = Journal(path, "0", started)
    for place, stage in enumerate(stages):
        begin = 10.0 * place
        for t, phase in ((begin, "begin"), (begin + 2, "hold")):
            journal.events.write(t, "stage", stage=stage, size=5, kind="ramp", phase=phase)
        for second in range(10):
            journal.interval(begin + second, begin + second + 1, {"create.ok": Recorded([1000 * stage])})
            journal.tick(begin + second + 1, **GAUGES)
        if last_ends or stage != stages[-1]:
            journal.events.write(begin + 10, "stage", stage=stage, size=5, kind="ramp", phase="end")
    journal.close(path)
    return path


def test_a_stage_that_is_played_again_counts_as_the_last_time(tmp_path: Path) -> None:
    # given a part that was cut in its second stage, and taken up again there 100 s after its beginning
    one = written(tmp_path, "r-1f3a.0", STARTED, [1, 2], "cut", last_ends=False)
    other = written(tmp_path, "r-1f3a.0.2", STARTED + 100, [2, 3], "complete", last_ends=True)
    # when both are put together
    (tmp_path / "whole").mkdir()
    join([one, other], tmp_path / "whole")
    # then every stage is there once, at its time
    run = load_run(tmp_path / "whole")
    assert (run.manifest.id, run.manifest.started, run.manifest.status) == ("r-1f3a.0.2", STARTED, "complete")
    assert run.manifest.first_stage == 1
    assert [(stage.number, stage.begin, stage.count("create")) for stage in run.stages] == [
        (1, 0.0, 10),
        (2, 100.0, 10),
        (3, 110.0, 10),
    ]
    assert [stage.gauges["held"] for stage in run.stages] == [5, 5, 5]
    assert [(event["t"], event["text"]) for event in run.events if event["event"] == "note"] == [
        (1.0, "of r-1f3a.0"),
        (101.0, "of r-1f3a.0.2"),
    ]
    assert not [note for note in run.notes if "damaged" in note]
    assert run.damage == []


def test_what_is_missing_from_a_part_is_told_once(tmp_path: Path) -> None:
    """Given a part from whose journal the seconds 3 and 4 are missing, then the whole lacks them, and no more."""
    one = written(tmp_path, "r-1f3a.0", STARTED, [1, 2], "cut", last_ends=False)
    other = written(tmp_path, "r-1f3a.0.2", STARTED + 100, [2, 3], "complete", last_ends=True)
    log = one / "worker-0.hlog"
    kept = [
        line for line in log.read_text().splitlines(keepends=True) if not re.match(r"Tag=[^,]+,[34]\.", line)
    ]
    log.write_text("".join(kept))
    (tmp_path / "whole").mkdir()
    join([one, other], tmp_path / "whole")
    assert [found.what for found in load_run(tmp_path / "whole").damage] == [
        "2 samples are missing between 3.0 s and 5.0 s"
    ]


def test_that_it_was_cut_is_told_and_withholds_what_was_not_whole(tmp_path: Path) -> None:
    # given the same, of a unit whose results reach the report by its digest
    one = written(tmp_path, "r-1f3a.0", STARTED, [1, 2], "cut", last_ends=False)
    other = written(tmp_path, "r-1f3a.0.2", STARTED + 100, [2, 3], "complete", last_ends=True)
    (tmp_path / "whole").mkdir()
    join([one, other], tmp_path / "whole")
    run = load_run(tmp_path / "whole")
    # then stages that were whole have their end, which is when the next one began
    assert [stage.end for stage in run.stages] == [10.0, 110.0, 120.0]
    # and a line says what happened, which the digest carries too
    (taken,) = takeovers(run.events)
    assert (taken.stage, taken.after, taken.there, taken.again) == (2, 80.0, 5, True)
    (event,) = [e for e in read_digest(digest_of([one, other])).head.events if e["event"] == KIND]
    assert event == {"t": 100.0, "event": KIND, "stage": 2, "after": 80.0, "there": 5, "again": True}
    why = "a part was cut, and resumed 1 min 20 s later, in stage 2: earlier measurements of that stage are left out"
    verdict = analyse(run).verdict
    assert (verdict.outcome, verdict.reasons) == ("withheld", [why])
    assert why in write_report(analyse(run), "json")


def test_what_was_whole_when_it_was_cut_is_a_note(tmp_path: Path) -> None:
    one = written(tmp_path, "r-1f3a.0", STARTED, [1, 2], "cut", last_ends=True)
    other = written(tmp_path, "r-1f3a.0.2", STARTED + 30, [3], "complete", last_ends=True)
    (tmp_path / "whole").mkdir()
    join([one, other], tmp_path / "whole")
    run = load_run(tmp_path / "whole")
    assert analyse(run).verdict.reasons == []
    assert "a part was cut, and resumed 10 s later, in stage 3" in write_report(analyse(run), "json")


def test_what_is_gone_on_with_later_keeps_all_there_was(tmp_path: Path) -> None:
    one = written(tmp_path, "r-1f3a.0", STARTED, [1, 2], "cut", last_ends=False)
    later = written(tmp_path, "r-1f3a.0.2", STARTED + 100, [3], "cut", last_ends=False)
    never = written(tmp_path, "r-1f3a.0.3", STARTED + 200, [], "cut", last_ends=True)
    (tmp_path / "whole").mkdir()
    join([one, later, never], tmp_path / "whole")
    run = load_run(tmp_path / "whole")
    assert [(stage.number, stage.count("create")) for stage in run.stages] == [(1, 10), (2, 10), (3, 10)]
    assert run.stages[1].end is None


def test_the_digest_is_of_all_that_there_is(tmp_path: Path) -> None:
    one = written(tmp_path, "r-1f3a.0", STARTED, [1, 2], "cut", last_ends=False)
    other = written(tmp_path, "r-1f3a.0.2", STARTED + 100, [2], "complete", last_ends=True)
    assert {phase.stage for phase in read_digest(digest_of([one, other])).head.phases} == {0, 1, 2}
    assert read_digest(digest_of([one, tmp_path / "none"])).head.run == "r-1f3a.0"
    assert digest_of([tmp_path / "none"]) == ""
    for path in one.glob("worker-*"):
        path.unlink()
    assert digest_of([one]) == ""  # refused before its workers began


def test_damaged_lines_stay_out_of_the_way(tmp_path: Path) -> None:
    one = written(tmp_path, "r-1f3a.0", STARTED, [1], "cut", last_ends=False)
    other = written(tmp_path, "r-1f3a.0.2", STARTED + 100, [2], "complete", last_ends=True)
    with open(one / "worker-0.hlog", "ab") as log:
        log.write(b"Tag=create.ok\nTag=create.ok,x,1,1,abc\nTag=create.ok,5.0")
    with open(one / "worker-0.jsonl", "ab") as log:
        log.write(b'{"t": 3')
    (tmp_path / "whole").mkdir()
    join([one, other], tmp_path / "whole")
    run = load_run(tmp_path / "whole")
    assert [stage.count("create") for stage in run.stages] == [10, 10]


@pytest.mark.parametrize("missing", ["worker-0.hlog", "worker-0.jsonl", "events.jsonl"])
def test_a_journal_that_was_never_begun_is_none(tmp_path: Path, missing: str) -> None:
    one = written(tmp_path, "r-1f3a.0", STARTED, [1], "cut", last_ends=False)
    (one / missing).unlink()
    other = written(tmp_path, "r-1f3a.0.2", STARTED + 100, [2], "complete", last_ends=True)
    (tmp_path / "whole").mkdir()
    join([one, other], tmp_path / "whole")
    assert load_run(tmp_path / "whole").stages[-1].count("create") == 10
