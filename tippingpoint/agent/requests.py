"""What may be asked of the agent, by the request's `do`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tippingpoint.report import RunFormat
from tippingpoint.units.shared_run import SharedRun, Unit, UnitWord

RunId = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,120})?$")]
Short = Annotated[str, Field(max_length=200)]


class _Request(BaseModel):
    """Any request. What a newer charm adds is not understood, and does no harm."""

    model_config = ConfigDict(extra="ignore")


class Orders(_Request):
    """What the charm knows now: the run there is, or none, and how its target is reached from here."""

    do: Literal["orders"]
    run: SharedRun | None
    target: dict[str, Any] = {}
    """Fields of the plan's target; secrets by the path of their file."""
    unit: Unit
    reference: Short = ""
    """Address and port of the clock that all units go by; empty while nobody has one."""
    lost: list[Unit] = []
    """Units that a run which is over has lost, and what they left in the target with them: this one removes it."""
    address: Short = ""
    """This unit's own address as the others reach it; that of the default route where it is left out."""


class AccessRequest(_Request):
    """How the configured target is reached between runs; answered by what is known of a log-in, which this may begin.

    `problem` is why it failed, empty where it did not, or goes on: then the charm is woken when that is known;
    `refused` is whether other credentials would help.
    """

    do: Literal["access"]
    target: dict[str, Any] = {}
    """Fields of a plan's target; PLACE in a value stands for the directory of `files`. Empty where there is none."""
    files: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")], str] = Field(
        default={}, repr=False
    )
    """Their content by name. It is kept in memory only."""
    awaits: bool = False
    """Whether the charm waits for what Juju has no event for: it is woken every so often to look for it."""


class Leave(_Request):
    """The unit is being removed: end its part, and say its last word and what it measured.

    That is answered when nothing is measured any more, or after so many seconds; the removal of what the part made goes
    on then. It may be asked again.
    """

    do: Literal["leave"]
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


class Word(_Request):
    """What this unit says of its part, and what it came to."""

    do: Literal["word"]


class Runs(_Request):
    """The runs that are kept."""

    do: Literal["runs"]


class _Told(_Request):
    """What a leader knows of a run of all units: what each of them came to, and its last word."""

    digests: dict[Unit, str] = {}
    words: dict[Unit, UnitWord | None] = {}


class Keep(_Told):
    """Keep this, so that a report can be made of it at any time."""

    do: Literal["keep"]
    shared: SharedRun


class Report(_Told):
    """The report of a run of all units, from what they came to: as given here, and as kept."""

    do: Literal["report"]
    run: RunId = ""
    """Empty for the latest."""
    format: RunFormat = "md"
    shared: SharedRun | None = None


class Clean(_Request):
    """Remove from the target what is left of a run, or of all that have ended."""

    do: Literal["clean"]
    run: RunId = ""


class Task(_Request):
    """What a task came to, or that it goes on."""

    do: Literal["task"]
    id: Short


class Repair(_Request):
    """Make what is missing of the load that is held, now."""

    do: Literal["repair"]


class EvictMember(_Request):
    """Remove a member that is gone from the cluster that is loaded."""

    do: Literal["evict-member"]
    member: Annotated[str, Field(min_length=1, max_length=200)]


class Probe(_Request):
    """Ask the target once for what users ask for, and time it."""

    do: Literal["probe"]
    target: dict[str, Any] = {}


class Ping(_Request):
    """Whether the agent is there."""

    do: Literal["ping"]


AnyRequest = Annotated[
    Orders
    | AccessRequest
    | Leave
    | Word
    | Runs
    | Keep
    | Report
    | Clean
    | Task
    | Repair
    | EvictMember
    | Probe
    | Ping,
    Field(discriminator="do"),
]
