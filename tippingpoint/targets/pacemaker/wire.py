"""The wire of Pacemaker's remote CIB: frames of XML, and the parts of an answer that the load needs.

A frame is a header of 40 bytes in little endian, then XML that ends with a NUL (lib/common/remote.c of Pacemaker,
`struct remote_header_v0`): endian mark, version 1, id, flags, size of the frame, offset of the payload, compressed
size (0 where it is not compressed, else bz2), size of the XML with its NUL.
"""

from __future__ import annotations

import bz2
import struct
from dataclasses import dataclass
from xml.sax.saxutils import quoteattr

from tippingpoint.targets.pacemaker.tags import attributes

HEADER = struct.Struct("<IIQQIIII")
ENDIAN = 0xBADADBBD
LONGEST = 32 << 20
"""Bytes of the largest answer that is read. A CIB with 1000 resources on 16 nodes has 12 MB."""
LONGEST_LOGIN = 64 << 10
"""Bytes of the largest answer to a login, which usually has some hundred."""
_LONGEST_TAG = 64 << 10
"""Bytes of the outermost element's start tag. It has the call's number and code, and at most a name or two."""
_SPARE, _MOST_TIMES = 64 << 10, 250
"""A compressed answer may have this many bytes, plus this many times the bytes sent. XML is packed 40 to 1."""

XPATH, MULTIPLE, CAN_CREATE, SHALLOW, LOCAL, SYNC = 2, 4, 8, 0x20, 0x100, 0x1000
"""Call options (include/crm/cib/cib_types.h): the section is an XPath; all that it matches; make what is missing;
without children; this node only; wait."""
NO_MATCH = -6
"""The return code if an XPath matches nothing (ENXIO)."""
EXISTS = -17


class WireError(Exception):
    """The peer sent something that is not a frame of Pacemaker's."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One message from the cluster: the attributes of its outermost element, and all of its XML."""

    attributes: dict[str, str]
    body: bytes

    @property
    def code(self) -> int:
        """Pacemaker's return code: 0 is success, a negative number an error of errno or of crm/common/results.h."""
        said = self.attributes.get("cib_rc", "")
        try:
            return int(said)
        except ValueError:
            raise WireError(f"cib_rc: {said[:40]!r}: expected a number") from None


def frame(xml: str) -> tuple[bytes, bytes]:
    """The header and the body of a message.

    They must be sent in two TLS records: Pacemaker 2.1 reads the header first and does not look at what its TLS
    library still holds, so that a single record blocks the node's CIB daemon for seconds.
    """
    body = xml.encode() + b"\0"
    size = len(body)
    return HEADER.pack(ENDIAN, 1, 0, 0, HEADER.size + size, HEADER.size, 0, size), body


def parse(body: bytes) -> Answer:
    """Read the outermost element's attributes. The rest is parsed by those who need it, as that is the costly part."""
    end = body.find(b">", 0, _LONGEST_TAG)
    if end < 0:
        raise WireError("an answer without an XML element")
    return Answer(attributes(body[: end + 1]), body)


class FrameReader:
    """Assembles frames from pieces as they arrive from the network."""

    def __init__(self, longest: int = LONGEST) -> None:
        self.longest = longest
        """Bytes of the largest frame that is accepted from now on."""
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Answer]:
        """Return the messages that are complete now. WireError if the data are not frames."""
        buffer = self._buffer
        buffer += data
        found: list[Answer] = []
        at = 0
        while len(buffer) - at >= HEADER.size:
            endian, _version, _id, _flags, size, offset, compressed, _plain = HEADER.unpack_from(buffer, at)
            if endian != ENDIAN:
                raise WireError(f"endian mark {endian:#x}: expected {ENDIAN:#x}")
            if not HEADER.size <= offset <= size <= self.longest:
                raise WireError(
                    f"frame of {size} bytes, payload at {offset}: expected at most {self.longest} bytes"
                )
            if len(buffer) - at < size:
                break
            body = bytes(buffer[at + offset : at + size])
            found.append(parse(_decompressed(body, self.longest) if compressed else body))
            at += size
        del buffer[:at]
        return found


def _decompressed(body: bytes, longest: int) -> bytes:
    decompressor = bz2.BZ2Decompressor()
    limit = min(longest, _SPARE + _MOST_TIMES * len(body))
    try:
        plain = decompressor.decompress(body, limit)
    except OSError:
        raise WireError("a compressed answer that is no bz2") from None
    if not decompressor.eof:
        raise WireError(f"a compressed answer of more than {limit} bytes, or a part of one")
    return plain


def login(user: str, password: str, name: str) -> str:
    """The message that logs in. Its answer has the token that all later messages carry."""
    return (
        f'<cib_command op="authenticate" user={quoteattr(user)} password={quoteattr(password)} '
        f'hidden="password" name={quoteattr(name)}/>'
    )


def command(
    token: str, number: int, operation: str, section: str | None, data: str | None, options: int
) -> str:
    """A call of the CIB. Its answer has the number as `cib_callid`."""
    where = f" cib_section={quoteattr(section)}" if section else ""
    content = f"<cib_calldata>{data}</cib_calldata>" if data else ""
    return (
        f'<cib_command __name__="cib_command" t="cib" cib_async_id="{token}" cib_op="{operation}" '
        f'cib_callid="{number}" cib_callopt="{options}"{where}>{content}</cib_command>'
    )


def notifications(token: str, kind: str, on: bool = True) -> str:
    """The message that turns a kind of notification on or off. It has no answer."""
    return (
        f'<cib_command t="cib" cib_op="cib_notify" cib_async_id="{token}" cib_notify_type="{kind}" '
        f'cib_notify_activate="{int(on)}"/>'
    )
