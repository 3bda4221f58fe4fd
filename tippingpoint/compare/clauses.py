"""Clauses of the sentence that begins a comparison, about releases that were paired with the first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tippingpoint.analysis.thresholds import RATES
from tippingpoint.compare.comparison import Recovery, Row
from tippingpoint.compare.operation_costs import CPU, CostKey
from tippingpoint.compare.pair import Against, Pair
from tippingpoint.compare.reach import Judgement, Reach
from tippingpoint.compare.repeats import Release
from tippingpoint.compare.sentence import range_words, telling_load, times
from tippingpoint.util.numbers import show_number, show_share, show_times
from tippingpoint.util.text import show_amount, show_calls, show_list, show_load


def tip_clauses(pairs: Sequence[Pair], base: str) -> list[str]:
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
        span = f"{times(change.change)} the load of {base} ({interval(change.low, change.high)})"
        if pair.tip in ("worse", "better"):
            said.append(f"{pair.name} tips at {span}")
        elif pair.tip_withheld:
            said.append(f"{pair.name} tips at {span}, but {base} differs from itself as much")
        else:
            said.append(f"{pair.name} tips at {span}, which repeats alone explain")
    return said


def cost_clauses(pairs: Sequence[Pair], base: str) -> list[str]:
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
    return f"{ratio(against.change)} ({interval(against.low, against.high)})"


def _span(low: float, high: float) -> str:
    first, last = (show_number(round(one, 2)) for one in (low, high))
    return f"95 %: about {first}" if first == last else f"95 %: {first} to {last}"


def served_clauses(pairs: Sequence[Pair], base: str) -> list[str]:
    """Say how the highest rates that releases served compare."""
    return [
        f"the most {operation} calls that {pair.name} serves a second are {times(one.change)} those of {base} "
        f"({interval(one.low, one.high)})"
        for pair in pairs
        for operation, one in pair.served.items()
        if _is_told(pair, one)
    ]


def typical_clauses(pairs: Sequence[Pair], base: str, unit: str) -> list[str]:
    """Say how the duration of a typical call compares."""
    return [
        f"a typical call of {pair.name} {up_to(pair, unit)} takes {times(one.change)} the time of {base} "
        f"({interval(one.low, one.high)})"
        for pair in pairs
        if _is_told(pair, one := pair.typical)
    ]


def _is_told(pair: Pair, figure: Against) -> bool:
    """Return whether to show a capacity figure with the tipping points: it is certain, and does not contradict them."""
    return figure.judgement in ("worse", "better") and pair.tip in ("same", "unsure", figure.judgement)


def up_to(pair: Pair, unit: str) -> str:
    """Say up to which load a typical call of both releases was timed."""
    return f"up to {show_amount(pair.typical_to, unit)}"


def control_words(pairs: Sequence[Pair], control: Release | None, base: str) -> str:
    """Say whether the first release's control agrees with its other runs; empty without one."""
    if control is None or not pairs:
        return ""
    if pairs[0].control_differs:
        return f"The control differs from the other runs of {base}: the machine changed in between."
    return f"The control agrees with the other runs of {base}."


def _certain(against: Sequence[Against], names: Sequence[str]) -> list[tuple[float, str]]:
    """Return the certain changes of a figure, each with the name of its run. `names[0]` is the base."""
    return [
        (one.change, name)
        for one, name in zip(against, names[1:], strict=True)
        if one.judgement in ("worse", "better") and one.change is not None
    ]


def main_clause(
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


def contrary_clauses(
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
            row = max(contrary, key=lambda row: weight(row, number))
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


def recovery_clauses(recovery: Sequence[Recovery], names: Sequence[str]) -> list[str]:
    """Say how much longer or shorter releases take to recover, where that is certain."""
    return [
        f"back after {one.what} in {bound_words(one)}{range_words(certain, len(names))} the time"
        for one in recovery
        if (certain := _certain(one.against, names))
    ]


def bound_words(one: Recovery, number: int | None = None) -> str:
    """Say that a ratio is a lower or an upper bound, because a release did not recover while it was watched.

    `number` is the release's; None for all of them.
    """
    others = one.values[1:] if number is None else [one.values[number]]
    if any(back is not None and back.never for of in others for back in of):
        return "at least "
    return "at most " if any(back is not None and back.never for back in one.values[0]) else ""


def weight(row: Row, number: int) -> float:
    """Rank a change: rates before latencies, then by its size."""
    change = row.against[number - 1].change or 0.0
    return 1e6 + abs(change) if row.measure in RATES else float(abs(np.log(max(change, 1e-9))))


def ratio(value: float | None) -> str:
    """Write a ratio, or that an interval has no bound on this side."""
    return show_times(value) if value is not None and np.isfinite(value) else "no bound"


def interval(low: float | None, high: float | None) -> str:
    """Write the 95 % interval of a ratio; if it is narrower than its digits can show, say that it is no wider."""
    first, last = ratio(low), ratio(high)
    return f"95 % about {first}" if first == last != "no bound" else f"95 % {first} to {last}"
