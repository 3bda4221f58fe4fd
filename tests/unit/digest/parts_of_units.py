"""Parts of one run as units leave them, made up for tests, and all of their journals together as one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.made.synthetic import STARTED, MadeGrowth, MadeStage, write_run
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitWord
from tippingpoint.rundir.manifest import Manifest

RUN = "20260921-141320-etcd-leases-0001"
PLAN: dict[str, Any] = {
    "name": "etcd-leases",
    "stages": [{"leases": size, "hold": "8s", "over": "2s"} for size in (500, 1000, 2000)],
    "thresholds": [{"operation": "claim", "p99": "100ms"}, {"operation": "extend", "p50": "50ms"}],
}


def names(count: int) -> list[str]:
    return [f"load-claimer/{number}" for number in range(count)]


def shared(units: int, plan: Mapping[str, Any] = PLAN, seconds: float = 30.0, **fields: Any) -> SharedRun:
    """A run that is over; its last turn ended after so many seconds."""
    stages = max(1, len(plan.get("stages", [])))
    last = Turn(
        number=stages, stage=stages, kind="ramp", of=units, begin=STARTED, hold=STARTED, lasts=seconds
    )
    return SharedRun(
        **{
            "id": RUN,
            "plan": dict(plan),
            "made": STARTED - 40,
            "started": STARTED,
            "units": names(units),
            "turns": [last],
            "over": True,
            **fields,
        }
    )


def word(offset: float | None = 0.0, **fields: Any) -> UnitWord:
    return UnitWord(
        **{
            "run": RUN,
            "phase": "over",
            "t": STARTED + 40,
            "cores": 2,
            "offset": offset,
            "offset_error": None if offset is None else 0.001,
            **fields,
        }
    )


def write_part(
    directory: Path,
    number: int,
    stages: Sequence[MadeStage] | Sequence[MadeGrowth],
    *,
    clock: float = 0.0,
    **options: Any,
) -> Path:
    """The part of a unit whose clock is so many seconds ahead."""
    part = write_run(directory / f"part-{number}", stages, **{"seed": number + 1, "plan": PLAN, **options})
    manifest = Manifest.load(part)
    manifest.id, manifest.unit = f"{RUN}.{number}", names(number + 1)[number]
    manifest.started += clock
    manifest.save(part)
    return part


def as_one_run(directory: Path, parts: Sequence[Path]) -> Path:
    """One run with the journals of all workers of all parts."""
    directory.mkdir()
    for number, part in enumerate(parts):
        for path in part.glob("worker-*"):
            (directory / path.name.replace("worker-", f"worker-{number}-")).write_bytes(path.read_bytes())
    events = [line for part in parts for line in (part / "events.jsonl").read_text().splitlines()]
    (directory / "events.jsonl").write_text("".join(f"{line}\n" for line in events))
    Manifest.load(parts[0]).save(directory)
    return directory
