"""Reads one worker's journal: its histograms summed by stage and over time, its events, and its damage.

A journal may still grow. What was read of it is not read again: a search judges each probe when it ends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import numpy as np

from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.curves import CHART_BINS, CHART_SHIFT, CHART_SLOTS, NO_CELLS, Cells, added
from tippingpoint.rundir.damage import Damage, find_damage, of_events
from tippingpoint.rundir.gauges import GAUGES
from tippingpoint.rundir.histogram import SLOTS, Batch, Counts, IntArray, decode_batch
from tippingpoint.rundir.journal import (
    HALF_MS,
    EventLog,
    IntervalLog,
    is_number,
    last_begin,
    read_events,
    read_interval_log,
)
from tippingpoint.rundir.manifest import Manifest

_SPARSE = 16
"""The number of cells per entry above which sorting the entries is quicker than counting in all cells."""


@dataclass(frozen=True)
class WorkerEvents:
    """A worker's event log without damaged lines, in the order in which it was written."""

    marks: list[dict[str, Any]]
    """The marks at which phases of stages begin: `t`, `stage`, `size`, `kind` and `phase` (begin, hold, drain or
    end)."""
    ticks: list[dict[str, Any]]
    events: list[dict[str, Any]]
    """All other events, with the worker's name."""
    log: EventLog
    """The log as it was read; invalid marks and ticks count as damaged lines."""


@dataclass
class WorkerData:
    """A worker's journal, ready to be joined with others. Counts are pairs: cells or slots, and the count of each."""

    stage_counts: dict[tuple[int, bool, str], list[Counts]]
    """Slots by stage, whether it was held, and tag."""
    chart_counts: dict[str, Cells]
    """Cells over time by tag: bin * CHART_SLOTS + (slot >> CHART_SHIFT)."""
    error_counts: dict[tuple[str, int], Cells]
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


def read_worker_events(
    directory: Path, name: str, bin_seconds: float, known: WorkerEvents | None = None
) -> WorkerEvents:
    """Return a worker's events; times far beyond the end of a run with such bins are damage.

    `known` is what was read of them before, which is not read again.
    """
    if known is None or not known.log.end:
        known = WorkerEvents([], [], [], EventLog())
    log = read_events(directory / f"worker-{name}.jsonl", known.log)
    marks, ticks, events = [*known.marks], [*known.ticks], [*known.events]
    damaged = log.damaged
    for event in log.events[len(known.log.events) :]:
        kind = event["event"]
        if kind == "stage" and _is_mark(event):
            marks.append(event)
        elif kind == "tick" and _is_tick(event, bin_seconds):
            ticks.append(event)
        elif kind in ("stage", "tick"):
            damaged += 1
        else:
            events.append({"worker": name, **event})
    return WorkerEvents(marks, ticks, events, replace(log, damaged=damaged))


def read_worker_log(directory: Path, name: str, bin_seconds: float) -> tuple[IntervalLog, Batch]:
    """Return a worker's undamaged intervals, with the count of damaged ones, and their histograms by row."""
    return _decoded(read_interval_log(directory / f"worker-{name}.hlog"), bin_seconds)


def complete_workers(manifest: Manifest) -> set[str]:
    """Return the names, as in file names, of the workers that ended in an orderly way."""
    return {worker.name.replace("/", "-") for worker in manifest.workers if worker.status == "complete"}


def run_damage(manifest: Manifest, names: Iterable[str], runner_log: EventLog) -> list[Damage]:
    """Return the damage of a run as a whole: workers without a journal, and what is missing from its own events."""
    gone = sorted(complete_workers(manifest).difference(names))
    ended = manifest.ended is not None
    return [
        *(Damage(name, 0.0, np.inf, "its interval log is missing") for name in gone),
        *of_events("", runner_log, complete=ended),
    ]


def read_worker(directory: Path, name: str, bin_seconds: float, complete: bool) -> WorkerData:
    """Read a worker's journal; `complete` is as in find_damage."""
    return WorkerReader(directory, name, bin_seconds).read(complete)


class WorkerReader:
    """Reads the journal of a worker, and later what it has written since."""

    def __init__(self, directory: Path, name: str, bin_seconds: float) -> None:
        self.bin_seconds = bin_seconds
        self._directory = directory
        self._name = name
        self._said: WorkerEvents | None = None
        self._sums = _Sums()
        """The sums of all intervals that are followed by a tick that was read."""
        self._later = IntervalLog([], [], [], [], 0)
        """The intervals after these. They belong to a phase whose mark may not have been read yet."""

    def read(self, complete: bool) -> WorkerData:
        """Read the journal as far as it is written; `complete` is as in find_damage."""
        # The events of a journal that grows are read before the intervals that they describe.
        self._said = said = read_worker_events(self._directory, self._name, self.bin_seconds, self._said)
        fresh = read_interval_log(self._directory / f"worker-{self._name}.hlog", since=self._later.end)
        last_tick = float(said.ticks[-1]["t"]) if said.ticks else 0.0
        log = IntervalLog(
            self._later.tags + fresh.tags,
            self._later.begins + fresh.begins,
            self._later.lengths + fresh.lengths,
            self._later.encoded + fresh.encoded,
            fresh.damaged,
        )
        settled = next((row for row, begin in enumerate(log.begins) if begin + HALF_MS >= last_tick), None)
        self._sums.damaged += fresh.damaged - fresh.cut_off
        if settled is None or settled:
            self._sums.add(log.rows(0, settled), said.marks, self.bin_seconds)
        self._later = replace(log.rows(len(log.tags) if settled is None else settled), end=fresh.end)
        sums = self._sums.copy()
        sums.damaged += fresh.cut_off
        if self._later.tags:
            sums.add(self._later, said.marks, self.bin_seconds)
        return WorkerData(
            sums.stage_counts,
            sums.chart_counts,
            sums.error_counts,
            said.marks,
            said.ticks,
            said.events,
            left_out(f"worker {self._name}", sums.damaged + said.log.damaged),
            find_damage(
                self._name,
                said.log,
                sums.begins,
                sums.samples,
                sums.damaged,
                complete=complete,
            ),
        )


@dataclass
class _Sums:
    """What intervals of a worker add up to. Counts are as in WorkerData."""

    stage_counts: dict[tuple[int, bool, str], list[Counts]] = field(
        default_factory=dict[tuple[int, bool, str], list[Counts]]
    )
    chart_counts: dict[str, Cells] = field(default_factory=dict[str, Cells])
    error_counts: dict[tuple[str, int], Cells] = field(default_factory=dict[tuple[str, int], Cells])
    begins: list[float] = field(default_factory=list[float])
    samples: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """How many each interval has."""
    damaged: int = 0
    """How many lines could not be read."""

    def copy(self) -> _Sums:
        """Return a copy to which more can be added."""
        return _Sums(
            {key: [*parts] for key, parts in self.stage_counts.items()},
            {**self.chart_counts},
            {**self.error_counts},
            [*self.begins],
            self.samples,
            self.damaged,
        )

    def add(self, log: IntervalLog, marks: Sequence[Mapping[str, Any]], bin_seconds: float) -> None:
        """Add intervals, in order of time; `marks` are those of their worker."""
        log, batch = _decoded(log, bin_seconds)
        self.damaged += log.damaged
        self.begins += log.begins
        self.samples = np.concatenate((self.samples, batch.totals(len(log.tags))))
        if not batch.rows.size:
            return
        begins = np.asarray(log.begins, dtype=np.float64)
        moments = np.asarray([event["t"] for event in marks], dtype=np.float64)
        mark_of_row = np.searchsorted(moments, begins + HALF_MS, side="right") - 1
        bin_of_row = (begins / bin_seconds).astype(np.int64)
        tag_names = sorted(set(log.tags))
        index_of = {name: index for index, name in enumerate(tag_names)}
        tags = np.asarray([index_of[name] for name in log.tags], dtype=np.int64)[batch.rows]
        # Rows are in order of time, so the rows of one mark are contiguous.
        first_row = np.searchsorted(mark_of_row, np.arange(len(marks) + 1), side="left")
        first_entry = np.searchsorted(batch.rows, first_row, side="left").tolist()
        for mark, (first, last) in zip(marks, pairwise(first_entry), strict=True):
            if mark["phase"] == "end" or first == last:
                continue
            cells, counts = by_cell(
                tags[first:last] * SLOTS + batch.slots[first:last], batch.counts[first:last]
            )
            edges = np.searchsorted(cells, SLOTS * np.arange(len(tag_names) + 1)).tolist()
            for tag_index, (begin, end) in enumerate(pairwise(edges)):
                if begin < end:
                    key = (int(mark["stage"]), mark["phase"] == "hold", tag_names[tag_index])
                    found = (cells[begin:end] - tag_index * SLOTS, counts[begin:end])
                    self.stage_counts.setdefault(key, []).append(found)
        # The index -1, for rows before any stage, finds the 0 at the end.
        stage_of_mark = np.asarray(
            [mark["stage"] if mark["phase"] != "end" else 0 for mark in marks] + [0], dtype=np.int64
        )
        cells = bin_of_row[batch.rows] * CHART_SLOTS + (batch.slots >> CHART_SHIFT)
        for tag_index, tag_name in enumerate(tag_names):
            # One by one to save memory: the counts of all cells of a tag may take 14 MiB.
            mine = np.flatnonzero(tags == tag_index)
            if not mine.size:
                continue
            charted = by_cell(cells[mine], batch.counts[mine])
            self.chart_counts[tag_name] = added(self.chart_counts.get(tag_name, NO_CELLS), charted)
            operation, _, outcome = tag_name.rpartition(".")
            if outcome != "error":
                continue
            numbers = stage_of_mark[mark_of_row[batch.rows[mine]]]
            for number in np.unique(numbers[numbers > 0]).tolist():
                inside = mine[numbers == number]
                errors = by_cell(cells[inside], batch.counts[inside])
                key = (operation, number)
                self.error_counts[key] = added(self.error_counts.get(key, NO_CELLS), errors)


def by_cell(cells: IntArray, counts: IntArray) -> Cells:
    """Return each cell once, in order, with the sum of its counts."""
    if not cells.size:
        return NO_CELLS
    low = int(cells.min())
    if int(cells.max()) - low > _SPARSE * cells.size:
        found, places = np.unique(cells, return_inverse=True)
        return found, np.bincount(places, weights=counts, minlength=found.size).astype(np.int64)
    summed = np.bincount(cells - low, weights=counts)
    filled = np.flatnonzero(summed)
    return filled + low, summed[filled].astype(np.int64)


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
