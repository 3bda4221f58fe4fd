"""Lists what changed between releases, one line each, and sums it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from math import inf

from tippingpoint.analysis.thresholds import RATES
from tippingpoint.compare.cells import Key
from tippingpoint.compare.clauses import bound_words, interval, ratio, up_to, weight
from tippingpoint.compare.comparison import SERVED, TYPICAL, OperationCost, Overall, Recovery, Row
from tippingpoint.compare.doubts import WITH_A_FAULT
from tippingpoint.compare.pair import Against, Pair
from tippingpoint.compare.reach import APART
from tippingpoint.compare.recovery import show_back
from tippingpoint.compare.repeats import Release
from tippingpoint.plan.fields import StageKind
from tippingpoint.util.numbers import show_number, show_share, show_us
from tippingpoint.util.text import show_list, show_load, show_size, show_sizes


def change_lines(
    rows: Sequence[Row],
    overall: Sequence[Overall],
    recovery: Sequence[Recovery],
    costs: Sequence[OperationCost],
    pairs: Sequence[Pair],
    releases: Sequence[Release],
    unit: str,
) -> tuple[list[str], list[str], list[str]]:
    """Return one line for each change, the most important first: what is worse, what is better, and what is withheld
    because the control shows as much.

    Tipping points come first, then how long recoveries took, costs, and figures over all loads, then other figures.
    """
    found: dict[str, list[tuple[float, str]]] = {"worse": [], "better": [], "withheld": []}
    names, base = [release.name for release in releases], releases[0].reach if releases else None

    def add(number: int, judgement: str, rank: float, line: str) -> None:
        found[judgement].append((rank, _whose(number, names) + line))

    for number, pair in enumerate(pairs, start=1):
        tip = "withheld" if pair.tip_withheld else pair.tip
        if tip in found and base is not None:
            reach = releases[number].reach
            evidence = f" ({reach.evidence})" if tip == "worse" and reach.evidence else ""
            add(number, tip, inf, f"{reach.said(unit)}{evidence}, where {names[0]} {base.said('')}")
    for one in recovery:
        for number, judgement, _ in _changed(one.against):
            add(number, judgement, 1e12, _recovery_words(one, number))
    for one in costs:
        for number, judgement, against in _changed(one.against):
            before, after = one.costs.words[0], one.costs.words[number]
            rank = 5e11 + abs(against.change or 0.0)
            span = f"{ratio(against.change)}, {interval(against.low, against.high)}"
            add(number, judgement, rank, f"{one.costs.what}: {before} to {after} ({span})")
    for one in overall:
        for number, judgement, against in _changed(one.against):
            rank = 1e9 + (1e6 if one.measure in RATES else 0) + abs(against.change or 0.0)
            rank += {SERVED: 2e11, TYPICAL: 1e11}.get(one.measure, 0)
            add(number, judgement, rank, _overall_words(one, against, pairs[number - 1], unit))
    for row in rows:
        for number, judgement, _ in _changed(row.against):
            add(number, judgement, weight(row, number), _change_words(row, number, unit))
    worse, better, withheld = (
        [line for _, line in sorted(lines, key=lambda pair: -pair[0])] for lines in found.values()
    )
    return worse, better, withheld


def _changed(against: Sequence[Against]) -> list[tuple[int, str, Against]]:
    """Return the changes that are worse, better or withheld, each with the number of its release."""
    judged = (
        (number, "withheld" if one.withheld else one.judgement, one) for number, one in enumerate(against, 1)
    )
    return [(number, how, one) for number, how, one in judged if how in ("worse", "better", "withheld")]


def _whose(number: int, names: Sequence[str]) -> str:
    """Name the release of a line, if there are several after the first."""
    return f"{names[number]}: " if len(names) > 2 else ""


def _overall_words(one: Overall, against: Against, pair: Pair, unit: str) -> str:
    kind = "" if one.kind == "ramp" else f" of {one.kind}s"
    what = f"{one.operation} {one.measure.replace('_', ' ')} over all loads{kind}"
    if one.measure == TYPICAL:
        what = f"a typical call {up_to(pair, unit)}"
    if one.measure == SERVED:
        what = f"the most {one.operation} calls served a second"
    if one.measure in RATES:
        more = "more" if (against.change or 0.0) > 0 else "less"
        return f"{what}: {show_share(abs(against.change or 0.0))} {more}"
    return f"{what}: {ratio(against.change)}, {interval(against.low, against.high)}"


def _recovery_words(one: Recovery, number: int) -> str:
    against = one.against[number - 1]
    before, after = (show_back(of) for of in (one.values[0], one.values[number]))
    if bound := bound_words(one, number):
        return f"back after {one.what}: {before} to {after} ({bound}{ratio(against.change)})"
    span = interval(against.low, against.high)
    return f"back after {one.what}: {before} to {after} ({ratio(against.change)}, {span})"


def _change_words(row: Row, number: int, unit: str) -> str:
    before, after, against = row.values[0] or 0.0, row.values[number] or 0.0, row.against[number - 1]
    where = show_load(row.size, unit, "storm" if row.storm else "destroy" if row.destroy else "ramp")
    if row.measure in RATES:
        name = row.measure.replace("_", " ")
        return f"{row.operation} {name} {where}: {show_share(before)} to {show_share(after)}"
    return (
        f"{row.operation} {row.measure} {where}: {show_us(before)} to {show_us(after)} "
        f"({ratio(against.change)}, {interval(against.low, against.high)})"
    )


def lines_of_one_side(
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


def summary(rows: Sequence[Row], pairs: Sequence[Pair], names: Sequence[str], unit: str) -> str:
    """Count the figures that changed at loads that all runs sustained, and name the worst; empty without releases."""
    if not pairs:
        return ""
    if not rows:
        return f"No load of {names[0]} was measured in another run, so only tipping points are compared."
    at_held = [(row, number) for row in rows for number in range(len(pairs)) if row.against[number].judgement]
    beyond = sum(bool(against.beyond) for row in rows for against in row.against)
    faulted = any(against.beyond.startswith(WITH_A_FAULT) for row in rows for against in row.against)
    if not at_held:
        judged = "tipping points and throughput" if any(pair.served for pair in pairs) else "tipping points"
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
        key=lambda place: weight(*place),
        default=None,
    )
    told = f" Worst: {_whose(worst[1], names)}{_change_words(*worst, unit)}." if worst else ""
    return f"Figures against {names[0]}, at loads that all runs sustained: {', '.join(said)}.{told}"
