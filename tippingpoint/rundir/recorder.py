"""Records samples while the load runs, in HdrHistograms with the V2 encoding that common viewers read.

Values are whole microseconds from 1 us to one hour with three significant digits, so any quantile is within 0.1 % of
the recorded value. The bucket layout and the encoding are those of HdrHistogram
(https://github.com/HdrHistogram/HdrHistogram, V2 with ZigZag LEB128 counts). A second's samples fill a few hundred of
the 23,552 slots, so only filled slots are kept. A worker therefore needs no array library, which saves a fifth of its
memory. histogram.py has arrays, for what is read back.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
import zlib
from collections.abc import Callable, Iterable

from tippingpoint.rundir.standstills import Pulse
from tippingpoint.rundir.tags import DELAYED, FREED

LOWEST_US = 1
HIGHEST_US = 3_600_000_000
SIGNIFICANT_DIGITS = 3
OWN_DELAY = 0.001
"""The shortest delay of the generator's own in a response time, in seconds, that is recorded."""
HALF_BITS = 10  # 2 * 10**3 distinct values need 11 bits; half of them per further power of two

V2_PAYLOAD_COOKIE = 0x1C849313
V2_COMPRESSED_COOKIE = 0x1C849314
PAYLOAD_HEADER = struct.Struct(">iiiiqqd")
COMPRESSED_HEADER = struct.Struct(">ii")
_OUR_COOKIE = struct.pack(">i", V2_PAYLOAD_COOKIE)
_OUR_RANGE = struct.pack(">iqqd", SIGNIFICANT_DIGITS, LOWEST_US, HIGHEST_US, 1.0)


def lowest_value(slot: int) -> int:
    """Return the smallest value, in microseconds, of a slot."""
    shift = max((slot >> HALF_BITS) - 1, 0)
    return (slot - (shift << HALF_BITS)) << shift


def highest_value(slot: int) -> int:
    """Return the largest value, in microseconds, of a slot, as percentiles report it."""
    return lowest_value(slot) + (1 << max((slot >> HALF_BITS) - 1, 0)) - 1


def encode(slots_and_counts: Iterable[tuple[int, int]]) -> str:
    """Return the V2 compressed encoding in base64 of (slot, count) pairs with ascending slots and no zero counts."""
    # ZigZag LEB128: a count is itself, n empty slots are -n, and nothing follows the last filled slot.
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
    """Return the V2 compressed encoding in base64 of counts that are packed already."""
    header = PAYLOAD_HEADER.pack(
        V2_PAYLOAD_COOKIE, len(payload), 0, SIGNIFICANT_DIGITS, LOWEST_US, HIGHEST_US, 1.0
    )
    # The input is a few hundred bytes, for which the usual window of 32 KiB would cost ten times as much.
    deflate = zlib.compressobj(1, zlib.DEFLATED, 12, 5)
    compressed = deflate.compress(header + payload) + deflate.flush()
    return base64.b64encode(
        COMPRESSED_HEADER.pack(V2_COMPRESSED_COOKIE, len(compressed)) + compressed
    ).decode()


def counts_in(text: str | bytes, number: int = 0) -> bytes:
    """Return the packed counts in one encoding; raises ValueError with its number for another range or precision."""
    try:
        payload = zlib.decompress(memoryview(binascii.a2b_base64(text))[COMPRESSED_HEADER.size :])
        header = payload[: PAYLOAD_HEADER.size]
        if header[:4] == _OUR_COOKIE and header[12:] == _OUR_RANGE:
            return payload[PAYLOAD_HEADER.size :]
        _, _, _, digits, lowest, highest, _ = PAYLOAD_HEADER.unpack(header)
    except (ValueError, zlib.error, struct.error) as problem:
        raise ValueError(f"histogram {number}: {problem}") from None
    raise ValueError(
        f"histogram {number}: {digits} digits, {lowest}..{highest}: expected V2, "
        f"{SIGNIFICANT_DIGITS} digits, {LOWEST_US}..{HIGHEST_US}"
    )


def rank_of(percentile: float, total: int) -> int:
    """Return the rank (1..total) of the value at a percentile in 0..100."""
    return max(1, min(total, math.ceil(total * (percentile / 100.0) - 1e-9)))


class Recorded:
    """The values recorded under one tag, for example in one interval: counts by slot, for filled slots only."""

    __slots__ = ("_counts",)

    def __init__(self, samples_us: Iterable[int] = ()) -> None:
        self._counts: dict[int, int] = {}
        for value in samples_us:
            if not 0 <= value <= HIGHEST_US:  # values outside 1 us..1 h are moved to the nearest end
                value = min(max(value, 0), HIGHEST_US)
            shift = value.bit_length() - HALF_BITS - 1
            slot = (shift << HALF_BITS) + (value >> shift) if shift > 0 else value
            self._counts[slot] = self._counts.get(slot, 0) + 1

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
        """Return the V2 compressed encoding in base64, as in a histogram log."""
        return encode(sorted(self._counts.items()))


class Recorder:
    """Collects the samples of the open interval: a list per tag, which becomes a histogram at the interval's end.

    Recording is one `list.append`, so that measuring costs far less than what is measured. `pulse` knows when the
    worker itself stood still.
    """

    __slots__ = ("_samples", "pulse")

    def __init__(self) -> None:
        self._samples: dict[str, list[int]] = {}
        self.pulse = Pulse()

    def appender(self, tag: str) -> Callable[[int], None]:
        """Return a function that records microseconds under a tag; it is valid for the recorder's life."""
        return self._samples.setdefault(tag, []).append

    def own_delay(self, name: str, waited: float, own: float) -> None:
        """Record that a response time (`waited`) under a tag contains `own` seconds of the generator's own delay."""
        if own >= OWN_DELAY:
            self.appender(name + DELAYED)(max(1, int(waited * 1e6)))
            self.appender(name + FREED)(max(1, int((waited - own) * 1e6)))

    def drain(self) -> dict[str, Recorded]:
        """Return what was recorded under each tag since the last drain, and empty the recorder."""
        drained: dict[str, Recorded] = {}
        for tag, samples in self._samples.items():
            if samples:
                drained[tag] = Recorded(samples)
                samples.clear()
        return drained
