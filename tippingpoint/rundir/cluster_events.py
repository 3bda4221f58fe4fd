"""Reconstructs a cluster from a run's events: its members, its leaders, the things on each member, and losses."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

ONLINE = ("online", "joined", "back")
"""The statuses of a member that is online; otherwise it is offline, lost or evicted."""


@dataclass
class Change:
    """A member's status from a moment on (seconds since the run's start)."""

    t: float
    status: str
    things: int
    """How many of our things were on the member then."""
    workers: set[str] = field(default_factory=set[str])
    """The workers that saw the change."""


@dataclass
class Member:
    """One member of the cluster, as seen by all workers together."""

    name: str
    address: str = ""
    """The host where it was last reached, as the target reports it; empty if the target does not."""
    changes: list[Change] = field(default_factory=list[Change])
    led: list[float] = field(default_factory=list[float])
    """The moments from which it led the cluster's database."""
    lost: int = 0
    """Things that were counted as lost with it."""

    def online(self, t: float) -> bool:
        """Return whether it was online at a moment."""
        last = bisect_right([change.t for change in self.changes], t)
        return last > 0 and self.changes[last - 1].status in ONLINE


@dataclass
class Cluster:
    """The cluster during a run; empty if no worker reported one."""

    members: list[Member]
    """Sorted by name, including members known only from the things on them."""
    leaders: list[tuple[float, str]]
    """Which member led from which moment on."""
    placed: list[tuple[float, dict[str, int]]]
    """How many of our things, of all workers, were on each member from a moment on."""

    def online(self, t: float) -> list[str]:
        """Return the members that were online at a moment."""
        return [member.name for member in self.members if member.online(t)]

    def things(self, t: float) -> dict[str, int]:
        """Return how many of our things were on each member at a moment."""
        last = bisect_right(self.placed, t, key=lambda entry: entry[0])
        return self.placed[last - 1][1] if last else {}

    def gone(self, begin: float, end: float) -> list[str]:
        """Return the members that were away during a part of a span of time, and had been online before."""
        return [
            member.name
            for member in self.members
            if any(change.status not in ONLINE and begin <= change.t < end for change in member.changes)
            or (
                not member.online(begin)
                and any(change.status in ONLINE and change.t <= begin for change in member.changes)
            )
        ]


def read_cluster(events: Iterable[Mapping[str, Any]]) -> Cluster:
    """Return the cluster described by `member`, `leader`, `lost` and `placed` events, which are in order of time.

    Each worker polls for itself and reports its own things. A change that several workers saw is one change, at the
    moment when the first of them saw it.
    """
    found: dict[str, Member] = {}
    seen_up_to: Counter[tuple[str, str]] = Counter()
    leaders: list[tuple[float, str]] = []
    latest: dict[str, dict[str, int]] = {}
    placed: list[tuple[float, dict[str, int]]] = []

    def member(event: Mapping[str, Any]) -> Member:
        name = str(event.get("member", ""))
        return found.setdefault(name, Member(name))

    for event in events:
        t, worker = float(event["t"]), str(event.get("worker", ""))
        match event["event"]:
            case "member":
                told = member(event)
                told.address = str(event.get("address") or told.address)
                place = seen_up_to[worker, told.name]
                status, things = str(event.get("status", "")), _whole(event.get("containers"))
                same = next(
                    (
                        number
                        for number, change in enumerate(told.changes)
                        if number >= place and change.status == status and worker not in change.workers
                    ),
                    None,
                )
                if same is None:
                    told.changes.append(Change(t, status, things, {worker}))
                    same = len(told.changes) - 1
                else:
                    told.changes[same].things += things
                    told.changes[same].workers.add(worker)
                seen_up_to[worker, told.name] = same + 1
            case "leader":
                if not leaders or leaders[-1][1] != event.get("member"):
                    leaders.append((t, member(event).name))
                    member(event).led.append(t)
            case "lost" if "member" in event:
                member(event).lost += _whole(event.get("count"))
            case "placed" if isinstance(event.get("counts"), dict):
                latest[worker] = {
                    str(name): _whole(count) for name, count in event["counts"].items() if _whole(count)
                }
                sums: Counter[str] = Counter()
                for counts in latest.values():
                    sums.update(counts)
                placed.append((t, dict(sums)))
                for name in sums:
                    found.setdefault(name, Member(name))
            case _:
                pass
    return Cluster(sorted(found.values(), key=lambda member: natural(member.name)), leaders, placed)


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key for names that puts lxd9 before lxd10."""
    parts = re.split("([0-9]+)", name)
    return [(int(part), "") if place % 2 else (0, part) for place, part in enumerate(parts)]
