"""A unit's status: one at a time, the first that applies, and what to do about it where there is something.

`juju status` cuts a line at 120 characters: a command that helps ends within LEGIBLE.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ops

from tippingpoint.units.shared_run import SharedRun, UnitWord, summary
from tippingpoint_charm.access import TargetAccess

LEGIBLE = 100
"""Characters of a status that everybody sees."""


@dataclass
class Situation:
    """What there is to say, as far as it is known."""

    unit: str
    problem: str = ""
    """What keeps the unit from working at all, configuration or machine, in one line."""
    away: str = ""
    """Why the agent does not answer, and where to look."""
    run: SharedRun | None = None
    words: dict[str, UnitWord | None] = field(default_factory=dict[str, UnitWord | None])
    """Of the unit itself, and of all others where it leads."""
    leads: bool = False
    unreached: str = ""
    """Why this unit cannot reach the target of the run that goes on."""
    access: TargetAccess | None = None
    """The access to the configured target."""
    shut_out: str = ""
    """Why a log-in to it failed when it was tried last; empty where it did not, or was not tried yet."""
    mend: str = ""
    """What gives us other credentials, where that was a refusal: a command, or the relation that they are from."""
    left: str = ""
    """What of the last run may be left in the target, in one line."""
    lacking: str = ""
    """What else a run would miss, in one line."""
    refresh_waits: bool = False
    """Whether a new version waits for the run's end."""


def status_of(now: Situation) -> ops.StatusBase:
    """The status of a unit in this situation."""
    if now.problem:
        return ops.BlockedStatus(now.problem)
    if now.run is not None and not now.run.over:
        if now.unreached:
            return ops.BlockedStatus(f"{now.unreached}: no part in {now.run.id}")
        if now.away:
            return ops.WaitingStatus(now.away)
        return _running(now, now.run)
    if now.away:
        return ops.WaitingStatus(now.away)
    if now.access is None:
        return ops.MaintenanceStatus("looking for the target")
    missing = now.access.missing or now.lacking
    if missing:
        return ops.BlockedStatus(missing)
    if now.mend:
        return ops.BlockedStatus(f"{now.mend}: {now.shut_out}")
    if now.shut_out:
        return ops.WaitingStatus(f"{now.access.kind} cannot be reached: {now.shut_out}")
    left = f"{now.left}; " if now.left else ""
    return ops.ActiveStatus(f"{left}ready: {now.access.kind} ({where(now.access)}){_last(now.run)}")


def _running(now: Situation, run: SharedRun) -> ops.StatusBase:
    waits = "; the new version waits for its end" if now.refresh_waits else ""
    own = now.words.get(now.unit)
    own = own if own is not None and own.run == run.id else None
    if now.unit in run.missing:
        return ops.ActiveStatus(f"no part in the run: {run.missing[now.unit]}{waits}")
    if own is not None and own.phase == "failed":
        return ops.ActiveStatus(f"no part in the run: {own.problem}{waits}")
    alone = not now.leads and run.units != [now.unit]
    if not run.turns and not run.stopped and (own is None or own.phase == "making"):
        preparing = "" if own is None or own.progress is None else own.progress.preparing
        return ops.MaintenanceStatus(f"making ready{': ' * bool(preparing)}{preparing}{waits}")
    if alone and not run.turns and not run.stopped:
        return ops.ActiveStatus(f"ready, the other units make ready{waits}")
    # Who is missing is the leader's to say: of others, this unit knows nothing.
    seen = run.model_copy(update={"missing": {}, "units": [now.unit]}) if alone else run
    return ops.ActiveStatus(summary(seen, now.words) + waits)


def where(access: TargetAccess) -> str:
    """Where a target is, for people."""
    return f"at {access.address}" if access.address else "at what the token names"


def _last(run: SharedRun | None) -> str:
    """The last run, and what became of units that had no part in it to its end."""
    if run is None:
        return ""
    lacking = [unit for unit in run.units if unit in run.missing]
    if not lacking:
        return f"; last run {run.id}" + (f" stopped: {run.stopped}" if run.stopped else "")
    why = run.missing[lacking[0]]
    if len(lacking) == len(run.units):
        return f"; last run {run.id} failed: {why}"
    return f"; last run {run.id} lacks {len(lacking)} of {len(run.units)} units: {lacking[0]}: {why}"
