"""Progress: what a person sees while a run goes on, and what happens when nobody can see it."""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.play.run_ticks import tick_of
from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.lasting import Lasting
from tippingpoint.play.messages import Tick
from tippingpoint.play.progress import ConsoleProgress, Detail
from tippingpoint.play.watcher import StageProgress
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.util import timing

STAGE = StageProgress(
    elapsed=4.0, stage=1, stages=2, size=100, goal=100, things="leases", kind="ramp", remaining=5.0
)


def tick(held: int, latency_us: int) -> Tick:
    return tick_of(held, {"extend.ok": Histogram.of([latency_us] * held)})


def manifest() -> Manifest:
    return Manifest(id="r", title="quick", target=TargetEntry(kind="etcd", version="3.5"), started=0.0)


def test_a_worker_that_was_cut_is_counted_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a worker that holds fifty leases
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    progress.progress(STAGE, "0", tick(50, 1000))
    # when one of them is gone, and the next line is due
    progress.event(4.0, "worker-cut", {"worker": "0", "exit_code": -9})
    later = timing.monotonic() + 60
    monkeypatch.setattr(timing, "monotonic", lambda: later)
    progress.progress(STAGE, "1", tick(50, 2000))
    progress.close()
    # then what is shown is what the other holds
    first, event, second = shown.getvalue().splitlines()
    assert "50/100 leases" in first
    assert event == "    4.0s worker 0 died: killed by signal 9"
    assert "50/100 leases  50/s  extend p50 2 ms p99 2 ms" in second


@pytest.mark.parametrize(
    ("kind", "remaining", "told"),
    [
        ("ramp", None, "stage 1/2 ramp "),
        ("ramp", 5.0, "stage 1/2 hold "),
        ("storm", None, "stage 1/2 storm "),
        ("storm", 5.0, "stage 1/2 storm hold "),
        ("destroy", None, "stage 1/2 drain "),
    ],
)
def test_the_line_names_the_phase_of_the_stage(kind: StageKind, remaining: float | None, told: str) -> None:
    """Given a stage that is brought up, held or taken down, then the line says which."""
    shown = io.StringIO()
    progress = ConsoleProgress(shown)

    progress.progress(replace(STAGE, kind=kind, remaining=remaining), "0", tick(50, 1000))
    progress.close()

    assert told in shown.getvalue()


def test_a_console_whose_reader_has_gone_does_not_end_the_run(tmp_path: Path) -> None:
    # given a console that nobody reads any more
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", buffering=1) as file:
        progress = ConsoleProgress(file)
        # when a run is shown on it, then nothing is raised, not even when its file is closed
        progress.began(manifest(), tmp_path)
        progress.progress(STAGE, "0", tick(50, 1000))
        progress.event(4.0, "fault", {"do": "kill", "member": "m1"})
        progress.close()


def test_a_spawn_run_shows_what_is_made_of_what_is_to_be_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # given a run of the spawn workload with two workers
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    spawning = manifest().model_copy(update={"workload": "grow", "load_unit": "units"})
    progress.began(spawning, tmp_path)
    samples = {"add-unit.ok": Histogram.of([200_000]), "connect.limited": Histogram.of([5])}
    ticks = [tick_of(held, samples, waiting=40 - held, seconds=2.0) for held in (10, 20)]
    # when each has made ten things more within two seconds
    for number, tick in enumerate(ticks):
        later = 1e6 + 60 * number
        monkeypatch.setattr(timing, "monotonic", lambda later=later: later)
        for worker in ("0", "1"):
            progress.progress(STAGE, worker, tick)
    monkeypatch.setattr(timing, "monotonic", lambda: 2e6)
    progress.progress(STAGE, "1", ticks[1])
    progress.close()
    # then the line has both, and what a rate limit refused apart from errors
    *_, last = shown.getvalue().splitlines()
    assert "40/80 things made  4.17/s  add-unit p50 200 ms p99 200 ms  errors 0 limited 5" in last


def test_a_run_that_makes_containers_shows_how_fast_they_come_and_how_long_one_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # given two workers that make a container every other second, one of which has to try again
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    kind = {"workload": "spawn", "load_unit": "containers", "target": TargetEntry(kind="lxd")}
    progress.began(manifest().model_copy(update=kind), tmp_path)
    for second in range(9):
        later = 1e6 + 60 * second
        monkeypatch.setattr(timing, "monotonic", lambda later=later: later)
        made = second % 2
        samples = {"launch.ok": Histogram.of([2_000_000]), "list.ok": Histogram.of([5])} if made else {}
        for worker in "01":
            held = 10 + second // 2
            told = tick_of(held, samples, waiting=30 - held, retries=int(worker))
            progress.progress(replace(STAGE, things="containers"), worker, told)
    # when the line is shown in a second in which none has come
    progress.close()
    # then it has what is there of all, how fast it came (4 in 9 s and 3 in 8 s), and how long a launch takes
    *_, last = shown.getvalue().splitlines()
    assert last.split("  ")[-4:] == [
        "27/60 containers",
        "0.819/s",
        "launch p50 2 s p99 2 s",
        "errors 0 retries 8",
    ]


def test_the_making_of_the_fleet_is_shown_while_it_lasts_and_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    monkeypatch.setattr(timing, "monotonic", lambda: 100.0)
    for done in (1, 50, 99, 100, 100):
        progress.preparing("units", done, 100)
    progress.close()
    assert shown.getvalue().splitlines() == ["preparing units: 1 of 100", "preparing units: 100 of 100"]


def test_a_removal_is_shown_now_and_then_and_at_its_end() -> None:
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    for done in range(1, 41):
        progress.removing("containers and projects", done, 40)
    progress.close()
    assert shown.getvalue().splitlines() == [
        "removing containers and projects: 1 of 40",
        "removing containers and projects: 40 of 40",
    ]


def test_the_last_line_of_the_making_says_the_whole_though_one_worker_was_done_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given two workers with ten passwords each to set
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    monkeypatch.setattr(timing, "monotonic", lambda: 100.0)
    # when the first has set all of its own before the second is heard of
    for done, goal in ((10, 10), (10, 20), (15, 20), (20, 20), (20, 20)):
        progress.preparing("passwords", done, goal)
    progress.close()
    # then each goal is said once to be reached, and the last is that of both
    assert shown.getvalue().splitlines() == ["preparing passwords: 10 of 10", "preparing passwords: 20 of 20"]


def test_an_event_shows_its_numbers_as_people_read_them() -> None:
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    # given a search that ended at a limit with many digits, and probes of which none failed, and of one that was late
    progress.event(
        12.0, "found", {"ended": "generator", "limit": 757.8085807092493, "low": 1e-7, "high": None}
    )
    rate = ["extend error_rate", -2.3, 0.6931]
    late = ["extend p99", 4.87, 0.1]
    for held, margin in ((True, rate), (False, late)):
        fields = {"size": 1234567.0, "held": held, "fresh": True, "margins": [margin], "binds": margin[0]}
        progress.event(13.0, "probe", {**fields, "broken": [], "began": 0.0, "seconds": 1.0})
    # then each is shown in few digits, and no share of nothing is near its limit
    assert (
        "the search is over: the limit is at least less than 0.000001 with 95 %, and the gen"
        in shown.getvalue()
    )
    assert "probe of 1,234,567 passed: extend error rate 0 %" in shown.getvalue()
    assert "probe of 1,234,567 failed: extend p99 at 130 times its threshold" in shown.getvalue()


def test_what_a_run_waits_for_is_shown_now_and_then_in_place_of_its_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a search that waits for other programs, while its workers tick
    now = 100.0
    monkeypatch.setattr(timing, "monotonic", lambda: now)
    shown = io.StringIO()
    progress = ConsoleProgress(shown)
    progress.began(manifest(), Path("runs/one"))
    at = StageProgress(12.0, 2, None, 1000, 1000, "leases", "find", 3.0)
    # when ten seconds pass
    for waited in range(10):
        progress.waiting("other programs used 43 % of the target's processor", float(waited), 240.0)
        progress.progress(at, "0", tick(0, 0))
        now += 1.0
    # then only that is told, each five seconds
    told = shown.getvalue().splitlines()[1:]
    assert told == [
        f"other programs used 43 % of the target's processor ({waited} of at most 240 s)" for waited in (0, 5)
    ]
    # and the load again when it goes on
    now += 10.0
    progress.progress(at, "0", tick(1000, 5000))
    assert "1,000" in shown.getvalue().splitlines()[-1]


class Terminal(io.StringIO):
    """A file that is a terminal, as far as it says."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def last_frame(shown: str) -> str:
    """What the live lines say last, without the codes of the terminal."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "")
    return plain.strip()


def test_the_first_signal_says_at_once_what_the_next_one_does(terminal: Terminal) -> None:
    # given a run whose load is shown on a terminal
    progress = ConsoleProgress(terminal, title="ramp")
    progress.began(manifest(), Path("runs/one"))
    progress.progress(replace(STAGE, left=Lasting(125.0, "about")), "0", tick(50, 1000))
    # when it is interrupted, and once more, and the load's last figures come
    before = len(terminal.getvalue())
    progress.interrupted()
    progress.progress(STAGE, "0", tick(20, 1000))
    first = last_frame(terminal.getvalue()[before:])
    progress.interrupted()
    progress.close()
    # then each is answered, and no bar is left of the load
    assert "stopping; press again to leave everything in place" in first
    assert "━" not in first
    assert "tippingpoint clean does that later" in terminal.getvalue()


def test_the_end_of_a_run_shows_what_is_being_done(terminal: Terminal) -> None:
    # given a run whose load has been shown
    progress = ConsoleProgress(terminal, title="ramp")
    progress.began(manifest(), Path("runs/one"))
    progress.progress(STAGE, "0", tick(100, 1000))
    # when its load is over, and what is left is removed
    shown: list[str] = []
    for told in (
        lambda: progress.doing("waiting for the last answers"),
        lambda: progress.removing("containers", 400, 2061),
        lambda: progress.doing("asking Prometheus for the figures of all stages"),
    ):
        before = len(terminal.getvalue())
        told()
        shown.append(last_frame(terminal.getvalue()[before:]))
    progress.close()
    # then the line says so each time
    for line, said in zip(
        shown, ("waiting for the last answers", "removing containers: 400 of 2,061", "asking Prometheus"), strict=True
    ):  # fmt: skip
        assert said in line


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ("quiet", ["left behind: 3 leases; this removes it: tippingpoint clean runs/one"]),
        ("normal", ["fault: kill m1", "note: a remark", "left behind: 3 leases"]),
        ("verbose", ["fault: kill m1", "note: a remark", "figure of stage 1: etcd-memory 300 on m1", "left behind"]),
    ],
)  # fmt: skip
def test_as_much_is_said_as_was_asked_for(detail: Detail, said: list[str]) -> None:
    shown = io.StringIO()
    progress = ConsoleProgress(shown, detail=detail)
    progress.event(1.0, "fault", {"do": "kill", "member": "m1"})
    progress.event(2.0, "note", {"text": "a remark"})
    progress.event(3.0, "figure", {"stage": 1, "name": "etcd-memory", "value": 300.0, "host": "m1"})
    progress.event(4.0, "interrupted", {})
    progress.event(5.0, "left-behind", {"problem": "3 leases", "remedy": "tippingpoint clean runs/one"})
    progress.progress(STAGE, "0", tick(50, 1000))
    progress.close()
    lines = shown.getvalue().splitlines()
    samples = [line for line in lines if "stage 1/2" in line]
    events = [line for line in lines if line not in samples]
    assert len(samples) == (detail != "quiet")
    assert [part in line for part, line in zip(said, events, strict=True)] == [True] * len(said)
