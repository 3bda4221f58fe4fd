"""Chooses a unit's status: the first that applies, with what to do about it.

`juju status` cuts a line at 120 characters, so a command in it must end within LEGIBLE.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ops

from tippingpoint.conduct.director import summary
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint_charm.access import TargetAccess

LEGIBLE = 100
"""The number of characters of a status that are always visible."""


@dataclass(frozen=True)
class Login:
    """How the last login to the target went; `problem` is empty if it did not fail, or is still `trying`."""

    problem: str = ""
    refused: bool = False
    trying: bool = False


@dataclass
class Situation:
    """The facts that a unit's status depends on."""

    unit: str
    problem: str = ""
    """The problem of configuration or machine that keeps the unit from working, in one line."""
    away: str = ""
    """Why the agent does not answer, and where to look."""
    late: str = ""
    """Why news of the agent come late, in one line."""
    run: SharedRun | None = None
    words: dict[str, UnitWord | None] = field(default_factory=dict[str, UnitWord | None])
    """The words of the unit itself and, on the leader, of all other units."""
    leads: bool = False
    unreached: str = ""
    """Why this unit cannot reach the target of the current run."""
    access: TargetAccess | None = None
    """The access to the configured target."""
    login: Login = Login()
    """How the last login to the target went."""
    mend: str = ""
    """If the login was refused, the command or relation that gives other credentials."""
    left: str = ""
    """What the last run may have left in the target, in one line."""
    lacking: str = ""
    """What else is missing for a run, in one line."""
    refresh_waits: bool = False
    """Whether a new version of the charm waits for the end of the run."""


def status_of(now: Situation) -> ops.StatusBase:
    """Return the status of a unit in this situation."""
    status = _status_of(now)
    if now.late and isinstance(status, ops.ActiveStatus | ops.MaintenanceStatus):
        return type(status)(f"{now.late}; {status.message}")
    return status


def _status_of(now: Situation) -> ops.StatusBase:
    if now.problem:
        return ops.BlockedStatus(now.problem)
    if now.run is not None and not now.run.over:
        if now.unreached:
            return ops.BlockedStatus(f"{now.unreached}: takes no part in {now.run.id}")
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
        return ops.BlockedStatus(f"{now.mend}: {now.login.problem}")
    if now.login.trying:
        return ops.WaitingStatus(f"trying the login: {now.access.kind} ({where(now.access)})")
    if now.login.problem:
        return ops.WaitingStatus(f"{now.access.kind} cannot be reached: {now.login.problem}")
    left = f"{now.left}; " if now.left else ""
    return ops.ActiveStatus(f"{left}ready: {now.access.kind} ({where(now.access)}){_last(now.run)}")


def _running(now: Situation, run: SharedRun) -> ops.StatusBase:
    waits = "; the new version starts after the run" if now.refresh_waits else ""
    own = now.words.get(now.unit)
    own = own if own is not None and own.run == run.id else None
    if now.unit in run.missing:
        return ops.ActiveStatus(f"takes no part in the run: {run.missing[now.unit]}{waits}")
    if own is not None and own.phase == "failed":
        return ops.ActiveStatus(f"takes no part in the run: {own.problem}{waits}")
    alone = not now.leads and run.units != [now.unit]
    if not run.turns and not run.stopped and (own is None or own.phase == "making"):
        preparing = "" if own is None or own.progress is None else own.progress.preparing
        return ops.MaintenanceStatus(f"preparing the run{': ' * bool(preparing)}{preparing}{waits}")
    if alone and not run.turns and not run.stopped:
        return ops.ActiveStatus(f"ready, waiting for the other units{waits}")
    # Only the leader knows which units are missing.
    seen = run.model_copy(update={"missing": {}, "units": [now.unit]}) if alone else run
    return ops.ActiveStatus(summary(seen, now.words) + waits)


def where(access: TargetAccess) -> str:
    """Say where a target is, and what is dangerous about the way there, for people."""
    place = f"at {access.address}" if access.address else "at the address in the token"
    return f"{place}; {access.danger}" if access.danger else place


def _last(run: SharedRun | None) -> str:
    """Describe the last run, and any units that did not take part to its end."""
    if run is None:
        return ""
    lacking = [unit for unit in run.units if unit in run.missing]
    if not lacking:
        return f"; last run {run.id}" + (f" stopped: {run.stopped}" if run.stopped else "")
    why = run.missing[lacking[0]]
    if len(lacking) == len(run.units):
        return f"; last run {run.id} failed: {why}"
    return f"; last run {run.id} lacks {len(lacking)} of {len(run.units)} units: {lacking[0]}: {why}"
