"""Who used the processors of the generator's machine while a run lasted, each second: machine.jsonl."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tippingpoint.rundir.journal import is_number

FILE = "machine.jsonl"
USED = "used"
"""The event of one second, written by the runner."""


@dataclass(frozen=True)
class Used:
    """What happened on the target's processors in about a second. Times are summed over processors or processes."""

    t: float
    """The end of that second, in seconds since the run's start."""
    seconds: float
    """How long it was."""
    cpus: int
    """The number of these processors; all of the machine's if no process of the target runs there."""
    busy: float
    """Seconds for which programs ran on them."""
    ours: float
    """Seconds for which the runner and its workers ran, if they may run on these processors."""
    target: float | None
    """Seconds for which the target ran; None if the target's processes are unknown."""
    steal: float
    """Seconds for which the hypervisor withheld these processors."""
    waited: float | None
    """Seconds for which the target's threads were ready to run but had no processor."""
    stalled: Mapping[str, float]
    """By `cpu`, `io` and `memory`, seconds for which anything on the machine was stalled for it."""

    @property
    def others(self) -> float | None:
        """Seconds for which other programs ran on the target's processors; None if the target's are unknown.

        The kernel counts programs and processors by different clocks, so it may be a little below 0 in a second.
        """
        return None if self.target is None else self.busy - self.ours - self.target


def during(seconds: Iterable[Used], begin: float, end: float) -> list[Used]:
    """Return the seconds between two moments of a run; `end` may be infinite. Most of the last one is before it."""
    return [used for used in seconds if begin < used.t <= end + used.seconds / 2]


def used_of(events: Iterable[Mapping[str, Any]]) -> list[Used]:
    """Return the seconds in a machine's journal, in order; damaged ones are left out."""
    return [used for event in events if event["event"] == USED and (used := _used(event)) is not None]


def _used(event: Mapping[str, Any]) -> Used | None:
    numbers = [event.get(name) for name in ("seconds", "cpus", "busy", "ours", "steal")]
    known = [event.get(name) for name in ("target", "waited")]
    stalled = event.get("stalled", {})
    if not isinstance(stalled, dict):
        return None
    by_resource = cast("dict[str, float]", stalled)
    if not (
        all(map(_is_amount, numbers))
        and all(value is None or _is_amount(value) for value in known)
        and all(map(_is_amount, by_resource.values()))
        and event["seconds"] > 0
        and event["cpus"] >= 1
    ):
        return None
    return Used(
        t=float(event["t"]),
        seconds=float(event["seconds"]),
        cpus=int(event["cpus"]),
        busy=float(event["busy"]),
        ours=float(event["ours"]),
        target=event.get("target"),
        steal=float(event["steal"]),
        waited=event.get("waited"),
        stalled=by_resource,
    )


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0
