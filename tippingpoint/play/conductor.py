"""Announces turns to a runner, and receives its reports on them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from tippingpoint.conduct.director import holds_the_last
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.conduct.search_messages import DIGEST, ClearHold, ProbeReport
from tippingpoint.play.turn_report import TurnReport
from tippingpoint.util import timing

Say = Callable[[Literal["ready", "up"], int], None]
"""Called when the unit is ready for its first turn (0), or has its share of the turn of this number up."""
Tell = Callable[[ProbeReport], None]
"""Called with what the unit measured in a turn that the leader judges."""
TellClear = Callable[[ClearHold], None]
"""Called with what the unit's share of a judged turn shows before its hold is over."""
_LOOK_AGAIN = 1.0
"""Seconds until the clock is read again, because it may have been set meanwhile."""


class Conductor:
    """A runner's connection to the other units: it follows the shared run as it was last seen.

    All moments are seconds since the epoch by our own clock.
    """

    def __init__(
        self,
        unit: str,
        run: SharedRun,
        say: Say,
        tell: Tell = lambda report: None,
        tell_clear: TellClear = lambda shown: None,
        *,
        after: int = 0,
    ) -> None:
        """`after` is the last turn that we skip because we start over."""
        self._unit = unit
        self._after = after
        self._run = run
        self._say = say
        self._tell = tell
        self._tell_clear = tell_clear
        self._ahead = 0.0
        self._given: Turn | None = None
        self._seen = asyncio.Event()
        self.take_load_away: Callable[[], Awaitable[None]] = _nothing
        """Takes the load off the target when the conductor has to wait long before it can name the next turn."""

    def see(self, run: SharedRun, ahead: float) -> None:
        """Take a new state of the run; `ahead` is how many seconds our clock is ahead of the reference's."""
        self._run = run
        self._ahead = ahead
        self._seen.set()

    def now(self) -> float:
        """Return the present moment."""
        return timing.wall()

    @property
    def alone(self) -> bool:
        """Whether this is a run on one machine: no other unit waits for us, or begins at the same moment."""
        return self._run.is_in_memory

    @property
    def _position(self) -> int:
        """Our position among the run's units; the next free one if we have not joined yet."""
        units = self._run.units
        return units.index(self._unit) if self._unit in units else len(units)

    @property
    def share(self) -> tuple[int, int]:
        """The share to prepare for: our position, and how many units there will be with us."""
        return self._position, max(len(self._run.units), self._position + 1)

    def place(self, turn: Turn) -> int:
        """Return the index of our share of a turn, from 0."""
        place = turn.place_of(self._position)
        assert place is not None  # only such turns are returned
        return place

    @property
    def stopped(self) -> str:
        """Why the run is to end before its plan does; empty if nobody asked for that."""
        return self._run.stopped

    @property
    def recovers(self) -> bool:
        """Whether lower loads may follow the last one."""
        return self._run.recovers

    @property
    def judges_stages(self) -> bool:
        """Whether the listed stages are judged now: the last one is held, and lower loads may follow."""
        return self._run.recovers and holds_the_last(self._run)

    async def ready(self) -> None:
        """Report that everything for the first turn is prepared."""
        self._say("ready", 0)

    async def next_turn(self) -> Turn | None:
        """Return the latest turn in which we have a share, once it differs from the one returned before.

        Returns None when the run is stopped or over, or its last hold is over and nothing follows it. A turn may be
        replaced by another one until it begins. Numbers may jump after we were away. The caller may cancel this and
        call it again.
        """
        while not self._ended:
            named = [
                turn
                for turn in self._run.turns
                if turn.number > self._after and turn.place_of(self._position) is not None
            ]
            latest = named[-1].model_copy(update={"hold": None, "ends": None}) if named else None
            if latest is not None and latest != self._given:
                self._given = latest
                return latest.model_copy(update={"begin": latest.begin + self._ahead})
            if self._past_the_last():
                return None
            await self._look_again()
        return None

    async def up(self, turn: Turn) -> float | None:
        """Report that our share of a turn is up, or as far up as it will get; returns when the hold begins for all
        units, which is now if the others are already at a later turn.

        Returns None when the run is stopped or over.
        """
        self._say("up", turn.number)
        while not self._ended:
            for named in self._run.turns:
                if named.number == turn.number and named.hold is not None:
                    return named.hold + self._ahead
                if named.number > turn.number:
                    return self.now()
            await self._look_again()
        return None

    def may_end_early(self, left: float) -> bool:
        """Return whether a judged hold with `left` seconds to go can end earlier."""
        return self._run.may_end_early(left)

    def clear(self, shown: ClearHold) -> None:
        """Report what our share of a judged turn shows before its hold is over."""
        self._tell_clear(shown)

    def ends(self, turn: Turn) -> float | None:
        """Return when the hold of a judged turn ends early for all units; None if no early end is known."""
        for named in self._run.turns:
            if named.number == turn.number and named.ends is not None:
                return named.ends + self._ahead
        return None

    @property
    def reports(self) -> bool:
        """Whether the end of a listed turn's hold is reported because more than the clock waits for it."""
        return self.alone or self.recovers

    async def held(self, report: TurnReport) -> None:
        """Report what we measured of a turn whose hold is over, as a databag has it."""
        told = await asyncio.to_thread(_as_told, report)
        self._tell(told.model_copy(update={"run": self._run.id}))

    @property
    def _ended(self) -> bool:
        return bool(self._run.stopped) or self._run.over

    def _past_the_last(self) -> bool:
        """Return whether the last turn's hold is over: except on one machine, a turn that follows is announced together
        with that hold.

        A search has no further turn once it has its answer, nor does a recovery once it is over.
        """
        if self._run.shared or self._run.recovers:
            return self._run.is_answered
        last = self._run.turns[-1] if self._run.turns else None
        if last is None or last.hold is None or self.alone:
            return False
        return self.now() - self._ahead >= last.hold + last.lasts

    async def _look_again(self) -> None:
        self._seen.clear()
        try:
            async with asyncio.timeout(None if self.alone else _LOOK_AGAIN):
                await self._seen.wait()
        except TimeoutError:
            return


async def _nothing() -> None:
    """No load can be taken away."""


def _as_told(report: TurnReport) -> ProbeReport:
    # These import numpy, which a run needs only if it is judged while it runs.
    import numpy as np

    from tippingpoint.digest.unit_digest import make_digest
    from tippingpoint.rundir.histogram import Histogram

    return ProbeReport(
        turn=report.turn,
        digest=make_digest(report.inside, DIGEST, report.stage) if report.is_measured else "",
        unanswered={
            operation: Histogram.of(np.asarray(ages) * 1e6).encode()
            for operation, ages in report.unanswered.items()
        },
        gone=report.gone[:1000],
        missing=report.missing[:1000],
    )
