"""Commands of a runner to its workers (by `do`) and the workers' messages (by `say`): one JSON object a line.

Both ends are always of the same version, so fields may change between versions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tippingpoint.workloads.load import PrepareOrder, ShareOrder, StageOrder, TargetFacts

if TYPE_CHECKING:
    from tippingpoint.rundir.histogram import Counts

T = TypeVar("T")

_UNREAD = 64
"""The most ticks that are kept until somebody reads the figures."""

# -- commands: orders of the load, and these -----------------------------------------------------


class Hold(BaseModel):
    """Begin the stage's hold: its load is up, or as far up as it will get."""

    do: Literal["hold"] = "hold"


class Pause(BaseModel):
    """Stop the load and close the stage's figures; answered by Paused."""

    do: Literal["pause"] = "pause"


class Settle(BaseModel):
    """Wait for operations in flight and close the stage's figures while the load continues; answered by Settled."""

    do: Literal["settle"] = "settle"
    count: bool = False
    """Whether operations without an answer count as timed out in this stage, instead of being reported."""


class Repair(BaseModel):
    """Check the maintained load now, and retry what was given up."""

    do: Literal["repair"] = "repair"


class Evict(BaseModel):
    """Remove a dead member from the target by force; answered by Evicted."""

    do: Literal["evict"] = "evict"
    member: str


class End(BaseModel):
    """Close the last stage, release what is held, and end; answered by Done.

    A second one without `release` means that there is no time to release anything.
    """

    do: Literal["end"] = "end"
    release: bool


Command = PrepareOrder | StageOrder | ShareOrder | Hold | Pause | Settle | Repair | Evict | End


# -- messages of a worker ------------------------------------------------------------------------


class Ready(BaseModel):
    """The load is open: the target accepted it."""

    say: Literal["ready"] = "ready"
    facts: TargetFacts


class Refusal(BaseModel):
    """The worker cannot start, and ends."""

    say: Literal["refused"] = "refused"
    exit_code: int
    problem: str
    """One line."""


class Preparing(BaseModel):
    """How much this worker has made of something that the stages need."""

    say: Literal["preparing"] = "preparing"
    what: str
    done: int
    goal: int


class _Answer(BaseModel):
    problem: str = ""
    """Why the command failed, in one line; empty if it succeeded."""


class Prepared(_Answer):
    """The answer to a PrepareOrder."""

    say: Literal["prepared"] = "prepared"


class Begun(_Answer):
    """The answer to a StageOrder."""

    say: Literal["begun"] = "begun"


class Paused(_Answer):
    """The answer to Pause."""

    say: Literal["paused"] = "paused"


class Settled(_Answer):
    """The answer to Settle."""

    say: Literal["settled"] = "settled"
    unanswered: dict[str, list[float]]
    """By operation, how many seconds ago the operations were due that had no answer in time and were not counted."""


class Evicted(_Answer):
    """The answer to Evict."""

    say: Literal["evicted"] = "evicted"


class Gauges(BaseModel):
    """What a worker and its load are doing, as written to its journal; workloads.load.Gauge has the load's."""

    held: int
    waiting: int
    in_flight: int
    up: bool
    cpu: float
    """Cores that the worker used in the interval."""
    loop_lag: float
    """The longest delay of its event loop, in milliseconds."""
    rss: float
    """Resident memory in MiB."""


class Tick(Gauges):
    """An interval of the journal was closed: once a second, and where a phase of a stage begins or ends."""

    say: Literal["tick"] = "tick"
    t: float
    """The interval's end, in seconds since the run's start."""
    seconds: float
    """How long the interval was."""
    lines: str
    """The interval's lines of the histogram log."""
    oldest: float = 0.0
    """Seconds since the oldest operation in flight was due; 0 without any."""
    unwritten: int
    """How many intervals are kept in memory because the disk is full."""
    retries: int
    lost: int
    """How many things were lost in the interval without any operation that accounts for them."""

    @cached_property
    def measured(self) -> Mapping[str, Counts]:
        """The measurements of the interval, by tag: decoded once for all listeners, which must not change them."""
        (found,) = _decoded([self])
        return found


def _decoded(ticks: Sequence[Tick]) -> list[Mapping[str, Counts]]:
    """Return what each of these measured; raises ValueError if a line is partial."""
    # Imported here because a worker, which sends ticks, needs no array library.
    from tippingpoint.rundir.histogram import decode_each

    lines = [[line.split(",") for line in tick.lines.splitlines()] for tick in ticks]
    decoded = iter(decode_each([line[-1] for each in lines for line in each]))
    return [{line[0].removeprefix("Tag="): next(decoded) for line in each} for each in lines]


def decode_together(ticks: Iterable[Tick]) -> None:
    """Decode the measurements of several ticks at once, which costs a fraction of decoding one by one.

    Raises ValueError if a line is partial.
    """
    fresh = [tick for tick in ticks if "measured" not in vars(tick)]
    for tick, found in zip(fresh, _decoded(fresh), strict=True):
        vars(tick)["measured"] = found


class UnreadTicks(Generic[T]):
    """Ticks whose figures have not been needed yet; many are decoded at once.

    A tick with a partial line is left out; the journal has all of it.
    """

    def __init__(self, take: Callable[[T, Tick], None]) -> None:
        """`take` is called with each tick and the note that belongs to it, once figures are needed."""
        self._take = take
        self._unread: list[tuple[T, Tick]] = []

    def add(self, noted: T, tick: Tick) -> None:
        """Keep a tick; when many are unread, they are read."""
        self._unread.append((noted, tick))
        if len(self._unread) >= _UNREAD:
            self.read()

    def read(self) -> None:
        """Hand over everything that was kept."""
        unread, self._unread = self._unread, []
        with contextlib.suppress(ValueError):  # then they are decoded one by one
            decode_together(tick for _, tick in unread)
        for noted, tick in unread:
            with contextlib.suppress(ValueError):
                self._take(noted, tick)


class Trouble(BaseModel):
    """The worker can no longer do its part, for a reason of its own and not of the target's."""

    say: Literal["trouble"] = "trouble"
    problem: str
    """One line."""


class Done(BaseModel):
    """The last message of a worker that ended when requested."""

    say: Literal["done"] = "done"
    problem: str = ""
    """Why the end of its journal could not be written anywhere, in one line; empty if it was written."""


Message = Ready | Refusal | Preparing | Prepared | Begun | Paused | Settled | Evicted | Tick | Trouble | Done
Answer = Prepared | Begun | Paused | Settled | Evicted

_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="do")])
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="say")])


def line_of(said: Command | Message) -> bytes:
    """Return the line that carries a command or message."""
    return said.model_dump_json().encode() + b"\n"


def command_in(line: bytes) -> Command:
    """Return the command in a line; raises ValidationError for anything else."""
    return _COMMAND.validate_json(line)


def message_in(line: bytes) -> Message | None:
    """Return the message in a line; None for a partial line, whose writer was killed while writing it."""
    try:
        return _MESSAGE.validate_json(line)
    except ValidationError as problem:
        if problem.errors()[0]["type"] == "json_invalid":
            return None
        raise
