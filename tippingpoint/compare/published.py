"""Published results against each other: figures that several baselines give, and what one says of another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tippingpoint.compare.baselines import Baseline, Figure

Bound = Literal["", "about", "at least", "at most"]

RESOURCES = ("CPU", "memory", "heap", "disk IOPS", "network")
"""Figures of a target, in the order in which they are told: the etcd seed's own four charts first to last."""
_UNITS = {
    **{"kB": ("bytes", 1e3), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9)},
    **{"ms": ("s", 1e-3), "min": ("s", 60.0), "%": ("share", 0.01)},
}
"""Published units and what they are of one unit that their kind is compared in."""
_BOUNDS: dict[str, Bound] = {
    **dict.fromkeys(("", "only", "as fast as"), ""),
    **dict.fromkeys(("over", "a little over", "upwards of"), "at least"),
    **dict.fromkeys(("below", "within", "up to", "almost", "nearly", "never above"), "at most"),
}
"""What the sources put before their numbers; whatever else stands there makes them about so much."""
_TURNED: dict[Bound, Bound] = {"": "", "about": "about", "at least": "at most", "at most": "at least"}

_AVERAGE = "avg of "
_MEASURES = ("min", "avg", "max", "p90", "p95", "success")
"""Columns of Rally's table: seconds, the last one percent."""


@dataclass(frozen=True)
class Told:
    """What one baseline says in a row."""

    value: float | None
    """In the row's unit, and per its `per`; None where the baseline says only how it stands to another."""
    figure: Figure | None
    """Where it stands; None for the one that another is told against."""
    ratio: float | None
    """To the row's base; None for a row of differences."""
    difference: float | None
    """To the row's base, in the row's unit; only where no values are known."""
    bound: Bound
    """What the words before the published numbers make of the ratio or the difference."""


@dataclass(frozen=True)
class PublishedRow:
    """One thing that several baselines give a figure of."""

    what: str
    resource: str
    """One of RESOURCES, or empty."""
    role: str
    unit: str
    """bytes, s, cores ... or empty for a row of ratios."""
    per: str
    """What the values are per, as `connection`; empty when they are of the whole."""
    told: list[Told | None]
    """One for each baseline; None where it says nothing of it."""
    base: int
    """The baseline that the others are held against: the first of them that says anything."""

    @property
    def is_average(self) -> bool:
        """Whether it is the column of a Rally table that says most of an action."""
        return self.what.startswith(_AVERAGE)


def compare_published(baselines: Sequence[Baseline]) -> list[PublishedRow]:
    """What the baselines say of the same things: resources first, then figures and Rally's tables of the same load.

    Resources (`Figure.resource`) are held against each other per unit of a load that all of them name, such as
    connections: the fixed cost is in that, as one published number has no slope. Other figures are compared under
    equal loads; where no two are equal and each has one, as they are, so their loads must be shown.
    """
    rows = [*_relative(baselines), *_shared(baselines)]
    return sorted(rows, key=_place)


def _place(row: PublishedRow) -> int:
    return RESOURCES.index(row.resource) if row.resource else len(RESOURCES)


def _shared(baselines: Sequence[Baseline]) -> list[PublishedRow]:
    rows: list[PublishedRow] = []
    figures_of = [[*baseline.figures, *_tabled(baseline)] for baseline in baselines]
    named = dict.fromkeys(
        (f.what, f.role, _kind(f.unit))
        for figures in figures_of
        for f in figures
        if not f.against and f.to is None
    )
    for what, role, kind in named:
        found = [
            [f for f in figures if (f.what, f.role, _kind(f.unit)) == (what, role, kind) and f.to is None]
            for figures in figures_of
        ]
        rows += [
            _row(figures) for figures in _under_one_load(found) if sum(f is not None for f in figures) > 1
        ]
    return rows


def _tabled(baseline: Baseline) -> list[Figure]:
    """The numbers of Rally's tables as figures of each action."""
    return [
        Figure(
            what=f"{measure} of {row.operation}",
            value=getattr(row, measure),
            unit="%" if measure == "success" else "s",
            at=table.at,
            quote=table.quote,
        )
        for table in baseline.tables
        for row in table.rows
        for measure in _MEASURES
    ]


def _under_one_load(found: Sequence[Sequence[Figure]]) -> list[list[Figure | None]]:
    """Figures of one thing, by baseline, as those that can be held against each other."""
    loads = dict.fromkeys(tuple(sorted(f.at.items())) for figures in found for f in figures)
    equal = [
        [next((f for f in figures if tuple(sorted(f.at.items())) == load), None) for figures in found]
        for load in loads
    ]
    alike = [row for row in equal if sum(figure is not None for figure in row) > 1]
    if len(alike) == len(equal) or any(len(figures) > 1 for figures in found):
        return alike
    return [[figures[0] if figures else None for figures in found]]


def _row(figures: Sequence[Figure | None]) -> PublishedRow:
    base, first = next((place, figure) for place, figure in enumerate(figures) if figure is not None)
    there = [figure for figure in figures if figure is not None]
    per = _per(there) if first.resource else ""

    def value(figure: Figure) -> float:
        return figure.value * _scale(figure.unit) / (figure.at[per] if per else 1)

    told = [
        None
        if figure is None
        else Told(
            value=value(figure),
            figure=figure,
            ratio=value(figure) / value(first) if value(first) else None,
            difference=None,
            bound="" if place == base else _joint(_bound(figure), _TURNED[_bound(first)]),
        )
        for place, figure in enumerate(figures)
    ]
    unit, singular = _kind(first.unit), per.removesuffix("s")
    return PublishedRow(first.what, first.resource, first.role, unit, singular, told, base)


def _per(figures: Sequence[Figure]) -> str:
    """A load that every figure names and that is not the same size of cluster."""
    shared = [load for load in figures[0].at if all(load in figure.at for figure in figures)]
    return next((load for load in shared if load != "members"), "")


def _relative(baselines: Sequence[Baseline]) -> list[PublishedRow]:
    """Figures that one baseline gives against another one, either of which may be the base."""
    rows: list[PublishedRow] = []
    places = {baseline.name: place for place, baseline in enumerate(baselines)}
    for here, baseline in enumerate(baselines):
        for figure in baseline.figures:
            if figure.against in places and figure.resource:
                there = places[figure.against]
                told: list[Told | None] = [None] * len(baselines)
                told[here], told[there] = _both(figure, forwards=there < here)
                ratios = figure.unit == "times less"
                what, unit = (figure.resource, "") if ratios else (figure.what, figure.unit)
                rows.append(
                    PublishedRow(what, figure.resource, figure.role, unit, "", told, min(here, there))
                )
    return rows


def _both(figure: Figure, forwards: bool) -> tuple[Told, Told]:
    """What a relative figure says of its own baseline and of the one it names; `forwards` when that is the base."""
    bound = _bound(figure)
    if figure.unit == "times less":
        own, other = (1 / figure.value, 1.0) if forwards else (1.0, figure.value)
        of_own = _TURNED[bound] if forwards else ""
        of_other = "" if forwards else bound
        return Told(None, figure, own, None, of_own), Told(None, None, other, None, of_other)
    amount = figure.value
    own, other = (-amount, 0.0) if forwards else (0.0, amount)
    of_own, of_other = (_TURNED[bound], "") if forwards else ("", bound)
    return Told(None, figure, None, own, of_own), Told(None, None, None, other, of_other)


def _bound(figure: Figure) -> Bound:
    return _BOUNDS.get(figure.qualifier, "about")


def _joint(one: Bound, other: Bound) -> Bound:
    """How exact a quotient is, of which the one part is bounded so and the other so."""
    if not one or not other or one == other:
        return one or other
    return "about"


def _kind(unit: str) -> str:
    return _UNITS[unit][0] if unit in _UNITS else unit


def _scale(unit: str) -> float:
    return _UNITS[unit][1] if unit in _UNITS else 1.0
