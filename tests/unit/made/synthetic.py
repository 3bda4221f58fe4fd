"""Run directories made up for tests, written through the public journal so that load_run reads them like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Host, Manifest, RunStatus, TargetEntry, WorkerEntry
from tippingpoint.rundir.operations import OBSERVING
from tippingpoint.rundir.tags import DELAYED, FREED, LOOP_LAG, SCHEDULE_LAG, tag

STARTED = 1_790_000_000.0
JUJU = TargetEntry(kind="juju", version="4.0.15", members=["10.0.0.1:17070", "10.0.0.2:17070"])


@dataclass
class MadeStage:
    """One stage of a made-up run: `claim_ms` and `extend_ms` are typical latencies, `failures` counts by tag."""

    size: int
    claim_ms: float = 10.0
    extend_ms: float = 2.0
    failures: Mapping[str, int] = field(default_factory=dict)
    kind: StageKind = "ramp"
    over: int = 2
    hold: int = 8
    extends_per_second: float | None = None
    """Successful extends per second over all workers; a 30th of the leases when left out."""
    cpu: float = 0.2
    errors: Sequence[str] = ()
    finished: bool = True
    spread: float = 0.35
    """Sigma of the log-normal latencies."""
    connect_ms: float | None = None
    """On target juju three units of each lease connect, each in about this time."""
    connections_lost: int = 0
    stood_still_ms: float = 0.0
    """Each worker stood still for so long when the hold began, and twenty extensions waited for it."""
    every: int = 1
    """Seconds from one interval of the journal to the next; real workers write each second."""


@dataclass
class MadeGrowth:
    """One stage of a made-up spawn run: `calls` has for each operation its typical milliseconds and how many there are.

    What makes or removes things does so while the stage is brought up, at the end of which `things` are there;
    status and full-status are asked for all the while.
    """

    size: int
    things: int
    calls: Mapping[str, tuple[float, int]]
    failures: Mapping[str, int] = field(default_factory=dict)
    kind: StageKind = "ramp"
    over: int = 8
    hold: int = 6
    errors: Sequence[tuple[str, str, str, int]] = ()
    """Operation, outcome, message and how often."""


def write_run(
    directory: Path,
    stages: Sequence[MadeStage] | Sequence[MadeGrowth],
    *,
    workers: int = 1,
    plan: Mapping[str, Any] | None = None,
    events: Sequence[Mapping[str, Any]] = (),
    status: RunStatus = "complete",
    reason: str = "",
    title: str = "etcd-leases",
    seed: int = 1,
    prepared: Mapping[str, Any] | None = None,
    **manifest: Any,
) -> Path:
    """Write a run with those stages, one after the other; `events` are the runner's, as in events.jsonl."""
    if stages and isinstance(stages[0], MadeGrowth):
        manifest = {"workload": "grow", "load_unit": "units", "target": JUJU, **manifest}
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    ended = 0.0
    for number in range(workers):
        journal = Journal(directory, f"h-{number}", STARTED)
        if prepared is not None:
            journal.events.write(0.0, "prepared", **prepared)
        ended = _write_worker(journal, stages, workers, random)
        journal.close(directory / "rescue")
    log = Events(directory / "events.jsonl")
    for event in events:
        fields = {k: v for k, v in event.items() if k not in ("t", "event")}
        log.write(float(event["t"]), str(event["event"]), **fields)
    log.close(directory / "rescue")
    Manifest(
        id=f"20260921-141320-{title}-{seed:04x}",
        title=title,
        **{
            "target": TargetEntry(kind="etcd", version="3.5.16", members=["m1", "m2", "m3"]),
            "plan": dict(plan) if plan is not None else None,
            "status": status,
            "reason": reason,
            "started": STARTED,
            "ended": STARTED + ended,
            "host": Host(cores=2, system="Linux 6.1 x86_64", python="3.11.2", tippingpoint="0.1.0"),
            "workers": [WorkerEntry(name=f"h-{n}", status="complete") for n in range(workers)],
            **manifest,
        },
    ).save(directory)
    return directory


def _write_worker(
    journal: Journal,
    stages: Sequence[MadeStage] | Sequence[MadeGrowth],
    workers: int,
    random: np.random.Generator,
) -> float:
    t, held = 0.0, 0
    for number, stage in enumerate(stages, start=1):
        if isinstance(stage, MadeGrowth):
            t = _write_growth(journal, t, number, stage, held, workers, random)
            held = stage.things
            continue
        mark = {"stage": number, "size": stage.size, "kind": stage.kind}
        fresh = stage.size if stage.kind == "storm" else max(0, stage.size - held)
        held = stage.size
        journal.events.write(t, "stage", **mark, phase="begin")
        for second in range(0, stage.over + stage.hold, stage.every):
            if second == stage.over:
                journal.events.write(t, "stage", **mark, phase="hold")
            claims = fresh // max(1, stage.over) // workers if second < stage.over else 0
            rate = held / 30 if stage.extends_per_second is None else stage.extends_per_second
            busy = second == stage.over
            _write_second(journal, t, stage, random, claims, rate / workers, busy)
            share = min(1.0, (second + 1) / max(1, stage.over))
            journal.tick(
                t + stage.every,
                held=int((held - fresh + fresh * share) / workers),
                waiting=int(2 * held / workers),
                in_flight=int(rate * stage.extend_ms / 1000 / workers),
                cpu=round(stage.cpu * random.uniform(0.9, 1.1), 3),
                loop_lag=round(random.gamma(2, 0.6), 3),
                rss=60 + held / 500,
            )
            t += stage.every
        if stage.finished:
            journal.events.write(t, "stage", **mark, phase="end")
    return t


def _write_growth(
    journal: Journal,
    t: float,
    number: int,
    stage: MadeGrowth,
    before: int,
    workers: int,
    random: np.random.Generator,
) -> float:
    mark = {"stage": number, "size": stage.size, "kind": stage.kind}
    journal.events.write(t, "stage", **mark, phase="begin")
    for second in range(stage.over + stage.hold):
        if second == stage.over:
            journal.events.write(t, "stage", **mark, phase="hold")
        values: dict[str, np.ndarray] = {}
        for operation, (typical, count) in stage.calls.items():
            seconds = stage.over + (stage.hold if operation in OBSERVING else 0)
            now = count // workers * (second + 1) // seconds - count // workers * second // seconds
            if second < seconds and now:
                values[tag(operation)] = random.lognormal(np.log(typical * 1000), 0.35, now)
        if second == stage.over - 1:
            for name, count in stage.failures.items():
                values[name] = random.lognormal(np.log(500_000), 0.5, count)
            for operation, outcome, message, count in stage.errors:
                journal.events.write(
                    t + 0.5, "error", operation=operation, outcome=outcome, error=message, count=count
                )
        values[SCHEDULE_LAG] = random.gamma(2, 150, 100)
        values[LOOP_LAG] = random.gamma(2, 300, 20)
        journal.interval(t, t + 1.0, {name: Histogram.of(np.rint(v)) for name, v in values.items()})
        t += 1.0
        share = min(1.0, (second + 1) / max(1, stage.over)) ** 0.8
        there = before + (stage.things - before) * share
        journal.tick(
            t,
            held=int(there / workers),
            waiting=int(abs(stage.things - there) / workers),
            in_flight=2,
            cpu=0.1,
            loop_lag=1.0,
            rss=60.0,
        )
    journal.events.write(t, "stage", **mark, phase="end")
    return t


def _write_second(
    journal: Journal,
    t: float,
    stage: MadeStage,
    random: np.random.Generator,
    claims: int,
    extends: float,
    busy: bool,
) -> None:
    def around(milliseconds: float, count: int) -> np.ndarray:
        return random.lognormal(np.log(milliseconds * 1000), stage.spread, count)

    values: dict[str, np.ndarray] = {}
    for operation, typical, count in (
        ("claim", stage.claim_ms, claims),
        ("extend", stage.extend_ms, int(random.poisson(extends))),
    ):
        if count:
            response = around(typical, count)
            values[tag(operation)] = response
            values[tag(operation, service=True)] = response * 0.9
    if stage.connect_ms is not None and claims:
        values[tag("connect")] = around(stage.connect_ms, 3 * claims)
    if busy and stage.connections_lost:
        count = stage.connections_lost
        reason = "10.0.0.2:17070: connection reset by peer"
        journal.events.write(
            t + 0.5, "error", operation="connection", outcome="lost", error=reason, count=count
        )
        values[tag("connect")] = around(stage.connect_ms or 1.0, count)
    if busy:  # once in a stage, when its hold begins
        for name, count in stage.failures.items():
            values[name] = around(stage.claim_ms * 4, count)
        for count, message in enumerate(stage.errors, start=1):
            journal.events.write(
                t + 0.5, "error", operation="claim", outcome="error", error=message, count=count
            )
        lost = stage.failures.get(tag("extend", "lost"), 0)
        for lease in range(min(lost, 5)):
            journal.events.write(t + 0.5, "lost", lease=lease, unit=0, held_for=61.5, count=1)
        if lost > 5:
            journal.events.write(t + 0.6, "lost", count=lost - 5)
    if busy and stage.stood_still_ms:
        freed = around(stage.extend_ms, 20)
        delayed = freed + stage.stood_still_ms * 1000
        name = tag("extend")
        values[name] = np.concatenate((values.get(name, np.zeros(0)), delayed))
        values |= {name + DELAYED: delayed, name + FREED: freed}
        seconds = stage.stood_still_ms / 1000
        journal.events.write(t, "stall", seconds=seconds, cause="stopped")
    values[SCHEDULE_LAG] = random.gamma(2, 150, 100)
    values[LOOP_LAG] = random.gamma(2, 300, 20)
    journal.interval(t, t + stage.every, {name: Histogram.of(np.rint(v)) for name, v in values.items()})
