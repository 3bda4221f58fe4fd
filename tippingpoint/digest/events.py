"""Reduces single events to a number that fits: equal events are counted together, and the rest is counted as left
out."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from tippingpoint.rundir.damage import DAMAGED
from tippingpoint.rundir.journal import count_of, is_number, is_seconds
from tippingpoint.rundir.standstills import STALL
from tippingpoint.rundir.takeovers import KIND as TAKEN_UP

Event = dict[str, Any]

_COUNTED = ("error", "timeout", "lost", "retry", "gave-up", "repaired")
"""Kinds of which only the number matters."""
_TELLING = ("event", "operation", "outcome", "error", "kind", "member")
_WEIGHTIEST = (
    "found",
    "probe",
    "figure",
    "fault",
    "fault-failed",
    "worker-cut",
    TAKEN_UP,
    "left-behind",
    "journal-lost",
    DAMAGED,
    "gave-up",
)
_REPLACED = ("placed", "landed")
"""Kinds whose next event of a worker replaces the one before."""
_LIGHTEST = ("cleaned", *_REPLACED)
_FIRST_LOST = 10
"""Lost leases that are kept one by one, with their holders."""
_TOGETHER = (1.0, 10.0)
"""Seconds within which equal events become one, before a whole phase is treated like that."""
_LONGEST = 200
"""The most characters of a text; a longer one is cut."""
_MOST_FIELDS = 20
_MOST_INSIDE = 1000
_LARGEST = 1e15


def fewer(events: Iterable[Event], most: int, phases: Sequence[float]) -> tuple[list[Event], int]:
    """Return at most `most` events, in order of time, and how many events are left out altogether.

    `phases` are the moments at which phases begin: only events of one phase are counted together. Events about a
    cluster keep the worker's name, because every worker sees the cluster for itself.
    """
    kept = [_shortened(event) for event in sorted(events, key=_time_of)]
    for seconds in _TOGETHER:
        if len(kept) > most:
            kept = _joined(kept, lambda t, seconds=seconds: (bisect_right(phases, t), int(t / seconds)))
    if len(kept) > most:
        kept = _joined(kept, lambda t: (bisect_right(phases, t), 0))
    if len(kept) <= most:
        return kept, 0
    by_weight = sorted(kept, key=_weight)
    untold = sum(count_of(event) for event in by_weight[most:])
    return sorted(by_weight[:most], key=_time_of), untold


def check_event(event: Event) -> None:
    """Raise ValueError for an event that no journal has, and which a reader might not handle."""
    if not (
        is_seconds(event.get("t")) and isinstance(event.get("event"), str) and len(event) <= _MOST_FIELDS
    ):
        raise ValueError("an event without its time or kind")
    if not all(len(name) <= _LONGEST and _is_plain(name, value) for name, value in event.items()):
        raise ValueError(f"an event {event['event'][:40]!r} unlike those of a journal")


def _is_plain(name: str, value: Any) -> bool:
    """Return whether a field has a plain value: a text, a number or nothing, or for three fields a collection of
    these."""
    if name == "held_for":
        return value is None or _is_plain_number(value)
    if name == "count":
        return isinstance(value, int) and 0 <= value < _LARGEST
    if name == "counts" and isinstance(value, dict):
        items = cast(dict[str, Any], value)
        return len(items) <= _MOST_INSIDE and all(
            len(inner) <= _LONGEST and _is_plain_number(number) for inner, number in items.items()
        )
    if name == "broken" and isinstance(value, list):
        texts = cast(list[Any], value)
        return len(texts) <= _MOST_INSIDE and all(isinstance(t, str) and len(t) <= _LONGEST for t in texts)
    if name == "margins" and isinstance(value, list):
        margins = cast(list[Any], value)
        return len(margins) <= _MOST_INSIDE and all(
            isinstance(each, list) and _is_margin(each) for each in margins
        )
    if isinstance(value, str):
        return len(value) <= _LONGEST
    return value is None or isinstance(value, bool) or _is_plain_number(value)


def _is_margin(margin: Any) -> bool:
    """Return whether it is a margin of a probe: its name, value and standard error, which may be unknown."""
    if not isinstance(margin, list) or len(cast(list[Any], margin)) != 3:
        return False
    name, value, error = cast(list[Any], margin)
    return (
        isinstance(name, str)
        and len(name) <= _LONGEST
        and _is_plain_number(value)
        and (error is None or _is_plain_number(error))
    )


def _is_plain_number(value: Any) -> bool:
    return is_number(value) and abs(value) < _LARGEST


def _time_of(event: Event) -> float:
    return float(event["t"])


def _weight(event: Event) -> tuple[int, int]:
    """Return a sort key: events that come first are kept longest."""
    kind = event["event"]
    if kind in _WEIGHTIEST:
        return 0, -count_of(event)
    if kind in _LIGHTEST:
        return 3, 0
    if kind == STALL:  # the longest standstills first
        return 2, -int(1000 * event["seconds"]) if is_seconds(event.get("seconds")) else 0
    return (2, -count_of(event)) if kind in _COUNTED else (1, 0)


def _shortened(event: Event) -> Event:
    """Return the event with short texts and plain fields only."""
    short = {
        name: value[: _LONGEST - 3] + "..." if isinstance(value, str) and len(value) > _LONGEST else value
        for name, value in itertools.islice(event.items(), _MOST_FIELDS)
    }
    return {name: value for name, value in short.items() if len(name) <= _LONGEST and _is_plain(name, value)}


def _joined(events: Iterable[Event], when: Callable[[float], tuple[int, int]]) -> list[Event]:
    """Return the events with equal ones of one moment joined into the first, with their number.

    Of kinds in _REPLACED, the last event of each worker is kept.
    """
    joined: dict[tuple[object, ...], Event] = {}
    alone: Counter[str] = Counter()
    for event in events:
        kind = event["event"]
        key: tuple[object, ...]
        if kind in _COUNTED:
            singly = kind == "lost" and "lease" in event
            alone[kind] += singly
            if singly and alone[kind] <= _FIRST_LOST:
                key = (kind, len(joined))
            else:
                event = {name: event[name] for name in ("t", *_TELLING, "count") if name in event}
                key = (*when(event["t"]), *(str(event.get(name)) for name in _TELLING))
        elif kind in _REPLACED:
            key = (*when(event["t"]), kind, event.get("worker"))
        else:
            key = (kind, len(joined))
        before = joined.get(key)
        if before is None or kind in _REPLACED:
            joined[key] = event
        else:
            joined[key] = {**before, "count": count_of(before) + count_of(event)}
    return sorted(joined.values(), key=_time_of)
