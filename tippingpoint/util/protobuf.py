"""The wire format of protocol buffers: fields of a message, as bytes (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """Raised for bytes that are not a message."""


def varint(value: int) -> bytes:
    """Encode an integer from -2**63 to 2**64 - 1 in base 128; negative ones as two's complement of 64 bits."""
    if 0 <= value < 0x80:  # nearly all lengths and numbers of fields
        return _OF_A_BYTE[value]
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


_OF_A_BYTE = [bytes([value]) for value in range(0x80)]


def integer(number: int, value: int) -> bytes:
    """Encode an integer field."""
    return varint(number << 3) + varint(value)


def text(number: int, value: bytes) -> bytes:
    """Encode a string, bytes or message field."""
    return varint(number << 3 | LENGTH) + varint(len(value)) + value


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of every field: an int (64 bits, signed) or bytes. Raises Malformed if it is no
    message."""
    position, end = 0, len(message)
    while position < end:
        key = message[position]
        if key < 0x80:  # nearly all keys take one byte, and so do most values and lengths
            position += 1
        else:
            key, position = _read_varint(message, position)
        kind = key & 7
        if kind == VARINT:
            if position < end and message[position] < 0x80:
                yield key >> 3, message[position]
                position += 1
                continue
            value, position = _read_varint(message, position)
            yield key >> 3, _signed(value)
            continue
        if kind == LENGTH:
            if position < end and message[position] < 0x80:
                size = message[position]
                position += 1
            else:
                size, position = _read_varint(message, position)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise Malformed(f"wire type {kind}")
        if position + size > end:
            raise Malformed("field longer than its message")
        yield key >> 3, message[position : position + size]
        position += size


def integers(value: int | bytes) -> Iterator[int]:
    """Yield the integers of a repeated field, which may be packed (64 bits, signed). Raises Malformed if it is cut
    short."""
    if isinstance(value, int):
        yield value
        return
    position = 0
    while position < len(value):
        number, position = _read_varint(value, position)
        yield _signed(number)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(message) and shift < 64:
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, position
        shift += 7
    raise Malformed("unfinished integer")
