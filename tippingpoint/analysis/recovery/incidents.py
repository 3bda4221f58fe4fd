"""Lists what happened to a target: injected faults, and leader or membership changes that no fault explains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tippingpoint.analysis.fault_spans import fault_begin
from tippingpoint.analysis.leaders import explained_by_faults
from tippingpoint.plan.base import UNDONE_BY
from tippingpoint.rundir.cluster_events import ONLINE, read_cluster

UNSEEN = 5.0
"""A cluster change may be observed this many seconds late: workers poll leader and members every two seconds."""


@dataclass(frozen=True)
class Trigger:
    """One thing that happened to the target."""

    t: float
    """Seconds since the run's start; for a cluster change, when a worker observed it."""
    what: str
    """In a few words: `kill m1`, `m1 to m3 leads`, `m2 offline`."""
    injected: bool
    """Whether it was one of the plan's faults, whose moment is exact."""
    undoes: bool = False
    """Whether it undoes an earlier fault."""


def triggers_of(events: Sequence[Mapping[str, Any]]) -> list[Trigger]:
    """Return what happened to the target, in order of time."""
    found = [*_faults(events), *_changes(events)]
    return sorted(found, key=lambda trigger: trigger.t)


def _faults(events: Sequence[Mapping[str, Any]]) -> list[Trigger]:
    found: list[Trigger] = []
    undone_by: set[tuple[str, str]] = set()
    for event in events:
        if event["event"] != "fault":
            continue
        do, member = str(event.get("do", "")), str(event.get("member") or "")
        words = [do, str(event.get("daemon") or ""), member]
        undoes = (do, member) in undone_by
        undone_by.discard((do, member))
        if do in UNDONE_BY:
            undone_by.add((UNDONE_BY[do], member))
        found.append(Trigger(fault_begin(event), " ".join(filter(None, words)), True, undoes))
    return found


def _changes(events: Sequence[Mapping[str, Any]]) -> list[Trigger]:
    """Return changes of the leader, and members that left, without a fault."""
    is_explained = explained_by_faults(events)
    cluster = read_cluster(events)
    found = [
        Trigger(t, f"leader {before} to {after}", False)
        for (_, before), (t, after) in pairwise(cluster.leaders)
        if before and after and not is_explained(t)
    ]
    found += [
        Trigger(change.t, f"{member.name} {change.status}", False)
        for member in cluster.members
        for change in member.changes
        if change.status not in ONLINE and member.online(change.t - 1e-6) and not is_explained(change.t)
    ]
    return found
