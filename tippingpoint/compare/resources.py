"""Compares the resource use of several runs' targets at each load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, product
from statistics import fmean

import numpy as np

from tippingpoint.analysis.cost import samples_between
from tippingpoint.rundir.resources import FigureData, titles_of
from tippingpoint.rundir.results import RunData

_KINDS = (
    ("cpu",),
    ("memory",),
    ("disk", "fsyncs", "written"),
    ("network", "peer", "client"),
    ("published", "delivered"),
)
"""Words in the names of the figures that come first, in this order. Published results have such figures."""


@dataclass(frozen=True)
class Level:
    """A figure while one load was held, in the figure's unit."""

    typical: float
    """The typical mean over the hosts during the hold: for rates its mean, for all other figures its median."""
    low: float
    high: float
    """The 10th and 90th percentiles of the hosts' mean during the hold, widened to include `typical` if necessary."""
    leader: float | None
    """The typical value of the leading host; None if no leader is known."""


@dataclass(frozen=True)
class Ratio:
    """The ratio of a run's figure to the base's at the same load."""

    ratio: float
    low: float
    high: float
    """With repeats, the 95 % interval of this figure's ratio alone. With one run each, the ratios of one run's low to
    the other's high, and the reverse, which are not a confidence interval."""
    certain: bool = False
    """Whether the scatter of repeats, across all figures of the comparison, does not explain the ratio."""


@dataclass(frozen=True)
class ResourceComparison:
    """One figure (or one part of it, such as a process) of every run, by load."""

    name: str
    title: str
    part: str
    unit: str
    meaning: str
    sizes: list[float]
    levels: list[list[Level | None]]
    """The levels of each run at each of `sizes`; None if nothing was collected."""
    ratios: list[list[Ratio | None]]
    """The ratios of each run after the first at each of `sizes`; None unless both runs have a level."""

    @property
    def kind(self) -> int | None:
        """The kind of figure: CPU (0), memory (1), disk (2), network (3) or a broker's messages (4); else None."""
        return next((n for n, words in enumerate(_KINDS) if any(word in self.name for word in words)), None)

    def of(self, first: int, count: int) -> ResourceComparison:
        """Return only the levels of `count` consecutive runs, without ratios."""
        return replace(self, levels=self.levels[first : first + count], ratios=[])

    @property
    def shared(self) -> list[float]:
        """The loads at which the first run and another one have the figure, ascending."""
        return [
            size
            for place, size in enumerate(self.sizes)
            if any(of_run[place] is not None for of_run in self.ratios)
        ]


def resources_together(
    compared: Sequence[ResourceComparison], counts: Sequence[int]
) -> list[ResourceComparison]:
    """Join the levels of repeats to their mean and range; `counts` is the number of repeats per release, in order."""
    ends = list(accumulate(counts))
    joined: list[ResourceComparison] = []
    for figure in compared:
        levels = [
            [
                _joined([of_run[place] for of_run in figure.levels[end - count : end]])
                for place in range(len(figure.sizes))
            ]
            for end, count in zip(ends, counts, strict=True)
        ]
        ratios = [
            [_ratio(base, other) for base, other in zip(levels[0], of, strict=True)] for of in levels[1:]
        ]
        joined.append(replace(figure, levels=levels, ratios=ratios))
    return joined


def _joined(levels: Sequence[Level | None]) -> Level | None:
    """Return the level of repeats; None unless all have one."""
    there = [level for level in levels if level is not None]
    if len(there) < len(levels):
        return None
    if len(there) == 1:
        return there[0]
    leaders = [level.leader for level in there if level.leader is not None]
    return Level(
        fmean(level.typical for level in there),
        min(level.low for level in there),
        max(level.high for level in there),
        fmean(leaders) if len(leaders) == len(there) else None,
    )


def compare_resources(runs: Sequence[RunData]) -> list[ResourceComparison]:
    """Compare every charted figure that two runs (or the only run) have: CPU, memory, disk, network, messages first.

    Only steps that were held count, with the samples during their hold (cost.samples_between). If nothing stays that
    could be held, the samples before the hold count. Parts whose names differ between runs, such as devices, are
    combined.
    """
    charted = [
        figure
        for run in runs
        if run.resources is not None
        for figure in run.resources.figures
        if figure.chart
    ]
    found: list[ResourceComparison] = []
    for name, title in titles_of(charted).items():
        figures = [run.resources.figure(name) if run.resources is not None else None for run in runs]
        there = [figure for figure in figures if figure is not None and figure.series]
        if len(there) < min(2, len(runs)):
            continue
        for part, parts in _parts(there):
            compared = _compared(runs, there[0], title, figures, part, parts)
            if compared.sizes:
                found.append(compared)
    return sorted(found, key=lambda compared: len(_KINDS) if compared.kind is None else compared.kind)


def _parts(figures: Sequence[FigureData]) -> list[tuple[str, frozenset[str] | None]]:
    """Return the parts to compare separately: those that all runs have, otherwise all parts as one (None)."""
    shared = [part for part in figures[0].parts if all(part in other.parts for other in figures[1:])]
    return [(part, frozenset([part])) for part in shared] or [("", None)]


def _compared(
    runs: Sequence[RunData],
    first: FigureData,
    title: str,
    figures: Sequence[FigureData | None],
    part: str,
    parts: frozenset[str] | None,
) -> ResourceComparison:
    by_size = [
        _levels(run, figure, parts) if figure is not None else {}
        for run, figure in zip(runs, figures, strict=True)
    ]
    sizes = sorted({size for levels in by_size for size in levels})
    levels = [[of_run.get(size) for size in sizes] for of_run in by_size]
    ratios = [
        [_ratio(base, other) for base, other in zip(levels[0], of_run, strict=True)] for of_run in levels[1:]
    ]
    return ResourceComparison(first.name, title, part, first.unit, first.meaning, sizes, levels, ratios)


def _levels(run: RunData, figure: FigureData, parts: frozenset[str] | None) -> dict[float, Level]:
    resources = run.resources
    if resources is None:
        return {}
    hosts = [_hosts(figure, place, parts) for place in range(len(resources.t))]
    means = [fmean(values.values()) if values else None for values in hosts]
    leaders = [values.get(resources.leading(t)) for t, values in zip(resources.t, hosts, strict=True)]
    held: dict[float, tuple[list[float], list[float]]] = {}
    for stage in run.stages:
        if stage.is_step and stage.hold_begin is not None and stage.end is not None:
            cycle = run.manifest.load_unit.startswith("iterations")
            held_from, held_to = (stage.begin, stage.hold_begin) if cycle else (stage.hold_begin, stage.end)
            of_size = held.setdefault(stage.size, ([], []))
            for found, values in zip(of_size, (means, leaders), strict=True):
                found += samples_between(resources, values, figure.window, held_from, held_to)[0]
    levels: dict[float, Level] = {}
    for size, (of_hosts, of_leader) in held.items():
        if of_hosts:
            low, high = (float(end) for end in np.percentile(of_hosts, (10, 90)))
            typical = figure.typical(of_hosts)
            led = figure.typical(of_leader) if of_leader else None
            levels[size] = Level(typical, min(low, typical), max(high, typical), led)
    return levels


def _hosts(figure: FigureData, place: int, parts: frozenset[str] | None) -> dict[str, float]:
    sums: dict[str, float] = {}
    for series in figure.series:
        value = series.values[place]
        if value is not None and (parts is None or series.part in parts):
            sums[series.host] = sums.get(series.host, 0.0) + value
    return sums


def _ratio(base: Level | None, other: Level | None) -> Ratio | None:
    if base is None or other is None or min(base.typical, base.low) <= 0:
        return None
    ends = [of / to for of, to in product((other.low, other.high), (base.low, base.high))]
    return Ratio(other.typical / base.typical, min(ends), max(ends))
