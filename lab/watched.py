"""Runs a Prometheus that scrapes a lab's members, and exporters for figures that the members do not export.

with EtcdLab() as lab, watched(lab) as prometheus:
    ...  # prometheus.url, for `tippingpoint collect RUN --prometheus URL` once the run has ended
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Set
from contextlib import contextmanager, suppress
from typing import Protocol

from lab.control import LabError
from lab.exporters import Exporters
from lab.patience import PATIENCE_S
from lab.prometheus import PrometheusLab
from tippingpoint.errors import TargetError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.scrape.jobs import Found

_BEFORE = 12
"""The number of scrapes before a run may begin, because rates of the idle state span several."""
_POLL_S = 0.2


class Watchable(Protocol):
    """A lab that knows its scrape jobs."""

    def scraped(self, exporters: Exporters) -> Found:
        """Return the scrape jobs for its members and, by these exporters, for their machines."""
        ...


@contextmanager
def watched(lab: Watchable) -> Generator[PrometheusLab]:
    """Scrape each member every second, and wait until there are enough samples of the idle state."""
    with Exporters() as exporters:
        found = lab.scraped(exporters)
        with PrometheusLab([found]) as prometheus:
            # A job with an interval of its own is slow to answer, and one sample of it has to do.
            asyncio.run(_await_scrapes(prometheus.url, {job.name for job in found.jobs if job.interval}))
            yield prometheus


async def _await_scrapes(url: str, slow: Set[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    lacking = "nothing is scraped"
    async with Prometheus(url) as prometheus:
        while lacking:
            if time.monotonic() > deadline:
                raise LabError(lacking, f"every member scraped within {PATIENCE_S:g} s")
            with suppress(TargetError):  # it has only just started
                lacking = await _lacking(prometheus, slow)
            await asyncio.sleep(_POLL_S)


async def _lacking(prometheus: Prometheus, slow: Set[str]) -> str:
    """Return the problem of a target that has not answered often enough; empty without one."""
    targets = await prometheus.targets()
    if not targets:
        return "nothing is scraped"
    for target in targets:
        enough = 1 if target.job in slow else _BEFORE
        if target.health != "up":
            return f"{target.url}: {target.error or target.health}"
        up = f'sum_over_time(up{{job="{target.job}",instance="{target.labels["instance"]}"}}[5m]) >= {enough}'
        if not await prometheus.query(up):
            return f"{target.url}: scraped too seldom"
    return ""
