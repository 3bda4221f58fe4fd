"""Parts of a run that were cut, and taken up by the next agent: what is told of it, and what is not measured by it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tippingpoint.util.durations import format_duration

KIND = "taken-up"
"""The event of it, at the moment when the part went on."""


@dataclass(frozen=True)
class Takeover:
    """One part that was taken up."""

    who: str
    """The unit whose part it is."""
    stage: int
    """The stage that it went on with."""
    after: float
    """Seconds between the last that was measured before, and that moment."""
    there: int
    """Things that were there already: nobody made them again."""
    again: bool
    """Whether that stage had begun before: what was measured of it then is in no figure."""

    @property
    def words(self) -> str:
        """A sentence of it, without its end."""
        lost = ": what was measured of that stage before is in no figure" if self.again else ""
        went_on = f"taken up {format_duration(round(self.after))} later, in stage {self.stage}{lost}"
        return f"{self.who} was cut, and {went_on}"


def takeovers(events: Iterable[Mapping[str, Any]]) -> list[Takeover]:
    """Those that the events of a run tell of, whoever wrote them."""
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
