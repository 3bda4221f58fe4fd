"""Reads one worker's journal: its histograms summed by stage and over time, its events, and its damage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.curves import CHART_BINS, CHART_SHIFT, CHART_SLOTS
from tippingpoint.rundir.damage import Damage, find_damage, of_events
from tippingpoint.rundir.gauges import GAUGES
from tippingpoint.rundir.histogram import SLOTS, Batch, IntArray, decode_batch
from tippingpoint.rundir.journal import (
    EventLog,
    IntervalLog,
    is_number,
    last_begin,
    read_events,
    read_interval_log,
)
from tippingpoint.rundir.manifest import Manifest


@dataclass(frozen=True)
class WorkerEvents:
    """A worker's event log without damaged lines, in the order in which it was written."""

    marks: list[dict[str, Any]]
    """The marks at which phases of stages begin: `t`, `stage`, `size`, `kind` and `phase` (begin, hold, drain or
    end)."""
    ticks: list[dict[str, Any]]
    events: list[dict[str, Any]]
    """All other events, with the worker's name."""
    damaged: int
    """How many lines were damaged."""
    log: EventLog
    """The log as it was read."""


@dataclass
class WorkerData:
    """A worker's journal, ready to be joined with others. Counts are pairs: cells or slots, and the count of each."""

    stage_counts: dict[tuple[int, bool, str], list[tuple[IntArray, IntArray]]]
    """Slots by stage, whether it was held, and tag."""
    chart_counts: dict[str, tuple[IntArray, IntArray]]
    """Cells over time by tag: bin * CHART_SLOTS + (slot >> CHART_SHIFT)."""
    error_counts: dict[tuple[str, int], tuple[IntArray, IntArray]]
    """Such cells of errors, by operation and stage: each stage decides whether they count in its cost."""
    stages: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    events: list[dict[str, Any]]
    notes: list[str]
    damage: list[Damage]


def worker_names(directory: Path) -> list[str]:
    """Return the workers that have a journal in a run's directory."""
    return sorted(path.stem.removeprefix("worker-") for path in directory.glob("worker-*.hlog"))


def bin_seconds_of(directory: Path, names: Iterable[str]) -> float:
    """Return the seconds per chart bin, a whole number, so that no run has more than CHART_BINS bins."""
    longest = max((last_begin(directory / f"worker-{name}.hlog") for name in names), default=0.0)
    return float(max(1, int(np.ceil(longest / CHART_BINS))))


def read_worker_events(directory: Path, name: str, bin_seconds: float) -> WorkerEvents:
    """Return a worker's events; times far beyond the end of a run with such bins are damage."""
    log = read_events(directory / f"worker-{name}.jsonl")
    read = WorkerEvents([], [], [], 0, log)
    damaged = log.damaged
    for event in log.events:
        kind = event["event"]
        if kind == "stage" and _is_mark(event):
            read.marks.append(event)
        elif kind == "tick" and _is_tick(event, bin_seconds):
            read.ticks.append(event)
        elif kind in ("stage", "tick"):
            damaged += 1
        else:
            read.events.append({"worker": name, **event})
    return replace(read, damaged=damaged, log=replace(log, damaged=damaged))


def read_worker_log(directory: Path, name: str, bin_seconds: float) -> tuple[IntervalLog, Batch]:
    """Return a worker's undamaged intervals, with the count of damaged ones, and their histograms by row."""
    return _decoded(read_interval_log(directory / f"worker-{name}.hlog"), bin_seconds)


def complete_workers(manifest: Manifest) -> set[str]:
    """Return the names, as in file names, of the workers that ended in an orderly way."""
    return {worker.name.replace("/", "-") for worker in manifest.workers if worker.status == "complete"}


def run_damage(manifest: Manifest, names: Iterable[str], runner_log: EventLog) -> list[Damage]:
    """Return the damage of a run as a whole: workers without a journal, and what is missing from its own events."""
    if not manifest.counted:
        return of_events("", runner_log, complete=False, counted=False)
    gone = sorted(complete_workers(manifest).difference(names))
    ended = manifest.ended is not None
    return [
        *(Damage(name, 0.0, np.inf, "its interval log is missing") for name in gone),
        *of_events("", runner_log, complete=ended, counted=True),
    ]


def read_worker(directory: Path, name: str, bin_seconds: float, complete: bool, counted: bool) -> WorkerData:
    """Read a worker's journal; `complete` and `counted` are as in find_damage."""
    # The events of a journal that grows are read before the intervals that they describe.
    said = read_worker_events(directory, name, bin_seconds)
    log, batch = read_worker_log(directory, name, bin_seconds)
    damage = find_damage(name, said.log, log, batch, complete=complete, counted=counted)
    stages, ticks, events = said.marks, said.ticks, said.events
    notes = left_out(f"worker {name}", log.damaged + said.damaged)
    begins = np.asarray(log.begins, dtype=np.float64)
    marks = np.asarray([event["t"] for event in stages], dtype=np.float64)
    mark_of_row = np.searchsorted(marks, begins + 0.0005, side="right") - 1
    bin_of_row = (begins / bin_seconds).astype(np.int64)
    tag_names = sorted(set(log.tags))
    index_of = {name: index for index, name in enumerate(tag_names)}
    tag_of_row = np.asarray([index_of[name] for name in log.tags], dtype=np.int64)
    stage_counts: dict[tuple[int, bool, str], list[tuple[IntArray, IntArray]]] = {}
    chart_counts: dict[str, tuple[IntArray, IntArray]] = {}
    if not batch.rows.size:
        return WorkerData(stage_counts, chart_counts, {}, stages, ticks, events, notes, damage)
    tags = tag_of_row[batch.rows]
    # Rows are in order of time, so the rows of one mark are contiguous.
    first_row = np.searchsorted(mark_of_row, np.arange(len(stages) + 1), side="left")
    first_entry = np.searchsorted(batch.rows, first_row, side="left")
    for mark, stage in enumerate(stages):
        if stage["phase"] == "end":
            continue
        inside = slice(int(first_entry[mark]), int(first_entry[mark + 1]))
        cells = tags[inside] * SLOTS + batch.slots[inside]
        summed = np.bincount(cells, weights=batch.counts[inside], minlength=len(tag_names) * SLOTS)
        for tag_index, tag_name in enumerate(tag_names):
            counts = summed[tag_index * SLOTS : (tag_index + 1) * SLOTS]
            slots = np.flatnonzero(counts)
            if slots.size:
                values = counts[slots].astype(np.int64)
                key = (int(stage["stage"]), stage["phase"] == "hold", tag_name)
                stage_counts.setdefault(key, []).append((slots, values))
    cells = bin_of_row[batch.rows] * CHART_SLOTS + (batch.slots >> CHART_SHIFT)
    for tag_index, tag_name in enumerate(tag_names):
        # One by one to save memory: the counts of all cells of a tag may take 14 MiB.
        mine = np.flatnonzero(tags == tag_index)
        summed = np.bincount(cells[mine], weights=batch.counts[mine])
        filled = np.flatnonzero(summed)
        chart_counts[tag_name] = (filled, summed[filled].astype(np.int64))
    # The index -1, for rows before any stage, finds the 0 at the end.
    stage_of_mark = np.asarray(
        [m["stage"] if m["phase"] != "end" else 0 for m in stages] + [0], dtype=np.int64
    )
    error_counts: dict[tuple[str, int], tuple[IntArray, IntArray]] = {}
    for tag_index, tag_name in enumerate(tag_names):
        operation, _, outcome = tag_name.rpartition(".")
        if outcome != "error":
            continue
        errors = np.flatnonzero(tags == tag_index)
        rows = batch.rows[errors]
        cells = bin_of_row[rows] * CHART_SLOTS + (batch.slots[errors] >> CHART_SHIFT)
        numbers = stage_of_mark[mark_of_row[rows]]
        for number in np.unique(numbers[numbers > 0]).tolist():
            inside = numbers == number
            error_counts[operation, number] = by_cell(cells[inside], batch.counts[errors[inside]])
    return WorkerData(stage_counts, chart_counts, error_counts, stages, ticks, events, notes, damage)


def by_cell(cells: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return each cell once, with the sum of its counts."""
    found, places = np.unique(cells, return_inverse=True)
    return found, np.bincount(places, weights=counts, minlength=found.size).astype(np.int64)


def left_out(where: str, damaged: int) -> list[str]:
    """Return the note about damaged lines for the reader; empty if there are none."""
    return [f"{where}: {damaged} damaged line{'s' * (damaged != 1)} left out"] if damaged else []


def _is_mark(event: Mapping[str, Any]) -> bool:
    number: Any = event.get("stage")
    size: Any = event.get("size")
    return (
        isinstance(number, int)
        and not isinstance(number, bool)
        and is_number(size)
        and number > 0
        and size >= 0  # a spawn stage of machines alone has no units
        and event.get("kind") in get_args(StageKind)
        and event.get("phase") in ("begin", "hold", "drain", "end")
    )


def _is_tick(event: Mapping[str, Any], bin_seconds: float) -> bool:
    return _charted(event["t"], bin_seconds) and all(is_number(event.get(name)) for name in GAUGES)


def _charted(t: float, bin_seconds: float) -> bool:
    """Return whether a time is plausible in a run with this many seconds a bin, even if it has grown since."""
    return t < 2 * CHART_BINS * bin_seconds


def _decoded(log: IntervalLog, bin_seconds: float) -> tuple[IntervalLog, Batch]:
    """Return the log without damaged intervals, and its histograms."""
    if all(_charted(begin, bin_seconds) for begin in log.begins):
        with contextlib.suppress(ValueError):
            return log, _decode(log.encoded)
    good: list[int] = []
    for row, (begin, encoded) in enumerate(zip(log.begins, log.encoded, strict=True)):
        with contextlib.suppress(ValueError):
            _decode([encoded])
            if _charted(begin, bin_seconds):
                good.append(row)
    kept = IntervalLog(
        tags=[log.tags[row] for row in good],
        begins=[log.begins[row] for row in good],
        lengths=[log.lengths[row] for row in good],
        encoded=[log.encoded[row] for row in good],
        damaged=log.damaged + len(log.tags) - len(good),
    )
    return kept, _decode(kept.encoded)


def _decode(encoded: list[bytes]) -> Batch:
    batch = decode_batch(encoded)
    if batch.slots.size and not 0 <= batch.slots.min() <= batch.slots.max() < SLOTS:
        raise ValueError("a histogram with too many slots")
    return batch
