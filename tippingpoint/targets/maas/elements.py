"""Cuts a long JSON list into its objects while it is being read.

A list of 5000 machines has 30 MB. Parsed as a whole it takes ten times that as Python objects, of which a few fields
are wanted. So each object is cut out of the text and parsed for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LARGEST_ELEMENT = 4 << 20
"""Bytes of one object. A machine of a real MAAS has up to some 100 KB, with many interfaces and disks."""

# The text up to the next brace that is in no string. The quantifiers are possessive: nothing is tried twice.
_TO_BRACE = re.compile(rb'(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+[{}]', re.DOTALL)
_BEGIN = re.compile(rb"\s*\[\s*")
_BETWEEN = re.compile(rb"\s*,\s*")
_END = re.compile(rb"\s*\]\s*")


class Elements:
    """The objects of one JSON list. Its blocks are fed in order; ValueError for a text that is no list of objects.

    An object's own text is not checked, only its braces: parsing it does the rest.
    """

    def __init__(self) -> None:
        self._kept = b""
        """What was fed and is not cut yet: it begins where an object begins, or with what is between two."""
        self._read = 0
        """How much of that is known to be whole up to a brace."""
        self._depth = 0
        self._any = False

    def feed(self, block: bytes) -> Iterator[bytes]:
        """Return the objects that are whole with this block."""
        text = self._kept + block
        begin, at = 0, self._read
        while found := _TO_BRACE.match(text, at):
            opens = text[found.end() - 1 : found.end()] == b"{"
            if self._depth == 0:
                if not opens or not self._is_between(text[begin : found.end() - 1]):
                    raise ValueError("no list of objects")
                begin = found.end() - 1
            self._depth += 1 if opens else -1
            at = found.end()
            if self._depth == 0:
                self._any = True
                yield text[begin:at]
                begin = at
        self._kept, self._read = text[begin:], at - begin
        if len(self._kept) > LARGEST_ELEMENT:
            raise ValueError(f"an object of more than {LARGEST_ELEMENT >> 20} MiB in a list")

    def end(self) -> None:
        """Check that the list is whole; ValueError if it is not."""
        rest = self._kept
        if not self._any:
            begin = _BEGIN.match(rest)
            rest = rest[begin.end() :] if begin else b""
        if self._depth or not _END.fullmatch(rest):
            raise ValueError("an incomplete list")

    def _is_between(self, text: bytes) -> bool:
        return (_BETWEEN if self._any else _BEGIN).fullmatch(text) is not None
