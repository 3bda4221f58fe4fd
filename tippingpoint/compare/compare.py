"""Compares releases by their runs: where each tips, and what got worse or better, per operation and stage size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from math import inf
from typing import Literal

import numpy as np

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.analysis.thresholds import RATES
from tippingpoint.compare.baselines import Baseline
from tippingpoint.compare.cells import PERCENTILES, Cell, Key, Table, mean_of, rates_of, table_of
from tippingpoint.compare.costs import CostComparison, compare_costs, costs_together
from tippingpoint.compare.disturbed import disturbed, undisturbed
from tippingpoint.compare.names import Named, differences, short_names
from tippingpoint.compare.operation_costs import (
    CPU,
    CostKey,
    OperationCosts,
    costs_of_run,
    operation_costs_together,
)
from tippingpoint.compare.pair import NOT_COMPARED, Against, Pair, Side
from tippingpoint.compare.published import PublishedRow, compare_published
from tippingpoint.compare.ramp import ramp_of
from tippingpoint.compare.reach import APART, Judgement, Reach, not_judged, reach_of
from tippingpoint.compare.recovery import Back, backs_of, show_back
from tippingpoint.compare.repeats import Change, Release
from tippingpoint.compare.resources import ResourceComparison, compare_resources, resources_together
from tippingpoint.compare.sentence import (
    published_words,
    range_words,
    resource_words,
    telling_load,
    times,
    tipping_words,
)
from tippingpoint.errors import UserError
from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.operations import OPERATIONS, OWN_LOAD
from tippingpoint.rundir.results import RunData
from tippingpoint.util.numbers import show_number, show_share, show_times, show_us
from tippingpoint.util.text import show_amount, show_calls, show_list, show_load, show_size, show_sizes

ALL_CALLS, TYPICAL = "all calls", "typical time"
"""Operation and measure of the figure of all calls; see typical.py."""
WITH_A_FAULT = "with a fault"
"""Start of the reason for not judging a load at which only some runs had a fault."""
SERVED = "most a second"
"""The measure of the served load; see served.py."""
Outcome = Literal["worse", "better", "withheld", "none", "single", "apart", "published"]


@dataclass(frozen=True)
class Row:
    """One figure of one operation at one stage size, in every release; the first one is the baseline."""

    operation: str
    size: float
    storm: bool
    """Whether the stages are storms, which are only compared with storms."""
    measure: str
    """p50 p90 p95 p99 (microseconds), error_rate or lost_rate (shares in 0..1)."""
    values: list[float | None]
    """One value per release; None if a run did not measure it.

    It is the mean of its runs, geometric for percentiles; a control's runs are the first release's too.
    """
    counts: list[int]
    """The number of operations in each value."""
    against: list[Against]
    """One comparison per release after the first."""
    destroy: bool = False
    """Whether the stages are removals, which are only compared with removals."""


@dataclass(frozen=True)
class Overall:
    """One figure of one operation over all loads that all runs sustained: the mean of its changes.

    The typical time of all calls (ALL_CALLS, TYPICAL) covers these loads too. The most successes per second (SERVED)
    may be at any load of the ramp; higher is better.
    """

    operation: str
    kind: StageKind
    """ramp, storm or destroy"""
    measure: str
    against: list[Against]
    """One comparison per release after the first."""


@dataclass(frozen=True)
class Recovery:
    """How long each release took to recover from one kind of fault."""

    what: str
    """The kind of fault, such as kill; if a run has several, the longest recovery counts."""
    values: list[list[Back | None]]
    """For each release, one value per run; None if a run does not show it. The first release includes the control."""
    against: list[Against]
    """One comparison per release after the first; `change` is the ratio of the times."""


@dataclass(frozen=True)
class OperationCost:
    """What one operation costs in every release, and how that compares with the first release."""

    costs: OperationCosts
    against: list[Against]
    """One comparison per release after the first; `change` is a ratio."""


@dataclass(frozen=True)
class Comparison:
    """Releases compared with the first of them, and published results compared with the first of those."""

    releases: list[Release]
    control: Release | None
    """Runs of the first release that stand in for another one, to show what a comparison finds if nothing differs."""
    beside: list[Baseline]
    beside_names: list[str]
    """One name per published result; if it has a run, that run's name."""
    load_unit: str
    """The unit of loads; empty without runs."""
    tolerance: float
    main: str
    """The workload's main operation: claim, launch, boot_server, add-unit; empty if none was measured."""
    rows: list[Row]
    overall: list[Overall]
    """Figures over all loads; empty with one run each, because these cannot be judged."""
    recovery: list[Recovery]
    """How long releases took to recover from faults that the first and another one had; empty without such faults."""
    tips: list[Judgement]
    """For each release after the first, whether it tips at a lower load than the first (worse) or a higher one."""
    tip_changes: list[Change | None]
    """For each release after the first, the ratio of the loads at which it tips; None without repeats, or unknown."""
    outcome: Outcome
    """The outcome of the worst release: by its tipping point, or by figures if that is not known to differ.

    none: repeats explain every difference. withheld: the control shows the difference too, or other programs may have
    caused it. single: one run each, and repeats could explain every difference. apart: no load was sustained by both.
    published: there are fewer than two releases.
    """
    worse: list[str]
    better: list[str]
    """One line for a tipping point and for each figure that changed significantly, the largest change first."""
    withheld: list[str]
    """One line for each change that is not judged because the control shows as much."""
    not_comparable: list[str]
    """Stage sizes, storms and operations that only some releases have."""
    differs: list[str]
    """The settings in which the runs' plans differ, if all have plans."""
    resources: list[ResourceComparison]
    costs: list[CostComparison]
    operation_costs: list[OperationCost]
    """What one operation cost the targets, if all runs know it; the CPU of the whole target first."""
    published: list[PublishedRow]
    """Figures that several results in `beside` give."""
    sentence: str
    """The tipping points and costs in words."""
    control_words: str
    """What the first release's control shows; empty without a control."""
    changes: str
    """How many figures changed, and which ones changed most."""

    @property
    def runs(self) -> list[RunData]:
        """The first run of each release."""
        return [release.runs[0] for release in self.releases]

    @property
    def names(self) -> list[str]:
        """One name per release, as short as possible: the version if the versions differ."""
        return [release.name for release in self.releases]

    @property
    def analyses(self) -> list[Analysis]:
        """The analysis of each release's first run."""
        return [release.analyses[0] for release in self.releases]

    @property
    def reaches(self) -> list[Reach]:
        """How far each release got."""
        return [release.reach for release in self.releases]

    @property
    def repeated(self) -> bool:
        """Whether a release has several runs, which show how much runs scatter."""
        return any(len(release.runs) > 1 for release in self.releases) or self.control is not None

    @property
    def regressed(self) -> bool:
        """Whether a release tips at a lower load or, if that is not known to differ, has a worse figure.

        The command then ends with exit code 1.
        """
        return self.outcome == "worse"


def compare(
    releases: Sequence[RunData | Sequence[RunData]],
    tolerance: float = 0.10,
    beside: Sequence[Baseline] = (),
    control: Sequence[RunData] = (),
    cautions: Sequence[str] = (),
) -> Comparison:
    """Compare every release with the first one; each is one run, or several that are repeats of each other.

    Tipping points come first: at a lower load is worse, at a higher load better. Figures at loads that all runs of both
    held come next. A difference counts if it is more than `tolerance`, more than the scatter of repeats explains across
    all figures (scatter.py), and more than the difference between the first release and its `control`, if there is one.
    A run during which other programs took much of the target's processors is left out. If this applies to all runs of a
    release, the release is not judged. With one run each, nothing is known about the scatter of repeats, so only
    tipping points that are far apart (reach.APART) are judged. Published results (`beside`) are compared with each
    other by figures. `cautions` are added to the sentence.

    Raises UserError without any run if `beside` has no figure in common, for runs with different units of load, for a
    run without stages, for a run that is given twice, and for a negative or infinite tolerance.
    """
    published = compare_published(beside)
    given = [[one] if isinstance(one, RunData) else list(one) for one in releases]
    kept = [undisturbed(release) for release in given]
    repeats = [of for of, _ in kept]
    every_control = list(control)
    control, left_out_of_control = undisturbed(every_control)
    runs = [run for release in repeats for run in release]
    if not runs and not published:
        names = ", ".join(baseline.name for baseline in beside) or "0 runs"
        raise UserError("compare", names, "one run or more, or published results with a figure in common")
    unit = _checked_unit([*runs, *control], tolerance)
    names, beside_names = _names([release[0] for release in repeats], beside)
    base = names[0] if names else ""
    joined = [_release(name, release) for name, release in zip(names, repeats, strict=True)]
    controlled = _release(f"{names[0]} again", list(control)) if control else None
    measured = [*joined[:1], *([controlled] if controlled is not None else []), *joined[1:]]
    figures = compare_resources([run for release in measured for run in release.runs])
    sides = _sides(measured, figures)
    again = sides.pop(1) if controlled is not None else None
    tables = [side.tables for side in sides]
    if again is not None:
        # The control's runs are added to the first release's, because they measure the same release.
        tables[0] = [*tables[0], *again.tables]
    tables_of_costs = [side.costs for side in sides]
    if again is not None:
        tables_of_costs[0] = [*tables_of_costs[0], *again.costs]
    counts = [len(of_release) for of_release in tables]
    complete = [_in_every_run(of_release) for of_release in tables]
    keys = sorted(set[Key]().union(*complete), key=_place)
    shared = [key for key in keys if key in complete[0] and any(key in other for other in complete[1:])]
    beyond = {key: _beyond(key, joined, controlled) for key in shared}
    foreign = _disturbed(joined)
    pairs = [
        Pair(
            sides[0],
            side,
            again,
            {key: why[place] for key, why in beyond.items()},
            tolerance,
            disturbed=bool(foreign.keys() & {base, side.release.name}),
        )
        for place, side in enumerate(sides[1:])
    ]
    overall = _overall(pairs)
    recovery = _recovery([*sides[:1], *([again] if again is not None else [])], sides[1:], pairs)
    rows = [
        row
        for key in shared
        for row in _rows(key, [_cells(of_release, key) for of_release in tables], beyond[key], pairs)
    ]
    resources = _resources(figures, counts, pairs)
    costs = compare_costs([analysis for release in measured for analysis in release.analyses])
    of_operations = [
        OperationCost(costs_of, [pair.cost(costs_of.key) for pair in pairs])
        for costs_of in operation_costs_together(tables_of_costs)
    ]
    reaches = [release.reach for release in joined]
    worse, better, withheld = _changes(rows, overall, recovery, of_operations, pairs, reaches, names, unit)
    main = _main(runs)
    tipping = [tipping_words(names, reaches, unit), *_tip_words(pairs, base)]
    of_cpu = _cost_words(pairs, base)
    parts = [
        *(
            [*tipping, *of_cpu]
            if any(pair.tip in ("worse", "better") for pair in pairs)
            else [*of_cpu, *tipping]
        ),
        *_served_words(pairs, base),
        *_typical_words(pairs, base, unit),
        _main_words(rows, main, names, reaches, unit),
        *_contrary_words(rows, [pair.tip for pair in pairs], main, names, unit),
        *_recovery_words(recovery, names),
        resource_words(names, resources, reaches, unit),
        published_words(beside_names, published, alone=not runs),
    ]
    doubts = [
        *_withheld_words(joined),
        *(
            f"{name}, run {number}, is left out: {why} meanwhile."
            for name, (_, left_out) in zip(names, kept, strict=True)
            for number, why in left_out
        ),
        *(f"{name} was not judged: {why} meanwhile." for name, why in foreign.items()),
        *(f"Control run {number} is left out: {why} meanwhile." for number, why in left_out_of_control),
        *_disturbed_control(every_control),
        *_fault_words(joined, shared, unit),
        *_unjudged_words(joined, unit),
        *(f"{caution}." for caution in cautions),
    ]
    if len(joined) > 1 and not any(pair.repeated for pair in pairs):
        doubts.append("One run each: differences between runs are not known.")
    return Comparison(
        releases=joined,
        control=controlled,
        beside=list(beside),
        beside_names=beside_names,
        load_unit=unit,
        tolerance=tolerance,
        main=main,
        rows=rows,
        overall=overall,
        recovery=recovery,
        tips=[pair.tip for pair in pairs],
        tip_changes=[pair.tip_change for pair in pairs],
        outcome=_outcome([*overall, *recovery, *of_operations, *rows], pairs),
        worse=worse,
        better=better,
        withheld=withheld,
        not_comparable=_not_comparable(keys, complete, names, unit),
        differs=_differing(repeats),
        resources=resources,
        costs=costs_together(costs, counts),
        operation_costs=of_operations,
        published=published,
        sentence=" ".join([f"{'; '.join(part for part in parts if part)}.", *doubts]),
        control_words=_control_words(pairs, controlled, base),
        changes=_summary(rows, pairs, names, unit),
    )


def _checked_unit(runs: Sequence[RunData], tolerance: float) -> str:
    """Return the load unit of runs that can be compared; empty without runs. Raises the same errors as `compare`."""
    if not (np.isfinite(tolerance) and tolerance >= 0):
        raise UserError("--tolerance", tolerance, "a share from 0 up, such as 0.1")
    units = sorted({run.manifest.load_unit for run in runs})
    if len(units) > 1:
        raise UserError("compare", f"stages in {' and '.join(units)}", "runs whose stages count the same")
    for run in runs:
        if not run.stages:
            why = "this one has no journals" if not run.operations else "in this one none was begun"
            raise UserError("compare", run.manifest.id, f"runs with stages, and {why}")
    return units[0] if units else ""


def _sides(releases: Sequence[Release], figures: Sequence[ResourceComparison]) -> list[Side]:
    """Return what each release measured; `figures` have the runs of these releases in the same order."""
    begins = accumulate([len(release.runs) for release in releases], initial=0)
    return [
        Side(
            release,
            [table_of(run) for run in release.runs],
            [figure.of(begin, len(release.runs)) for figure in figures],
            [backs_of(analysis) for analysis in release.analyses],
            [ramp_of(analysis) for analysis in release.analyses],
            [costs_of_run(analysis) for analysis in release.analyses],
        )
        for release, begin in zip(releases, begins, strict=False)
    ]


def _in_every_run(tables: Sequence[Table]) -> set[Key]:
    return {key for key in tables[0] if all(key in table for table in tables)}


def _cells(tables: Sequence[Table], key: Key) -> list[Cell]:
    """Return what the runs of a release measured for an operation at a load; empty unless all of them did."""
    return [table[key] for table in tables] if all(key in table for table in tables) else []


def _resources(
    figures: Sequence[ResourceComparison], counts: Sequence[int], pairs: Sequence[Pair]
) -> list[ResourceComparison]:
    """Join the figures of repeats (`counts` of each release) with the ratios that the pairs found."""
    return [
        replace(
            figure,
            ratios=[pair.ratios(number, ratio) for pair, ratio in zip(pairs, figure.ratios, strict=True)],
        )
        for number, figure in enumerate(resources_together(figures, counts))
    ]


def _withheld_words(releases: Sequence[Release]) -> list[str]:
    """Return the verdicts of runs that were withheld or failed."""
    return [
        f"{_run_name(release, number)}: {analysis.verdict.sentence}"
        for release in releases
        for number, analysis in enumerate(release.analyses)
        if analysis.verdict.outcome in ("withheld", "failed")
    ]


def _disturbed(releases: Sequence[Release]) -> dict[str, str]:
    """Return what other programs took, by release, for releases whose runs were all disturbed."""
    found = {release.name: [disturbed(run) for run in release.runs] for release in releases}
    return {name: whys[0] for name, whys in found.items() if all(whys)}


def _disturbed_control(runs: Sequence[RunData]) -> list[str]:
    """Report a control whose runs were all disturbed by other programs."""
    whys = [disturbed(run) for run in runs]
    return [f"The control shows little: {whys[0]} in all of its runs."] if whys and all(whys) else []


def _unjudged_words(releases: Sequence[Release], unit: str) -> list[str]:
    """Say for which releases it is uncertain whether the first one tips before them."""
    words: list[str] = []
    reaches = [release.reach for release in releases]
    for other, reach in zip(releases[1:], reaches[1:], strict=True):
        late = not_judged(reaches[0], reach)
        if late is not None:
            first = releases[0].name
            whose = first if late is reaches[0] else other.name
            words.append(
                f"Whether {first} or {other.name} tips first is uncertain: thresholds of {whose} "
                f"were not judged from {show_size(late.unjudged or 0)} {unit} on."
            )
    return words


def _release(name: str, runs: list[RunData]) -> Release:
    analyses = [analyse(run) for run in runs]
    return Release(name, runs, analyses, [reach_of(analysis) for analysis in analyses])


def _differing(releases: Sequence[Sequence[RunData]]) -> list[str]:
    """Return the settings in which releases' plans differ, for all runs if repeats of one release differ."""
    plans = [[run.manifest.plan or {} for run in of] for of in releases]
    if any(differences(of) for of in plans):
        return differences([plan for of in plans for plan in of])
    return differences([of[0] for of in plans])


def _run_name(release: Release, number: int) -> str:
    return release.name if len(release.runs) == 1 else f"{release.name}, run {number + 1}"


def _names(runs: Sequence[RunData], beside: Sequence[Baseline]) -> tuple[list[str], list[str]]:
    """Return the names of runs and published results. A result and the run of its transcript have the same name."""
    named = {one.id: one for one in map(Named.of_baseline, beside)}
    of_runs = [Named.of_run(run) for run in runs]
    known = {one.id for one in of_runs}
    alone = [one for name, one in named.items() if name not in known]
    names = short_names([*of_runs, *alone])
    by_id = {one.id: name for one, name in zip([*of_runs, *alone], names, strict=True)}
    return names[: len(runs)], [by_id[name] for name in named]


def _beyond(key: Key, releases: Sequence[Release], control: Release | None) -> list[str]:
    """Return for each release after the first why it is not judged at a load; empty if it is."""
    kind, size, _ = key

    def words(release: Release) -> str:
        why = next((why for reach in release.reaches if (why := reach.beyond(kind, size))), "")
        return f"{why} {release.name}" if why else ""

    first = [releases[0], *([control] if control is not None else [])]
    base = next((why for one in first if (why := words(one))), "")
    return [_faulted([*first, one], kind, size) or base or words(one) for one in releases[1:]]


def _faulted(releases: Sequence[Release], kind: StageKind, size: float) -> str:
    """Say which release alone had a fault at a load; empty if all runs had the same faults, or none."""
    injected = [(reach.faults_at(kind, size), release) for release in releases for reach in release.reaches]
    if len({faults for faults, _ in injected}) == 1:
        return ""
    faults, release = next(one for one in reversed(injected) if one[0])
    return f"{WITH_A_FAULT} ({show_list(list(faults))}) in {release.name}"


def _fault_words(releases: Sequence[Release], shared: Sequence[Key], unit: str) -> list[str]:
    """Say which releases had faults at loads where others had none or different ones: these loads are not compared."""
    apart: dict[tuple[StageKind, float], None] = {}
    for kind, size, _ in shared:
        if any(_faulted([releases[0], other], kind, size) for other in releases[1:]):
            apart[kind, size] = None
    said: list[str] = []
    for release in releases:
        faults: dict[str, list[str]] = {}
        for kind, size in apart:
            for do in sorted({do for reach in release.reaches for do in reach.faults_at(kind, size)}):
                faults.setdefault(do, []).append(show_load(size, unit, kind))
        if faults:
            of = show_list([f"a fault ({do}) {show_list(where)}" for do, where in faults.items()])
            said.append(f"{release.name} had {of}, where others had none or another: this is not compared.")
    return said


def _overall(pairs: Sequence[Pair]) -> list[Overall]:
    found = [pair.overall() for pair in pairs]
    typical = [pair.typical for pair in pairs]
    served = dict.fromkeys(operation for pair in pairs for operation in pair.served)
    first = [Overall(ALL_CALLS, "ramp", TYPICAL, typical)]
    return [
        *(
            Overall(operation, "ramp", SERVED, [pair.served.get(operation, NOT_COMPARED) for pair in pairs])
            for operation in served
        ),
        *(first if any(one is not NOT_COMPARED for one in typical) else []),
        *(
            Overall(
                operation, kind, measure, [of.get((kind, operation, measure), NOT_COMPARED) for of in found]
            )
            for kind, operation, measure in dict.fromkeys(what for of in found for what in of)
        ),
    ]


def _recovery(first: Sequence[Side], others: Sequence[Side], pairs: Sequence[Pair]) -> list[Recovery]:
    """Compare each kind of fault that the first release and another had; `first` are the first and its control."""
    releases = [[backs for side in first for backs in side.backs], *(side.backs for side in others)]
    of_first, *of_others = ([kind for backs in of for kind in backs] for of in releases)
    kinds = [kind for kind in dict.fromkeys(of_first) if any(kind in of for of in of_others)]
    return [
        Recovery(
            kind,
            [[backs.get(kind) for backs in of] for of in releases],
            [pair.recovery(kind) for pair in pairs],
        )
        for kind in kinds
    ]


def _outcome(figures: Sequence[Overall | Recovery | OperationCost | Row], pairs: Sequence[Pair]) -> Outcome:
    found: set[Outcome] = set()
    for place, pair in enumerate(pairs):
        of_rows = [one.against[place] for one in figures]
        told = {one.judgement for one in of_rows}
        if pair.disturbed:
            found.add("withheld")
        elif pair.tip in ("worse", "better"):
            found.add(pair.tip)
        elif not pair.repeated:
            found.add("single")
        elif "worse" in told or "better" in told:
            found.add("worse" if "worse" in told else "better")
        elif pair.tip_withheld or any(one.withheld for one in of_rows):
            found.add("withheld")
        else:
            found.add(
                "none" if told - {None} or pair.tip_change is not None or pair.tip == "same" else "apart"
            )
    every: tuple[Outcome, ...] = ("worse", "better", "withheld", "none", "single", "apart")
    for outcome in every:
        if outcome in found:
            return outcome
    return "published"


def _tip_words(pairs: Sequence[Pair], base: str) -> list[str]:
    """Say how the loads at which releases tip compare, with the interval between their runs.

    If a run gives only a bound, there is no ratio, only the order of the two.
    """
    said: list[str] = []
    for pair in pairs:
        change = pair.tip_change
        if change is None:
            if pair.tip in ("worse", "better") and pair.repeated:
                lower = "lower" if pair.tip == "worse" else "higher"
                said.append(f"{pair.name} tips at a {lower} load than {base}")
            continue
        span = f"{times(change.change)} the load of {base} ({_interval(change.low, change.high)})"
        if pair.tip in ("worse", "better"):
            said.append(f"{pair.name} tips at {span}")
        elif pair.tip_withheld:
            said.append(f"{pair.name} tips at {span}, but {base} differs from itself as much")
        else:
            said.append(f"{pair.name} tips at {span}, which repeats alone explain")
    return said


def _cost_words(pairs: Sequence[Pair], base: str) -> list[str]:
    """Say how the CPU that releases need for an operation compares with the first release, where that is certain."""
    return [
        f"{pair.name} takes {show_number(round(change.change, 2))} times the CPU of {base} for each {_call(key)} "
        f"({_span(change.low, change.high)})"
        for pair in pairs
        for key, change in pair.cost_changes.items()
        if key.figure == CPU and change.certain and not change.withheld
    ]


def _call(key: CostKey) -> str:
    """Name an operation and those that are counted with it."""
    name = show_calls(key.operation, 1)
    return f"{name} with {show_list(list(key.includes))}" if key.includes else name


def ratio_words(against: Against) -> str:
    """Return the ratio of a cost with its interval: 1.12x (95 % 1.09x to 1.15x); empty if unknown."""
    if against.change is None:
        return ""
    return f"{_times(against.change)} ({_interval(against.low, against.high)})"


def _span(low: float, high: float) -> str:
    first, last = (show_number(round(one, 2)) for one in (low, high))
    return f"95 %: about {first}" if first == last else f"95 %: {first} to {last}"


def _served_words(pairs: Sequence[Pair], base: str) -> list[str]:
    """Say how the highest rates that releases served compare."""
    return [
        f"the most {operation} calls that {pair.name} serves a second are {times(one.change)} those of {base} "
        f"({_interval(one.low, one.high)})"
        for pair in pairs
        for operation, one in pair.served.items()
        if _is_told(pair, one)
    ]


def _typical_words(pairs: Sequence[Pair], base: str, unit: str) -> list[str]:
    """Say how the duration of a typical call compares."""
    return [
        f"a typical call of {pair.name} {_up_to(pair, unit)} takes {times(one.change)} the time of {base} "
        f"({_interval(one.low, one.high)})"
        for pair in pairs
        if _is_told(pair, one := pair.typical)
    ]


def _is_told(pair: Pair, figure: Against) -> bool:
    """Return whether to show a capacity figure with the tipping points: it is certain, and does not contradict them."""
    return figure.judgement in ("worse", "better") and pair.tip in ("same", "unsure", figure.judgement)


def _up_to(pair: Pair, unit: str) -> str:
    return f"up to {show_amount(pair.typical_to, unit)}"


def _control_words(pairs: Sequence[Pair], control: Release | None, base: str) -> str:
    if control is None or not pairs:
        return ""
    if pairs[0].control_differs:
        return f"The control differs from the other runs of {base}: the machine changed in between."
    return f"The control agrees with the other runs of {base}."


def _main(runs: Sequence[RunData]) -> str:
    """Return the workload's main operation: a claim, a launch, a boot, or the last step for a unit of load."""
    measured = {operation for run in runs for operation in run.operations}
    wanted = (
        "claim",
        "launch",
        "boot_server",
        "add-unit",
        *(own for load in OWN_LOAD.values() for own in load),
    )
    return next((operation for operation in wanted if operation in measured), "")


def _certain(against: Sequence[Against], names: Sequence[str]) -> list[tuple[float, str]]:
    """Return the certain changes of a figure, each with the name of its run. `names[0]` is the base."""
    return [
        (one.change, name)
        for one, name in zip(against, names[1:], strict=True)
        if one.judgement in ("worse", "better") and one.change is not None
    ]


def _main_words(
    rows: Sequence[Row], main: str, names: Sequence[str], reaches: Sequence[Reach], unit: str
) -> str:
    """Say how much the main operation changed at the most informative load, if the change is certain."""
    of_main = [row for row in rows if row.operation == main and not row.storm and not row.destroy]
    load = telling_load([row.size for row in of_main], reaches)
    said = [
        f"{row.measure} {range_words(certain, len(names))}"
        for row in of_main
        if row.size == load and row.measure in ("p50", "p99") and (certain := _certain(row.against, names))
    ]
    return f"{main} {' and '.join(said)} at {show_amount(load, unit)}" if said and load is not None else ""


def _contrary_words(
    rows: Sequence[Row], tips: Sequence[Judgement], main: str, names: Sequence[str], unit: str
) -> list[str]:
    """Name the figure that changed most in the opposite direction to a run's tipping point."""
    said: list[str] = []
    for number, tip in enumerate(tips, start=1):
        other = {"better": "worse", "worse": "better"}.get(tip)
        contrary = [
            row
            for row in rows
            if other is not None and row.against[number - 1].judgement == other and row.operation != main
        ]
        if contrary:
            row = max(contrary, key=lambda row: _weight(row, number))
            who = f" ({names[number]})" if len(names) > 2 else ""
            where = show_load(row.size, unit, "storm" if row.storm else "destroy" if row.destroy else "ramp")
            if row.measure in RATES:
                before, after = (show_share(row.values[place] or 0.0) for place in (0, number))
                said.append(
                    f"though {row.operation} {row.measure.replace('_', ' ')} {where} {before} to {after}{who}"
                )
            else:
                change = times(row.against[number - 1].change)
                said.append(f"though {row.operation} {row.measure} {where} is {change}{who}")
    return said


def _place(key: Key) -> tuple[bool, bool, float, int, str]:
    kind, size, operation = key
    known = OPERATIONS.index(operation) if operation in OPERATIONS else len(OPERATIONS)
    return kind == "destroy", kind == "storm", size, known, operation


def _rows(
    key: Key, releases: Sequence[Sequence[Cell]], beyond: Sequence[str], pairs: Sequence[Pair]
) -> list[Row]:
    kind, size, operation = key
    storm, destroy = kind == "storm", kind == "destroy"
    rows: list[Row] = []
    for measure in (*PERCENTILES, *rates_of(operation)):
        against = [
            replace(found, judgement=None, beyond=why, withheld=False) if why else found
            for pair, cells, why in zip(pairs, releases[1:], beyond, strict=True)
            for found in [pair.against(key, measure, releases[0], cells)]
        ]
        values = [mean_of(cells, measure) for cells in releases]
        counts = [
            sum(cell.latencies.total if measure in PERCENTILES else cell.attempts for cell in cells)
            for cells in releases
        ]
        rows.append(Row(operation, size, storm, measure, values, counts, against, destroy))
    return rows


def _changes(
    rows: Sequence[Row],
    overall: Sequence[Overall],
    recovery: Sequence[Recovery],
    costs: Sequence[OperationCost],
    pairs: Sequence[Pair],
    reaches: Sequence[Reach],
    titles: Sequence[str],
    unit: str,
) -> tuple[list[str], list[str], list[str]]:
    found: dict[str, list[tuple[float, str]]] = {"worse": [], "better": [], "withheld": []}
    for number, pair in enumerate(pairs, start=1):
        tip = "withheld" if pair.tip_withheld else pair.tip
        if tip in found:
            who = f"{titles[number]}: " if len(titles) > 2 else ""
            where, base = reaches[number].said(unit), reaches[0].said("")
            evidence = f" ({reaches[number].evidence})" if tip == "worse" and reaches[number].evidence else ""
            found[tip].append((inf, f"{who}{where}{evidence}, where {titles[0]} {base}"))
    for one in overall:
        for number, against in enumerate(one.against, start=1):
            judgement = "withheld" if against.withheld else against.judgement
            if judgement in found and against.change is not None:
                who = f"{titles[number]}: " if len(titles) > 2 else ""
                weight = 1e9 + (1e6 if one.measure in RATES else 0) + abs(against.change)
                weight += {SERVED: 2e11, TYPICAL: 1e11}.get(one.measure, 0)
                found[judgement].append((weight, who + _overall_words(one, against, pairs[number - 1], unit)))
    for one in recovery:
        for number, against in enumerate(one.against, start=1):
            judgement = "withheld" if against.withheld else against.judgement
            if judgement in found:
                who = f"{titles[number]}: " if len(titles) > 2 else ""
                found[judgement].append((1e12, who + _recovery_change(one, number)))
    for one in costs:
        for number, against in enumerate(one.against, start=1):
            judgement = "withheld" if against.withheld else against.judgement
            if judgement in found and against.change is not None:
                who = f"{titles[number]}: " if len(titles) > 2 else ""
                before, after = one.costs.words[0], one.costs.words[number]
                span = _interval(against.low, against.high)
                line = f"{who}{one.costs.what}: {before} to {after} ({_times(against.change)}, {span})"
                found[judgement].append((5e11 + abs(against.change), line))
    for row in rows:
        for number, against in enumerate(row.against, start=1):
            judgement = "withheld" if against.withheld else against.judgement
            if judgement in found:
                found[judgement].append((_weight(row, number), _change_words(row, number, titles, unit)))
    worse, better, withheld = (
        [line for _, line in sorted(lines, key=lambda pair: -pair[0])] for lines in found.values()
    )
    return worse, better, withheld


def _overall_words(one: Overall, against: Against, pair: Pair, unit: str) -> str:
    kind = "" if one.kind == "ramp" else f" of {one.kind}s"
    what = f"{one.operation} {one.measure.replace('_', ' ')} over all loads{kind}"
    if one.measure == TYPICAL:
        what = f"a typical call {_up_to(pair, unit)}"
    if one.measure == SERVED:
        what = f"the most {one.operation} calls served a second"
    if one.measure in RATES:
        more = "more" if (against.change or 0.0) > 0 else "less"
        return f"{what}: {show_share(abs(against.change or 0.0))} {more}"
    return f"{what}: {_times(against.change)}, {_interval(against.low, against.high)}"


def _recovery_change(one: Recovery, number: int) -> str:
    against = one.against[number - 1]
    before, after = (show_back(of) for of in (one.values[0], one.values[number]))
    if bound := _bound_words(one, number):
        return f"back after {one.what}: {before} to {after} ({bound}{_times(against.change)})"
    span = _interval(against.low, against.high)
    return f"back after {one.what}: {before} to {after} ({_times(against.change)}, {span})"


def _recovery_words(recovery: Sequence[Recovery], names: Sequence[str]) -> list[str]:
    """Say how much longer or shorter releases take to recover, where that is certain."""
    return [
        f"back after {one.what} in {_bound_words(one)}{range_words(certain, len(names))} the time"
        for one in recovery
        if (certain := _certain(one.against, names))
    ]


def _bound_words(one: Recovery, number: int | None = None) -> str:
    """Say that a ratio is a lower or an upper bound, because a release did not recover while it was watched.

    `number` is the release's; None for all of them.
    """
    others = one.values[1:] if number is None else [one.values[number]]
    if any(back is not None and back.never for of in others for back in of):
        return "at least "
    return "at most " if any(back is not None and back.never for back in one.values[0]) else ""


def _weight(row: Row, number: int) -> float:
    """Rank a change: rates before latencies, then by its size."""
    change = row.against[number - 1].change or 0.0
    return 1e6 + abs(change) if row.measure in RATES else float(abs(np.log(max(change, 1e-9))))


def _change_words(row: Row, number: int, titles: Sequence[str], unit: str) -> str:
    before, after, against = row.values[0] or 0.0, row.values[number] or 0.0, row.against[number - 1]
    where = show_load(row.size, unit, "storm" if row.storm else "destroy" if row.destroy else "ramp")
    who = f"{titles[number]}: " if len(titles) > 2 else ""
    if row.measure in RATES:
        name = row.measure.replace("_", " ")
        return f"{who}{row.operation} {name} {where}: {show_share(before)} to {show_share(after)}"
    return (
        f"{who}{row.operation} {row.measure} {where}: {show_us(before)} to {show_us(after)} "
        f"({_times(against.change)}, {_interval(against.low, against.high)})"
    )


def _times(ratio: float | None) -> str:
    return show_times(ratio) if ratio is not None and np.isfinite(ratio) else "no bound"


def _interval(low: float | None, high: float | None) -> str:
    """Write the 95 % interval of a ratio; if it is narrower than its digits can show, say that it is no wider."""
    first, last = _times(low), _times(high)
    return f"95 % about {first}" if first == last != "no bound" else f"95 % {first} to {last}"


def _not_comparable(
    keys: Sequence[Key], tables: Sequence[Set[Key]], names: Sequence[str], unit: str
) -> list[str]:
    """Return one line for each set of sizes and operations that the same runs have and others lack."""
    operations: dict[tuple[StageKind, float, tuple[str, ...]], list[str]] = {}
    for kind, size, operation in keys:
        has = tuple(
            name for name, table in zip(names, tables, strict=True) if (kind, size, operation) in table
        )
        if len(has) < len(names):
            operations.setdefault((kind, size, has), []).append(operation)
    sizes: dict[tuple[StageKind, tuple[str, ...], tuple[str, ...]], list[float]] = {}
    for (kind, size, has), of_size in operations.items():
        sizes.setdefault((kind, has, tuple(of_size)), []).append(size)
    return [
        f"{show_list(of_size)} {_show_loads(found, unit, kind)}: {_only_in(has, names)}"
        for (kind, has, of_size), found in sizes.items()
    ]


def _only_in(has: Sequence[str], names: Sequence[str]) -> str:
    lacking = [name for name in names if name not in has]
    return f"not in {show_list(lacking)}" if len(lacking) < len(has) else f"only in {show_list(has)}"


def _show_loads(sizes: Sequence[float], unit: str, kind: StageKind) -> str:
    if len(sizes) == 1:
        return show_load(sizes[0], unit, kind)
    before = show_load(sizes[0], unit, kind).split(show_size(sizes[0]))[0]
    return f"{before}{show_sizes(sizes, unit)}"


def _has_served(pairs: Sequence[Pair]) -> bool:
    return any(pair.served for pair in pairs)


def _summary(rows: Sequence[Row], pairs: Sequence[Pair], names: Sequence[str], unit: str) -> str:
    if not pairs:
        return ""
    if not rows:
        return f"No load of {names[0]} was measured in another run, so only tipping points are compared."
    at_held = [(row, number) for row in rows for number in range(len(pairs)) if row.against[number].judgement]
    beyond = sum(bool(against.beyond) for row in rows for against in row.against)
    faulted = any(against.beyond.startswith(WITH_A_FAULT) for row in rows for against in row.against)
    if not at_held:
        judged = "tipping points and throughput" if _has_served(pairs) else "tipping points"
        return (
            f"No load of {names[0]} that another run measured was sustained by both"
            f"{' without a fault' if faulted else ''}, so only {judged} are judged."
        )
    if not any(pair.repeated for pair in pairs):
        return (
            f"With one run each, only tipping points that are {show_number(APART)} times apart are judged, "
            "and no other figures."
        )
    count = Counter(row.against[number].judgement for row, number in at_held)
    withheld = sum(row.against[number].withheld for row, number in at_held)
    said = [f"{count['worse'] or 'none'} got worse"]
    said += [f"{count['better']} got better"] if count["better"] else []
    said += [f"{count['same']} stayed the same"] if count["same"] else []
    rest = count["unsure"] - withheld
    said += [f"{rest} differ by no more than repeats do"] if rest else []
    said += [f"{withheld} differ as much between runs of {names[0]}"] if withheld else []
    said += (
        [
            f"{beyond} are at loads that were not sustained{', or had a fault,' if faulted else ''} and are not judged"
        ]
        if beyond
        else []
    )
    worst = max(
        ((row, number + 1) for row, number in at_held if row.against[number].judgement == "worse"),
        key=lambda place: _weight(*place),
        default=None,
    )
    told = f" Worst: {_change_words(*worst, names, unit)}." if worst else ""
    return f"Figures against {names[0]}, at loads that all runs sustained: {', '.join(said)}.{told}"
