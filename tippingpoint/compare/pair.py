"""Compares two releases: tipping points, throughput, and every figure at the loads that all of their runs sustained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from math import exp, hypot, inf
from statistics import fmean
from typing import Any, TypeVar

from tippingpoint.analysis.confidence import difference_of_shares, ratio_of_percentiles
from tippingpoint.analysis.operation_costs import CPU, OperationCost
from tippingpoint.analysis.thresholds import RATES
from tippingpoint.compare.cells import PERCENTILES, Cell, Key, Table, rates_of
from tippingpoint.compare.operation_costs import CostKey, CostTable, cost_figure
from tippingpoint.compare.ramp import Ramp
from tippingpoint.compare.reach import Judgement, comparable_tips, tips_against
from tippingpoint.compare.recovery import Back, ratio_of, recovery_figure
from tippingpoint.compare.repeats import (
    ERRS,
    LEVEL,
    Change,
    Figure,
    Release,
    changes,
    judged,
    level_figure,
    over_loads,
    percentile_level,
    rate_figure,
    tip_level,
)
from tippingpoint.compare.resources import Ratio, ResourceComparison
from tippingpoint.compare.served import most_served, served_figure
from tippingpoint.compare.typical import parts_of, typical_figure
from tippingpoint.plan.fields import StageKind

CAPACITY_SHARE = 0.8
"""The share of ERRS reserved for the tipping point, the rate served, and the typical call together.

The other figures get it too if one of these differs."""
CAPACITY_ERRS = ERRS * CAPACITY_SHARE
FIGURES_ERRS = ERRS * (1 - CAPACITY_SHARE)
SAME_SHARE = 0.001
"""Rates that certainly differ by less than this are the same."""
_SIGMAS = 1.96
"""The half-width of a 95 % interval in standard errors."""
_SWAPPED: dict[Judgement, Judgement] = {"worse": "better", "better": "worse"}


@dataclass(frozen=True)
class Against:
    """One release's figure compared with that of the first release."""

    change: float | None
    """For percentiles the ratio to the baseline, for rates the difference. None without a figure."""
    low: float | None
    high: float | None
    """The 95 % interval of `change` alone: between runs if there are repeats, else from the samples of one run each.

    A bound is infinite if a sample is too small for it.
    """
    judgement: Judgement | None
    """The judgement across all figures (ERRS), always unsure with one run each; None if `beyond` says why."""
    beyond: str = ""
    """Why nothing is judged at this load: it is past the cliff of one of the two, or one did not hold it."""
    withheld: bool = False
    """Whether a change is not judged because the first release differs just as much from its own control."""


_Subject = tuple[StageKind, str, str] | int | str
"""Kind of stage, operation and measure; or the number of a resource figure; or the kind of a fault."""
_Both = tuple[Figure, Figure | None]
"""A figure of both releases, and the same figure of the first release and its control."""
_What = TypeVar("_What")
_One = TypeVar("_One")
NOT_COMPARED = Against(None, None, None, "unsure")
"""The result for a figure that one of the two lacks."""


@dataclass(frozen=True)
class Side:
    """A release, what each of its runs measured, and the levels of its resources in each run."""

    release: Release
    tables: list[Table]
    resources: list[ResourceComparison]
    """Each figure of the comparison, with the levels of this release's runs alone."""
    backs: list[dict[str, Back]]
    """When the target was back, by kind of fault, in each run."""
    ramps: list[Ramp]
    """The served rates and the call durations, at each step of each run."""
    costs: list[CostTable]
    """What operations cost the target in each run."""


class Pair:
    """The first release and another one, with their differences in everything that is judged."""

    def __init__(
        self,
        base: Side,
        other: Side,
        control: Side | None,
        beyond: Mapping[Key, str],
        tolerance: float,
        *,
        disturbed: bool = False,
    ) -> None:
        """`disturbed` means that other programs may have caused any difference, so none is certain."""
        self.disturbed = disturbed
        self._base, self._other, self._control = base, other, control
        self._tolerance = tolerance
        again = len(control.tables) if control is not None else 0
        self.repeated = len(base.tables) + len(other.tables) + again > 2
        """Whether a release was run more than once, so that the scatter between runs is known."""
        self.tip: Judgement = "unsure"
        """Whether the other release tips at a lower load (worse) or a higher one (better)."""
        self.tip_change: Change | None = None
        """The ratio of the loads at which they tip; None without repeats, or if one is unknown or only a bound."""
        self.tip_withheld = False
        """Whether they tip at different loads, but so do the first release and its control."""
        self.control_differs = False
        """Whether the first release certainly differs from its own control."""
        self.typical = NOT_COMPARED
        """How long a typical call took; not compared without repeats or a ramp in common."""
        self.typical_to = 0.0
        """The largest load that `typical` covers."""
        self.served: dict[str, Against] = {}
        """By operation, the ratio of the highest rates served; empty without repeats or a ramp in common."""
        self.cost_changes: dict[CostKey, Change] = {}
        """The ratios of operations' costs; empty without repeats or a cost that all runs have."""
        of_costs = self._costs() if self.repeated else {}
        decided = self._compare_capacity(of_costs)
        figures = self._figures(beyond) if self.repeated else {}
        errs = ERRS if decided else FIGURES_ERRS
        over_all = {what: _over_loads(list(of.values())) for what, of in figures.items()}
        every: dict[_Subject | CostKey, _Both] = {**over_all, **_without(of_costs, self.cost_changes)}
        tested = self._tested(every, errs)
        self._overall = {what: tested[what] for what in over_all}
        """Each figure's change over all loads, by what the figure is."""
        self.cost_changes = {key: self.cost_changes.get(key) or tested[key] for key in of_costs}
        at_loads = {(what, load): figure for what, of in figures.items() for load, figure in of.items()}
        self._at_loads = {
            (what, load): change if self._overall[what].certain else replace(change, certain=False)
            for (what, load), change in self._tested(at_loads, errs).items()
        }
        self.control_differs |= self._control_changed(over_all, FIGURES_ERRS)

    @property
    def name(self) -> str:
        """The name of the other release."""
        return self._other.release.name

    def against(self, key: Key, measure: str, base: Sequence[Cell], cells: Sequence[Cell]) -> Against:
        """Judge one figure of one operation."""
        if not base or not cells:
            return NOT_COMPARED
        if not self.repeated:
            return _one_run_each(base[0], cells[0], measure)
        kind, size, operation = key
        change = self._at_loads.get(((kind, operation, measure), size))
        return (
            NOT_COMPARED
            if change is None
            else self._judged(change, measure, _share(base, measure), _share(cells, measure))
        )

    def overall(self) -> dict[tuple[StageKind, str, str], Against]:
        """Judgements over all loads that all runs sustained, by kind of stage, operation and measure."""
        return {
            what: self._judged(change, what[2], 0.0, 0.0)
            for what, change in self._overall.items()
            if isinstance(what, tuple)
        }

    def recovery(self, kind: str) -> Against:
        """Judge how long the target takes to recover from faults of a kind.

        If it did not recover, the time is a lower bound: it can only show that this release takes longer than others,
        and the ratio is unbounded on that side.
        """
        base, other, again = (
            [backs.get(kind) for backs in side.backs] if side is not None else []
            for side in (self._base, self._other, self._control)
        )
        before, after = ([back for back in of if back is not None] for of in ([*base, *again], other))
        if not before or not after or len(before) + len(after) < len(base) + len(again) + len(other):
            return NOT_COMPARED
        if not self.repeated:
            return Against(ratio_of(before[0], after[0]), None, None, "unsure")
        found = self._judged(self._overall[kind], "", 0.0, 0.0)
        bounds: list[tuple[bool, Judgement]] = [
            (any(back.never for back in after), "worse"),
            (any(back.never for back in before), "better"),
        ]
        if bounds[0][0]:
            found = replace(found, high=inf)
        if bounds[1][0]:
            found = replace(found, low=0.0)
        shown = all(found.judgement == judgement for bound, judgement in bounds if bound)
        return found if shown else replace(found, judgement="unsure")

    def _judged(self, change: Change, measure: str, before: float, after: float) -> Against:
        if measure not in RATES:
            judgement = judged(change, 1 / (1 + self._tolerance), 1 + self._tolerance)
        else:
            # Relative to the smaller rate, so that swapping the releases swaps worse and better.
            margin = self._tolerance * min(before, after)
            judgement = judged(change, -margin, margin)
            within = max(margin, SAME_SHARE)
            if judgement == "unsure" and -within <= change.low and change.high <= within:
                judgement = "same"
        withheld = judgement == "unsure" and change.certain and change.withheld
        return Against(change.change, change.low, change.high, judgement, withheld=withheld)

    def ratios(self, number: int, ratios: Sequence[Ratio | None]) -> list[Ratio | None]:
        """Return the ratios of the resource figure with that number, with their intervals between runs."""
        return [
            self._between_runs(ratio, self._at_loads.get((number, at))) if ratio is not None else None
            for at, ratio in enumerate(ratios)
        ]

    def _between_runs(self, ratio: Ratio, change: Change | None) -> Ratio:
        if change is None:
            return ratio
        far = max(change.change, 1 / change.change) > 1 + self._tolerance
        certain = change.certain and not change.withheld and far
        return Ratio(change.change, change.low, change.high, certain)

    def cost(self, key: CostKey) -> Against:
        """Judge the cost of an operation; one run each is not judged."""
        if not self.repeated:
            before, after = (side.costs[0].get(key) for side in (self._base, self._other))
            return _one_cost_each(before, after) if before is not None and after is not None else NOT_COMPARED
        change = self.cost_changes.get(key)
        return NOT_COMPARED if change is None else self._judged(change, "", 0.0, 0.0)

    def _costs(self) -> dict[CostKey, _Both]:
        """Return the costs of operations that all runs know."""
        tables = [side.costs for side in self._sides]
        shared = [key for key in tables[0][0] if all(key in table for of in tables for table in of)]
        found = {key: _both(cost_figure, *([table[key] for table in of] for of in tables)) for key in shared}
        return {key: both for key, both in found.items() if both is not None}

    def _compare_capacity(self, costs: Mapping[CostKey, _Both]) -> bool:
        """Compare tipping points, throughput, typical response times, and the CPU time of the main operation.

        Return whether the other figures get all of ERRS: one of these differs, or none can be compared.
        """
        base, other = self._base.release, self._other.release
        same_thresholds = len({str(_thresholds(release)) for release in (base, other)}) == 1
        if not self.repeated:
            if not self.disturbed:
                self.tip = tips_against(base.reach, other.reach, same_thresholds=same_thresholds)
            return True
        tip, served, typical = self._tips(same_thresholds), self._served(), self._typical()
        every: dict[str, _Both] = {"tip": tip} if tip is not None else {}
        every |= {f"served {operation}": figure for operation, figure in served.items()}
        every |= {"typical": typical} if typical is not None else {}
        main = next((key for key in costs if key.figure == CPU), None)
        every |= {"cost": costs[main]} if main is not None else {}
        found = self._tested(every, CAPACITY_ERRS)
        self.control_differs = self._control_changed(every, CAPACITY_ERRS)
        if "tip" in found:
            change = found["tip"]
            judgement = judged(change, 1 / (1 + self._tolerance), 1 + self._tolerance)
            self.tip = _SWAPPED.get(judgement, "unsure")  # a higher load is better
            self.tip_withheld = change.certain and change.withheld
            bounded = any(reach.bounded for side in self._sides for reach in side.release.reaches)
            self.tip_change = change if not bounded else None
        if "typical" in found:
            self.typical = self._judged(found["typical"], "", 0.0, 0.0)
        self.served = {
            operation: _higher_is_better(self._judged(found[f"served {operation}"], "", 0.0, 0.0))
            for operation in served
        }
        judged_of = [one.judgement for one in (self.typical, *self.served.values())]
        if main is not None:
            self.cost_changes[main] = found["cost"]
            judged_of.append(self.cost(main).judgement)
        return not found or any(one in _SWAPPED for one in (self.tip, *judged_of))

    def _tips(self, same_thresholds: bool) -> _Both | None:
        """Return where both tip, as a figure; None if this is unknown for a run, or if the runs do not differ."""
        first, other, *again = (side.release.reaches for side in self._sides)
        before = [reach for of in (first, *again) for reach in of]
        known = all(
            comparable_tips(one, another, same_thresholds=same_thresholds)
            for one in before
            for another in other
        )
        if not known:
            return None
        if len({(reach.held, reach.broken) for reach in (*before, *other)}) == 1:
            self.tip = "same"
            return None
        both = _both(tip_level, first, other, *again)
        assert both is not None
        measured = both[0].measured
        return both if len({*measured.before, *measured.after}) > 1 else None

    def _typical(self) -> _Both | None:
        ramps = [side.ramps for side in self._sides]
        first_held, *others_held = (side.release.reach.loads for side in self._sides)
        held = [load for load in first_held if all(load in others for others in others_held)]
        parts = parts_of([ramp for of in ramps for ramp in of], held)
        if not parts:
            return None
        self.typical_to = max(ramps[0][0][step].size for step, _ in parts)
        return _both(partial(typical_figure, parts), *ramps)

    def _served(self) -> dict[str, _Both]:
        ramps = [side.ramps for side in self._sides]
        found: dict[str, _Both] = {}
        for operation, runs in most_served([ramp for of in ramps for ramp in of]).items():
            each = iter(runs)
            both = _both(partial(served_figure, operation), *(list(islice(each, len(of))) for of in ramps))
            if both is not None:
                found[operation] = both
        return found

    @property
    def _sides(self) -> list[Side]:
        """The first release, the other one, and the control, if there is one."""
        return [self._base, self._other, *([self._control] if self._control is not None else [])]

    def _control_changed(self, figures: Mapping[_What, _Both], errs: float) -> bool:
        """Return whether any of these figures certainly differs between the first release and its control."""
        own = {what: (alone, None) for what, (_, alone) in figures.items() if alone is not None}
        return any(change.certain for change in self._tested(own, errs).values())

    def _tested(self, figures: Mapping[_What, _Both], errs: float) -> dict[_What, Change]:
        own = [alone for _, alone in figures.values() if alone is not None]
        control = own if own and len(own) == len(figures) else None
        found = changes([figure for figure, _ in figures.values()], control, errs)
        if self.disturbed:
            found = [replace(change, certain=False) for change in found]
        return dict(zip(figures, found, strict=True))

    def _figures(self, beyond: Mapping[Key, str]) -> dict[_Subject, dict[float, _Both]]:
        """Return every figure that all runs have, by load, each with that of the first release and its control."""
        sides = self._sides
        found: dict[_Subject, dict[float, _Both]] = {}

        def add(
            what: _Subject,
            load: float,
            make: Callable[[Sequence[Any], Sequence[Any]], Figure | None],
            values: list[list[Any]],
        ) -> None:
            both = _both(make, *values)
            if both is not None:
                found.setdefault(what, {})[load] = both

        for key, why in beyond.items():
            if why or not all(key in table for side in sides for table in side.tables):
                continue
            kind, size, operation = key
            cells = [[table[key] for table in side.tables] for side in sides]
            if all(cell.latencies.total for of in cells for cell in of):
                latencies = [[cell.latencies for cell in of] for of in cells]
                for measure, percentile in PERCENTILES.items():
                    make = partial(percentile_level, f"{operation} {measure}", percentile)
                    add((kind, operation, measure), size, make, latencies)
            for measure in rates_of(operation):
                hits = [[(cell.failures[measure], cell.attempts) for cell in of] for of in cells]
                add((kind, operation, measure), size, partial(rate_figure, measure), hits)
        for kind in self._base.backs[0]:
            if all(kind in backs for side in sides for backs in side.backs):
                values = [[backs[kind] for backs in side.backs] for side in sides]
                add(kind, 0.0, recovery_figure, values)
        for number, figure in enumerate(self._base.resources):
            for at, size in enumerate(figure.sizes):
                levels = [[of_run[at] for of_run in side.resources[number].levels] for side in sides]
                typical = [[level.typical if level is not None else 0.0 for level in of] for of in levels]
                held = all(size in side.release.reach.loads for side in sides)
                if held and min(map(min, typical)) > 0:
                    add(number, at, partial(level_figure, f"{figure.name} {figure.part}"), typical)
        return found


def _without(figures: Mapping[CostKey, _Both], known: Mapping[CostKey, Change]) -> dict[CostKey, _Both]:
    return {key: both for key, both in figures.items() if key not in known}


def _both(
    make: Callable[[Sequence[_One], Sequence[_One]], Figure | None],
    first: Sequence[_One],
    other: Sequence[_One],
    again: Sequence[_One] = (),
) -> _Both | None:
    """Make a figure of both releases, and of the first one and its control; None if that is impossible."""
    made = make([*first, *again], other)
    return (made, make(first, again) if again else None) if made is not None else None


def _higher_is_better(found: Against) -> Against:
    """Reverse a judgement that treats larger figures as worse."""
    return replace(found, judgement=_SWAPPED.get(found.judgement or "unsure", found.judgement))


def _over_loads(figures: Sequence[_Both]) -> _Both:
    own = [alone for _, alone in figures if alone is not None]
    return over_loads([figure for figure, _ in figures]), over_loads(own) if len(own) == len(
        figures
    ) else None


def _thresholds(release: Release) -> list[object]:
    found: list[object] = []
    for run in release.runs:
        thresholds = (run.manifest.plan or {}).get("thresholds")
        if thresholds not in found:
            found.append(thresholds)
    return found


def _share(cells: Sequence[Cell], measure: str) -> float:
    return fmean(cell.failures[measure] / cell.attempts for cell in cells) if measure in RATES else 0.0


def _one_cost_each(before: OperationCost, after: OperationCost) -> Against:
    """Return a ratio with its interval from the slices of both runs. It is not judged."""
    ratio = after.value / before.value
    reach = exp(_SIGMAS * hypot(before.log_error, after.log_error))
    return Against(ratio, ratio / reach, ratio * reach, "unsure")


def _one_run_each(base: Cell, cell: Cell, measure: str) -> Against:
    """Return a change with its interval from the samples of both runs. It is not judged."""
    if measure in PERCENTILES:
        if not base.latencies.total or not cell.latencies.total:
            return NOT_COMPARED
        found = ratio_of_percentiles(base.latencies, cell.latencies, PERCENTILES[measure], LEVEL)
    else:
        counts = (base.failures[measure], base.attempts, cell.failures[measure], cell.attempts)
        found = difference_of_shares(*counts, LEVEL)
    return Against(found.estimate, found.low, found.high, "unsure")
