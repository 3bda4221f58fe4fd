"""What a runner tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tippingpoint.plan.fields import StageKind
from tippingpoint.run.messages import Tick
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.units.shared_run import Phase

_HOLDS: Mapping[StageKind, Phase] = {
    "ramp": "hold",
    "storm": "storm hold",
    "find": "find hold",
    "confirm": "confirm hold",
}


@dataclass(frozen=True)
class StageProgress:
    """Where a run is; sent each time a worker ticks."""

    elapsed: float
    stage: int
    stages: int | None
    """How many stages are listed; None in a search."""
    size: int
    kind: StageKind
    remaining: float | None
    """Seconds of hold left; None while the load is brought up."""
    listed: int | None = None
    """Which of the listed stages it is, from 1; `stage` counts storms too."""

    @property
    def phase(self) -> Phase:
        """What goes on in the stage."""
        if self.kind == "destroy":
            return "drain"
        return self.kind if self.remaining is None else _HOLDS[self.kind]


class RunnerEvents:
    """What a runner tells whoever watches it; the default watches nothing."""

    def began(self, manifest: Manifest, directory: Path) -> None:
        """The workers are ready; the first stage follows."""

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """A worker's tick: its gauges, and the journal lines of its last interval."""

    def preparing(self, what: str, done: int, goal: int) -> None:
        """Something that the stages need is being made, by all workers together."""

    def removing(self, what: str, done: int, goal: int) -> None:
        """What the run made is being removed from the target."""

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Something single happened: a fault, a worker that is gone, a stage's end in a search."""
