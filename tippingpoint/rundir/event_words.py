"""Puts a run's events into words, for terminals and reports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from tippingpoint.rundir.clock import EVENT as CLOCK
from tippingpoint.rundir.figure_values import EVENT as FIGURE
from tippingpoint.rundir.probe_events import EVENT as PROBE
from tippingpoint.rundir.probe_events import FOUND, ProbeEvent, probe_words
from tippingpoint.rundir.profiles import NOT_TAKEN, TAKEN
from tippingpoint.util.numbers import show_number, show_value
from tippingpoint.util.text import show_size

Fields = Mapping[str, Any]

_ENDS = {
    "resolution": "the interval is as narrow as requested",
    "within": "its time is over",
    "limit": "the largest load that the plan allows passed",
    "generator": "the generator itself is the bottleneck at larger loads",
    "unmeasured": "a figure was not measured at larger loads",
    "unjudged": "too many probes in a row showed nothing",
    "foreign": "other programs did not leave the target's processors",
    "broken at start": "not even the smallest load passed",
    "no narrower": "a narrower interval would take too many more probes",
}


def event_words(event: str, fields: Fields) -> str:
    """Describe an event in one line."""
    words = _WORDS.get(event)
    if words is not None:
        with contextlib.suppress(KeyError, TypeError):  # a damaged field, which reports survive
            return words(fields)
    shown = ", ".join(
        f"{key.replace('_', ' ')} {show_value(value)}"
        for key, value in fields.items()
        if value not in (None, [], "")
    )
    name = event.replace("-", " ")
    return f"{name}: {shown}" if shown else name


def between(low: float, high: float | None) -> str:
    """Return the words for an interval of loads."""
    if high is None:
        return f"at least {show_size(low)}"
    return f"between {show_size(low)} and {show_size(high)}" if low > 0 else f"at most {show_size(high)}"


def _probe(fields: Fields) -> str:
    return probe_words(ProbeEvent.model_validate(fields))


def _found(fields: Fields) -> str:
    ended = _ENDS.get(fields["ended"], fields["ended"])
    if fields.get("limit") is None:
        return f"the search is over: {ended}"
    interval = between(fields.get("low") or 0.0, fields.get("high"))
    return f"the search is over: the limit is {interval} with 95 %, and {ended}"


def _fault(fields: Fields) -> str:
    if fields["do"] == "drop-claims":
        return "fault: a restart storm, every claim is dropped and claimed again"
    return f"fault: {_act(fields)}"


def _act(fields: Fields) -> str:
    daemon = f" {fields['daemon']} of" if fields.get("daemon") else ""
    return f"{fields['do']}{daemon} {fields['member']}"


def _waited(fields: Fields) -> str:
    gone = "they have gone" if fields.get("gone") else "they are still there"
    return f"waited {show_number(round(fields['seconds'], 1))} s because {fields['why']}; {gone}"


def _worker_cut(fields: Fields) -> str:
    code = fields["exit_code"]
    killed = isinstance(code, int) and code < 0
    why = fields.get("problem") or (f"killed by signal {-code}" if killed else f"exit code {code}")
    return f"worker {fields['worker']} died: {why}"


def _recovering(fields: Fields) -> str:
    if fields.get("skipped"):
        return f"no lower loads are tried: {fields['skipped']}"
    at = f"back at {show_size(fields['size'])}"
    if fields.get("why"):
        return f"{at}: {fields['why']}"
    if fields.get("held") is None:
        return f"{at}: nothing can be said"
    if not fields["held"]:
        return f"{at}: thresholds are still missed"
    after = fields.get("after")
    when = "" if after is None else f", {show_number(round(after, 1))} s after the load was first lowered"
    return f"{at}: thresholds are met again{when}"


def _figure(fields: Fields) -> str:
    value = fields.get("value")
    shown = "not measured" if value is None else show_number(value)
    on = f" on {fields['host']}" if fields.get("host") else ""
    why = f" ({fields['why']})" if fields.get("why") else ""
    return f"figure of stage {fields['stage']}: {fields['name']} {shown}{on}{why}"


def _cleaned(fields: Fields) -> str:
    return f"removed what the run had left in its target ({fields['removed']:,})"


def _left_behind(fields: Fields) -> str:
    return f"left behind: {fields['problem']}; this removes it: {fields['remedy']}"


def _evicted(fields: Fields) -> str:
    problem = fields.get("problem")
    return f"{fields['member']} was not evicted: {problem}" if problem else f"evicted {fields['member']}"


_WORDS: Mapping[str, Callable[[Fields], str]] = {
    PROBE: _probe,
    FOUND: _found,
    "recovering": _recovering,
    FIGURE: _figure,
    CLOCK: lambda fields: f"the wall clock is {show_number(fields['ahead'])} s ahead of where it was",
    TAKEN: lambda fields: (
        f"profile of stage {fields['stage']}: {fields['kind']} of member {fields['member']}"
    ),
    NOT_TAKEN: lambda fields: f"no {fields['kind']} profile of stage {fields['stage']}: {fields['problem']}",
    "aborted": lambda fields: f"ended by a threshold: {fields['reason']}",
    "began-late": lambda fields: f"stage {fields['stage']} began {show_number(fields['seconds'])} s late",
    "cleaned": _cleaned,
    "evict-member": _evicted,
    "fault": _fault,
    "fault-failed": lambda fields: f"fault failed: {_act(fields)}: {fields['problem']}",
    "journal-lost": lambda fields: f"the end of a journal was lost: {fields['problem']}",
    "left-behind": _left_behind,
    "member-started": lambda fields: f"started {fields['member']}",
    "model-gone": lambda fields: str(fields["problem"]),
    "note": lambda fields: f"note: {fields['text']}",
    "room-unknown": lambda fields: f"room for stage {fields['stage']} is unknown: {fields['problem']}",
    "waited": _waited,
    "worker-cut": _worker_cut,
}
