"""Forecasts the largest throughput and its load, by fitting the Universal Scalability Law."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tippingpoint.analysis.cliff import Load
from tippingpoint.rundir.histogram import FloatArray
from tippingpoint.util.text import show_size

LEAST_LOADS = 4
LINEAR = 0.9
"""There is no saturation to fit as long as throughput per load stays above this share of its first value."""

_REPLICATES = 500
_BREAKS = "the cliff is at {load}, before throughput levels off in a way that the law could be fitted to"


@dataclass(frozen=True)
class Forecast:
    """A forecast, not a measurement: X(N) = rate * N / (1 + sigma * (N - 1) + kappa * N * (N - 1)), N = load / unit.

    The law is from N. J. Gunther, Guerrilla Capacity Planning (Springer 2007), chapter 4. `sigma` is contention, the
    share of work that is serial. `kappa` is coherency, the cost of agreement between each pair.
    """

    unit: float
    """The load that counts as N = 1: the smallest stage's size."""
    rate: float
    """Throughput at N = 1, successes per second over all operations of the load."""
    sigma: float
    kappa: float
    peak_load: float | None
    """The load of largest throughput; None if kappa is not significantly above 0 (throughput only levels off)."""
    peak_low: float | None
    peak_high: float | None
    """95 % bootstrap interval of `peak_load`; `peak_high` may be infinite."""
    peak_throughput: float
    """The largest throughput forecast, per second: at `peak_load`, or rate / sigma if it levels off."""
    throughput_low: float
    throughput_high: float
    """95 % bootstrap interval of `peak_throughput`."""
    largest_measured: float
    """The largest load in the fit. Beyond it the forecast is extrapolated."""


def forecast(loads: Sequence[Load], *, clock_known: bool, breaks_at: float | None = None) -> Forecast | str:
    """Fit the law to the throughput of the loads during their holds, or return why there is no forecast.

    A target that breaks at the load `breaks_at`, before its throughput levels off, is not called unsaturated.
    Loads with a fault or a lost worker are left out. The result is deterministic.
    """
    if not clock_known:
        return "the source gives no common clock, so throughput is unknown"
    measured = [(load.size, *load.held()) for load in loads if not load.faulted and not load.load_missing]
    measured = [(size, n, seconds) for size, n, seconds in measured if size and seconds > 0 and n > 0]
    if len(measured) < LEAST_LOADS:
        return f"too few loads with throughput: {len(measured)}, {LEAST_LOADS} are needed"
    sizes = np.asarray([size for size, _, _ in measured], dtype=np.float64)
    successes = np.asarray([n for _, n, _ in measured], dtype=np.float64)
    throughput = successes / np.asarray([seconds for _, _, seconds in measured])
    n = sizes / sizes[0]
    rate, sigma, kappa = _fit(n, throughput)
    fitted = _law(n, *_arrays(rate, sigma, kappa))
    if float(n[-1] * rate / fitted[-1]) * LINEAR <= 1:
        if breaks_at is not None:
            return _BREAKS.format(load=show_size(breaks_at))
        largest = show_size(measured[-1][0])
        return f"no saturation seen: throughput grows with the load up to {largest} and gives no limit"
    noise = np.sqrt(np.mean((throughput / fitted - 1) ** 2) * n.size / max(1, n.size - 3) + 1 / successes)
    random = np.random.default_rng(2007)
    draws = fitted * np.maximum(1 + random.normal(0, 1, (_REPLICATES, n.size)) * noise, 0.05)
    fits = _fits(n, draws)
    peaked = bool((fits[:, 2] > 0).mean() >= 0.975 and kappa > 0)
    if not peaked:
        rate, sigma, kappa = _fit(n, throughput, coherency=False)
        fits = _fits(n, draws, coherency=False)
    saturating = n[-1] * fits[:, 0] / _law(n[-1:], *fits.T) * LINEAR > 1
    if saturating.mean() < 0.95:
        if breaks_at is not None:
            return _BREAKS.format(load=show_size(breaks_at))
        return "no saturation seen: what throughput lacks at the largest load is within its noise"
    peaks = _peak(fits[:, 1], fits[:, 2])
    low, high = np.quantile(peaks, [0.025, 0.975], method="closest_observation") * sizes[0]
    largest = _largest(*fits.T)
    largest_low, largest_high = np.quantile(largest, [0.025, 0.975], method="closest_observation")
    return Forecast(
        unit=float(sizes[0]),
        rate=rate,
        sigma=sigma,
        kappa=kappa,
        peak_load=float(_peak(*_arrays(sigma, kappa)) * sizes[0]) if peaked else None,
        peak_low=float(low) if peaked else None,
        peak_high=float(high) if peaked else None,
        peak_throughput=float(_largest(*_arrays(rate, sigma, kappa))),
        throughput_low=float(largest_low),
        throughput_high=float(largest_high),
        largest_measured=measured[-1][0],
    )


def _arrays(*numbers: float) -> list[FloatArray]:
    return [np.asarray(number, dtype=np.float64) for number in numbers]


def _law(n: FloatArray, rate: FloatArray, sigma: FloatArray, kappa: FloatArray) -> FloatArray:
    return rate * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))


def _fit(n: FloatArray, throughput: FloatArray, coherency: bool = True) -> tuple[float, float, float]:
    """Return rate, sigma and kappa of one measured throughput curve; see _fits."""
    rate, sigma, kappa = _fits(n, throughput[np.newaxis], coherency=coherency)[0].tolist()
    return rate, sigma, kappa


def _fits(n: FloatArray, throughput: FloatArray, *, coherency: bool = True) -> FloatArray:
    """Return rate, sigma and kappa for each row, none negative, by least squares of relative errors.

    N / X is linear in 1 / rate, sigma / rate and kappa / rate. The last two may be held at zero. Of these fits, the
    best one without negative parameters is the constrained optimum.
    """
    relative = throughput / n
    columns = np.stack([np.ones_like(n), n - 1, n * (n - 1)], axis=1) * relative[:, :, np.newaxis]
    best = np.zeros((len(throughput), 3))
    best[:, 0] = 1 / relative.mean(axis=1)
    best_misfit = np.full(len(throughput), np.inf)
    for with_sigma, with_kappa in product((False, True), (False, True) if coherency else (False,)):
        used = [0, *([1] if with_sigma else []), *([2] if with_kappa else [])]
        some = columns[:, :, used]
        # Least squares of all rows at once, by the pseudo-inverse, with the cutoff of np.linalg.lstsq.
        inverse = np.linalg.pinv(some, rcond=np.finfo(np.float64).eps * max(n.size, len(used)))
        found = inverse.sum(axis=2)
        misfit = (((some @ found[:, :, np.newaxis])[:, :, 0] - 1) ** 2).sum(axis=1)
        better = (found[:, 0] > 0) & (found >= 0).all(axis=1) & (misfit < best_misfit)
        best_misfit[better] = misfit[better]
        best[better] = 0.0
        best[np.ix_(better, used)] = found[better]
    return np.stack([1 / best[:, 0], best[:, 1] / best[:, 0], best[:, 2] / best[:, 0]], axis=1)


def _peak(sigma: FloatArray, kappa: FloatArray) -> FloatArray:
    """Return N of the largest throughput: sqrt((1 - sigma) / kappa), at least 1, infinite without coherency."""
    with np.errstate(divide="ignore", invalid="ignore"):
        peak = np.sqrt(np.maximum(1 - sigma, 0.0) / kappa)
    return np.where(kappa > 0, np.maximum(peak, 1.0), np.inf)


def _largest(rate: FloatArray, sigma: FloatArray, kappa: FloatArray) -> FloatArray:
    peak = _peak(sigma, kappa)
    with np.errstate(divide="ignore", invalid="ignore"):
        levelled = np.where(sigma > 0, rate / sigma, np.inf)
        return np.where(
            np.isfinite(peak), _law(np.where(np.isfinite(peak), peak, 1.0), rate, sigma, kappa), levelled
        )
