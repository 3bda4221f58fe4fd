"""What is worse in one direction is better in the other, by the same ratio."""

from __future__ import annotations

import pytest

from tippingpoint.compare.pair import Against


def assert_mirrored(there: Against, back: Against) -> None:
    """Assert that a figure says the same of two releases, whichever of them comes first."""
    assert [1 / (one or 0.0) for one in (there.change, there.high, there.low)] == pytest.approx(
        [back.change, back.low, back.high]
    )
    assert back.judgement == {"worse": "better", "better": "worse"}.get(str(there.judgement), there.judgement)
