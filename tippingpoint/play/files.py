"""Lets the workers of a run open as many files as their connections need."""

from __future__ import annotations

from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.targets.target import Connections
from tippingpoint.util.open_files import OTHER_FILES, allow_connections
from tippingpoint.util.text import show_count

_AT_ONCE = 10_000
"""The most things that a plan may make at once. Each call under way has its own connection, and a login shell allows
1,024 files."""


def allow_files(plan: Plan, connections: Connections, workers: int, of_worker: Connections) -> None:
    """Raise the limit of open files of this process, and of the workers that it starts.

    `connections` are shared among the workers; each of them has all of `of_worker`. Raises UserError for a plan that
    needs more files than a worker's process may open.
    """
    for field, (size, each) in of_worker.items():
        fits = allow_connections(size * each) // each
        if fits < size:
            raise UserError(
                field,
                size,
                f"a limit of open files (ulimit -n) of at least {size * each + OTHER_FILES}, as each of the run's "
                f"workers has {show_count(size * each, 'connection')}; this one allows {fits}",
            )
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
