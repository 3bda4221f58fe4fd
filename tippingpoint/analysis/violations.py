"""Violations of a store's guarantees in a run: an old value, a revision that went back, a wrong event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any

from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.text import choose, show_size

VIOLATION = "violation"
"""The name of the event in a journal."""
_NAMED = 3
_WORDS = {
    "stale-read": (
        "a read was older than an acknowledged write",
        "reads were older than acknowledged writes",
    ),
    "revision-back": ("the store's revision went back", "revisions of the store went back"),
    "key-gone": ("an acknowledged key was gone", "acknowledged keys were gone"),
    "event-lost": ("a watcher lost an event", "events were lost by watchers"),
    "event-repeated": ("a watcher got an event twice", "events came to watchers twice"),
    "event-reordered": ("a watcher got an event out of order", "events came to watchers out of order"),
    "expired-early": (
        "a key expired before its lease was over",
        "keys expired before their leases were over",
    ),
}


def violated(run: RunData, stage: StageResult) -> str:
    """Return the evidence of violations in a stage, with the first keys and revisions of the commonest kind.

    Empty if there are none. A violation counts towards the stage until the next one begins, because it may be noticed
    late. A restart storm has the load of the stage that contains it, so its violations count towards that stage too.
    """
    later = (other for other in run.stages if other.begin > stage.begin and other.kind != "storm")
    until = min((other.begin for other in later), default=inf)
    found = [
        event
        for event in run.events
        if event["event"] == VIOLATION and stage.begin <= float(event["t"]) < until
    ]
    if not found:
        return ""
    counts: Counter[str] = Counter()
    for event in found:
        counts[str(event.get("kind", ""))] += count_of(event)
    (kind, count), *others = counts.most_common()
    one, several = _WORDS.get(kind, ("a violation", "violations"))
    named = [_named(event) for event in found if event.get("kind") == kind and "key" in event][:_NAMED]
    rest = sum(number for _, number in others)
    more = f"; {show_size(rest)} other {choose(rest, 'violation', 'violations')}" if rest else ""
    shown = f" ({'; '.join(named)}{'; ...' if count > len(named) else ''})" if named else ""
    return (one if count == 1 else f"{show_size(count)} {several}") + shown + more


def _named(event: Mapping[str, Any]) -> str:
    """Return the key and the revisions of one violation."""
    who = f"watcher {event['watcher']}, " if event.get("watcher") else ""
    revision, expected = event.get("revision"), event.get("expected")
    kind = event.get("kind")
    if kind == "expired-early":
        return f"key {event['key']}"
    if str(kind).startswith("event-"):
        return f"{who}key {event['key']} at revision {revision}, after {expected}"
    found = f"at revision {revision}" if revision else "absent"
    return f"{who}key {event['key']} {found}, acknowledged at {expected}"
