"""Questions about what a run measured: its journals beside the service's own log, and beside what its plan asks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from tests.simulation.runs import Ended
from tippingpoint.analysis.thresholds import limits_of
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.histogram import decode_batch, decode_each, lowest_values
from tippingpoint.rundir.journal import count_of, read_events, read_interval_log
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.tags import tag

_ROUNDED = 0.003
"""Seconds by which moments of a journal and of the service's log may differ."""
_WINDOW, _FEWEST = 2.0, 5
"""The least seconds and attempts of a window in which a threshold with `abort` is judged."""
_MISSED_FOR = 12
"""The windows in a row, each clearly missed, by which such a threshold has ended the run: it says eight."""
_LATE = 3.0
"""Seconds, beside those of its retries, in which a unit notices that its lease has run out."""
_WATCHED = ("ramp", "storm", "find")


def ask_of_answers(answers: Mapping[tuple[str, str], int], directories: Sequence[Path]) -> Counter[str]:
    """Return how many answers are recorded; no more than a process got that was alive."""
    recorded: Counter[str] = Counter()
    for file in [file for directory in directories for file in directory.glob("worker-*.hlog")]:
        log = read_interval_log(file)
        batch = decode_batch(log.encoded)
        for row, count in zip(batch.rows.tolist(), batch.counts.tolist(), strict=True):
            recorded[log.tags[row]] += count
    for operation, outcome, said in (
        ("claim", "claim.ok", "ok"),
        ("claim", "claim.denied", "no"),
        ("extend", "extend.ok", "ok"),
        ("create", "create.ok", "ok"),
        ("start", "start.ok", "ok"),
        ("get", "get.ok", "ok"),
        ("lease-grant", "lease-grant.ok", "ok"),
        ("watch-event", "watch-event.ok", "ok"),
    ):
        answered = answers.get((operation, said), 0)
        assert recorded[outcome] <= answered, f"{outcome}: {recorded[outcome]} of {answered} answers"
    return recorded


def ask_of_stage_answers(ended: Ended, run: RunData, *, all_counted: bool) -> None:
    """By the service's log, what a stage counts was answered in it, or while it ended; and it counts all that was
    answered in it, if no answer was to something given up before."""
    began = run.manifest.began_after_boot
    assert began is not None
    for operation in ("claim", "extend"):
        answers = [moment for moment, name, said in ended.answers if (name, said) == (operation, "ok")]
        for number, stage in enumerate(run.stages, start=1):
            if stage.end is None:
                continue
            first, last = began + stage.begin, began + stage.end
            over = began + run.stages[number].begin if number < len(run.stages) else inf
            counted = stage.count(operation)
            most = bisect_right(answers, over + _ROUNDED) - bisect_left(answers, first - _ROUNDED)
            least = bisect_left(answers, last - _ROUNDED) - bisect_right(answers, first + _ROUNDED)
            what = f"stage {stage.number} counts {counted} of {operation}"
            assert counted <= most, f"{what}, though {most} were answered in it"
            assert counted >= least or not all_counted, f"{what}, though {least} were answered in it"


def ask_of_losses(directories: Sequence[Path]) -> int:
    """Return how many leases were lost; each is counted with how long its last extension took."""
    lost = 0
    for file in [file for directory in directories for file in directory.glob("worker-*.jsonl")]:
        events = sum(count_of(event) for event in read_events(file).events if event["event"] == "lost")
        log = read_interval_log(file.with_suffix(".hlog"))
        lines = [
            line for name, line in zip(log.tags, log.encoded, strict=True) if name == tag("extend", "lost")
        ]
        counted = sum(decode_batch(lines).counts.tolist()) if lines else 0
        assert counted == events, f"{file.name} has {events} lost leases, and {counted} lost extensions"
        lost += events
    return lost


def ask_of_what_ran_out(ended: Ended, run: RunData, workload: Mapping[str, Any], lost: int) -> None:
    """A lease that ran out although its holder was to renew it is lost. The holder sees that by its next answer, or by
    that to a retry."""
    ends = [stage.end for stage in run.stages if stage.end is not None]
    began = run.manifest.began_after_boot
    if not ends or began is None:
        return
    notices = sum(seconds_of(workload[name]) for name in ("claim_time", "renew_time", "timeout")) + _LATE
    ran_out = bisect_left(ended.ran_out, began + max(ends) - notices)
    assert ran_out <= lost, f"{ran_out} leases ran out, and {lost} are counted as lost"


@dataclass
class _Window:
    """A time in which some attempts were made."""

    seconds: float = 0.0
    attempts: int = 0
    slow: int = 0
    """How many took longer than a limit."""


def ask_of_aborts(run: RunData, plan: Mapping[str, Any]) -> None:
    """A threshold with `abort` ends what misses it clearly for long enough, and nothing that meets it."""
    aborts = [Threshold.model_validate(each) for each in plan["thresholds"] if each.get("abort")]
    aborted = next((event["t"] for event in run.events if event["event"] == "aborted"), None)
    slow_at_the_end = 0
    for threshold in aborts:
        seconds = _seconds_of(run.directory, threshold.operation)
        for limit in limits_of(threshold):
            if limit.percentile is None:
                continue
            for stage in run.stages:
                if stage.kind in _WATCHED and stage.end is not None:
                    longest = _missed_in_a_row(seconds, stage.begin, stage.end, limit.allowed)
                    assert longest < _MISSED_FOR, (
                        f"stage {stage.number} misses {limit.title} in {longest} windows in a row, and went on"
                    )
            if aborted is not None:
                last = [
                    row for at in range(int(aborted) - 16, int(aborted) + 1) for row in seconds.get(at, ())
                ]
                slow_at_the_end += sum(count for us, count in last if us > limit.allowed)
    assert aborted is None or slow_at_the_end, "the run was aborted, and nothing was slow"


def _missed_in_a_row(
    seconds: Mapping[int, list[tuple[float, int]]], begin: float, end: float, allowed: float
) -> int:
    """Return the most windows in a row in most of whose calls took longer than what is allowed."""
    longest, row, window = 0, 0, _Window()
    for second in range(int(begin) + 1, int(end)):
        window.seconds += 1
        for us, count in seconds.get(second, ()):
            window.attempts += count
            window.slow += count if us > 1.05 * allowed else 0
        if window.seconds < _WINDOW or window.attempts < _FEWEST:
            continue
        row = row + 1 if window.slow > window.attempts / 2 else 0
        longest, window = max(longest, row), _Window()
    return longest


def _seconds_of(directory: Path, operation: str) -> Mapping[int, list[tuple[float, int]]]:
    """Return how long the calls of an operation took, and how many did, by the second in which they ended."""
    found: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    waited = {tag(operation, outcome) for outcome in ("ok", "timeout", "lost")}
    for file in directory.glob("worker-*.hlog"):
        log = read_interval_log(file)
        rows = [row for row, name in enumerate(log.tags) if name in waited]
        for row, (slots, counts) in zip(rows, decode_each([log.encoded[row] for row in rows]), strict=True):
            second = int(log.begins[row] + log.lengths[row] / 2)
            found[second] += zip(lowest_values(slots).tolist(), counts.tolist(), strict=True)
    return found


def seconds_of(written: str) -> float:
    """Return the seconds of a duration of a drawn plan."""
    return float(written.removesuffix("s"))
