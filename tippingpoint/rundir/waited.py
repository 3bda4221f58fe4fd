"""Computes the cost of an operation, failures included, from any kind of histogram, in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from tippingpoint.rundir.tags import tag

WAITED = ("ok", "timeout", "lost")
"""The outcomes for which an operation was always waited (see waited_outcomes)."""


class Distribution(Protocol):
    """The methods that a histogram needs here."""

    @property
    def total(self) -> int:
        """How many values were recorded."""
        ...

    def percentile(self, percentile: float) -> int:
        """Return the value at a percentile in 0..100; 0 when empty."""
        ...


H = TypeVar("H", bound=Distribution)
Merge = Callable[[Iterable[H]], H]
"""Returns the sum of any number of histograms."""


def waited_outcomes(histograms: Mapping[str, H], operation: str, merge: Merge[H]) -> tuple[str, ...]:
    """Return the outcomes whose response times are the cost of an operation, including failures that took long.

    Errors count if they were waited for. Errors that came faster than a typical answer are refusals: they say nothing
    about latency, and count in the error rate only. `histograms` are by tag.
    """
    errors = histograms.get(tag(operation, "error"))
    if errors is None or not errors.total:
        return WAITED
    answered = merge(
        histograms[name] for outcome in WAITED if (name := tag(operation, outcome)) in histograms
    )
    return (*WAITED, "error") if errors.percentile(50) >= answered.percentile(50) else WAITED


def cost_of(histograms: Mapping[str, H], operation: str, merge: Merge[H]) -> H:
    """Return the response times of all outcomes for which an operation was waited, merged, in microseconds.

    `histograms` are by tag. Successes, timeouts and lost leases count with the time they took. So do errors that were
    waited for (see waited_outcomes). An operation that was given up therefore never improves a percentile.
    """
    return merge(
        histograms[name]
        for outcome in waited_outcomes(histograms, operation, merge)
        if (name := tag(operation, outcome)) in histograms
    )
