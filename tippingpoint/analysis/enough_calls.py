"""How many calls a percentile needs: unless one is beyond it, it is merely the largest of them and says little."""

from __future__ import annotations

from math import ceil


def calls_needed(percentile: float) -> int:
    """Return the smallest number of calls of which one is beyond a percentile (0..100): 1,000 for 99.9; 1 for 100."""
    return 1 if percentile >= 100 else ceil(round(100 / (100 - percentile), 6))


def too_few(name: str, percentile: float, calls: int) -> str:
    """Return why this many calls cannot show a percentile, called `name` in the text; empty if they can."""
    needed = calls_needed(percentile)
    return "" if calls >= needed else f"not enough calls to judge {name}: {calls:,} of at least {needed:,}"
