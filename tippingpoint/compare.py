"""Runs side by side: per operation and stage, what got worse, what got better, what cannot be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tippingpoint.tipping import Tipping

Judgement = Literal["worse", "better", "same", "unsure"]


@dataclass(frozen=True)
class Against:
    """One run's figure against the baseline's."""

    change: float | None
    """Percentiles: the ratio to the baseline. Rates: the difference to it. None when there is no figure."""
    low: float | None
    high: float | None
    """The interval of `change` that the judgement rests on (95 % over all rows together)."""
    judgement: Judgement


@dataclass(frozen=True)
class Row:
    """One figure of one operation at one stage size, in every run; the first run is the baseline."""

    operation: str
    size: int
    storm: bool
    """Of stages of kind storm, which are compared with storms only."""
    measure: str
    """p50 p90 p95 p99 (microseconds), error_rate or lost_rate (shares in 0..1)."""
    values: list[float | None]
    """One per run; None where the run did not measure it."""
    counts: list[int]
    """How many operations each value rests on."""
    against: list[Against]
    """One per run after the first."""


@dataclass(frozen=True)
class Comparison:
    """Two or more runs against the first of them."""

    titles: list[str]
    versions: list[str]
    """The targets' versions, as "etcd 3.5.16"."""
    load_unit: str
    tolerance: float
    rows: list[Row]
    worse: list[str]
    better: list[str]
    """One line for each figure that changed for certain, the largest change first."""
    not_comparable: list[str]
    """What only some of the runs have: stage sizes, storms."""
    tippings: list[Tipping]
    """One per run."""
    tipped_first: str
    """Which run tipped at the smallest load, in one sentence."""
    sentence: str

    @property
    def regressed(self) -> bool:
        """Whether anything got worse by more than the tolerance (exit code 1)."""
        return bool(self.worse)
