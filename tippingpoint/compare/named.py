"""Loads and compares runs by name: a run's directory, a digest file, or seed:NAME for a published result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tippingpoint.compare.baseline_texts import PREFIX
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import Comparison
from tippingpoint.digest.digest_file import SUFFIX, load_digest_file
from tippingpoint.errors import UserError
from tippingpoint.rundir.copies import without_copies
from tippingpoint.rundir.results import RunData, load_run


def load_named(name: str) -> RunData | None:
    """Load the run of a directory, a digest file or a baseline's published transcript; None for a baseline without
    one."""
    return load_baseline(name).run() if name.startswith(PREFIX) else _run_at(Path(name))


def _run_at(path: Path) -> RunData:
    is_digest = path.suffix == SUFFIX or path.is_fifo() or path.is_socket()  # a run's directory is not a pipe
    return load_digest_file(path) if is_digest else load_run(path)


def compare_repeats(
    releases: Sequence[Sequence[str]], control: Sequence[str], tolerance: float
) -> Comparison:
    """Compare releases, each given by its runs, with the first one and its `control`, which are further runs of it.

    A copy of a run counts once, with a caution. Raises UserError if there is only one release, for a published result,
    for a run that is named twice, or whose copy is given for another release, if a run cannot be read, and in all cases
    of `compare`.
    """
    names = [name for of in (*releases, control) for name in of]
    if len(releases) < 2:
        raise UserError("--control", ", ".join(control), "runs of another release, after --with")
    for name in names:
        if name.startswith(PREFIX):
            raise UserError("compare", name, "directories of runs: a published result has no repeats")
    loaded = {Path(name): _run_at(Path(name)) for name in names}
    paths = [Path(name).resolve() for name in names]
    cautions: list[str] = []
    sets: list[list[RunData]] = []
    for of in (*releases, control):
        once, copies = without_copies((Path(name), loaded[Path(name)].manifest) for name in of)
        sets.append([loaded[path] for path in once])
        cautions += copies
    ids = [run.manifest.id.lower() for of in sets for run in of]
    for name, path in zip(names, paths, strict=True):
        run = loaded[Path(name)].manifest.id
        if paths.count(path) > 1 or ids.count(run.lower()) > 1:
            raise UserError("compare", run, "each run once")
    *joined, again = sets
    return compare(joined, tolerance, control=again, cautions=cautions)


def compare_named(names: Sequence[str], tolerance: float) -> Comparison:
    """Compare runs and baselines with the first of them.

    A copy of a run counts once, with a caution. Raises UserError if one cannot be read, if there is only one, and in
    all cases of `compare`.
    """
    if len(names) < 2:
        raise UserError("RUN", ", ".join(names), "two runs or more, or a run and seed:NAME")
    beside = [load_baseline(name) for name in names if name.startswith(PREFIX)]
    loaded = {Path(name): run for name in names if (run := load_named(name)) is not None}
    once, copies = without_copies((path, run.manifest) for path, run in loaded.items())
    if len(once) + len(beside) < 2:
        raise UserError("compare", loaded[once[0]].manifest.id, "each run once")
    return compare([loaded[path] for path in once], tolerance, beside, cautions=copies)
