"""The state of a run that every unit sees, and the word with which each unit answers.

The leader publishes a `SharedRun`, and each unit answers with a `UnitWord`. A run is a sequence of *turns*, each a
stage, a restart storm in it, or a load of a search or of `after: recover`. Everything that a run knows is in its
SharedRun.

All moments are seconds since the epoch on one clock, the reference's. A unit with another clock reports in its word how
far that clock is ahead. A run on one machine is a run of one unit, and its mailbox is memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from tippingpoint.conduct.figure_messages import FiguresTold
from tippingpoint.conduct.recovery_messages import Recovery
from tippingpoint.conduct.search_messages import ClearHold, SearchEnd
from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.rundir.probe_events import ProbeEvent

MOST_UNITS = 1000
REMOVED = "the unit was removed"
RESTARTED = "its agent was restarted"
"""Why a unit of a shared search that will return is missing: it has a share again once it is ready."""

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=0, le=10**9)]
Figure = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Unit = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,100}/[0-9]{1,9}$")]
Line = Annotated[str, Field(max_length=1000)]
Offset = Annotated[float, Field(ge=-1e11, le=1e11, allow_inf_nan=False)]

M = TypeVar("M", bound=BaseModel)


class Turn(BaseModel):
    """One step that all units take together."""

    number: Annotated[int, Field(ge=1, le=10**6)]
    """Counts the turns of a run from 1, as journals count stages."""
    stage: Annotated[int, Field(ge=1, le=10**6)]
    """The plan's listed stage, from 1; always 1 in a search, and the last one for lower loads after it."""
    kind: StageKind
    of: Annotated[int, Field(ge=1, le=MOST_UNITS)]
    """How many units have a share in it: the first ones of SharedRun.units, each at its position, without `lost`."""
    begin: Moment
    hold: Moment | None = None
    """When its hold begins for all units; None while shares are brought up."""
    lasts: Seconds
    """Seconds of its hold, unless it ends before."""
    ends: Moment | None = None
    """In a search or a recovery, when its hold ends early because all units report the same about it; None if it does
    not."""
    storms: Number = 0
    """How many of the plan's storms in this stage have begun, this one included."""
    load: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """In a search or a recovery, the load of all units."""
    fresh: bool = False
    """In a search or a recovery, whether the load begins from nothing."""
    lost: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_UNITS)]], Field(max_length=MOST_UNITS)] = []
    """In a search or a recovery, the positions in SharedRun.units of the units that are missing: the others share the
    whole load."""

    @property
    def until(self) -> float:
        """When its hold ends; until that has been named, the earliest moment at which it could."""
        if self.ends is not None:
            return self.ends
        return (self.begin if self.hold is None else self.hold) + self.lasts

    def place_of(self, position: int) -> int | None:
        """Return the index of the share of the unit at this position in SharedRun.units; None if it has none."""
        if position in self.lost:
            return None
        place = position - sum(lost < position for lost in self.lost)
        return place if place < self.of else None

    def sharing(self, units: Sequence[str]) -> list[str]:
        """Return those of a run's units that have a share in it."""
        return [unit for position, unit in enumerate(units) if self.place_of(position) is not None]


ABORTED = "aborted: "
"""Prefix of a unit's problem when a threshold with `abort` has ended its part: the whole run ends then."""


class SharedRun(BaseModel):
    """A run as all of its units know it."""

    version: Literal[1] = 1
    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,120}$")]
    plan: dict[str, Any]
    """The fields of the whole plan; each unit has its own access to the target."""
    made: Moment
    """When the run was requested."""
    started: Moment | None = None
    """When its first turn begins, which is time 0 of the whole run."""
    units: Annotated[list[Unit], Field(max_length=MOST_UNITS)]
    """The units with a part in it, in the order of joining; none is ever removed."""
    turns: Annotated[list[Turn], Field(max_length=100)] = []
    """The last few turns, in order."""
    missing: Annotated[dict[Unit, Line], Field(max_length=MOST_UNITS)] = {}
    """The units whose share is gone or never came up, and why in one line."""
    stopped: Line = ""
    """Why the run should end early; empty if it should not."""
    over: bool = False
    """Whether all units that are not missing have ended their parts."""
    shared: bool = False
    """Whether its units share a search, whose turns the leader names."""
    probes: Annotated[list[ProbeEvent], Field(max_length=1000)] = []
    """The loads that the shared search has tried, in order; `stage` is the turn's number."""
    found: SearchEnd | None = None
    """The answer of the shared search, once it has ended."""
    recovery: Recovery | None = None
    """With `after: recover`, what is known about the lower loads, once the last load has been judged."""
    figures: FiguresTold = FiguresTold()
    """The Prometheus figures measured in its turns, for thresholds on them; a unit that searches alone keeps its
    own."""
    _plan: Plan | None = PrivateAttr(None)
    """The plan of a run on one machine; None in a run of units."""
    _first: int = PrivateAttr(1)

    @classmethod
    def in_memory(
        cls, plan: Plan, unit: str, first: int, started: float, probes: Sequence[ProbeEvent] = ()
    ) -> SharedRun:
        """Return a run on one machine. `first` is the number of its first turn, and of the stage that this is.

        `probes` are the loads that its search has tried before.
        """
        fields = plan.model_dump(mode="json", exclude_none=True)
        run = cls(
            id="alone",
            plan=fields,
            made=started,
            started=started,
            units=[unit],
            shared=plan.find is not None,
            probes=[*probes],
        )
        run._plan, run._first = plan, first
        return run

    @property
    def is_in_memory(self) -> bool:
        """Whether it is a run on one machine, whose words take no time."""
        return self._plan is not None

    @property
    def first(self) -> int:
        """The number of its first turn."""
        return self._first

    @property
    def lead(self) -> float:
        """The seconds by which a moment is announced ahead."""
        return 0.0 if self.is_in_memory else lead(len(self.units))

    def may_return(self, unit: str) -> bool:
        """Whether a unit is present, or is missing only until its restarted agent is ready again."""
        return self.missing.get(unit, RESTARTED) == RESTARTED

    @property
    def searches(self) -> bool:
        """Whether it searches for a load (find)."""
        return self.plan.get("find") is not None

    @property
    def searches_alone(self) -> bool:
        """Whether a single unit searches, by turns of its own."""
        return self.searches and not self.shared

    @property
    def recovers(self) -> bool:
        """Whether lower loads may follow the last one, whose turns the leader names."""
        return self.plan.get("after") is not None and not self.searches_alone

    @property
    def is_answered(self) -> bool:
        """Whether the leader has nothing more to judge: the search has its answer, and the recovery is over."""
        if self.recovers:
            return self.recovery is not None and self.recovery.over
        return self.found is not None

    def may_end_early(self, left: float) -> bool:
        """Return whether a judged hold with `left` seconds to go can end early if that is announced now.

        With more than 15 units, words take longer than an early end would save.
        """
        return reports_phases(len(self.units)) and left > self.lead

    @property
    def asks_figures(self) -> bool:
        """Whether the leader queries a Prometheus about its turns, because a threshold is on a figure."""
        if self.is_in_memory:  # its runner asks
            return False
        try:
            return bool(figures_of(self.validated()))
        except ValidationError:
            return False

    def validated(self) -> Plan:
        """Return the plan; raises ValidationError if it was not written by `begin_run`."""
        return validate_plan(self.plan) if self._plan is None else self._plan


Phase = Literal[
    "ramp",
    "hold",
    "storm",
    "storm hold",
    "find",
    "find hold",
    "recover",
    "recover hold",
    "drain",
]
"""What is done in a stage: its load is brought up (ramp, or the kind of the stage), held, or taken down."""


class UnitProgress(BaseModel):
    """How far a unit's part is."""

    stage: Number
    stages: Number | None = None
    """How many stages are listed; None in a search."""
    kind: StageKind = "ramp"
    phase: Phase | None = None
    """None before the first stage."""
    size: Number
    """How many leases or things make up this unit's share of the load; `what` names the kind."""
    held: Number
    rate: Figure = 0.0
    """Per second: things made or removed, or claims and renewals."""
    p50_ms: Figure | None = None
    p99_ms: Figure | None = None
    errors: Number = 0
    lost: Number = 0
    what: Annotated[str, Field(max_length=40)] = "leases"
    preparing: Line = ""
    """What is being made before the first turn, and how far that is."""

    @property
    def doing(self) -> str:
        """The current phase of the stage, if known."""
        return self.phase or self.kind


class UnitWord(BaseModel):
    """A unit's report on its part of a run."""

    version: Literal[1] = 1
    run: Annotated[str, Field(max_length=130)]
    phase: Literal["making", "ready", "up", "over", "failed"]
    """How far its part is.

    - `making`: it prepares what it needs.
    - `ready`: it is ready for its first turn.
    - `up`: its share of `turn` is up, or as far up as it will get.
    - `over`: it has ended its part as it was told to.
    - `failed`: it could not begin or could not go on.
    """
    turn: Number = 0
    """The number of its current turn; 0 before the first."""
    problem: Line = ""
    left: Line = ""
    """What its part may have left on the target, why, and what comes next; `problem` includes it."""
    leaves: bool = False
    """Whether the unit is being removed: this is its last word, and its share is gone."""
    t: Moment
    """When it was written, on the unit's own clock."""
    cores: Number = 0
    clock: Annotated[str, Field(max_length=200)] = ""
    """Address and port of its clock server; empty if it has none."""
    offset: Offset | None = None
    """Seconds that its clock is ahead of the reference's; None if the network let no measurement through."""
    offset_error: Figure | None = None
    progress: UnitProgress | None = None
    held: Number = 0
    """The number of the latest turn that it has held and reported on: in a shared search, and with `after: recover`."""
    again: Number = 0
    """In a shared search, the number of the turn in which its agent was restarted, so that its part began anew."""
    clear: ClearHold | None = None
    """In a shared search or a recovery, what its share of a load showed before the hold was over, once it was clear."""

    @property
    def has_ended(self) -> bool:
        """Whether its part is over or has failed: it has no more to say."""
        return self.phase in ("over", "failed")


def read_shared(text: str | None) -> SharedRun | None:
    """Return the run in a relation's databag; None without one, or if this version does not understand it."""
    return _read(SharedRun, text)


def read_word(text: str | None) -> UnitWord | None:
    """Return the word in a unit's databag; None without one, or if this version does not understand it."""
    return _read(UnitWord, text)


def _read(model: type[M], text: str | None) -> M | None:
    try:
        return model.model_validate_json(text) if text else None
    except (ValidationError, RecursionError):
        return None


_WORD_EVERY = 30.0
"""Seconds after which a unit of a small run reports its progress again."""


def word_every(units: int) -> float:
    """Return the seconds after which a unit reports its progress again.

    Each word costs every other unit a hook of about half a second, so words are rarer when there are many units.
    """
    return max(_WORD_EVERY, 2.0 * units)


def reports_phases(units: int) -> bool:
    """Return whether a unit reports at once that a stage's phase changed; with more than 15 units that can wait."""
    return word_every(units) <= _WORD_EVERY


def is_news(word: UnitWord, said: UnitWord, units: int) -> bool:
    """Return whether a unit's word is worth a hook of all the others: it differs from what was `said` in more than
    progress, or the last progress report is old enough. `units` is the number of units."""
    # The agent wakes the charm by its own clock, so a tenth of the time is left for delays.
    due = not 0 <= word.t - said.t < 0.9 * word_every(units)
    return due or _news(word, units) != _news(said, units)


def _news(word: UnitWord, units: int) -> dict[str, Any]:
    news = word.model_dump(include={"run", "phase", "turn", "problem", "clock", "leaves", "held"})
    if reports_phases(units):
        news["doing"] = None if word.progress is None else word.progress.phase
        news["clear"] = word.clear
    return news


def silent_after(units: int) -> float:
    """Return the seconds without a word after which a unit is missing. A machine takes one or two minutes to
    restart."""
    return 4 * word_every(units) + 60.0


def lead(units: int) -> float:
    """Return the seconds by which a moment is announced ahead: the hooks that carry it run one after the other."""
    return 8.0 + 0.5 * units
