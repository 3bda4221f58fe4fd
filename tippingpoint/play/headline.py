"""The main figures of a run in progress, computed from its workers' ticks: load, rate and latencies."""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tippingpoint.conduct import run_state
from tippingpoint.play.messages import Tick, UnreadTicks
from tippingpoint.play.watcher import RunnerEvents, StageProgress
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.operations import OPERATIONS, OWN_LOAD
from tippingpoint.rundir.tags import FAILURES, tag
from tippingpoint.rundir.waited import cost_of

if TYPE_CHECKING:  # it imports numpy, which is not needed when nobody watches
    from tippingpoint.rundir.histogram import Counts, Histogram

_CONTAINERS_OVER = 10
"""The shortest window for a rate of containers, in seconds, because only one or two are made per second."""
_LIVES = ("launch", "boot_server", "create", "create_server")
"""The operation that represents a run that makes containers: the first of these that has been recorded."""


class Headline(RunnerEvents):
    """Collects the events of one run. Rates and latencies are those of the last `seconds`."""

    def __init__(self, seconds: int = 10) -> None:
        self.workload = "claim"
        self.containers = False
        """Whether the run makes containers, which take long."""
        self._totals: dict[str, int] = dict.fromkeys(("errors", "lost", "limited", "retries"), 0)
        self._seconds = seconds
        self._begun = False
        self._preparing = ""
        self._progress: StageProgress | None = None
        self._unread = UnreadTicks(self._add)
        """The stage and the worker are noted with each."""
        self._stage: int | None = None
        """The stage of the last tick that was read."""
        self._last: dict[str, Tick] = {}
        self._recent: dict[str, deque[tuple[float, Mapping[str, Counts]]]] = {}
        self._growth: dict[str, deque[tuple[float, float]]] = {}
        self._lives: dict[str, Histogram] = {}

    def began(self, manifest: Manifest, directory: Path) -> None:
        """Note what kind of run it is."""
        importlib.import_module("tippingpoint.rundir.histogram")  # now, and not while the load comes up

        self.workload = manifest.workload
        self.containers = manifest.workload == "spawn"
        self._begun = True

    def preparing(self, what: str, done: int, goal: int) -> None:
        """Note what is being made before a stage."""
        self._preparing = f"{what}: {done:,} of {goal:,}"

    def removing(self, what: str, done: int, goal: int) -> None:
        """Note what is being removed at the end."""
        self._preparing = f"removing {what}: {done:,} of {goal:,}"

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """Keep a worker's tick as its latest."""
        self._progress = progress
        self._preparing = ""
        seconds = max(tick.seconds, 0.001)
        before = self._last.get(worker, tick)
        most = max(self._seconds, _CONTAINERS_OVER) if self.containers else self._seconds
        growth = self._growth.setdefault(worker, deque(maxlen=most))
        growth.append((abs(tick.held - before.held), seconds))
        self._last[worker] = tick
        self._unread.add((progress.stage, worker), tick)

    def _add(self, noted: tuple[int, str], tick: Tick) -> None:
        from tippingpoint.rundir.histogram import add_each

        seconds, found = max(tick.seconds, 0.001), tick.measured
        stage, worker = noted
        if stage != self._stage:
            self._lives.clear()
        self._stage = stage
        self._recent.setdefault(worker, deque(maxlen=self._seconds)).append((seconds, found))
        self._totals["retries"] += tick.retries
        self._totals["lost"] += tick.lost
        lives = {name: counts for name, counts in found.items() if name.rpartition(".")[0] in _LIVES}
        add_each(self._lives, lives)
        for name, (_, counts) in found.items():
            operation, outcome, *_ = name.split(".")
            if operation in OPERATIONS and outcome in FAILURES:
                self._totals["lost" if outcome == "lost" else "errors"] += int(counts.sum())
            elif outcome == "limited":
                self._totals["limited"] += int(counts.sum())

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Forget a worker that is gone, because it no longer holds any load."""
        if event == "worker-cut":
            self._unread.read()
            for kept in (self._last, self._recent, self._growth):
                kept.pop(fields["worker"], None)

    @property
    def has_load(self) -> bool:
        """Whether any worker has reported its load."""
        return self._progress is not None

    @property
    def totals(self) -> Mapping[str, int]:
        """Counts since the run began: failures, lost leases or things, refusals by a rate limit, and retries."""
        self._unread.read()
        return self._totals

    @property
    def rate(self) -> float:
        """The rate per second: of things made or removed, or of claims and renewals that succeeded."""
        if self.workload not in ("claim", "store", "operate"):
            return sum(
                sum(made for made, _ in ticks) / sum(seconds for _, seconds in ticks)
                for ticks in self._growth.values()
            )
        self._unread.read()
        seconds = max((sum(each for each, _ in ticks) for ticks in self._recent.values()), default=1.0)
        own = [tag(operation) for operation in OWN_LOAD[self.workload]]
        recent = [found for ticks in self._recent.values() for _, found in ticks]
        return sum(int(found[name][1].sum()) for found in recent for name in own if name in found) / seconds

    def reached(self) -> tuple[int, int, str]:
        """Return how much of the stage's load exists, the goal, and the unit of both."""
        held = sum(tick.held for tick in self._last.values())
        goal, things = (0, "") if (at := self._progress) is None else (at.goal, at.things)
        if self.workload in ("claim", "store", "operate"):
            return held, goal, things
        waiting = sum(tick.waiting for tick in self._last.values())
        if self.workload == "cts":
            return held, goal, "nodes online" if things == "nodes" else "tests passed"
        removing = at is not None and at.kind == "destroy"
        if self.containers:
            return held, held + waiting, f"{things} left" if removing else things
        return held, held + waiting, "things left" if removing else "things made"

    def latencies(self) -> dict[str, Histogram]:
        """Return latencies by operation: over the last seconds, or over the stage so far for containers, which take
        longer.

        A failure counts with the latency it cost (waited.cost_of).
        """
        from tippingpoint.rundir.histogram import Histogram, add_each

        self._unread.read()
        if self.containers:
            lives = {operation: cost_of(self._lives, operation, Histogram.merged) for operation in _LIVES}
            shown = next((operation for operation in _LIVES if lives[operation].total), None)
            return {shown: lives[shown]} if shown is not None else {}
        latest: dict[str, Histogram] = {}
        for ticks in self._recent.values():
            for _, found in ticks:
                add_each(latest, found)
        tried = {name.rpartition(".")[0] for name in latest}
        costs = {
            operation: cost_of(latest, operation, Histogram.merged)
            for operation in OPERATIONS
            if operation in tried
        }
        return {operation: found for operation, found in costs.items() if found.total}

    @property
    def summary(self) -> run_state.UnitProgress | None:
        """The progress of the run for a unit's status; None before its workers are ready."""
        if not self._begun:
            return None
        progress, totals = self._progress, self.totals
        latest = self.latencies()
        # The most frequent of the run's own operations represents the load on the target.
        own = [
            latest[operation] for operation in (*OWN_LOAD[self.workload], "connect") if operation in latest
        ]
        p50, p99 = max(own, key=lambda found: found.total).percentiles([50, 99]) if own else (None, None)
        return run_state.UnitProgress(
            stage=(progress.listed or progress.stage) if progress is not None else 0,
            stages=progress.stages if progress is not None else None,
            kind=progress.kind if progress is not None else "ramp",
            phase=progress.phase if progress is not None else None,
            size=progress.goal if progress is not None else 0,
            held=self.reached()[0],
            rate=self.rate,
            p50_ms=None if p50 is None else p50 / 1000,
            p99_ms=None if p99 is None else p99 / 1000,
            errors=totals["errors"],
            lost=totals["lost"],
            what=progress.things if progress is not None else "",
            preparing=self._preparing,
        )
