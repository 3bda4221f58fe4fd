"""The events of a runner, for its observers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tippingpoint.conduct.run_state import Phase
from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.lasting import Lasting
from tippingpoint.play.messages import Tick
from tippingpoint.rundir.manifest import Manifest

_HOLDS: Mapping[StageKind, Phase] = {
    "ramp": "hold",
    "storm": "storm hold",
    "find": "find hold",
    "recover": "recover hold",
}


@dataclass(frozen=True)
class StageProgress:
    """Where a run is; sent with each tick of a worker."""

    elapsed: float
    stage: int
    stages: int | None
    """How many stages are listed; None in a search."""
    size: float
    goal: int
    """How many leases, things or tests the load is made of."""
    things: str
    """What these are: leases, machines, iterations, nodes."""
    kind: StageKind
    remaining: float | None
    """Seconds of the hold that are left; None while the load comes up."""
    listed: int | None = None
    """Which of the listed stages it is, from 1; `stage` also counts storms."""
    left: Lasting | None = None
    """The time until the load of the run is over; None if the plan does not determine it."""

    @property
    def phase(self) -> Phase:
        """What is being done in the stage."""
        if self.kind == "destroy":
            return "drain"
        return self.kind if self.remaining is None else _HOLDS[self.kind]


class SearchSoFar(NamedTuple):
    """What a search knows of its limit."""

    held: float | None
    """The largest load that held; None if none did."""
    broke: float | None
    """The smallest load that broke; None if none did."""
    interval: tuple[float, float] | None
    """The 95 % interval of the limit; None until loads held and loads broke."""


class RunnerEvents:
    """The events of a runner; by default each is ignored."""

    def began(self, manifest: Manifest, directory: Path) -> None:
        """The workers are ready; the first stage follows."""

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """A worker ticked: its gauges, and the journal lines of its last interval."""

    def preparing(self, what: str, done: int, goal: int) -> None:
        """All workers together are making something that the stages need."""

    def removing(self, what: str, done: int, goal: int) -> None:
        """The things that the run made are being removed from the target."""

    def waiting(self, why: str, waited: float, longest: float) -> None:
        """The run waits for something that it does not do itself, at most `longest` seconds."""

    def doing(self, what: str) -> None:
        """The run does something other than its load, such as starting its workers; until the next event reports
        otherwise."""

    def searched(self, known: SearchSoFar) -> None:
        """A search knows more than before."""

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """A single event happened: a fault, the loss of a worker, the end of a stage in a search."""
