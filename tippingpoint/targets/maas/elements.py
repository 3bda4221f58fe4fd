"""Cuts a long JSON list into its objects while it is being read.

A list of 5000 machines has 30 MB. Parsed as a whole, it takes ten times that as Python objects, of which only a few
fields are needed. So each object is cut out of the text and parsed by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LARGEST_ELEMENT = 4 << 20
"""Bytes of one object. A machine of a real MAAS has up to some 100 KB, with many interfaces and disks."""

# Quantifiers are possessive, and a block is matched from where the last match ended: each byte is read twice at most,
# in whatever pieces the text arrives.
_TO_BRACE = re.compile(rb'(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+[{}]', re.DOTALL)
_NO_BRACE = re.compile(rb'(?:[^"{}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_IN_STRING = re.compile(rb"(?:[^\"\\]++|\\.)*+", re.DOTALL)
_BEGIN = re.compile(rb"\s*\[\s*")
_BETWEEN = re.compile(rb"\s*,\s*")
_END = re.compile(rb"\s*\]\s*")


class Elements:
    """The objects of one JSON list. Its blocks are fed in order; ValueError for a text that is not a list of objects.

    An object's own text is not checked, only its braces: parsing it does the rest.
    """

    def __init__(self) -> None:
        self._kept = bytearray()
        """What was fed but is not cut yet: it begins with an object, or with what separates two."""
        self._depth = 0
        self._any = False
        self._in_string = False
        self._escaped = False
        """Whether the last byte was a backslash in a string, so that the next byte cannot end the string."""

    def feed(self, block: bytes) -> Iterator[bytes]:
        """Return the objects that are complete with this block."""
        begin, at = 0, self._after_string(block)
        while not self._in_string and (found := _TO_BRACE.match(block, at)):
            at = found.end()
            opens = block[at - 1 : at] == b"{"
            if self._depth == 0:
                self._kept += block[begin : at - 1]
                if not opens or not self._is_between():
                    raise ValueError("no list of objects")
                self._kept.clear()
                begin = at - 1
            self._depth += 1 if opens else -1
            if self._depth == 0:
                self._any = True
                self._kept += block[begin:at]
                element = bytes(self._kept)
                self._kept.clear()
                begin = at
                yield element
        self._kept += block[begin:]
        if len(self._kept) > LARGEST_ELEMENT:
            raise ValueError(f"an object of more than {LARGEST_ELEMENT >> 20} MiB in a list")
        if not self._in_string:
            rest = _NO_BRACE.match(block, at)
            if rest is not None and rest.end() < len(block):  # a string that goes on
                self._in_string = True
                self._after_string(block, rest.end() + 1)

    def end(self) -> None:
        """Check that the list is complete; ValueError if it is not."""
        rest = bytes(self._kept)
        if not self._any:
            begin = _BEGIN.match(rest)
            rest = rest[begin.end() :] if begin else b""
        if self._depth or not _END.fullmatch(rest):
            raise ValueError("an incomplete list")

    def _after_string(self, block: bytes, at: int = 0) -> int:
        """Return where the string that a block continues at `at` ends; the block's end if it goes on after that."""
        if not self._in_string or at >= len(block):
            return at
        if self._escaped:
            at, self._escaped = at + 1, False
        found = _IN_STRING.match(block, at)
        end = found.end() if found is not None else at
        if end >= len(block):
            return len(block)
        if block[end : end + 1] == b'"':
            self._in_string = False
        else:
            self._escaped = True
        return end + 1

    def _is_between(self) -> bool:
        return (_BETWEEN if self._any else _BEGIN).fullmatch(self._kept) is not None
