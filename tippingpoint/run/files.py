"""Lets the workers of a run open as many files as their connections need."""

from __future__ import annotations

from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.targets.target import Connections
from tippingpoint.util.open_files import allow_connections

_AT_ONCE = 10_000
"""The most things that a plan may make at once. A call under way has a connection to itself, and a login shell allows
1,024 files."""


def allow_files(plan: Plan, connections: Connections, workers: int) -> None:
    """Raise the limit of open files of this process, and of the workers that it starts.

    Raises UserError for a plan that needs more `connections` than a worker's process may open.
    """
    if isinstance(plan, SpawnPlan):
        allow_connections(_AT_ONCE)
    for field, (size, each) in connections.items():
        fits = allow_connections(-(-size // workers) * each) // each * workers
        if fits < size:
            raise UserError(
                field,
                size,
                f"at most {fits}: each of the run's workers ({workers}) connects its share of the units, and its "
                f"limit of open files (ulimit -n) allows no more; raise the limit or use more workers",
            )
