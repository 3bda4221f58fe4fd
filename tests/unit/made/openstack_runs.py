"""Run directories of servers made on an OpenStack, written through the public journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry
from tippingpoint.rundir.tags import LOOP_LAG, SCHEDULE_LAG, tag
from tippingpoint.targets.openstack.plan import SERVER_OBSERVATIONS

STARTED = 1_795_300_000.0
HELD_S = 20


def computes(count: int) -> list[str]:
    return [f"compute-{number + 1}" for number in range(count)]


def write_servers(
    directory: Path,
    stages: Sequence[int],
    *,
    hosts: Mapping[str, float],
    per_second: float = 5.0,
    events: Iterable[Mapping[str, Any]] = (),
    seed: int = 7,
) -> Path:
    """A fill of so many servers in all, stage by stage; `hosts` says what share of them each host gets.

    The API takes 150 ms at any time; ACTIVE takes 4 s at first, and 10 ms more with each server that is there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    journal, random = Journal(directory, "0", STARTED), np.random.default_rng(seed)
    shares = np.asarray(list(hosts.values())) / sum(hosts.values())
    for name in hosts:
        journal.events.write(0.0, "member", member=name, status="online", containers=0)
    t, there = 0.0, 0
    for number, size in enumerate(stages, start=1):
        mark = {"stage": number, "size": size, "kind": "ramp"}
        journal.events.write(t, "stage", **mark, phase="begin")
        while there < size:
            made = min(size - there, round(per_second))
            there += made
            active = (4.0 + there * 0.01) * 1e6
            t = _second(
                journal,
                t,
                there,
                random,
                {
                    "create_server": (150e3, made),
                    "await_active": (active, made),
                    "boot_server": (active, made),
                },
            )
            counts = np.floor(shares * there).astype(int)
            counts[: there - counts.sum()] += 1
            placed = {name: int(count) for name, count in zip(hosts, counts, strict=True) if count}
            journal.events.write(t, "placed", counts=placed)
        journal.events.write(t, "stage", **mark, phase="hold")
        for _ in range(HELD_S):
            t = _second(journal, t, there, random, dict.fromkeys(SERVER_OBSERVATIONS, (80e3, 1)))
        journal.events.write(t, "stage", **mark, phase="end")
    journal.close(directory / "rescue")
    log = Events(directory / "events.jsonl")
    for event in sorted(events, key=lambda event: event["t"]):
        log.write(event["t"], event["event"], **{k: v for k, v in event.items() if k not in ("t", "event")})
    log.close(directory / "rescue")
    _manifest(directory, "openstack-fill", "servers", list(hosts), t)
    return directory


def write_cycles(
    directory: Path,
    iterations: int,
    *,
    hosts: Sequence[str] = ("compute-1", "compute-2"),
    boot: float = 3.8,
    failures: int = 0,
    seed: int = 7,
) -> Path:
    """A boot-delete run: one iteration a second; the last `failures` servers are in ERROR."""
    directory.mkdir(parents=True, exist_ok=True)
    journal, random = Journal(directory, "0", STARTED), np.random.default_rng(seed)
    for name in hosts:
        journal.events.write(0.0, "member", member=name, status="online", containers=0)
    mark = {"stage": 1, "size": iterations, "kind": "ramp"}
    journal.events.write(0.0, "stage", **mark, phase="begin")
    t = 0.0
    landed: dict[str, int] = {}
    for number in range(iterations):
        built = number < iterations - failures
        calls = {"create_server": (150e3, 1)}
        if built:
            calls |= {"await_active": (boot * 1e6 - 150e3, 1), "boot_server": (boot * 1e6, 1)}
            calls |= {"delete_server": (1.2e6, 1), "total": ((boot + 1.2) * 1e6, 1)}
        else:
            why = {"outcome": "error", "error": "No valid host was found.", "count": 1}
            journal.events.write(t, "error", operation="await_active", **why)
        failed = () if built else ("await_active", "boot_server", "total")
        t = _second(journal, t, number + 1, random, calls, failed)
        landed = dict.fromkeys(hosts, 0) | landed
        landed[hosts[number % len(hosts)]] += built
        journal.events.write(t - 0.5, "landed", counts=landed)
    for phase in ("hold", "end"):
        journal.events.write(t, "stage", **mark, phase=phase)
    journal.close(directory / "rescue")
    Events(directory / "events.jsonl").close(directory / "rescue")
    _manifest(directory, "openstack-boot-delete", "iterations", list(hosts), t)
    return directory


def _second(
    journal: Journal,
    t: float,
    there: int,
    random: np.random.Generator,
    calls: Mapping[str, tuple[float, int]],
    failed: Iterable[str] = (),
) -> float:
    values = {
        tag(operation): Histogram.of(np.rint(random.lognormal(np.log(us), 0.2, count)))
        for operation, (us, count) in calls.items()
    }
    values |= {tag(operation, "error"): Histogram.of([6_000_000]) for operation in failed}
    values |= {SCHEDULE_LAG: Histogram.of([200]), LOOP_LAG: Histogram.of([300])}
    journal.interval(t, t + 1, values)
    gauges = {"waiting": 0, "in_flight": 2, "cpu": 0.1, "loop_lag": 1.0, "rss": 60.0}
    journal.events.write(t + 1, "tick", held=there, **gauges)
    return t + 1


def _manifest(directory: Path, title: str, unit: str, hosts: list[str], seconds: float) -> None:
    Manifest(
        id=f"20261121-201500-{title}-0001",
        title=title,
        workload="spawn",
        load_unit=unit,
        target=TargetEntry(kind="openstack", version="compute API 2.93", members=hosts),
        status="complete",
        started=STARTED,
        ended=STARTED + seconds,
        workers=[WorkerEntry(name="0", status="complete")],
    ).save(directory)
