"""Runs a Prometheus with samples given by a test, which promtool writes into blocks of its database.

    with Recorded(directory, {"up": {'{job="lxd",host="lxd1"}': [(1_790_000_000, 1), ...]}}) as prometheus:
        prometheus.url

A name that ends in _total is a counter. Times are whole Unix seconds, ascending for each series.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType

from lab.patience import PATIENCE_S
from lab.ports import free_ports
from lab.prometheus import find_prometheus, find_promtool
from tippingpoint.monitoring.scrape.server import Server, Serving, command

Samples = Iterable[tuple[int, float]]


class Recorded:
    """Runs while its context is open."""

    def __init__(self, directory: Path, metrics: Mapping[str, Mapping[str, Samples]]) -> None:
        self._directory = directory
        configuration, data = directory / "configuration", directory / "data"
        configuration.mkdir(parents=True)
        (configuration / "prometheus.yml").write_text("global: {}\n")
        text = directory / "samples.om"
        with text.open("w") as file:
            for name, series in metrics.items():
                kind = "counter" if name.endswith("_total") else "gauge"
                file.write(f"# TYPE {name.removesuffix('_total')} {kind}\n")
                for labels, samples in series.items():
                    file.writelines(f"{name}{labels} {value} {t}\n" for t, value in samples)
            file.write("# EOF\n")
        make = [find_promtool(), "tsdb", "create-blocks-from", "openmetrics", text, data]
        subprocess.run(make, check=True, capture_output=True, timeout=PATIENCE_S)
        text.unlink()
        (port,) = free_ports(1)
        serving = Serving(configuration, data, f"127.0.0.1:{port}", retention="100y", retention_size="100GB")
        self._server = Server(command(find_prometheus(), serving), serving)
        self.url = self._server.url

    def __enter__(self) -> Recorded:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not running."""
        return self._server.pid

    def kill(self) -> None:
        """Kill it, as if the machine were lost."""
        self._server.kill()
