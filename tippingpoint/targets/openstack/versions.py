"""Microversions: choosing one of those that a service offers."""

from __future__ import annotations

import re
from typing import Any, cast

Version = tuple[int, int]

SERVERS: Version = (2, 37)
"""The compute API for creating and listing servers: the first with `networks: none`. Later ones have longer lists."""
FLAVORS: Version = (2, 55)
"""The first with a description of flavors, which carries the run's mark."""


def read_version(text: object) -> Version | None:
    """Read a version such as "2.37"; None if it is not one."""
    found = re.fullmatch(r"v?(\d{1,4})\.(\d{1,4})", text) if isinstance(text, str) else None
    return (int(found[1]), int(found[2])) if found else None


def show_version(version: Version) -> str:
    """Return a version in the form that headers use."""
    return f"{version[0]}.{version[1]}"


def offered(document: object) -> tuple[Version, Version] | None:
    """Return the lowest and the highest microversion in a service's version document.

    The document is of one version or of several. None if it has no microversions, or is another document.
    """
    if not isinstance(document, dict):
        return None
    told = cast("dict[str, Any]", document)
    several = told.get("versions")
    for each in cast("list[Any]", several) if isinstance(several, list) else [told.get("version")]:
        if not isinstance(each, dict):
            continue
        entry = cast("dict[str, Any]", each)
        high = read_version(entry.get("version") or entry.get("max_version"))
        low = read_version(entry.get("min_version"))
        if high is not None and low is not None and low <= high:
            return low, high
    return None


def choose(wanted: Version, has: tuple[Version, Version]) -> Version:
    """Return the wanted version, or the nearest that a service offers."""
    low, high = has
    return min(max(wanted, low), high)
