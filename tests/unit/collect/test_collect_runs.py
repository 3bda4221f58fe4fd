"""What a collector keeps of runs: whole files, the newest runs, and where each run is."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.collect.runs import KEPT, RESULTS_WITHIN, Runs, forget_oldest
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitProgress, UnitWord, silent_after
from tippingpoint.errors import UserError
from tippingpoint.plan.read import load_plan

UNITS = ["load-claimer/0", "load-claimer/1", "load-claimer/2"]
GONE = ".other.new"


def a_run(**changes: object) -> SharedRun:
    run = begin_run(load_plan("juju-leases-small"), UNITS, 1_780_000_000.0)
    return run.model_copy(update=changes)


def a_word(run: SharedRun, phase: str = "up", **changes: object) -> UnitWord:
    return UnitWord.model_validate({"run": run.id, "phase": phase, "t": run.made, **changes})


def gone_meanwhile(directory: Path) -> None:
    """Have a file in a directory that is listed and is no more when it is looked at."""
    (directory / GONE).symlink_to(directory / "nowhere")


def test_a_run_is_found_as_it_was_kept(tmp_path: Path) -> None:
    """Given a run, words and digests, when they are kept, then another process reads the same."""
    run = a_run()
    kept = Runs(tmp_path / "runs")
    kept.keep(run)
    kept.keep_word(UNITS[1], a_word(run, turn=2))
    kept.keep_digest(UNITS[1], run.id, "abc")

    found = Runs(tmp_path / "runs").find("")

    assert found.shared == run
    assert found.words == {UNITS[1]: a_word(run, turn=2)}
    assert found.digests == {UNITS[1]: "abc"}
    assert found.reported == 1


def test_the_newest_run_is_first_and_the_oldest_are_forgotten(tmp_path: Path) -> None:
    kept = Runs(tmp_path)
    ids = [f"20261121-{number:06}-plan-1f3a" for number in range(KEPT + 3)]
    for name in ids:
        kept.keep(a_run(id=name))

    assert [run.id for run in kept.newest_first()] == ids[:2:-1]


def test_a_run_older_than_all_that_are_kept_is_refused_in_silence(tmp_path: Path) -> None:
    kept = Runs(tmp_path)
    for number in range(KEPT):
        kept.keep(a_run(id=f"20261121-{number:06}-plan-1f3a"))

    kept.keep(a_run(id="20250101-000000-plan-1f3a"))

    assert len(kept.newest_first()) == KEPT
    assert kept.newest_first()[-1].id == "20261121-000000-plan-1f3a"


@pytest.mark.parametrize("run", ["", "..", "../other", "a/b", "A", ".hidden", "x" * 200])
def test_words_of_no_run_are_refused(tmp_path: Path, run: str) -> None:
    """What a unit says names a directory here: nothing else than a run's id does."""
    with pytest.raises(UserError, match=r"^run: "):
        Runs(tmp_path / "runs").keep_digest(UNITS[0], run, "abc")
    assert not (tmp_path / "runs").exists()


@given(unit=st.text(max_size=20))
def test_no_name_of_a_unit_leaves_the_directory(tmp_path_factory: pytest.TempPathFactory, unit: str) -> None:
    place = tmp_path_factory.mktemp("kept")
    with contextlib.suppress(UserError):
        Runs(place / "runs").keep_digest(unit, "20261121-000000-plan-1f3a", "abc")
    assert {path.name for path in place.iterdir()} <= {"runs"}


@given(content=st.binary(max_size=60))
def test_damaged_files_are_as_if_they_were_not_there(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    place, run = tmp_path_factory.mktemp("kept"), a_run()
    kept = Runs(place)
    kept.keep(run)
    directory = place / run.id
    for name in ("load-claimer-0.word.json", "verdict.json"):
        (directory / name).write_bytes(content)
    (place / "20261121-000000-plan-1f3a").mkdir()
    (place / "20261121-000000-plan-1f3a" / "run.json").write_bytes(content)

    (found,) = kept.newest_first()

    assert found.words == {}
    assert found.verdict is None


def test_a_file_that_goes_while_it_is_looked_at_hides_no_run(tmp_path: Path) -> None:
    """What gathers or writes beside has files that come and go; a link to nowhere is listed and not there, too."""
    kept, run = Runs(tmp_path), a_run()
    kept.keep(run)
    heard = kept.find("").heard

    gone_meanwhile(kept.find("").directory)

    assert kept.find("").heard == heard


def test_a_run_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path) -> None:
    kept, run = Runs(tmp_path), a_run()
    with pytest.raises(UserError, match="none has arrived yet"):
        kept.find("")
    kept.keep(run)
    with pytest.raises(UserError, match=f"^run: other: expected a run of this collector: {run.id}$"):
        kept.find("other")


def test_a_run_is_complete_when_all_that_are_not_missing_have_reported(tmp_path: Path) -> None:
    kept, run = Runs(tmp_path), a_run(over=True, missing={UNITS[2]: "the unit was removed"})
    kept.keep(run)
    kept.keep_digest(UNITS[0], run.id, "abc")
    assert not kept.find("").complete

    kept.keep_digest(UNITS[1], run.id, "abc")

    assert kept.find("").complete


def test_a_verdict_is_of_all_results_or_none(tmp_path: Path) -> None:
    """Given a verdict, when another unit's result arrives, then the run is to be judged again."""
    kept, run = Runs(tmp_path), a_run(over=True)
    kept.keep(run)
    kept.keep_digest(UNITS[0], run.id, "abc")
    found = kept.find("")
    found.verdict_file.write_text('{"outcome": "met", "sentence": "All was well."}')
    assert found.verdict is not None
    assert found.verdict.outcome == "met"
    kept.keep_digest(UNITS[0], run.id, "abc")
    assert found.verdict is not None

    kept.keep_digest(UNITS[1], run.id, "abc")

    assert found.verdict is None


def test_where_a_run_is_is_said_in_a_few_words(tmp_path: Path) -> None:
    turn = Turn(number=3, stage=3, kind="ramp", of=3, begin=1_780_000_100.0, lasts=20.0)
    kept, run = Runs(tmp_path), a_run(turns=[turn])
    kept.keep(run)
    told = UnitProgress(stage=3, stages=5, size=17, held=17, p99_ms=31.0)
    for unit in UNITS:
        kept.keep_word(unit, a_word(run, progress=told, turn=3))
    found = kept.find("")
    soon = found.heard + 1

    assert found.state(soon) == "stage 3/5, 51 leases, p99 31 ms"
    assert found.state(found.heard + silent_after(3) + 1) == "no news from its units"
    kept.keep(run.model_copy(update={"over": True, "stopped": "asked"}))
    assert kept.find("").state(soon) == "ending: waiting for the results of 3 of 3 units"
    late = kept.find("").heard + RESULTS_WITHIN + 1
    assert kept.find("").state(late) == "stopped: asked; 3 of 3 units sent no result"


def test_reports_too_are_kept_by_number(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        path = tmp_path / f"{number}.md"
        path.write_text("x")
        os.utime(path, (number, number))

    gone_meanwhile(tmp_path)  # of a report that is made beside

    forget_oldest(tmp_path)

    (tmp_path / GONE).unlink()
    assert {path.name for path in tmp_path.iterdir()} == {f"{n}.md" for n in range(2, KEPT + 2)}
