"""Messages of protocol buffers as bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.util.protobuf import Malformed, fields, integer, integers, text, varint

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)


def test_integers_are_those_of_the_protobuf_documentation() -> None:
    assert integer(1, 150) == b"\x08\x96\x01"
    assert varint(-2) == b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    assert text(2, b"testing") == b"\x12\x07testing"


@given(st.lists(st.tuples(st.integers(1, 1 << 20), st.one_of(INTEGERS, st.binary(max_size=300)))))
def test_fields_come_back_as_they_were_written(written: list[tuple[int, int | bytes]]) -> None:
    message = b"".join(
        integer(number, value) if isinstance(value, int) else text(number, value) for number, value in written
    )
    assert list(fields(message)) == written


def test_fields_of_fixed_size_are_passed_over() -> None:
    message = b"\x0d1234" + b"\x1112345678" + integer(3, 7)
    assert list(fields(message)) == [(1, b"1234"), (2, b"12345678"), (3, 7)]


@given(st.lists(INTEGERS))
def test_repeated_integers_are_read_packed_or_alone(written: list[int]) -> None:
    assert list(integers(b"".join(map(varint, written)))) == written
    assert [each for number in written for each in integers(number)] == written


def test_packed_integers_that_are_cut_short_are_refused() -> None:
    with pytest.raises(Malformed, match=r"^unfinished integer$"):
        list(integers(b"\x01\x80"))
