"""A long list is cut into its objects, in whatever blocks it comes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.endless import ends
from tippingpoint.targets.maas import elements
from tippingpoint.targets.maas.elements import Elements

leaves = st.none() | st.booleans() | st.integers() | st.text('{}[]",\\ aé\n')
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
objects = st.dictionaries(st.text('{}[]"\\x', max_size=5), values, max_size=4)


def cut(text: bytes, size: int) -> list[Any]:
    found = Elements()
    parts = [
        json.loads(part) for at in range(0, len(text), size) for part in found.feed(text[at : at + size])
    ]
    found.end()
    return parts


@given(st.lists(objects, max_size=5), st.integers(1, 60), st.sampled_from([None, 1, 4]), st.booleans())
def test_its_objects_are_those_of_the_list(
    listed: list[Any], size: int, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(listed, indent=indent, ensure_ascii=ascii_only).encode()
    assert cut(text, size) == listed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1, 2]",
        '["a"]',
        "[{}",
        "[{},]",
        "[{} {}]",
        '[{"a": 1}, 2]',
        "[{}]]",
        "[}",
        '{"events": [{}]}',
        "<html>{}</html>",
        '[{"a": "}]',
    ],
)
@pytest.mark.parametrize("size", [1, 1000])
def test_what_is_no_list_of_objects_is_refused(text: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"list|Expecting"):
        cut(text.encode(), size)


@pytest.mark.parametrize(("size", "total"), [(1, 1 << 17), (200, 1 << 20)])
@pytest.mark.parametrize("pump", ["x", '\\"', "{", " ", "[", '"a",', '"', ",", "}"])
def test_a_list_in_small_pieces_is_read_to_its_end(pump: str, size: int, total: int) -> None:
    # given so many bytes that reading all of them again at each piece would take minutes
    with ends(), contextlib.suppress(ValueError):
        for begin in ('[{"a": "', '[{"a": ', "["):
            cut((begin + pump * (total // len(pump))).encode(), size)


def test_an_object_without_an_end_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "LARGEST_ELEMENT", 1000)
    with pytest.raises(ValueError, match="an object of more than 0 MiB"):
        cut(b'[{"a": "' + 2000 * b"x", 100)
