"""What a target is asked by a run, `clean`, `resume`, an agent: the one contract that a target implements.

A target is a package with these modules; `registry.target_of` finds its `TARGET` by the kind that a plan names:

    plan.py      its section of a plan (SECTION): where it is, who we are there, and the words its reports use
    ledger.py    what a run makes in it (ENTRY), so that it can be removed after any end
    target.py    the implementation of this contract (TARGET)

`SECTION` and `ENTRY` are read by those who never touch the target, such as a charm's hook. So is `TARGET` itself:
libraries are imported in its methods, and a worker has the time and the memory of one target only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel

from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule

S = TypeVar("S", bound=TargetSection)
E = TypeVar("E", bound=Entry)
W = TypeVar("W", bound=BaseModel)

Tell = Callable[[str], None]
"""Told in sentences what the report is to say of the data."""


class Target(ABC, Generic[S, E, W]):
    """A kind of target; it has no state. Its methods come in the order in which a run calls them.

    Every one may raise TargetError, when the target cannot be reached or refuses us, and UserError, which names the
    field of the plan, or the file, that is wrong.
    """

    workspace: ClassVar[type[BaseModel]]
    """W: what `take` hands to the workers, which are processes of their own."""
    can_probe: ClassVar[bool] = False
    """Whether `probe` asks anything."""
    errors_name_address: ClassVar[bool] = True
    """Whether `where` of a TargetError is an address. A charm does not show a name that it has given itself."""
    settles_within: ClassVar[float] = 0.0
    """Seconds more that a worker may take to end: it waits for what it has asked for and not been answered yet, which
    would come to be there after all was removed."""

    def connections(self, plan: Plan) -> Mapping[str, tuple[int, int]]:
        """What needs many open files in the workers: by field of the plan, a size and the connections for each of it.

        None where a few connections carry all of the load.
        """
        return {}

    @abstractmethod
    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> E:
        """What a run of this plan will make, for its ledger; nothing is made yet.

        All names follow from the run's id, so that anyone who knows that one can remove what a lost machine made.
        A key or password that has to be made for it is kept in `directory`. UserError when we cannot tell who we are
        there.
        """

    async def reach(self, entry: E) -> None:
        """See that the target lets us in, so that who is refused has nothing to clean up.

        Nothing to do where workers make nothing before they are let in (Entry.made_by_workers).
        """
        return

    async def check_room(self, entry: E, plan: Plan, stage: int, before: int) -> None:
        """See that a listed stage (from 1) of this plan fits the target, which has `before` of our things already.

        UserError says what fits: its field is one of the stage (`size`), or begins with `target.`. Nothing to do where
        a target does not say what it has room for.
        """
        return

    @abstractmethod
    async def take(self, entry: E, plan: Plan, tell: Tell) -> W:
        """Make what all workers are to find ready. What the target keeps from us is told."""

    @abstractmethod
    def make_load(
        self, plan: Plan, workspace: W, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        """The load of the worker with this number, not yet opened: in the worker's own process."""

    def clean_within(self, things: int) -> float:
        """Seconds that `clean` may take at the end of a run that makes so many things, and groups of them."""
        return 60.0

    @abstractmethod
    async def clean(self, entry: E, run_id: str, progress: OnProgress) -> int:
        """Remove what this entry of that run names and is still there; returns how many things that was.

        Nothing else is touched. It is called after any end, and again until nothing is found.
        """

    @abstractmethod
    async def log_in(self, section: S) -> None:
        """See that the target lets us in, by one log-in that makes nothing, and uses up no token."""

    async def probe(self, section: S, made: E | None) -> Sequence[str]:
        """A line for each thing that users ask the target for, timed now: "list 46 ms".

        `made` is what a run that goes on has made there, whose things are asked for.
        """
        return []
