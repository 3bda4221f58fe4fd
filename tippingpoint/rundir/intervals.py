"""The intervals of a run's journals one by one, as its workers wrote them, where a chart's bins are too wide."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tippingpoint.rundir.histogram import Counts, decode_each, highest_values, slots_of
from tippingpoint.rundir.journal import read_interval_log
from tippingpoint.rundir.tags import DELAYED, FREED, tag
from tippingpoint.rundir.worker_journal import worker_names

_NOTHING: Counts = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


@dataclass(frozen=True)
class Interval:
    """What ended at one worker between two moments (seconds since the run's start)."""

    worker: str
    begin: float
    end: float
    counts: Mapping[str, Counts] = field(default_factory=dict[str, Counts])
    """Response times by tag."""

    def count(self, operation: str, outcome: str = "ok") -> int:
        """Return how often an operation ended with an outcome."""
        return int(self.counts.get(tag(operation, outcome), _NOTHING)[1].sum())

    def above(self, operation: str, microseconds: float) -> int:
        """Return how many successes took longer, without delays of the generator's own."""
        late = 0
        name = tag(operation)
        for kind, sign in (("", 1), (DELAYED, -1), (FREED, 1)):
            slots, counts = self.counts.get(name + kind, _NOTHING)
            late += sign * int(counts[slots > int(slots_of([microseconds])[0])].sum())
        return max(0, late)

    def longest(self, operation: str, outcome: str = "ok") -> int:
        """Return the longest time in microseconds, without delays of the generator's own; 0 if there is none."""
        name = tag(operation, outcome)
        delayed = _by_slot(self.counts.get(name + DELAYED, _NOTHING))
        counts = _by_slot(self.counts.get(name, _NOTHING))
        own = [slot for slot, count in counts.items() if count > delayed.get(slot, 0)]
        freed = self.counts.get(name + FREED, _NOTHING)[0]
        longest = max([*own[-1:], *freed[-1:].tolist()], default=None)
        return 0 if longest is None else int(highest_values(np.asarray([longest]))[0])


def _by_slot(counts: Counts) -> dict[int, int]:
    return dict(zip(counts[0].tolist(), counts[1].tolist(), strict=True))


def read_intervals(directory: Path, begin: float, end: float) -> list[Interval]:
    """Return all workers' intervals that overlap a span of time, by their begin; damaged ones are left out."""
    found: list[Interval] = []
    for worker in worker_names(directory):
        found += _of_worker(directory / f"worker-{worker}.hlog", worker, begin, end)
    return sorted(found, key=lambda interval: interval.begin)


def _of_worker(path: Path, worker: str, begin: float, end: float) -> Iterator[Interval]:
    log = read_interval_log(path)
    begins = np.asarray(log.begins, dtype=np.float64)
    inside = np.flatnonzero((begins < end) & (begins + np.asarray(log.lengths) > begin)).tolist()
    spans: dict[tuple[float, float], dict[str, Counts]] = {}
    for row, counts in zip(inside, _decoded([log.encoded[row] for row in inside]), strict=True):
        if counts is not None:
            span = (log.begins[row], log.begins[row] + log.lengths[row])
            spans.setdefault(span, {})[log.tags[row]] = counts
    return (Interval(worker, *span, counts) for span, counts in spans.items())


def _decoded(encoded: Sequence[bytes]) -> list[Counts | None]:
    """Return the counts of each encoding; None for a damaged one."""
    with contextlib.suppress(ValueError):
        return [*decode_each(encoded)]
    return [None] if len(encoded) == 1 else [part for one in encoded for part in _decoded([one])]
