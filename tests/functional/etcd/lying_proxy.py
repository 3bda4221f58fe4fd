"""A proxy before a member of etcd that lies once: it drops, repeats or swaps an event, or makes a read old.

It passes HTTP/2 on as it is, and looks at the gRPC messages in the DATA frames that come from etcd. A message that is
changed keeps its length, so that windows of flow control stay right; one that is sent again is a few hundred bytes
more.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Literal

from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.http2 import DATA
from tippingpoint.util.protobuf import Malformed, varint

Lie = Literal["drop", "repeat", "swap", "stale"]
_HEADER = struct.Struct(">HBBBL")
_PREFIX = 5
"""Bytes of gRPC before a message."""


class LyingProxy:
    """Listens on a port of its own, and lies once from the time on at which `lie` is set."""

    def __init__(self, endpoint: str) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self._to = host, int(port)
        self.lie: Lie | None = None
        self.told = False
        """Whether it has lied."""
        self._kept: tuple[int, bytes] | None = None
        """The frame that comes after the next one of its watch."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_etcd, to_etcd = await asyncio.open_connection(*self._to)
        self._tasks |= {
            asyncio.create_task(self._forward(reader, to_etcd)),
            asyncio.create_task(self._forward_frames(from_etcd, writer)),
        }

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    async def _forward_frames(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                header = await reader.readexactly(_HEADER.size)
                high, low, kind, *_ = _HEADER.unpack(header)
                frame = header + await reader.readexactly(high << 8 | low)
                for each in self._passed_on(frame) if kind == DATA else [frame]:
                    writer.write(each)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _passed_on(self, frame: bytes) -> list[bytes]:
        """Return the frames to send in the place of one."""
        message = frame[_HEADER.size + _PREFIX :]
        watch = self._watch_of(message)
        if self._kept is not None and self._kept[0] == watch:
            kept, self._kept = self._kept[1], None
            return [frame, kept]
        if self.lie is None or self.told:
            return [frame]
        if self.lie == "stale":
            older = self._older(frame, message)
            self.told = older != frame
            return [older]
        if watch is None:
            return [frame]
        self.told = True
        if self.lie == "swap":
            self._kept = watch, frame
            return []
        return [] if self.lie == "drop" else [frame, frame]

    def _watch_of(self, message: bytes) -> int | None:
        """Return the watch of a WatchResponse with one event; None for others, which have no field 11."""
        try:
            fields = list(pb.fields(message))
        except (pb.WireError, Malformed, IndexError):
            return None
        if [number for number, _ in fields].count(11) != 1:
            return None
        watch = dict(fields).get(2)
        return watch if isinstance(watch, int) else None

    def _older(self, frame: bytes, message: bytes) -> bytes:
        """Return a frame in which the only key of a RangeResponse was changed a revision earlier, if it has one."""
        try:
            fields = [number for number, _ in pb.fields(message)]
            modified = pb.modified(message) if fields == [1, 2, 4] else 0
        except (pb.WireError, Malformed, IndexError):
            return frame
        if modified < 2:
            return frame
        # mod_revision is field 3 of the key. Its last seven bits are one less, so its length stays.
        wanted = b"\x18" + varint(modified)
        place = frame.rfind(wanted, frame.find(b"\x12", _HEADER.size + _PREFIX))
        if place < 0 or not modified & 0x7F:
            return frame
        return frame[:place] + b"\x18" + varint(modified - 1) + frame[place + len(wanted) :]
