"""Determines which turns of a run by many units need Prometheus figures, and for which times."""

from __future__ import annotations

from dataclasses import dataclass

from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.plan.read import Plan
from tippingpoint.play.asked_figures import in_ramp

_LOADS = ("ramp", "storm", "find")
"""The kinds of turns that have a load: nothing is measured while it is removed or lowered."""


@dataclass(frozen=True)
class Due:
    """A turn whose load was applied, and whose figures are unknown. Moments are on the reference's clock."""

    turn: int
    begin: float | None
    """None if its load was never held."""
    end: float
    last_try: bool
    """Whether its figures are not requested again if Prometheus does not answer."""


def due(run: SharedRun, plan: Plan, now: float) -> list[Due]:
    """Return the turns that are over, in order; those whose figures are already known are left out.

    `now` is on the reference's clock. A run that is stopped ends its turn now. The figures of a search decide what
    follows, so they are requested once. So are those of a turn that the run will soon have forgotten, or of its last
    turn.
    """
    found: list[Due] = []
    oldest = run.turns[0].number if len(run.turns) > 2 else 0
    for place, turn in enumerate(run.turns):
        following = run.turns[place + 1] if place + 1 < len(run.turns) else None
        ends = _end(turn, following)
        over = bool(run.stopped) or run.over or now >= ends
        if turn.kind not in _LOADS or turn.number in run.figures.turns or not over or now < turn.begin:
            continue
        begin = turn.begin if in_ramp(plan) else turn.hold
        begin = None if begin is None or begin > now else begin
        ending = (
            bool(run.stopped) or run.over or (run.turns[-1].hold is not None and now >= run.turns[-1].until)
        )
        last_try = run.shared or ending or turn.number == oldest
        found.append(Due(turn.number, begin, min(ends, now), last_try))
    return found


def loaded_since(run: SharedRun, now: float) -> float | None:
    """Return the moment from which figures with `abort` are watched, because the load is up; None without one.

    A search is watched anew at each load, so that one is not blamed for the load before.
    """
    begun = [turn for turn in run.turns if turn.begin <= now]
    if not begun or run.stopped or run.over or run.started is None or begun[-1].kind not in _LOADS:
        return None
    if begun[-1] is run.turns[-1] and begun[-1].hold is not None and now >= begun[-1].until:
        return None
    return begun[-1].begin if run.shared else run.started


def _end(turn: Turn, following: Turn | None) -> float:
    """Return when the load of a turn ends; infinite while that is not named. A storm may cut its hold."""
    if turn.hold is None:
        return float("inf")
    return turn.until if following is None else min(turn.until, following.begin)
