"""Builds the section on profiles of the target: the functions whose share changed where it tipped."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tippingpoint.analysis.profiles import Profiled


def build_profiles(profiled: Profiled | None) -> dict[str, Any]:
    """Return `profiles`: the fields of Profiled; nothing if the plan takes no profiles."""
    return {} if profiled is None else {"profiles": asdict(profiled)}
