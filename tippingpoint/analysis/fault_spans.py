"""When the faults that a run injected began and ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

from tippingpoint.plan.base import UNDONE_BY, UPKEEP


class FaultSpan(NamedTuple):
    """One injected fault; times are seconds since the run's start."""

    begin: float
    until: float
    """When it was undone, or was over; infinite if it never was. A fault that nothing undoes, such as killing a daemon,
    has only its moment."""
    do: str
    member: str

    @property
    def lasts(self) -> bool:
        """Whether it took its member down or kept it busy for some time."""
        return self.do in UNDONE_BY or self.do in UPKEEP


def fault_begin(event: Mapping[str, Any]) -> float:
    """Return when the fault of an event began. The event is written when the fault is done, with how long that took."""
    return float(event["t"]) - float(event.get("seconds") or 0.0)


def fault_spans(events: Sequence[Mapping[str, Any]]) -> list[FaultSpan]:
    """Return each injected fault, such as `kill`, except storms, which are stages."""
    began: dict[tuple[str, str], FaultSpan] = {}
    """The faults in effect, by what undoes them and by member."""
    found: list[FaultSpan] = []
    for event in events:
        do, member = str(event.get("do")), str(event.get("member"))
        if event["event"] != "fault" or do == "drop-claims":
            continue
        span = FaultSpan(fault_begin(event), float(event["t"]), do, member)
        if do in UNDONE_BY:
            began.setdefault((UNDONE_BY[do], member), span)
        elif do in UNDONE_BY.values():
            if (do, member) in began:
                found.append(began.pop((do, member))._replace(until=span.until))
        else:
            found.append(span)
    return [*found, *(span._replace(until=inf) for span in began.values())]


def lasting_faults(events: Sequence[Mapping[str, Any]]) -> list[FaultSpan]:
    """Return the injected faults that took a member down, or kept it busy, for some time."""
    return [span for span in fault_spans(events) if span.lasts]
