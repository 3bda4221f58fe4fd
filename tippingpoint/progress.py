"""What a person sees while a run goes on: one live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tippingpoint.durations import show_us
from tippingpoint.hdr import Histogram
from tippingpoint.manifest import Manifest
from tippingpoint.results import FAILURES, OPERATIONS, OWN_LOAD, tag
from tippingpoint.runner import Progress, RunnerEvents

_PLAIN_EVERY = 5.0
_RATE_TICKS = {"units": 1, "containers": 10}
"""Ticks of each worker that a rate is taken over: containers come one or two a second."""
_LIVES = ("launch", "create")
"""Of a run that makes containers, what stands on the line: the first of these that there is."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Fail like any other file: rich would end the program and close standard output."""
        raise BrokenPipeError


class ConsoleProgress(RunnerEvents):
    """Shows a run on a text file, standard error by default: standard output stays for results.

    A file that fails (whoever read it has gone) is written to no more; the run goes on.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._console = console = _Console(file=file, stderr=file is None)
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self._last: dict[str, dict[str, Any]] = {}
        self._recent: dict[str, dict[str, Histogram]] = {}
        self._totals: dict[str, int] = dict.fromkeys(("errors", "lost", "limited", "retries"), 0)
        self._workload = "claim"
        self._unit = "leases"
        self._containers = False
        self._growth: dict[str, deque[tuple[float, float]]] = {}
        self._lives: dict[str, Histogram] = {}
        self._stage = 0
        self._prepared: set[tuple[str, int]] = set()
        self._next_plain = 0.0
        self._unwritten = False

    def began(self, manifest: Manifest, directory: Path) -> None:
        """Say what is run on what, and where it is written."""
        self._workload, self._unit = manifest.workload, manifest.load_unit
        self._containers = manifest.load_unit in ("containers", "members")
        members = f", {len(manifest.target.members)} members" if manifest.target.members else ""
        self._say(
            f"{manifest.title} on {manifest.target.kind} {manifest.target.version}{members}; "
            f"{len(manifest.workers)} workers; {directory}"
        )
        if self._live is not None:
            with self._surviving():
                self._live.start()

    def preparing(self, what: str, done: int, goal: int) -> None:
        """Show how far what has to be there before the first stage is: the hollow fleet, which takes a while."""
        self._show_part(f"preparing {what}", done, goal)

    def removing(self, what: str, done: int, goal: int) -> None:
        """Show how far the removal is."""
        self._show_part(f"removing {what}", done, goal)

    def _show_part(self, what: str, done: int, goal: int) -> None:
        line = f"{what}: {done} of {goal}"
        if self._live is not None:
            table = Table.grid(padding=(0, 1))
            table.add_row(ProgressBar(total=max(1, goal), completed=min(done, goal), width=24), Text(line))
            with self._surviving():
                self._live.start()
                self._live.update(table)
            return
        # The goal grows with each worker that is heard of: what one has done alone is not the whole.
        finished = done >= goal and (what, goal) not in self._prepared
        if finished:
            self._prepared.add((what, goal))
        if finished or (done < goal and time.monotonic() >= self._next_plain):
            self._next_plain = time.monotonic() + _PLAIN_EVERY
            self._say(line)

    def progress(self, progress: Progress, worker: str, tick: dict[str, Any]) -> None:
        """Show a worker's tick among the others' latest."""
        before = self._last.get(worker, tick)
        most = _RATE_TICKS["containers" if self._containers else "units"]
        growth = self._growth.setdefault(worker, deque(maxlen=most))
        growth.append((abs(int(tick["held"]) - int(before["held"])), max(tick["seconds"], 0.001)))
        self._last[worker] = tick
        self._recent[worker] = recent = _histograms(tick["lines"])
        self._totals["retries"] += int(tick.get("retries", 0))
        if progress.stage != self._stage:
            self._stage = progress.stage
            self._lives.clear()
        for operation in _LIVES:
            if tag(operation) in recent:
                self._lives.setdefault(operation, Histogram()).add(recent[tag(operation)])
        for name, histogram in recent.items():
            operation, outcome, *_ = name.split(".")
            if operation in OPERATIONS and outcome in FAILURES:
                self._totals["lost" if outcome == "lost" else "errors"] += histogram.total
            elif outcome == "limited":
                self._totals["limited"] += histogram.total
        if tick["unwritten"] and not self._unwritten:
            self._unwritten = True
            self._say("the journal's disk is full: what is measured waits in memory")
        if self._live is not None:
            with self._surviving():
                self._live.update(self._table(progress))
        elif time.monotonic() >= self._next_plain:
            self._next_plain = time.monotonic() + _PLAIN_EVERY
            self._say(self._line(progress))

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Print what happened above the live line; a worker that is gone holds nothing any more."""
        if event == "worker-cut":
            for kept in (self._last, self._recent, self._growth):
                kept.pop(fields["worker"], None)
        shown = " ".join(f"{key}={value}" for key, value in fields.items() if value not in (None, []))
        self._say(f"{t:7.1f}s {event} {shown}")

    def close(self) -> None:
        """Take the live line away."""
        if self._live is not None:
            with self._surviving():
                self._live.stop()

    def _say(self, text: str) -> None:
        with self._surviving():
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def _surviving(self) -> Generator[None]:
        try:
            yield
        except OSError:
            # From here on all that is written to it goes nowhere, what is still in its buffer at exit too.
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._console.file.fileno())
                os.close(nowhere)

    def _merged(self, name: str) -> Histogram:
        return Histogram.merged(found[name] for found in self._recent.values() if name in found)

    def _rate(self) -> float:
        """Per second: things made or removed, or claims and extensions that succeeded."""
        if self._workload == "spawn":
            return sum(
                sum(made for made, _ in ticks) / sum(seconds for _, seconds in ticks)
                for ticks in self._growth.values()
            )
        seconds = max((tick["seconds"] for tick in self._last.values()), default=1.0)
        own = OWN_LOAD[self._workload]
        return sum(self._merged(tag(operation)).total for operation in own) / max(seconds, 0.001)

    def _reached(self, progress: Progress) -> tuple[int, int, str]:
        """How much of the stage's load is there, of how much, and what it is."""
        held = sum(int(tick["held"]) for tick in self._last.values())
        if self._workload == "claim":
            return held, progress.size, self._unit
        waiting = sum(int(tick["waiting"]) for tick in self._last.values())
        if self._containers:
            return held, held + waiting, "containers left" if progress.kind == "destroy" else "containers"
        return held, held + waiting, "things left" if progress.kind == "destroy" else "things made"

    def _line(self, progress: Progress) -> str:
        done, goal, what = self._reached(progress)
        parts = [
            f"{progress.elapsed:7.1f}s",
            f"stage {progress.stage}{f'/{progress.stages}' if progress.stages else ''} {progress.kind}",
            f"{done}/{goal} {what}",
            f"{self._rate():.1f}/s" if self._containers else f"{self._rate():.0f}/s",
        ]
        for operation, latest in self._latencies().items():
            p50, p99 = latest.percentiles([50, 99])
            parts.append(f"{operation} p50 {show_us(p50)} p99 {show_us(p99)}")
        counted = ["errors", *(["lost"] if self._workload == "claim" else [])]
        counted += [name for name in ("limited", "retries") if self._totals[name]]
        parts.append(" ".join(f"{name} {self._totals[name]}" for name in counted))
        return "  ".join(parts)

    def _latencies(self) -> dict[str, Histogram]:
        """By operation those of the last second; of containers, which take longer, those of the stage so far."""
        if self._containers:
            shown = next((operation for operation in _LIVES if operation in self._lives), None)
            return {shown: self._lives[shown]} if shown is not None else {}
        latest = {operation: self._merged(tag(operation)) for operation in OPERATIONS}
        return {operation: found for operation, found in latest.items() if found.total}

    def _table(self, progress: Progress) -> Table:
        done, goal, _ = self._reached(progress)
        bar = ProgressBar(total=max(1, goal), completed=min(done, goal), width=24)
        left = "" if progress.remaining is None else f"{progress.remaining:.0f} s left"
        table = Table.grid(padding=(0, 1))
        trouble = "red" if self._totals["errors"] or self._totals["lost"] else "dim"
        table.add_row(bar, Text(self._line(progress), style=trouble if trouble == "red" else ""), Text(left))
        return table


def _histograms(lines: str) -> dict[str, Histogram]:
    found: dict[str, Histogram] = {}
    for line in lines.splitlines():
        name, _, _, _, encoded = line.split(",")
        found[name.removeprefix("Tag=")] = Histogram.decode(encoded)
    return found
