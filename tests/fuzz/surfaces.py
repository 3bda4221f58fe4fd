"""What a hostile or damaged side can send: real samples, and what reads them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import lzma
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from tests.fuzz.mutating import mutated
from tippingpoint.cli.program import main
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.digest.unit_digest import make_digest, read_digest
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.importers.juju_log import import_log
from tippingpoint.importers.rally import import_rally
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.selecting import read_matchers
from tippingpoint.plan.read import parse_plan
from tippingpoint.plan.url import Url
from tippingpoint.targets.etcd import http2, messages
from tippingpoint.targets.juju.api.websocket import FrameReader as WebSocketReader
from tippingpoint.targets.juju.api.websocket import Upgrade, WebSocketError
from tippingpoint.targets.maas.elements import Elements
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.status import machine_of
from tippingpoint.targets.pacemaker.live import Live
from tippingpoint.targets.pacemaker.status import read_status
from tippingpoint.targets.pacemaker.wire import FrameReader, WireError, frame

REFUSALS = (
    *(UserError, TargetError, OperationFailed, MaasError, ValidationError),
    *(WireError, messages.WireError, WebSocketError),
)
"""What says no in a line."""
_TESTS = Path(__file__).parents[1]
_RUNS = _TESTS / "data" / "kept-runs"


@dataclass(frozen=True)
class Surface:
    """One way in."""

    name: str
    samples: Callable[[], list[bytes]]
    read: Callable[[bytes, Random], None]
    damage: Callable[[bytes, Random, list[bytes]], bytes] = mutated


def _files(folder: Path, pattern: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob(pattern))]


def _pieces(data: bytes, chance: Random) -> Iterator[bytes]:
    size = chance.choice((1, 7, 200, 65536)) if len(data) < 20_000 else chance.choice((200, 65536))
    for at in range(0, len(data), size):
        yield data[at : at + size]


# -- Pacemaker -----------------------------------------------------------------------------------------------


def _cibs() -> list[bytes]:
    return _files(_TESTS / "data" / "pacemaker", "*.xml")


def _notifications() -> list[bytes]:
    return _files(_TESTS / "unit" / "targets" / "pacemaker" / "recorded", "*.xml")


def _frames() -> list[bytes]:
    return [b"".join(frame(each.decode())) for each in _notifications()]


def _read_frames(data: bytes, chance: Random) -> None:
    reader = FrameReader()
    for piece in _pieces(data, chance):
        for answer in reader.feed(piece):
            _hear(answer.body, chance)


def _hear(data: bytes, chance: Random) -> None:
    live = Live("tp12345678")
    live.hear(data)
    live.hear(data)


# -- etcd ----------------------------------------------------------------------------------------------------


def _http2() -> list[bytes]:
    headers = http2.header_block(
        [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "0")]
    )
    message = b"\0" + struct.pack(">I", 4) + b"\x08\x01\x10\x02"
    settings, answered, data = (
        http2.frame(4, 0, 0),
        http2.frame(1, 4, 1, headers),
        http2.frame(0, 0, 1, message),
    )
    ping, window, away = (
        http2.frame(6, 0, 0, bytes(8)),
        http2.frame(8, 0, 0, b"\0\0\1\0"),
        http2.frame(7, 0, 0, bytes(8)),
    )
    return [
        settings + answered + data + http2.frame(1, 5, 1, headers),
        settings + ping + window,
        settings + away,
    ]


class _Nowhere(asyncio.Transport):
    """A transport to nobody."""

    def write(self, data: Any) -> None:
        pass

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def _read_http2(data: bytes, chance: Random) -> None:
    async def feed() -> None:
        connection = http2.Connection(asyncio.get_running_loop(), lambda reason, failure: None)
        connection.connection_made(_Nowhere())
        connection.open(http2.Stream(), http2.header_block([(":path", "/a")]))
        for piece in _pieces(data, chance):
            connection.data_received(piece)
        connection.connection_lost(None)
        if connection.ready.done():
            connection.ready.exception()

    asyncio.run(feed())


def _messages() -> list[bytes]:
    return [messages.lease_grant(60, 7), messages.claim(b"k", b"v", 7), messages.watch_deletion(1, b"k", 2)]


def _read_messages(data: bytes, chance: Random) -> None:
    for read in (
        messages.revision,
        messages.lease_keys,
        messages.leases,
        messages.key_values,
        messages.watch_answer,
    ):
        with contextlib.suppress(ValueError):
            read(data)


# -- Prometheus, MAAS, Juju ----------------------------------------------------------------------------------


def _prometheus_answers() -> list[bytes]:
    values = [[1_790_000_000 + second, str(second / 7)] for second in range(60)]
    series = [
        {"metric": {"instance": f"m{number}:9100", "job": "host"}, "values": values} for number in range(5)
    ]
    return [
        orjson.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}),
        b'{"status":"error","errorType":"bad_data","error":"parse error"}',
        b'{"status":"success","data":{"resultType":"scalar","result":[1790000000,"NaN"]}}',
    ]


def _read_prometheus(data: bytes, chance: Random) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data
            )
            await writer.drain()
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        try:
            async with Prometheus(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as prometheus:
                await prometheus.query_range("up", 1_790_000_000, 1_790_000_060, 1)
        finally:
            server.close()

    asyncio.run(ask())


def _machines() -> list[bytes]:
    interfaces = [{"mac_address": "52:54:00:00:00:01", "links": [], "name": 'eth"0'}]
    machine = {"system_id": "abc123", "hostname": "tp12345678-000-0000", "status": 4, "status_name": "Ready"}
    entries = [
        {**machine, "interface_set": interfaces, "pool": {"name": "tp12345678-000"}} for _ in range(20)
    ]
    return [orjson.dumps(entries), orjson.dumps(entries, option=orjson.OPT_INDENT_2)]


def _read_machines(data: bytes, chance: Random) -> None:
    elements = Elements()
    with contextlib.suppress(ValueError):
        for piece in _pieces(data, chance):
            for element in elements.feed(piece):
                machine_of("tp12345678", "run", orjson.loads(element))
        elements.end()


def _web_socket() -> list[bytes]:
    answer = b'{"request-id":1,"response":{"results":[{"error":null}]}}'
    return [
        b"\x81" + bytes([len(answer)]) + answer,
        b"\x01\x05hello\x80\x03 bye\x89\x00\x88\x02\x03\xe8",
        b"\x81\x7e\x01\x00" + b"x" * 256,
    ]


def _read_web_socket(data: bytes, chance: Random) -> None:
    reader = WebSocketReader()
    for piece in _pieces(data, chance):
        reader.feed(piece)


def _upgrades() -> list[bytes]:
    return [
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n\x81\x02{}"
    ]


def _read_upgrade(data: bytes, chance: Random) -> None:
    upgrade = Upgrade("127.0.0.1", "/api")
    for piece in _pieces(data, chance):
        if upgrade.feed(piece) is not None:
            break


# -- units ---------------------------------------------------------------------------------------------------


@cache
def _digest() -> str:
    return make_digest(_RUNS / "etcd")


def _damage_digest(sample: bytes, chance: Random, others: list[bytes]) -> bytes:
    """Damage what is packed as often as the text."""
    if chance.random() < 0.2:
        return mutated(sample, chance)
    inside = mutated(lzma.decompress(base64.b64decode(sample)), chance)
    return base64.b64encode(lzma.compress(inside, preset=0))


def _words() -> list[bytes]:
    shared = SharedRun(
        id="20260101-000000-run-aaaa", plan={"name": "x"}, made=1.79e9, units=["load-claimer/0"]
    )
    word = UnitWord.model_construct()
    return [
        shared.model_dump_json().encode(),
        word.model_dump_json(warnings=False).encode(),
        b'{"run":"r","state":"ready"}',
    ]


def _read_words(data: bytes, chance: Random) -> None:
    for model in (SharedRun, UnitWord):
        with contextlib.suppress(ValidationError):
            model.model_validate_json(data)


# -- files and options of people -----------------------------------------------------------------------------


def _plans() -> list[bytes]:
    targets = Path(__file__).parents[2] / "tippingpoint" / "targets"
    return _files(targets, "*/plans/*.yaml")[:40]


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape" if data[:1] > b"m" else "replace")


def _run_directories() -> list[bytes]:
    """Names of kept runs: it is their files that are damaged."""
    return [path.name.encode() for path in sorted(_RUNS.iterdir()) if (path / "manifest.json").exists()]


def _read_run(name: bytes, chance: Random) -> None:
    with tempfile.TemporaryDirectory(prefix="tippingpoint-fuzz-") as kept:
        run = Path(kept) / "run"
        shutil.copytree(_RUNS / name.decode(), run)
        files = [path for path in sorted(run.iterdir()) if path.is_file()]
        contents = [path.read_bytes() for path in files]
        for path in chance.sample(files, chance.choice((1, 1, min(2, len(files))))):
            path.write_bytes(mutated(path.read_bytes(), chance, contents))
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as said,
        ):
            try:
                main(["report", str(run), "--format", chance.choice(("html", "json", "md", "junit"))])
            except SystemExit as ended:
                if ended.code not in (0, 1, 2, 3, None):
                    raise AssertionError(f"exit {ended.code}: {said.getvalue()[-2000:]}") from None
        if "Traceback" in said.getvalue() or "Traceback" in out.getvalue():
            raise AssertionError(said.getvalue()[-2000:])


def _as_they_are(sample: bytes, chance: Random, others: list[bytes]) -> bytes:
    return sample


def _imported(read: Callable[[Path, Path], object]) -> Callable[[bytes, Random], None]:
    def import_it(data: bytes, chance: Random) -> None:
        with tempfile.TemporaryDirectory(prefix="tippingpoint-fuzz-") as kept:
            file = Path(kept) / "input"
            file.write_bytes(data)
            read(file, Path(kept) / "out")

    return import_it


def _juju_log() -> list[bytes]:
    lines = [
        "    0.412s connected [ 12345]    0 a0702/0 in 398ms",
        '    3.058s claimed leadership of "a0702" for "a0702/0" for 1m0s in 1.652s, renewing after 30s',
        '   33.1s extended leadership of "a" for "a/0" for 1m0s in 47ms, held for 30s, renewing after 30s',
        '   99.8s lost leadership of "a0702" for "a0702/0" after 1m36s in 6.7s, blocking until released',
        "3 failed to connect to &{[10.0.0.1:17070] unit-u-0 s3} for a/2 (retrying): try again",
        "",
    ]
    return ["\n".join(lines).encode() * 5]


_URL: TypeAdapter[str] = TypeAdapter(Url)

SURFACES = [
    Surface("pacemaker-cib", _cibs, lambda data, chance: _ignored(read_status(data))),
    Surface("pacemaker-frames", _frames, _read_frames),
    Surface("pacemaker-notifications", _notifications, _hear),
    Surface("etcd-http2", _http2, _read_http2),
    Surface("etcd-messages", _messages, _read_messages),
    Surface("prometheus", _prometheus_answers, _read_prometheus),
    Surface("maas-list", _machines, _read_machines),
    Surface("juju-websocket", _web_socket, _read_web_socket),
    Surface("juju-upgrade", _upgrades, _read_upgrade),
    Surface(
        "digest",
        lambda: [_digest().encode()],
        lambda data, chance: _ignored(read_digest(_text(data))),
        _damage_digest,
    ),
    Surface("words", _words, _read_words),
    Surface("plan", _plans, lambda data, chance: _ignored(parse_plan(_text(data)))),
    Surface(
        "matchers",
        lambda: [b'juju_model=lxd, instance=~"10.0.*"'],
        lambda d, c: _ignored(read_matchers("where", _text(d))),
    ),
    Surface(
        "url",
        lambda: [b"http://[::1]:2379", b"https://host.name:17070"],
        lambda d, c: _ignored(_URL.validate_python(_text(d))),
    ),
    Surface("run-directory", _run_directories, _read_run, _as_they_are),
    Surface("juju-log", _juju_log, _imported(lambda file, out: import_log(file, out))),
    Surface(
        "rally",
        lambda: _files(_TESTS / "recorded", "rally*.json"),
        _imported(lambda file, out: import_rally(file, out)),
    ),
]


def _ignored(value: object) -> None:
    """Drop what was read."""
