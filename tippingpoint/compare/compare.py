"""Compares releases by their runs: where each tips, and what got worse or better, per operation and stage size."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.baselines import Baseline
from tippingpoint.compare.cells import PERCENTILES, Cell, Key, Table, mean_of, rates_of, table_of
from tippingpoint.compare.change_lines import change_lines, lines_of_one_side, summary
from tippingpoint.compare.clauses import (
    contrary_clauses,
    control_words,
    cost_clauses,
    main_clause,
    recovery_clauses,
    served_clauses,
    tip_clauses,
    typical_clauses,
)
from tippingpoint.compare.comparison import (
    ALL_CALLS,
    SERVED,
    TYPICAL,
    Comparison,
    OperationCost,
    Outcome,
    Overall,
    Recovery,
    Row,
)
from tippingpoint.compare.costs import CostComparison, compare_costs, costs_together
from tippingpoint.compare.disturbed import undisturbed
from tippingpoint.compare.doubts import (
    disturbed_control,
    disturbed_releases,
    fault_words,
    reasons_beyond,
    unjudged_words,
    withheld_words,
)
from tippingpoint.compare.names import Named, differences, short_names
from tippingpoint.compare.operation_costs import costs_of_run, operation_costs_together
from tippingpoint.compare.pair import NOT_COMPARED, Pair, Side
from tippingpoint.compare.published import compare_published
from tippingpoint.compare.ramp import ramp_of
from tippingpoint.compare.reach import reach_of
from tippingpoint.compare.recovery import Back, backs_of
from tippingpoint.compare.repeats import Release
from tippingpoint.compare.resources import ResourceComparison, compare_resources, resources_together
from tippingpoint.compare.sentence import published_words, resource_words, tipping_words
from tippingpoint.errors import UserError
from tippingpoint.rundir.operations import OPERATIONS, OWN_LOAD
from tippingpoint.rundir.results import RunData


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
    of_control, left_out_of_control = undisturbed(list(control))
    runs = [run for release in repeats for run in release]
    if not runs and not published:
        names = ", ".join(baseline.name for baseline in beside) or "0 runs"
        raise UserError("compare", names, "one run or more, or published results with a figure in common")
    unit = _checked_unit([*runs, *of_control], tolerance)
    names, beside_names = _names([release[0] for release in repeats], beside)
    joined = [_release(name, release) for name, release in zip(names, repeats, strict=True)]
    again = _release(f"{names[0]} again", of_control) if of_control else None
    foreign = disturbed_releases(joined)
    found = _find(joined, again, tolerance, foreign)
    main = _main(runs)
    worse, better, withheld = change_lines(
        found.rows, found.overall, found.recovery, found.operation_costs, found.pairs, joined, unit
    )
    doubts = [
        *withheld_words(joined),
        *(
            f"{name}, run {number}, is left out: {why} meanwhile."
            for name, (_, left_out) in zip(names, kept, strict=True)
            for number, why in left_out
        ),
        *(f"{name} was not judged: {why} meanwhile." for name, why in foreign.items()),
        *(f"Control run {number} is left out: {why} meanwhile." for number, why in left_out_of_control),
        *disturbed_control(control),
        *fault_words(joined, found.shared, unit),
        *unjudged_words(joined, unit),
        *(f"{caution}." for caution in cautions),
    ]
    if len(joined) > 1 and not any(pair.repeated for pair in found.pairs):
        doubts.append("One run each: differences between runs are not known.")
    clauses = [
        *found.clauses(main, unit),
        published_words(beside_names, published, alone=not runs),
    ]
    return Comparison(
        releases=joined,
        control=again,
        beside=list(beside),
        beside_names=beside_names,
        load_unit=unit,
        tolerance=tolerance,
        main=main,
        rows=found.rows,
        overall=found.overall,
        recovery=found.recovery,
        tips=[pair.tip for pair in found.pairs],
        tip_changes=[pair.tip_change for pair in found.pairs],
        outcome=_outcome([*found.overall, *found.recovery, *found.operation_costs, *found.rows], found.pairs),
        worse=worse,
        better=better,
        withheld=withheld,
        not_comparable=lines_of_one_side(found.keys, found.complete, names, unit),
        differs=_differing(repeats),
        resources=found.resources,
        costs=found.costs,
        operation_costs=found.operation_costs,
        published=published,
        sentence=" ".join([f"{'; '.join(clause for clause in clauses if clause)}.", *doubts]),
        control_words=control_words(found.pairs, again, names[0] if names else ""),
        changes=summary(found.rows, found.pairs, names, unit),
    )


@dataclass(frozen=True)
class _Found:
    """What all releases measured, and how each release after the first compares with the first."""

    releases: list[Release]
    keys: list[Key]
    """Every operation at every load that all runs of some release measured."""
    complete: list[set[Key]]
    """For each release, what all of its runs measured."""
    shared: list[Key]
    """What the first release and another one measured."""
    pairs: list[Pair]
    rows: list[Row]
    overall: list[Overall]
    recovery: list[Recovery]
    resources: list[ResourceComparison]
    costs: list[CostComparison]
    operation_costs: list[OperationCost]

    def clauses(self, main: str, unit: str) -> list[str]:
        """Return the clauses of the first sentence. Those about tipping points come first where these differ; else
        those about the CPU of operations."""
        names = [release.name for release in self.releases]
        base = names[0] if names else ""
        reaches = [release.reach for release in self.releases]
        tipping = [tipping_words(names, reaches, unit), *tip_clauses(self.pairs, base)]
        of_cpu = cost_clauses(self.pairs, base)
        decided = any(pair.tip in ("worse", "better") for pair in self.pairs)
        return [
            *([*tipping, *of_cpu] if decided else [*of_cpu, *tipping]),
            *served_clauses(self.pairs, base),
            *typical_clauses(self.pairs, base, unit),
            main_clause(self.rows, main, names, reaches, unit),
            *contrary_clauses(self.rows, [pair.tip for pair in self.pairs], main, names, unit),
            *recovery_clauses(self.recovery, names),
            resource_words(names, self.resources, reaches, unit),
        ]


def _find(
    releases: list[Release], control: Release | None, tolerance: float, foreign: Collection[str]
) -> _Found:
    """Measure releases and pair each with the first; `foreign` names those that other programs disturbed."""
    measured = [*releases[:1], *([control] if control is not None else []), *releases[1:]]
    figures = compare_resources([run for release in measured for run in release.runs])
    sides = _sides(measured, figures)
    again = sides.pop(1) if control is not None else None
    # The control's runs are added to the first release's, because they measure the same release.
    whole = [[side, again] if side is sides[0] and again is not None else [side] for side in sides]
    tables = [[table for side in of for table in side.tables] for of in whole]
    complete = [_in_every_run(of_release) for of_release in tables]
    keys = sorted(set[Key]().union(*complete), key=_place)
    shared = [key for key in keys if key in complete[0] and any(key in other for other in complete[1:])]
    beyond = {key: reasons_beyond(key, releases, control) for key in shared}
    pairs = [
        Pair(
            sides[0],
            side,
            again,
            {key: why[place] for key, why in beyond.items()},
            tolerance,
            disturbed=bool({releases[0].name, side.release.name} & {*foreign}),
        )
        for place, side in enumerate(sides[1:])
    ]
    counts = [len(of_release) for of_release in tables]
    costs = compare_costs([analysis for release in measured for analysis in release.analyses])
    return _Found(
        releases=releases,
        keys=keys,
        complete=complete,
        shared=shared,
        pairs=pairs,
        rows=[
            row
            for key in shared
            for row in _rows(key, [_cells(of_release, key) for of_release in tables], beyond[key], pairs)
        ],
        overall=_overall(pairs),
        recovery=_recovery([[backs for side in of for backs in side.backs] for of in whole], pairs),
        resources=_resources(figures, counts, pairs),
        costs=costs_together(costs, counts),
        operation_costs=[
            OperationCost(costs_of, [pair.cost(costs_of.key) for pair in pairs])
            for costs_of in operation_costs_together(
                [[cost for side in of for cost in side.costs] for of in whole]
            )
        ],
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


def _release(name: str, runs: list[RunData]) -> Release:
    analyses = [analyse(run) for run in runs]
    return Release(name, runs, analyses, [reach_of(analysis) for analysis in analyses])


def _differing(releases: Sequence[Sequence[RunData]]) -> list[str]:
    """Return the settings in which releases' plans differ, for all runs if repeats of one release differ."""
    plans = [[run.manifest.plan or {} for run in of] for of in releases]
    if any(differences(of) for of in plans):
        return differences([plan for of in plans for plan in of])
    return differences([of[0] for of in plans])


def _names(runs: Sequence[RunData], beside: Sequence[Baseline]) -> tuple[list[str], list[str]]:
    """Return the names of runs and published results. A result and the run of its transcript have the same name."""
    named = {one.id: one for one in map(Named.of_baseline, beside)}
    of_runs = [Named.of_run(run) for run in runs]
    known = {one.id for one in of_runs}
    alone = [one for name, one in named.items() if name not in known]
    names = short_names([*of_runs, *alone])
    by_id = {one.id: name for one, name in zip([*of_runs, *alone], names, strict=True)}
    return names[: len(runs)], [by_id[name] for name in named]


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


def _recovery(releases: Sequence[Sequence[Mapping[str, Back]]], pairs: Sequence[Pair]) -> list[Recovery]:
    """Compare each kind of fault that the first release and another had."""
    if not releases:
        return []
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
