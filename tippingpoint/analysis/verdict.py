"""The outcome of a run, with the checks and reasons behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tippingpoint.analysis.thresholds import Check

Outcome = Literal["met", "missed", "withheld", "failed"]

_EXIT_CODES: dict[Outcome, int] = {"met": 0, "missed": 1, "failed": 3, "withheld": 4}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run: `checks` are in the order of stages, `reasons` are further remarks for the reader."""

    outcome: Outcome
    sentence: str
    checks: list[Check] = field(default_factory=list[Check])
    reasons: list[str] = field(default_factory=list[str])

    @property
    def label(self) -> str:
        """The outcome as shown in lists, where a run without thresholds has none to meet."""
        return "no thresholds" if self.outcome == "met" and not self.checks else self.outcome

    @property
    def exit_code(self) -> int:
        """0 met, 1 missed, 3 failed, 4 withheld."""
        return _EXIT_CODES[self.outcome]
