"""Runs by the names that people have for them: a run's directory, or seed:NAME."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tippingpoint.compare.baseline_texts import PREFIX
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import Comparison, compare
from tippingpoint.errors import UserError
from tippingpoint.rundir.results import RunData, load_run


def load_named(name: str) -> RunData | None:
    """The run in a directory, or the one a baseline's published transcript makes; None when it has none."""
    return load_baseline(name).run() if name.startswith(PREFIX) else load_run(Path(name))


def compare_named(names: Sequence[str], tolerance: float) -> Comparison:
    """Runs and baselines beside the first of them.

    UserError when one cannot be read, where there is only one, and what `compare` refuses.
    """
    if len(names) < 2:
        raise UserError("compare", ", ".join(names), "two runs or more, or a run and a baseline")
    beside = [load_baseline(name) for name in names if name.startswith(PREFIX)]
    runs = [run for run in map(load_named, names) if run is not None]
    return compare(runs, tolerance, beside)
