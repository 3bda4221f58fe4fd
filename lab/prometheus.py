"""Runs a private Prometheus of the distribution on loopback.

with PrometheusLab([static_targets("127.0.0.1:9100")]) as lab:
    ...  # lab.url, lab.configure(found), lab.kill(), lab.start()
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from lab.certificates import Certificates
from lab.control import LabError
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.tether import tethered
from tippingpoint.errors import OperationFailed
from tippingpoint.monitoring.scrape.check import checked, install
from tippingpoint.monitoring.scrape.jobs import Configuration, Found
from tippingpoint.monitoring.scrape.server import Server, Serving, command, web_configuration

_CHECKOUT = Path(__file__).resolve().parents[1]


def find_prometheus() -> Path:
    """Find prometheus: $TIPPINGPOINT_PROMETHEUS, else on PATH, else the one that the scripts fetched into .cache."""
    return _find("prometheus", "TIPPINGPOINT_PROMETHEUS")


def find_promtool() -> Path:
    """Find promtool likewise: $TIPPINGPOINT_PROMTOOL, else on PATH, else in .cache."""
    return _find("promtool", "TIPPINGPOINT_PROMTOOL")


def _find(name: str, variable: str) -> Path:
    named = os.environ.get(variable)
    if named and not os.access(named, os.X_OK):
        raise LabError(f"{variable}: {named}", f"an executable {name}")
    cached = _CHECKOUT / ".cache" / "bin" / name
    found = named or shutil.which(name) or (cached if cached.exists() else None)
    if found is None:
        raise LabError(
            f"{name}: not found",
            f"{name} on PATH, ${variable}, or the one ./scripts/demo or ./scripts/test fetches",
        )
    return Path(found).absolute()


class PrometheusLab:
    """A Prometheus that scrapes its jobs every second. It is ready when the context is entered, and ends with it.

    Its first scrapes come up to 5 s later, because it waits that long for more targets. It dies with this process, even
    by SIGKILL. So does its directory, unless the caller gave one.
    """

    def __init__(
        self,
        found: Iterable[Found] = (),
        *,
        directory: Path | None = None,
        interval: int = 1,
        certificates: Certificates | None = None,
        within: Sequence[str] = (),
        remote_write: bool = False,
    ) -> None:
        """With `certificates` it serves https. `within` is a command that runs it. With `remote_write` others may send
        samples."""
        self._found = list(found)
        self._given = directory
        self._interval = interval
        self._certificates = certificates
        self._within = within
        self._remote_write = remote_write
        self._cleanup = ExitStack()

    def __enter__(self) -> PrometheusLab:
        with ExitStack() as cleanup:
            binary = find_prometheus()
            self.directory = self._given or vanishing_directory(cleanup)
            self.serving = Serving(
                self.directory / "configuration",
                self.directory / "data",
                f"127.0.0.1:{free_ports(1)[0]}",
                web_config=self._web_config(),
                ca=self._certificates.ca if self._certificates else None,
                remote_write=self._remote_write,
            )
            self._install(self._found)
            # It gets a signal when the thread that started it ends, so this thread lasts as long as the lab.
            self._starter = cleanup.enter_context(ThreadPoolExecutor(1, thread_name_prefix="prometheus-lab"))
            self._line = [*self._within, *command(binary, self.serving)]
            self._server: Server | None = None
            cleanup.callback(self._end)
            self.start()
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def url(self) -> str:
        """Its URL."""
        return self.serving.url

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not running."""
        return None if self._server is None else self._server.pid

    def start(self) -> None:
        """Start it with its former data. It is ready on return."""
        self._starter.submit(self._start).result()

    def kill(self) -> None:
        """SIGKILL; it is dead on return."""
        if self._server is not None:
            self._server.kill()

    def configure(self, found: Iterable[Found]) -> Configuration:
        """Make it scrape these jobs from now on. Return the configuration with its problems."""
        made = self._install(found)
        self.reload()
        return made

    def reload(self) -> None:
        """Reload its configuration directory. Raises OperationFailed if that fails."""
        if self._server is not None:
            self._server.reload()

    def _start(self) -> None:
        self._server = Server(tethered(self._line), self.serving)
        try:
            self._server.start()
        except OperationFailed as failed:
            raise LabError(str(failed), "a Prometheus that starts") from None

    def _web_config(self) -> Path | None:
        if self._certificates is None:
            return None
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / "web.yml"
        path.write_text(web_configuration(self._certificates.server_cert, self._certificates.server_key))
        return path

    def _install(self, found: Iterable[Found]) -> Configuration:
        made = checked(found, find_promtool(), self._interval)
        install(self.serving.configuration, made)
        return made

    def _end(self) -> None:
        if self._server is not None:
            self._server.stop()
