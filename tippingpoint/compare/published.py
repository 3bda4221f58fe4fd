"""Compares published results: figures that several baselines give, and figures of one relative to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tippingpoint.compare.baselines import Baseline, Figure

Bound = Literal["", "about", "at least", "at most"]

RESOURCES = ("CPU", "memory", "heap", "disk IOPS", "network")
"""Resources of a target, in the order in which they are shown."""
_UNITS = {
    **{"kB": ("bytes", 1e3), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9)},
    **{"ms": ("s", 1e-3), "min": ("s", 60.0), "%": ("share", 0.01)},
}
"""Published units, each with the common unit of its kind and the factor into it."""
_BOUNDS: dict[str, Bound] = {
    **dict.fromkeys(("", "only", "as fast as"), ""),
    **dict.fromkeys(("over", "a little over", "upwards of"), "at least"),
    **dict.fromkeys(("below", "within", "up to", "almost", "nearly", "never above"), "at most"),
}
"""Words before published numbers, and the bound they mean. Any other word means "about"."""
_TURNED: dict[Bound, Bound] = {"": "", "about": "about", "at least": "at most", "at most": "at least"}

_AVERAGE = "avg of "
_MEASURES = ("min", "avg", "max", "p90", "p95", "success")
"""Columns of Rally's table, in seconds; the last one is in percent."""


@dataclass(frozen=True)
class Told:
    """One baseline's entry in a row."""

    value: float | None
    """The value in the row's unit, per its `per`; None if only a relation to another baseline was published."""
    figure: Figure | None
    """The published figure; None for the baseline to which another one refers."""
    ratio: float | None
    """The ratio to the row's base; None for a row of differences."""
    difference: float | None
    """The difference to the row's base, in the row's unit; only if values are unknown."""
    bound: Bound
    """The bound of the ratio or the difference, from the words before the published numbers."""


@dataclass(frozen=True)
class PublishedRow:
    """One quantity with figures from several baselines."""

    what: str
    resource: str
    """The resource, one of RESOURCES; empty for other quantities."""
    role: str
    unit: str
    """The unit: bytes, s, cores ...; empty for a row of ratios."""
    per: str
    """The unit of load by which values are divided, such as `connection`; empty for totals."""
    told: list[Told | None]
    """One entry per baseline; None if it has no figure."""
    base: int
    """The index of the base: the first baseline with an entry."""

    @property
    def is_average(self) -> bool:
        """Whether the row is the column of averages of a Rally table."""
        return self.what.startswith(_AVERAGE)


def compare_published(baselines: Sequence[Baseline]) -> list[PublishedRow]:
    """Return the figures that several baselines have: resources first, then other figures and Rally's tables.

    Resources (`Figure.resource`) are compared per unit of a load that all baselines have, such as connections. This
    includes the fixed cost, because one published number has no slope. Other figures are compared at equal loads. If no
    two loads are equal and each baseline has one figure, these are compared, so their loads must be shown.
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
    """Convert the numbers of Rally's tables to figures of each action."""
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
    """Group one quantity's figures, given by baseline, into rows of comparable ones."""
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
    """Return a load that every figure has, other than the number of members; else empty."""
    shared = [load for load in figures[0].at if all(load in figure.at for figure in figures)]
    return next((load for load in shared if load != "members"), "")


def _relative(baselines: Sequence[Baseline]) -> list[PublishedRow]:
    """Return rows of figures that one baseline gives relative to another; either may be the base."""
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
    """Return a relative figure's entries for its own baseline and the one to which it refers.

    `forwards` if the latter is the base.
    """
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
    """Return the bound of a quotient from the bounds of its two parts."""
    if not one or not other or one == other:
        return one or other
    return "about"


def _kind(unit: str) -> str:
    return _UNITS[unit][0] if unit in _UNITS else unit


def _scale(unit: str) -> float:
    return _UNITS[unit][1] if unit in _UNITS else 1.0
