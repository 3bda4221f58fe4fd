"""Parts of a run that were cut and resumed by the next agent: when, and which measurements are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tippingpoint.util.durations import show_span

KIND = "taken-up"
"""The event of a resumed part, at the moment when it went on."""


@dataclass(frozen=True)
class Takeover:
    """One part that was resumed."""

    who: str
    """The unit of the part."""
    stage: int
    """The stage that it went on with."""
    after: float
    """Seconds between the last measurement before the cut and the moment when the part went on."""
    there: int
    """Things that existed already and were not made again."""
    again: bool
    """Whether that stage had begun before: its earlier measurements are left out."""

    @property
    def words(self) -> str:
        """A sentence about it, without a full stop."""
        lost = ": earlier measurements of that stage are left out" if self.again else ""
        went_on = f"resumed {show_span(self.after)} later, in stage {self.stage}{lost}"
        return f"{self.who} was cut, and {went_on}"


def takeovers(events: Iterable[Mapping[str, Any]]) -> list[Takeover]:
    """Return the takeovers in the events of a run, whoever wrote them."""
    return [
        Takeover(
            str(event.get("worker", "a part")),
            int(_number(event.get("stage"))),
            _number(event.get("after")),
            int(_number(event.get("there"))),
            event.get("again") is True,
        )
        for event in events
        if event.get("event") == KIND
    ]


def _number(value: object) -> float:
    return min(max(0.0, value), 1e9) if isinstance(value, int | float) and value == value else 0.0
