"""A small CIB daemon of the tests: it answers frames over TLS as Pacemaker 2.1.5 was seen to, from one ticket store.

Its faults are those that a real one does not produce on demand: a refused login, silence, garbage, an expired
certificate, an acknowledgement that is undone, a copy of the CIB that is old.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

import yaml

from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.wire import Answer, FrameReader, frame

PASSWORD = "let-me-in"
RECORDED = "tp12345678-a-1"
"""The lease of all notifications in recorded/, as real clusters sent them."""
_PARAMETERS = """-----BEGIN X9.42 DH PARAMETERS-----
MIIBJgKBgQDNtCOsETHcZS0tGtyQqGcvMmdTkIAaZIZgMG4epeom+1viZum5Uo2d
nHBY+0/2sKBaOv687nocWz85Ap5IrP1r3yiQ6y2cSuZKFQt2fpSrO39B5/6KTh4V
SYAryHVIhBvno1K2DLcZrd8NHMcDaOnGqyg5hEGRqrK0iPv4w0IUzQKBgDaZ5df3
uPCwXoiJkYVnXIzIT4sSttRcFrtupTfk8FNIkByaWQDNxfDFyZvwxFK+hVLch8hK
9ZOYuGhIZDknbRsv8W/eFsxD0JcdVSttRrwuBBka258YdLV/avzzs6vA80LXgEcR
+Ya6Frw8SSdj4i4oeSTPd9PleANUA5EKymM8Ah0Av5Q6nTlITUP2NfZjM/g9TOhS
Dw6uxGc8Vu+dxw==
-----END X9.42 DH PARAMETERS-----
"""
"""Of `openssl dhparam -dsaparam 1024`: they are no secret."""
_TICKET = re.compile(r"ticket_state[^>\[]*\[@id='([^']*)'(?: and \((.*)\))?\]")
_EQUAL, _BEGINS = re.compile(r"@held='([^']*)'"), re.compile(r"starts-with\(@held,'([^']*)'\)")
_EVERY = re.compile(r"starts-with\(@id,'([^']*)'\)")
_DATA = re.compile(r'<ticket_state id="([^"]*)" held="([^"]*)"')


def recorded(name: str) -> str:
    """A notification of a real cluster."""
    return (Path(__file__).parent / "recorded" / f"{name}.xml").read_text().rstrip()


@cache
def anonymous() -> ssl.SSLContext:
    """TLS as 2.1.5 has it: anonymous Diffie-Hellman."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ADH-AES256-GCM-SHA384:@SECLEVEL=0")
    with NamedTemporaryFile("w") as file:
        file.write(_PARAMETERS)
        file.flush()
        context.load_dh_params(file.name)
    return context


class SmallCib:
    """One node. Several nodes of a test may share `tickets`."""

    def __init__(self, tickets: dict[str, str] | None = None) -> None:
        self.tickets: dict[str, str] = {} if tickets is None else tickets
        self.quorate = True
        self.dc = "1"
        self.num_updates = 5
        self.joined = True
        """Its copy of the CIB is the cluster's. Without it the copy has no state of a member, as before a join."""
        self.silent = False
        """It answers nothing, but a login."""
        self.mute = False
        """It answers not even a login."""
        self.refusing = False
        """It closes the connection at a login, as for a wrong password."""
        self.garbage = b""
        """What it sends instead of the answer to a login."""
        self.rc: int | None = None
        """The return code of every change; None to make it."""
        self.logins = 0
        self.seen: list[Answer] = []
        self.port = 0
        self.notification = ""
        """What it sends to those who watch, once a ticket is freed: a recorded notification about RECORDED."""
        self._watchers: list[asyncio.StreamWriter] = []
        self._clients: list[asyncio.StreamWriter] = []

    def blurt(self, garbage: bytes) -> None:
        """Send bytes to all who are logged in."""
        for writer in self._clients:
            writer.write(garbage)

    def notify(self, xml: str) -> None:
        """Send a notification to all who watch."""
        for writer in self._watchers:
            self._send(writer, xml)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames, served = FrameReader(), True
        while served and (data := await reader.read(65536)):
            for message in frames.feed(data):
                served = await self._answer(message, writer)
                if not served:
                    break
        writer.close()

    async def _answer(self, message: Answer, writer: asyncio.StreamWriter) -> bool:
        if self.mute:
            return True
        if message.attributes.get("op") == "authenticate":
            self.logins += 1
            if self.refusing or message.attributes["password"] != PASSWORD:
                return False
            if self.garbage:
                writer.write(self.garbage)
            else:
                self._send(writer, '<cib_result cib_op="register" cib_clientid="token"/>')
                self._clients.append(writer)
            return True
        self.seen.append(message)
        if message.attributes.get("cib_op") == "cib_notify":
            self._watchers.append(writer)
        if not self.silent and "cib_callid" in message.attributes:
            number = message.attributes["cib_callid"]
            code, data = self._do(message)
            inner = f"<cib_calldata>{data}</cib_calldata>" if data else ""
            self._send(
                writer, f'<cib-reply t="cib" cib_callid="{number}" cib_rc="{code}">{inner}</cib-reply>'
            )
        return True

    def _do(self, message: Answer) -> tuple[int, str]:
        operation, path = message.attributes["cib_op"], message.attributes.get("cib_section", "")
        path = path.replace("&apos;", "'")
        if (every := _EVERY.search(path)) is not None:
            found = [name for name in self.tickets if name.startswith(every[1])]
            if operation == "cib_delete":
                for name in found:
                    del self.tickets[name]
            return (0, "<ticket_state /> " * len(found)) if found else (-6, "")
        if operation == "cib_query":
            if "ticket_state" in path:
                name = self._matching(path)
                return (
                    (-6, "")
                    if name is None
                    else (0, f'<ticket_state id="{name}" held="{self.tickets[name]}"/>')
                )
            if "node_state" in path:
                join = ' join="member"' if self.joined else ""
                states = "".join(
                    f'<node_state id="{n}" uname="node{n}" in_ccm="true" crmd="online"{join}/>'
                    for n in (1, 2)
                )
                return 0, f"<xpath-query>{states}</xpath-query>"
            head = (
                f'<cib admin_epoch="0" epoch="7" num_updates="{self.num_updates}" have-quorum="{int(self.quorate)}" '
                f'dc-uuid="{self.dc}" update-client="crmd"'
            )
            return 0, (
                f'{head}><nvpair id="v" name="dc-version" value="2.1.5-a3f4"/><node id="1" uname="node1"/></cib>'
            )
        if self.rc is not None:
            return self.rc, ""
        changed = _DATA.search(message.body.decode())
        if changed is None:
            return 0, ""
        if "ticket_state" in path and self._matching(path) is None:
            return -6, ""
        self.tickets[changed[1]] = changed[2]
        if not changed[2]:
            self.notify(self.notification.replace(RECORDED, changed[1]))
        return 0, ""

    def _matching(self, path: str) -> str | None:
        found = _TICKET.search(path)
        assert found is not None, path
        name, condition = found[1], found[2]
        held = self.tickets.get(name)
        if held is None:
            return None
        fits = not condition or held in _EQUAL.findall(condition)
        return name if fits or any(held.startswith(begin) for begin in _BEGINS.findall(condition)) else None

    def _send(self, writer: asyncio.StreamWriter, xml: str) -> None:
        for part in frame(xml):
            writer.write(part)


@asynccontextmanager
async def serving(*nodes: SmallCib, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    """Serve nodes at 127.0.0.1, 127.0.0.2 and so on, all at one port, as a cluster's nodes have one."""
    servers: list[asyncio.Server] = []
    port = 0
    try:
        for number, node in enumerate(nodes, start=1):
            server = await asyncio.start_server(
                node._serve, f"127.0.0.{number}", port, ssl=tls or anonymous()
            )
            servers.append(server)
            node.port = port = server.sockets[0].getsockname()[1]
        yield
    finally:
        for server in servers:
            server.close()


def section(directory: Path, *nodes: SmallCib, password: str = PASSWORD, **known: object) -> PacemakerTarget:
    """A plan's section about these nodes, with its file of credentials."""
    path = directory / "credentials.yaml"
    path.touch(0o600)
    path.write_text(
        yaml.safe_dump(
            {
                "addresses": [f"127.0.0.{number}" for number in range(1, len(nodes) + 1)],
                "port": nodes[0].port,
                "user": "hacluster",
                "password": password,
                **known,
            }
        )
    )
    return PacemakerTarget(
        kind="pacemaker", credentials=path, tls="verified" if "ca" in known else "anonymous"
    )
