"""etcd's messages as bytes. That a real etcd reads them is what the functional tests show."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.targets.etcd import messages as pb
from tippingpoint.util.protobuf import integer, text, varint

INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
LEASES = st.integers(1, (1 << 63) - 1)


def header(revision: int) -> bytes:
    """A ResponseHeader as a server sends it."""
    return text(1, integer(1, 1 << 63 | 5) + integer(2, 1 << 62) + integer(3, revision) + integer(4, 2))


@given(st.binary(max_size=60))
def test_what_is_no_message_is_refused_and_nothing_else_happens(junk: bytes) -> None:
    for read in (pb.watch_answer, pb.key_values, pb.leases, pb.members, pb.revision, pb.keep_alive_lease):
        with contextlib.suppress(pb.WireError):
            read(junk)


@pytest.mark.parametrize(
    "cut", [b"\x08", b"\x08\x80", b"\x12\x05four", b"\x09\x00", b"\x0b", b"\x08" + b"\xff" * 11]
)
def test_a_message_cut_short_is_refused(cut: bytes) -> None:
    with pytest.raises(pb.WireError):
        list(pb.fields(cut))


@given(LEASES, LEASES, st.integers(-5, 1 << 40), st.integers(0, 1 << 62))
def test_a_keepalives_answer_is_read_for_its_lease_only(
    lease: int, other: int, ttl: int, revision: int
) -> None:
    answer = header(revision) + integer(2, lease) + (integer(3, ttl) if ttl else b"")
    request = pb.lease_keep_alive(lease)
    assert request[:1] == b"\x08"
    assert pb.keep_alive_ttl(answer, request[1:]) == ttl
    assert pb.keep_alive_lease(answer) == lease
    if lease != other:
        assert pb.keep_alive_ttl(answer, varint(other)) is None


def test_the_answers_of_a_claim_are_told_apart() -> None:
    granted, denied = header(41) + integer(2, 1), header(42)
    assert (pb.claimed(granted), pb.revision(granted)) == (True, 41)
    assert (pb.claimed(denied), pb.revision(denied)) == (False, 42)


def test_watch_answers_say_what_happened() -> None:
    created = header(5) + integer(2, 9) + integer(3, 1)
    assert pb.watch_answer(created) == pb.WatchAnswer(9, True, False, False, "", False)
    deleted = header(6) + integer(2, 9) + text(11, integer(1, 1) + text(2, text(1, b"key")))
    assert pb.watch_answer(deleted) == pb.WatchAnswer(9, False, False, False, "", True)
    gone = header(7) + integer(2, 9) + integer(4, 1) + integer(5, 3)
    assert pb.watch_answer(gone) == pb.WatchAnswer(9, False, True, True, "", False)
    refused = header(7) + integer(2, -1) + integer(3, 1) + integer(4, 1) + text(6, b"denied")
    assert pb.watch_answer(refused) == pb.WatchAnswer(-1, True, True, False, "denied", False)


def test_keys_leases_and_members_are_listed() -> None:
    one = text(1, b"/a") + text(5, b"v") + integer(6, 77)
    assert pb.key_values(header(1) + text(2, one) + text(2, text(1, b"/b"))) == [
        pb.KeyValue(b"/a", b"v", 77),
        pb.KeyValue(b"/b", b"", 0),
    ]
    assert pb.leases(text(2, integer(1, 5)) + text(2, integer(1, 6))) == [5, 6]
    listed = text(2, integer(1, 10) + text(2, b"m1")) + text(2, integer(1, -1))
    assert sorted(pb.members(listed).values()) == ["ffffffffffffffff", "m1"]
    # a leader is named by the same id, whatever it is
    for member in (10, -1):
        status = integer(4, member) + integer(6, 3)
        assert pb.leader(status)[0] in pb.members(listed)
        assert pb.leader(status)[1] == 3


@given(st.text(alphabet="abc/0", min_size=1), st.text(alphabet="abc/0"))
def test_a_prefixs_range_holds_what_begins_with_it(prefix: str, key: str) -> None:
    inside = prefix.encode() <= key.encode() < pb.after_prefix(prefix.encode())
    assert inside == key.startswith(prefix)


@given(st.integers(1, (1 << 63) - 1))
def test_the_revision_of_an_answer_is_that_of_its_header(revision: int) -> None:
    assert pb.revision(header(revision) + integer(2, 1)) == revision
    # and a server that leaves fields out, or sends them in another order, is read too
    assert pb.revision(text(1, integer(3, revision))) == revision
    assert pb.revision(text(1, integer(4, 7) + integer(3, revision) + integer(1, 5))) == revision


@given(st.integers(0, 1 << 40), st.binary(min_size=1, max_size=30), st.booleans())
def test_an_event_has_its_revision_its_key_and_whether_it_was_deleted(
    revision: int, key: bytes, deleted: bool
) -> None:
    kv = text(1, key) + integer(2, 3) + integer(3, revision) + text(5, b"value")
    assert pb.event((integer(1, 1) if deleted else b"") + text(2, kv)) == (revision, key, deleted)


def test_a_transaction_that_read_instead_says_when_its_key_was_changed() -> None:
    kv = text(2, text(1, b"k") + integer(3, 40))
    read = text(3, text(1, header(42) + kv + integer(4, 1)))
    assert pb.updated(header(42) + read) == (42, False, 40)
    assert pb.updated(header(43) + integer(2, 1) + text(3, text(2, header(43)))) == (43, True, 0)
    assert pb.updated(header(44) + text(3, text(1, header(44)))) == (44, False, 0)


def test_a_page_says_whether_there_is_more_and_where_it_ends() -> None:
    keys = b"".join(text(2, text(1, b"k%d" % number) + integer(3, number)) for number in (1, 2))
    assert pb.page(header(9) + keys + integer(3, 1) + integer(4, 5)) == (9, True, b"k2")
    assert pb.page(header(9)) == (9, False, b"")
    assert pb.revisions(header(9) + keys) == [(b"k1", 1), (b"k2", 2)]
