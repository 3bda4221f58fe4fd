"""Start tags of an answer, found without parsing it: a load can afford no more.

Answers come from a node that may send anything. So each byte is read a fixed number of times, whatever it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Quantifiers are possessive, and a name begins after a space: no text is tried from two places.
_ATTRIBUTE = re.compile(rb'\s([\w:.-]++)="([^"]*+)"')
_DIGITS = 19
"""Digits of the largest number that is read."""


def start_tags(body: bytes, name: bytes) -> Iterator[bytes]:
    """Yield the start tags of elements of this name that have attributes, in their order."""
    opening, at = b"<" + name + b" ", 0
    while (begin := body.find(opening, at)) >= 0:
        end = body.find(b">", begin)
        if end < 0:
            return
        at = end + 1
        yield body[begin:at]


def first_tag(body: bytes, name: bytes) -> bytes | None:
    """Return the first of `start_tags`; None without one."""
    return next(start_tags(body, name), None)


def attributes(tag: bytes) -> dict[str, str]:
    """Return the attributes of one start tag. References such as `&amp;` stay as they are."""
    return {
        name.decode("ascii", "replace"): value.decode(errors="replace")
        for name, value in _ATTRIBUTE.findall(tag)
    }


def number(text: str | None, otherwise: int = 0) -> int:
    """Return a whole number; `otherwise` for any other text, or for more digits than any number of Pacemaker's has."""
    try:
        return int(text) if text is not None and len(text) <= _DIGITS else otherwise
    except ValueError:
        return otherwise
