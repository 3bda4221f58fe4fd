"""Orders runs, and finds where a figure changed, by how much, and what else changed there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.compare.disturbed import disturbed
from tippingpoint.compare.names import Named, differences, short_names
from tippingpoint.compare.reach import Reach, reach_together
from tippingpoint.compare.trend.acknowledged import Acknowledged
from tippingpoint.compare.trend.changes import LEAST, Change, find_changes
from tippingpoint.compare.trend.series import Figure, figures_of
from tippingpoint.errors import UserError
from tippingpoint.rundir.copies import without_copies
from tippingpoint.rundir.manifest import FILE, Manifest, Places
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.util.text import show_processors

Order = Literal["date", "release"]
FEWEST = 2 * LEAST
"""The minimum number of runs of a history: two levels."""
MOST = 200
"""The maximum number of runs of a history: the newest ones."""


@dataclass(frozen=True)
class FigureChange:
    """A change of a figure, with what is known about it."""

    figure: Figure
    change: Change
    worse: bool
    stands: bool
    """Whether the newest level still has at least half of the change."""
    with_it: tuple[str, ...]
    """What else changed between the runs where the new level may begin: release, plan, machine."""
    reason: str
    """Why somebody accepted it; empty if nobody did."""
    before: Reach | None = None
    """For a tipping point known only by bounds: how far the runs before the change got. Else None."""
    after: Reach | None = None
    """How far the runs of the new level got; None without bounds, or if it drifts to the end."""

    @property
    def regresses(self) -> bool:
        """Whether it is a lasting, unacknowledged regression."""
        return self.worse and self.stands and not self.reason


@dataclass(frozen=True)
class History:
    """Runs of one plan on one kind of target, in order."""

    kind: str
    """The kind of target."""
    title: str
    """The plan's name."""
    unit: str
    """What loads count."""
    runs: tuple[RunData, ...]
    names: tuple[str, ...]
    """One name per run."""
    figures: tuple[Figure, ...]
    changes: tuple[FigureChange, ...]
    """The changes: regressions first, then the largest."""

    @property
    def enough(self) -> bool:
        """Whether there are enough runs for two levels."""
        return len(self.runs) >= FEWEST


@dataclass(frozen=True)
class Trend:
    """All histories, and the runs that are in none."""

    order: Order
    histories: tuple[History, ...]
    left_out: tuple[str, ...]
    """One line for each run that is inconclusive about its target, with the reason, and for each copy of a run."""

    @property
    def regressed(self) -> bool:
        """Whether there is a lasting, unacknowledged regression. The command then exits with 1."""
        return any(told.regresses for history in self.histories for told in history.changes)


def runs_below(directory: Path) -> list[Path]:
    """Return the directories of runs directly below one; raises UserError if there is none."""
    try:
        found = sorted(path.parent for path in directory.glob(f"*/{FILE}"))
    except OSError as problem:
        raise UserError("RUN", str(directory), f"a readable directory ({problem.strerror})") from None
    if not found:
        raise UserError("RUN", str(directory), f"a run, or a directory that has runs (each with {FILE})")
    return found


def trend_of(
    directories: Sequence[Path],
    acknowledged: Acknowledged,
    order: Order = "date",
    read: Callable[[Sequence[Path]], Iterable[Path]] = iter,
) -> Trend:
    """Return the trend of these runs.

    Runs are grouped by kind of target and plan. They are ordered by their start, or by the target's release and then by
    their start. A run whose verdict is withheld or failed is inconclusive about its target, and is left out. Runs
    during which other programs took much of the target's processors, and copies of a run, are left out too. `read` may
    show progress while it passes on the directories. Raises UserError for a directory that is not a run.
    """
    groups: dict[tuple[str, str, str], list[Analysis]] = {}
    manifests = {path: Manifest.load(path) for path in directories}
    once, left_out = without_copies(manifests.items())
    newest = sorted(once, key=lambda path: manifests[path].started)[-MOST:]
    for directory in read(newest):
        run = load_run(directory)
        if why := _silent(run):
            left_out.append(f"{run.manifest.id}: {why}")
            continue
        analysis = analyse(run)
        if analysis.verdict.outcome in ("withheld", "failed"):
            left_out.append(f"{run.manifest.id}: {analysis.verdict.sentence}")
            continue
        if why := disturbed(run):
            left_out.append(f"{run.manifest.id}: {why} meanwhile")
            continue
        manifest = run.manifest
        key = manifest.target.kind, manifest.title, manifest.load_unit
        groups.setdefault(key, []).append(analysis)
    histories = [
        _history(sorted(group, key=lambda one: _place(one.run, order)), acknowledged)
        for _, group in sorted(groups.items())
    ]
    return Trend(order, tuple(histories), tuple(left_out))


def _silent(run: RunData) -> str:
    if run.manifest.status == "running":
        return "it is still running"
    return "" if run.stages else "no stage was begun"


def _place(run: RunData, order: Order) -> tuple[list[tuple[int, int, str]], float, str]:
    release = release_key(run.manifest.target.version) if order == "release" else []
    return release, run.manifest.started, run.manifest.id


def release_key(version: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts releases: 3.4.9 before 3.4.23, and 4.0-beta1 before 4.0."""
    found = [
        (1, int(part), "") if part.isdigit() else (0, 0, part)
        for part in re.findall(r"\d+|[a-z]+", version.lower())
    ]
    return [*found, (1, -1, "")]


def _history(analyses: Sequence[Analysis], acknowledged: Acknowledged) -> History:
    runs = [analysis.run for analysis in analyses]
    figures = figures_of(analyses)
    found = find_changes([figure.measured for figure in figures])
    changes = [
        _told(figure, of_figure, number, runs, acknowledged)
        for figure, of_figure in zip(figures, found, strict=True)
        for number in range(len(of_figure))
    ]
    first = runs[0].manifest
    return History(
        kind=first.target.kind,
        title=first.title,
        unit=first.load_unit,
        runs=tuple(runs),
        names=tuple(short_names([Named.of_run(run) for run in runs])),
        figures=tuple(figures),
        changes=tuple(sorted(changes, key=lambda told: (not told.regresses, -abs(told.change.moved)))),
    )


def _told(
    figure: Figure,
    changes: Sequence[Change],
    number: int,
    runs: Sequence[RunData],
    acknowledged: Acknowledged,
) -> FigureChange:
    """Return what is known about one of a figure's changes."""
    change = changes[number]
    since = changes[number:]
    places = range(change.earliest, change.latest + 1)
    reasons = (acknowledged.runs.get(runs[place].manifest.id, "") for place in places)
    begin = _end(changes[number - 1]) if number else 0
    until = changes[number + 1].at if len(since) > 1 else len(runs)
    before, after = figure.reaches[begin : change.at], figure.reaches[_end(change) : until]
    bounded = any(reach is not None and reach.bounded for reach in (*before, *after))
    what = (line for place in places for line in _what_changed(runs[place - 1], runs[place]))
    return FigureChange(
        figure=figure,
        change=change,
        worse=(change.moved > 0) == figure.more_is_worse,
        stands=sum(one.moved for one in since) / change.moved >= 0.5,
        with_it=() if change.drifts else tuple(dict.fromkeys(what)),
        reason=next((reason for reason in reasons if reason), ""),
        before=_together(before) if bounded else None,
        after=_together(after) if bounded else None,
    )


def _end(change: Change) -> int:
    """Return the first run that has the new level."""
    return change.latest if change.drifts else change.at


def _together(reaches: Sequence[Reach | None]) -> Reach | None:
    known = [reach for reach in reaches if reach is not None]
    return reach_together(known) if known else None


def _what_changed(before: RunData, after: RunData) -> list[str]:
    """Return what differs between neighbouring runs: release, members, plan, machine and our own version."""
    one, other = before.manifest, after.manifest
    lines = [
        f"{what}: {old or 'unknown'} / {new or 'unknown'}"
        for what, old, new in (
            ("release", one.target.version, other.target.version),
            ("members", str(len(one.target.members)), str(len(other.target.members))),
        )
        if old != new
    ]
    lines += [f"plan: {line}" for line in differences([one.plan or {}, other.plan or {}])]
    if one.host is not None and other.host is not None:
        lines += [
            f"{what}: {old} / {new}"
            for what, old, new in (
                ("cores", one.host.cores, other.host.cores),
                ("system", one.host.system, other.host.system),
                ("Python", one.host.python, other.host.python),
                ("Tipping Point", one.host.tippingpoint, other.host.tippingpoint),
            )
            if old != new
        ]
    if one.places != other.places:
        lines.append(f"places: {_placed(one.places)} / {_placed(other.places)}")
    return lines


def _placed(places: Places | None) -> str:
    if places is None:
        return "unknown"
    return f"target on {show_processors(places.target)}, workers on {show_processors(places.workers)}"
