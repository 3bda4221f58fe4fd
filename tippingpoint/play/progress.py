"""Shows a run in progress to a person: one live line on a terminal, or a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tippingpoint.plan.kinds import facts_of
from tippingpoint.play.headline import Headline
from tippingpoint.play.messages import Tick
from tippingpoint.play.watcher import RunnerEvents, StageProgress
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.probe_events import EVENT, ProbeEvent, probe_words
from tippingpoint.util import timing
from tippingpoint.util.numbers import show_rate, show_us, show_value
from tippingpoint.util.text import show_count

_PLAIN_EVERY = 5.0
_WAITS = 2.0
"""Seconds for which a run that said that it waits is taken to wait on."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise an error, as other files do: rich would end the program and close standard output."""
        raise BrokenPipeError


class ConsoleProgress(RunnerEvents):
    """Shows a run on a text file, by default standard error, as standard output is for results.

    After a write fails, for example because the reader is gone, nothing more is written and the run goes on.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        self._console = console = _Console(file=file, stderr=file is None)
        self._live = (
            Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        )
        self._headline = Headline(seconds=1)
        self._prepared: set[tuple[str, int]] = set()
        self._next_plain = 0.0
        self._waits_until = 0.0
        self._unwritten = False

    def began(self, manifest: Manifest, directory: Path) -> None:
        """Say what runs on which target, and where the run is written."""
        self._headline.began(manifest, directory)
        named, member = manifest.target.members, facts_of(manifest.target.kind).member
        members = f", {show_count(len(named), member)}" if named else ""
        self._say(
            f"{manifest.title} on {manifest.target.kind} {manifest.target.version}{members}; "
            f"{show_count(len(manifest.workers), 'worker')}; {directory}"
        )
        if self._live is not None:
            with self._surviving():
                self._live.start()

    def preparing(self, what: str, done: int, goal: int) -> None:
        """Show how much is made of what the first stage needs, such as hollow units, which take a while."""
        self._show_part(f"preparing {what}", done, goal)

    def removing(self, what: str, done: int, goal: int) -> None:
        """Show how far the removal is."""
        self._show_part(f"removing {what}", done, goal)

    def gathering(self, done: int, goal: int) -> None:
        """Show for how many of the target's resource figures Prometheus has been asked."""
        self._show_part("gathering figures", done, goal)

    def _show_part(self, what: str, done: int, goal: int) -> None:
        line = f"{what}: {done:,} of {goal:,}"
        if self._live is not None:
            self._show_live(line, done, goal)
            return
        # The goal grows with each worker that reports: the work of one worker is not the whole.
        finished = done >= goal and (what, goal) not in self._prepared
        if finished:
            self._prepared.add((what, goal))
        if finished or (done < goal and timing.monotonic() >= self._next_plain):
            self._next_plain = timing.monotonic() + _PLAIN_EVERY
            self._say(line)

    def waiting(self, why: str, waited: float, longest: float) -> None:
        """Show what the run waits for."""
        self._waits_until = timing.monotonic() + _WAITS
        line = f"{why} ({waited:.0f} of at most {longest:.0f} s)"
        if self._live is not None:
            self._show_live(line, waited, longest)
        elif timing.monotonic() >= self._next_plain:
            self._next_plain = timing.monotonic() + _PLAIN_EVERY
            self._say(line)

    def _show_live(self, line: str, done: float, goal: float) -> None:
        if self._live is None:
            return
        table = Table.grid(padding=(0, 1))
        table.add_row(ProgressBar(total=max(1, goal), completed=min(done, goal), width=24), Text(line))
        with self._surviving():
            self._live.start()
            self._live.update(table)

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """Show a worker's tick together with the latest of the others."""
        self._headline.progress(progress, worker, tick)
        if tick.unwritten and not self._unwritten:
            self._unwritten = True
            self._say("the journal's disk is full: measurements are kept in memory")
        if timing.monotonic() < self._waits_until:
            return  # no load is there: the line says for what it waits
        if self._live is not None:
            with self._surviving():
                self._live.update(self._table(progress))
        elif timing.monotonic() >= self._next_plain:
            self._next_plain = timing.monotonic() + _PLAIN_EVERY
            self._say(self._line(progress))

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Print an event above the live line, and forget the figures of a worker that is gone."""
        self._headline.event(t, event, fields)
        if event == EVENT:
            self._say(f"{t:7.1f}s {probe_words(ProbeEvent.model_validate(fields))}")
            return
        shown = " ".join(
            f"{key}={show_value(value)}" for key, value in fields.items() if value not in (None, [])
        )
        self._say(f"{t:7.1f}s {event} {shown}")

    def close(self) -> None:
        """Remove the live line."""
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
            # From here on, writes to the file are discarded, and so is what is left in its buffer at exit.
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._console.file.fileno())
                os.close(nowhere)

    def _line(self, progress: StageProgress) -> str:
        headline = self._headline
        done, goal, what = headline.reached()
        of = f"/{progress.stages}" if progress.stages else ""
        parts = [
            f"{progress.elapsed:7.1f}s",
            f"stage {progress.listed or progress.stage}{of} {progress.phase}",
            f"{done:,}/{goal:,} {what}",
            show_rate(headline.rate),
        ]
        for operation, latest in headline.latencies().items():
            p50, p99 = latest.percentiles([50, 99])
            parts.append(f"{operation} p50 {show_us(p50)} p99 {show_us(p99)}")
        counted = ["errors", *(["lost"] if headline.workload == "claim" else [])]
        counted += [name for name in ("limited", "retries") if headline.totals[name]]
        parts.append(" ".join(f"{name} {headline.totals[name]:,}" for name in counted))
        return "  ".join(parts)

    def _table(self, progress: StageProgress) -> Table:
        done, goal, _ = self._headline.reached()
        bar = ProgressBar(total=max(1, goal), completed=min(done, goal), width=24)
        left = "" if progress.remaining is None else f"{progress.remaining:.0f} s left"
        table = Table.grid(padding=(0, 1))
        totals = self._headline.totals
        trouble = "red" if totals["errors"] or totals["lost"] else "dim"
        table.add_row(bar, Text(self._line(progress), style=trouble if trouble == "red" else ""), Text(left))
        return table
