"""Reads profiles of Go programs: the format of pprof, a gzipped message of protocol buffers.

Field numbers are those of profile.proto (github.com/google/pprof, proto/profile.proto).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tippingpoint.errors import one_line
from tippingpoint.util.protobuf import Malformed, fields, integers

Kind = Literal["CPU", "lock wait"]
LARGEST_FILE = 8 << 20
"""Bytes of a profile; one of 10 s is 30 KB of an etcd."""
_LARGEST = 32 << 20
"""Bytes of a profile without gzip."""
_VALUES: Mapping[Kind, str] = {"CPU": "cpu", "lock wait": "delay"}
"""The type of value that is read, by Go's name; both are nanoseconds (runtime/pprof)."""
_OF_LOCKS = ("sync.", "runtime.", "internal/")
"""Prefixes of the functions that every wait for a lock passes through (runtime/mprof.go): they do not show which lock
it is."""
_GZIP = 31
"""The window of zlib for data with a header of gzip."""


@dataclass(frozen=True)
class Sample:
    """How much time was spent with one stack of calls."""

    stack: tuple[str, ...]
    """Functions, the innermost first. For a wait for a lock, it begins with the function that held the lock."""
    seconds: float


@dataclass(frozen=True)
class Profile:
    """What was sampled in one program."""

    seconds: float
    """How long it was sampled; 0 if the profile counts from the program's start."""
    samples: list[Sample]
    count: int
    """How many samples were taken; for locks, how many waits."""


def read_profile(content: bytes, kind: Kind) -> Profile:
    """Read a profile. Raises Malformed if this is no profile of this kind."""
    message = _unpacked(content)
    strings: list[str] = []
    types: list[bytes] = []
    samples: list[bytes] = []
    locations: list[bytes] = []
    functions: dict[int, int] = {}
    duration = 0
    for number, value in fields(message):
        if isinstance(value, int):
            duration = value if number == 10 else duration
        elif number == 1:
            types.append(value)
        elif number == 2:
            samples.append(value)
        elif number == 4:
            locations.append(value)
        elif number == 5:
            function = _numbers(value)
            functions[function.get(1, 0)] = function.get(2, 0)
        elif number == 6:
            strings.append(value.decode(errors="replace"))
    names = [_text(strings, _numbers(each).get(1, 0)) for each in types]
    if _VALUES[kind] not in names:
        raise Malformed(f"is no profile of {kind}")
    at = names.index(_VALUES[kind])
    calls = _calls(locations, functions, strings)
    found: list[Sample] = []
    count = 0
    for sample in samples:
        ids, values = _sample(sample)
        if len(values) != len(names):
            raise Malformed("a sample without its values")
        stack = [name for place in ids for name in calls.get(place, ())]
        if kind == "lock wait":
            stack = _without_lock(stack)
        if stack and values[at] > 0:
            found.append(Sample(tuple(stack), values[at] / 1e9))
            count += max(0, values[0])
    return Profile(max(0, duration) / 1e9, found, count)


def _unpacked(content: bytes) -> bytes:
    reader = zlib.decompressobj(_GZIP)
    try:
        message = reader.decompress(content, _LARGEST)
    except zlib.error:
        raise Malformed("is no profile") from None
    if not reader.eof:
        raise Malformed(f"is cut short, or larger than {_LARGEST >> 20} MiB")
    return message


def _numbers(message: bytes) -> dict[int, int]:
    return {number: value for number, value in fields(message) if isinstance(value, int)}


def _text(strings: list[str], place: int) -> str:
    return one_line(strings[place]) if 0 <= place < len(strings) else ""


def _calls(
    locations: list[bytes], functions: Mapping[int, int], strings: list[str]
) -> dict[int, tuple[str, ...]]:
    """Return the functions at each location by its id: several where calls were inlined, the innermost first."""
    found: dict[int, tuple[str, ...]] = {}
    for location in locations:
        place = 0
        lines: list[str] = []
        for number, value in fields(location):
            if number == 1 and isinstance(value, int):
                place = value
            elif number == 4 and isinstance(value, bytes):
                lines.append(_text(strings, functions.get(_numbers(value).get(1, 0), -1)))
        found[place] = tuple(filter(None, lines))
    return found


def _sample(message: bytes) -> tuple[list[int], list[int]]:
    ids: list[int] = []
    values: list[int] = []
    for number, value in fields(message):
        if number in (1, 2):
            (ids if number == 1 else values).extend(integers(value))
    return ids, values


def _without_lock(stack: list[str]) -> list[str]:
    for place, name in enumerate(stack):
        if not name.startswith(_OF_LOCKS):
            return stack[place:]
    return stack
