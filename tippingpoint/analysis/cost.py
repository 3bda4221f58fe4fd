"""Computes what resources a target uses without load, and what each further unit of load adds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from tippingpoint.analysis.cliff import Cliff, Load
from tippingpoint.analysis.findings import Findings
from tippingpoint.rundir.resources import FigureData, Resources
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.numbers import show_rounded
from tippingpoint.util.text import show_amount, show_size, singular

Role = Literal["leader", "follower", "all"]
Trend = Literal["", "grows", "falls"]

LEAST_HELD = 3
"""The least number of samples during a stage."""
LEAST_POINTS = 4
"""The least number of points for an interval of a slope: three are in order by chance in two out of six cases."""
LEVEL = 0.95
LEAST_LEVEL = 0.90
"""The least confidence of a slope's interval. Ranks give LEVEL or more; with four points they give 92 %."""
MATERIAL = 0.01
"""A cost is material if the whole load adds at least this share of the level at the largest load."""
SAME = 0.10
"""The cost of a further unit is constant if it varies by less than this share of itself. Runs that differ by less count
as equal too (see compare.py)."""
_UNITS = {
    "bytes": ("MB", 1e-6),
    "bytes/s": ("MB/s", 1e-6),
    "bits/s": ("Mbit/s", 1e-6),
    "cores": ("cores", 1.0),
    "seconds": ("s", 1.0),
    "count": ("", 1.0),
    "count/s": ("/s", 1.0),
}


@dataclass(frozen=True)
class Point:
    """One load of a run."""

    size: float
    """The stages' size."""
    amount: float
    """The load held, in units of `per`."""
    level: float
    """The figure at that load, in `base_unit`: the mean of a rate, the median of anything else."""


@dataclass(frozen=True)
class Cost:
    """A line through the loads for one figure and role: its base, and what each further unit of load adds."""

    figure: str
    title: str
    part: str
    """The part of a host (a process, a vhost); empty if the figure has no parts."""
    role: Role
    """Whose cost this is: that of the leader, the median follower, or all hosts together."""
    unit: str
    """The unit of `slope`, `low` and `high`; empty for plain counts."""
    per: str
    """1,000 leases, container ..."""
    base: float | None
    """The value of the line without any load, in `base_unit`; None with fewer than two points."""
    base_unit: str
    points: list[Point]
    """The points by load, ascending; medians for a load that was held more than once."""
    left_out: list[tuple[int, str]]
    """The numbers of the stages that no point uses, and why."""
    slope: float | None
    """What each further unit adds; None with fewer than two points."""
    low: float | None
    high: float | None
    level: float | None
    """The interval of the slope and its confidence in 0..1; None with fewer than LEAST_POINTS points."""
    marginal: list[tuple[float, float, float]]
    """For each pair of neighbouring loads: both sizes, and what a further unit added between them, in `unit`."""
    trend: Trend
    """Whether each further unit costs more or less as the load grows; empty if neither is certain."""
    is_told: bool
    """Whether what the load adds is certainly above zero, and material."""
    withheld: str
    """Why there is no interval; empty if there is one."""
    load_unit: str
    """The unit of loads."""

    @property
    def words(self) -> str:
        """The cost in words: 54 MB, and 11 MB more for each 1,000 leases (95 %: 9 to 13). Empty without a slope."""
        said = self.line_words
        return f"{said} for each {self.per}{self.interval and f' ({self.interval})'}" if said else ""

    @property
    def line_words(self) -> str:
        """The line in words, such as "54 MB, and 11 MB more"; empty without a slope."""
        if self.slope is None:
            return ""
        more = " ".join(word for word in (three(self.slope), self.unit) if word)
        return f"{self.base_words}, and {more} more" if self.base_words else more

    @property
    def base_words(self) -> str:
        """The base in words, such as "54 MB" or "5/s"; empty if it is zero or less, which is not real."""
        if self.base is None or self.base <= 0:
            return ""
        return three(self.base) + ("" if self.base_unit[:1] in ("", "/") else " ") + self.base_unit

    @property
    def interval(self) -> str:
        """The slope's interval with its confidence, such as "95 %: 9 to 13"; empty without one."""
        if self.level is None:
            return ""
        # Ranks go in steps. An interval with a higher confidence than LEVEL is also valid at LEVEL.
        percent = 100 * min(self.level, LEVEL)
        low, high = three(self.low or 0.0), three(self.high or 0.0)
        return f"{percent:.0f} %: {f'about {low}' if low == high else f'{low} to {high}'}"

    @property
    def sentence(self) -> str:
        """The cost as a sentence for people."""
        who = {"leader": " of the leader", "follower": " of a follower", "all": ""}[self.role]
        what = f"{self.title}{f' of {self.part}' if self.part else ''}{who}"
        if not self.is_told:
            return f"{what}: withheld, as {self.withheld or 'what the load adds is within the noise'}."
        said = f"{what}: {self.words}"
        if self.trend:
            (first, until, early), (since, last, late) = self.marginal[0], self.marginal[-1]
            said += (
                f"; each adds {'more' if self.trend == 'grows' else 'less'} the more there are: {three(early)} from "
                f"{show_size(first)} to {show_amount(until, self.load_unit)}, {three(late)} from {show_size(since)} to "
                f"{show_size(last)}"
            )
        return f"{said}."


def three(value: float) -> str:
    """Write a number with three significant digits: 0.0123, 1,290."""
    return show_rounded(value, 3)


def costs_of(findings: Findings, loads: Sequence[Load], cliff: Cliff | None) -> list[Cost]:
    """Compute the target's resource use per unit of load, for each figure with a cost and each known role.

    A line is fitted to the loads that were held without a fault, below the cliff: the figure during each hold against
    the load held. The idle state before stage 1 is not a point on it, because a target's first load makes it take
    resources that it never gives back. The list is empty if no figures were collected. Costs per operation are in
    operation_costs.py.
    """
    run = findings.run
    resources = run.resources
    if resources is None:
        return []
    left_out = _left_out(findings, loads, cliff)
    return [
        _cost(run, resources, figure, part, role, values, left_out)
        for figure in resources.figures
        if figure.cost == "load"
        for part in figure.parts
        for role, values in roles_of(resources, figure, part).items()
    ]


def samples_between(
    resources: Resources, values: Sequence[float | None], window: float, begin: float, end: float
) -> tuple[list[float], int]:
    """Return a figure's samples between `begin` and `end` (seconds since the run's start), and the number of moments.

    `window` is the figure's own, in seconds. A rate whose window starts before `begin` is excluded.
    """
    inside = [place for place, t in enumerate(resources.t) if begin + window <= t <= end]
    return [value for place in inside if (value := values[place]) is not None], len(inside)


def roles_of(resources: Resources, figure: FigureData, part: str) -> dict[Role, Sequence[float | None]]:
    roles = resources.roles(figure, part)
    found: dict[Role, Sequence[float | None]] = {}
    if any(value is not None for value in roles.leader) and any(value is not None for value in roles.middle):
        # While no host led, all hosts were followers, but their use then is not the usual cost of a follower.
        led = [
            None if led is None else middle for led, middle in zip(roles.leader, roles.middle, strict=True)
        ]
        found = {"leader": roles.leader, "follower": led}
    return {**found, "all": roles.total}


def _left_out(findings: Findings, loads: Sequence[Load], cliff: Cliff | None) -> dict[float, str]:
    """Return the stages, by number, in which something other than the load determined the resource use, and why."""
    broken = cliff.first_broken if cliff is not None and not cliff.during_fault else None
    kept = {stage.number for load in loads if not load.faulted for stage in load.stages}
    found: dict[float, str] = {}
    for each in findings.stages:
        stage = each.stage
        if not stage.is_step:
            continue
        if each.why_not_held:
            found[stage.number] = each.why_not_held
        elif stage.number not in kept:
            found[stage.number] = "a fault was injected in it"
        elif broken is not None and stage.size >= broken:
            found[stage.number] = f"the cliff is at {show_amount(broken, findings.run.manifest.load_unit)}"
    return found


def _cost(
    run: RunData,
    resources: Resources,
    figure: FigureData,
    part: str,
    role: Role,
    values: Sequence[float | None],
    out: Mapping[float, str],
) -> Cost:
    base_unit, scale = _UNITS.get(figure.unit, (figure.unit, 1.0))
    unit, factor = _UNITS.get(figure.unit, (figure.unit, 1.0))
    is_leases = run.manifest.load_unit == "leases"
    per, amount_of = ("1,000 leases", 1000.0) if is_leases else (singular(run.manifest.load_unit), 1.0)
    left_out: list[tuple[int, str]] = []
    found: dict[float, list[Point]] = {}
    for stage in filter(lambda stage: stage.is_step, run.stages):
        there, why = _there(run, resources, figure, values, stage)
        if why := out.get(stage.number) or why:
            left_out.append((stage.number, why))
        else:
            amount = _load(run, stage) / amount_of
            found.setdefault(stage.size, []).append(Point(stage.size, amount, there * scale))
    points = [
        Point(size, median(point.amount for point in same), median(point.level for point in same))
        for size, same in sorted(found.items())
    ]
    line = [(point.amount, point.level * factor / scale) for point in points]
    slope, low, high, level = theil_sen(line)
    withheld = ""
    if level is None:
        withheld = (
            f"a confidence interval needs {LEAST_POINTS} points, and this run has "
            f"{len(points)} load{'s' * (len(points) != 1)} with samples"
        )
    marginal = [
        (before.size, after.size, (later - earlier) / (right - left))
        for (before, (left, earlier)), (after, (right, later)) in itertools.pairwise(
            zip(points, line, strict=True)
        )
        if right > left
    ]
    added = (slope or 0.0) * (line[-1][0] - line[0][0]) if line else 0.0
    told = low is not None and low > 0 and added >= MATERIAL * abs(line[-1][1])
    base = None
    if slope is not None:
        base = median(taken - slope * amount for amount, taken in line) * scale / factor
    return Cost(
        figure.name, figure.title, part, role, unit, per, base, base_unit,
        points, left_out, slope, low, high, level, marginal, _trend([cost for *_, cost in marginal]), told, withheld,
        run.manifest.load_unit,
    )  # fmt: skip


def _there(
    run: RunData, resources: Resources, figure: FigureData, values: Sequence[float | None], stage: StageResult
) -> tuple[float, str]:
    """Return a figure's level in the part of a stage in which its load was present, or why there is none."""
    if stage.hold_begin is None or stage.end is None:
        return 0.0, "it is unknown when it was held"  # for stages that were not held, _left_out says why
    begin, end = stage.hold_begin, stage.end
    found, moments = samples_between(resources, values, figure.window, begin, end)
    if moments < LEAST_HELD:
        rate = f" for a rate over {figure.window:.0f} s" if figure.window else ""
        return 0.0, f"its {end - begin:.0f} s have {moments} moment{'s' * (moments != 1)}{rate}"
    if len(found) < LEAST_HELD or 2 * len(found) < moments:
        return 0.0, f"{moments - len(found)} of {moments} samples are missing"
    if not _load(run, stage):
        return 0.0, "nothing was held"
    return figure.typical(found), ""


def _load(run: RunData, stage: StageResult) -> float:
    """Return the load held."""
    if run.manifest.load_unit == "leases" or run.counts_things:
        return stage.gauges.get("held") or float(stage.size)
    return float(
        stage.size
    )  # in a model, the gauge counts machines and units together; members are not counted


def theil_sen(
    points: Sequence[tuple[float, float]],
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return the Theil-Sen slope through points, the bounds of its interval, and the interval's level.

    All are None if all points have the same x. The last three are None for fewer than LEAST_POINTS points, or if any
    two have the same x. The slope is the median over all pairs. The interval is bounded by slopes whose ranks follow
    from Kendall's distribution. This is valid for noise of any distribution, even if the noise grows with the load
    (Sen, Journal of the American Statistical Association 63 (1968) 1379; Hollander and Wolfe, Nonparametric Statistical
    Methods, 1999, section 9.3).
    """
    slopes = sorted(
        (later - earlier) / (right - left)
        for (left, earlier), (right, later) in itertools.combinations(sorted(points), 2)
        if right > left
    )
    if not slopes:
        return None, None, None, None
    count = len(points)
    if len(slopes) < count * (count - 1) // 2:
        return median(slopes), None, None, None  # Kendall's distribution assumes points without ties
    tails = list(itertools.accumulate(_inversions(count)))
    for level in (LEVEL, LEAST_LEVEL):
        if rank := sum(tail <= (1 - level) / 2 for tail in tails):
            return median(slopes), slopes[rank - 1], slopes[-rank], 1 - 2 * tails[rank - 1]
    return median(slopes), None, None, None


def _inversions(count: int) -> list[float]:
    """Return the shares of all permutations of `count` things with 0, 1, 2 ... pairs in the wrong order (Kendall)."""
    shares = [1.0]
    for size in range(2, count + 1):
        longer = [0.0] * (len(shares) + size - 1)
        for pairs, share in enumerate(shares):
            for more in range(size):
                longer[pairs + more] += share / size
        shares = longer
    return shares


def _trend(marginal: Sequence[float]) -> Trend:
    """Return whether the cost of a further unit rises or falls from load to load, in an order unlikely by chance.

    This is Mann's test (Econometrica 13 (1945) 245). Neighbours share the noise of a load, so such an order occurs by
    chance even less often.
    """
    if not marginal or abs(marginal[-1] - marginal[0]) <= SAME * abs(median(marginal)):
        return ""
    pairs = [later - earlier for earlier, later in itertools.combinations(marginal, 2)]
    tails = list(itertools.accumulate(_inversions(len(marginal))))
    chance = (1 - LEAST_LEVEL) / 2
    if tails[sum(pair <= 0 for pair in pairs)] <= chance:
        return "grows"
    return "falls" if tails[sum(pair >= 0 for pair in pairs)] <= chance else ""
