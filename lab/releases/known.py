"""Which releases there are: what each suite of Debian has of each target, and how a name is matched with them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lab.control import LabError

SUITES = ("trixie", "bookworm", "bullseye", "forky", "sid")
"""Suites of Debian. Those that stay as they are come first, as a version is taken from the first that has it."""
GO_MODULES = "go"
"""The origin of what is built from Go modules."""
KNOWN = {
    "etcd": {
        "bullseye": "3.3.25",
        "bookworm": "3.4.23",
        "trixie": "3.5.16",
        "forky": "3.5.30",
        "sid": "3.5.30",
    },
    "lxd": {"bookworm": "5.0.2", "trixie": "5.0.2+git20231211.1364ae4"},
    "pacemaker": {
        "bullseye": "2.0.5",
        "bookworm": "2.1.5",
        "trixie": "3.0.0",
        "forky": "3.0.1",
        "sid": "3.0.3",
    },
    "incus": {"trixie": "6.0.4", "forky": "7.0.2", "sid": "7.0.2"},
    "openstack": {"bullseye": "22.0.1", "bookworm": "26.2.2", "trixie": "31.0.0"},
    "rabbitmq": {
        "bullseye": "3.8.9",
        "bookworm": "3.10.8",
        "trixie": "4.0.5",
        "forky": "4.3.6",
        "sid": "4.3.6",
    },
}
"""The version that each suite had in November 2026, by target. forky and sid move on."""
_BUILT = {"etcd": (3, 5)}
"""Targets that are built from Go modules too, and the first version for which that is possible."""
_VERSION = re.compile(r"\d+(\.\d+)*(\+\w[\w.]*)?")


@dataclass(frozen=True)
class Origin:
    """Where a release may come from: a suite or GO_MODULES, and the version that is expected of it."""

    name: str
    version: str


def origins(target: str, asked_for: str) -> list[Origin]:
    """Return where a release may come from, the best first. LabError when nothing is known by this name.

    A name is a suite or a version. A version may be short: 3.4 stands for 3.4.23.
    """
    known = KNOWN[target]
    if asked_for in known:
        return [Origin(asked_for, known[asked_for])]
    found = [
        Origin(suite, known[suite])
        for suite in SUITES
        if suite in known and is_meant(asked_for, known[suite])
    ]
    found.sort(key=lambda origin: origin.version != asked_for)  # 5.0.2 itself before 5.0.2+git
    if _VERSION.fullmatch(asked_for) and _can_be_built(target, asked_for):
        found.append(Origin(GO_MODULES, asked_for))
    if not found:
        raise LabError(f"release: {target} {asked_for}", expected(target))
    return found


def is_meant(asked_for: str, version: str) -> bool:
    """Whether a version is the one that was asked for, or begins with it."""
    return version == asked_for or version.startswith((f"{asked_for}.", f"{asked_for}+"))


def expected(target: str) -> str:
    """Say which names there are."""
    known = KNOWN[target]
    there = ", ".join(f"{suite} ({known[suite]})" for suite in sorted(known, key=lambda suite: known[suite]))
    first = _BUILT.get(target)
    newer = f", or with `go` a version from {'.'.join(map(str, first))} on" if first else ""
    return f"a suite or version of Debian: {there}{newer}"


def _can_be_built(target: str, version: str) -> bool:
    first = _BUILT.get(target)
    numbers = tuple(int(part) for part in version.split(".") if part.isdecimal())
    return first is not None and len(numbers) > 1 and numbers >= first
