"""The versions of MAAS that the suite knows."""

from __future__ import annotations

import re
from collections.abc import Mapping

Version = tuple[int, int]

OLDEST: Version = (3, 3)
"""The oldest MAAS that the suite was made for; 3.7 is the newest. Their API has the version 2.0 throughout."""

_SIMULATED = "simulated"
"""What a simulated region has as `subversion`, where others have a revision, or nothing."""


def shown_version(facts: Mapping[str, object]) -> str:
    """Return the version of an answer to version/ as a report shows it, marked if the region is simulated."""
    version = str(facts.get("version") or "")
    return f"{version}-{_SIMULATED}" if facts.get("subversion") == _SIMULATED else version


def read_version(text: object) -> Version | None:
    """Read the version that a MAAS reports, such as "3.3.11" or "3.7.0~beta1"; None if it is not one."""
    found = re.match(r"(\d{1,3})\.(\d{1,3})(?!\d)", text) if isinstance(text, str) else None
    return (int(found[1]), int(found[2])) if found else None
