"""Words between units take no time in these tests."""

from __future__ import annotations

import pytest

from tippingpoint.units import shared_run


@pytest.fixture(autouse=True)
def quick_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words take no time here, so that a moment may be named shortly before it comes."""
    monkeypatch.setattr(shared_run, "lead", _half_a_second)


def _half_a_second(units: int) -> float:
    return 0.5
