"""Finds what is missing from a journal, according to the journal's own record of what was written.

Each tick has its line number in the event log, and how many samples had been written to the histogram log. The last
event has both as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, cast

import numpy as np

from tippingpoint.rundir.histogram import IntArray
from tippingpoint.rundir.journal import HALF_MS, EventLog, is_number
from tippingpoint.util.durations import show_moment
from tippingpoint.util.text import show_count

DAMAGED = "damaged"
"""The event in a part's digest that reports damage: `what`, from its time `until` a moment or the end."""
_APART = 3.0
"""Seconds between places with missing samples that are reported as one."""
_MOST = 10
"""How many places of one journal are reported one by one."""


@dataclass(frozen=True)
class Damage:
    """A part of a journal that is not whole: what was measured from `begin` to `end` (seconds of the run) may be
    wrong."""

    worker: str
    """The worker whose journal it is; empty for the runner's own events."""
    begin: float
    end: float
    """Infinite if it is unknown how far the damage reaches."""
    what: str
    """What is missing, in a few words."""

    @property
    def sentence(self) -> str:
        """A sentence that names what is missing from which worker's journal."""
        name = (
            self.worker if "/" in self.worker else f"worker {self.worker}"
        )  # a unit is named like load-claimer/0
        return f"the journal of {name if self.worker else 'the run itself'} is damaged: {self.what}"


def find_damage(
    worker: str, said: EventLog, begins: Sequence[float], samples: IntArray, unread: int, *, complete: bool
) -> list[Damage]:
    """Return what is missing from a worker's journal.

    `begins` and `samples` are when each interval of its histogram log begins, and how many samples it has; `unread`
    lines of that log cannot be read. `complete` means that the worker ended as it was told to. Data that a cut worker
    had not written yet is not damage.
    """
    found = of_events(worker, said, complete=complete)
    if unread:
        found.append(
            Damage(worker, 0.0, inf, f"{show_count(unread, 'line')} of its intervals cannot be read")
        )
    notes = [event for event in said.events if event["event"] == "tick" and is_number(event.get("samples"))]
    if said.closed is not None and is_number(said.closed.get("samples")):
        notes.append({**said.closed, "t": inf})
    return found + _of_samples(worker, notes, np.asarray(begins, dtype=np.float64), samples)


def of_events(worker: str, said: EventLog, *, complete: bool) -> list[Damage]:
    """Return what is missing from an event log. A missing line may be a stage's begin, so the damage covers the whole
    run."""
    found: list[str] = []
    for since, until, lines in said.gaps[:_MOST]:
        were = f"{show_count(abs(lines), 'line')} of its events {'is' if abs(lines) == 1 else 'are'}"
        found.append(f"{were} {'missing' if lines > 0 else 'too many'} {_between(since, until)}")
    if len(said.gaps) > _MOST:
        found.append(f"lines of its events are missing in {show_count(len(said.gaps) - _MOST, 'more place')}")
    if said.damaged and (complete or said.damaged > said.cut_off):
        found.append(f"{show_count(said.damaged, 'line')} of its events cannot be read")
    if complete and said.closed is None:
        found.append("the end of its events is missing")
    return [Damage(worker, 0.0, inf, what) for what in found]


def read_damage(event: Mapping[str, Any]) -> Damage:
    """Return the damage in an event of a part's digest."""
    until = event.get("until")
    return Damage(
        worker=str(event.get("worker", "")),
        begin=float(event["t"]),
        end=float(cast(float, until)) if is_number(until) else inf,
        what=str(event.get("what", "")),
    )


def damage_event(damage: Damage) -> dict[str, Any]:
    """Return the event that read_damage reads."""
    return {
        "t": damage.begin,
        "event": DAMAGED,
        "worker": damage.worker,
        "until": None if damage.end == inf else damage.end,
        "what": damage.what,
    }


def _of_samples(
    worker: str, notes: Sequence[Mapping[str, Any]], begins: Any, samples: IntArray
) -> list[Damage]:
    """Return where the number of samples in the histogram log differs from what its worker noted."""
    order = np.argsort(begins, kind="stable")
    upto = np.concatenate(([0], np.cumsum(samples[order])))
    moments = np.asarray([float(note["t"]) for note in notes], dtype=np.float64)
    there = upto[np.searchsorted(begins[order], moments - HALF_MS, side="left")]
    lacking = np.asarray([int(note["samples"]) for note in notes], dtype=np.int64) - there
    steps = np.diff(lacking, prepend=0)
    places: list[tuple[float, float, int]] = []
    for place in np.flatnonzero(steps).tolist():
        since = float(moments[place - 1]) if place else 0.0
        until = float(moments[place])
        if places and since <= places[-1][1] + _APART and (steps[place] > 0) == (places[-1][2] > 0):
            places[-1] = (places[-1][0], until, places[-1][2] + int(steps[place]))
        else:
            places.append((since, until, int(steps[place])))
    found = [
        Damage(
            worker,
            since,
            until,
            f"{show_count(abs(number), 'sample')} {'is' if abs(number) == 1 else 'are'} "
            f"{'missing' if number > 0 else 'too many'} {_between(since, until)}",
        )
        for since, until, number in places[:_MOST]
    ]
    if len(places) > _MOST:
        more = places[_MOST:]
        found.append(
            Damage(
                worker,
                more[0][0],
                more[-1][1],
                f"samples are missing in {show_count(len(more), 'more place')}",
            )
        )
    if not notes and samples.sum():
        found.append(Damage(worker, 0.0, inf, "no record is left of how many samples were written"))
    return found


def _between(since: float, until: float) -> str:
    return (
        f"after {show_moment(since)}"
        if until == inf
        else f"between {show_moment(since)} and {show_moment(until)}"
    )
