"""A proxy before a member of etcd that lies once: it drops, repeats or swaps an event, or makes a read old.

It passes HTTP/2 on as it is, and looks at the gRPC messages in the DATA frames that come from etcd. A message that is
changed keeps its length, so that windows of flow control stay right; one that is sent again is a few hundred bytes
more.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, Literal

from tests.functional.etcd.store_load import until, violations
from tippingpoint.plan.store import StoreStage
from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.http2 import DATA
from tippingpoint.util.protobuf import Malformed, varint
from tippingpoint.workloads.store.workload import StoreLoad

Lie = Literal["drop", "repeat", "swap", "stale"]
NAMED = {
    "drop": "event-lost",
    "repeat": "event-repeated",
    "swap": "event-reordered",
    "stale": "stale-read",
}
"""The violation by which a lie is named."""
_HEADER = struct.Struct(">HBBBL")
_PREFIX = 5
"""Bytes of gRPC before a message."""
_OFTEN = 10
"""From this version of a key on, one of its changes was acknowledged before a read was sent."""


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
        """Return a frame in which the only key of a RangeResponse is as it was when it was created. It stays what it is
        where the key was not changed often: then its first change may still be under way, and nothing is old."""
        try:
            answer = list(pb.fields(message))
            pair = dict(answer).get(2)
            if [number for number, _ in answer] != [1, 2, 4] or not isinstance(pair, bytes):
                return frame
            key = dict(pb.fields(pair))
        except (pb.WireError, Malformed, IndexError):
            return frame
        created, modified, version = key.get(2), key.get(3), key.get(4)
        if not (isinstance(created, int) and isinstance(modified, int) and isinstance(version, int)):
            return frame
        # mod_revision is field 3 of the key. A number may be written with more bytes than it needs.
        wanted = b"\x18" + varint(modified)
        place = frame.rfind(wanted, frame.find(b"\x12", _HEADER.size + _PREFIX))
        if version < _OFTEN or place < 0:
            return frame
        size = len(wanted) - 1
        older = (created >> 7 * at & 0x7F | (0x80 if at < size - 1 else 0) for at in range(size))
        return frame[: place + 1] + bytes(older) + frame[place + len(wanted) :]


async def violations_behind(endpoint: str, lie: Lie | None) -> list[dict[str, Any]]:
    """Return what a load that puts, gets and watches reports of a member behind a proxy that lies."""
    proxy = LyingProxy(endpoint)

    async def tell(load: StoreLoad) -> None:
        proxy.lie = lie
        if lie is None:
            await asyncio.sleep(3.0)
        else:
            await until(lambda: proxy.told)
            await until(lambda: bool(load.events))

    async with proxy as address:
        stage = StoreStage(operations=200, watchers=2, keys=20, over=0.0)
        workload = {"mix": {"put": 1, "get": 1}, "prefixes": 1, "bytes": 20}
        return await violations([address], workload, stage, tell)
