"""Frames of the remote CIB, in any pieces; and what is no frame."""

from __future__ import annotations

import bz2
import contextlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.targets.pacemaker.stores import CONFIG, TICKET
from tippingpoint.targets.pacemaker.wire import HEADER, LONGEST, FrameReader, WireError, command, frame, login

ENDIAN = 0xBADADBBD
RECORDED = b'<cib-reply t="cib" cib_op="cib_modify" cib_callid="9" cib_callopt="20488" cib_rc="-6"/>'
FREED = (
    b'<notify t="cib_notify"><cib_update_result><diff format="2"><version/>'
    b'<change operation="modify" path="/cib/status/tickets/ticket_state[@id=\'tp1-0-7\']">'
    b'<change-list><change-attr name="held" operation="set" value=""/></change-list>'
    b'<change-result><ticket_state id="tp1-0-7" held=""/></change-result></change>'
    b'<change operation="modify" path="/cib/status/tickets/ticket_state[@id=\'tp1-0-8\']">'
    b'<change-list><change-attr name="held" operation="set" value="0:12"/></change-list></change>'
    b"</diff></cib_update_result></notify>"
)


def framed(*xml: str) -> bytes:
    return b"".join(part for each in xml for part in frame(each))


@given(
    texts=st.lists(st.text(st.characters(codec="utf-8", exclude_characters='<>"\0')), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
def test_frames_are_read_in_any_pieces(texts: list[str], cuts: list[int]) -> None:
    sent = framed(*(f'<a cib_rc="0" n="{number}">{text}</a>' for number, text in enumerate(texts)))
    reader = FrameReader()
    ends = sorted({0, len(sent), *(min(cut, len(sent)) for cut in cuts)})
    got = [answer for begin, end in pairwise(ends) for answer in reader.feed(sent[begin:end])]
    assert [answer.attributes["n"] for answer in got] == [str(number) for number in range(len(texts))]
    assert [answer.body.decode() for answer in got] == [
        f'<a cib_rc="0" n="{number}">{text}</a>\0' for number, text in enumerate(texts)
    ]


def test_a_recorded_answer_has_its_call_and_its_code() -> None:
    (answer,) = FrameReader().feed(framed(RECORDED.decode()))
    assert (answer.attributes["cib_callid"], answer.code) == ("9", -6)


def test_a_large_answer_may_be_compressed() -> None:
    body = bz2.compress(RECORDED + b"\0")
    size = HEADER.size + len(body)
    sent = HEADER.pack(ENDIAN, 1, 0, 0, size, HEADER.size, len(body), len(RECORDED) + 1) + body
    (answer,) = FrameReader().feed(sent)
    assert answer.code == -6


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b" " * 40, "endian mark 0x50545448: expected 0xbadadbbd"),
        (HEADER.pack(ENDIAN, 1, 0, 0, LONGEST + 1, 40, 0, 9), f"frame of {LONGEST + 1} bytes"),
        (HEADER.pack(ENDIAN, 1, 0, 0, 45, 46, 0, 5) + b"12345", "frame of 45 bytes, payload at 46"),
        (HEADER.pack(ENDIAN, 1, 0, 0, 45, 40, 0, 5) + b"12345", "an answer without an XML element"),
        (HEADER.pack(ENDIAN, 1, 0, 0, 45, 40, 5, 5) + b"12345", "a compressed answer that is no bz2"),
    ],
)
def test_what_is_no_frame_is_refused_in_words(sent: bytes, said: str) -> None:
    with pytest.raises(WireError) as problem:
        FrameReader().feed(sent)
    assert str(problem.value).startswith(said)


@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_refused(sent: bytes) -> None:
    with contextlib.suppress(WireError):
        FrameReader().feed(sent)


def test_an_answer_without_a_code_is_refused() -> None:
    (answer,) = FrameReader().feed(framed('<cib-reply cib_rc="soon"/>'))
    with pytest.raises(WireError, match="expected a number"):
        _ = answer.code


def test_what_users_write_is_quoted() -> None:
    assert 'password="a&quot;&lt;b"' in login("u", 'a"<b', "n").replace("'a\"&lt;b'", '"a&quot;&lt;b"')
    assert "<x/>" in command("t", 1, "cib_modify", "status", "<x/>", 0)
    assert "cib_calldata" not in command("t", 1, "cib_query", None, None, 0)


def test_only_the_lease_that_was_freed_is_found_in_a_notification() -> None:
    assert TICKET.freed.findall(FREED) == [b"tp1-0-7"]


def test_a_change_is_conditional_on_what_the_lease_has() -> None:
    assert TICKET.where("a", ["0:1", "0:2"]) == (
        "/cib/status/tickets/ticket_state[@id='a' and (@held='0:1' or @held='0:2')]"
    )
    assert CONFIG.where("a", [""], or_of="0:") == (
        "/cib/configuration/crm_config/cluster_property_set/nvpair[@id='a-held' and "
        "(@value='' or starts-with(@value,'0:'))]"
    )
    assert TICKET.where("a", []) == "/cib/status/tickets/ticket_state[@id='a']"


def test_a_leases_value_is_read_from_an_answer() -> None:
    assert TICKET.read(b'<ticket_state id="a" held="0:7"/>') == "0:7"
    assert CONFIG.read(b'<nvpair id="a-held" name="a" value="1:8"/>') == "1:8"
    assert TICKET.read(b'<cib-reply cib_rc="-6"/>') is None
