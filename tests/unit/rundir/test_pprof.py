"""Profiles as Go's pprof writes them. That those of a real etcd are read is what the functional tests show."""

from __future__ import annotations

import contextlib
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.made.made_profiles import made_profile
from tippingpoint.rundir.pprof import Sample, read_profile
from tippingpoint.util.protobuf import Malformed, integer, text, varint


def test_each_stack_is_read_with_its_time_the_innermost_function_first() -> None:
    content = made_profile({("runtime.memmove", "main.serve"): 3, ("main.serve",): 1}, seconds=5)
    profile = read_profile(content, "CPU")
    assert profile.seconds == 5
    assert profile.count == 4
    assert profile.samples == [
        Sample(("runtime.memmove", "main.serve"), 0.03),
        Sample(("main.serve",), 0.01),
    ]


def test_a_wait_for_a_lock_begins_with_the_function_that_held_it() -> None:
    stack = ("runtime.unlock", "sync.(*Mutex).Unlock", "main.store", "main.serve")
    (sample,) = read_profile(made_profile({stack: 2}, "lock wait"), "lock wait").samples
    assert sample == Sample(("main.store", "main.serve"), 0.02)


def test_calls_that_were_inlined_are_at_one_location() -> None:
    strings = ["", "samples", "cpu", "main.inner", "main.outer"]
    lines = text(4, integer(1, 1)) + text(4, integer(1, 2))
    message = (
        text(1, integer(1, 1))
        + text(1, integer(1, 2))
        + text(2, integer(1, 9) + text(2, varint(1) + varint(10_000_000)))
        + text(4, integer(1, 9) + lines)
        + text(5, integer(1, 1) + integer(2, 3))
        + text(5, integer(1, 2) + integer(2, 4))
        + b"".join(text(6, word.encode()) for word in strings)
    )
    (sample,) = read_profile(gzip.compress(message), "CPU").samples
    assert sample.stack == ("main.inner", "main.outer")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"404 page not found", "is no profile"),
        (gzip.compress(b"\x0b"), "wire type 3"),
        (gzip.compress(b""), "is no profile of CPU"),
        (made_profile({("main.main",): 1}, "lock wait"), "is no profile of CPU"),
        (made_profile({("main.main",): 1})[:-20], "is cut short, or larger than 32 MiB"),
        (gzip.compress(bytes(64 << 20), 1), "is cut short, or larger than 32 MiB"),
    ],
    ids=["page", "junk", "empty", "other", "cut", "bomb"],
)
def test_what_is_no_profile_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(Malformed, match=f"^{why}$"):
        read_profile(content, "CPU")


@given(st.binary(max_size=200))
def test_junk_is_refused_and_nothing_else_happens(junk: bytes) -> None:
    types = text(1, integer(1, 1)) + text(6, b"") + text(6, b"cpu")
    for message in (junk, types + junk):
        with contextlib.suppress(Malformed):
            read_profile(gzip.compress(message), "CPU")
