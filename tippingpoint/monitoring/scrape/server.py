"""Runs the distribution's Prometheus with a configuration directory (jobs.py) and a data directory.

systemd needs only `command`, and `kill -HUP` for a reload. `awaited_reload` and `problems` show the service's health.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tippingpoint.errors import OperationFailed, UserError
from tippingpoint.util import timing

CONFIGURATION = "prometheus.yml"
"""The name of Prometheus' file in the configuration directory."""
LEAST_ROOM = 200 << 20
"""The free bytes below which the disk counts as full. A new block and the WAL (over two hours of samples) need this for
100 targets (1000 series each, 15 s, 2 bytes per sample in a block and 8 in the WAL)."""
READY_WITHIN = 120.0
"""The most seconds until it answers queries. It reads the WAL first, which takes about 20 s for 100 targets."""
_RELOADED_WITHIN = 10.0
_STOPPED_WITHIN = 60.0
_ANSWER_WITHIN = 5.0
_POLL = 0.05
_LARGEST_ANSWER = 4 << 20
_RELOADED = "prometheus_config_last_reload_success_timestamp_seconds"
_RELOAD_SUCCEEDED = "prometheus_config_last_reload_successful"
_WRITES_FAILED = ("prometheus_tsdb_wal_writes_failed_total", "prometheus_tsdb_compactions_failed_total")


@dataclass(frozen=True)
class Serving:
    """The settings of a Prometheus."""

    configuration: Path
    """The directory with prometheus.yml."""
    data: Path
    """The directory of samples, which survives a restart."""
    address: str = "127.0.0.1:9090"
    """The address that it listens at: HOST:PORT."""
    retention: str = "15d"
    retention_size: str = "5GB"
    """The most data (with the WAL), in Prometheus' form; the oldest are removed."""
    web_config: Path | None = None
    """The file made by `web_configuration`, for TLS."""
    ca: Path | None = None
    """The authority of its certificate, for our own queries; with TLS only."""
    remote_write: bool = False
    """Whether others may send samples, such as COS agents."""

    @property
    def url(self) -> str:
        """The URL on this machine."""
        host, port = _host_and_port(self.address)
        local = _local(host)
        shown = f"[{local}]" if ":" in local else local
        return f"{'http' if self.web_config is None else 'https'}://{shown}:{port}"


def find_program(name: str) -> Path | None:
    """Find `prometheus` or `promtool`: $TIPPINGPOINT_PROMETHEUS (or ..._PROMTOOL), else the one on PATH.

    Returns None if there is none. Raises UserError if the variable names no program.
    """
    variable = f"TIPPINGPOINT_{name.upper()}"
    named = os.environ.get(variable)
    if named and not os.access(named, os.X_OK):
        raise UserError(variable, named, f"an executable {name}")
    found = named or shutil.which(name)
    return Path(found).absolute() if found else None


def command(prometheus: Path, serving: Serving) -> list[str]:
    """Return the command line of a Prometheus, for systemd's ExecStart or a child process."""
    _host_and_port(serving.address)
    line = [
        str(prometheus),
        f"--config.file={serving.configuration / CONFIGURATION}",
        f"--storage.tsdb.path={serving.data}",
        f"--storage.tsdb.retention.time={serving.retention}",
        f"--storage.tsdb.retention.size={serving.retention_size}",
        f"--web.listen-address={serving.address}",
        "--log.level=info",  # shows the reason of a failed reload
    ]
    if serving.web_config is not None:
        line.append(f"--web.config.file={serving.web_config}")
    if serving.remote_write:
        line.append("--web.enable-remote-write-receiver")
    return line


def web_configuration(certificate: Path, key: Path) -> str:
    """Return the text of a --web.config.file: TLS 1.2 and newer, with that certificate and key."""
    files = f"cert_file: {_quoted(certificate)}\n  key_file: {_quoted(key)}"
    return f"tls_server_config:\n  {files}\n  min_version: TLS12\n"


def is_ready(serving: Serving) -> bool:
    """Return whether it answers queries now."""
    return _get(serving, "/-/ready") is not None


def problems(serving: Serving) -> list[str]:
    """Return its present problems, a line each: no answer, a full disk, failed writes, a failed reload."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        disk = os.statvfs(serving.data)
        if disk.f_bavail * disk.f_frsize < LEAST_ROOM:
            found.append(f"{serving.data}: the disk is full: expected {LEAST_ROOM >> 20} MiB free")
    figures = _figures(serving)
    if not figures:
        return [*found, f"{serving.url}: Prometheus does not answer"]
    if any(figures.get(name, 0) > 0 for name in _WRITES_FAILED):
        found.append(f"{serving.data}: Prometheus could not write samples: expected room on the disk")
    if figures.get(_RELOAD_SUCCEEDED) == 0:
        found.append(f"{serving.configuration}: Prometheus keeps its previous configuration")
    return found


@contextlib.contextmanager
def awaited_reload(serving: Serving) -> Generator[None, None, None]:
    """Check a reload (SIGHUP) that the context starts. Raises OperationFailed if the configuration was refused."""
    before = _figures(serving)
    yield
    deadline = timing.monotonic() + _RELOADED_WITHIN
    while timing.monotonic() < deadline:
        now = _figures(serving)
        if now.get(_RELOADED, before.get(_RELOADED)) != before.get(_RELOADED):
            return
        if now.get(_RELOAD_SUCCEEDED) == 0 and before.get(_RELOAD_SUCCEEDED) != 0:
            break  # if an earlier reload failed, too, only time shows that this one did
        timing.sleep(_POLL)
    raise OperationFailed(
        f"{serving.configuration}: Prometheus did not take it: expected what promtool accepts"
    )


class Server:
    """One Prometheus as a child process: `with Server(command(...), serving)`. It ends with the context."""

    def __init__(self, line: Sequence[str], serving: Serving) -> None:
        self.serving = serving
        self._line = list(line)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = serving.data.parent / f"{serving.data.name}.log"

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Its URL."""
        return self.serving.url

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it with its former data, and wait until it is ready. Raises OperationFailed if it ends."""
        if _listens(self.serving.address):
            # Otherwise it would be unclear which of the two answers.
            raise OperationFailed(
                f"{self.serving.address}: something else listens there: expected a free port"
            )
        self.serving.data.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = timing.monotonic() + READY_WITHIN
        while not is_ready(self.serving):
            if self._process.poll() is not None:
                raise OperationFailed(f"prometheus: did not start: {self._last_words()}")
            if timing.monotonic() > deadline:
                self.kill()
                raise OperationFailed(f"prometheus: not ready within {READY_WITHIN:g} s")
            timing.sleep(_POLL)

    def reload(self) -> None:
        """Reload the configuration directory. Raises OperationFailed, with its last message, if that fails."""
        process = self._process
        if process is None or self.pid is None:
            raise OperationFailed("prometheus: is not running")
        try:
            with awaited_reload(self.serving):
                process.send_signal(signal.SIGHUP)
        except OperationFailed as failed:
            raise OperationFailed(f"{failed} ({self._last_words()})") from None

    def stop(self) -> None:
        """End it (SIGTERM), by force if it takes a minute."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it (SIGKILL). After `start` it still has the samples written until then."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOPPED_WITHIN)

    def _last_words(self) -> str:
        """Return its last error message."""
        lines = self._log.read_bytes()[-65_536:].decode(errors="replace").splitlines()
        errors = [line for line in lines if "level=error" in line] or lines
        last = errors[-1] if errors else "it said nothing"
        told = re.search(r'err="((?:[^"\\]|\\.)*)"', last)
        return (told[1].replace('\\"', '"') if told else last)[:300]


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UserError("address", address, "HOST:PORT, such as 127.0.0.1:9090")
    return host.strip("[]"), int(port)


def _local(host: str) -> str:
    """Return a host by which a listening address is reached from here."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _listens(address: str) -> bool:
    host, port = _host_and_port(address)
    try:
        socket.create_connection((_local(host), port), _ANSWER_WITHIN).close()
    except OSError:
        return False
    return True


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def _figures(serving: Serving) -> dict[str, float]:
    """Return its own figures without labels; empty if it does not answer."""
    body = _get(serving, "/metrics")
    lines = () if body is None else body.decode(errors="replace").splitlines()
    found: dict[str, float] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        with contextlib.suppress(ValueError):
            found[name] = float(value)
    return found


def _get(serving: Serving, path: str) -> bytes | None:
    """Return its answer; None without one, or if it is an error."""
    host, port = _host_and_port(serving.address)
    local = _local(host)
    connection: http.client.HTTPConnection
    if serving.web_config is None:
        connection = http.client.HTTPConnection(local, port, timeout=_ANSWER_WITHIN)
    else:
        tls = ssl.create_default_context(cafile=serving.ca)
        tls.check_hostname = False  # the certificate's names are for access from elsewhere
        connection = http.client.HTTPSConnection(local, port, timeout=_ANSWER_WITHIN, context=tls)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read(_LARGEST_ANSWER)
        return body if response.status == 200 else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
