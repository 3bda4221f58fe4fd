"""The trend of runs: their order, what changed, and what is accepted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.unit.made.searches import NARROWED, write_search
from tests.unit.made.synthetic import STARTED, MadeStage, write_run
from tippingpoint.cli.program import main
from tippingpoint.compare.trend.acknowledged import FILE, Acknowledged
from tippingpoint.compare.trend.history import FigureChange, Trend, runs_below, trend_of
from tippingpoint.errors import UserError
from tippingpoint.report import write_trend
from tippingpoint.rundir.journal import Events
from tippingpoint.rundir.machine import FILE as MACHINE
from tippingpoint.rundir.machine import USED
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.rundir.results import load_run

DAY = 86_400.0


def write_history(directory: Path, releases: list[str], slow: tuple[str, ...] = ()) -> list[str]:
    """Write one run a day of these releases, of which some extend leases half as fast; returns their ids."""
    random = np.random.default_rng(8)
    ids: list[str] = []
    for number, release in enumerate(releases):
        extend = 2.0 * float(np.exp(0.02 * random.normal())) * (2.0 if release in slow else 1.0)
        run = write_run(
            directory / f"run-{number:02}",
            [MadeStage(1000, extend_ms=extend), MadeStage(2000, extend_ms=extend)],
            seed=number + 1,
            target=TargetEntry(kind="etcd", version=release, members=["a", "b", "c"]),
            started=STARTED + number * DAY,
        )
        ids.append(Manifest.load(run).id)
    return ids


def read(directory: Path, **options: str) -> Trend:
    return trend_of(runs_below(directory), Acknowledged.load(directory), **options)  # type: ignore[arg-type]


@pytest.fixture
def regressed(tmp_path: Path) -> Path:
    write_history(tmp_path, ["3.4.9"] * 12 + ["3.4.23"] * 12, slow=("3.4.23",))
    return tmp_path


def test_a_regression_is_told_with_the_release_that_came_with_it(regressed: Path) -> None:
    (history,) = read(regressed).histories
    worst = next(told for told in history.changes if told.figure.measure == "p50")
    assert worst.figure.operation == "extend"
    assert worst.worse
    assert worst.stands
    assert worst.change.at == 12
    assert worst.change.low < 2.0 < worst.change.high
    assert worst.with_it == ("release: 3.4.9 / 3.4.23",)


def test_the_sentence_names_figure_run_and_release(regressed: Path) -> None:
    told = json.loads(write_trend(read(regressed), "json"))
    assert told["outcome"] == "worse"
    assert told["sentence"].startswith("extend p")
    assert "; this changed too: release: 3.4.9 / 3.4.23" in told["sentence"]
    assert "more figures got worse" in told["sentence"]


def test_what_a_later_release_mended_is_no_regression(tmp_path: Path) -> None:
    write_history(tmp_path, ["3.4.9"] * 10 + ["3.5.0"] * 10 + ["3.5.1"] * 10, slow=("3.5.0",))
    trend = read(tmp_path)
    (history,) = trend.histories
    gone = [told for told in history.changes if told.worse]
    assert gone
    assert not any(told.stands for told in gone)
    assert not trend.regressed


def test_releases_are_ordered_by_their_numbers(tmp_path: Path) -> None:
    # given runs of two releases in turn
    write_history(tmp_path, ["3.4.23", "3.4.9"] * 12, slow=("3.4.23",))
    # when they are ordered by date, then by release
    by_date, by_release = read(tmp_path), read(tmp_path, order="release")
    # then only the second order shows a change, from the older release to the newer one
    assert by_date.histories[0].changes == ()
    (history,) = by_release.histories
    assert [run.manifest.target.version for run in history.runs] == ["3.4.9"] * 12 + ["3.4.23"] * 12
    assert {told.change.at for told in history.changes} == {12}


def test_runs_of_other_plans_have_a_history_of_their_own(tmp_path: Path) -> None:
    write_history(tmp_path, ["3.5.16"] * 4)
    write_search(tmp_path / "search", NARROWED)
    found = read(tmp_path)
    assert [history.title for history in found.histories] == ["etcd-leases"]
    assert len(found.histories[0].runs) + len(found.left_out) == 5


def test_searches_are_followed_by_their_limits(tmp_path: Path) -> None:
    for number in range(6):
        write_search(tmp_path / f"search-{number}", NARROWED, seed=number)
    found = read(tmp_path)
    figures = [figure for history in found.histories for figure in history.figures]
    assert [figure.measure for figure in figures] == ["limit"]
    assert all(value is not None and 2900 < value < 3300 for value in figures[0].measured.values)


@pytest.mark.parametrize("format", ["md", "html", "json"])
def test_too_few_runs_are_said(tmp_path: Path, format: str) -> None:
    write_history(tmp_path, ["3.5.16"] * 3)
    trend = read(tmp_path)
    assert not trend.regressed
    assert "Too few runs for a trend" in write_trend(trend, format)  # type: ignore[arg-type]


def test_a_run_that_failed_is_left_out_with_the_reason(tmp_path: Path) -> None:
    write_history(tmp_path, ["3.5.16"] * 4)
    write_run(tmp_path / "empty", [], seed=77, status="failed", reason="no endpoint answers")
    (line,) = read(tmp_path).left_out
    assert line.endswith(": no stage was begun")


def test_a_run_beside_other_programs_is_left_out_with_the_reason(tmp_path: Path) -> None:
    # given a history in which other programs took half of the target's processor beside the last run
    ids = write_history(tmp_path, ["3.5.16"] * 5)
    log = Events(tmp_path / "run-04" / MACHINE)
    end = load_run(tmp_path / "run-04").stages[-1].end
    assert end is not None
    for t in range(1, round(end) + 1):
        log.write(
            t, USED, seconds=1.0, cpus=1, busy=0.75, ours=0.0, target=0.25, steal=0.0, waited=0.0, stalled={}
        )
    trend = read(tmp_path)
    assert trend.left_out == (f"{ids[4]}: other programs used 50 % of the target's processor meanwhile",)
    assert len(trend.histories[0].runs) == 4


def command(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    told = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, told.out, told.err


def test_a_regression_ends_the_command_with_1_until_it_is_acknowledged(
    regressed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # given a regression
    code, out, _ = command(capsys, "trend", regressed)
    assert code == 1
    assert "❌ got worse" in out
    # when somebody acknowledges it
    run = read(regressed).histories[0].runs[12].manifest.id
    code, out, _ = command(capsys, "trend", regressed, "--acknowledge", run, "--reason", "fsync is on now")
    # then it is told as known, in this call and in the next one
    assert code == 0
    assert "acknowledged: fsync is on now" in out
    assert command(capsys, "trend", regressed)[0] == 0
    assert json.loads((regressed / FILE).read_text())["runs"] == {run: "fsync is on now"}


def test_a_run_that_is_not_there_is_not_acknowledged(
    regressed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = command(capsys, "trend", regressed, "--acknowledge", "nothing", "--reason", "known")
    assert code == 2
    assert err.startswith("tippingpoint: --acknowledge: nothing: expected the id of one of these runs: ")
    assert err.count("\n") == 1


def test_an_acknowledgement_needs_a_reason(regressed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(capsys, "trend", regressed, "--acknowledge", "some-run")
    assert code == 2
    assert err == "tippingpoint: --reason: missing: expected both --acknowledge RUN and --reason TEXT\n"


def test_a_directory_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a run, or a directory that has runs"):
        runs_below(tmp_path)


def test_a_damaged_file_of_acknowledgements_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("no JSON")
    with pytest.raises(UserError, match=r"acknowledged: .*: expected a readable acknowledged\.json"):
        Acknowledged.load(tmp_path)


# ---- bounds, drifts and copies ---------------------------------------------------------------------


def write_ladder(directory: Path, number: int, sizes: tuple[int, ...], breaks: int | None = None) -> Path:
    """Write a run of one day, which loses leases from a load on."""
    stages = [
        MadeStage(size, failures={"extend.lost": 60} if breaks is not None and size >= breaks else {}, hold=4)
        for size in sizes
    ]
    return write_run(directory / f"run-{number:02}", stages, seed=number + 1, started=STARTED + number * DAY)


def limits(trend: Trend) -> list[FigureChange]:
    return [told for history in trend.histories for told in history.changes if told.figure.measure == "limit"]


def test_a_shorter_ladder_is_no_lower_tipping_point(tmp_path: Path) -> None:
    # given ten runs that hold 800, and then ten of a ladder to 400, which hold that
    for number in range(20):
        write_ladder(tmp_path, number, (200, 400, 800) if number < 10 else (200, 400))
    trend = read(tmp_path)
    assert limits(trend) == []
    assert not trend.regressed
    (figure,) = [
        one
        for one in json.loads(write_trend(trend, "json"))["histories"][0]["figures"]
        if one["measure"] == "limit"
    ]
    assert figure["bounds"] == ["least"] * 20


def test_a_tipping_point_that_falls_below_what_was_held_is_told_without_a_ratio(tmp_path: Path) -> None:
    # given ten runs that hold all of a ladder, and ten of which nine break at its second load
    for number in range(20):
        write_ladder(tmp_path, number, (200, 400, 800), breaks=400 if number > 10 else None)
    trend = read(tmp_path)
    (told,) = limits(trend)
    assert (told.worse, told.regresses) == (True, True)
    assert told.change.earliest <= 11 <= told.change.latest
    document = json.loads(write_trend(trend, "json"))
    (change,) = [one for one in document["histories"][0]["changes"] if one["measure"] == "limit"]
    assert (change["ratio"], change["low"], change["high"]) == (None, None, None)
    assert change["words"].startswith("The tipping point fell with ")
    assert change["words"].endswith(
        ": since then, runs tip at 200 to 400 leases; before, they passed 800 leases, the largest tried."
    )
    for form in ("md", "html"):
        assert "passed 800 leases, the largest tried" in write_trend(trend, form)  # type: ignore[arg-type]


def test_a_slow_drift_is_told_over_many_runs(tmp_path: Path) -> None:
    # given calls that take longer with each run
    random = np.random.default_rng(3)
    for number in range(24):
        extend = 2.0 * float(np.exp(0.03 * number + 0.01 * random.normal()))
        write_run(
            tmp_path / f"run-{number:02}",
            [MadeStage(1000, extend_ms=extend, hold=4)],
            seed=number + 1,
            started=STARTED + number * DAY,
        )
    trend = read(tmp_path)
    assert trend.regressed
    (told,) = [one for one in trend.histories[0].changes if one.figure.measure == "p50"]
    assert told.change.drifts
    assert told.with_it == ()
    assert told.change.low < float(np.exp(0.03 * 23)) < told.change.high
    document = json.loads(write_trend(trend, "json"))
    (words,) = [one["words"] for one in document["histories"][0]["changes"] if one["measure"] == "p50"]
    assert " over many runs, from " in words
    assert " with " not in words
    for form in ("md", "html"):
        assert "many runs, " in write_trend(trend, form)  # type: ignore[arg-type]


def test_a_copied_run_counts_once_with_a_caution(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # given a history without a change, whose last run is slow
    write_history(tmp_path, ["3.5.16"] * 15 + ["3.5.17"], slow=("3.5.17",))
    assert command(capsys, "trend", tmp_path)[0] == 0
    # when somebody copies the slow one, and the copy lies beside it or is named
    copy = Path(shutil.copytree(tmp_path / "run-15", tmp_path / "run-15-backup"))
    shutil.copytree(copy, tmp_path / "a-backup")
    # then it counts once
    code, out, _ = command(capsys, "trend", tmp_path)
    assert code == 0
    trend = read(tmp_path)
    (history,) = trend.histories
    assert len(history.runs) == 16
    run = Manifest.load(copy).id
    assert [line.partition(":")[0] for line in trend.left_out] == [run, run]
    assert all("is a copy of" in line and "counts once" in line for line in trend.left_out)
    assert out.count("counts once") == 2
    # a path that is named twice is no copy
    assert trend_of([copy, copy, tmp_path / "run-00"], Acknowledged()).left_out == ()
