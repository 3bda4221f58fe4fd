"""For the tests on LXD."""

from __future__ import annotations

import pytest

from tests.functional.program import WITHIN_S
from tippingpoint.targets.lxd import capacity


@pytest.fixture
def patient_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check for room waits for members for as long as a machine may stand still, not for three heartbeats."""
    for name in ("ONLINE_WITHIN", "TELLS_WITHIN"):
        monkeypatch.setattr(capacity, name, WITHIN_S)
