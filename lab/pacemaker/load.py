"""Each node's load averages and CPU time, as if the node were a machine of its own.

The nodes of a lab share one kernel, and /proc/loadavg is the whole machine's. A node's own averages are computed from
the node's own tasks, by the kernel's rule (kernel/sched/loadavg.c): every 5 s count the tasks that run, may run, or
wait uninterruptibly, and let each average forget at its own pace. A node that is off counts none. Its averages go on,
as those of a machine do whose cluster is stopped, and so does its CPU time.

Prometheus can have them under the names of node exporter, for which they are written into a directory of its textfile
collector. So a node is a host of its own in the query pack `host`.

All daemons of a node descend from its first process. Programs that the lab runs on a node (`nsenter`) do not, and are
not counted.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

EVERY_S = 5.0
"""Seconds between two counts, as in the kernel (LOAD_FREQ)."""
_WRITTEN_EVERY = 5
"""How often the figures are written between two counts: CPU time is a counter, which is asked for each second."""
_MINUTES = (1, 5, 15)
_TICKS = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


class NodeLoad(TypedDict):
    """One node: load averages over 1, 5 and 15 minutes, and the seconds of CPU since its boot."""

    load: list[float]
    cpu: float


@dataclass
class _Known:
    """A node as it was last counted."""

    first: int
    averages: list[float]
    cpu: float = 0.0
    """Seconds of this boot, when last counted."""
    before: float = 0.0
    """Seconds of earlier boots."""


class NodeLoads:
    """Counts in a thread for as long as the context lasts. `first_pids` has each running node's first process."""

    def __init__(self, first_pids: Callable[[], Mapping[str, int]]) -> None:
        self._first_pids = first_pids
        self.texts: dict[str, Path] = {}
        """The directory that a node's figures are written into, of those that are scraped."""
        self._known: dict[str, _Known] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._count_on, daemon=True)

    def __enter__(self) -> NodeLoads:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def read(self) -> dict[str, NodeLoad]:
        """Every node that ran at the last count, with its averages as of then and its CPU time now."""
        running = self._first_pids()
        found: dict[str, NodeLoad] = {}
        for name in {**self._known, **running}:
            known = self._known.get(name) or _Known(0, [0.0, 0.0, 0.0])
            cpu = known.before + known.cpu
            if (first := running.get(name)) is not None:
                now = _usage(first).cpu
                cpu = known.before + now if first == known.first else cpu + now
            found[name] = {"load": [round(value, 3) for value in known.averages], "cpu": round(cpu, 2)}
        return found

    def forget(self) -> None:
        """Begin with zeros: the nodes are new ones."""
        self._known = {}

    def _count_on(self) -> None:
        for turn in itertools.count(1):
            if self._ended.wait(EVERY_S / _WRITTEN_EVERY):
                return
            if turn % _WRITTEN_EVERY == 0:
                self._count()
            if self.texts:
                self._write()

    def _write(self) -> None:
        read = self.read()
        for name, directory in list(self.texts.items()):
            with contextlib.suppress(OSError):  # the directory may be gone with its node
                new = directory / ".load"
                new.write_text(_as_text(read[name]) if name in read else "")
                new.rename(directory / "load.prom")  # read as a whole only

    def _count(self) -> None:
        running, all_known = self._first_pids(), self._known
        for name in {**all_known, **running}:
            known = all_known.setdefault(name, _Known(0, [0.0, 0.0, 0.0]))
            usage = _Usage()
            if (first := running.get(name)) is not None:
                usage = _usage(first)
                if first != known.first:
                    known.before, known.first = known.before + known.cpu, first
                known.cpu = usage.cpu
            known.averages = next_averages(known.averages, usage.active)


def next_averages(before: list[float], active: int) -> list[float]:
    """The averages over 1, 5 and 15 minutes after one more count of active tasks."""
    kept = [math.exp(-EVERY_S / (60 * minutes)) for minutes in _MINUTES]
    return [value * keep + active * (1 - keep) for value, keep in zip(before, kept, strict=True)]


def _as_text(node: NodeLoad) -> str:
    """The figures as node exporter has them; all CPU time is counted as `user`."""
    lines = [
        f"# TYPE node_load{minutes} gauge\nnode_load{minutes} {value:g}"
        for minutes, value in zip(_MINUTES, node["load"], strict=True)
    ]
    cpu = (
        f'# TYPE node_cpu_seconds_total counter\nnode_cpu_seconds_total{{cpu="0",mode="user"}} {node["cpu"]}'
    )
    return "\n".join([*lines, cpu, ""])


@dataclass
class _Usage:
    active: int = 0
    cpu: float = 0.0


def _usage(first: int) -> _Usage:
    """The tasks below a process, itself included: how many are active, and the CPU time of them and of what ended."""
    usage = _Usage()
    waiting = [first]
    while waiting:
        process = _PROC / str(waiting.pop())
        with contextlib.suppress(OSError):
            own = _stat(process / "stat")
            usage.cpu += (
                sum(map(int, own[11:15])) / _TICKS
            )  # user and system: its own, and its ended children's
            for task in (process / "task").iterdir():
                with contextlib.suppress(OSError):
                    usage.active += _stat(task / "stat")[0] in ("R", "D")
                    waiting += map(int, (task / "children").read_text().split())
    return usage


def _stat(path: Path) -> list[str]:
    """The fields of a stat file from the state on: the name before may have blanks."""
    return path.read_text().rpartition(")")[2].split()
