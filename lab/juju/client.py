"""A plain, blocking client of a Juju API server, for tests of the simulator and of what it simulates.

It shares no code with tippingpoint.targets.juju, so that the two can only agree by the protocol.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from base64 import b64encode
from types import TracebackType
from typing import Any

from lab.patience import PATIENCE_S


class WireClient:
    """One connection. `exchange` sends a request and returns the reply, both complete as on the wire."""

    def __init__(self, address: str, ca: str, model: str | None = None) -> None:
        """Connect to "host:port" for a model (UUID), or for the controller alone. Raises OSError if that fails."""
        self._next = 1
        self._stash: dict[int, dict[str, Any]] = {}
        self._received = b""
        self._sock = dial(address, ca)
        path = f"/model/{model}/api" if model else "/api"
        key = b64encode(os.urandom(16)).decode()
        self._sock.sendall(
            f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self._received:
            self._more()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(head.splitlines()[0].decode())

    def __enter__(self) -> WireClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def login(self, tag: str, password: str, nonce: str = "") -> dict[str, Any]:
        """Log in and return the reply."""
        params = {"auth-tag": tag, "credentials": password, "nonce": nonce, "client-version": "4.0.0"}
        return self.exchange({"type": "Admin", "version": 3, "request": "Login", "params": params})

    def call(self, facade: str, version: int, request: str, params: object = None) -> dict[str, Any]:
        """Send a request and return the reply."""
        return self.exchange({"type": facade, "version": version, "request": request, "params": params or {}})

    def exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request with a new number, and return the reply."""
        return self.reply(self.send(request))

    def send(self, request: dict[str, Any]) -> int:
        """Send a request and return its number."""
        number = self._next
        self._next += 1
        self._frame(0x1, json.dumps(request | {"request-id": number}).encode())
        return number

    def reply(self, number: int) -> dict[str, Any]:
        """Return the reply to a request. Raises TimeoutError without one, ConnectionError if the server has closed."""
        while number not in self._stash:
            opcode, payload = self._message()
            if opcode == 0x8:
                raise ConnectionError(f"closed by the server: {int.from_bytes(payload[:2], 'big')}")
            if opcode in (0x1, 0x2):
                message = json.loads(payload)
                self._stash[message["request-id"]] = message
        return self._stash.pop(number)

    def until_closed(self, within_s: float = PATIENCE_S) -> str:
        """Wait for the server to end the connection: "closed" by a CLOSE frame, "gone" without one, "reset"."""
        self._sock.settimeout(within_s)
        try:
            while True:
                if self._message()[0] == 0x8:
                    return "closed"
        except ConnectionResetError:
            return "reset"
        except ConnectionError:
            return "gone"

    def silent_for(self, seconds: float) -> bool:
        """Tell whether the server sends nothing for some seconds."""
        self._sock.settimeout(seconds)
        try:
            self._message()
        except TimeoutError:
            return True
        finally:
            self._sock.settimeout(PATIENCE_S)
        return False

    def close(self) -> None:
        """Close the socket without a CLOSE frame."""
        self._sock.close()

    def _frame(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        mask = os.urandom(4)
        if size < 126:
            head = bytes((0x80 | opcode, 0x80 | size))
        elif size < 1 << 16:
            head = bytes((0x80 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
        else:
            head = bytes((0x80 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
        self._sock.sendall(head + mask + masked)

    def _message(self) -> tuple[int, bytes]:
        """Return the next message, joined from its frames."""
        opcode, final, payload = self._one_frame()
        while not final:
            _, final, more = self._one_frame()
            payload += more
        return opcode, payload

    def _one_frame(self) -> tuple[int, bool, bytes]:
        first, size = self._take(2)
        if size in (126, 127):
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return first & 0x0F, bool(first & 0x80), self._take(size)

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._more()
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def _more(self) -> None:
        try:
            data = self._sock.recv(1 << 16)
        except ssl.SSLError as problem:
            raise ConnectionError(str(problem)) from None
        if not data:
            raise ConnectionError("the server has gone")
        self._received += data


def dial(address: str, ca: str) -> ssl.SSLSocket:
    """Open a TLS connection to a server, verified for the common name of all Juju servers."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context(cadata=ca)
    plain = socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S)
    try:
        return context.wrap_socket(plain, server_hostname="juju-apiserver")
    except BaseException:
        plain.close()
        raise


def upload(
    address: str, ca: str, user: str, password: str, model: str, name: str, sha256: str, archive: bytes
) -> tuple[int, dict[str, Any], str | None]:
    """PUT a local charm into a model. Return the HTTP status, the answer's JSON and its Juju-Curl header."""
    connection = http.client.HTTPConnection(address)
    connection.sock = dial(address, ca)
    try:
        credentials = b64encode(f"{user}:{password}".encode()).decode()
        headers = {
            "Content-Type": "application/zip",
            "Juju-Curl": f"local:{name}-0",
            "Authorization": f"Basic {credentials}",
        }
        connection.request("PUT", f"/model-{model}/charms/{name}-{sha256[:7]}", archive, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read()), response.headers.get("Juju-Curl")
    finally:
        connection.close()
