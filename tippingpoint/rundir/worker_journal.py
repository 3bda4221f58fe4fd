"""One worker's journal, read back: its histograms added up by stage and over time, its events, and what is damaged."""

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
    """A worker's event log, without what is damaged, in the order it was written."""

    marks: list[dict[str, Any]]
    """Where phases of stages begin: `t`, `stage`, `size`, `kind` and `phase` (begin, hold, drain or end)."""
    ticks: list[dict[str, Any]]
    events: list[dict[str, Any]]
    """All others, with the worker's name."""
    damaged: int
    """How many lines were."""
    log: EventLog
    """The log as it was read."""


@dataclass
class WorkerData:
    """A worker's journal as a run is joined from. Counts are pairs: which cells or slots, and how often each."""

    stage_counts: dict[tuple[int, bool, str], list[tuple[IntArray, IntArray]]]
    """Slots by stage, whether it was held, and tag."""
    chart_counts: dict[str, tuple[IntArray, IntArray]]
    """Cells over time by tag: bin * CHART_SLOTS + (slot >> CHART_SHIFT)."""
    error_counts: dict[tuple[str, int], tuple[IntArray, IntArray]]
    """The same of errors, by operation and stage: whether they count in what it cost, each stage decides."""
    stages: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    events: list[dict[str, Any]]
    notes: list[str]
    damage: list[Damage]


def worker_names(directory: Path) -> list[str]:
    """The workers that have a journal in a run's directory."""
    return sorted(path.stem.removeprefix("worker-") for path in directory.glob("worker-*.hlog"))


def bin_seconds_of(directory: Path, names: Iterable[str]) -> float:
    """Whole seconds per chart bin, so that no run has more than CHART_BINS of them."""
    longest = max((last_begin(directory / f"worker-{name}.hlog") for name in names), default=0.0)
    return float(max(1, int(np.ceil(longest / CHART_BINS))))


def read_worker_events(directory: Path, name: str, bin_seconds: float) -> WorkerEvents:
    """A worker's events; times from far beyond a run that is charted in such bins are damaged."""
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
    """A worker's intervals without damaged ones, which it counts, and their histograms by its rows."""
    return _decoded(read_interval_log(directory / f"worker-{name}.hlog"), bin_seconds)


def complete_workers(manifest: Manifest) -> set[str]:
    """The workers that ended in order, as their journals are called."""
    return {worker.name.replace("/", "-") for worker in manifest.workers if worker.status == "complete"}


def run_damage(manifest: Manifest, names: Iterable[str], runner_log: EventLog) -> list[Damage]:
    """Workers of a run that counts what it writes whose journals are gone, and what is missing of its own events."""
    if not manifest.counted:
        return of_events("", runner_log, complete=False, counted=False)
    gone = sorted(complete_workers(manifest).difference(names))
    ended = manifest.ended is not None
    return [
        *(Damage(name, 0.0, np.inf, "its intervals are not there") for name in gone),
        *of_events("", runner_log, complete=ended, counted=True),
    ]


def read_worker(directory: Path, name: str, bin_seconds: float, complete: bool, counted: bool) -> WorkerData:
    """A worker's journal; `complete` and `counted` are as in find_damage."""
    # What is said of a journal that grows is read before what it is said of.
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
    # Rows are in the order of time, so what belongs to one mark lies together.
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
    bins = int(bin_of_row.max()) + 1
    cells = (tags * bins + bin_of_row[batch.rows]) * CHART_SLOTS + (batch.slots >> CHART_SHIFT)
    summed = np.bincount(cells, weights=batch.counts, minlength=len(tag_names) * bins * CHART_SLOTS)
    for tag_name, counts in zip(tag_names, np.split(summed, len(tag_names)), strict=True):
        filled = np.flatnonzero(counts)
        chart_counts[tag_name] = (filled, counts[filled].astype(np.int64))
    # A mark of -1, before any stage, finds the 0 at the end.
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
    """Each cell once, with all that it counts."""
    found, places = np.unique(cells, return_inverse=True)
    return found, np.bincount(places, weights=counts, minlength=found.size).astype(np.int64)


def left_out(where: str, damaged: int) -> list[str]:
    """What the reader is told of damaged lines: nothing when there are none."""
    return [f"{where}: {damaged} damaged line{'s' * (damaged != 1)} left out"] if damaged else []


def _is_mark(event: Mapping[str, Any]) -> bool:
    number: Any = event.get("stage")
    size: Any = event.get("size")
    return (
        all(isinstance(value, int) and not isinstance(value, bool) for value in (number, size))
        and number > 0
        and size >= 0  # a spawn stage of machines alone has no units
        and event.get("kind") in get_args(StageKind)
        and event.get("phase") in ("begin", "hold", "drain", "end")
    )


def _is_tick(event: Mapping[str, Any], bin_seconds: float) -> bool:
    return _charted(event["t"], bin_seconds) and all(is_number(event.get(name)) for name in GAUGES)


def _charted(t: float, bin_seconds: float) -> bool:
    """Whether a time can be in a run of this many seconds a bin, even in one that has grown meanwhile."""
    return t < 2 * CHART_BINS * bin_seconds


def _decoded(log: IntervalLog, bin_seconds: float) -> tuple[IntervalLog, Batch]:
    """The log without what turns out to be damaged, and its histograms."""
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
        raise ValueError("a histogram with more slots than there are")
    return batch
