"""From when to when the faults that a run injected lasted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tippingpoint.plan.base import UNDONE_BY, UPKEEP


def fault_times(events: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, str]]:
    """Return begin, end and member of each injected fault that took a member down, or kept it busy. Storms are separate
    stages."""
    began: dict[str, float] = {}
    times: list[tuple[float, float, str]] = []
    for event in events:
        if event["event"] != "fault":
            continue
        member, t = str(event.get("member")), float(event["t"])
        if event.get("do") in UNDONE_BY:
            began.setdefault(member, t)
        elif event.get("do") in UNDONE_BY.values() and member in began:
            times.append((began.pop(member), t, member))
        elif event.get("do") in UPKEEP:
            times.append((t - float(event.get("seconds") or 0.0), t, member))
    return times + [(t, float("inf"), member) for member, t in began.items()]


def faults_injected(events: Sequence[Mapping[str, Any]]) -> list[tuple[float, float, str]]:
    """Return begin, end and kind of each injected fault, such as `kill`, but for storms, which are stages.

    A fault that nothing undoes by its nature, such as a daemon's end, has only its moment.
    """
    began: dict[tuple[str, str], tuple[float, str]] = {}
    times: list[tuple[float, float, str]] = []
    for event in events:
        do, member = str(event.get("do")), str(event.get("member"))
        if event["event"] != "fault" or do == "drop-claims":
            continue
        t = float(event["t"])
        if do in UNDONE_BY:
            began.setdefault((UNDONE_BY[do], member), (t, do))
        elif do in UNDONE_BY.values():
            if (do, member) in began:
                begin, what = began.pop((do, member))
                times.append((begin, t, what))
        else:
            times.append((t - float(event.get("seconds") or 0.0), t, do))
    return times + [(begin, float("inf"), what) for begin, what in began.values()]
