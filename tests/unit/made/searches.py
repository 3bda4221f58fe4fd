"""Runs of a search made up for tests: their loads, and whether each held, are what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.unit.made.synthetic import MadeStage, write_run

_PLAN: dict[str, Any] = {
    "name": "find",
    "target": {"kind": "etcd"},
    "workload": {"kind": "claim", "units": 1, "claim_time": "10s", "renew_time": "1s"},
    "thresholds": [{"operation": "extend", "p99": "100ms", "error_rate": 0.01}],
}
_FIND: dict[str, Any] = {"start": 500, "limit": 64000, "hold": "10s"}
NARROWED = [(500, True), (1000, True), (2000, True), (4000, False)] + [
    (3000, True),
    (3400, False),
    (3200, False),
] * 3
"""The loads of a search for a limit between 3,000 and 3,200, and whether they held."""


def write_search(
    directory: Path, loads: Sequence[tuple[int, bool | None]], seed: int = 1, **find: Any
) -> Path:
    """Write a run whose search tried these loads, ten seconds each; None for a probe that says nothing."""
    plan = {**_PLAN, "find": {**_FIND, **find}}
    stages = [MadeStage(load, kind="find") for load, _ in loads]
    events = [_probe(number, load, held) for number, (load, held) in enumerate(loads, start=1)]
    return write_run(directory, stages, plan=plan, events=events, seed=seed)


def _probe(number: int, load: int, held: bool | None) -> dict[str, Any]:
    value = -1.5 if held else 1.5
    return {
        "t": float(10 * number),
        "event": "probe",
        "stage": number,
        "size": load,
        "held": held,
        "fresh": number == 1,
        "margins": [
            ["extend p99", value, 0.05],
            ["extend error_rate", -3.0, 0.2],
            ["extend p99 50ms", 0.0 if held else 1.8, 0.05],
        ],
        "broken": [] if held else ["extend p99"],
        "began": float(10 * (number - 1)),
        "seconds": 10.0,
        "strained": "" if held is not None else "the generator was late",
    }
