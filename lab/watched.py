"""A Prometheus that scrapes a lab's members, and the exporters that tell what the members do not tell themselves.

with EtcdLab() as lab, watched(lab) as prometheus:
    ...  # prometheus.url, for `tippingpoint collect RUN --prometheus URL` once the run has ended
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Protocol

from lab.control import LabError
from lab.exporters import Exporters
from lab.prometheus import PrometheusLab
from tippingpoint.errors import TargetError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.scrape.jobs import Found

_BEFORE = 12
"""Scrapes of everything before a run may begin: rates of what there is without load span several."""
_WITHIN_S = 60.0
_POLL_S = 0.2


class Watchable(Protocol):
    """A lab that says what there is to scrape of it."""

    def scraped(self, exporters: Exporters) -> Found:
        """What a Prometheus scrapes of its members and, by these exporters, beside them."""
        ...


@contextmanager
def watched(lab: Watchable) -> Generator[PrometheusLab]:
    """Scrape each member each second; what is measured from here on has something to be compared with."""
    with Exporters() as exporters, PrometheusLab([lab.scraped(exporters)]) as prometheus:
        asyncio.run(_await_scrapes(prometheus.url))
        yield prometheus


async def _await_scrapes(url: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    lacking = "nothing is scraped"
    async with Prometheus(url) as prometheus:
        while lacking:
            if time.monotonic() > deadline:
                raise LabError(lacking, f"every member scraped within {_WITHIN_S:g} s")
            with suppress(TargetError):  # it has only just started
                lacking = await _lacking(prometheus)
            await asyncio.sleep(_POLL_S)


async def _lacking(prometheus: Prometheus) -> str:
    """A target that does not answer, or has not often enough; empty when there is none."""
    targets = await prometheus.targets()
    if not targets:
        return "nothing is scraped"
    for target in targets:
        enough = 1 if target.url.endswith("/1.0/metrics") else _BEFORE
        if target.health != "up":
            return f"{target.url}: {target.error or target.health}"
        up = f'sum_over_time(up{{job="{target.job}",instance="{target.labels["instance"]}"}}[5m]) >= {enough}'
        if not await prometheus.query(up):
            return f"{target.url}: scraped too seldom"
    return ""
