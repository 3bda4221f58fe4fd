"""Runs made up in memory, for tests of what is concluded from a run."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.read import parse_plan
from tippingpoint.rundir.curves import Curve
from tippingpoint.rundir.gauges import Gauges
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.manifest import Manifest, RunStatus, TargetEntry, WorkerEntry
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

STAGE_SECONDS = 30.0


def repeated(made: Callable[..., RunData], seed: int, count: int = 3, **options: Any) -> list[RunData]:
    """Runs of one release: each is drawn by `made` from one generator of random numbers, with the same options."""
    random = np.random.default_rng(seed)
    return [made(random, **options) for _ in range(count)]


def made_stage(
    number: int,
    size: int,
    samples: Mapping[str, Sequence[float]],
    kind: StageKind = "ramp",
    cpu: float = 0.2,
) -> StageResult:
    """A stage of 30 s, held all the while, with samples in milliseconds by tag (`claim.ok`, ...)."""
    histograms = {
        tag: Histogram.of(np.maximum(1, np.round(np.asarray(values) * 1000)).astype(np.int64))
        for tag, values in samples.items()
        if len(values)
    }
    begin = (number - 1) * STAGE_SECONDS
    return StageResult(
        number=number,
        size=size,
        kind=kind,
        begin=begin,
        hold_begin=begin,
        end=begin + STAGE_SECONDS,
        histograms=histograms,
        held=histograms,
        gauges={"held": float(size), "cpu": cpu},
    )


def made_curve(samples: Mapping[float, Sequence[float]]) -> Curve:
    """A tag over time: for each second the samples in it, in milliseconds."""
    at = sorted(samples)
    seconds = [Histogram.of(np.round(np.asarray(samples[t]) * 1000).astype(np.int64)) for t in at]
    return Curve(
        t=np.asarray(at, dtype=np.float64),
        count=np.asarray([found.total for found in seconds]),
        p50=np.asarray([found.percentile(50) for found in seconds]),
        p99=np.asarray([found.percentile(99) for found in seconds]),
        max=np.asarray([found.max for found in seconds]),
    )


@functools.cache
def _as_kept(plan: str) -> str:
    """A plan in YAML, which takes PyYAML a while, as JSON."""
    return parse_plan(plan).model_dump_json()


def made_run(
    stages: Iterable[StageResult],
    *,
    title: str = "made",
    plan: str | None = None,
    events: Sequence[dict[str, Any]] = (),
    status: RunStatus = "complete",
    reason: str = "",
    cut: bool = False,
    timeline: Literal["seconds", "order"] = "seconds",
    curves: Mapping[str, Curve] | None = None,
    workload: Literal["claim", "spawn", "grow", "cts"] = "claim",
    target: str = "",
) -> RunData:
    """A run of these stages; `plan` is YAML, and `target` a kind, if not the usual one of the workload."""
    parsed = json.loads(_as_kept(plan)) if plan is not None else None
    manifest = Manifest(
        id=title,
        title=title,
        workload=workload,
        load_unit="leases" if workload == "claim" else "units",
        target=TargetEntry(kind=target, version="1.0")
        if target
        else TargetEntry(kind="etcd", version="3.5.16")
        if workload == "claim"
        else TargetEntry(kind="juju", version="4.0.15"),
        plan=parsed,
        status=status,
        reason=reason,
        started=0.0,
        timeline=timeline,
        workers=[WorkerEntry(name="0", status="cut" if cut else "complete")],
    )
    none = np.zeros(0)
    return RunData(
        directory=Path("made"),
        manifest=manifest,
        stages=list(stages),
        curves=dict(curves or {}),
        gauges=Gauges(none, none, none, none, none, none, none),
        bin_seconds=1.0,
        events=list(events),
        notes=[],
    )
