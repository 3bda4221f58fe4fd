"""What workers note each second: the current load, and their own health."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tippingpoint.rundir.histogram import FloatArray

SUMMED = ("held", "waiting", "in_flight", "rss")
"""Gauges that are summed over workers."""
WORST = ("cpu", "loop_lag")
"""Gauges for which the worst worker's value is taken."""
GAUGES = (*SUMMED, *WORST)


@dataclass
class Gauges:
    """What workers noted each second, in bins like a Curve's: load is summed over workers, health is the worst of
    them."""

    t: FloatArray
    held: FloatArray
    """Leases held, or things that exist."""
    waiting: FloatArray
    """Units waiting for a release, or things still to be made or removed."""
    in_flight: FloatArray
    """Operations sent but not answered."""
    cpu: FloatArray
    """Cores used by the busiest worker's process; 1.0 is a whole core."""
    loop_lag: FloatArray
    """Longest event-loop lag in the bin, milliseconds."""
    rss: FloatArray
    """Resident memory of all workers, MiB."""


def gauges_of(workers: Iterable[Sequence[Mapping[str, Any]]], bin_seconds: float) -> Gauges:
    """Return the gauges of all workers over time, from the ticks of each worker.

    The last tick in a bin counts. It also stands for later bins without a tick, up to its worker's last tick.
    """
    sums: dict[int, dict[str, float]] = {}
    for ticks in workers:
        latest: dict[int, Mapping[str, Any]] = {}
        lag: dict[int, float] = {}
        for tick in ticks:
            number = int(tick["t"] / bin_seconds)
            latest[number] = tick
            lag[number] = max(lag.get(number, 0.0), float(tick["loop_lag"]))
        tick: Mapping[str, Any] = {}
        for number in range(min(latest, default=0), max(latest, default=-1) + 1):
            tick = latest.get(number, tick)
            into = sums.setdefault(number, dict.fromkeys(GAUGES, 0.0))
            for name in SUMMED:
                into[name] += float(tick[name])
            into["cpu"] = max(into["cpu"], float(tick["cpu"]))
            into["loop_lag"] = max(into["loop_lag"], lag.get(number, 0.0))
    bins = sorted(sums)
    columns = {name: np.asarray([sums[b][name] for b in bins], dtype=np.float64) for name in GAUGES}
    return Gauges(t=np.asarray([b * bin_seconds for b in bins], dtype=np.float64), **columns)


def phase_medians(
    marks: Sequence[dict[str, Any]], ticks: Sequence[Mapping[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, float]]]:
    """Return the medians of a worker's gauges while it held each stage, or brought it up if it never held it.

    Each comes with the mark that begins the phase. Phases without ticks are left out.
    """
    times = np.asarray([tick["t"] for tick in ticks], dtype=np.float64)
    noted = np.asarray([[float(tick[name]) for name in GAUGES] for tick in ticks], dtype=np.float64)
    held = {int(mark["stage"]) for mark in marks if mark["phase"] == "hold"}
    found: list[tuple[dict[str, Any], dict[str, float]]] = []
    for mark, following in itertools.pairwise([*marks, {"t": np.inf}]):
        if mark["phase"] in ("drain", "end") or (mark["phase"] == "begin" and int(mark["stage"]) in held):
            continue
        # A tick describes the interval that it closes: the tick at the mark itself belongs to the phase before.
        inside = np.flatnonzero((times > mark["t"]) & (times <= following["t"]))
        if inside.size:
            medians: list[float] = np.median(noted[inside], axis=0).tolist()
            found.append((mark, dict(zip(GAUGES, medians, strict=True))))
    return found


def add_gauges(gauges: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return the gauges of two workers combined: load is summed, health is the worst of them."""
    pairs = {name: (gauges.get(name, 0.0), float(more[name])) for name in GAUGES}
    return {name: sum(pair) if name in SUMMED else max(pair) for name, pair in pairs.items()}
