"""What a stage has measured so far, from its workers' ticks: a search judges a hold while it lasts."""

from __future__ import annotations

from collections import deque

from tippingpoint.plan.fields import StageKind
from tippingpoint.play.messages import Tick, decode_together
from tippingpoint.rundir.figure_values import FigureValue
from tippingpoint.rundir.histogram import Histogram, add_each
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.tags import OUTCOMES

_MOST_PARTS = 64
"""The most parts of a hold that are kept. Beyond that, pairs are merged, because a histogram takes 190 KB."""

Measured = dict[str, Histogram]
"""Histograms by tag."""


class LiveStage:
    """Collects the ticks of one stage. Times are seconds since the run's start.

    Ticks are taken on the event loop; `read` may be called on another thread.
    """

    def __init__(self, number: int, size: float, kind: StageKind, begin: float) -> None:
        self.number = number
        self._size = size
        self._kind: StageKind = kind
        self._begin = begin
        self._hold_begin: float | None = None
        self._until = 0.0
        self.figures: dict[str, FigureValue] = {}
        """The Prometheus figures that are known by now."""
        self._unread: deque[Tick] = deque()
        self._ramp: Measured = {}
        self._held: Measured = {}
        self._parts: dict[int, Measured] = {}
        self._part_seconds = 1

    def add(self, tick: Tick) -> None:
        """Take a tick of any worker."""
        self._unread.append(tick)

    def begin_hold(self, t: float) -> None:
        """Note that the hold began."""
        self._hold_begin = t

    @property
    def held(self) -> bool:
        """Whether the hold has begun."""
        return self._hold_begin is not None

    def read(self) -> None:
        """Read the ticks that arrived since the last read, except those of earlier stages."""
        decode_together(tuple(self._unread))
        while self._unread:
            tick = self._unread.popleft()
            since = tick.t - tick.seconds
            if self._hold_begin is not None and since >= self._hold_begin:
                self._add_held(tick, self._hold_begin)
            elif since >= self._begin:
                add_each(self._ramp, tick.measured)

    @property
    def held_for(self) -> float:
        """How many seconds of the hold have been read."""
        return max(0.0, self._until - self._hold_begin) if self._hold_begin is not None else 0.0

    @property
    def parts(self) -> list[Measured]:
        """The measurements of all workers in equal parts of the hold, as read so far."""
        return [self._parts[number] for number in sorted(self._parts)]

    @property
    def stage(self) -> StageResult:
        """The stage, as read so far."""
        whole: Measured = {}
        for part in (self._ramp, self._held):
            add_each(whole, part)
        return StageResult(
            number=self.number,
            size=self._size,
            kind=self._kind,
            begin=self._begin,
            hold_begin=self._hold_begin,
            end=None if self._hold_begin is None else self._hold_begin + self.held_for,
            histograms=whole,
            held=self._held,
            figures=self.figures,
        )

    def _add_held(self, tick: Tick, hold_begin: float) -> None:
        self._until = max(self._until, tick.t)
        add_each(self._held, tick.measured)
        counted = {
            name: found for name, found in tick.measured.items() if name.rpartition(".")[2] in OUTCOMES
        }
        second = int(tick.t - tick.seconds / 2 - hold_begin)
        add_each(self._parts.setdefault(second // self._part_seconds, {}), counted)
        if len(self._parts) > _MOST_PARTS:
            longer: dict[int, Measured] = {}
            for number, part in self._parts.items():
                add_each(longer.setdefault(number // 2, {}), part)
            self._parts = longer
            self._part_seconds *= 2
