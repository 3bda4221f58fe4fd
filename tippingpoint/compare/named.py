"""Loads and compares runs by name: a run's directory, a digest file, or seed:NAME for a published result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tippingpoint.compare.baseline_texts import PREFIX
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import Comparison, compare
from tippingpoint.errors import UserError
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.units.digest_file import SUFFIX, load_digest_file


def load_named(name: str) -> RunData | None:
    """Load the run in a directory or a digest file, or that of a baseline's published transcript; None if it has
    none."""
    return load_baseline(name).run() if name.startswith(PREFIX) else _run_at(Path(name))


def _run_at(path: Path) -> RunData:
    is_digest = path.suffix == SUFFIX or path.is_fifo() or path.is_socket()  # a run's directory is no pipe
    return load_digest_file(path) if is_digest else load_run(path)


def compare_repeats(
    releases: Sequence[Sequence[str]], control: Sequence[str], tolerance: float
) -> Comparison:
    """Compare releases, each by its runs, with the first of them, and with its `control`: further runs of it.

    Raises UserError if there is only one release, for a published result, for a run that is named twice, if a run
    cannot be read, and in all cases of `compare`.
    """
    names = [name for of in (*releases, control) for name in of]
    if len(releases) < 2:
        raise UserError("--control", ", ".join(control), "runs of another release, after --with")
    for name in names:
        if name.startswith(PREFIX):
            raise UserError("compare", name, "directories of runs: a published result has no repeats")
    loaded = {name: _run_at(Path(name)) for name in names}
    ids = [loaded[name].manifest.id for name in names]
    for run in ids:
        if ids.count(run) > 1:
            raise UserError("compare", run, "each run once")
    sets = [[loaded[name] for name in of] for of in releases]
    return compare(sets, tolerance, control=[loaded[name] for name in control])


def compare_named(names: Sequence[str], tolerance: float) -> Comparison:
    """Compare runs and baselines with the first of them.

    Raises UserError if one cannot be read, if there is only one, and in all cases of `compare`.
    """
    if len(names) < 2:
        raise UserError("compare", ", ".join(names), "two runs or more, or a run and a baseline")
    beside = [load_baseline(name) for name in names if name.startswith(PREFIX)]
    runs = [run for run in map(load_named, names) if run is not None]
    return compare(runs, tolerance, beside)
