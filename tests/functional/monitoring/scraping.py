"""Packs asked of a Prometheus that scrapes what a test is about, each second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.query_packs import Pack

WINDOW_S = 5.0
"""The span of rates: several scrapes."""
SOON_S = 600.0

Values = dict[tuple[str, str], float]
"""By host and part."""


def await_figures(
    url: str,
    pack: Pack,
    meanwhile: Callable[[], None] = lambda: None,
    until: Callable[[Mapping[str, Values]], bool] = lambda found: True,
    window: float = WINDOW_S,
) -> dict[str, Values]:
    """All figures of a pack, once each that is not optional has a value, rates span their window, and `until` holds:
    on a busy machine a scrape now and then has no answer in its second.

    `meanwhile` is done over and over until then. `window` is that of rates, in seconds.
    """
    queries = {figure.name: (figure.query(window), figure.part) for figure in pack.figures}
    over = threading.Event()
    began = time.monotonic()
    complete: float | None = None

    def keep_on() -> None:
        while not over.wait(0.2):
            meanwhile()

    with ThreadPoolExecutor(1) as beside:
        kept_on = beside.submit(keep_on)
        try:
            while True:
                found = asyncio.run(_asked(url, queries))
                lacking = [f.name for f in pack.figures if not f.optional and not found[f.name]]
                if not lacking:
                    complete = complete or time.monotonic()
                    if time.monotonic() > complete + window and until(found):
                        return found
                if time.monotonic() > began + SOON_S:
                    raise AssertionError(
                        f"after {SOON_S:g} s no value of {lacking or 'what was waited for'}: {found}"
                    )
                over.wait(0.2)
        finally:
            over.set()
            kept_on.result()


def leaders(url: str, pack: Pack) -> list[str]:
    """The hosts that lead now."""
    answer = asyncio.run(_asked(url, {"leader": (pack.leader_query(), "")}))["leader"]
    return [host for (host, _), value in answer.items() if value == 1]


async def _asked(url: str, queries: Mapping[str, tuple[str, str]]) -> dict[str, Values]:
    """What queries answer now: each with the label that tells a host's series apart."""
    found: dict[str, Values] = {}
    async with Prometheus(url) as prometheus:
        for name, (query, part) in queries.items():
            found[name] = {
                (one.labels.get("host", ""), one.labels.get(part, "") if part else ""): float(one.values[-1])
                for one in await prometheus.query(query)
            }
    return found


def only(values: Values) -> float:
    """The value of a figure that has one series."""
    (value,) = values.values()
    return value
