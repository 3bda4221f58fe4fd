"""Computes the response times of an operation in a stage, failures included, and resamples of their percentiles."""

from __future__ import annotations

import numpy as np

from tippingpoint.rundir.histogram import FloatArray, Histogram, highest_values
from tippingpoint.rundir.recorder import rank_of
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.tags import DELAYED, FREED
from tippingpoint.rundir.waited import cost_of


def costs(stage: StageResult, operation: str) -> Histogram:
    """Return the response times of all calls in a stage that somebody waited for, in microseconds (see waited.cost_of).

    RunData.costs is the same over time.
    """
    return cost_of(stage.histograms, operation, Histogram.merged)


def freed_costs(stage: StageResult, operation: str) -> Histogram:
    """Return `costs` without the generator's own delay, where that is known for the operation."""
    found = costs(stage, operation)
    delayed, freed = (
        Histogram.merged(stage.response(operation, outcome + kind) for outcome in stage.waited(operation))
        for kind in (DELAYED, FREED)
    )
    # A digest may have fewer digits, so a delayed operation may be one slot off. Subtract cumulative counts, not slots.
    others = np.cumsum(found.counts) - np.cumsum(delayed.counts)
    others = np.clip(np.maximum.accumulate(others), 0, max(0, found.total - delayed.total))
    return Histogram(np.diff(others, prepend=0) + freed.counts)


def resampled(
    histogram: Histogram, percentiles: list[float], replicates: int, random: np.random.Generator
) -> FloatArray:
    """Return percentiles of bootstrap resamples of a histogram, in microseconds; shape (replicates, percentiles).

    This is exact without drawing samples: the order statistics of n uniform draws are sums of Gamma spacings
    (L. Devroye, Non-Uniform Random Variate Generation, 1986, V.2.1). They are looked up in the histogram's
    distribution. `percentiles` ascend, in 0..100; the histogram must not be empty.
    """
    slots, counts = histogram.filled()
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    ranks = np.asarray([rank_of(p, total) for p in percentiles])
    shapes = np.diff(np.concatenate(([0], ranks, [total + 1])))
    spacings = random.standard_gamma(shapes.astype(np.float64), size=(replicates, shapes.size))
    sums = np.cumsum(spacings, axis=1)
    shares = sums[:, :-1] / sums[:, -1:]
    places = np.searchsorted(cumulative, shares * total, side="left")
    return highest_values(slots[np.minimum(places, slots.size - 1)]).astype(np.float64)
