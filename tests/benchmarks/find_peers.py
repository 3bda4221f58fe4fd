"""Searches of others, and ours of before, as bench_find compares them: each tries loads and says where the limit is.

A peer calls `holds(load, hold)` with a load and seconds, which begins from nothing and tells by its side alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, floor, inf, log, sqrt
from typing import Any

import numpy as np

from tippingpoint.analysis.search.searcher import Aim

Holds = Callable[[float, float], bool]


@dataclass(frozen=True)
class Named:
    """What a search says: a limit between two loads, and whether it stands by that."""

    limit: float | None
    low: float
    high: float
    stands: bool = True


def doubling(aim: Aim, holds: Holds) -> Named:
    """Our search until 2026: doubles until a load breaks, bisects, and repeats both ends three times.

    A bound that its repeats contradict is moved, at most three times.
    """
    repeats, resolution = 3, 0.1

    def once(load: int) -> bool:
        return holds(load, aim.hold)

    def double(start: int | None = None) -> tuple[int | None, int | None]:
        held, size = (start, min(int(aim.limit), start * 2)) if start is not None else (None, int(aim.start))
        while held != size:
            if not once(size):
                return held, size
            held, size = size, min(int(aim.limit), size * 2)
        return held, None

    def below(broken: int | None) -> tuple[int | None, int | None]:
        size = broken
        while size is not None and size > 1:
            size //= 2
            if once(size):
                return size, broken
            broken = size
        return None, broken

    held, broken = double()
    for left in reversed(range(3)):
        if held is None and broken is not None:
            held, broken = below(broken)
        while held is not None and broken is not None and broken - held > max(1, resolution * held):
            middle = (held + broken) // 2
            if once(middle):
                held = middle
            else:
                broken = middle
        held_again = sum(once(held) for _ in range(repeats)) if held is not None else 0
        broken_again = sum(not once(broken) for _ in range(repeats)) if broken is not None else 0
        held_stands = held is None or 2 * held_again > repeats
        broken_stands = broken is None or 2 * broken_again > repeats
        if (held_stands and broken_stands) or not left:
            named = sqrt(held * broken) if held is not None and broken is not None else None
            return Named(
                named,
                float(held or 0),
                float(broken) if broken is not None else inf,
                held_stands and broken_stands,
            )
        held, broken = below(held) if not held_stands else double(broken)
    raise AssertionError("the last round returns")


def nighthawk(aim: Aim, holds: Holds) -> Named:
    """Nighthawk's adaptive load controller (ExponentialSearchStepController): doubles, then bisects to 1 %.

    One verdict a load; its testing stage, which only repeats the answer, is left out.
    """
    low, high, load = 0.0, inf, aim.start
    while True:
        if holds(load, aim.hold):
            low = load
            if load >= aim.limit:
                return Named(None, low, inf)
        else:
            high = load
        if high == inf:
            load = min(aim.limit, load * 2)
            continue
        if high < 2 or (low and high / low - 1 < 0.01) or high - low <= 1:
            return Named(low or None, low, high)
        load = float(floor((low + high) / 2)) if low else max(1.0, float(floor(high / 2)))
        if load in (low, high):
            return Named(low or None, low, high)


def bisection(aim: Aim, holds: Holds) -> Named:
    """Probabilistic bisection (Waeber, Frazier and Henderson, SIAM Journal on Control and Optimization 51 (2013)).

    It takes every verdict for right with a chance of 0.8, begins with doubling, and ends when its 95 % interval is as
    narrow as ours is asked to be, or after 40 probes.
    """
    right, grid = 0.8, np.linspace(log(max(1.0, aim.start / 1000)), log(aim.limit * 1.5), 4000)
    weights = np.ones_like(grid) / grid.size
    load, doubling_up = aim.start, True
    for count in range(1, 41):
        held = holds(load, aim.hold)
        above = grid > log(load)
        weights = weights * np.where(above == held, right, 1 - right)
        weights /= weights.sum()
        summed = np.cumsum(weights)
        edges = np.searchsorted(summed, [0.025, 0.5, 0.975])
        low, middle, high = (exp(float(grid[min(int(edge), grid.size - 1)])) for edge in edges)
        if high - low <= aim.resolution * middle or count == 40:
            break
        doubling_up = doubling_up and held and load < aim.limit
        load = min(aim.limit, load * 2 if doubling_up else max(1.0, float(round(middle))))
    return Named(middle if middle <= aim.limit else None, low, high if high <= aim.limit else inf)


def mlrsearch(aim: Aim, holds: Holds) -> Named:
    """MLRsearch's own package (draft-ietf-bmwg-mlrsearch), with trials of one hold and an exceed ratio of one half.

    It is made for packets: a hold that breaks is told as a loss of half. A load is a bound after three holds.
    """
    from MLRsearch import AbstractMeasurer, Config, MeasurementResult, MultipleLossRatioSearch, SearchGoal

    class Measurer(AbstractMeasurer):
        def measure(self, intended_duration: float, intended_load: float) -> Any:
            good = holds(float(max(1, round(intended_load))), intended_duration)
            count = max(2, int(intended_load * intended_duration))
            return MeasurementResult(
                intended_duration=intended_duration,
                intended_load=intended_load,
                offered_count=count,
                loss_count=0 if good else count // 2,
            )

    goal = SearchGoal(
        loss_ratio=0.0,
        exceed_ratio=0.5,
        relative_width=aim.resolution / 2,
        initial_trial_duration=aim.hold,
        final_trial_duration=aim.hold,
        duration_sum=3 * aim.hold,
        preceding_targets=1,
        fail_fast=False,
    )
    config = Config()
    config.goals = [goal]
    config.max_load = aim.limit
    config.min_load = max(1.0, aim.start / 1000)
    config.warmup_duration = 0.0
    result = MultipleLossRatioSearch(config=config).search(Measurer(), debug=lambda _: None)[goal]
    low = float(result.relevant_lower_bound) if result.relevant_lower_bound is not None else 0.0
    high = float(result.relevant_upper_bound) if result.relevant_upper_bound is not None else inf
    return Named(sqrt(low * high) if low and high < inf else None, low, high)
