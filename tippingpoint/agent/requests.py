"""The requests to the agent, by their `do`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from tippingpoint.agent.prometheus import PrometheusAccess
from tippingpoint.conduct.run_state import SharedRun, Unit, UnitWord
from tippingpoint.conduct.search_messages import ProbeReport
from tippingpoint.report import RunFormat

RunId = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,120})?$")]
Short = Annotated[str, Field(max_length=200)]


class _Request(BaseModel):
    """A request. Unknown fields, from newer charms, are ignored."""

    model_config = ConfigDict(extra="ignore")


class Orders(_Request):
    """The charm's present knowledge: the current run, if any, and how this unit reaches the target."""

    do: Literal["orders"]
    run: SharedRun | None
    target: dict[str, Any] = {}
    """Fields of the plan's target; secrets by the path of their file."""
    unit: Unit
    reference: Short = ""
    """Address and port of the clock that all units use; empty if that is not known yet."""
    lost: list[Unit] = []
    """Units that were lost in a run that is over: this unit removes what they left on the target."""
    leads: bool = False
    """Whether this unit is the leader: its agent queries Prometheus for the run."""
    prometheus: PrometheusAccess | None = None
    """The Prometheus that has the figures of the run's thresholds; None without such thresholds, or without a
    Prometheus."""
    address: Short = ""
    """This unit's own address as the others reach it; by default that of the default route."""


class AccessRequest(_Request):
    """How the configured target is reached between runs; the answer is the outcome of a log-in, which this may begin.

    `problem` is why the log-in failed; it is empty if the log-in succeeded. `trying` means that the first log-in has
    not ended: the charm is woken when it ends. `refused` means that other credentials would help.
    """

    do: Literal["access"]
    target: dict[str, Any] = {}
    """Fields of a plan's target; PLACE in a value stands for the directory of `files`. Empty without a target."""
    files: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,60}$")], str] = Field(
        default={}, repr=False
    )
    """The content of files by name, which is kept in memory only."""
    awaits: bool = False
    """Whether the charm waits for something without a Juju event: it is woken regularly to check."""


class Leave(_Request):
    """End the unit's part because the unit is being removed; the answer is its last word and its result.

    The answer comes when nothing is being measured any more, or after `seconds`. What the part made is removed after
    that. The request may be repeated.
    """

    do: Literal["leave"]
    seconds: Annotated[float, Field(ge=0, le=60)] = 0.0


class Word(_Request):
    """Return this unit's report on its part, its result, and on the leader what is known of Prometheus' figures."""

    do: Literal["word"]


class Judge(_Request):
    """Return what follows the turn `after` of a search that units share (conduct/search_messages.py: NextLoad).

    `next` is null while it is not known yet: the charm is woken when it is, and repeats the request.
    """

    do: Literal["judge"]
    shared: SharedRun
    after: Annotated[int, Field(ge=0)]
    words: dict[Unit, UnitWord] = {}
    reports: dict[Unit, ProbeReport] = {}


class Runs(_Request):
    """List the runs that are kept."""

    do: Literal["runs"]


class _Told(_Request):
    """A leader's knowledge of a run of all units: the result and the last word of each."""

    digests: dict[Unit, str] = {}
    words: dict[Unit, UnitWord | None] = {}


class Keep(_Told):
    """Keep this, so that a report can be made of it at any time."""

    do: Literal["keep"]
    shared: SharedRun


class Report(_Told):
    """Report on a run of all units, from the results given here and the stored ones."""

    do: Literal["report"]
    run: RunId = ""
    """Empty for the latest run."""
    format: RunFormat = "md"
    shared: SharedRun | None = None


class Clean(_Request):
    """Remove from the target what is left of a run, or of all runs that have ended."""

    do: Literal["clean"]
    run: RunId = ""


class Task(_Request):
    """Return the outcome of a task, or that it has not ended."""

    do: Literal["task"]
    id: Short


class Repair(_Request):
    """Make whatever is missing from the load that is held, now."""

    do: Literal["repair"]


class EvictMember(_Request):
    """Remove a dead member from the cluster under load."""

    do: Literal["evict-member"]
    member: Annotated[str, Field(min_length=1, max_length=200)]


class Probe(_Request):
    """Make each request that users make of the target once, and time it."""

    do: Literal["probe"]
    target: dict[str, Any] = {}


class CheckFigures(_Request):
    """Ask a Prometheus whether it has the figures of a plan's thresholds, before a run begins."""

    do: Literal["check-figures"]
    plan: dict[str, Any]
    prometheus: PrometheusAccess


class Ping(_Request):
    """Return whether the agent is running."""

    do: Literal["ping"]


AnyRequest = Annotated[
    Orders
    | AccessRequest
    | Leave
    | Word
    | Judge
    | Runs
    | Keep
    | Report
    | Clean
    | Task
    | Repair
    | EvictMember
    | Probe
    | CheckFigures
    | Ping,
    Field(discriminator="do"),
]
