"""What a connection and a call of the Juju API client cost, beside a client on picows, in one run.

    .venv/bin/python tests/benchmarks/bench_juju_connections.py [CONNECTIONS] [--rounds N]

Each client is a process of its own on uvloop; it connects and logs in CONNECTIONS times (default 2000), then
makes 10 calls on each, 50 at a time. The server is a third process on picows over TLS 1.3, which answers with
a login reply as long as a real controller's (8 KB). Memory is resident memory added per connection, CPU is
user and system time of the client's process; medians of the rounds. The peer does what ours does: a future a
call, orjson, the certificate verified for juju-apiserver; it does not ping, resume, or read the facades twice.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
import uvloop

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.juju.tls import make_controller_certificates  # noqa: E402
from tests.benchmarks.sides import cpu_seconds  # noqa: E402

MODEL = "ef3d116f-0437-4a17-844b-bde876780123"
CALLS = 10
AT_ONCE = 50
CLAIM = {"params": [{"application-tag": "application-tp1a2b3c4d-l17", "unit-tag": "unit-tp1a2b3c4d-l17-0",
                     "duration": 60.0}]}  # fmt: skip
FACADES = [{"name": f"Facade{number}WithAName", "versions": [1, 2, 3]} for number in range(150)]
LOGIN_REPLY = {
    "servers": [[{"value": "192.0.2.10", "type": "ipv4", "scope": "local-cloud", "port": 17070}]],
    "model-tag": f"model-{MODEL}",
    "facades": [
        *FACADES,
        {"name": "LeadershipService", "versions": [2]},
        {"name": "Pinger", "versions": [1]},
    ],
    "server-version": "4.0.15",
}


def resident_kib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024


async def serve(directory: Path) -> None:
    from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

    class Controller(WSListener):
        def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
            if frame.msg_type == WSMsgType.TEXT:
                request = orjson.loads(frame.get_payload_as_memoryview())
                response: Any = LOGIN_REPLY if request["request"] == "Login" else {"results": [{}]}
                answer = {"request-id": request["request-id"], "response": response}
                transport.send(WSMsgType.TEXT, orjson.dumps(answer))
            elif frame.msg_type == WSMsgType.CLOSE:
                transport.disconnect()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    server = await ws_create_server(lambda request: Controller(), "127.0.0.1", 0, ssl=context, backlog=1000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def ours(port: int, ca: str, count: int) -> dict[str, float]:
    from tippingpoint.targets.juju.api.client import ApiClient
    from tippingpoint.targets.juju.api.login import Identity

    client = ApiClient([f"127.0.0.1:{port}"], ca)

    async def connect(number: int) -> Any:
        return await client.login(Identity(f"unit-tp1a2b3c4d-l{number}-0", "secret"), MODEL)

    def call(connection: Any) -> Any:
        return connection.call("LeadershipService", "ClaimLeadership", CLAIM)

    figures = await measure(connect, call, count)
    await client.close()
    return figures


async def picows(port: int, ca: str, count: int) -> dict[str, float]:
    from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ca)
    loop = asyncio.get_running_loop()

    class Peer(WSListener):
        def __init__(self) -> None:
            self.transport: WSTransport | None = None
            self.last = 0
            self.pending: dict[int, asyncio.Future[Any]] = {}

        def on_ws_connected(self, transport: WSTransport) -> None:
            self.transport = transport

        def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
            if frame.msg_type == WSMsgType.TEXT:
                reply = orjson.loads(frame.get_payload_as_memoryview())
                self.pending.pop(reply["request-id"]).set_result(reply["response"])

        def call(self, facade: str, version: int, request: str, params: object) -> asyncio.Future[Any]:
            self.last += 1
            future = self.pending[self.last] = loop.create_future()
            message = {"request-id": self.last, "type": facade, "version": version, "request": request,
                       "params": params}  # fmt: skip
            assert self.transport is not None
            self.transport.send(WSMsgType.TEXT, orjson.dumps(message))
            return future

    places = asyncio.Semaphore(64)

    async def connect(number: int) -> Peer:
        async with places:
            _, peer = await ws_connect(
                Peer,
                f"wss://127.0.0.1:{port}/model/{MODEL}/api",
                ssl_context=context,
                server_hostname="juju-apiserver",
            )
        assert isinstance(peer, Peer)
        params = {"auth-tag": f"unit-tp1a2b3c4d-l{number}-0", "credentials": "secret", "nonce": ""}
        await peer.call("Admin", 3, "Login", {**params, "client-version": "4.0.0"})
        return peer

    return await measure(
        connect, lambda peer: peer.call("LeadershipService", 2, "ClaimLeadership", CLAIM), count
    )


async def measure(connect: Any, call: Any, count: int) -> dict[str, float]:
    """Connect `count` times at once, then call on each connection in turn; what it cost."""
    first = await connect(0)
    memory, used, begun = resident_kib(), cpu_seconds(), time.monotonic()
    connections = await asyncio.gather(*(connect(number) for number in range(1, count)))
    figures = {
        "KiB per connection": (resident_kib() - memory) / (count - 1),
        "CPU ms per connection": (cpu_seconds() - used) / (count - 1) * 1000,
        "s for all": time.monotonic() - begun,
    }
    connections.append(first)
    used = cpu_seconds()
    turns = iter([connection for _ in range(CALLS) for connection in connections])

    async def caller() -> None:
        for connection in turns:
            await call(connection)

    await asyncio.gather(*(caller() for _ in range(AT_ONCE)))
    figures["CPU us per call"] = (cpu_seconds() - used) / (CALLS * count) * 1e6
    return figures


def run_client(side: str, port: str, ca: Path, count: int) -> dict[str, float]:
    command = [sys.executable, __file__, str(count), "--side", side, "--port", port, "--directory", str(ca)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def compare(count: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        certificates = make_controller_certificates("valid")
        for name in ("ca", "cert", "key"):
            (directory / f"{name}.pem").write_text(getattr(certificates, name))
        command = [sys.executable, __file__, "--side", "server", "--directory", made]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            port = server.stdout.readline().strip()
            figures: dict[str, list[dict[str, float]]] = {"ours": [], "picows": []}
            for _ in range(rounds):
                for side, found in figures.items():
                    found.append(run_client(side, port, directory, count))
            assert server.stdin is not None
            server.stdin.close()
    print(f"{count} connections, medians of {rounds}")
    print(f"{'':24}{'ours':>10}{'picows':>10}{'ratio':>8}")
    for name in figures["ours"][0]:
        mine, peer = (statistics.median(i[name] for i in figures[side]) for side in ("ours", "picows"))
        print(f"{name:24}{mine:10.2f}{peer:10.2f}{mine / peer:8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("connections", type=int, nargs="?", default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    for internal in ("--side", "--port", "--directory"):
        parser.add_argument(internal, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is None:
        compare(options.connections, options.rounds)
        return
    directory = Path(options.directory)
    if options.side == "server":
        uvloop.run(serve(directory))
        return
    client = {"ours": ours, "picows": picows}[options.side]
    print(
        json.dumps(
            uvloop.run(client(int(options.port), (directory / "ca.pem").read_text(), options.connections))
        )
    )


if __name__ == "__main__":
    main()
