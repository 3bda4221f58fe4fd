"""Finds copies of runs, such as a backup of a run's directory: an id identifies a run, wherever it is kept."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tippingpoint.rundir.manifest import Manifest


def without_copies(runs: Iterable[tuple[Path, Manifest]]) -> tuple[list[Path], list[str]]:
    """Return the directories (or digest files) of runs in their order, each run once, and a line for each copy.

    Of several copies the first one stays, or the first that was made after the run's end. A path that is given twice is
    no copy and has no line. Digests have the id in lower case.
    """
    found: dict[str, dict[Path, tuple[Path, Manifest]]] = {}
    for path, manifest in runs:
        found.setdefault(manifest.id.lower(), {}).setdefault(path.resolve(), (path, manifest))
    kept: list[Path] = []
    lines: list[str] = []
    for same in found.values():
        ended = [path for path, manifest in same.values() if manifest.status != "running"]
        every = [path for path, _ in same.values()]
        stays = (ended or every)[0]
        kept.append(stays)
        run = next(manifest.id for _, manifest in same.values())
        lines += [
            f"{run}: {path} is a copy of {stays}: the run counts once" for path in every if path != stays
        ]
    return kept, lines
