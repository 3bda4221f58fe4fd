"""Leader changes and lost controllers that no fault explains, for targets whose leader only changes when something
breaks.

Some targets collapse while every answer is still correct and fast. They first lose their leader, or the controller of
another member, which is the prospective leader. The target's section of a plan says whether this applies
(`TargetSection.steady_leader`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

from tippingpoint.analysis.fault_spans import fault_begin
from tippingpoint.plan.base import UNDONE_BY
from tippingpoint.plan.kinds import facts_of
from tippingpoint.rundir.cluster_events import read_cluster
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

EXPLAINS_FOR = 60.0
"""A fault, or undoing it, explains changes within this many seconds: 16 Pacemaker nodes need 35 s to recover."""


def leader_changed(run: RunData, stage: StageResult) -> str:
    """Return the evidence that the leader changed in a stage without a fault, or else that a member lost its
    controller; empty if neither did.

    A change counts towards the stage until the next one begins, because it may be noticed late.
    """
    word = facts_of(run.manifest.target.kind).steady_leader
    if not word:
        return ""
    until = min((other.begin for other in run.stages if other.begin > stage.begin), default=inf)
    changes = [change for change in unexplained(run.events) if stage.begin <= change[0] < until]
    if not changes:
        lost = [member for t, member in _controllers_lost(run.events) if stage.begin <= t < until]
        if not lost:
            return ""
        times = f" {len(lost)} times" if len(lost) > 1 else ""
        return f"a controller ended{times} without a fault ({', '.join(lost[:3])}{' ...' if len(lost) > 3 else ''})"
    who = [changes[0][1], *(after for _, _, after in changes)]
    times = f" {len(changes)} times" if len(changes) > 1 else ""
    return (
        f"the {word} changed{times} without a fault ({' to '.join(who[:4])}{' ...' if len(who) > 4 else ''})"
    )


def unexplained(events: Sequence[Mapping[str, Any]]) -> list[tuple[float, str, str]]:
    """Return the moment, the leader before and the leader after of each change that no fault explains."""
    is_explained = explained_by_faults(events)
    return [
        (t, before, after)
        for (_, before), (t, after) in pairwise(read_cluster(events).leaders)
        if not is_explained(t)
    ]


def _controllers_lost(events: Sequence[Mapping[str, Any]]) -> list[tuple[float, str]]:
    """Return when a member that stayed in the cluster lost its controller without a fault, and which member."""
    is_explained = explained_by_faults(events)
    return [
        (float(event["t"]), str(event["member"]))
        for event in events
        if event["event"] == "controller" and event.get("status") == "gone" and not is_explained(event["t"])
    ]


def explained_by_faults(events: Iterable[Mapping[str, Any]]) -> Callable[[float], bool]:
    """Return a function that decides whether a fault explains a change at a given moment."""
    spans = list(_explained(events))
    return lambda t: any(begin <= t <= end for begin, end in spans)


def _explained(events: Iterable[Mapping[str, Any]]) -> Iterable[tuple[float, float]]:
    """Return the times in which a fault explains a leader change."""
    undone = set(UNDONE_BY.values())
    began: dict[tuple[str, str], float] = {}
    """When something was done to a member, by the member and what undoes it."""
    for event in events:
        if event["event"] != "fault":
            continue
        t, do, member = fault_begin(event), str(event.get("do")), str(event.get("member"))
        if do in UNDONE_BY:
            began.setdefault((member, UNDONE_BY[do]), t)
        elif do in undone and (member, do) in began:
            yield began.pop((member, do)), float(event["t"]) + EXPLAINS_FOR
        else:
            yield t, float(event["t"]) + EXPLAINS_FOR
    yield from ((t, inf) for t in began.values())
