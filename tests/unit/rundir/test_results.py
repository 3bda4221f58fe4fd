"""Results: what several workers journalled, joined stage by stage and second by second."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.rundir import manifest as manifests
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry
from tippingpoint.rundir.results import GrowingRun, load_run


def begin_run(directory: Path, *workers: str) -> None:
    Manifest(
        id="r", title="r", target=TargetEntry(kind="etcd"), started=1.7e9, status="complete",
        workers=[WorkerEntry(name=name, status="complete") for name in workers],
    ).save(directory)  # fmt: skip


def mark(journal: Journal, t: float, stage: int, phase: str, size: int = 100) -> None:
    journal.events.write(t, "stage", stage=stage, size=size, kind="ramp", phase=phase)


def tick(journal: Journal, t: float, held: int, cpu: float = 0.1) -> None:
    journal.events.write(t, "tick", held=held, waiting=0, in_flight=0, cpu=cpu, loop_lag=1.0, rss=50.0)


def one_worker(directory: Path, name: str, latency_us: int, shift: float = 0.0) -> None:
    """Two stages of three and two seconds: ten claims while the first is brought up, ten extensions a second held."""
    journal = Journal(directory, name, 1.7e9)
    mark(journal, 1.0 + shift, 1, "begin")
    journal.interval(1.0 + shift, 2.0 + shift, {"claim.ok": Histogram.of([latency_us * 10] * 10)})
    tick(journal, 2.0 + shift, 10)
    mark(journal, 2.0 + shift, 1, "hold")
    for second in (2.0, 3.0):
        journal.interval(second + shift, second + 1 + shift, {"extend.ok": Histogram.of([latency_us] * 10)})
        tick(journal, second + 1 + shift, 50, cpu=0.2)
    mark(journal, 4.0 + shift, 2, "begin", size=200)
    mark(journal, 4.5 + shift, 2, "hold", size=200)
    journal.interval(4.5 + shift, 5.5 + shift, {"extend.ok": Histogram.of([latency_us * 2] * 20)})
    tick(journal, 5.5 + shift, 100)
    mark(journal, 5.5 + shift, 2, "end", size=200)
    journal.interval(5.5 + shift, 6.0 + shift, {"extend.ok": Histogram.of([1] * 7)})
    journal.close(directory)


def test_workers_add_up_stage_by_stage(tmp_path: Path) -> None:
    # given two workers, the second a fifth of a second behind
    begin_run(tmp_path, "0", "1")
    one_worker(tmp_path, "0", 100)
    one_worker(tmp_path, "1", 200, shift=0.2)
    # when the run is read
    run = load_run(tmp_path)
    # then stages join, and what came after the end of the last belongs to none
    assert [(stage.number, stage.size) for stage in run.stages] == [(1, 100), (2, 200)]
    first, second = run.stages
    assert (first.begin, first.hold_begin) == (1.0, 2.2)
    assert second.end == pytest.approx(5.7)
    assert first.count("claim") == 20
    assert first.count("extend") == 40
    assert second.count("extend") == 40
    assert first.response("extend").percentiles([50, 100]) == [100, 200]
    assert first.held.keys() == {"extend.ok"}
    # and gauges of the hold add up over workers, health being the worst of them
    assert first.gauges["held"] == 100
    assert first.gauges["cpu"] == 0.2
    assert second.gauges["held"] == 200
    # and rates count what was held
    assert second.throughput("extend") == pytest.approx(40 / (5.7 - 4.7))


def test_curves_and_gauges_over_time_keep_every_sample(tmp_path: Path) -> None:
    begin_run(tmp_path, "0", "1")
    one_worker(tmp_path, "0", 100)
    one_worker(tmp_path, "1", 200, shift=0.2)
    run = load_run(tmp_path)
    extend = run.curves["extend.ok"]
    assert extend.t.tolist() == [2.0, 3.0, 4.0, 5.0]
    assert extend.count.sum() == 80 + 14
    assert extend.max[0] == pytest.approx(200, abs=16)
    assert run.gauges.held.tolist() == [20, 100, 100, 200]


def test_costs_over_time_count_failures_when_they_ended(tmp_path: Path) -> None:
    # given two workers, and extensions that were lost, timed out or refused at once
    begin_run(tmp_path, "0", "1")
    for name in ("0", "1"):
        journal = Journal(tmp_path, name, 1.7e9)
        mark(journal, 0.0, 1, "begin")
        mark(journal, 0.0, 1, "hold")
        journal.interval(
            0.0, 1.0, {"extend.ok": Histogram.of([100] * 50), "extend.error": Histogram.of([20] * 9)}
        )
        journal.interval(4.0, 5.0, {"extend.lost": Histogram.of([8_000_000])})
        # and in the next stage errors that were waited for, which begins in mid-second
        mark(journal, 5.5, 2, "begin")
        journal.interval(
            5.5, 6.0, {"extend.ok": Histogram.of([100]), "extend.error": Histogram.of([3_000_000] * 2)}
        )
        mark(journal, 6.5, 2, "end")
        journal.close(tmp_path)
    # when the run is read
    run = load_run(tmp_path)
    # then over time as in each stage all counts but what was refused
    cost = run.costs["extend"]
    assert cost.t.tolist() == [0.0, 4.0, 5.0]
    assert cost.count.tolist() == [100, 2, 6]
    assert cost.max.tolist() == pytest.approx([100, 8_000_000, 3_000_000], rel=0.017, abs=16)
    assert [stage.waited("extend") for stage in run.stages] == [
        ("ok", "timeout", "lost"),
        ("ok", "timeout", "lost", "error"),
    ]
    # and what has no failures is the curve of its successes
    assert run.curves["extend.ok"].count.tolist() == [100, 2]


def test_costs_without_failures_are_the_successes(tmp_path: Path) -> None:
    begin_run(tmp_path, "0")
    one_worker(tmp_path, "0", 100)
    run = load_run(tmp_path)
    assert run.costs["extend"] is run.curves["extend.ok"]


def test_a_cut_worker_leaves_its_stage_open_and_a_note(tmp_path: Path) -> None:
    # given a worker whose journal ends in mid-stage, and in mid-line
    begin_run(tmp_path, "0")
    manifest = Manifest.load(tmp_path)
    manifest.workers[0].status = "cut"
    manifest.save(tmp_path)
    journal = Journal(tmp_path, "0", 1.7e9)
    mark(journal, 1.0, 1, "begin")
    mark(journal, 2.0, 1, "hold")
    journal.interval(2.0, 3.0, {"extend.ok": Histogram.of([5] * 3)})
    journal.close(tmp_path)
    with open(tmp_path / "worker-0.hlog", "a") as log:
        log.write("Tag=extend.ok,3.000,1.0")
    # when the run is read
    run = load_run(tmp_path)
    # then what was written counts, and the reader is told
    assert run.stages[0].count("extend") == 3
    assert run.stages[0].end is None
    assert run.stages[0].throughput("extend") is None
    assert any("1 damaged line" in note for note in run.notes)
    assert any("worker 0 was cut" in note for note in run.notes)


def test_a_run_that_measured_nothing_is_empty(tmp_path: Path) -> None:
    begin_run(tmp_path)
    Events(tmp_path / "events.jsonl").close(tmp_path)
    run = load_run(tmp_path)
    assert (run.stages, run.curves, run.events) == ([], {}, [])


@pytest.mark.parametrize("content", [None, "", "{", '{"format": 9}'])
def test_what_is_no_run_is_refused_in_one_line(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(UserError, match="run: ") as refused:
        load_run(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_run_whose_process_is_gone_was_cut(tmp_path: Path) -> None:
    begin_run(tmp_path, "0")
    manifest = Manifest.load(tmp_path)
    manifest.status, manifest.pid = "running", 2**22 + 1  # beyond the largest pid there can be
    manifest.save(tmp_path)
    assert load_run(tmp_path).manifest.status == "cut"


def test_a_run_that_ends_between_two_looks_was_not_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run whose manifest says that it is running
    begin_run(tmp_path, "0")
    manifest = Manifest.load(tmp_path)
    manifest.status, manifest.pid = "running", os.getpid()
    manifest.save(tmp_path)

    def is_over(pid: int) -> None:
        manifest.status = "complete"
        manifest.save(tmp_path)

    # when it ends before its process is looked for, then it is told as it says itself
    monkeypatch.setattr(manifests, "process_started", is_over)
    assert Manifest.load(tmp_path).status == "complete"


@pytest.mark.parametrize(
    "line",
    [
        "Tag=extend.ok,5.000,1.0,1.0,AAAA",
        "Tag=extend.ok,5.000,1.0,1.0,",
        "Tag=extend.ok,half,1.0,1.0,{payload}",
        "Tag=extend.ok,nan,1.0,1.0,{payload}",
        "Tag=extend.ok,-1.0,1.0,1.0,{payload}",
        "Tag=extend.ok,1e300,1.0,1.0,{payload}",
        "Tag=extend.ok,5.000,1.0,1.0,{payload},more",
    ],
)
def test_a_damaged_line_is_counted_and_left_out_wherever_it_is(tmp_path: Path, line: str) -> None:
    # given a journal with a damaged line in its middle, and the same line as its last
    begin_run(tmp_path, "0")
    one_worker(tmp_path, "0", 100)
    damaged = line.format(payload=Histogram.of([5] * 99).encode())
    path = tmp_path / "worker-0.hlog"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:6], damaged, *lines[6:], damaged]) + "\n")
    # when the run is read
    run = load_run(tmp_path)
    # then all else counts, and the reader is told
    assert [stage.count("extend") for stage in run.stages] == [20, 20]
    assert run.curves["extend.ok"].count.sum() == 47
    assert "worker 0: 2 damaged lines left out" in run.notes
    assert run.bin_seconds == 1.0


def test_a_line_from_far_beyond_the_run_is_damaged(tmp_path: Path) -> None:
    begin_run(tmp_path, "0")
    one_worker(tmp_path, "0", 100)
    path = tmp_path / "worker-0.hlog"
    lines = path.read_text().splitlines()
    far = lines[-1].replace("5.500", "900000000.000", 1)
    path.write_text("\n".join([*lines[:-1], far, lines[-1]]) + "\n")
    run = load_run(tmp_path)
    assert run.curves["extend.ok"].count.sum() == 47
    assert "worker 0: 1 damaged line left out" in run.notes


@pytest.mark.parametrize(
    "event",
    [
        '{"t":4.0,"event":"stage"}',
        '{"t":4.0,"event":"stage","stage":"two","size":1,"kind":"ramp","phase":"begin"}',
        '{"t":4.0,"event":"stage","stage":2,"size":200,"kind":"slope","phase":"begin"}',
        '{"t":"4.0","event":"stage","stage":2,"size":200,"kind":"ramp","phase":"begin"}',
        '{"t":4.0,"event":"tick","held":50}',
        '{"t":4.0,"event":"tick","held":null,"waiting":0,"in_flight":0,"cpu":0,"loop_lag":0,"rss":0}',
        '{"t":4e8,"event":"tick","held":50,"waiting":0,"in_flight":0,"cpu":0,"loop_lag":0,"rss":0}',
        '{"t":4.0,"event":["lost"]}',
        '{"t":true,"event":"lost"}',
        '{"t":4.0,"event":"lo',
        "4.0",
    ],
)
def test_a_damaged_event_is_counted_and_left_out(tmp_path: Path, event: str) -> None:
    begin_run(tmp_path, "0")
    one_worker(tmp_path, "0", 100)
    path = tmp_path / "worker-0.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], event, *lines[5:]]) + "\n")
    (tmp_path / "events.jsonl").write_text(event + '\n{"t":1.0,"event":"note"}\n')
    run = load_run(tmp_path)
    assert [(stage.size, stage.count("extend")) for stage in run.stages] == [(100, 20), (200, 20)]
    assert run.gauges.held.tolist() == [10, 50, 50, 100]
    assert "worker 0: 1 damaged line left out" in run.notes


def test_a_stage_whose_begin_was_damaged_is_left_out(tmp_path: Path) -> None:
    # given a journal in which a line is damaged: the begin of the first of two stages
    begin_run(tmp_path, "0")
    one_worker(tmp_path, "0", 100)
    path = tmp_path / "worker-0.jsonl"
    path.write_text(path.read_text().replace("begin", "b\x00gin", 1))
    # when the run is read
    run = load_run(tmp_path)
    # then the other stage is there under its number, with its own figures
    assert [(stage.number, stage.count("extend")) for stage in run.stages] == [(2, 20)]
    assert run.stage(2).hold_begin == 4.5
    assert run.curves["extend.ok"].count.sum() == 47


def test_a_worker_whose_begin_was_damaged_still_adds_to_the_stage(tmp_path: Path) -> None:
    begin_run(tmp_path, "0", "1")
    one_worker(tmp_path, "0", 100)
    one_worker(tmp_path, "1", 200, shift=0.2)
    path = tmp_path / "worker-0.jsonl"
    path.write_text(path.read_text().replace("begin", "b\x00gin", 1))
    first, second = load_run(tmp_path).stages
    assert (first.count("extend"), second.count("extend")) == (40, 40)
    assert (first.begin, second.end) == (pytest.approx(1.2), pytest.approx(5.7))


# ---- runs in which things are made -----------------------------------------------------------------


def growing(directory: Path, name: str, units: int, shift: float = 0.0) -> None:
    """Ten seconds in which things are made evenly, two of hold, and the removal of half of them within two."""
    journal = Journal(directory, name, 1.7e9)

    def at(t: float, phase: str, number: int, kind: str, size: int) -> None:
        journal.events.write(t + shift, "stage", stage=number, size=size, kind=kind, phase=phase)

    tick(journal, 1.0 + shift, 0)
    at(1.0, "begin", 1, "ramp", 2 * units)
    for second in range(10):
        made = {"add-unit.ok": Histogram.of([5000] * (units // 10)), "status.ok": Histogram.of([900])}
        journal.interval(1.0 + second + shift, 2.0 + second + shift, made)
        tick(journal, 2.0 + second + shift, units * (second + 1) // 10)
    at(11.0, "hold", 1, "ramp", 2 * units)
    journal.interval(11.0 + shift, 13.0 + shift, {"status.ok": Histogram.of([900] * 4)})
    tick(journal, 13.0 + shift, units)
    at(13.0, "end", 1, "ramp", 2 * units)
    at(13.0, "begin", 2, "destroy", 2 * units)
    journal.interval(13.0 + shift, 15.0 + shift, {"remove-unit.ok": Histogram.of([700] * (units // 2))})
    tick(journal, 15.0 + shift, units // 2)
    at(15.0, "hold", 2, "destroy", 2 * units)
    at(16.0, "end", 2, "destroy", 2 * units)
    journal.close(directory)


def test_growth_is_what_all_workers_had_from_one_moment_to_the_next(tmp_path: Path) -> None:
    begin_run(tmp_path, "0", "1")
    growing(tmp_path, "0", 100)
    growing(tmp_path, "1", 100)
    made, removed = load_run(tmp_path).stages
    assert made.growth == [(1.0, 0.0), (6.0, 100.0), (11.0, 200.0)]
    assert removed.growth == [(13.0, 200.0), (15.0, 100.0)]
    assert (made.is_step, removed.is_step) == (True, False)


def test_what_is_made_counts_per_second_until_the_hold_and_what_is_observed_while_it_lasts(
    tmp_path: Path,
) -> None:
    begin_run(tmp_path, "0")
    growing(tmp_path, "0", 100)
    made, removed = load_run(tmp_path).stages
    assert made.throughput("add-unit") == pytest.approx(10.0)
    assert made.throughput("status") == pytest.approx(2.0)
    assert made.throughput("remove-unit") is None
    assert removed.throughput("remove-unit") == pytest.approx(25.0)


def test_operations_are_those_that_occurred_in_the_order_of_all(tmp_path: Path) -> None:
    begin_run(tmp_path, "0")
    growing(tmp_path, "0", 100)
    assert load_run(tmp_path).operations == ["add-unit", "status", "remove-unit"]


def test_a_stage_of_machines_alone_has_no_units_and_counts(tmp_path: Path) -> None:
    begin_run(tmp_path, "0")
    journal = Journal(tmp_path, "0", 1.7e9)
    mark(journal, 1.0, 1, "begin", size=0)
    journal.interval(1.0, 2.0, {"add-machine.ok": Histogram.of([5])})
    mark(journal, 2.0, 1, "end", size=0)
    journal.close(tmp_path)
    (stage,) = load_run(tmp_path).stages
    assert (stage.size, stage.count("add-machine")) == (0, 1)


def test_a_rate_limit_is_no_attempt_and_no_failure(tmp_path: Path) -> None:
    begin_run(tmp_path, "0")
    journal = Journal(tmp_path, "0", 1.7e9)
    mark(journal, 1.0, 1, "begin")
    journal.interval(
        1.0, 2.0, {"connect.ok": Histogram.of([5] * 3), "connect.limited": Histogram.of([9] * 7)}
    )
    mark(journal, 2.0, 1, "end")
    journal.close(tmp_path)
    (stage,) = load_run(tmp_path).stages
    assert (stage.attempts("connect"), stage.failures("connect"), stage.count("connect", "limited")) == (
        3,
        0,
        7,
    )


def plain(value: Any) -> Any:
    """All that a run says, in a form that can be compared."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Histogram):
        return [column.tolist() for column in value.filled()]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return plain(vars(value)) if hasattr(value, "__dict__") else value


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), max_size=4))
def test_a_run_that_grows_is_read_as_if_it_were_read_anew(pieces: list[list[float]]) -> None:
    with TemporaryDirectory() as made, TemporaryDirectory() as grown:
        # given a run whose files grow by any number of bytes, so that they end in the middle of lines too
        begin_run(Path(grown), "0", "1")
        one_worker(Path(made), "0", 100)
        journal = Journal(Path(made), "1", 1.7e9)
        mark(journal, 1.0, 1, "begin")
        journal.interval(
            1.0, 2.0, {"claim.ok": Histogram.of([5] * 10), "claim.error": Histogram.of([9] * 10)}
        )
        journal.tick(2.0, held=10, waiting=0, in_flight=0, cpu=0.1, loop_lag=1.0, rss=50.0)
        mark(journal, 2.0, 1, "hold")
        journal.interval(2.0, 3.0, {"claim.error": Histogram.of([9] * 10)})
        journal.events.write(3.0, "lost", lease="7")
        mark(journal, 1290.0, 2, "begin")  # seconds are two to a point of a chart from here on
        journal.interval(1300.0, 1301.0, {"claim.ok": Histogram.of([5])})
        journal.close(Path(made))
        events = Events(Path(made) / "events.jsonl")
        events.write(2.0, "fault", do="kill", member="m1")
        events.close(Path(made))
        files = sorted(Path(made).iterdir())
        reader = GrowingRun(Path(grown))
        by_file = [sorted(shares) for shares in zip(*pieces, [1.0] * len(files), strict=True)]
        for shares in zip(*by_file, strict=True):
            for file, share in zip(files, shares, strict=True):
                content = file.read_bytes()
                (Path(grown) / file.name).write_bytes(content[: round(share * len(content))])
            # when it is read again, then nothing is missing, there twice or in another place
            assert plain(reader.load()) == plain(load_run(Path(grown)))
