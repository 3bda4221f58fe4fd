"""Run directories made up for tests, written through the public journal so that load_run reads them like any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tippingpoint.hdr import Histogram
from tippingpoint.journal import Events, Journal
from tippingpoint.manifest import Host, Manifest, RunStatus, TargetEntry, WorkerEntry
from tippingpoint.results import LOOP_LAG, SCHEDULE_LAG, StageKind, tag

STARTED = 1_790_000_000.0


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


def write_run(
    directory: Path,
    stages: Sequence[MadeStage],
    *,
    workers: int = 1,
    plan: Mapping[str, Any] | None = None,
    events: Sequence[Mapping[str, Any]] = (),
    status: RunStatus = "complete",
    reason: str = "",
    title: str = "etcd-leases",
    seed: int = 1,
    **manifest: Any,
) -> Path:
    """Write a run with those stages, one after the other; `events` are the runner's, as in events.jsonl."""
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    ended = 0.0
    for number in range(workers):
        journal = Journal(directory, f"h-{number}", STARTED)
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
    journal: Journal, stages: Sequence[MadeStage], workers: int, random: np.random.Generator
) -> float:
    t, held = 0.0, 0
    for number, stage in enumerate(stages, start=1):
        mark = {"stage": number, "size": stage.size, "kind": stage.kind}
        fresh = stage.size if stage.kind == "storm" else max(0, stage.size - held)
        held = stage.size
        journal.events.write(t, "stage", **mark, phase="begin")
        for second in range(stage.over + stage.hold):
            if second == stage.over:
                journal.events.write(t, "stage", **mark, phase="hold")
            claims = fresh // max(1, stage.over) // workers if second < stage.over else 0
            rate = held / 30 if stage.extends_per_second is None else stage.extends_per_second
            busy = second == stage.over
            _write_second(journal, t, stage, random, claims, rate / workers, busy)
            share = min(1.0, (second + 1) / max(1, stage.over))
            journal.events.write(
                t + 1,
                "tick",
                held=int((held - fresh + fresh * share) / workers),
                waiting=int(2 * held / workers),
                in_flight=int(rate * stage.extend_ms / 1000 / workers),
                cpu=round(stage.cpu * random.uniform(0.9, 1.1), 3),
                loop_lag=round(random.gamma(2, 0.6), 3),
                rss=60 + held / 500,
            )
            t += 1.0
        if stage.finished:
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
    values[SCHEDULE_LAG] = random.gamma(2, 150, 100)
    values[LOOP_LAG] = random.gamma(2, 300, 20)
    journal.interval(t, t + 1.0, {name: Histogram.of(np.rint(v)) for name, v in values.items()})
