"""Words between units take no time in these tests."""

from __future__ import annotations

import pytest

from tippingpoint.conduct import run_state


@pytest.fixture(autouse=True)
def quick_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words take no time here, so that a moment may be named shortly before it comes."""
    monkeypatch.setattr(run_state, "lead", _half_a_second)


def _half_a_second(units: int) -> float:
    return 0.5
