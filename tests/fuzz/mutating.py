"""Damages real samples by a seed: the same seed damages in the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

_WORDS = [
    *(b"null", b"true", b"NaN", b"Infinity", b"-1", b"0", b"1e308", b"-0.0", b"1" + b"0" * 30, b"9" * 5000),
    *(
        b"{}",
        b"[]",
        b'""',
        b"\\ud800",
        b"\xff\xfe",
        b"\x00",
        b"\n",
        b"'",
        b'"',
        b"<",
        b">",
        b"&#10;",
        b"<!DOCTYPE a>",
    ),
    *(b"../", b"/etc/passwd", b"%s", b"://", b"[::1]", b"@", b"*a", b"&a ", b"!!python/object:os.system"),
]


def mutated(sample: bytes, chance: Random, others: Sequence[bytes] = (), most: int = 1 << 20) -> bytes:
    """Return a damaged sample of at most so many bytes. Parts may come from `others`."""
    damaged = bytearray(sample)
    for _ in range(1 if chance.random() < 0.4 else chance.randint(1, 8)):
        chance.choice(_WAYS)(damaged, chance, others)
        del damaged[most:]
    return bytes(damaged)


def _place(data: bytearray, chance: Random) -> int:
    return chance.randint(0, len(data))


def _flip(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))


def _insert(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    at = _place(data, chance)
    data[at:at] = chance.choice(_WORDS)


def _cut(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    at = _place(data, chance)
    if chance.random() < 0.3:
        del data[at:]
    else:
        del data[at : at + chance.choice((1, 4, 40, 400, 4000))]


def _repeat(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    at = _place(data, chance)
    part = bytes(data[at : at + chance.choice((1, 2, 8, 60))])
    data[at:at] = part * chance.choice((1, 3, 100, 5000))


def _replace_value(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    """Replace what stands between two of the marks that texts have."""
    marks = [at for at, byte in enumerate(data[: 1 << 16]) if byte in b'":,={}[] \n']
    if len(marks) > 1:
        place = chance.randrange(len(marks) - 1)
        data[marks[place] + 1 : marks[place + 1]] = chance.choice(_WORDS)


def _splice(data: bytearray, chance: Random, others: Sequence[bytes]) -> None:
    if others:
        other = chance.choice(others)
        begin = chance.randint(0, len(other))
        at = _place(data, chance)
        data[at : at + chance.choice((0, 10, 1000))] = other[begin : begin + chance.choice((4, 50, 2000))]


_WAYS: list[Callable[[bytearray, Random, Sequence[bytes]], None]] = [
    _flip,
    _insert,
    _cut,
    _repeat,
    _replace_value,
    _replace_value,
    _splice,
]
