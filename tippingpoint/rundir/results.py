"""What a run measured, read back from its journals: stages exactly, curves over time to 1.6 % (16 us below 1 ms)."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np
from pydantic import BaseModel, ValidationError

from tippingpoint.plan.fields import StageKind as StageKind
from tippingpoint.plan.plan import CLAIM_OPERATIONS, MODEL_OPERATIONS
from tippingpoint.plan.spawn import (
    LIFE,
    OBSERVATIONS,
    SERVER_LIFE,
    SERVER_OBSERVATIONS,
    SERVER_OPERATIONS,
    SPAWN_OPERATIONS,
)
from tippingpoint.rundir.cluster_events import read_cluster
from tippingpoint.rundir.damage import DAMAGED, Damage, find_damage, of_events, read_damage
from tippingpoint.rundir.histogram import (
    SLOTS,
    Batch,
    FloatArray,
    Histogram,
    IntArray,
    decode_batch,
    highest_values,
)
from tippingpoint.rundir.journal import (
    EventLog,
    IntervalLog,
    is_number,
    is_seconds,
    last_begin,
    read_events,
    read_interval_log,
)
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.resources import Resources, read_resources
from tippingpoint.rundir.standstills import CAUSES, Cause
from tippingpoint.rundir.tags import FAILURES as FAILURES
from tippingpoint.rundir.tags import LOOP_LAG as LOOP_LAG
from tippingpoint.rundir.tags import OUTCOMES as OUTCOMES
from tippingpoint.rundir.tags import SCHEDULE_LAG as SCHEDULE_LAG
from tippingpoint.rundir.tags import tag as tag

WAITED = ("ok", "timeout", "lost")
"""Outcomes that an operation was waited for until they came, whatever they are (see waited_outcomes)."""
OPERATIONS = tuple(
    dict.fromkeys(
        (
            *(*CLAIM_OPERATIONS, *MODEL_OPERATIONS, *LIFE[:-1], *SERVER_LIFE.values()),
            *(*SPAWN_OPERATIONS, *SERVER_OPERATIONS),
        )
    )
)
"""All that workloads time, in the order in which it is shown; a run has only some of it (`RunData.operations`)."""
CONNECT = "connect"
MAKING = (
    *("add-machine", "deploy", "add-unit", "relate"),
    *("create", "start", "reachable", "probe", "launch"),
    *(SERVER_LIFE[step] for step in ("create", "start", "launch")),
    "total",
)
REMOVING = (
    *("remove-relation", "remove-unit", "remove-application", "remove-machine"),
    *("delete", "evict", SERVER_LIFE["delete"]),
)
OBSERVING = ("status", "full-status", *OBSERVATIONS, *SERVER_OBSERVATIONS)
OWN_CALLS = ("poll",)
"""What a workload asks for its own sake: shown, and no load of its own."""
BRINGING_UP = (CONNECT, *MAKING, *REMOVING)
"""What is done while a stage is brought up, and only in stages that ask for it."""
OWN_LOAD: dict[str, tuple[str, ...]] = {"claim": ("claim", "extend"), "spawn": MAKING}
"""By workload, the operations that are its load; the others prepare, observe or undo it."""
SUMMED = ("held", "waiting", "in_flight", "rss")
"""Gauges of workers that add up."""
WORST = ("cpu", "loop_lag")
"""Gauges of which the worst worker's counts."""
GAUGES = (*SUMMED, *WORST)
CHART_BINS = 1200
"""How many points a chart over time has at most."""
_CHART_SHIFT = 4  # 64 instead of 1024 slots per power of two
_CHART_SLOTS = SLOTS >> _CHART_SHIFT
_GROWTH_SECONDS = 5.0
_GROWTH_PARTS = {"units": 8, "containers": 24}
"""Parts that a stage's growth is told in: containers come one by one and slowly, for hours."""


def waited_outcomes(histograms: Mapping[str, Histogram], operation: str) -> tuple[str, ...]:
    """The outcomes whose response times are what an operation cost: failures too, so none makes it look better.

    Errors count where they were waited for. Those quicker than the typical answer are refusals: they say nothing of
    latency, and their number counts as error rate. `histograms` are by tag.
    """
    errors = histograms.get(tag(operation, "error"))
    if errors is None or not errors.total:
        return WAITED
    answered = Histogram.merged(
        histograms[name] for outcome in WAITED if (name := tag(operation, outcome)) in histograms
    )
    return (*WAITED, "error") if errors.percentile(50) >= answered.percentile(50) else WAITED


@dataclass
class StageResult:
    """One stage as it was measured; `number` counts from 1 in the order stages were run.

    `size` is the load that was to be there, of a stage of kind destroy the load that was there before it.
    `histograms` cover the stage from its begin, `held` only the part after it was brought up (`hold_begin`).
    """

    number: int
    size: int
    kind: StageKind
    begin: float
    hold_begin: float | None = None
    end: float | None = None
    histograms: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    held: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    gauges: dict[str, float] = field(default_factory=dict[str, float])
    """Medians over the stage's hold: leases held in all; `cpu` (cores) of the busiest worker; see Gauges."""
    growth: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Moments from the stage's begin to its hold (or its end without one), some seconds apart, and what was there."""

    @property
    def is_step(self) -> bool:
        """Whether it is a step of the ladder of loads, which storms and the removal of things are not."""
        return self.kind not in ("storm", "destroy")

    def response(self, operation: str, outcome: str = "ok") -> Histogram:
        """Response times of one operation and outcome (empty when there were none)."""
        return self.histograms.get(tag(operation, outcome)) or Histogram()

    def service(self, operation: str) -> Histogram:
        """Service times of the successes of one operation (empty when there were none)."""
        return self.histograms.get(tag(operation, service=True)) or Histogram()

    def count(self, operation: str, outcome: str = "ok") -> int:
        """How often an operation ended with an outcome in this stage."""
        found = self.histograms.get(tag(operation, outcome))
        return found.total if found else 0

    def attempts(self, operation: str) -> int:
        """How often an operation ended; denied claims and what a rate limit refused left out."""
        return self.count(operation) + self.failures(operation)

    def failures(self, operation: str) -> int:
        """How often an operation was lost, timed out or ended in an error."""
        return sum(self.count(operation, outcome) for outcome in FAILURES)

    def waited(self, operation: str) -> tuple[str, ...]:
        """The outcomes of an operation whose times are what it cost in this stage; see waited_outcomes."""
        return waited_outcomes(self.histograms, operation)

    def throughput(self, operation: str) -> float | None:
        """Successes per second while the stage was held; None when it was not, or the clock is unknown.

        What connects, makes or removes things is done by then: its successes count per second until the
        hold began, and None means that the stage asked for none.
        """
        if operation in BRINGING_UP:
            if self.hold_begin is None or self.hold_begin <= self.begin or not self.attempts(operation):
                return None
            during_hold = self.held.get(tag(operation))
            made = self.count(operation) - (during_hold.total if during_hold else 0)
            return made / (self.hold_begin - self.begin)
        if self.hold_begin is None or self.end is None or self.end <= self.hold_begin:
            return None
        held = self.held.get(tag(operation))
        return (held.total if held else 0) / (self.end - self.hold_begin)


@dataclass
class Curve:
    """One tag over time: for each bin with any sample its start, the count and latencies in microseconds."""

    t: FloatArray
    count: IntArray
    p50: IntArray
    p99: IntArray
    max: IntArray


@dataclass
class Gauges:
    """What workers noted each second, in bins like a Curve's; load summed over workers, health the worst of them."""

    t: FloatArray
    held: FloatArray
    """Leases held, or things that are there."""
    waiting: FloatArray
    """Units waiting for a release, or things still to be made or removed."""
    in_flight: FloatArray
    """Operations sent and not answered."""
    cpu: FloatArray
    """Cores used by the busiest worker's process, 1.0 being its whole core."""
    loop_lag: FloatArray
    """Longest event-loop lag in the bin, milliseconds."""
    rss: FloatArray
    """Resident memory of all workers, MiB."""


UnitStatus = Literal["complete", "cut", "missing", "idle"]


class Unit(BaseModel):
    """One of the units that made a run together, each of which stands as one worker in it (see gather.py)."""

    name: str
    share: int
    """Its place among those that share the load, from 1."""
    of: int
    status: UnitStatus
    """`cut`: its share is missing from some moment on; `missing`: nothing is known of it; `idle`: it had none."""
    why: str
    """Why it is cut, missing or idle, in one line."""
    workers: int
    cores: int
    clock_offset: float | None
    """Seconds that its clock was ahead of the run's, which its times are freed of; None when nobody measured it."""
    clock_error: float | None


@dataclass(frozen=True)
class Stall:
    """A worker that stood still for a while: `begin` seconds after the run's start, for so many `seconds`."""

    worker: str
    begin: float
    seconds: float
    cause: Cause

    @property
    def end(self) -> float:
        """When it went on; a machine that was suspended has no time in between."""
        return self.begin + (0.0 if self.cause == "suspend" else self.seconds)


@dataclass
class RunData:
    """A run as its journals tell it. Nothing here is a judgement: see verdict.py and tipping.py."""

    directory: Path
    manifest: Manifest
    stages: list[StageResult]
    curves: dict[str, Curve]
    """By tag."""
    gauges: Gauges
    bin_seconds: float
    events: list[dict[str, Any]]
    """Single events of all workers and the runner, by time: lost, error, fault, member and worker events."""
    notes: list[str]
    """What the reader should know of the data itself: damaged lines, missing workers, waiting intervals."""
    units: list[Unit] = field(default_factory=list[Unit])
    """The units that made the run together; none when it was made on one machine."""
    damage: list[Damage] = field(default_factory=list[Damage])
    """What is missing of its journals."""
    resources: Resources | None = None
    """What the target felt; None when nothing was gathered of it (see collect/resources.py)."""
    costs: dict[str, Curve] = field(default_factory=dict[str, Curve])
    """By operation what it cost, failures too, when they ended: over time what latency.costs is of a stage.

    Without such failures it is the very curve of the successes.
    """

    def stage(self, number: int) -> StageResult:
        """The stage with that number; KeyError when the journals have none."""
        return {stage.number: stage for stage in self.stages}[number]

    @property
    def operations(self) -> list[str]:
        """The operations that were tried in any stage, in the order of OPERATIONS, unknown ones last."""
        tried = {
            name.removesuffix(".service").rpartition(".")[0]
            for stage in self.stages
            for name in stage.histograms
            if name not in (LOOP_LAG, SCHEDULE_LAG)
        }
        return [name for name in OPERATIONS if name in tried] + sorted(tried.difference(OPERATIONS))

    @property
    def instances(self) -> bool:
        """Whether things are made that run on members of a cluster, which a Juju model's units do not."""
        return self.manifest.workload == "spawn" and self.manifest.target.kind != "juju"

    @property
    def things(self) -> str:
        """What people call what is held or there."""
        if self.instances:
            return "servers" if self.manifest.target.kind == "openstack" else "containers"
        return "leases" if self.manifest.workload == "claim" else "things"

    @property
    def stalls(self) -> list[Stall]:
        """When its workers themselves stood still, in the order of time."""
        return [
            Stall(
                worker=str(event.get("worker", "")),
                begin=float(event["t"]),
                seconds=float(event["seconds"]),
                cause=event["cause"] if event.get("cause") in CAUSES else "unknown",
            )
            for event in self.events
            if event["event"] == STALL and is_seconds(event.get("seconds"))
        ]

    @property
    def own_load(self) -> tuple[str, ...]:
        """The operations that are the load of the run's workload."""
        return OWN_LOAD[self.manifest.workload]


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
class _WorkerData:
    stage_counts: dict[tuple[int, bool, str], list[tuple[IntArray, IntArray]]]
    chart_counts: dict[str, tuple[IntArray, IntArray]]
    error_counts: dict[tuple[str, int], tuple[IntArray, IntArray]]
    """The same of errors, by operation and stage: whether they count in what it cost, each stage decides."""
    stages: list[dict[str, Any]]
    ticks: list[dict[str, Any]]
    events: list[dict[str, Any]]
    notes: list[str]
    damage: list[Damage]


def load_run(directory: Path) -> RunData:
    """Read a run from its directory; UserError when it is not one. Journals may still be growing, or be cut."""
    manifest = Manifest.load(directory)
    runner_log = read_events(directory / "events.jsonl")
    runner_events = runner_log.events
    names = worker_names(directory)
    bin_seconds = max(bin_seconds_of(directory, names), _gathered_interval(runner_events))
    complete = complete_workers(manifest)
    jobs = [(directory, name, bin_seconds, name in complete, manifest.counted) for name in names]
    if (
        len(jobs) > 4
        and sum((directory / f"worker-{name}.hlog").stat().st_size for name in names) > 20_000_000
    ):
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            workers, charts, errors = _folded(pool.map(_read_worker, *zip(*jobs, strict=True)))
    else:
        workers, charts, errors = _folded(_read_worker(*job) for job in jobs)
    stages = _stages(workers)
    units = _units(runner_events)
    of_run = (event for event in runner_events if event["event"] not in (UNIT, GATHERED))
    all_events = sorted([*of_run, *(event for worker in workers for event in worker.events)], key=_time_of)
    events = [event for event in all_events if event["event"] != DAMAGED]
    damage = run_damage(manifest, names, runner_log)
    damage += [found for worker in workers for found in worker.damage]
    damage += [read_damage(event) for event in all_events if event["event"] == DAMAGED]
    notes = [str(event.get("text", "")) for event in runner_events if event["event"] == "note"]
    notes += left_out("events.jsonl", runner_log.damaged)
    notes += [note for worker in workers for note in worker.notes]
    of_units = {unit.name for unit in units}
    notes += [
        f"worker {w.name} was cut: its journal ends early"
        for w in manifest.workers
        if w.status == "cut" and w.name not in of_units
    ]
    gauges = _gauges(workers, bin_seconds)
    _set_stage_gauges(stages, workers)
    containers = manifest.load_unit in ("containers", "servers", "iterations", "members")
    _set_growth(stages, workers, _GROWTH_PARTS["containers" if containers else "units"])
    run = RunData(
        directory,
        manifest,
        stages,
        _curves(charts, bin_seconds),
        gauges,
        bin_seconds,
        events,
        notes,
        units,
        damage,
    )
    run.costs = _cost_curves(run, charts, errors)
    resources, damaged = read_resources(directory)
    notes += [damaged] if damaged else []
    if resources is not None:
        add_resources(run, resources)
    return run


def add_resources(run: RunData, resources: Resources) -> None:
    """Let a run have what its target felt; where metrics do not tell who led, it is what the run itself saw."""
    run.resources = resources
    leaders = read_cluster(run.events).leaders
    if resources.leader or not leaders:
        return
    hosts = resources.hosts
    resources.leader = [(t, name if name in hosts else "") for t, name in leaders]
    unknown = sorted({name for _, name in leaders}.difference(hosts))
    if unknown and hosts:
        run.notes.append(
            f"{', '.join(unknown)} led, and no resources are known under that name: "
            f"hosts are {', '.join(hosts[:5])}"
        )


STALL = "stall"
"""The event that a worker stood still: for how many `seconds` from its time on, and its `cause` (pulse.Cause)."""
UNIT = "unit"
"""The event that tells of a unit in a run that was gathered from several: the fields of Unit."""
GATHERED = "gathered"
"""The event that says so: `interval` is how many seconds apart from each other its intervals begin."""


def worker_names(directory: Path) -> list[str]:
    """The workers that have a journal in a run's directory."""
    return sorted(path.stem.removeprefix("worker-") for path in directory.glob("worker-*.hlog"))


def _gathered_interval(events: Iterable[Mapping[str, Any]]) -> float:
    found: list[Any] = [event.get("interval") for event in events if event["event"] == GATHERED]
    return max((float(width) for width in found if is_seconds(width)), default=0.0)


def _units(events: Iterable[Mapping[str, Any]]) -> list[Unit]:
    units: list[Unit] = []
    for event in events:
        if event["event"] == UNIT:
            with contextlib.suppress(ValidationError):
                units.append(Unit.model_validate(event))
    return units


def count_of(event: Mapping[str, Any]) -> int:
    """How often that happened which an event tells of."""
    count = event.get("count", 1)
    return count if isinstance(count, int) else 1


def _time_of(event: Mapping[str, Any]) -> float:
    return float(event["t"])


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


def _read_worker(
    directory: Path, name: str, bin_seconds: float, complete: bool, counted: bool
) -> _WorkerData:
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
        return _WorkerData(stage_counts, chart_counts, {}, stages, ticks, events, notes, damage)
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
    cells = (tags * bins + bin_of_row[batch.rows]) * _CHART_SLOTS + (batch.slots >> _CHART_SHIFT)
    summed = np.bincount(cells, weights=batch.counts, minlength=len(tag_names) * bins * _CHART_SLOTS)
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
        cells = bin_of_row[rows] * _CHART_SLOTS + (batch.slots[errors] >> _CHART_SHIFT)
        numbers = stage_of_mark[mark_of_row[rows]]
        for number in np.unique(numbers[numbers > 0]).tolist():
            inside = numbers == number
            error_counts[operation, number] = _summed(cells[inside], batch.counts[errors[inside]])
    return _WorkerData(stage_counts, chart_counts, error_counts, stages, ticks, events, notes, damage)


def _summed(cells: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
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


def _stages(workers: Sequence[_WorkerData]) -> list[StageResult]:
    """Join the workers' marks: a stage begins when the first worker begins it and is held when all hold it.

    A stage whose begin no worker has on record (its line was damaged) is left out.
    """
    found: dict[int, StageResult] = {}
    for worker in workers:
        for mark in worker.stages:
            if mark["phase"] == "begin":
                number, t = int(mark["stage"]), float(mark["t"])
                stage = found.setdefault(
                    number, StageResult(number, int(mark["size"]), mark["kind"], begin=t)
                )
                stage.begin = min(stage.begin, t)
    never_ended: set[int] = set()
    for worker in workers:
        still_open: set[int] = set()
        drained: set[int] = set()
        for mark in worker.stages:
            number, t, phase = int(mark["stage"]), float(mark["t"]), mark["phase"]
            stage = found.get(number)
            if stage is None:
                continue
            if phase == "begin":
                still_open.add(number)
            elif phase == "hold":
                stage.hold_begin = max(stage.hold_begin or 0.0, t)
            else:
                if number not in drained:
                    stage.end = max(stage.end or 0.0, t)
                if phase == "drain":
                    drained.add(number)
                else:
                    still_open.discard(number)
        never_ended |= still_open
        for (number, holding, tag_name), parts in worker.stage_counts.items():
            stage = found.get(number)
            if stage is None:
                continue
            for into in (stage.histograms, stage.held) if holding else (stage.histograms,):
                for slots, counts in parts:
                    into.setdefault(tag_name, Histogram()).counts[slots] += counts
    for number in never_ended:
        found[number].end = None  # one of the workers never ended it
    return [found[number] for number in sorted(found)]


def _folded(
    workers: Iterable[_WorkerData],
) -> tuple[list[_WorkerData], dict[str, IntArray], dict[tuple[str, int], tuple[IntArray, IntArray]]]:
    """The workers, and their charts' counts added up as they come: a hundred workers' would fill the memory."""
    kept: list[_WorkerData] = []
    charts: dict[str, IntArray] = {}
    errors: dict[tuple[str, int], tuple[IntArray, IntArray]] = {}
    for worker in workers:
        for tag_name, (cells, counts) in worker.chart_counts.items():
            charts[tag_name] = _added(charts.get(tag_name, np.zeros(0, dtype=np.int64)), cells, counts)
        for key, (cells, counts) in worker.error_counts.items():
            known = errors.get(key)
            if known is not None:
                cells, counts = np.concatenate((known[0], cells)), np.concatenate((known[1], counts))
            errors[key] = _summed(cells, counts)
        worker.chart_counts.clear()
        worker.error_counts.clear()
        kept.append(worker)
    return kept, charts, errors


def _added(known: IntArray, cells: IntArray, counts: IntArray) -> IntArray:
    """Counts by cell with these added, each cell of which is named once; longer where that is needed."""
    if cells.size and cells[-1] >= known.size:
        known = np.concatenate((known, np.zeros(int(cells[-1]) + 1 - known.size, dtype=np.int64)))
    known[cells] += counts
    return known


def _curves(charts: Mapping[str, IntArray], bin_seconds: float) -> dict[str, Curve]:
    return {tag_name: _curve(summed, bin_seconds) for tag_name, summed in sorted(charts.items())}


def _cost_curves(
    run: RunData,
    charts: Mapping[str, IntArray],
    errors: Mapping[tuple[str, int], tuple[IntArray, IntArray]],
) -> dict[str, Curve]:
    """What RunData.costs is; a stage's errors are in it where they are in what the stage cost."""
    curves: dict[str, Curve] = {}
    for operation in run.operations:
        parts = [charts[name] for outcome in WAITED if (name := tag(operation, outcome)) in charts]
        waited = [
            errors[operation, stage.number]
            for stage in run.stages
            if (operation, stage.number) in errors and "error" in stage.waited(operation)
        ]
        if len(parts) == 1 and tag(operation) in charts and not waited:
            curves[operation] = run.curves[tag(operation)]
            continue
        summed = np.zeros(max((part.size for part in parts), default=0), dtype=np.int64)
        for part in parts:
            summed[: part.size] += part
        for cells, counts in waited:
            summed = _added(summed, cells, counts)
        if summed.any():
            curves[operation] = _curve(summed, run.bin_seconds)
    return curves


def _curve(summed: IntArray, bin_seconds: float) -> Curve:
    cells = np.flatnonzero(summed)
    counts = summed[cells]
    bins = cells // _CHART_SLOTS
    values = highest_values(((cells % _CHART_SLOTS) << _CHART_SHIFT) + (1 << _CHART_SHIFT) - 1)
    first = np.flatnonzero(np.concatenate(([True], bins[1:] != bins[:-1])))
    last = np.append(first[1:], bins.size) - 1
    cumulative = np.cumsum(counts)
    before = cumulative[first] - counts[first]
    totals = cumulative[last] - before

    def at(share: float) -> IntArray:
        wanted = before + np.maximum(1, np.ceil(totals * share - 1e-9)).astype(np.int64)
        return values[np.searchsorted(cumulative, wanted, side="left")]

    return Curve(bins[first].astype(np.float64) * bin_seconds, totals, at(0.5), at(0.99), values[last])


def _gauges(workers: Iterable[_WorkerData], bin_seconds: float) -> Gauges:
    """Per worker the last tick of a bin counts, and stands for bins without one until its next; none after its last."""
    sums: dict[int, dict[str, float]] = {}
    for worker in workers:
        latest: dict[int, dict[str, Any]] = {}
        lag: dict[int, float] = {}
        for tick in worker.ticks:
            number = int(tick["t"] / bin_seconds)
            latest[number] = tick
            lag[number] = max(lag.get(number, 0.0), float(tick["loop_lag"]))
        tick = {}
        for number in range(min(latest, default=0), max(latest, default=-1) + 1):
            tick = latest.get(number, tick)
            into = sums.setdefault(number, dict.fromkeys(GAUGES, 0.0))
            for name in SUMMED:
                into[name] += float(tick[name])
            into["cpu"] = max(into["cpu"], float(tick["cpu"]))
            into["loop_lag"] = max(into["loop_lag"], lag.get(number, 0.0))
    bins = sorted(sums)
    columns = {name: np.asarray([sums[b][name] for b in bins], dtype=np.float64) for name in GAUGES}
    return Gauges(t=np.asarray([b * bin_seconds for b in bins], dtype=np.float64), **columns)


def _set_stage_gauges(stages: Iterable[StageResult], workers: Iterable[_WorkerData]) -> None:
    """Of each worker what it noted of its phases, else the medians of its ticks; see phase_medians."""
    by_number = {stage.number: stage for stage in stages}
    for worker in workers:
        told = [mark for mark in worker.stages if _has_gauges(mark)]
        found = [(mark, mark["gauges"]) for mark in told] or phase_medians(worker.stages, worker.ticks)
        for mark, medians in found:
            stage = by_number.get(int(mark["stage"]))
            if stage is not None:
                stage.gauges = add_gauges(stage.gauges, medians)


def _has_gauges(mark: Mapping[str, Any]) -> bool:
    """Whether a mark says what its phase was like: a unit's does, whose ticks are too far apart for medians."""
    gauges = mark.get("gauges")
    return isinstance(gauges, dict) and all(
        is_number(cast(dict[str, Any], gauges).get(name)) for name in GAUGES
    )


def phase_medians(
    marks: Sequence[dict[str, Any]], ticks: Sequence[Mapping[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """The medians of a worker's gauges while it held each stage (or brought it up, when it never held it).

    With each the mark that the phase begins with; none of a phase without ticks.
    """
    times = np.asarray([tick["t"] for tick in ticks], dtype=np.float64)
    held = {int(mark["stage"]) for mark in marks if mark["phase"] == "hold"}
    found: list[tuple[dict[str, Any], dict[str, float]]] = []
    for mark, following in itertools.pairwise([*marks, {"t": np.inf}]):
        if mark["phase"] in ("drain", "end") or (mark["phase"] == "begin" and int(mark["stage"]) in held):
            continue
        # A tick tells of the interval that it closes: the one at the mark itself belongs to the phase before.
        inside = np.flatnonzero((times > mark["t"]) & (times <= following["t"]))
        if inside.size:
            medians = {
                name: float(np.median([float(ticks[int(index)][name]) for index in inside]))
                for name in GAUGES
            }
            found.append((mark, medians))
    return found


def add_gauges(gauges: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Two workers' gauges as one: load is summed, health the worst of them."""
    pairs = {name: (gauges.get(name, 0.0), float(more[name])) for name in GAUGES}
    return {name: sum(pair) if name in SUMMED else max(pair) for name, pair in pairs.items()}


def _set_growth(stages: Sequence[StageResult], workers: Sequence[_WorkerData], most: int) -> None:
    """What all workers held while a stage was brought up, in at most so many parts.

    Workers tick at a stage's marks, so its ends are exact. One that was never brought up grew until its end, or
    until nothing more is known of it.
    """
    ticks = [
        (
            np.asarray([tick["t"] for tick in worker.ticks], dtype=np.float64),
            np.asarray([tick["held"] for tick in worker.ticks], dtype=np.float64),
        )
        for worker in workers
        if worker.ticks
    ]
    last = max((float(times[-1]) for times, _ in ticks), default=0.0)
    for stage in stages:
        until = next((t for t in (stage.hold_begin, stage.end) if t is not None), last)
        if until <= stage.begin or not ticks:
            continue
        parts = int((until - stage.begin) / _GROWTH_SECONDS)
        moments = np.linspace(stage.begin, until, 1 + min(max(parts, 1), most))
        held = np.sum([np.interp(moments, times, values, left=0.0) for times, values in ticks], axis=0)
        stage.growth = [(float(t), float(there)) for t, there in zip(moments, held, strict=True)]
