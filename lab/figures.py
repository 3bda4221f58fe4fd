"""Serves figures of a lab over HTTP on loopback, for a Prometheus: what a function says at each scrape.

with ServedFigures() as figures:
    address = figures.serve(lambda: "juju_db_requests_total 3\\n")
    figures.serve(lambda: quota_figures(groups))  # what cAdvisor would say of control groups
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType

from lab.cgroups import Hierarchy

_PERIODS = {
    "nr_periods": "container_cpu_cfs_periods_total",
    "nr_throttled": "container_cpu_cfs_throttled_periods_total",
}
"""The kernel's counts in cpu.stat (Documentation/scheduler/sched-bwc.rst), and what cAdvisor calls them."""


class ServedFigures:
    """Servers of figures, which end with the context."""

    def __init__(self) -> None:
        self._cleanup = ExitStack()

    def __enter__(self) -> ServedFigures:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def serve(self, figures: Callable[[], str]) -> str:
        """Serve what a function returns, in Prometheus' text format; returns the address, HOST:PORT."""

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = figures().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing of each scrape."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        server.daemon_threads = True
        self._cleanup.callback(server.server_close)
        self._cleanup.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return f"127.0.0.1:{server.server_port}"


def quota_figures(groups: Mapping[Hierarchy, Path]) -> str:
    """Return the figures of a control group's CPU quota, as cAdvisor names them; empty without a quota."""
    lines: list[str] = []
    for group in groups.values():
        stat = group / "cpu.stat"
        if not stat.exists():
            continue
        counts = dict(line.split() for line in stat.read_text().splitlines())
        lines += [
            f'{name}{{id="/{group.name}"}} {counts[count]}'
            for count, name in _PERIODS.items()
            if count in counts
        ]
    return "".join(f"{line}\n" for line in lines)
