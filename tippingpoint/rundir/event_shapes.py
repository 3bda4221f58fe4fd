"""What the fields of events in journals must be, whoever wrote or damaged them.

Readers of events rely on it: an event that does not conform is damaged, and is left out as a whole when a log is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

MOST = 1e15
"""Larger than any number in an event. Sums of smaller ones are still exact or nearly so."""
_DEEPEST = 8
"""Lists and mappings within each other; events have four."""


def is_sound(event: Mapping[str, Any]) -> bool:
    """Return whether the fields of an event are what they must be; a null stands for an unknown value."""
    kind = event["event"]
    otherwise = _OTHERWISE.get(kind, ())
    for name, value in event.items():  # a loop, because a run has an event for each second of each worker
        if value is None:
            continue
        if not _is_plain(value):
            return False
        is_right = _FIELDS.get(name)
        if is_right is not None and not is_right(value) and name not in otherwise:
            return False
    needed = _needed(kind, event)
    return not needed or all(name in event and is_right(event[name]) for name, is_right in needed.items())


def _is_plain(value: object, depth: int = 0) -> bool:
    """Return whether all numbers in a value are finite and possible."""
    if isinstance(value, str):
        return True
    if isinstance(value, int | float):
        return -MOST < value < MOST
    if isinstance(value, dict | list):
        within = (
            cast("dict[str, Any]", value).values() if isinstance(value, dict) else cast("list[Any]", value)
        )
        return depth < _DEEPEST and all(_is_plain(each, depth + 1) for each in within)
    return True


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_amount(value: object) -> bool:
    return _is_number(value) and cast(float, value) >= 0


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("list[object]", value)))


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


def _is_step(value: object) -> bool:
    if not isinstance(value, list):
        return False
    step = cast("list[object]", value)
    return len(step) == 2 and _is_text(step[0]) and _is_amount(step[1])


def _is_steps(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_step, cast("list[object]", value)))


def _is_loads(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(node, dict)
        and isinstance(load := cast("dict[str, Any]", node).get("load"), list)
        and len(cast("list[Any]", load)) == 3
        and all(map(_is_amount, cast("list[object]", load)))
        and _or_null(_is_amount)(cast("dict[str, Any]", node).get("cpu"))
        for node in cast("dict[str, object]", value).values()
    )


def _is_felt(value: object) -> bool:
    """Return whether it is what the load of a cluster test felt."""
    if not isinstance(value, dict):
        return False
    felt = cast("dict[str, Any]", value)
    return all(_or_null(_is_texts)(felt.get(name)) for name in ("dcs", "fenced") if name in felt) and all(
        _or_null(_is_amount)(felt.get(name))
        for name in ("updates", "longest_update", "failed_updates", "updates_apart")
    )


def _or_null(is_right: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_right(value)


_FIELDS: dict[str, Callable[[object], bool]] = {
    **dict.fromkeys(
        ("cause", "did", "do", "ended", "kind", "member", "outcome", "phase", "problem"), _is_text
    ),
    **dict.fromkeys(("skipped", "status", "strained", "test", "why", "worker"), _is_text),
    **dict.fromkeys(("after", "before", "broken", "cpu", "high", "in_flight", "interval"), _is_amount),
    **dict.fromkeys(("limit", "loop_lag", "low", "rss", "seconds", "size", "until", "waiting"), _is_amount),
    **dict.fromkeys(("cores", "count", "index", "leases", "line", "of"), _is_count),
    **dict.fromkeys(("samples", "share", "stage", "workers"), _is_count),
    **dict.fromkeys(("alive", "fresh", "up"), _is_flag),
    **dict.fromkeys(("clock_error", "clock_offset"), _is_number),
    **dict.fromkeys(("counts", "gauges"), _is_mapping),
    "felt": _is_felt,
    "held": lambda value: _is_flag(value) or _is_amount(value),
    "loads": _is_loads,
    "steps": _is_steps,
}
"""By field name, which means the same in almost all events; fields that are only shown are left out."""
_OTHERWISE: dict[str, tuple[str, ...]] = {
    "probe": ("broken",),
    "profile": ("member",),
    "prepared": tuple(_FIELDS),
}
"""The fields that have another meaning in these events."""
_LOWERED = {
    "stage": _or_null(_is_count),
    "size": _is_amount,
    "held": _or_null(_is_flag),
    "broken": _is_amount,
    "before": _or_null(_is_amount),
}
_NEEDED: dict[str, dict[str, Callable[[object], bool]]] = {
    "controller": {"member": _is_text},
    "found": {"ended": _is_text},
    "node-load": {"loads": _is_loads},
    "probe": {"margins": lambda value: isinstance(value, list)},
    "share": {"index": _is_count, "of": _is_count},
    "test": {"test": _is_text, "outcome": _is_text, "seconds": _is_amount},
}
"""The fields without which nobody can read an event."""


def _needed(kind: str, event: Mapping[str, Any]) -> Mapping[str, Callable[[object], bool]]:
    if kind == "recovering":
        return {"skipped": _is_text} if "skipped" in event else _LOWERED
    return _NEEDED.get(kind, {})
