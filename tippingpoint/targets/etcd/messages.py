"""The messages of etcd's v3 API that the workloads need, as bytes (protobuf wire format).

Field numbers are those of etcd's rpc.proto, kv.proto and auth.proto (api/etcdserverpb, api/mvccpb), which
etcd never changes. The messages are written by hand because generated classes cost several times as much:
a keepalive is encoded once per lease, and its answer is compared, not parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tippingpoint.targets.etcd.http2 import ProtocolError
from tippingpoint.util import protobuf
from tippingpoint.util.protobuf import integer, text

# The paths of the calls.
_API = "/etcdserverpb."
RANGE, PUT, TXN, DELETE_RANGE = (f"{_API}KV/{name}" for name in ("Range", "Put", "Txn", "DeleteRange"))
GRANT, REVOKE, KEEP_ALIVE, LEASES, TIME_TO_LIVE = (
    f"{_API}Lease/Lease{name}" for name in ("Grant", "Revoke", "KeepAlive", "Leases", "TimeToLive")
)
WATCH, AUTHENTICATE = f"{_API}Watch/Watch", f"{_API}Auth/Authenticate"
STATUS, MEMBER_LIST = f"{_API}Maintenance/Status", f"{_API}Cluster/MemberList"


class WireError(ProtocolError):
    """Bytes that are not a protobuf message."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field: an int (64 bits, signed) or bytes. WireError if malformed."""
    try:
        yield from protobuf.fields(message)
    except protobuf.Malformed as problem:
        raise WireError(str(problem)) from None


def _first(message: bytes, wanted: int) -> int | bytes | None:
    return next((value for number, value in fields(message) if number == wanted), None)


def _int(message: bytes, wanted: int) -> int:
    value = _first(message, wanted)
    return value if isinstance(value, int) else 0


def _bytes(message: bytes, wanted: int) -> bytes:
    value = _first(message, wanted)
    return value if isinstance(value, bytes) else b""


def _all(message: bytes, wanted: int) -> list[bytes]:
    return [value for number, value in fields(message) if number == wanted and isinstance(value, bytes)]


_ID = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_HEADER = re.compile(rb"(?:\x08%b)?(?:\x10%b)?\x18([\x80-\xff]{0,8}[\x00-\x7f])" % (_ID, _ID), re.DOTALL)
"""A ResponseHeader as etcd writes it: the ids of the cluster and of the member, ten bytes each, then the revision."""


def revision(answer: bytes) -> int:
    """The store's revision in the header that every answer begins with."""
    if answer[:1] == b"\x0a" and len(answer) > 1 and answer[1] < 0x80 and len(answer) >= 2 + answer[1]:
        return header_revision(answer[2 : 2 + answer[1]])
    return header_revision(_bytes(answer, 1))


def header_revision(header: bytes) -> int:
    """The store's revision in a ResponseHeader."""
    found = _HEADER.match(header)
    if found is None:
        return _int(header, 3)
    value = shift = 0
    for byte in found[1]:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value


# --- leases


def lease_grant(ttl: int, lease: int) -> bytes:
    """LeaseGrantRequest: the lease's seconds, and its id."""
    return integer(1, ttl) + integer(2, lease)


def lease_revoke(lease: int) -> bytes:
    """LeaseRevokeRequest."""
    return integer(1, lease)


def lease_keep_alive(lease: int) -> bytes:
    """LeaseKeepAliveRequest: b"\\x08" and the id, with which the answer's b"\\x10" and id is compared."""
    return integer(1, lease)


def keep_alive_ttl(answer: bytes, lease: bytes) -> int | None:
    """The seconds a LeaseKeepAliveResponse gives this lease (its id as varint): 0 or less when it is gone.

    None when the answer is about another lease.
    """
    position = 0
    if answer[:1] == b"\x0a" and len(answer) > 1 and answer[1] < 0x80:  # skip the header
        position = 2 + answer[1]
    if answer[position : position + 1] != b"\x10":
        return None
    position += 1
    if not answer.startswith(lease, position):
        return None
    position += len(lease)
    if position == len(answer):
        return 0  # protobuf leaves zeros out
    if position + 2 == len(answer) and answer[position] == 0x18 and answer[position + 1] < 0x80:
        return answer[position + 1]
    return _int(answer[position:], 3)


def keep_alive_lease(answer: bytes) -> int:
    """Which lease a LeaseKeepAliveResponse is about."""
    return _int(answer, 2)


def lease_time_to_live(lease: int) -> bytes:
    """LeaseTimeToLiveRequest that also asks for the lease's keys."""
    return integer(1, lease) + integer(2, 1)


def lease_keys(answer: bytes) -> list[bytes]:
    """The keys attached to a lease, from a LeaseTimeToLiveResponse."""
    return _all(answer, 5)


def leases(answer: bytes) -> list[int]:
    """The ids in a LeaseLeasesResponse."""
    return [_int(status, 1) for status in _all(answer, 2)]


# --- keys


def put(key: bytes, value: bytes, lease: int = 0) -> bytes:
    """PutRequest, with the id of a lease or 0 for none."""
    request = text(1, key) + text(2, value)
    return request + integer(3, lease) if lease else request


def put_all(puts: Iterable[bytes]) -> bytes:
    """TxnRequest that makes these PutRequests unconditionally."""
    return b"".join(text(2, text(2, one)) for one in puts)


def update(key: bytes, modified: int, value: bytes | None) -> bytes:
    """TxnRequest: if the key was last changed at this revision (0: it is absent), put it, or delete it for None; else
    read it without its value."""
    unchanged = integer(2, 2) + text(3, key) + integer(6, modified)  # target MOD, result EQUAL, mod_revision
    write = text(3, text(1, key)) if value is None else text(2, put(key, value))
    return text(1, unchanged) + text(2, write) + text(3, text(1, key_range(key, keys_only=True)))


def updated(answer: bytes) -> tuple[int, bool, int]:
    """The revision in a TxnResponse, whether its condition held, and if not, the revision of the key's last change."""
    done, header, read = False, 0, b""
    for number, value in fields(answer):
        if number == 1 and isinstance(value, bytes):
            header = header_revision(value)
        elif number == 2:
            done = value == 1
        elif number == 3 and isinstance(value, bytes):
            read = value
    return header, done, 0 if done else modified(_bytes(read, 1))


class KeyValue(NamedTuple):
    """A key, its value, and the id of its lease (0 for none)."""

    key: bytes
    value: bytes
    lease: int


def claim(key: bytes, value: bytes, lease: int) -> bytes:
    """TxnRequest: if the key does not exist, put it with this lease; else do nothing."""
    absent = integer(2, 1) + text(3, key) + integer(4, 0)  # target CREATE, result EQUAL, create_revision 0
    put = text(1, key) + text(2, value) + integer(3, lease)
    return text(1, absent) + text(2, text(2, put))


def claimed(answer: bytes) -> bool:
    """Whether a TxnResponse says that the key was put."""
    return _int(answer, 2) == 1


def key_range(
    key: bytes,
    end: bytes = b"",
    *,
    limit: int = 0,
    revision: int = 0,
    serializable: bool = False,
    keys_only: bool = False,
    count_only: bool = False,
) -> bytes:
    """RangeRequest for a key, or for all keys from it to before `end`: at most `limit` of them (0: all), as of a
    revision (0: now). `serializable` reads without a quorum."""
    request = text(1, key)
    if end:
        request += text(2, end)
    flags = (3, limit), (4, revision), (7, serializable), (8, keys_only), (9, count_only)
    return request + b"".join(integer(number, int(value)) for number, value in flags if value)


def modified(answer: bytes) -> int:
    """The revision of the last change of the only key in a RangeResponse; 0 without a key."""
    found = _bytes(answer, 2)
    return _int(found, 3) if found else 0


def page(answer: bytes) -> tuple[int, bool, bytes]:
    """The store's revision in a RangeResponse, whether it lacks any keys, and its last key (empty without any)."""
    header, more, last = 0, False, b""
    for number, value in fields(answer):
        if number == 2 and isinstance(value, bytes):
            last = value
        elif number == 1 and isinstance(value, bytes):
            header = header_revision(value)
        elif number == 3:
            more = value == 1
    return header, more, _bytes(last, 1)


def revisions(answer: bytes) -> list[tuple[bytes, int]]:
    """The keys in a RangeResponse, each with the revision of its last change."""
    return [(_bytes(kv, 1), _int(kv, 3)) for kv in _all(answer, 2)]


def count(answer: bytes) -> int:
    """The number of keys that a RangeResponse reports."""
    return _int(answer, 4)


def key_values(answer: bytes) -> list[KeyValue]:
    """The keys in a RangeResponse."""
    return [KeyValue(_bytes(kv, 1), _bytes(kv, 5), _int(kv, 6)) for kv in _all(answer, 2)]


def delete_range(key: bytes, end: bytes = b"") -> bytes:
    """DeleteRangeRequest for a key, or for all keys from it to before `end`."""
    return text(1, key) + text(2, end) if end else text(1, key)


def deleted(answer: bytes) -> int:
    """The number of deleted keys that a DeleteRangeResponse reports."""
    return _int(answer, 2)


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all keys that begin with a prefix (which does not end in 0xff)."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


# --- watches


class WatchAnswer(NamedTuple):
    """A WatchResponse: the watch's id, whether it was created or cancelled (and why), whether an event came."""

    watch: int
    created: bool
    canceled: bool
    compacted: bool
    reason: str
    happened: bool


def watch_deletion(watch: int, key: bytes, from_revision: int) -> bytes:
    """WatchRequest: report deletion of the key at or after a revision, on a watch with this id."""
    create = text(1, key) + integer(3, from_revision) + text(5, b"\0") + integer(7, watch)  # filter NOPUT
    return text(1, create)


def watch_prefix(watch: int, first: bytes, end: bytes, from_revision: int, *, deletions: bool) -> bytes:
    """WatchRequest: on a watch with this id, report all changes, or only deletions, of keys from `first` to before
    `end`, beginning at a revision (0: now)."""
    create = text(1, first) + text(2, end) + integer(7, watch)
    if from_revision:
        create += integer(3, from_revision)
    if deletions:
        create += text(5, b"\0")  # filter NOPUT
    return text(1, create)


def event(message: bytes) -> tuple[int, bytes, bool]:
    """An event in a WatchResponse: its revision, its key, and whether the key was deleted."""
    deleted, kv = False, b""
    for number, value in fields(message):
        if number == 1:
            deleted = value == 1
        elif number == 2 and isinstance(value, bytes):
            kv = value
    return _int(kv, 3), _bytes(kv, 1), deleted


def watch_cancel(watch: int) -> bytes:
    """WatchRequest: end the watch with this id."""
    return text(2, integer(1, watch))


def watch_answer(answer: bytes) -> WatchAnswer:
    """Parse a WatchResponse."""
    found: dict[int, int | bytes] = dict(fields(answer))
    watch = found.get(2, 0)
    reason = found.get(6, b"")
    return WatchAnswer(
        watch if isinstance(watch, int) else 0,
        found.get(3) == 1,
        found.get(4) == 1,
        found.get(5, 0) != 0,
        reason.decode("utf-8", "replace") if isinstance(reason, bytes) else "",
        11 in found,
    )


# --- the cluster


def authenticate(name: str, password: str) -> bytes:
    """AuthenticateRequest."""
    return text(1, name.encode()) + text(2, password.encode())


def token(answer: bytes) -> str:
    """The token in an AuthenticateResponse."""
    return _bytes(answer, 2).decode("ascii", "replace")


def version(answer: bytes) -> str:
    """The server's version in a StatusResponse."""
    return _bytes(answer, 2).decode("utf-8", "replace")


def leader(answer: bytes) -> tuple[int, int]:
    """The leader's id (0 for none) in a StatusResponse, and the term in which it was elected."""
    return _int(answer, 4), _int(answer, 6)


def members(answer: bytes) -> dict[int, str]:
    """The members' names in a MemberListResponse by id. A member not started yet is named by its id in hexadecimal."""
    return {
        _int(member, 1): _bytes(member, 2).decode("utf-8", "replace")
        or f"{_int(member, 1) & (1 << 64) - 1:x}"
        for member in _all(answer, 2)
    }
