"""How long to wait before what failed is tried again, or what is not there yet is looked for again."""

from __future__ import annotations

import random

FIRST_RETRY = 1.0
LONGEST_RETRY = 30.0
"""Seconds before what failed once is tried again, and the longest that is waited, unless the caller has others."""


def backoff(failures: int, first: float | None = None, longest: float | None = None) -> float:
    """Seconds to wait after so many failures in a row, from 1: `first`, doubled with each up to `longest`, and up to a
    quarter less at random, so that those who failed together do not come back together."""
    first = FIRST_RETRY if first is None else first
    longest = LONGEST_RETRY if longest is None else longest
    return doubled(failures, first, longest) * random.uniform(0.75, 1.0)


def doubled(times: int, first: float, longest: float) -> float:
    """Seconds to wait the so-manieth time, from 1: `first`, doubled each time up to `longest`."""
    return min(longest, first * 2.0 ** min(times - 1, 20))
