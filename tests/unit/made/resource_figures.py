"""Resources made up for tests: figures of a target's hosts under a load that grows, one of them leading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tippingpoint.rundir.resources import Cost, FigureData, Resources, Series

Course = Callable[[np.ndarray, bool], np.ndarray]
"""Values over time, in the figure's unit, of a host that leads or follows."""

MEANINGS = {
    "cpu": ("CPU", "cores", "Cores that the host's processes used."),
    "load1": ("Load average, 1 minute", "count", "Processes that ran or wanted to, over the last minute."),
    "memory": ("Resident memory", "bytes", "Memory of the daemon that is in RAM."),
    "network-in": ("Network in", "bits/s", "Received by all interfaces but loopback."),
    "network-out": ("Network out", "bits/s", "Sent by all interfaces but loopback."),
    "disk-writes": ("Disk writes", "count/s", "Writes that all disks completed."),
    "fsync": (
        "Time of an fsync",
        "seconds",
        "How long the write-ahead log waits for the disk, 99th percentile.",
    ),
    "busy": ("Disk busy", "ratio", "Share of the time for which a disk had something to do."),
}


def made_figure(
    name: str,
    t: np.ndarray,
    courses: Mapping[str, np.ndarray] | Mapping[tuple[str, str], np.ndarray],
    *,
    pack: str = "host",
    cost: Cost = "",
    chart: bool = True,
) -> FigureData:
    """A figure with these values by host, or by host and part; NaN is no sample."""
    title, unit, meaning = MEANINGS.get(name, (name, "count", f"Made up: {name}."))
    series: list[Series] = []
    for key, values in courses.items():
        host, part = (key, "") if isinstance(key, str) else key
        told = [None if np.isnan(v) else float(v) for v in np.broadcast_to(values, t.shape)]
        series.append(Series(host=host, part=part, values=told))
    return FigureData(
        name=name, title=title, unit=unit, meaning=meaning, pack=pack, cost=cost, chart=chart, series=series
    )


def made_resources(
    figures: Sequence[FigureData],
    t: np.ndarray,
    *,
    leader: Sequence[tuple[float, str]] = (),
    missing: Sequence[tuple[str, str]] = (),
    gaps: Sequence[tuple[float, float, str]] = (),
    clock: Mapping[str, float] | None = None,
) -> Resources:
    """What was gathered at these moments."""
    return Resources(
        source="Prometheus 2.42.0",
        step=float(t[1] - t[0]) if len(t) > 1 else 15.0,
        t=[float(moment) for moment in t],
        leader=list(leader),
        figures=list(figures),
        missing=list(missing),
        gaps=list(gaps),
        clock=dict(clock or {}),
    )


def resources_of(
    hosts: Sequence[str],
    seconds: float,
    *,
    step: float = 1.0,
    led: Sequence[tuple[float, str]] = (),
    figures: Sequence[str] = tuple(MEANINGS),
    seed: int = 6,
    away: tuple[str, float, float] | None = None,
) -> Resources:
    """A cluster under a load that grows over these seconds: whoever leads sends five times as much as the others.

    `away` is a host of which nothing was scraped from one moment to another.
    """
    random = np.random.default_rng(seed)
    t = np.arange(-4 * step, seconds + step, step)
    growth = np.clip(t / seconds, 0.0, 1.0)
    leading = {host: np.zeros(len(t), dtype=bool) for host in hosts}
    for number, (since, host) in enumerate(led):
        until = led[number + 1][0] if number + 1 < len(led) else np.inf
        leading[host] |= (t >= since) & (t < until)

    def course(host: str, name: str) -> np.ndarray:
        heavy, noise = np.where(leading[host], 1.0, 0.0), random.normal(1.0, 0.04, len(t))
        bumps = 1 + 0.15 * np.sin(t / seconds * 40 + hosts.index(host))
        return noise * {
            "cpu": 0.1 + growth * (0.9 + 1.3 * heavy) * bumps,
            "load1": 0.3 + growth * (2.0 + 3.0 * heavy),
            "memory": 1.1e8 + growth * (9e7 + 4.2e8 * heavy),
            "network-in": 2e6 + growth * 6e7 * (0.7 + 0.3 * heavy) * bumps,
            "network-out": 1e6 + growth * 3.6e7 * (1 + 4.4 * heavy) * bumps,
            "disk-writes": 20 + growth * 340 * bumps,
            "fsync": 0.002 + growth**3 * 0.04 * bumps,
            "busy": np.clip(0.03 + growth * 0.6 * bumps, 0, 1),
        }.get(name, 10 + growth * 100 * bumps)

    made: list[FigureData] = []
    for name in figures:
        courses = {host: course(host, name) for host in hosts}
        if away is not None:
            host, since, until = away
            courses[host] = np.where((t >= since) & (t < until), np.nan, courses[host])
        made.append(made_figure(name, t, courses, cost="load" if name in ("memory", "network-out") else ""))
    gaps = [] if away is None else [(away[1], away[2], away[0])]
    return made_resources(made, t, leader=led, gaps=gaps)
