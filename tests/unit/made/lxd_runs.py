"""Run directories of containers made on a cluster of LXD, written through the public journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry
from tippingpoint.rundir.tags import LOOP_LAG, SCHEDULE_LAG, tag
from tippingpoint.targets.lxd.plan import OBSERVATIONS

STARTED = 1_795_000_000.0
LIFE_MS = {"create": 900.0, "start": 600.0, "reachable": 350.0, "launch": 2100.0}
OBSERVED_MS = dict(zip(OBSERVATIONS, (40.0, 90.0, 350.0, 12.0, 150.0, 700.0, 25.0), strict=True))


@dataclass(frozen=True)
class Fill:
    """One stage: so many containers on so many members, held for some seconds and, with `lose`, not undisturbed.

    That member is offline 3 s into the hold and lost 5 s later, its containers are made again on the others.
    """

    containers: int
    members: int = 3
    hold: int = 20
    lose: str = ""
    kind: StageKind = "ramp"
    gave_up: int = 0
    failures: int = 0
    """Creations that fail in the first second of the hold."""


FILL_PLAN: dict[str, Any] = {
    "name": "lxd-cluster-small",
    "description": "Containers on a cluster of three, in projects, one member of which is lost and comes back.",
    "target": {"kind": "lxd"},
    "workload": {"kind": "spawn", "concurrency": 4, "evict": True},
    "stages": [{"groups": 2, "instances": n, "hold": "20s"} for n in (10, 20, 30)],
    "thresholds": [
        {"operation": "launch", "p99": "30s", "error_rate": 0.01},
        {"operation": "list", "p99": "5s"},
    ],
}


def write_fill(
    directory: Path,
    stages: Sequence[Fill],
    *,
    per_second: Callable[[float], float] = lambda _: 2.0,
    workers: int = 2,
    plan: Mapping[str, Any] | None = None,
    unit: str = "containers",
    title: str = "lxd-cluster-small",
    events: Sequence[Mapping[str, Any]] = (),
) -> Path:
    """A run with those stages; `per_second` says how fast containers are made when so many are there.

    Each worker has its share of the containers and tells of the members what it sees, the second a moment later.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ended = 0.0
    for number in range(workers):
        journal = Journal(directory, str(number), STARTED)
        ended = _Worker(journal, number, workers, per_second, unit).run(stages)
        journal.close(directory / "rescue")
    log = Events(directory / "events.jsonl")
    for event in events:
        log.write(event["t"], event["event"], **{k: v for k, v in event.items() if k not in ("t", "event")})
    log.close(directory / "rescue")
    Manifest(
        id=f"20261121-101500-{title}-0001",
        title=title,
        workload="spawn",
        load_unit=unit,
        target=TargetEntry(
            kind="lxd",
            version="5.0.2",
            members=[f"lxd{n + 1}" for n in range(stages[0].members if stages else 1)],
        ),
        plan=dict(plan) if plan is not None else None,
        status="complete",
        started=STARTED,
        ended=STARTED + ended,
        workers=[WorkerEntry(name=str(number), status="complete") for number in range(workers)],
    ).save(directory)
    return directory


class _Worker:
    def __init__(
        self, journal: Journal, number: int, workers: int, per_second: Callable[[float], float], unit: str
    ) -> None:
        self._unit = unit
        self._journal, self._number, self._workers, self._rate = journal, number, workers, per_second
        self._random = np.random.default_rng(4 + number)
        self._t, self._there = 0.0, 0.0
        self._members: list[str] = []
        self._placed: dict[str, int] = {}

    def run(self, stages: Sequence[Fill]) -> float:
        self._tell("leader", member="lxd1")
        for number, stage in enumerate(stages, start=1):
            self._stage(number, stage, max(stage.containers, round(self._there * self._workers)))
        return self._t

    def _stage(self, number: int, stage: Fill, before: int) -> None:
        for name in [f"lxd{n + 1}" for n in range(stage.members)]:
            if name not in self._members:
                self._members.append(name)
                self._tell("member", member=name, status="joined" if self._t else "online", containers=0)
        size = before if stage.kind == "destroy" else stage.containers
        if self._unit == "members":
            size = stage.members
        mark = {"stage": number, "size": size, "kind": stage.kind}
        events = self._journal.events
        events.write(self._t, "stage", **mark, phase="begin")
        goal = (stage.containers - stage.gave_up) / self._workers
        if number == 1:
            self._tell("retry", operation="create", kind="locked", count=2)
        self._until(goal, stage.kind)
        if stage.gave_up and self._number == 0:
            self._tell(
                "gave-up", operation="create", kind="quota", count=stage.gave_up, error="Limit of 10 reached"
            )
        events.write(self._t, "stage", **mark, phase="hold")
        for second in range(stage.hold):
            if stage.lose and second == 3:
                self._tell("member", member=stage.lose, status="offline", containers=self._placed[stage.lose])
            if stage.lose and second == 8:
                self._lose(stage.lose, goal)
            self._second({}, stage.failures if second == 0 else 0)
        events.write(self._t, "stage", **mark, phase="end")

    def _lose(self, member: str, goal: float) -> None:
        count = self._placed.pop(member)
        self._members.remove(member)
        self._tell("member", member=member, status="lost", containers=count)
        self._tell("lost", member=member, count=count)
        self._tell("member", member=member, status="evicted", containers=0)
        self._tell("leader", member="lxd3")
        self._tell("retry", operation="create", kind="quorum", count=5)
        self._there -= count
        self._until(goal, "ramp")
        self._tell("repaired", count=count)
        self._members.append(member)
        self._tell("member", member=member, status="back", containers=0)

    def _until(self, goal: float, kind: StageKind) -> None:
        while abs(goal - self._there) > 1e-9:
            before = int(self._there + 1e-9)
            step = self._rate(self._there * self._workers) / self._workers
            self._there = max(goal, self._there - 4) if kind == "destroy" else min(goal, self._there + step)
            made = int(self._there + 1e-9) - before
            online = [name for name in self._members if name in self._placed or made > 0]
            for number in range(abs(made)):
                name = online[(before + number) % len(online)]
                self._placed[name] = max(0, self._placed.get(name, 0) + (1 if made > 0 else -1))
            self._tell("placed", counts=self._placed)
            calls = {"delete": 300.0} if made < 0 else LIFE_MS
            self._second({op: (ms, abs(made)) for op, ms in calls.items()})

    def _second(self, calls: Mapping[str, tuple[float, int]], failures: int = 0) -> None:
        t = round(self._t)
        now = dict(calls)
        if t % 5 == self._number and self._there:
            busy = 3.0 if calls else 1.0
            now |= {op: (ms * busy * (1 + self._there / 40), 1) for op, ms in OBSERVED_MS.items()}
        now["poll"] = (30.0, 1)
        values = {
            tag(op): self._random.lognormal(np.log(ms * 1000), 0.3, count)
            for op, (ms, count) in now.items()
            if count
        }
        if failures:
            values[tag("create", "error")] = np.full(failures, 500_000.0)
        values |= {SCHEDULE_LAG: self._random.gamma(2, 150, 20), LOOP_LAG: self._random.gamma(2, 300, 20)}
        self._journal.interval(
            self._t, self._t + 1, {name: Histogram.of(np.rint(found)) for name, found in values.items()}
        )
        self._t += 1.0
        self._journal.events.write(
            self._t, "tick", held=int(self._there + 1e-9), waiting=0, in_flight=2, cpu=0.1, loop_lag=1.0, rss=60.0
        )  # fmt: skip

    def _tell(self, event: str, **fields: object) -> None:
        """What the second worker sees it sees a moment later."""
        self._journal.events.write(self._t + 0.3 * self._number, event, **fields)
