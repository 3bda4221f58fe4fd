"""Finds what a lost unit created on the target, by names derived from the run's. Another unit then removes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tippingpoint.agent.part import part_name, plan_of
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import remember
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.targets.registry import target_of
from tippingpoint.util import timing


def inherit(run: SharedRun, unit: str, target: Mapping[str, Any], parts: Path) -> str:
    """Make a directory below `parts` with a ledger of everything that a lost unit may have made; returns its name.

    The lost unit's measurements are lost. Raises UserError when the target is unknown, or without disk space.
    """
    name = part_name(run, unit)
    directory = parts / name
    plan = plan_of(run, unit, target)
    try:
        directory.mkdir(mode=0o755, exist_ok=True)
        Manifest(
            id=name,
            title=plan.name,
            workload=plan.workload.kind,
            load_unit=plan.load_unit,
            target=TargetEntry(kind=plan.target.kind),
            unit=unit,
            status="cut",
            reason=f"{unit} was lost: {run.missing.get(unit, '')}",
            started=run.started or run.made,
            ended=timing.wall(),
        ).save(directory)
    except OSError as problem:
        raise UserError(
            "--state", str(directory), f"a directory with free disk space ({problem.strerror})"
        ) from None
    remember(directory, target_of(plan.target.kind).new_entry(plan, name, directory))
    return name
