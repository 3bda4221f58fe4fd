"""Runs made up for tests of costs an operation: claims and extensions each second, and what a target took for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.rundir.curves import Curve
from tippingpoint.rundir.resources import FigureData, Resources, Series
from tippingpoint.rundir.results import RunData

STEP = 5.0
UP, HOLD, REST = 15.0, 60.0, 120.0
LOADS = (1000, 2000, 4000, 8000)
EVERY = 5.0
"""Seconds between two extensions of a lease."""


def counts(loads: Sequence[int] = LOADS) -> dict[str, np.ndarray]:
    """Claims and extensions in each second."""
    claims: list[float] = []
    extends: list[float] = []
    before = 0
    for load in loads:
        claims += [(load - before) / UP] * round(UP) + [0.0] * round(HOLD)
        extends += list(np.linspace(before, load, round(UP)) / EVERY) + [load / EVERY] * round(HOLD)
        before = load
    return {"claim": np.round(claims), "extend": np.round(extends)}


def sliced_run(
    *,
    extend: float = 120e-6,
    claim: float = 300e-6,
    base: float = 0.05,
    noise: Callable[[int], np.ndarray] = np.zeros,
    loads: Sequence[int] = LOADS,
    unit: str = "cores",
    title: str = "made",
    plan: str | None = None,
    of_counts: dict[str, np.ndarray] | None = None,
) -> RunData:
    """A run whose target took so much for each operation, in slices of STEP; `noise` is a share for each slice."""
    found = of_counts or counts(loads)
    seconds = len(found["extend"])
    stages = []
    for number, load in enumerate(loads, start=1):
        samples = {"claim.ok": [1.0] * 100, "extend.ok": [1.0] * round(load * HOLD / EVERY)}
        stage = made_stage(number, load, samples)
        stage.begin = (number - 1) * (UP + HOLD)
        stage.hold_begin, stage.end = stage.begin + UP, stage.begin + UP + HOLD
        stages.append(stage)
    curves: dict[str, Curve] = {}
    for operation, of in found.items():
        at = np.flatnonzero(of)
        took = np.full(len(at), 1000)
        curves[f"{operation}.ok"] = Curve(at.astype(float), of[at].astype(np.int64), took, took, took)
    run = made_run(stages, curves=curves, title=title, plan=plan)
    t = np.arange(-REST, seconds + 1e-9, STEP)
    costs = {"claim": claim, "extend": extend}
    work = np.concatenate(
        (np.zeros(round(REST)), sum(costs.get(name, 0.0) * of for name, of in found.items()))
    )
    taken = np.add.reduceat(work, np.arange(0, len(work), round(STEP)))[: len(t) - 1] / STEP + base
    rates = taken * (1 + noise(len(taken)))
    run.resources = Resources(
        source="Prometheus 2.42.0",
        step=STEP,
        t=t.tolist(),
        figures=[
            FigureData(
                name="etcd-cpu", title="CPU", unit=unit, meaning="m", pack="etcd", cost="operations", window=STEP,
                series=[Series(host="m1", values=[None, *rates.tolist()])],
            )
        ],
    )  # fmt: skip
    return run


def noisy(seed: int, share: float = 0.03) -> Callable[[int], np.ndarray]:
    """Noise of so large a share, of which neighbouring slices have half in common."""
    random = np.random.default_rng(seed)

    def drawn(count: int) -> np.ndarray:
        own = random.normal(size=count + 1)
        return share * (own[1:] + 0.6 * own[:-1]) / 1.17

    return drawn
