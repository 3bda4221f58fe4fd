"""The runs that arguments name: by a path, as `last`, or by an unambiguous beginning of an id or of its last parts."""

from __future__ import annotations

import argparse
from pathlib import Path

RUNS = Path("runs")
"""The default directory of runs."""
LAST = "last"
_MANIFEST = "manifest.json"
"""rundir/manifest.py defines it too, but refusing an option needs none of the imports there."""
_SHOWN = 3


def named_run(text: str) -> Path:
    """Return the directory that an argument names: a path, `last`, or a run in ./runs by a part of its id.

    An unknown name is returned unchanged: opening it gives the error.
    """
    path = Path(text)
    if text != LAST and (path.exists() or "/" in text):
        return path
    ids = run_ids(RUNS)
    if text == LAST:
        if not ids:
            raise argparse.ArgumentTypeError(
                f"last: there is no run in ./{RUNS} yet; expected a run's directory"
            )
        return RUNS / ids[-1]
    found = [name for name in ids if _begins(name, text)]
    if len(found) > 1:
        shown = ", ".join(found[-_SHOWN:])
        raise argparse.ArgumentTypeError(
            f"{text}: expected more of an id, as {len(found)} runs begin so: {'... ' * (len(found) > _SHOWN)}{shown}"
        )
    return RUNS / found[0] if found else path


def named_source(text: str) -> str:
    """Return the run that an argument names, which may also be a published result (seed:NAME) or a digest file."""
    return text if ":" in text else str(named_run(text))


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
