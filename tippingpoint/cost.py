"""What a unit of load costs the target (memory per 1000 leases, CPU time per operation), and whether that grows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from tippingpoint.resources import FigureData, Resources
from tippingpoint.results import BRINGING_UP, RunData, StageResult
from tippingpoint.wording import show_size

Role = Literal["leader", "follower", "all"]
Trend = Literal["", "grows", "falls", "constant", "uncertain"]

BASE_SECONDS = 120.0
"""How long before stage 1 is looked at for what was there without load."""
LEAST_BASE = 2
LEAST_HELD = 3
"""Samples below which a median is not one."""
LEAST_LOADS = 4
"""Loads below which ranks bound no slope: three are in order by chance alone in two of six cases."""
LEVEL = 0.90
"""The least confidence of a slope's interval; with few loads ranks give only some levels, four of them 92 %."""
SAME = 0.10
"""A cost that changes by less than this share of itself over all loads is constant, as runs that differ by less are
equal (see compare.py)."""
_PER_LOAD = {
    "bytes": ("MB", 1e-6),
    "bytes/s": ("MB/s", 1e-6),
    "bits/s": ("Mbit/s", 1e-6),
    "cores": ("cores", 1.0),
    "seconds": ("s", 1.0),
    "count/s": ("/s", 1.0),
}
_PER_OPERATION = {
    "bytes/s": ("kB", 1e-3),
    "bits/s": ("kbit", 1e-3),
    "cores": ("CPU-ms", 1e3),
    "count/s": ("", 1.0),
}
"""What a rate is called, and its factor, once it is divided by operations a second."""


@dataclass(frozen=True)
class Cost:
    """What one figure costs per unit of load, in one role."""

    figure: str
    title: str
    part: str
    """Which of the hosts' (a process, a vhost); empty where the figure tells none apart."""
    role: Role
    """Of the host that led, of the median follower, or of all hosts together."""
    unit: str
    per: str
    """1000 leases, container, operation ..."""
    base: float | None
    """What was there before stage 1, in `unit`, as a whole; None when nothing was sampled."""
    stages: list[tuple[int, float]]
    """Loads in ascending order, and the cost at each; of a load that was held more than once the median."""
    left_out: list[tuple[int, str]]
    """Stages, by number, of which there is no cost, and why."""
    slope: float | None
    """By how much the cost rises with 1000 more of load; None with fewer than two loads."""
    low: float | None
    high: float | None
    level: float | None
    """The interval of the slope and its confidence in 0..1; None with fewer than LEAST_LOADS loads."""
    trend: Trend
    withheld: str
    """Why nothing is said of a trend; empty when something is."""
    load_unit: str
    """What loads are counted in."""

    @property
    def sentence(self) -> str:
        """What there is to say of it, for people."""
        who = {"leader": " of the leader", "follower": " of a follower", "all": ""}[self.role]
        what = f"{self.title}{f' of {self.part}' if self.part else ''}{who}"
        if not self.stages:
            return f"{what}: withheld, as {self.withheld}."
        (first, least), (last, most) = self.stages[0], self.stages[-1]
        costs = f"{what}: {self._shown(most)} at {show_size(last)} {self.load_unit}"
        costs += f", {self._shown(least)} at {show_size(first)}" if last > first else ""
        if self.withheld:
            return f"{costs}; whether it grows is withheld, as {self.withheld}."
        words = {
            "grows": "it grows",
            "falls": "it falls",
            "constant": "it is constant",
            "uncertain": "whether it grows is not for certain",
        }
        thousands = (last - first) / 1000
        change = " to ".join(_three((bound or 0) * thousands) for bound in (self.low, self.high))
        between = f"from {show_size(first)} to {show_size(last)} {self.load_unit}"
        interval = f"{100 * (self.level or 0):.0f} % interval"
        return f"{costs}: {words[self.trend]} (changes by {change} {between}, {interval})."

    def _shown(self, cost: float) -> str:
        return " ".join(word for word in (_three(cost), self.unit, f"per {self.per}") if word)


def _three(value: float | None) -> str:
    """Three significant digits: 0.0123, 1,290."""
    rounded = float(f"{value or 0:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:g}"


def costs_of(run: RunData) -> list[Cost]:
    """What a run's target paid per unit of load, for each figure that is told so and each role that is known.

    The cost of a stage is the figure's median over its hold above what was there before stage 1, divided by the load
    that was held; per operation, by those that succeeded in a second (of what is made while a stage is brought up,
    in that time). Empty when nothing was gathered.
    """
    resources = run.resources
    if resources is None:
        return []
    return [
        _cost(run, resources, figure, part, role, values)
        for figure in resources.figures
        if figure.cost
        for part in figure.parts
        for role, values in _roles(resources, figure, part).items()
    ]


def samples_between(
    resources: Resources, values: Sequence[float | None], window: float, begin: float, end: float
) -> tuple[list[float], int]:
    """What a figure was from begin to end (seconds since the run's start), and how many moments there are in it.

    `window` is the figure's: a rate that reaches back before `begin` tells of another time.
    """
    inside = [place for place, t in enumerate(resources.t) if begin + window <= t <= end]
    return [value for place in inside if (value := values[place]) is not None], len(inside)


def _roles(resources: Resources, figure: FigureData, part: str) -> dict[Role, Sequence[float | None]]:
    roles = resources.roles(figure, part)
    found: dict[Role, Sequence[float | None]] = {}
    if any(value is not None for value in roles.leader) and any(value is not None for value in roles.middle):
        # While nobody led, all were followers: that is not what a follower costs.
        led = [
            None if led is None else middle for led, middle in zip(roles.leader, roles.middle, strict=True)
        ]
        found = {"leader": roles.leader, "follower": led}
    return {**found, "all": roles.total}


def _cost(
    run: RunData,
    resources: Resources,
    figure: FigureData,
    part: str,
    role: Role,
    values: Sequence[float | None],
) -> Cost:
    unit, scale, per, amount = _units(run, figure)
    begun = min((stage.begin for stage in run.stages), default=0.0)
    before, _ = samples_between(resources, values, 0.0, begun - BASE_SECONDS, begun)
    base = median(before) * scale if len(before) >= LEAST_BASE else None
    left_out: list[tuple[int, str]] = []
    found: dict[int, list[float]] = {}
    for stage in filter(lambda stage: stage.is_step, run.stages):
        there, why = _there(run, resources, figure, values, stage)
        if why:
            left_out.append((stage.number, why))
        elif base is not None:
            cost = (there * scale - base) / _load(run, figure, stage) * amount
            found.setdefault(stage.size, []).append(cost)
    stages = [(size, median(costs)) for size, costs in sorted(found.items())]
    slope, low, high, level = _slope([(size / 1000, cost) for size, cost in stages])
    withheld = ""
    if base is None:
        withheld = f"{len(before)} samples are there of the {BASE_SECONDS:g} s before stage 1"
    elif level is None:
        withheld = f"there are {len(stages)} loads with samples, and {LEAST_LOADS} are needed"
    return Cost(
        figure.name, figure.title, part, role, unit, per, base, stages, left_out, slope, low, high, level,
        "" if withheld else _trend(stages, low or 0.0, high or 0.0), withheld, run.manifest.load_unit,
    )  # fmt: skip


def _units(run: RunData, figure: FigureData) -> tuple[str, float, str, float]:
    """The unit of a cost and the factor into it, what it is told per, and how many of that."""
    if figure.cost == "operations":
        unit, scale = _PER_OPERATION.get(figure.unit, (figure.unit, 1.0))
        per = _counted(run)[1]
        return unit, scale, per if figure.unit in _PER_OPERATION else f"{per}/s", 1.0
    unit, scale = _PER_LOAD.get(figure.unit, ("", 1.0))
    if run.manifest.load_unit == "leases":
        return unit, scale, "1000 leases", 1000.0
    return unit, scale, run.manifest.load_unit.removesuffix("s"), 1.0


def _counted(run: RunData) -> tuple[Sequence[str], str]:
    """The operations that a cost is divided by, and what it is then told per.

    A server's boot is one, though its steps are timed one by one, and a whole iteration where it is deleted again.
    """
    if "boot_server" not in run.operations:
        return run.own_load, "operation"
    return ("boot_server",), "boot and delete" if run.manifest.load_unit == "iterations" else "boot"


def _there(
    run: RunData, resources: Resources, figure: FigureData, values: Sequence[float | None], stage: StageResult
) -> tuple[float, str]:
    """The median of a figure over the part of a stage that its load was there in; else why there is none."""
    if stage.hold_begin is None or stage.end is None:
        return 0.0, "it was not held to its end"
    begin, end = stage.hold_begin, stage.end
    if figure.cost == "operations" and _brought_up(run):
        begin, end = stage.begin, stage.hold_begin
    found, moments = samples_between(resources, values, figure.window, begin, end)
    if moments < LEAST_HELD:
        rate = f" that a rate over {figure.window:.0f} s tells of" if figure.window else ""
        return 0.0, f"its {end - begin:.0f} s have {moments} moment{'s' * (moments != 1)}{rate}"
    if len(found) < LEAST_HELD or 2 * len(found) < moments:
        return 0.0, f"{moments - len(found)} of {moments} samples are missing"
    if not _load(run, figure, stage):
        return 0.0, "nothing was held" if figure.cost == "load" else "no operation succeeded"
    return median(found), ""


def _brought_up(run: RunData) -> bool:
    """Whether the workload's operations are those that bring a stage up, and end when it is held."""
    return all(operation in BRINGING_UP for operation in run.own_load)


def _load(run: RunData, figure: FigureData, stage: StageResult) -> float:
    """What was held, or how many of the workload's operations succeeded in a second."""
    if figure.cost == "operations":
        return sum(stage.throughput(operation) or 0.0 for operation in _counted(run)[0])
    if run.manifest.load_unit in ("leases", "containers", "servers"):
        return stage.gauges.get("held") or float(stage.size)
    return float(stage.size)  # of a model what is held is machines and units together; members are not held


def _slope(
    points: Sequence[tuple[float, float]],
) -> tuple[float | None, float | None, float | None, float | None]:
    """The Theil-Sen slope through points of different x, its interval and that one's level.

    The slope is the median of those of all pairs; the interval is bounded by slopes whose ranks follow from Kendall's
    distribution, whatever that of the costs (Sen, Journal of the American Statistical Association 63 (1968) 1379;
    Hollander and Wolfe, Nonparametric Statistical Methods, 1999, section 9.3).
    """
    slopes = sorted(
        (later - earlier) / (right - left)
        for (left, earlier), (right, later) in itertools.combinations(sorted(points), 2)
    )
    if not slopes:
        return None, None, None, None
    tails = list(itertools.accumulate(_inversions(len(points))))
    rank = sum(tail <= (1 - LEVEL) / 2 for tail in tails)
    if not rank:
        return median(slopes), None, None, None
    return median(slopes), slopes[rank - 1], slopes[-rank], 1 - 2 * tails[rank - 1]


def _inversions(count: int) -> list[float]:
    """The shares of the orders of so many things that have 0, 1, 2 ... pairs in the wrong order (Kendall)."""
    shares = [1.0]
    for size in range(2, count + 1):
        longer = [0.0] * (len(shares) + size - 1)
        for pairs, share in enumerate(shares):
            for more in range(size):
                longer[pairs + more] += share / size
        shares = longer
    return shares


def _trend(stages: Sequence[tuple[int, float]], low: float, high: float) -> Trend:
    thousands = (stages[-1][0] - stages[0][0]) / 1000
    usual = abs(median(cost for _, cost in stages))
    if max(abs(low), abs(high)) * thousands <= SAME * usual:
        return "constant"
    if low > 0:
        return "grows"
    return "falls" if high < 0 else "uncertain"
