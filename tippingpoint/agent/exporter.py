"""Exports this unit's figures to Prometheus, from its workers' ticks; no file is read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan
from tippingpoint.play.messages import Tick, UnreadTicks
from tippingpoint.play.watcher import StageProgress
from tippingpoint.rundir.histogram import SLOTS, highest_values, middle_values
from tippingpoint.rundir.tags import OUTCOMES

BUCKETS = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5,
    0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
)  # fmt: skip
"""Upper bounds in seconds, each 1.3 to 2 times the one before, which bounds the error of a percentile."""
_BOUNDS = (*(f"{bound:g}" if bound != int(bound) else f"{bound:.1f}" for bound in BUCKETS), "+Inf")
_BUCKET_OF = np.searchsorted(
    np.array(BUCKETS) * 1e6, highest_values(np.arange(SLOTS, dtype=np.int64)), side="left"
)
_OF_RUN = ("run", "plan", "target")
_SILENT = logging.getLogger("tippingpoint.agent.exporter")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class _Times:
    """Latencies of one operation, by BUCKETS."""

    def __init__(self) -> None:
        self.counts = np.zeros(len(BUCKETS) + 1, dtype=np.int64)
        self.sum = 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """Return the upper bounds, and how many latencies are at most that long."""
        return list(zip(_BOUNDS, accumulate(self.counts.tolist()), strict=True))


class Measured(Collector):
    """The figures of the current part. Counters keep their values after its end, until the next run."""

    def __init__(self) -> None:
        self._labels: tuple[str, str, str] | None = None
        self._running = False
        self._forget()

    def _forget(self) -> None:
        self._ticks: dict[str, Tick] = {}
        self._unread = UnreadTicks(self._add)
        self._progress: StageProgress | None = None
        self._operations: dict[tuple[str, str], int] = {}
        self._response: dict[str, _Times] = {}
        self._service: dict[str, _Times] = {}

    def began(self, run: str, plan: Plan) -> None:
        """Note that a run begins, and forget the figures of another run."""
        self._forget()
        self._labels = (run, plan.name, plan.target.kind)
        self._running = True

    def ended(self) -> None:
        """Note that the run is over: its load is zero from now on."""
        self._running = False

    def worker_gone(self, worker: str) -> None:
        """Forget the gauges of a worker that is gone."""
        self._ticks.pop(worker, None)

    def tick(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """Add one worker's last second: its gauges and what it measured."""
        self._progress = progress
        self._ticks[worker] = tick
        self._unread.add(None, tick)

    def _add(self, _: None, tick: Tick) -> None:
        for name, (slots, counts) in tick.measured.items():
            operation, outcome, *service = name.split(".")
            if outcome not in OUTCOMES:
                continue  # the generator's own health
            if not service:
                key = (operation, outcome)
                self._operations[key] = self._operations.get(key, 0) + int(counts.sum())
            if outcome == "ok":
                times = (self._service if service else self._response).setdefault(operation, _Times())
                times.counts += np.bincount(_BUCKET_OF[slots], counts, len(times.counts)).astype(np.int64)
                times.sum += float((middle_values(slots) * counts).sum()) / 1e6

    def collect(self) -> Iterable[Metric]:
        """Return the metrics; none before the first run."""
        if self._labels is None:
            return
        self._unread.read()
        yield from self._gauges(self._labels)
        operations = CounterMetricFamily(
            "tippingpoint_operations", "Operations that ended.", labels=[*_OF_RUN, "operation", "outcome"]
        )
        for key, count in sorted(self._operations.items()):
            operations.add_metric([*self._labels, *key], count)
        yield operations
        for name, text, measured in (
            ("latency", "Time from the moment an operation was due to its answer.", self._response),
            ("service", "Time from the moment an operation was sent to its answer.", self._service),
        ):
            family = HistogramMetricFamily(
                f"tippingpoint_{name}_seconds", text, labels=[*_OF_RUN, "operation"]
            )
            for operation, times in sorted(measured.items()):
                family.add_metric([*self._labels, operation], times.buckets(), times.sum)
            yield family

    def _gauges(self, labels: Sequence[str]) -> Iterable[Metric]:
        ticks = list(self._ticks.values()) if self._running else []
        progress = self._progress if self._running else None
        told: list[tuple[str, str, float]] = [
            ("held", "Leases held, or things that exist.", sum(tick.held for tick in ticks)),
            ("goal", "The leases or things of this unit in this stage.", progress.goal if progress else 0),
            ("stage", "The current stage; 0 if there is none.", progress.stage if progress else 0),
            ("up", "Whether this unit has a part in a current run.", self._running),
            ("generator_cpu_cores", "Cores that the workers use.", sum(tick.cpu for tick in ticks)),
            (
                "generator_busiest_worker",
                "Share of its one core that the busiest worker uses.",
                max((tick.cpu for tick in ticks), default=0.0),
            ),
        ]
        for name, text, value in told:
            family = GaugeMetricFamily(f"tippingpoint_{name}", text, labels=_OF_RUN)
            family.add_metric(labels, value)
            yield family


class Exporter:
    """An HTTP server for the figures."""

    def __init__(self, measured: Measured) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(measured)
        self._server: web.AppRunner | None = None

    async def open(self, address: str) -> None:
        """Listen on ADDRESS:PORT; raises UserError for a malformed one, and OSError if the port is in use."""
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise UserError("--metrics", address, "ADDRESS:PORT, such as 0.0.0.0:9477")
        application = web.Application(logger=_SILENT)
        application.router.add_get("/metrics", self._metrics)
        self._server = web.AppRunner(application, access_log=None, logger=_SILENT, shutdown_timeout=1.0)
        await self._server.setup()
        await web.TCPSite(self._server, host.strip("[]"), int(port)).start()

    @property
    def addresses(self) -> list[Any]:
        """The addresses that it listens on."""
        return [] if self._server is None else self._server.addresses

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})
