"""What programs of the lab do to their own process ends with the test that calls them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def processors() -> Iterator[None]:
    """Give this thread its processors back: a program that starts labs keeps off those of its targets."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)
