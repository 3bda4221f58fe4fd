"""A listener between the program and a simulated controller, who has the controller's key and reads everything."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import select
import shutil
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import yaml

from lab.juju.client import dial
from lab.juju.simulator import JujuLab
from lab.juju.websocket import Parser, ProtocolError

_PATIENCE_S = 0.2
_LONGEST_SEND_S = 120.0


class Said(NamedTuple):
    """A request of a client."""

    on: str
    """ "model" or "controller": what its connection is for."""
    what: str
    """The facade, its version and the method, as "Client/8.FullStatus", or "PUT charm"."""
    params: Any
    """What was sent with it: parameters, or headers."""


class Wiretap:
    """Passes on what is said to a lab's first server. Keeps every password and every request that it hears.

    `data` is a JUJU_DATA. Listens from the beginning of the context to its end.
    """

    def __init__(self, lab: JujuLab, directory: Path) -> None:
        self.secrets: set[str] = set()
        self.said: list[Said] = []
        """The requests, in the order in which they were sent."""
        self.data = directory / "tapped"
        self._lab = lab
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(lab.directory / "cert.pem", lab.directory / "key.pem")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_PATIENCE_S)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Wiretap:
        shutil.copytree(self._lab.data, self.data)
        store = self.data / "controllers.yaml"
        content = yaml.safe_load(store.read_text())
        host, port = self._listener.getsockname()
        content["controllers"][self._lab.controller]["api-endpoints"] = [f"{host}:{port}"]
        store.write_text(yaml.safe_dump(content))
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                plain, _ = self._listener.accept()
                thread = threading.Thread(target=self._converse, args=(plain,))
                self._threads.append(thread)
                thread.start()

    def _converse(self, plain: socket.socket) -> None:
        """One connection, both ways, until either side ends it."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as both:
            plain.settimeout(_LONGEST_SEND_S)
            client = both.enter_context(self._tls.wrap_socket(plain, server_side=True))
            server = both.enter_context(dial(self._lab.addresses[0], self._lab.ca))
            ear = _Ear(self.secrets, self.said)
            while not self._over.is_set():
                for here, there in ((client, server), (server, client)):
                    data = _heard(here)
                    if data is None:
                        continue
                    if not data:
                        return
                    if here is client:
                        ear.hear(data)
                    there.settimeout(_LONGEST_SEND_S)
                    there.sendall(data)
                if not client.pending() and not server.pending():
                    select.select([client, server], [], [], _PATIENCE_S)


def _heard(end: ssl.SSLSocket) -> bytes | None:
    """What has arrived, nothing when the other side has left, None while it is silent."""
    end.setblocking(False)
    try:
        return end.recv(1 << 16)
    except ssl.SSLWantReadError:
        return None


class _Ear:
    """Hears what a client says, with the passwords in the Authorization of an upload, in logins, in SetPasswords."""

    def __init__(self, secrets: set[str], said: list[Said]) -> None:
        self._secrets = secrets
        self._said = said
        self._on = ""
        self._head = b""
        self._parser: Parser | None = None

    def hear(self, data: bytes) -> None:
        if self._parser is not None:
            self._messages(data)
            return
        self._head += data
        head, end, rest = self._head.partition(b"\r\n\r\n")
        if not end or self._on:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.title(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._on = "model" if path.startswith("/model") else "controller"
        if authorization := re.fullmatch(r"(?i)basic (\S+)", headers.get("Authorization", "")):
            self._secrets.add(authorization[1])
            self._secrets.add(base64.b64decode(authorization[1]).decode().partition(":")[2])
            wanted = ("Content-Type", "Juju-Curl")
            self._said.append(Said(self._on, f"{method} charm", {name: headers.get(name) for name in wanted}))
        elif headers.get("Upgrade", "").lower() == "websocket":
            self._parser = Parser()
            self._messages(rest)

    def _messages(self, data: bytes) -> None:
        assert self._parser is not None
        with contextlib.suppress(ProtocolError):
            for opcode, payload in self._parser.feed(data):
                if opcode == 1:
                    message = json.loads(payload)
                    what = f"{message['type']}/{message['version']}.{message['request']}"
                    self._said.append(Said(self._on, what, message["params"]))
                    self._find(message)

    def _find(self, value: object) -> None:
        if isinstance(value, dict):
            for name, inside in value.items():
                if name in ("credentials", "password") and isinstance(inside, str) and inside:
                    self._secrets.add(inside)
                else:
                    self._find(inside)
        elif isinstance(value, list):
            for inside in value:
                self._find(inside)
