"""Durations in texts that may be of any length."""

from __future__ import annotations

import pytest

from tests.unit.endless import ends
from tippingpoint.util.durations import parse_duration, parse_go_duration


@pytest.mark.parametrize("text", ["1" * 300_000 + "x", "1." * 150_000, "." * 300_000, "1m" * 150_000 + "1"])
def test_a_long_text_is_no_duration(text: str) -> None:
    with ends():
        with pytest.raises(ValueError, match="a duration such as"):
            parse_duration(text)
        assert parse_go_duration(text) is None


def test_parts_add_up() -> None:
    assert (parse_duration("1m30.5s"), parse_go_duration("1m31.99s"), parse_go_duration("1m 2s")) == (
        90.5,
        91.99,
        None,
    )
