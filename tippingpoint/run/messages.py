"""What a runner tells its workers and what they say, one JSON object a line: commands by `do`, messages by `say`.

Both ends are always of one version, so that fields may change from one to the next.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from tippingpoint.workloads.load import PrepareOrder, ShareOrder, StageOrder, TargetFacts

# -- commands: orders of the load, and the following ---------------------------------------------


class Hold(BaseModel):
    """The stage's load is up, or as far as it will be: its hold begins."""

    do: Literal["hold"] = "hold"


class Pause(BaseModel):
    """Stop the load and close the stage's figures; answered by Paused."""

    do: Literal["pause"] = "pause"


class Repair(BaseModel):
    """Look at what is kept up now, and try again what was given up."""

    do: Literal["repair"] = "repair"


class Evict(BaseModel):
    """Remove a member that is gone from the target by force; answered by Evicted."""

    do: Literal["evict"] = "evict"
    member: str


class End(BaseModel):
    """Close the last stage, give back what is held singly, and end; answered by Done.

    A second one without `release` says that there is no time to give anything back.
    """

    do: Literal["end"] = "end"
    release: bool


Command = PrepareOrder | StageOrder | ShareOrder | Hold | Pause | Repair | Evict | End


# -- what a worker says --------------------------------------------------------------------------


class Ready(BaseModel):
    """The load is open: the target let it in."""

    say: Literal["ready"] = "ready"
    facts: TargetFacts


class Refusal(BaseModel):
    """The worker cannot begin, and ends."""

    say: Literal["refused"] = "refused"
    exit_code: int
    problem: str
    """One line."""


class Preparing(BaseModel):
    """How much of something that the stages need this worker has made."""

    say: Literal["preparing"] = "preparing"
    what: str
    done: int
    goal: int


class _Answer(BaseModel):
    problem: str = ""
    """Why what was asked for was not done, in one line; empty where it was."""


class Prepared(_Answer):
    """The answer to a PrepareOrder."""

    say: Literal["prepared"] = "prepared"


class Begun(_Answer):
    """The answer to a StageOrder."""

    say: Literal["begun"] = "begun"


class Paused(_Answer):
    """The answer to Pause."""

    say: Literal["paused"] = "paused"


class Evicted(_Answer):
    """The answer to Evict."""

    say: Literal["evicted"] = "evicted"


class Gauges(BaseModel):
    """What a worker and its load are doing, as its journal has it; see workloads.load.Gauge for the load's."""

    held: int
    waiting: int
    in_flight: int
    up: bool
    cpu: float
    """Cores that the worker used in the interval."""
    loop_lag: float
    """Milliseconds that its event loop was late at most."""
    rss: float
    """Its resident memory in MiB."""


class Tick(Gauges):
    """An interval of the journal is closed: once a second, and where a phase of a stage begins or ends."""

    say: Literal["tick"] = "tick"
    t: float
    """The interval's end, in seconds since the run's start."""
    seconds: float
    """How long it was."""
    lines: str
    """What the journal's log has of it."""
    unwritten: int
    """How many intervals wait in memory because the disk is full."""
    retries: int
    lost: int
    """Things that were lost in it though no operation says so."""


class Done(BaseModel):
    """The last message of a worker that ended as told."""

    say: Literal["done"] = "done"
    problem: str = ""
    """Why the end of its journal could not be written anywhere, in one line; empty where it was."""


Message = Ready | Refusal | Preparing | Prepared | Begun | Paused | Evicted | Tick | Done
Answer = Prepared | Begun | Paused | Evicted

_COMMAND: TypeAdapter[Command] = TypeAdapter(Annotated[Command, Field(discriminator="do")])
_MESSAGE: TypeAdapter[Message] = TypeAdapter(Annotated[Message, Field(discriminator="say")])


def line_of(said: Command | Message) -> bytes:
    """The line that says it."""
    return said.model_dump_json().encode() + b"\n"


def command_in(line: bytes) -> Command:
    """The command of a line; ValidationError where it is none."""
    return _COMMAND.validate_json(line)


def message_in(line: bytes) -> Message | None:
    """The message of a line; None where it is not whole, as its writer was killed in the middle of it."""
    try:
        return _MESSAGE.validate_json(line)
    except ValidationError as problem:
        if problem.errors()[0]["type"] == "json_invalid":
            return None
        raise
