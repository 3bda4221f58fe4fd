"""The files of published results that the suite ships: of each target, and of systems that are no target."""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from tippingpoint.importers.juju_log_lines import SIDECAR_SUFFIX
from tippingpoint.plan.packages import shipped_files

PREFIX = "seed:"
"""Stands before the name of a baseline where a run may stand too."""


@cache
def published_files() -> dict[str, Traversable]:
    """The files in our folder of baselines, and in the folders `published` of targets, by name."""
    ours = resources.files("tippingpoint.compare") / "baselines"
    files = [*ours.iterdir(), *shipped_files("published")]
    return {file.name: file for file in sorted(files, key=lambda file: file.name)}


def baseline_texts() -> dict[str, str]:
    """The names of all baselines, and their texts in YAML."""
    return {
        name.removesuffix(".yaml"): file.read_text(encoding="utf-8")
        for name, file in published_files().items()
        if name.endswith(".yaml") and not name.endswith(SIDECAR_SUFFIX)
    }
