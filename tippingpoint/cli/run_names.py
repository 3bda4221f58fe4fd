"""The runs that arguments name: by a path, as `last`, or by an unambiguous part of an id."""

from __future__ import annotations

import argparse
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.util.text import nearest

RUNS = Path("runs")
"""The default directory of runs."""
LAST = "last"
_MANIFEST = "manifest.json"
"""rundir/manifest.py defines it too, but refusing an option needs none of the imports there."""
_SHOWN = 3
ACCEPTED = "`last`, a part of the id of one run in ./runs, or a run's directory"
"""What names a run."""


def named_run(text: str) -> Path:
    """Return the directory that an argument names: a path, `last`, or a run in ./runs by a part of its id.

    A path that does not exist is returned unchanged: opening it gives the error. Raises ArgumentTypeError for a name
    that no run has, or several have.
    """
    path = Path(text)
    if text and text != LAST and (path.exists() or "/" in text):
        return path
    ids = run_ids(RUNS)
    if text == LAST:
        if not ids:
            raise argparse.ArgumentTypeError(
                f"{LAST}: expected a run's directory, as ./{RUNS} has no run yet"
            )
        return RUNS / ids[-1]
    found = [text] if text in ids else [name for name in ids if _begins(name, text)]
    if len(found) > 1:
        older = f"{len(found) - _SHOWN} older, " if len(found) > _SHOWN else ""
        raise argparse.ArgumentTypeError(
            f"{text}: expected a longer part of an id, as {len(found)} runs match: {older}{', '.join(found[-_SHOWN:])}"
        )
    if not found:
        raise argparse.ArgumentTypeError(f"{text or 'empty'}: expected {ACCEPTED}{nearest(text, ids)}")
    return RUNS / found[0]


def named_source(text: str) -> str:
    """Return the run that an argument names, which may also be a published result (seed:NAME) or a digest file."""
    return text if ":" in text else str(named_run(text))


def check_runs(argument: str, directory: Path) -> None:
    """Raise UserError, which begins with the argument, unless this is a directory that may have runs."""
    accepted = "a directory with runs"
    if (directory / _MANIFEST).is_file():
        raise UserError(argument, str(directory), f"{accepted}, such as {directory.parent}; this is one run")
    if not directory.is_dir():
        raise UserError(argument, str(directory), f"{accepted} (tippingpoint run makes one)")


def run_ids(directory: Path) -> list[str]:
    """Return the ids of the runs in a directory, the oldest first; none if there is no such directory."""
    try:
        return sorted(entry.name for entry in directory.iterdir() if (entry / _MANIFEST).is_file())
    except OSError:
        return []


def _begins(name: str, text: str) -> bool:
    """Whether an id, or its parts from one of its dashes on, begins with a text: 20261122-2119, etcd-ramp, 5c51."""
    parts = name.split("-")
    return bool(text) and any("-".join(parts[first:]).startswith(text) for first in range(len(parts)))
