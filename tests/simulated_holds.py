"""Targets whose every call is simulated: what a hold shows while it lasts, and what it shows as a whole.

Loads are in calls per second. A hold goes on behind an early end of it, so that both are known.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log
from typing import Any, Literal

import numpy as np

from tests.simulated_targets import EMPTYING_S, RAMP_S
from tippingpoint.analysis.search.answer import Answer
from tippingpoint.analysis.search.early_end import LEAST_OF_HOLD, EarlyEnds, Tally
from tippingpoint.analysis.search.probes import Margin, Probe
from tippingpoint.analysis.search.searcher import Aim, Searcher
from tippingpoint.analysis.search.stage_margins import Second, stage_margins, tallies
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.stages import StageResult

FloatArray = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
ALLOWED = 0.1
"""Seconds that calls may take, at the 99th percentile unless a search limits another one."""


@dataclass(frozen=True)
class Calls:
    """What kind of calls a target answers."""

    kind: Literal["smooth", "queue", "bimodal"] = "smooth"
    every: float = 0.0
    """Seconds from one pause to the next; 0 for none."""
    pause: tuple[float, float] = (0.0, 0.0)
    """The range of a pause's length, in seconds."""
    timed: float = 0.0
    """How many calls a second are timed, whatever the load is; 0 for all."""


class CallTarget:
    """One target. Its limit is the load at which p99 is what is allowed, as long as it does not pause."""

    def __init__(self, calls: Calls, limit: float, draw: random.Random, percentile: float = 99.0) -> None:
        self._calls = calls
        self._limit = limit
        self._random = np.random.default_rng(draw.getrandbits(64))
        self._beyond = 1 - percentile / 100
        self._slope = exp(draw.uniform(log(1.0), log(8.0)))
        self._pause = draw.uniform(*calls.pause)
        self._phase = draw.uniform(0.0, max(calls.every, 1e-9))

    def hold(self, load: float, at: float, seconds: int) -> list[Second]:
        """Return what each second of a hold shows that begins at a moment."""
        sent, taken = self._calls_of(load, at, seconds)
        ended = np.minimum(sent + taken, seconds - 1e-9).astype(int)
        return [
            {"extend.ok": Histogram.of(taken[ended == second] * 1e6)} if (ended == second).any() else {}
            for second in range(seconds)
        ]

    def tips(self, threshold: Threshold, seconds: int, holds: int = 60) -> float:
        """Return the load at which half of all holds meet a threshold, by simulation."""
        low, high = log(self._limit) - 3.0, log(self._limit) + 1.0
        for _ in range(8):
            middle, held = (low + high) / 2, 0
            for _ in range(holds):
                at = float(self._random.uniform(0.0, 1e5))
                _, taken = self._calls_of(exp(middle), at, seconds)
                whole = [{"extend.ok": Histogram.of(taken * 1e6)}]
                held += all(margin.value <= 0 for margin in stage_margins(stage_of(whole), [threshold]))
            low, high = (middle, high) if 2 * held > holds else (low, middle)
        return exp((low + high) / 2)

    def _calls_of(self, load: float, at: float, seconds: int) -> tuple[FloatArray, FloatArray]:
        """Return when the calls of a hold are sent, and how long each takes."""
        timed = self._calls.timed
        count = round(timed * seconds) if timed else int(self._random.poisson(load * seconds))
        sent = np.sort(self._random.uniform(0.0, seconds, count))
        taken = self._taken(load, sent)
        if self._calls.every:
            # Calls that come in a pause wait for its end, and later ones for those that had to.
            since = (sent + at - self._phase) % self._calls.every
            free = max(0.05, 1 - 0.6 * load / self._limit)
            taken = taken + np.maximum(0.0, self._pause - since * free)
        return sent, taken

    def _taken(self, load: float, sent: FloatArray) -> FloatArray:
        """Return how long each call takes that is sent at these moments, without pauses."""
        random, over = self._random, log(load / self._limit)
        if self._calls.kind == "bimodal":
            share = min(1.0, self._beyond * exp(self._slope * over))
            slow = random.random(sent.size) < share
            return np.where(slow, 0.2, 0.01) * np.exp(random.normal(0.0, 0.03, sent.size))
        if self._calls.kind == "queue":
            # M/M/1 whose p99 is what is allowed at the limit: its response times are exponential.
            rate = self._limit + log(1 / self._beyond) / ALLOWED
            services = random.exponential(1 / rate, sent.size)
            walk = np.cumsum(np.concatenate([[0.0], services[:-1]]) - np.diff(sent, prepend=0.0))
            return walk - np.minimum.accumulate(np.minimum(walk, 0.0)) + services
        top = log(ALLOWED) + self._slope * over + random.normal(0.0, 0.05)
        return np.exp(random.normal(top - 0.5 * 2.326, 0.5, sent.size))


@dataclass(frozen=True)
class HoldEnd:
    """How one hold of a search ended."""

    early: bool | None
    """What it was clear of before it was over; None if it lasted to its end."""
    whole: bool
    """Whether it would have held as a whole."""


def stage_of(seconds: Sequence[Second]) -> StageResult:
    """Return the stage of a hold that has lasted for these seconds."""
    held = {"extend.ok": Histogram.merged(each["extend.ok"] for each in seconds if each)}
    return StageResult(1, 1, "find", 0.0, 0.0, float(len(seconds)), held, held)


def _shown(seconds: Sequence[Second], threshold: Threshold) -> tuple[list[Margin], list[Tally]]:
    stage = stage_of(seconds)
    return stage_margins(stage, [threshold], seconds=seconds), tallies(stage, [threshold], seconds)


def search_calls(target: CallTarget, aim: Aim, threshold: Threshold) -> tuple[list[HoldEnd], float, Answer]:
    """Search a target to the end as a run does.

    Returns the ends of its holds, the seconds that it took, and its answer.
    """
    searcher, early, now = Searcher(aim), EarlyEnds(aim.hold), 0.0
    ends: list[HoldEnd] = []
    while (ask := searcher.ask(now)) is not None:
        fresh = ask.fresh or not ends
        begins = now + RAMP_S + EMPTYING_S * fresh
        seconds = target.hold(ask.load, begins, int(ask.hold))
        clear, lasted = None, max(1, ceil(LEAST_OF_HOLD * len(seconds)) - 1)
        margins, counted = _shown(seconds[:lasted], threshold)
        while clear is None and lasted < len(seconds):
            lasted += 1
            margins, counted = _shown(seconds[:lasted], threshold)
            if lasted < len(seconds):
                clear = early.clear(ask.load, margins, counted, lasted)
        early.remember(ask.load, margins, counted, lasted)
        whole = all(margin.value <= 0 for margin in _shown(seconds, threshold)[0])
        ends.append(HoldEnd(clear, whole))
        held = all(margin.value <= 0 for margin in margins) if clear is None else clear
        searcher.tell(Probe(ask.load, held, tuple(margins), fresh, now, begins + lasted - now))
        now = begins + lasted
    return ends, now, searcher.answer
