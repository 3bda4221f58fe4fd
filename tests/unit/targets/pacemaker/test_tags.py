"""Start tags in an answer of a node that may be hostile: each byte is looked at a fixed number of times."""

from __future__ import annotations

import bz2
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.endless import ends
from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.live import Live
from tippingpoint.targets.pacemaker.status import read_status
from tippingpoint.targets.pacemaker.stores import CONFIG, TICKET
from tippingpoint.targets.pacemaker.tags import attributes, first_tag, number, start_tags
from tippingpoint.targets.pacemaker.wire import (
    HEADER,
    LONGEST,
    LONGEST_LOGIN,
    FrameReader,
    WireError,
    frame,
    parse,
)

LONG = 1 << 18
"""Bytes. A reader that looks at each as often as there are bytes takes most of an hour."""
PREFIX = b"tp12345678-"
PUMPS = [
    b"a",
    b"a:",
    b" a",
    b' a="',
    b'a="',
    b' a=""',
    b"<cib ",
    b"<node_state ",
    b"<node ",
    b"<target ",
    b"<lrm_rsc_op ",
    b'<lrm_rsc_op operation_key="' + PREFIX,
    b'<lrm_rsc_op operation_key="' + PREFIX + b'_a_0" ',
    b'<change operation="delete" path="/cib/status/node_state[@id=\'',
    b'<change operation="delete" path="/cib/status/node_state[@id=\'x\']/lrm[',
    b'<change-result><ticket_state id="',
    b"_a",
    b"\xff",
]
ENDS = [b"", b">", b'"/>', b'">']


@pytest.mark.parametrize("pump", PUMPS, ids=[each[:30].decode(errors="replace") for each in PUMPS])
def test_much_of_anything_is_read_to_its_end(pump: bytes) -> None:
    live = Live(PREFIX.decode().rstrip("-"))
    with ends():
        for end in ENDS:
            for begin in (b"", b"<cib ", b'<lrm_rsc_op operation_key="' + PREFIX, b"<target "):
                body = begin + pump * (LONG // len(pump)) + end
                for name in (b"cib", b"node_state", b"node"):
                    for tag in start_tags(body, name):
                        attributes(tag)
                live.hear(body)
                TICKET.freed.findall(body)
                CONFIG.freed.findall(body)
                CONFIG.read(body)
                with contextlib.suppress(WireError):
                    parse(body)
                with contextlib.suppress(OperationFailed):
                    read_status(body)


def test_fail_counts_of_any_name_are_read() -> None:
    name = "fail-count-" + "#" * (LONG) + "&#10;x"
    with ends():
        read_status(
            b'<cib><configuration><nodes><node id="1" uname="n"/></nodes></configuration><status>'
            b'<node_state id="1" uname="n"><transient_attributes><instance_attributes>'
            + f'<nvpair name="{name}" value="1"/>'.encode()
            + b"</instance_attributes></transient_attributes></node_state></status></cib>"
        )


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][\w:.-]{0,8}", fullmatch=True),
        st.text(st.characters(codec="utf-8", exclude_characters='<>"')),
        max_size=5,
    ),
    st.sampled_from([" ", "\n", "  "]),
)
def test_the_attributes_of_a_tag_are_all_of_it(said: dict[str, str], gap: str) -> None:
    if not all(name.isascii() for name in said):
        return
    tag = "<cib " + gap.join(f'{name}="{value}"' for name, value in said.items()) + "/>"
    body = b"<reply>" + tag.encode() + b"<cib x='1'>"
    assert first_tag(body, b"cib") == tag.encode()
    assert attributes(tag.encode()) == said


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), ("", 0), (None, 0), ("x", 0), ("9" * 5000, 0), ("²", 0)]
)
def test_a_number_is_one_of_pacemakers(text: str | None, value: int) -> None:
    assert number(text) == value


def test_a_login_is_answered_in_a_small_frame() -> None:
    reader = FrameReader(LONGEST_LOGIN)
    header, _ = frame("<a>" + "x" * LONGEST_LOGIN + "</a>")
    with pytest.raises(WireError, match=f"expected at most {LONGEST_LOGIN} bytes"):
        reader.feed(header)


def test_a_frame_that_unpacks_to_a_thousand_times_its_size_is_refused() -> None:
    packed = bz2.compress(b"<a/>" + b" " * (LONGEST - 8))
    size = HEADER.size + len(packed)
    sent = HEADER.pack(0xBADADBBD, 1, 0, 0, size, HEADER.size, len(packed), LONGEST) + packed
    with pytest.raises(WireError, match="a compressed answer of more than"):
        FrameReader().feed(sent)


@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE cib [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><cib>&b;</cib>',
        b"<cib>" + b"<a/>" * 1_000_001 + b"</cib>",
        '<?xml version="1.0" encoding="utf-16"?><cib/>'.encode("utf-16"),
        b"<cib><configuration><resources>" + b'<clone id="c">' * 200_000,
    ],
    ids=["entities", "elements", "utf-16", "unclosed"],
)
def test_what_no_cib_has_is_refused_in_a_line(body: bytes) -> None:
    with pytest.raises(OperationFailed, match="an answer") as problem:
        read_status(body)
    assert "\n" not in str(problem.value)


def test_clones_in_clones_end() -> None:
    depth = 50_000
    body = b"<cib><configuration><resources>" + b'<clone id="c">' * depth + b"</clone>" * depth
    assert read_status(body + b"</resources></configuration></cib>").resources == {}
