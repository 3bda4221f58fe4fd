"""The Universal Scalability Law fitted to throughput: a forecast of the largest throughput and where it lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Forecast:
    """X(N) = rate * N / (1 + sigma * (N - 1) + kappa * N * (N - 1)), N = load / unit. A forecast, not a measurement.

    The law is N. J. Gunther's, Guerrilla Capacity Planning (Springer 2007), chapter 4: `sigma` is
    contention (what must be done one after the other), `kappa` coherency (what each has to agree with each).
    """

    unit: float
    """The load that counts as N = 1: the smallest stage's size."""
    rate: float
    """Throughput at N = 1, successes per second over all operations."""
    sigma: float
    kappa: float
    peak_load: float | None
    """The load of largest throughput; None when kappa cannot be told from 0 (throughput only levels off)."""
    peak_low: float | None
    peak_high: float | None
    """95 % bootstrap interval of `peak_load`; `peak_high` may be infinite."""
    peak_throughput: float
    """The largest throughput forecast, per second: at `peak_load`, or rate / sigma where it levels off."""
    throughput_low: float
    throughput_high: float
    """95 % bootstrap interval of `peak_throughput`."""
    largest_measured: int
    """The largest load the fit rests on; what lies beyond is extrapolated."""
