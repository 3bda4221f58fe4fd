"""A server of a few lines that speaks TLS and WebSocket as a controller does and answers as a test tells it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import orjson

from lab.juju.tls import Certificate, ControllerCertificates, make_controller_certificates

FACADES = [
    {"name": "Application", "versions": [19, 20, 21, 22]},
    {"name": "Deployer", "versions": [99]},
    {"name": "LeadershipService", "versions": [2]},
    {"name": "Pinger", "versions": [1]},
    {"name": "Nonsense", "versions": [1]},
]


class Peer:
    """The server's side of one connection."""

    def __init__(self, server: Stub, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.path = ""
        self.requests: list[dict[str, Any]] = []
        self.frames: list[tuple[int, bytes]] = []
        self.closed = asyncio.Event()
        self.silent = False
        """Read nothing more."""
        self.resumed: bool = writer.get_extra_info("ssl_object").session_reused
        self._cut = asyncio.Event()
        self._reader, self._writer = reader, writer

    def reply(self, request: dict[str, Any], response: object = None, **fields: object) -> None:
        """Answer a request."""
        answer = {"request-id": request["request-id"], "response": response or {}, **fields}
        self.raw(server_frame(0x1, orjson.dumps(answer)))

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._writer.write(data)

    def cut(self) -> None:
        """Cut the connection."""
        self._cut.set()
        self._writer.transport.abort()

    async def serve(self) -> None:
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            self.path = head.split(b" ")[1].decode()
            key = head.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
            self.raw(self.server.welcome(key))
            while not self.silent:
                opcode, payload = await read_client_frame(self._reader)
                self.frames.append((opcode, payload))
                if opcode == 0x1:
                    request = orjson.loads(payload)
                    self.requests.append(request)
                    self.server.answer(self, request)
            await self._cut.wait()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.closed.set()
            self._writer.transport.abort()


class Stub:
    """A server on loopback; `answer(peer, request)` decides what it says."""

    def __init__(self, answer: Callable[[Peer, dict[str, Any]], None]) -> None:
        self.answer = answer
        self.address = ""
        self.ca = ""
        self.peers: list[Peer] = []
        self.connected = asyncio.Event()

    def welcome(self, key: bytes) -> bytes:
        """The answer to the WebSocket handshake."""
        accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        return (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
        )


def login_reply(**fields: object) -> dict[str, Any]:
    """The response to a login, as a Juju 4.0.15 gives it."""
    return {"servers": [], "facades": FACADES, "server-version": "4.0.15", **fields}


def obliging(peer: Peer, request: dict[str, Any]) -> None:
    """Accept every login and give every call its own parameters back."""
    peer.reply(request, login_reply() if request["request"] == "Login" else request["params"])


_made: dict[Certificate, ControllerCertificates] = {}


def certificates(kind: Certificate = "valid") -> ControllerCertificates:
    """Certificates of a kind, the same ones for all servers."""
    if kind not in _made:
        _made[kind] = make_controller_certificates(kind)
    return _made[kind]


@asynccontextmanager
async def stub(
    answer: Callable[[Peer, dict[str, Any]], None] = obliging,
    kind: Certificate = "valid",
    port: int = 0,
    tls: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
) -> AsyncIterator[Stub]:
    """A running server, of this version of TLS at most."""
    made = certificates(kind)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = tls
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
        pem.write(made.cert + made.key)
        pem.flush()
        context.load_cert_chain(pem.name)
    server = Stub(answer)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(server, reader, writer)
        server.peers.append(peer)
        server.connected.set()
        await peer.serve()

    listening = await asyncio.start_server(accept, "127.0.0.1", port, ssl=context, backlog=500)
    server.address = f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    server.ca = made.ca
    try:
        yield server
    finally:
        listening.close()
        for peer in server.peers:  # also those accepted meanwhile
            peer.cut()
            await peer.closed.wait()


def server_frame(opcode: int, payload: bytes, final: bool = True) -> bytes:
    """A frame as a server sends it: not masked."""
    first = bytes([0x80 * final | opcode])
    if len(payload) < 126:
        return first + bytes([len(payload)]) + payload
    if len(payload) < 2**16:
        return first + b"\x7e" + len(payload).to_bytes(2, "big") + payload
    return first + b"\x7f" + len(payload).to_bytes(8, "big") + payload


async def read_client_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """A final, masked frame: its opcode and payload."""
    first, second = await reader.readexactly(2)
    assert first & 0x80
    assert second & 0x80
    length = second & 0x7F
    if length >= 126:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
    key = await reader.readexactly(4)
    masked = await reader.readexactly(length)
    return first & 0x0F, unmask(masked, key)


def unmask(masked: bytes, key: bytes) -> bytes:
    """Each byte with the key's, as RFC 6455, section 5.3 says it."""
    if len(masked) > 2**16:  # the same, faster
        repeated = (key * (len(masked) // 4 + 1))[: len(masked)]
        return (int.from_bytes(masked, "big") ^ int.from_bytes(repeated, "big")).to_bytes(len(masked), "big")
    return bytes(byte ^ key[at % 4] for at, byte in enumerate(masked))
