"""Shows a run in progress to a person: a few live lines on a terminal, or a plain line every few seconds elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import IO, Any, Literal

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from tippingpoint.plan.kinds import facts_of
from tippingpoint.play.headline import Headline
from tippingpoint.play.live_view import Known, OperationRow, lines_of
from tippingpoint.play.messages import Tick
from tippingpoint.play.watcher import RunnerEvents, SearchSoFar, StageProgress
from tippingpoint.rundir.clock import EVENT as CLOCK
from tippingpoint.rundir.event_words import between, event_words
from tippingpoint.rundir.figure_values import EVENT as FIGURE
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.profiles import NOT_TAKEN, TAKEN
from tippingpoint.util import timing
from tippingpoint.util.numbers import show_rate, show_us
from tippingpoint.util.text import show_amount, show_count, show_size

Detail = Literal["quiet", "normal", "verbose"]
"""How much is shown: only what somebody has to act on; everything but details; everything, each second."""

STOPPING = "stopping; press again to leave everything in place"
LEAVING = "stopping now: nothing is removed; tippingpoint clean does that later"
_DETAILS = frozenset({CLOCK, FIGURE, TAKEN, NOT_TAKEN, "share", "began-late", "member-started"})
"""Events that only `--verbose` shows: they are in the report, and nobody has to act on them."""
_NEEDS_ACTION = frozenset({"left-behind", "journal-lost", "model-gone", "worker-cut", "room-unknown"})
"""Events that `--quiet` shows too."""
_SHOWN_OTHERWISE = frozenset({"interrupted"})
"""Events that the person watching already knows about."""
_PLAIN_EVERY: Mapping[Detail, float] = {"quiet": 5.0, "normal": 5.0, "verbose": 1.0}
_LIVE_EVERY = 0.5
"""Seconds between two updates of the figures. Only the clock is drawn more often."""
_LIVE_OVER = 3
"""Seconds over which rates and latencies on a terminal are taken."""
_WAITS = 2.0
"""Seconds for which a run that reported a wait is assumed to be still waiting."""
_REMEMBERED = 60
"""How many seconds a small chart goes back."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise an error, as other files do: rich would end the program and close standard output."""
        raise BrokenPipeError


class ConsoleProgress(RunnerEvents):
    """Shows a run on a text file, by default standard error, because standard output is for results.

    After a failed write, for example because the reader has gone, nothing more is written and the run continues.
    """

    def __init__(
        self,
        file: IO[str] | None = None,
        *,
        title: str = "",
        limits: Mapping[str, float] | None = None,
        detail: Detail = "normal",
    ) -> None:
        """`limits` are the plan's limits on the p99 of operations, in microseconds."""
        self._console = console = _Console(file=file, stderr=file is None)
        self._detail: Detail = detail
        self._live = None
        if console.is_terminal and detail != "quiet":
            self._live = Live(
                get_renderable=lambda: self, console=console, refresh_per_second=4, transient=True
            )
        self._limits = limits or {}
        self._began = timing.monotonic()
        self._known, self._known_at = Known(title), self._began
        self._headline = Headline(_LIVE_OVER if self._live is not None else round(_PLAIN_EVERY["normal"]))
        self._rates: deque[float] = deque(maxlen=_REMEMBERED)
        self._p99s: dict[str, deque[float]] = {}
        self._prepared: set[tuple[str, int]] = set()
        self._searched = ""
        self._next_look = self._next_second = self._next_plain = 0.0
        self._waits_until = 0.0
        self._interrupted = 0
        self._ending = False
        self._unwritten = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw what is known; rich calls this, on a thread of its own."""
        since = timing.monotonic() - self._known_at
        yield from lines_of(
            self._known, options.max_width, since, plain=not options.encoding.startswith("utf")
        )

    def began(self, manifest: Manifest, directory: Path) -> None:
        """Show what runs on which target, and where the run is written."""
        self._headline.began(manifest, directory)
        named, member = manifest.target.members, facts_of(manifest.target.kind).member
        members = f", {show_count(len(named), member)}" if named else ""
        self._say(
            f"{manifest.title} on {manifest.target.kind} {manifest.target.version}{members}; "
            f"{show_count(len(manifest.workers), 'worker')}; {directory}"
        )

    def doing(self, what: str) -> None:
        """Show what the run does before its load, or after it."""
        self._ending = self._ending or self._headline.has_load
        if not self._show(Known(self._known.title, what, elapsed=self._elapsed)):
            self._say(what, least="verbose")

    def preparing(self, what: str, done: int, goal: int) -> None:
        """Show how much has been made of what the first stage needs, such as hollow units, which take a while."""
        self._show_part(f"preparing {what}", done, goal)

    def removing(self, what: str, done: int, goal: int) -> None:
        """Show how far the removal is."""
        self._show_part(f"removing {what}", done, goal)

    def gathering(self, done: int, goal: int) -> None:
        """Show for how many of the target's resource figures Prometheus has been queried."""
        self._show_part("gathering figures", done, goal)

    def _show_part(self, what: str, done: int, goal: int) -> None:
        line = f"{what}: {done:,} of {goal:,}"
        if self._show(Known(self._known.title, line, parts=(done, goal), elapsed=self._elapsed)):
            return
        # The goal grows with each worker that reports: the work of one worker is not the whole.
        finished = done >= goal and (what, goal) not in self._prepared
        if finished:
            self._prepared.add((what, goal))
        if finished or (done < goal and timing.monotonic() >= self._next_plain):
            self._say_now(line)

    def waiting(self, why: str, waited: float, longest: float) -> None:
        """Show what the run waits for."""
        self._waits_until = timing.monotonic() + _WAITS
        spent = f"{waited:.0f} of at most {longest:.0f} s"
        parts = (waited, longest)
        known = Known(
            self._known.title, f"waiting: {spent}", parts, self._elapsed, searched=self._searched, load=why
        )
        if self._show(known):
            return
        if timing.monotonic() >= self._next_plain:
            self._say_now(f"{why} ({spent})")

    def searched(self, known: SearchSoFar) -> None:
        """Take what a search knows so far."""
        self._searched = known_words(known)

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """Show a worker's tick together with the latest of the others."""
        self._headline.progress(progress, worker, tick)
        if tick.unwritten and not self._unwritten:
            self._unwritten = True
            self._say("the journal's disk is full: measurements are kept in memory", least="quiet")
        now = timing.monotonic()
        if self._detail == "quiet" or now < self._waits_until:
            return  # there is no load while it waits: the line names the reason
        if self._live is None:
            if now >= self._next_plain and not self._interrupted:
                self._say_now(self._line(progress))
        elif now >= self._next_look:
            self._next_look = now + _LIVE_EVERY
            if self._ending or self._interrupted:
                self._show_end(progress)
            else:
                self._show(self._looked(progress, now))

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Print an event above the live lines, and forget the figures of a worker that is gone."""
        self._headline.event(t, event, fields)
        if event in _SHOWN_OTHERWISE:
            return
        least: Detail = "verbose" if event in _DETAILS else "quiet" if event in _NEEDS_ACTION else "normal"
        self._say(f"{t:7.1f}s {event_words(event, fields)}", least=least)

    def interrupted(self) -> None:
        """Report at once what a signal does, and remove what was shown of the load."""
        self._interrupted += 1
        if self._interrupted > 2:
            return
        line = STOPPING if self._interrupted == 1 else LEAVING
        self._show(Known(self._known.title, "stopping", elapsed=self._elapsed, stopping=True))
        self._say(line, least="quiet")

    def close(self) -> None:
        """Remove the live lines."""
        if self._live is not None:
            with self._surviving():
                self._live.stop()

    @property
    def _elapsed(self) -> float:
        return timing.monotonic() - self._began

    def _show(self, known: Known) -> bool:
        """Show this on a terminal; returns whether there is one."""
        if self._live is None:
            return self._detail == "quiet"
        self._known, self._known_at = known, timing.monotonic()
        with self._surviving():
            self._live.start()
            self._live.refresh()
        return True

    def _show_end(self, progress: StageProgress) -> None:
        """Show how much of the load is left while it ends."""
        held = self._headline.reached()[0]
        doing = self._known.doing.partition(":")[0] or "stopping"
        left = f": {show_amount(held, progress.things)} left" if self._headline.workload == "claim" else ""
        self._show(
            Known(self._known.title, doing + left, elapsed=self._elapsed, stopping=self._interrupted > 0)
        )

    def _say_now(self, text: str) -> None:
        self._next_plain = timing.monotonic() + _PLAIN_EVERY[self._detail]
        self._say(text)

    def _say(self, text: str, least: Detail = "normal") -> None:
        order: tuple[Detail, ...] = ("quiet", "normal", "verbose")
        if order.index(self._detail) < order.index(least):
            return
        with self._surviving():
            console = self._console
            console.print(text, highlight=False, markup=False, soft_wrap=not console.is_terminal)

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

    def _counted(self) -> list[tuple[str, int]]:
        headline = self._headline
        names = ["errors", *(["lost"] if headline.workload == "claim" else [])]
        names += [name for name in ("limited", "retries") if headline.totals[name]]
        return [(name, headline.totals[name]) for name in names]

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
        parts.append(" ".join(f"{name} {count:,}" for name, count in self._counted()))
        if progress.left is not None:
            parts.append(f"{progress.left.words} left")
        return "  ".join(parts)

    def _looked(self, progress: StageProgress, now: float) -> Known:
        """Return what is known about a load, with the figures of the latest seconds."""
        headline = self._headline
        done, goal, what = headline.reached()
        rate, latencies = headline.rate, headline.latencies()
        each_second = now >= self._next_second
        if each_second:
            self._next_second = now + 1.0
            self._rates.append(rate)
        rows: list[OperationRow] = []
        for operation, latest in latencies.items():
            p50, p99 = latest.percentiles([50, 99])
            before = self._p99s.setdefault(operation, deque(maxlen=_REMEMBERED))
            if each_second:
                before.append(p99)
            rows.append(OperationRow(operation, p50, p99, self._limits.get(operation), tuple(before)))
        return Known(
            title=self._known.title,
            doing=_doing(progress),
            parts=_share_of_run(progress) or ((done, goal) if headline.containers else None),
            elapsed=progress.elapsed,
            left=progress.left,
            searched=(self._searched or "nothing yet") if progress.kind == "find" else "",
            load=f"{done:,} of {goal:,} {what}",
            rate=show_rate(rate),
            rates=tuple(self._rates),
            counted=self._counted(),
            operations=rows or self._known.operations,  # with few leases, seconds pass without any
        )


def _doing(progress: StageProgress) -> str:
    """Say which stage is played, and how: stage 3 of 7, hold; probe 4 of 3,600 leases, ramp."""
    left = progress.remaining
    hold = "" if left is None else f" ({left:.0f} s left)" if left >= 0.5 else " (over)"
    phase = {"find": "ramp", "find hold": "hold"}.get(progress.phase, progress.phase)
    if progress.kind == "find":
        return f"probe {progress.stage}: {phase}{hold}"
    of = f" of {progress.stages}" if progress.stages else ""
    return f"stage {progress.listed or progress.stage}{of}: {phase}{hold}"


def _share_of_run(progress: StageProgress) -> tuple[float, float] | None:
    """Return how much of the run's time is over, of how much; None if only a bound of it is known."""
    if progress.left is None or progress.left.bound != "about":
        return None
    return progress.elapsed, progress.elapsed + progress.left.seconds


def known_words(known: SearchSoFar) -> str:
    """Say what a search knows so far: 3,200 passed, 4,600 failed; the limit is between 3,100 and 4,500 with 95 %."""
    told = [f"{show_size(known.held)} passed"] if known.held is not None else []
    told += [f"{show_size(known.broke)} failed"] if known.broke is not None else []
    words = ", ".join(told) or "nothing yet"
    return words if known.interval is None else f"{words}; the limit is {between(*known.interval)} with 95 %"
