"""Runs of one stage in which something went wrong, made of single operations: each is due, and ends, at a moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.made.synthetic import STARTED
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Host, Manifest, TargetEntry, WorkerEntry
from tippingpoint.rundir.recorder import Recorded
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.tags import tag

HOLD_BEGAN = 2.0


@dataclass(frozen=True)
class Done:
    """One operation: when it was due and when it ended, in seconds since the run's start."""

    due: float
    ended: float
    outcome: str = "ok"
    operation: str = "extend"


def steady(begin: float, end: float, per_second: float = 40.0, took: float = 0.004) -> list[Done]:
    """Operations due evenly over a time, each of which took as long."""
    number = round((end - begin) * per_second)
    return [Done(begin + place / per_second, begin + place / per_second + took) for place in range(number)]


def outage(
    begin: float,
    end: float,
    until: float,
    per_second: float = 40.0,
    outcome: str = "ok",
    gave_up: float = 1e9,
) -> list[Done]:
    """A steady load from HOLD_BEGAN to `until`: what was due in the outage ended with it, or when it was given up."""
    return [
        done
        if not begin <= done.due < end
        else Done(done.due, done.due + gave_up, outcome)
        if done.due + gave_up < end
        else Done(done.due, end + 0.004)
        for done in steady(HOLD_BEGAN, until, per_second)
    ]


def write_disturbed(
    directory: Path,
    operations: Iterable[Done],
    *,
    until: float,
    events: Sequence[Mapping[str, Any]] = (),
    worker_events: Sequence[Mapping[str, Any]] = (),
    thresholds: Sequence[Mapping[str, Any]] = (),
    offset: float = 0.37,
) -> RunData:
    """Write and read a run of one stage; its intervals begin `offset` seconds after whole seconds."""
    directory.mkdir(parents=True)
    by_interval: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for done in operations:
        microseconds = max(1, round((done.ended - done.due) * 1e6))
        by_interval[int(done.ended - offset)][tag(done.operation, done.outcome)].append(microseconds)
    journal = Journal(directory, "h-0", STARTED)
    mark = {"stage": 1, "size": 20, "kind": "ramp"}
    journal.events.write(0.0, "stage", **mark, phase="begin")
    journal.events.write(HOLD_BEGAN, "stage", **mark, phase="hold")
    for number in sorted(by_interval):
        begin = number + offset
        recorded = {name: Recorded(values) for name, values in by_interval[number].items()}
        journal.interval(begin, begin + 1, recorded)
        journal.tick(begin + 1, held=20, waiting=0, in_flight=0, cpu=0.1, loop_lag=1.0, rss=60.0)
    for event in worker_events:
        fields = {name: value for name, value in event.items() if name not in ("t", "event")}
        journal.events.write(float(event["t"]), str(event["event"]), **fields)
    journal.events.write(until, "stage", **mark, phase="end")
    journal.close(directory / "rescue")
    log = Events(directory / "events.jsonl")
    for event in events:
        fields = {name: value for name, value in event.items() if name not in ("t", "event")}
        log.write(float(event["t"]), str(event["event"]), **fields)
    log.close(directory / "rescue")
    stages = [{"leases": 20, "over": "2s", "hold": f"{until - HOLD_BEGAN:g}s"}]
    Manifest(
        id="20260921-141320-disturbed-0001",
        title="disturbed",
        target=TargetEntry(kind="etcd", version="3.5.16", members=["m1", "m2", "m3"]),
        plan={"name": "disturbed", "stages": stages, "thresholds": [dict(each) for each in thresholds]},
        status="complete",
        started=STARTED,
        ended=STARTED + until,
        host=Host(cores=2, system="Linux 6.1 x86_64", python="3.11.2", tippingpoint="0.1.0"),
        workers=[WorkerEntry(name="h-0", status="complete")],
    ).save(directory)
    return load_run(directory)
