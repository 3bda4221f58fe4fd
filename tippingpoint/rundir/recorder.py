"""Recording while the load runs: samples into HdrHistograms, in the V2 encoding that the field's viewers read.

Values are whole microseconds from 1 us to one hour with three significant digits, so any quantile is
within 0.1 % of the recorded value. The bucket layout and the encoding are those of HdrHistogram
(https://github.com/HdrHistogram/HdrHistogram, V2 with ZigZag LEB128 counts). A second's samples fill some hundred of
its 23,552 slots: they are kept as what is filled, and a worker needs no array library, which is a fifth of its
memory. What is read back and computed with is histogram.py's.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable

from tippingpoint.rundir.standstills import Pulse
from tippingpoint.rundir.tags import DELAYED, FREED

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
SIGNIFICANT_DIGITS = 3
OWN_DELAY = 0.001
"""Seconds of the generator's own delay in a response time from which on it is taken down."""
HALF_BITS = 10  # 2 * 10**3 distinct values need 11 bits; half of them per further power of two

V2_PAYLOAD_COOKIE = 0x1C849313
V2_COMPRESSED_COOKIE = 0x1C849314
PAYLOAD_HEADER = struct.Struct(">iiiiqqd")
COMPRESSED_HEADER = struct.Struct(">ii")


def slot_of(value_us: int) -> int:
    """The slot of a value in microseconds; values outside 1 us..1 h are moved to the nearest end."""
    value = min(max(value_us, 0), HIGHEST_US)
    shift = max(value.bit_length() - HALF_BITS - 1, 0)
    return (shift << HALF_BITS) + (value >> shift)


def lowest_value(slot: int) -> int:
    """The smallest value, in microseconds, that falls into a slot."""
    shift = max((slot >> HALF_BITS) - 1, 0)
    return (slot - (shift << HALF_BITS)) << shift


def highest_value(slot: int) -> int:
    """The largest value, in microseconds, that falls into a slot: what percentiles report."""
    return lowest_value(slot) + (1 << max((slot >> HALF_BITS) - 1, 0)) - 1


def encode(slots_and_counts: Iterable[tuple[int, int]]) -> str:
    """The V2 compressed encoding, base64, of (slot, count) in ascending order of slots, no count 0."""
    # ZigZag LEB128: a count as it is, a run of n empty slots as -n; nothing after the last filled slot.
    payload = bytearray()
    following = 0
    for slot, count in slots_and_counts:
        gap = slot - following
        following = slot + 1
        for word in (2 * gap - 1, 2 * count) if gap else (2 * count,):
            while word > 0x7F:
                payload.append(word & 0x7F | 0x80)
                word >>= 7
            payload.append(word)
    return encoded_payload(payload)


def encoded_payload(payload: bytes | bytearray) -> str:
    """The V2 compressed encoding, base64, of counts in their own packing."""
    header = PAYLOAD_HEADER.pack(
        V2_PAYLOAD_COOKIE, len(payload), 0, SIGNIFICANT_DIGITS, LOWEST_US, HIGHEST_US, 1.0
    )
    # With the usual window of 32 KiB it would cost ten times as much: what is compressed is some hundred bytes.
    deflate = zlib.compressobj(1, zlib.DEFLATED, 12, 5)
    compressed = deflate.compress(header + payload) + deflate.flush()
    return base64.b64encode(
        COMPRESSED_HEADER.pack(V2_COMPRESSED_COOKIE, len(compressed)) + compressed
    ).decode()


class Recorded:
    """What was recorded under one tag in one interval: at least one value."""

    __slots__ = ("_counts",)

    def __init__(self, samples_us: Iterable[int]) -> None:
        self._counts: dict[int, int] = {}
        for value, count in Counter(samples_us).items():
            slot = slot_of(value)
            self._counts[slot] = self._counts.get(slot, 0) + count

    @property
    def total(self) -> int:
        """How many values were recorded."""
        return sum(self._counts.values())

    @property
    def min(self) -> int:
        """The smallest recorded value in microseconds (to 0.1 %)."""
        return lowest_value(min(self._counts))

    @property
    def max(self) -> int:
        """The largest recorded value in microseconds (to 0.1 %)."""
        return highest_value(max(self._counts))

    def encode(self) -> str:
        """The V2 compressed encoding, base64, as it stands in a histogram log."""
        return encode(sorted(self._counts.items()))


class Recorder:
    """Where samples land while an interval is open: one list per tag, turned into histograms at its end.

    Recording is one `list.append`, so that measuring costs far less than what is measured. `pulse` knows when the
    worker itself stood still.
    """

    __slots__ = ("_samples", "pulse")

    def __init__(self) -> None:
        self._samples: dict[str, list[int]] = {}
        self.pulse = Pulse()

    def appender(self, tag: str) -> Callable[[int], None]:
        """The function that records a value in microseconds under a tag; valid for the recorder's life."""
        return self._samples.setdefault(tag, []).append

    def own_delay(self, name: str, waited: float, own: float) -> None:
        """Of a response time under a tag: how many of its seconds were the generator's own delay."""
        if own >= OWN_DELAY:
            self.appender(name + DELAYED)(max(1, int(waited * 1e6)))
            self.appender(name + FREED)(max(1, int((waited - own) * 1e6)))

    def drain(self) -> dict[str, Recorded]:
        """What was recorded under each tag since the last drain, and an empty recorder."""
        drained: dict[str, Recorded] = {}
        for tag, samples in self._samples.items():
            if samples:
                drained[tag] = Recorded(samples)
                samples.clear()
        return drained
