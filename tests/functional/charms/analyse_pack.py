"""Asks charmcraft about an unpacked charm, by the Python of .cache/charmcraft: `analyse_pack.py DIRECTORY VERSION`.

Prints JSON: what its models read, the result of each check of `charmcraft analyze` by its name, and what the charm's
packages lack on that version of Python. charmcraft 4.5 knows neither the dispatch script nor the layout of its own uv
plugin. So this shows its checks the script with its variable replaced, and ops where they look for it. `pip check`,
which one of them runs, needs a Python that runs the charm; this asks the same of the packages' metadata.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

import yaml
from charmcraft import linters
from charmcraft.models.manifest import Manifest
from charmcraft.models.metadata import CharmMetadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_NOT_HERE = {"pip-check"}


def read(charm: Path) -> list[object]:
    """The name, and each base with its channel and architectures."""
    manifest = Manifest.model_validate(yaml.safe_load((charm / "manifest.yaml").read_text()))
    metadata = CharmMetadata.model_validate(yaml.safe_load((charm / "metadata.yaml").read_text()))
    return [metadata.name, *([base.name, base.channel, base.architectures] for base in manifest.bases or [])]


def analyse(charm: Path) -> dict[str, str]:
    """The results of charmcraft's checks, by name."""
    dispatch = charm / "dispatch"
    dispatch.write_text(dispatch.read_text().replace("${dispatch_path}", "."))
    (packages,) = charm.glob("venv/lib/python3.*/site-packages")
    (charm / "venv" / "ops").symlink_to(packages / "ops")
    checkers = [checker() for checker in linters.CHECKERS if checker.name not in _NOT_HERE]
    return {checker.name: checker.run(charm) for checker in checkers}


def lacking(charm: Path, python: str) -> list[str]:
    """Requirements of the charm's packages that are not there or have another version."""
    (packages,) = charm.glob("venv/lib/python3.*/site-packages")
    found = {canonicalize_name(each.name): each for each in distributions(path=[str(packages)])}
    environment = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    return [
        f"{each.name}: {required}"
        for each in found.values()
        for required in map(Requirement, each.requires or [])
        if required.marker is None or required.marker.evaluate(environment)
        if not _is_met(required, found)
    ]


def _is_met(required: Requirement, found: dict[str, Distribution]) -> bool:
    there = found.get(canonicalize_name(required.name))
    return there is not None and required.specifier.contains(there.version, prereleases=True)


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    said = {"read": read(directory), "checks": analyse(directory), "lacking": lacking(directory, sys.argv[2])}
    print(json.dumps(said))
