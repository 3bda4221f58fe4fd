"""Rebuilds a run's search from its plan and its probes: its state is a function of both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Any

from tippingpoint.analysis.search.probes import Margin, Probe
from tippingpoint.analysis.search.searcher import Aim, Searcher
from tippingpoint.analysis.search.stage_margins import margin_names
from tippingpoint.plan.find import Find
from tippingpoint.plan.read import SearchPlan
from tippingpoint.rundir.probe_events import ProbeEvent, probe_events


def aim_of(find: Find) -> Aim:
    """Return what a plan's search should find."""
    return Aim(
        start=find.start,
        limit=find.limit,
        resolution=find.resolution,
        hold=find.hold,
        within=find.within,
        whole=find.whole,
    )


def probe_of(event: ProbeEvent) -> Probe:
    """Return a probe as the input of a search, with all its margins."""
    return Probe(
        load=event.size,
        held=event.held,
        margins=tuple(
            Margin(name, value, inf if error is None else error) for name, value, error in event.margins
        ),
        fresh=event.fresh,
        begun=event.began,
        seconds=event.seconds,
        aborted=event.aborted,
        unmeasured=event.unmeasured,
        unjudged=_not_judged(event),
        foreign=event.foreign,
    )


def _not_judged(event: ProbeEvent) -> str:
    if not event.cut:
        return ""
    return ": ".join(["probes could not be judged", *event.broken[:1]])


def steering(plan: SearchPlan, event: ProbeEvent) -> Probe:
    """Return a probe with the margins that steer a plan's search: those of its thresholds."""
    probe, names = probe_of(event), frozenset(margin_names(plan.thresholds))
    return replace(probe, margins=tuple(margin for margin in probe.margins if margin.name in names))


def searcher_of(plan: SearchPlan, find: Find, events: Iterable[Mapping[str, Any]]) -> Searcher:
    """Return the search of a run with these events, in its state after the last one."""
    searcher = Searcher(aim_of(find))
    for event in probe_events(events):
        searcher.tell(steering(plan, event))
    return searcher
