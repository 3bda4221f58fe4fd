"""A run's measurements, read from its journals: stages exactly, curves over time to 1.6 % (16 us below 1 ms)."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tippingpoint.plan.kinds import facts_of
from tippingpoint.rundir.cluster_events import read_cluster
from tippingpoint.rundir.curves import NO_CELLS, Cells, Curve, added, curve_of, curves_of
from tippingpoint.rundir.damage import DAMAGED, Damage, read_damage
from tippingpoint.rundir.figure_values import figure_values
from tippingpoint.rundir.gathered import GATHERED, UNIT, Unit, gathered_interval, units_of
from tippingpoint.rundir.gauges import Gauges, gauges_of
from tippingpoint.rundir.journal import EventLog, is_seconds, read_events
from tippingpoint.rundir.machine import FILE as MACHINE
from tippingpoint.rundir.machine import Used, used_of
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.operations import OPERATIONS, OWN_LOAD
from tippingpoint.rundir.resources import Resources, read_resources
from tippingpoint.rundir.stages import StageResult, stages_of
from tippingpoint.rundir.standstills import CAUSES, STALL, Stall
from tippingpoint.rundir.tags import LOOP_LAG, SCHEDULE_LAG, tag
from tippingpoint.rundir.waited import WAITED
from tippingpoint.rundir.worker_journal import (
    WorkerData,
    WorkerReader,
    bin_seconds_of,
    complete_workers,
    left_out,
    read_worker,
    run_damage,
    worker_names,
)

_GROWTH_PARTS = {"units": 8, "things": 24}
"""The most points of a stage's growth; things on members of a cluster are made slowly, one by one, for hours."""

_EVENTS = "events.jsonl"
_Job = tuple[Path, str, float, bool]
"""A journal to read, as the arguments of read_worker."""


@dataclass
class RunData:
    """A run as its journals describe it. Nothing is judged here: see verdict.py and tipping.py."""

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
    """What the reader should know about the data itself: damaged lines, missing workers, unwritten intervals."""
    units: list[Unit] = field(default_factory=list[Unit])
    """The units that made the run together; empty if it was made on one machine."""
    damage: list[Damage] = field(default_factory=list[Damage])
    """What is missing from its journals."""
    resources: Resources | None = None
    """Figures of the target's hosts; None if none were gathered (see monitoring/gather.py)."""
    machine: list[Used] = field(default_factory=list[Used])
    """Who used the processors of the machine that generated the load, each second; empty in runs that do not record
    it."""
    costs: dict[str, Curve] = field(default_factory=dict[str, Curve])
    """The cost of each operation over time, failures included, at the moment it ended: the same as latency.costs for a
    stage.

    Without failures that count, it is the curve of the successes.
    """

    def stage(self, number: int) -> StageResult:
        """Return the stage with that number; raises KeyError if the journals have none."""
        return {stage.number: stage for stage in self.stages}[number]

    @property
    def operations(self) -> list[str]:
        """The operations that were tried in any stage, in the order of OPERATIONS; unknown ones come last."""
        tried = {
            name.removesuffix(".service").rpartition(".")[0]
            for stage in self.stages
            for name in stage.histograms
            if name not in (LOOP_LAG, SCHEDULE_LAG)
        }
        return [name for name in OPERATIONS if name in tried] + sorted(tried.difference(OPERATIONS))

    @property
    def instances(self) -> bool:
        """Whether the run makes things on members of a cluster, unlike the units of a Juju model."""
        return self.manifest.workload == "spawn"

    @property
    def counts_things(self) -> bool:
        """Whether loads count such things, which are made one by one until all exist or are given up."""
        return self.instances and self.manifest.load_unit == self.things

    @property
    def goes_on(self) -> bool:
        """Whether the load goes on while it is held, so that its throughput says something about the target."""
        return self.manifest.workload in ("claim", "store", "operate")

    @property
    def things(self) -> str:
        """What people call the things that are held or made."""
        if self.instances:
            return facts_of(self.manifest.target.kind).things
        return {"claim": "leases", "store": "keys", "operate": "units"}.get(self.manifest.workload, "things")

    @property
    def stalls(self) -> list[Stall]:
        """The times at which its workers stood still, in order."""
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


class GrowingRun:
    """Reads a run in progress. Parts of its journals that were read before are not read again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log: EventLog | None = None
        self._machine: EventLog | None = None
        self._readers: dict[str, WorkerReader] = {}

    def load(self) -> RunData:
        """Read the run as far as it is written, with the same result as load_run."""
        manifest = Manifest.load(self._directory)
        self._log = read_events(self._directory / _EVENTS, self._log)
        self._machine = read_events(self._directory / MACHINE, self._machine)
        return _run_of(self._directory, manifest, self._log, self._machine, self._read)

    def _read(self, jobs: Sequence[_Job]) -> Iterator[WorkerData]:
        for directory, name, bin_seconds, complete in jobs:
            reader = self._readers.get(name)
            if reader is None or reader.bin_seconds != bin_seconds:
                reader = self._readers[name] = WorkerReader(directory, name, bin_seconds)
            yield reader.read(complete)


def load_run(directory: Path) -> RunData:
    """Read a run from its directory; raises UserError if it is none. Journals may be cut or still growing."""
    log, machine = (read_events(directory / name) for name in (_EVENTS, MACHINE))
    return _run_of(directory, Manifest.load(directory), log, machine, _read_workers)


def _read_workers(jobs: Sequence[_Job]) -> Iterator[WorkerData]:
    sizes = ((directory / f"worker-{name}.hlog").stat().st_size for directory, name, *_ in jobs)
    if len(jobs) > 4 and sum(sizes) > 20_000_000:
        with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            yield from pool.map(read_worker, *zip(*jobs, strict=True))
    else:
        yield from (read_worker(*job) for job in jobs)


def _run_of(
    directory: Path,
    manifest: Manifest,
    runner_log: EventLog,
    machine_log: EventLog,
    read: Callable[[Sequence[_Job]], Iterator[WorkerData]],
) -> RunData:
    """Return a run; `read` reads the journals of its workers."""
    runner_events = runner_log.events
    names = worker_names(directory)
    bin_seconds = max(bin_seconds_of(directory, names), gathered_interval(runner_events))
    complete = complete_workers(manifest)
    jobs = [(directory, name, bin_seconds, name in complete) for name in names]
    workers, charts, errors = _folded(read(jobs))
    one_by_one = manifest.workload == "spawn"
    figures = figure_values(runner_events)
    stages = stages_of(workers, _GROWTH_PARTS["things" if one_by_one else "units"])
    for stage in stages:
        stage.figures = figures.get(stage.number, {})
    units = units_of(runner_events)
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
    ends = {
        str(event.get("worker")): str(event.get("problem", ""))
        for event in all_events
        if event["event"] == "worker-cut"
    }
    notes += [
        f"worker {w.name} was cut: its journal ends early"
        + (f" ({why})" if (why := ends.get(w.name)) else "")
        for w in manifest.workers
        if w.status == "cut" and w.name not in of_units
    ]
    gauges = gauges_of((worker.ticks for worker in workers), bin_seconds)
    run = RunData(
        directory,
        manifest,
        stages,
        curves_of(charts, bin_seconds),
        gauges,
        bin_seconds,
        events,
        notes,
        units,
        damage,
        machine=used_of(machine_log.events),
    )
    run.costs = _cost_curves(run, charts, errors)
    resources, damaged = read_resources(directory)
    notes += [damaged] if damaged else []
    if resources is not None:
        add_resources(run, resources)
    return run


def add_resources(run: RunData, resources: Resources) -> None:
    """Add the target's resources to a run; the run's own events show who led if the metrics do not."""
    run.resources = resources
    leaders = read_cluster(run.events).leaders
    if resources.leader or not leaders:
        return
    hosts = resources.hosts
    resources.leader = [(t, name if name in hosts else "") for t, name in leaders]
    unknown = sorted({name for _, name in leaders}.difference(hosts))
    if unknown and hosts:
        run.notes.append(
            f"{', '.join(unknown)} led, but no resources were gathered under that name: "
            f"hosts are {', '.join(hosts[:5])}"
        )


def _time_of(event: Mapping[str, Any]) -> float:
    return float(event["t"])


def _folded(
    workers: Iterable[WorkerData],
) -> tuple[list[WorkerData], dict[str, Cells], dict[tuple[str, int], Cells]]:
    """Return the workers and the sums of their charts, which are added one by one to save memory."""
    kept: list[WorkerData] = []
    charts: dict[str, Cells] = {}
    errors: dict[tuple[str, int], Cells] = {}
    for worker in workers:
        for tag_name, cells in worker.chart_counts.items():
            charts[tag_name] = added(charts.get(tag_name, NO_CELLS), cells)
        for key, cells in worker.error_counts.items():
            errors[key] = added(errors.get(key, NO_CELLS), cells)
        worker.chart_counts.clear()
        worker.error_counts.clear()
        kept.append(worker)
    return kept, charts, errors


def _cost_curves(
    run: RunData,
    charts: Mapping[str, Cells],
    errors: Mapping[tuple[str, int], Cells],
) -> dict[str, Curve]:
    """Return RunData.costs; errors of a stage count if the stage waited for them."""
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
        total = functools.reduce(added, [*parts, *waited], NO_CELLS)
        if total[0].size:
            curves[operation] = curve_of(total, run.bin_seconds)
    return curves
