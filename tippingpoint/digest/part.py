"""The results of one unit's part of a run, of all its workers: exact by phase, coarse over time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

from tippingpoint.digest.packing import groups, summed
from tippingpoint.errors import UserError
from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.damage import damage_event, find_damage
from tippingpoint.rundir.gauges import GAUGES, add_gauges, phase_medians
from tippingpoint.rundir.histogram import SLOTS, FloatArray, IntArray
from tippingpoint.rundir.journal import HALF_MS, last_begin, read_events
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.worker_journal import (
    WorkerEvents,
    bin_seconds_of,
    complete_workers,
    left_out,
    read_worker_events,
    read_worker_log,
    run_damage,
    worker_names,
)

OVER_TIME_BITS = 3
"""Latencies over time are accurate to an eighth, or better for many samples, which are spread as in the whole
phase."""
OVER_TIME_GROUPS = int(groups(OVER_TIME_BITS)[-1]) + 1
WIDTHS = (1, 2, 5, 10, 20, 60, 120, 300, 600, 1800, 3600)
"""The lengths that an interval may have, in seconds."""
_MOST_INTERVALS = 2400
PLACES = {"": 0, "begin": 0, "hold": 1, "drain": 2, "end": 3}
"""The order of a stage's phases."""
TAG = r"^[a-z0-9_-]{1,60}\.[a-z-]{1,40}(\.service)?$"
"""The tags that journals use (tags.tag)."""
_NONE = np.zeros(0, dtype=np.int64)

Counts = tuple[IntArray, IntArray]
"""Keys, ascending, and the count of each."""
PhaseName = Literal["", "begin", "hold", "drain", "end"]
Milliseconds = Annotated[int, Field(ge=0, lt=10**12)]
Figure = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Size = Annotated[int | float, Field(ge=0, le=10**9, allow_inf_nan=False)]


class Phase(BaseModel):
    """A part of a stage, or the time before the first stage (stage 0, no phase)."""

    stage: Annotated[int, Field(ge=0, le=10**6)]
    size: Size
    """The load of this unit's share."""
    kind: StageKind = "ramp"
    phase: PhaseName
    """`end` follows the end of a stage; it has no length if the next stage begins at once."""
    open: bool = False
    """For an end: whether some of the workers never reached it."""
    begin: Milliseconds
    """Since the part's start."""
    length: Milliseconds
    gauges: dict[str, Figure] | None = None
    """The workers' gauges from gauges.phase_medians, joined."""

    @property
    def end(self) -> int:
        """The end in milliseconds since the part's start."""
        return self.begin + self.length

    def intervals(self, width: int) -> int:
        """Return how many intervals of this many seconds it has; with 0, the whole phase is one."""
        return max(1, -(-self.length // (1000 * width))) if width else 1


@dataclass(frozen=True)
class UnitPart:
    """Everything that was measured."""

    manifest: Manifest
    phases: list[Phase]
    """In order of time."""
    tags: list[str]
    counts: Counts
    """By number * SLOTS + slot, where number is tag * phases + phase."""
    moments: Counts
    """By (number * intervals + interval) * OVER_TIME_GROUPS + group."""
    intervals: int
    """More than any phase has."""
    width: int
    """Seconds in such an interval."""
    ticks: list[tuple[FloatArray, FloatArray]]
    """For each worker the times of its ticks in seconds, and their gauges, a row for each of GAUGES."""
    events: list[dict[str, Any]]
    notes: list[str]


def read_part(directory: Path) -> UnitPart:
    """Read a part from its run directory; raises UserError if it is none. Its journals may be cut."""
    manifest = Manifest.load(directory)
    names = worker_names(directory)
    bin_seconds = bin_seconds_of(directory, names)
    said = [read_worker_events(directory, name, bin_seconds) for name in names]
    of_runner = read_events(directory / "events.jsonl")
    notes = left_out("events.jsonl", of_runner.damaged)
    complete = complete_workers(manifest)
    damage = run_damage(manifest, names, of_runner)
    last = max((last_begin(directory / f"worker-{name}.hlog") for name in names), default=0.0)
    last = max([last, *(float(worker.ticks[-1]["t"]) for worker in said if worker.ticks)])
    phases, of_marks = _phases(said, _ms(last))
    last = max([last, *(phase.end / 1000 for phase in phases)])
    width = next((width for width in WIDTHS if last <= width * _MOST_INTERVALS), WIDTHS[-1])
    intervals = int(last / width) + 2
    begins = np.asarray([phase.begin for phase in phases], dtype=np.int64)
    most = np.asarray([phase.intervals(width) - 1 for phase in phases], dtype=np.int64)
    tags: dict[str, int] = {}
    counts = moments = (_NONE, _NONE)
    for name, worker, of_mark in zip(names, said, of_marks, strict=True):
        log, batch = read_worker_log(directory, name, bin_seconds)
        samples = batch.totals(len(log.tags))
        damage += find_damage(name, worker.log, log.begins, samples, log.damaged, complete=name in complete)
        known = np.asarray([re.match(TAG, tag) is not None for tag in log.tags], dtype=np.bool_)
        notes += left_out(f"worker {name}", log.damaged + worker.log.damaged + int((~known).sum()))
        times = np.asarray(log.begins, dtype=np.float64)
        marks = np.asarray([mark["t"] for mark in worker.marks], dtype=np.float64)
        phase = np.asarray([0, *of_mark])[np.searchsorted(marks, times + HALF_MS, side="right")]
        interval = (np.rint(times * 1000).astype(np.int64) - begins[phase]) // (1000 * width)
        interval = np.clip(interval, 0, most[phase])
        of_tag = np.asarray(
            [tags.setdefault(tag, len(tags)) if known[row] else 0 for row, tag in enumerate(log.tags)],
            dtype=np.int64,
        )
        rows, slots, of_slot = (
            column[known[batch.rows]] for column in (batch.rows, batch.slots, batch.counts)
        )
        number = (of_tag * len(phases) + phase)[rows]
        counts = _added(counts, number * SLOTS + slots, of_slot)
        moment = (number * intervals + interval[rows]) * OVER_TIME_GROUPS + groups(OVER_TIME_BITS)[slots]
        moments = _added(moments, moment, of_slot)
    return UnitPart(
        manifest=manifest,
        phases=phases,
        tags=list(tags),
        counts=counts,
        moments=moments,
        intervals=intervals,
        width=width,
        ticks=[_gauges(worker.ticks) for worker in said],
        events=[
            *of_runner.events,
            *(event for worker in said for event in worker.events),
            *map(damage_event, damage),
        ],
        notes=notes,
    )


def stage_of(part: UnitPart, number: int) -> UnitPart:
    """Return the part as if it had only the stage of this number; raises UserError if it has no such stage."""
    places = [place for place, phase in enumerate(part.phases) if phase.stage == number]
    if not places:
        raise UserError("stage", number, "the number of a stage that has begun")
    first, last = places[0], places[-1]
    begin, end = part.phases[first].begin / 1000, part.phases[last].end / 1000

    def only(counts: Counts, width: int) -> Counts:
        """Keep the counts whose keys have these phases; `width` is how many keys each number has."""
        keys, of_keys = counts
        of_tag, place = np.divmod(keys // width, len(part.phases))
        inside = (place >= first) & (place <= last)
        fresh = (of_tag * len(places) + place - first) * width + keys % width
        return fresh[inside], of_keys[inside]

    return replace(
        part,
        phases=part.phases[first : last + 1],
        counts=only(part.counts, SLOTS),
        moments=only(part.moments, part.intervals * OVER_TIME_GROUPS),
        events=[event for event in part.events if begin <= event["t"] <= end],
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _added(known: Counts, keys: IntArray, counts: IntArray) -> Counts:
    keys, counts = summed(keys, counts)
    return summed(np.concatenate((known[0], keys)), np.concatenate((known[1], counts)))


def _gauges(ticks: Sequence[Mapping[str, Any]]) -> tuple[FloatArray, FloatArray]:
    times = np.asarray([tick["t"] for tick in ticks], dtype=np.float64)
    return times, np.asarray([[tick[name] for tick in ticks] for name in GAUGES], dtype=np.float64)


def _phases(workers: Sequence[WorkerEvents], last: int) -> tuple[list[Phase], list[list[int]]]:
    """Return the phases of all workers together, up to millisecond `last`, and which of them each worker's marks
    begin.

    A stage begins when the first worker begins it. Any other phase begins when the last worker is in it (as in
    results.load_run), at the latest with the next stage. The first phase is the time before any stage.
    """
    first: dict[tuple[int, PhaseName], dict[str, Any]] = {}
    begins: dict[tuple[int, PhaseName], float] = {}
    open_stages: set[int] = set()
    for worker in workers:
        never_ended: set[int] = set()
        for mark in worker.marks:
            name: PhaseName = mark["phase"]
            key = (int(mark["stage"]), name)
            first.setdefault(key, mark)
            earlier_or_later = min if key[1] == "begin" else max
            begins[key] = earlier_or_later(begins.get(key, mark["t"]), mark["t"])
            if key[1] == "begin":
                never_ended.add(key[0])
            elif key[1] == "end":
                never_ended.discard(key[0])
        open_stages |= never_ended
    order = sorted(first, key=lambda key: (key[0], PLACES[key[1]]))
    phases = [Phase(stage=0, size=0, phase="", begin=0, length=0)]
    phases += [
        Phase(
            stage=stage,
            size=min(first[stage, phase]["size"], 10**9),
            kind=first[stage, phase]["kind"],
            phase=phase,
            begin=_ms(begins[stage, phase]),
            length=0,
            open=phase == "end" and stage in open_stages,
        )
        for stage, phase in order
    ]
    following = max(last, phases[-1].begin)
    for phase in reversed(phases):
        phase.begin = min(phase.begin, following)
        phase.length, following = following - phase.begin, phase.begin
    place = {key: number for number, key in enumerate(order, start=1)}
    for worker in workers:
        for mark, medians in phase_medians(worker.marks, worker.ticks):
            phase = phases[place[int(mark["stage"]), mark["phase"]]]
            phase.gauges = add_gauges(phase.gauges or {}, medians)
    return phases, [[place[int(mark["stage"]), mark["phase"]] for mark in w.marks] for w in workers]
