"""How long a run of a plan takes, as far as the plan says."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnStage
from tippingpoint.util.durations import show_span

Bound = Literal["about", "at least", "at most"]


class Lasting(NamedTuple):
    """A time in seconds, and how it bounds the real one."""

    seconds: float
    bound: Bound

    @property
    def words(self) -> str:
        """About 2 min 30 s."""
        return f"{self.bound} {show_span(self.seconds)}"


class _Stage(NamedTuple):
    ramp: float
    hold: float
    storms: list[float]
    """When the plan's restart storms begin, counted from the beginning of the hold."""

    @property
    def whole(self) -> float:
        """Seconds of all of it. After its last storm a stage is held in full (director.py)."""
        return self.ramp + self.hold + max(self.storms, default=0.0)


class Schedule:
    """The time that the stages of a plan take.

    Leases and calls are spread over a time that the plan names. Things are made as fast as the target can. So only
    their holds are known, and the whole lasts at least that long. A search ends at the latest after `find.within`.
    """

    def __init__(self, plan: Plan) -> None:
        self._stages = [
            _Stage(
                stage.over,
                stage.hold,
                sorted(
                    fault.at for fault in plan.faults if fault.do == "drop-claims" and fault.stage == number
                ),
            )
            for number, stage in enumerate(plan.stages, start=1)
        ]
        self._within = plan.find.within if plan.find is not None else None
        as_fast_as_it_can = any(isinstance(stage, SpawnStage) for stage in plan.stages)
        more = plan.workload.kind == "cts" or as_fast_as_it_can or plan.after is not None
        self._bound: Bound = "at least" if more else "about"

    @property
    def whole(self) -> Lasting | None:
        """The time of all stages; None if the plan does not determine it."""
        return self._told(self._after(0)) if self._stages else self.left_of_search(0.0)

    def left_of_search(self, searched: float) -> Lasting | None:
        """The time left for a search that began this many seconds ago; None if the plan does not limit it."""
        return None if self._within is None else Lasting(max(0.0, self._within - searched), "at most")

    def left(self, listed: int, *, ramp: float, hold: float | None, storms: int) -> Lasting | None:
        """The time left in a listed stage, from 1, and after it; None if it is unknown.

        `ramp` is the number of seconds for which its load has been brought up, `hold` the number left of its hold once
        that has begun, and `storms` the number of restart storms in it so far.
        """
        stage = self._stages[listed - 1]
        if hold is not None:
            to_come = stage.storms[storms:]
            now = hold + (stage.hold + to_come[-1] - to_come[0] if to_come else 0.0)
        elif storms:  # which claims all at once
            now = stage.hold + stage.storms[-1] - stage.storms[storms - 1]
        else:
            now = max(0.0, stage.whole - min(ramp, stage.ramp))
        return self._told(now + self._after(listed))

    def _after(self, listed: int) -> float:
        return sum(stage.whole for stage in self._stages[listed:])

    def _told(self, seconds: float) -> Lasting | None:
        return Lasting(seconds, self._bound) if seconds or self._bound == "about" else None
