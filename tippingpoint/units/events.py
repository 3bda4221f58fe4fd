"""Single events, no more of them than there is room for: what says the same is counted, what is left is told."""

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
"""Kinds of which only the number matters, by the fields that tell them apart."""
_TELLING = ("event", "operation", "outcome", "error", "kind", "member")
_WEIGHTIEST = (
    "found",
    "probe",
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
"""Kinds of which the next one of a worker says all that this one does."""
_LIGHTEST = ("cleaned", *_REPLACED)
_FIRST_LOST = 10
"""Lost leases that are kept one by one, with who held them."""
_TOGETHER = (1.0, 10.0)
"""Seconds within which what says the same becomes one, before that is done for a whole phase."""
_LONGEST = 200
"""Characters of a text, beyond which it is cut off."""
_MOST_FIELDS = 20
_MOST_INSIDE = 1000
_LARGEST = 1e15


def fewer(events: Iterable[Event], most: int, phases: Sequence[float]) -> tuple[list[Event], int]:
    """At most so many events, in the order of time, and how many more there were that none of them tells of.

    `phases` are the moments at which phases begin: what is counted together is of one of them. The workers' names
    stay with what tells of a cluster, which every worker sees for itself.
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
    """ValueError for an event that no journal has, and on which a reader might stumble."""
    if not (
        is_seconds(event.get("t")) and isinstance(event.get("event"), str) and len(event) <= _MOST_FIELDS
    ):
        raise ValueError("an event without its time or kind")
    if not all(len(name) <= _LONGEST and _is_plain(name, value) for name, value in event.items()):
        raise ValueError(f"an event {event['event'][:40]!r} that no journal has")


def _is_plain(name: str, value: Any) -> bool:
    """Whether a reader takes that value for a field: a text, a number or nothing, and of two fields some of these."""
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
    if isinstance(value, str):
        return len(value) <= _LONGEST
    return value is None or isinstance(value, bool) or _is_plain_number(value)


def _is_plain_number(value: Any) -> bool:
    return is_number(value) and abs(value) < _LARGEST


def _time_of(event: Event) -> float:
    return float(event["t"])


def _weight(event: Event) -> tuple[int, int]:
    """What comes first is kept longest: the few, then the frequent, then what the next of its kind replaces."""
    kind = event["event"]
    if kind in _WEIGHTIEST:
        return 0, -count_of(event)
    if kind in _LIGHTEST:
        return 3, 0
    if kind == STALL:  # the longest of them
        return 2, -int(1000 * event["seconds"]) if is_seconds(event.get("seconds")) else 0
    return (2, -count_of(event)) if kind in _COUNTED else (1, 0)


def _shortened(event: Event) -> Event:
    """The event with short texts, and without what no reader takes."""
    short = {
        name: value[: _LONGEST - 3] + "..." if isinstance(value, str) and len(value) > _LONGEST else value
        for name, value in itertools.islice(event.items(), _MOST_FIELDS)
    }
    return {name: value for name, value in short.items() if len(name) <= _LONGEST and _is_plain(name, value)}


def _joined(events: Iterable[Event], when: Callable[[float], tuple[int, int]]) -> list[Event]:
    """Events of one moment that say the same as the first of them with their number, and of those in _REPLACED the last
    of each worker."""
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
