"""Finds the places where series of measurements changed their level.

A piece of a series, at an end or within, is compared with the rest, and both are searched again (circular binary
segmentation: A. B. Olshen, E. S. Venkatraman et al., Biostatistics 5 (2004) 557). Permutations of the order of the runs
show how rare such a difference is without a change. The largest difference over all series counts (P. H. Westfall and
S. S. Young, Resampling-Based Multiple Testing, 1993). So the answer is valid for any scatter of the runs, and for all
series of a call together. The newest level has few places where it may begin, and is what people wait for. A level
elsewhere has many. Each kind has its own share of the false alarms, so that the many places do not hide the few.

Runs that resemble the run before them look like levels. How much of its deviation a run inherits from the run before is
estimated within the levels. Only the new part of each run is permuted, and the inherited part is added again (P.
Bühlmann, Bernoulli 3 (1997) 123). This estimate is rough in short series, so it reduces false alarms, but not to the
rate of series without memory.

A level that moves slowly looks like several steps. So each sequence of changes in one direction is compared with a
slope from one level to another, by Schwarz's criterion (Annals of Statistics 6 (1978) 461), which counts the free
parameters of a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import groupby, pairwise
from math import exp, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tippingpoint.rundir.histogram import FloatArray

FALSE_ALARMS = 0.01
"""The share of calls on series without a change that report one."""
_NEWEST = 2 / 3
"""The share of the false alarms allotted to the newest level, if it is at most half of the series."""
_MOST_MEMORY = 0.95
"""The largest share of a run's deviation that the next one may repeat: with more, it never returns to its level."""
LEAST = 2
"""The minimum number of measurements of a level at an end of a series: a single one is an outlier."""
LEAST_WITHIN = 5
"""The minimum number of measurements of a level between two others: two outliers may be neighbours by chance."""
SMALLEST = 0.03
"""Levels that differ by less than this share are the same to people."""
_PERMUTATIONS = 999
_ROWS = 64
"""The number of permutations processed at once, which limits memory use."""
_SIDE = NormalDist().inv_cdf(0.975)
_PLAUSIBLE = 3.84
"""By how much twice the log likelihood may fall in a 95 % interval of one parameter (chi-squared, 1 df)."""
DRIFT = 5
"""The minimum number of consecutive runs over which a level is said to drift."""
_FINEST = 1e-12
"""The least variance of logarithms: histograms and intervals are never more exact."""


@dataclass(frozen=True)
class Measured:
    """A series of positive measurements, in the order of the runs."""

    values: Sequence[float | None]
    """One value for each run; None for a run without one."""
    errors: Sequence[float]
    """The standard errors of the logarithms of the values; 0 where unknown."""
    placed: Sequence[float | None] | None = None
    """The rank of each run among the others, from -1 to 1, if values are bounds; changes are then of ranks."""


@dataclass(frozen=True)
class Change:
    """One change of the level of a series. Places count the runs from 0."""

    at: int
    """The first run of the new level; for a drift, the first run on its way there."""
    earliest: int
    latest: int
    """The runs between which the new level begins, with 95 % confidence; for a drift, its first and last run."""
    before: float
    after: float
    """The geometric means of the neighbouring levels."""
    ratio: float
    low: float
    high: float
    """`after` as a multiple of `before`, and its 95 % interval."""
    moved: float
    """How far the level moved up: a difference of logarithms, or of `placed`."""
    drifts: bool = False
    """Whether it moved slowly over many runs rather than with one."""


@dataclass(frozen=True)
class _Part:
    """Neighbouring measurements of one series."""

    logs: FloatArray
    floor: float
    """The known variance of a single measurement."""
    shown: FloatArray | None = None
    """The logarithms of what is shown, if `logs` are ranks of runs among each other."""


def find_changes(series: Sequence[Measured]) -> list[list[Change]]:
    """Return the changes of each series, in order."""
    random = np.random.default_rng(len(series))
    there = [[place for place, value in enumerate(one.values) if value is not None] for one in series]
    parts = [_part(one, places) for one, places in zip(series, there, strict=True)]
    usable = [number for number, part in enumerate(parts) if len(part.logs) >= 2 * LEAST]
    if not usable:
        return [[] for _ in series]
    runs = max(len(one.values) for one in series)
    orders = _orders(runs, random)
    nulls = {number: _null(parts[number], orders, there[number]) for number in usable}
    # What is rare in one series may be common in another whose runs resemble each other more.
    rare = {
        number: np.maximum(np.quantile(null, 1 - FALSE_ALARMS, axis=1, keepdims=True), _FINEST)
        for number, null in nulls.items()
    }
    largest = np.max([nulls[number] / rare[number] for number in usable], axis=0)
    return [
        _changes(part, _edges(part, largest * rare[number], random), places) if number in usable else []
        for number, (part, places) in enumerate(zip(parts, there, strict=True))
    ]


def _orders(runs: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Return random orders of this number of runs."""
    return random.permuted(np.tile(np.arange(runs), (_PERMUTATIONS, 1)), axis=1)


def _part(one: Measured, places: Sequence[int]) -> _Part:
    logs = np.log(np.asarray([one.values[place] for place in places], dtype=np.float64))
    if one.placed is not None:
        placed = [one.placed[place] or 0.0 for place in places]
        return _Part(np.asarray(placed, dtype=np.float64), _FINEST, logs)
    errors = [one.errors[place] for place in places]
    floor = float(np.mean(np.square(errors))) if errors else 0.0
    return _Part(logs, max(floor, _FINEST))


def _null(part: _Part, orders: NDArray[np.int64], places: Sequence[int]) -> FloatArray:
    """Return a part's largest differences, for the newest level and for others, in each of these orders of runs."""
    position = np.full(orders.shape[1], -1)
    position[list(places)] = np.arange(len(places))
    shuffled = position[orders]
    shuffled = shuffled[shuffled >= 0].reshape(len(orders), len(places))
    memory = _memory(*_unexplained(part.logs, _most_telling(part.logs)))
    again = _remembering(part.logs - part.logs.mean(), memory, shuffled)
    return _deviates(part.floor, again, _largest(again)[0])


def _most_telling(logs: FloatArray) -> list[int]:
    """Return the edges of the levels after splitting off the most distinct piece of a part."""
    between, which = _largest(logs[np.newaxis])
    piece = which[int(np.argmax(between)), 0]
    begins, ends, _ = _pieces(len(logs))
    return sorted({0, int(begins[piece]), int(ends[piece]), len(logs)})


def _unexplained(logs: FloatArray, edges: Sequence[int]) -> tuple[FloatArray, int]:
    """Return what levels with these edges, or a slope if that is better, leave of a part; and how much was chosen."""
    left, chosen = _left(logs, edges), _chosen(edges)
    if len(logs) <= DRIFT + 1:
        return left, chosen
    slope = _best_slope(logs)[2]
    slowly = logs - logs.mean() - float(slope @ logs) / float(slope @ slope) * slope
    return (slowly, 4) if float(slowly @ slowly) < float(left @ left) else (left, chosen)


def _left(logs: FloatArray, edges: Sequence[int]) -> FloatArray:
    """Return the distances of runs from the means of their levels, which `edges` delimit."""
    return np.concatenate([logs[one:other] - logs[one:other].mean() for one, other in pairwise(edges)])


def _chosen(edges: Sequence[int]) -> int:
    """Return how many levels, and places between them, were chosen to fit."""
    return 2 * (len(edges) - 1) - 1


def _memory(left: FloatArray, chosen: int) -> float:
    """Return how much of its deviation a run inherits from the run before it, according to the deviations `left`.

    The correlation of what is left is too small. Each level and place that was chosen to fit takes one run of their
    number, and the estimate itself takes two (M. G. Kendall, Biometrika 41 (1954) 403).
    """
    count, squares = len(left), float(left @ left)
    free = count - chosen - 2
    if free <= 0 or squares <= count * _FINEST:
        return 0.0
    seen = float(left[1:] @ left[:-1]) / squares
    return min(max((count * seen + chosen) / free, 0.0), _MOST_MEMORY)


def _remembering(across: FloatArray, memory: float, shuffled: NDArray[np.int64]) -> FloatArray:
    """Return series in which the new part of each run is reordered; `across` has a mean of 0."""
    first = sqrt(1 - memory**2)
    new = np.concatenate((across[:1] * first, across[1:] - memory * across[:-1]))
    again = new[shuffled]
    if memory > 0:
        again[:, 0] /= first
        for run in range(1, again.shape[1]):
            again[:, run] += memory * again[:, run - 1]
    return again


def _edges(part: _Part, largest: FloatArray, random: np.random.Generator) -> list[int]:
    """Return the places of changes in a part, ascending; `largest` are differences without a change."""
    count = len(part.logs)
    if count < 2 * LEAST:
        return []
    between, which = _largest(part.logs[np.newaxis])
    deviates = _deviates(part.floor, part.logs[np.newaxis], between)
    chances = (1 + np.sum(largest >= deviates * (1 - 1e-9), axis=1)) / (1 + largest.shape[1])
    spent = chances / (FALSE_ALARMS * np.asarray([_NEWEST, 1 - _NEWEST]))
    sure = np.where(spent <= 1, between[:, 0], -1.0)
    kind = int(np.argmax(sure))
    if sure[kind] < 0:
        return []
    begins, ends, _ = _pieces(count)
    begin, end = int(begins[which[kind, 0]]), int(ends[which[kind, 0]])
    found: list[int] = []
    for first, last in ((0, begin), (begin, end), (end, count)):
        inner = _Part(part.logs[first:last], part.floor)
        if last - first >= 2 * LEAST:
            null = _null(inner, _orders(last - first, random), range(last - first))
            found += [first + place for place in _edges(inner, null, random)]
        found.append(last)
    return sorted({place for place in found if 0 < place < count})


def _largest(logs: FloatArray) -> tuple[FloatArray, NDArray[np.int64]]:
    """Return the largest part of each row's squares that splitting off one piece explains, and which piece that is.

    Each result has two rows: the first for pieces that are the newest level, the second for others.
    """
    rows, count = logs.shape
    begins, ends, newest = _pieces(count)
    summed = np.zeros((count + 1, rows))
    np.cumsum((logs - logs.mean(axis=1, keepdims=True)).T, axis=0, out=summed[1:])
    share = (1 / (ends - begins) + 1 / (count - (ends - begins)))[:, np.newaxis]
    found, which = np.zeros((2, rows)), np.zeros((2, rows), dtype=np.int64)
    for first in range(0, rows, _ROWS):
        some = np.ascontiguousarray(summed[:, first : first + _ROWS])
        between = (some[ends] - some[begins]) ** 2 * share
        for kind, pieces in enumerate((between[:newest], between[newest:])):
            if pieces.size:
                which[kind, first : first + _ROWS] = np.argmax(pieces, axis=0) + kind * newest
                found[kind, first : first + _ROWS] = np.max(pieces, axis=0)
    return found, which


def _deviates(floor: float, logs: FloatArray, between: FloatArray) -> FloatArray:
    """Return how rarely a piece explains that much of a row's squares, as normal deviates."""
    free = max(1, logs.shape[1] - 2)
    squares = np.sum((logs - logs.mean(axis=1, keepdims=True)) ** 2, axis=1)
    left = np.maximum(squares - between, 0.0) / free
    t = np.sqrt(between / np.maximum(left, floor))
    return np.where(left > floor, _as_normal(t, free), t)


def _squares(logs: FloatArray) -> float:
    """Return the sum of squared distances from the mean."""
    return float(np.sum((logs - logs.mean()) ** 2))


@cache
def _pieces(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the first and last places of the pieces that may be separate levels.

    The first pieces, whose number is returned too, are the newest level and at most half of all runs.
    """
    begins, ends = np.triu_indices(count + 1, LEAST)
    long = ends - begins
    newest = (ends == count) & (2 * long <= count)
    oldest = (begins == 0) & (2 * long < count)
    within = (begins > 0) & (ends < count) & (long >= LEAST_WITHIN)
    places = np.concatenate((np.flatnonzero(newest), np.flatnonzero(oldest | within)))
    return begins[places], ends[places], int(np.sum(newest))


def _as_normal(t: FloatArray, free: int) -> FloatArray:
    """Return the normal deviates that are as rare as Student's t (D. L. Wallace, Ann. Math. Stat. 30 (1959) 1124)."""
    return (8 * free + 1) / (8 * free + 3) * np.sqrt(free * np.log1p(t * t / free))


def _student(free: int) -> float:
    """Return the 97.5 % quantile of Student's t, by inverting Wallace's formula."""
    z = _SIDE * (8 * free + 3) / (8 * free + 1)
    return sqrt(free * float(np.expm1(z * z / free)))


def _changes(part: _Part, edges: Sequence[int], places: Sequence[int]) -> list[Change]:
    """Return the changes at these edges that are certain and large enough to matter; `places` are their runs."""
    logs = part.logs
    kept: list[int] = [0, *edges, len(logs)]
    while len(kept) > 2:
        sure = [_sureness(change) for change in _between(part, kept, places)]
        least = int(np.argmin(sure))
        if sure[least] > 0:
            break
        kept = [*kept[: least + 1], *kept[least + 2 :]]
    found = _between(part, kept, places)
    if part.shown is not None:  # from what the runs of each level show, which may be bounds
        shown = _between(_Part(part.shown, part.floor), kept, places)
        found = [
            replace(one, before=said.before, after=said.after, ratio=said.ratio, low=said.low, high=said.high)
            for one, said in zip(found, shown, strict=True)
        ]
    return _with_drifts(part, kept, places, found)


def _sureness(change: Change) -> float:
    """Return how certainly a change matters to people; 0 or less means not at all."""
    size, least = abs(log(change.ratio)), min(abs(log(change.low)), abs(log(change.high)))
    certain = (change.low > 1) == (change.high > 1)
    return least if certain and size >= log(1 + SMALLEST) else size - 10.0


def _with_drifts(
    part: _Part, kept: Sequence[int], places: Sequence[int], found: Sequence[Change]
) -> list[Change]:
    """Return the changes, replacing neighbouring ones by a drift if it explains them better."""
    told: list[Change] = []
    for _, group in groupby(range(len(found)), key=lambda number: found[number].moved > 0):
        numbers = list(group)
        edges = kept[numbers[0] : numbers[-1] + 3]
        drift = _drift(part, edges, places)
        told += [drift] if drift is not None else [found[number] for number in numbers]
    return told


def _drift(part: _Part, edges: Sequence[int], places: Sequence[int]) -> Change | None:
    """Return the drift that explains the levels beginning at `edges` better than steps do; None if none does."""
    first, last = edges[0], edges[-1]
    logs = part.logs[first:last]
    count = len(logs)
    if count <= DRIFT + 1:
        return None
    begin, end, slope = _best_slope(logs)
    across = logs - logs.mean()
    steps = sum(_squares(part.logs[one:other]) for one, other in pairwise(edges))
    line = float(across @ across) - float(slope @ across) ** 2 / float(slope @ slope)
    least = count * part.floor

    def criterion(squares: float, chosen: int) -> float:
        return count * log(max(squares, least) / count) + chosen * log(count)

    # A step has a place and a level after it; a line has two levels, a start and an end.
    if criterion(line, 4) >= criterion(steps, 2 * (len(edges) - 2) + 1):
        return None
    shown = (part.shown if part.shown is not None else part.logs)[first:last]
    spread, free = float(slope @ slope), max(1, count - 4)
    by = float(slope @ shown) / spread
    left = float(np.sum((shown - shown.mean() - by * slope) ** 2)) / free
    error = _student(free) * sqrt(max(left, part.floor) / spread)
    before = float(shown.mean()) + by * float(slope.min())
    at = places[first + begin + 1]
    return Change(
        at=at,
        earliest=at,
        latest=places[first + end],
        before=exp(before),
        after=exp(before + by),
        ratio=exp(by),
        low=exp(by - error),
        high=exp(by + error),
        moved=float(slope @ logs) / spread,
        drifts=True,
    )


def _best_slope(logs: FloatArray) -> tuple[int, int, FloatArray]:
    """Return the last place before, the first place after, and the slope that explains most of a part's squares."""
    begins, ends, slopes = _slopes(len(logs))
    best = int(np.argmax((slopes @ logs) ** 2 / (slopes**2).sum(axis=1)))
    return int(begins[best]), int(ends[best]), slopes[best]


@lru_cache(maxsize=4)
def _slopes(count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
    """Return the last places before and the first after all slopes from one level to another, and these slopes.

    A slope rises by 1 and has a mean of 0.
    """
    begins, ends = np.triu_indices(count, DRIFT)
    ways = (np.arange(count)[np.newaxis, :] - begins[:, np.newaxis]) / (ends - begins)[:, np.newaxis]
    ways = np.clip(ways, 0.0, 1.0)
    return begins, ends, ways - ways.mean(axis=1, keepdims=True)


def _between(part: _Part, kept: Sequence[int], places: Sequence[int]) -> list[Change]:
    """Return the changes between neighbouring levels, which begin at `kept`."""
    logs = part.logs
    count = len(logs)
    memory = _memory(*_unexplained(logs, kept))
    alike = memory ** np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    # The squares within levels have fewer degrees of freedom than runs, because each mean follows the scatter.
    free = max(1.0, count - sum(float(alike[a:b, a:b].mean()) * (b - a) for a, b in pairwise(kept)))
    within = sum(_squares(logs[first:last]) for first, last in pairwise(kept)) / free
    variance, side = (
        (within, _student(max(1, count - (len(kept) - 1)))) if within > part.floor else (part.floor, _SIDE)
    )
    found: list[Change] = []
    for first, middle, last in zip(kept, kept[1:], kept[2:], strict=False):
        before, after = float(logs[first:middle].mean()), float(logs[middle:last].mean())
        weights = np.repeat((-1 / (middle - first), 1 / (last - middle)), (middle - first, last - middle))
        error = side * sqrt(variance * float(weights @ alike[first:last, first:last] @ weights))
        earliest, latest = _plausible(logs[first:last], middle - first, variance)
        found.append(
            Change(
                at=places[middle],
                earliest=places[first + earliest],
                latest=places[first + latest],
                before=exp(before),
                after=exp(after),
                ratio=exp(after - before),
                low=exp(after - before - error),
                high=exp(after - before + error),
                moved=after - before,
            )
        )
    return found


def _plausible(logs: FloatArray, middle: int, variance: float) -> tuple[int, int]:
    """Return the first and the last possible place of a part's only change, with 95 % confidence."""
    summed = np.concatenate(([0.0], np.cumsum(logs - logs.mean())))
    places = np.arange(1, len(logs))
    gained = summed[places] ** 2 * (1 / places + 1 / (len(logs) - places))
    near = set(places[gained >= gained[middle - 1] - _PLAUSIBLE * variance].tolist())
    low = high = middle
    while low - 1 in near:
        low -= 1
    while high + 1 in near:
        high += 1
    return low, high
