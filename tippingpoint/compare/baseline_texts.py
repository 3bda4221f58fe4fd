"""The files of published results that the suite ships: for each target, and for systems that are not targets."""

from __future__ import annotations

from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from tippingpoint.importers.juju_log_lines import SIDECAR_SUFFIX
from tippingpoint.plan.packages import shipped_files

PREFIX = "seed:"
"""Prefix of a baseline's name where a run may also be given."""


@cache
def published_files() -> dict[str, Traversable]:
    """The files in our folder of baselines and in the targets' folders `published`, by name."""
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
