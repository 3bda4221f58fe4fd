"""Exponential backoff with jitter: how long to wait before a retry or the next poll."""

from __future__ import annotations

import random

FIRST_RETRY = 1.0
LONGEST_RETRY = 30.0
"""Defaults in seconds: the wait after the first failure, and the longest wait."""


def backoff(failures: int, first: float | None = None, longest: float | None = None) -> float:
    """Return the seconds to wait after this many failures in a row (from 1).

    The wait is `first`, doubled with each further failure up to `longest`. Up to a quarter is taken off at random, so
    that callers that failed together do not retry together.
    """
    first = FIRST_RETRY if first is None else first
    longest = LONGEST_RETRY if longest is None else longest
    return doubled(failures, first, longest) * random.uniform(0.75, 1.0)


def doubled(times: int, first: float, longest: float) -> float:
    """Return the seconds to wait the `times`-th time (from 1): `first`, doubled each time up to `longest`."""
    return min(longest, first * 2.0 ** min(times - 1, 20))
