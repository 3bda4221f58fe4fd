"""The contract of a target with runs, `clean`, `resume` and agents.

A target is a package with these modules. `registry.target_of` finds its `TARGET` by the kind in a plan.

    plan.py      SECTION, its section of a plan: address, credentials, and the words of its reports
    ledger.py    ENTRY, the things that a run creates in it, so that they can be removed after any end
    target.py    TARGET, the implementation of this contract

Programs that never touch the target import all three, for instance a charm's hook. So the methods of `TARGET`, and
not its module, import libraries. A worker then spends time and memory on one target only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from pydantic import BaseModel

from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnStage
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule

if TYPE_CHECKING:  # a hook that never connects has no use for it
    import ssl

S = TypeVar("S", bound=TargetSection)
E = TypeVar("E", bound=Entry)
W = TypeVar("W", bound=BaseModel)

Connections = Mapping[str, tuple[int, int]]
"""By field of the plan: its value, and the number of connections for each one."""
Tell = Callable[[str], None]
"""Called with a sentence that the report is to show as a note on the data."""


class Target(ABC, Generic[S, E, W]):
    """A kind of target. It has no state. Its methods are in the order in which a run calls them.

    All may raise TargetError if the target cannot be reached or refuses the client, and UserError, which names the
    wrong field of the plan or the wrong file.
    """

    workspace: ClassVar[type[BaseModel]]
    """W, the type that `take` returns. Workers are processes of their own and receive it as JSON."""
    can_probe: ClassVar[bool] = False
    """Whether `probe` is implemented."""
    errors_name_address: ClassVar[bool] = True
    """Whether `where` of a TargetError is an address. If it is a name that a charm has chosen, the charm hides it."""
    settles_within: ClassVar[float] = 0.0
    """Additional seconds that a worker may take to end, while it waits for unanswered calls. Otherwise such a call
    could create a thing after everything was removed."""

    def connections(self, plan: Plan) -> Connections:
        """Return the workers' need of open files: by field of the plan, its value and the connections for each one.

        Empty if a few connections carry all of the load.
        """
        return {}

    def connections_of_worker(self, plan: Plan) -> Connections:
        """Return the connections of each worker, however small its share: by field of the plan, its value and the
        connections for each one."""
        return {}

    def danger(self, section: S) -> str:
        """Return what is dangerous about the way to this target, in a sentence for the report; empty if nothing is."""
        return ""

    @abstractmethod
    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> E:
        """Return the ledger entry for the things that a run of this plan will create. Nothing is created yet.

        All names follow from the run's id. So anyone who knows the id can remove the things of a lost machine.
        A key or password made for the run is kept in `directory`. UserError if credentials are missing or unusable.
        """

    async def reach(self, entry: E) -> None:
        """Check that the target accepts the login. It comes first, so that a refused run has nothing to clean up.

        Not needed if only workers create things, after their own login (Entry.made_by_workers).
        """
        return

    async def check_room(self, entry: E, plan: Plan, spec: SpawnStage, before: int) -> None:
        """Check that the target has room for this stage in addition to `before` things of the run.

        UserError says how much fits. Its field is one of the stage's (`size`), or begins with `target.`. Not needed
        for a target that does not report its room.
        """
        return

    @abstractmethod
    async def take(self, entry: E, plan: Plan, tell: Tell) -> W:
        """Create the workspace that all workers share. `tell` is called for each thing that is not permitted."""

    @abstractmethod
    def make_load(
        self, plan: Plan, workspace: W, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        """Return the load of the worker with this number, not yet opened; called in the worker's process."""

    def pprof_tls(self, section: S) -> ssl.SSLContext | bool:
        """Return what verifies https at the addresses of `section.profiled`: True for the system's authorities."""
        return True

    def clean_within(self, things: int) -> float:
        """Return the seconds that `clean` may take after a run of this many things, including their groups."""
        return 60.0

    @abstractmethod
    async def clean(self, entry: E, run_id: str, progress: OnProgress) -> int:
        """Remove the remaining things of this entry of the run; returns the number of things removed.

        Nothing else is touched. Called after any end of a run, and again until nothing is found.
        """

    @abstractmethod
    async def log_in(self, section: S) -> None:
        """Check that the target accepts the login, by one login that creates nothing and uses up no token."""

    async def probe(self, section: S, made: E | None) -> Sequence[str]:
        """Time the calls of the target's users now; returns one line for each: "list 46 ms".

        The calls concern the things of the run in progress if `made`, its ledger entry, is given.
        """
        return []
