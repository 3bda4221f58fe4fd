"""Profiles of Go programs made up, as pprof writes them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping

from tippingpoint.rundir.pprof import Kind
from tippingpoint.util.protobuf import integer, text, varint

TYPES: dict[Kind, tuple[tuple[str, str], tuple[str, str]]] = {
    "CPU": (("samples", "count"), ("cpu", "nanoseconds")),
    "lock wait": (("contentions", "count"), ("delay", "nanoseconds")),
}
"""The values of a sample as Go calls them."""
_EACH_NS = 10_000_000
"""What a sample of CPU stands for: Go takes 100 a second."""


def made_profile(stacks: Mapping[tuple[str, ...], int], kind: Kind = "CPU", seconds: float = 10.0) -> bytes:
    """A profile in which each stack of calls, the innermost first, was sampled so often, each time for 10 ms."""
    strings = [""]
    functions: dict[str, int] = {}

    def place(word: str) -> int:
        if word not in strings:
            strings.append(word)
        return strings.index(word)

    message = b""
    for name, unit in TYPES[kind]:
        message += text(1, integer(1, place(name)) + integer(2, place(unit)))
    for stack, count in stacks.items():
        ids = b"".join(varint(functions.setdefault(name, len(functions) + 1)) for name in stack)
        message += text(2, text(1, ids) + text(2, varint(count) + varint(count * _EACH_NS)))
    for name, number in functions.items():
        message += text(4, integer(1, number) + text(4, integer(1, number) + integer(2, 7)))
        message += text(5, integer(1, number) + integer(2, place(name)))
    message += b"".join(text(6, word.encode()) for word in strings)
    return gzip.compress(message + integer(10, round(seconds * 1e9)))
