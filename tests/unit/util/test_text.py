"""What others say is one line that a terminal can be shown, and what is counted agrees with its count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import LONGEST_LINE, TargetError, UserError, one_line
from tippingpoint.util.text import show_amount, show_load, show_names, show_processors


@given(
    st.text(max_size=2000) | st.binary(max_size=2000).map(lambda raw: raw.decode(errors="surrogateescape"))
)
def test_whatever_is_said_is_a_line_that_can_be_shown(text: str) -> None:
    for line in (
        one_line(text),
        str(UserError(text, text, text)),
        str(TargetError(text, text, text)),
    ):
        assert line.isprintable()
        line.encode()  # which no surrogate would survive
        assert len(line) < 5000
    assert len(one_line(text)) <= LONGEST_LINE


def test_what_cannot_be_printed_is_escaped_and_the_rest_stays() -> None:
    assert one_line("größe \x1b[31mred\x00 \udcff\n two") == "größe \\x1b[31mred\\x00 \\udcff two"


@pytest.mark.parametrize(
    ("names", "shown"),
    [(["0"], "worker 0"), (["0", "1"], "workers 0 and 1"), (["0", "1", "2"], "workers 0, 1 and 2")],
)
def test_names_agree_with_their_number(names: list[str], shown: str) -> None:
    assert show_names(names, "worker") == shown


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [
        ([3], "processor 3"),
        ([0, 1], "processors 0 and 1"),
        ([1, 2, 3], "processors 1 to 3"),
        ([0, 2, 4, 5, 6, 7, 9], "processors 0, 2, 4 to 7 and 9"),
    ],
)
def test_processors_next_to_each_other_are_a_range(numbers: list[int], shown: str) -> None:
    assert show_processors(numbers) == shown


@pytest.mark.parametrize(
    ("size", "unit", "shown"),
    [
        (1, "containers", "1 container"),
        (1, "leases", "1 lease"),
        (2, "servers", "2 servers"),
        (0, "units", "0 units"),
        (16_000, "leases", "16,000 leases"),
    ],
)
def test_a_load_agrees_with_its_number(size: int, unit: str, shown: str) -> None:
    assert show_amount(size, unit) == shown
    assert show_load(size, unit) == f"at {shown}"
