"""What an operation cost in a stage, failures included, and how sure its percentiles are."""

from __future__ import annotations

import numpy as np

from tippingpoint.hdr import FloatArray, Histogram, highest_values, rank_of
from tippingpoint.results import StageResult


def costs(stage: StageResult, operation: str) -> Histogram:
    """Response times of everything that was waited for, in microseconds.

    Successes, timeouts and lost leases count at what they cost, so an operation that was given up never makes
    a percentile look better. Errors count where they were waited for; refusals quicker than the
    typical answer say nothing about latency (their number counts as error rate) and are left out.
    """
    waited = Histogram.merged(stage.response(operation, outcome) for outcome in ("ok", "timeout", "lost"))
    errors = stage.response(operation, "error")
    if errors.total and errors.percentile(50) >= waited.percentile(50):
        waited.add(errors)
    return waited


def resampled(
    histogram: Histogram, percentiles: list[float], replicates: int, random: np.random.Generator
) -> FloatArray:
    """Percentiles of bootstrap resamples of a histogram, in microseconds; shape (replicates, percentiles).

    Exact without drawing the samples: the order statistics of n uniform draws are sums of Gamma spacings
    (L. Devroye, Non-Uniform Random Variate Generation, 1986, V.2.1), looked up in the histogram's
    distribution. `percentiles` ascend, in 0..100; the histogram must hold something.
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
