"""The charm of a generator: its service on the machine, and the exchange between leader, agent and relations.

Every hook does the same: it updates the service, answers the relations, hands the run to the agent, and publishes the
agent's word. On the leader it also conducts the run. Nothing here waits for a run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import ops

from tippingpoint import __version__
from tippingpoint.agent.client import AgentAway
from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import usual
from tippingpoint.plan.read import Plan
from tippingpoint_charm import tracing
from tippingpoint_charm.access import find_access
from tippingpoint_charm.actions import ActingCharm, Actions
from tippingpoint_charm.agent import Agent, Refused
from tippingpoint_charm.exchange import Exchange
from tippingpoint_charm.machine import MachineProblem
from tippingpoint_charm.peers import NAME as PEERS
from tippingpoint_charm.peers import Peers
from tippingpoint_charm.preparing import Preparation
from tippingpoint_charm.relations import publish_all, scale_run
from tippingpoint_charm.secrets import how_to_update
from tippingpoint_charm.service import USER, Service
from tippingpoint_charm.settings import Settings, read_settings
from tippingpoint_charm.status import Situation, status_of
from tippingpoint_charm.systemd import own_pack

logger = logging.getLogger(__name__)


class AgentChangedEvent(ops.EventBase):
    """The agent has news; the machine dispatches this as a separate hook."""


class GeneratorEvents(ops.CharmEvents):
    """The events of a generator's charm."""

    agent_changed = ops.EventSource(AgentChangedEvent)


class GeneratorCharm(ActingCharm):
    """The common part of load-claimer and container-spawner: everything but their names and a few actions."""

    on = GeneratorEvents()  # pyright: ignore[reportAssignmentType]  (as ops documents it)

    settings: ClassVar[type[Settings]]
    leaves_within: ClassVar[float] = 120.0
    """Seconds that a unit being removed has to clean up the target."""

    _stored = ops.StoredState()

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        self._tracing = tracing.follow(self)
        # pack: the copy to run from; runs: the copy that the service uses. problem: what the machine refused. late: why
        # news of the agent come late. leaves: the unit is being removed; gone: its things were removed; left: the
        # target may have some of them left.
        self._stored.set_default(pack="", runs="", problem="", late="", leaves=False, gone=False, left=False)
        self.service = Service(self.machine, self.unit.name, self.port)
        self.agent = Agent(self.service.socket)
        self.peers = Peers(self, self.machine)
        self.exchange = Exchange(self, self.machine, self.service, self.agent, self.peers, self.lacking)
        self._observe()
        self._actions = Actions(self)

    def _observe(self) -> None:
        on, observe = self.on, self.framework.observe
        observe(on.install, self._on_install)
        observe(on.upgrade_charm, self._on_install)
        for event in (on.start, on.config_changed, on.update_status, on.leader_elected, on.secret_changed):
            observe(event, self._on_change)
        observe(on.agent_changed, self._on_agent_changed)
        for name in self.meta.relations:
            observe(on[name].relation_departed, self._on_departed)
            if name == PEERS:
                observe(on[name].relation_created, self._on_peer)
                observe(on[name].relation_changed, self._on_peer)
                observe(on[name].relation_broken, self._on_peers_broken)
            else:
                observe(on[name].relation_created, self._on_change)
                observe(on[name].relation_changed, self._on_change)
                observe(on[name].relation_broken, self._on_change)
        observe(on.stop, self._on_stop)
        observe(on.remove, self._on_remove)
        observe(on.collect_unit_status, self._on_collect_unit_status)

    # -- hooks -----------------------------------------------------------------------------------------

    def _on_install(self, _: ops.EventBase) -> None:
        self._stored.pack = ""
        self.catch_up()
        self.unit.set_workload_version(__version__)
        self.unit.set_ports(self.port)

    def _on_change(self, event: ops.EventBase) -> None:
        if self._stored.leaves:
            self._leave()
            return
        if isinstance(event, ops.StartEvent | ops.UpdateStatusEvent | ops.LeaderElectedEvent):
            self.peers.listen(anew=True)
            if isinstance(event, ops.LeaderElectedEvent):
                for unit in self.peers.others:
                    self.exchange.keep_last_word(unit)
        self.catch_up()
        if isinstance(event, ops.UpdateStatusEvent):
            self.exchange.keep_results()

    def _on_agent_changed(self, _: ops.EventBase) -> None:
        if self._stored.leaves:
            return
        self.peers.listen()
        self._keep_service()
        run = self.peers.run
        self.exchange.update(access_too=run is None or run.over)
        self.exchange.keep_complete_results()

    def _on_peer(self, event: ops.RelationCreatedEvent | ops.RelationChangedEvent) -> None:
        unit = event.unit
        if self._stored.leaves or not self._concerns_us(unit):
            return
        self.peers.listen(unit)
        self.exchange.keep_last_word(unit)
        self._keep_service()
        self.exchange.update(access_too=False)
        self.exchange.keep_complete_results()

    def _concerns_us(self, unit: ops.Unit | None) -> bool:
        """Tell whether a change of a unit matters here: on the leader always, elsewhere only for the reference."""
        if unit is None or self.unit.is_leader():
            return True
        run = self.peers.run
        return run is not None and not run.over and unit.name in run.units[:1]

    def _on_departed(self, event: ops.RelationDepartedEvent) -> None:
        if event.departing_unit == self.unit:
            # The other units seem to depart one by one, but this unit is the one that goes. Clean up while the target
            # can still be reached.
            self._leave()
            return
        if event.relation.name == PEERS:
            self.exchange.keep_last_word(event.departing_unit)
            self.peers.departs(event.departing_unit)
        self.catch_up()

    def _on_peers_broken(self, _: ops.RelationBrokenEvent) -> None:
        self._leave()

    def _on_stop(self, _: ops.StopEvent) -> None:
        self._leave(last=True)

    def _on_remove(self, _: ops.RemoveEvent) -> None:
        self._leave(last=True)
        try:
            self.service.lend_libvirt("")
            self.service.remove(keep_state=bool(self._stored.left))
        except OSError as problem:
            logger.warning("not all of the agent could be removed: %s", problem)

    def _on_collect_unit_status(self, event: ops.CollectStatusEvent) -> None:
        if self._stored.leaves:
            event.add_status(ops.MaintenanceStatus("cleaning up the target"))
        elif self.exchange.took_place:
            event.add_status(status_of(self._situation()))

    # -- the service -----------------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Do all that a hook does. Actions that need the present state do it first."""
        if self._stored.leaves:
            return
        self.peers.listen()
        self._keep_service()
        publish_all(self, port=self.port, projects=str(self.config.get("lxd-projects", "")))
        self.exchange.update()

    @property
    def pack(self) -> Path:
        """The directory of the charm's Python packages, which include the engine."""
        return own_pack()

    def _keep_service(self) -> None:
        """Make the service run, and from this charm's pack; a new pack waits for the end of a run."""

        def keep() -> None:
            new = not self._stored.pack
            if new:
                self._stored.pack = self.service.copy(self.pack)
            if self._refresh_waits and not self._is_running():
                if (
                    not new
                ):  # another charm on this machine may have taken what no service used yet for left over
                    self._stored.pack = self.service.copy(self.pack)
                self.service.install(str(self._stored.pack))
                self._stored.runs = self._stored.pack
            self._stored.late = self.service.repair()

        self._try(keep)

    @property
    def _refresh_waits(self) -> bool:
        pack = str(self._stored.pack)
        return bool(pack) and not (self._stored.runs == pack and self.service.is_installed(pack))

    def _is_running(self) -> bool:
        """Tell whether the agent is running a part of a run."""
        try:
            return bool(self.agent.ask("ping").get("running"))
        except (AgentAway, Refused):
            return False

    def _try(self, do: Callable[[], None]) -> None:
        """Change something on the machine. A failure becomes the status, and later hooks try again."""
        try:
            do()
        except MachineProblem as problem:
            self._stored.problem = f"{problem}"
        except OSError as problem:
            self._stored.problem = f"{problem.filename or 'disk'}: {problem.strerror}"
        else:
            self._stored.problem = ""
            return
        logger.error("the agent cannot be installed: %s", self._stored.problem)

    # -- the end ---------------------------------------------------------------------------------------

    def _leave(self, *, last: bool = False) -> None:
        """End this unit's part, and clean up the target.

        The first hook of a removal publishes the part's result. Juju sends it when the hook ends, so that hook waits
        for nothing else. The next hook, or the `last`, waits for the cleaning up, which goes on meanwhile.
        """
        if not self._stored.leaves:
            self._stored.leaves = True
            self.exchange.say_last_word()
            if not last:
                return
        if not self._stored.gone:
            self._stored.gone = True
            self._remove_what_we_made()

    def _remove_what_we_made(self) -> None:
        """Wait until the agent has cleaned up the target, for at most `leaves_within` seconds."""
        deadline = time.monotonic() + self.leaves_within
        try:
            while self.agent.ask("ping").get("running") and time.monotonic() < deadline:
                time.sleep(0.5)
            text = self.agent.have_done("clean", within=deadline - time.monotonic(), run="")
        except AgentAway as away:
            problem = str(away) if self.service.state.exists() else ""
        except Refused as refused:
            problem = str(refused)
        else:
            problem = "" if text is not None else f"not done after {self.leaves_within:g} s"
        if problem:
            self._stored.left = True
            logger.warning(
                "something may be left in the target (%s); the records are in %s; to remove it: "
                "sudo -u %s PYTHONPATH=%s python3 -m tippingpoint clean %s/runs/RUN",
                problem, self.service.state_path, USER, self.service.copy_path, self.service.state_path,
            )  # fmt: skip

    # -- the status ------------------------------------------------------------------------------------

    def lacking(self, plan: Plan | None = None) -> str:
        """Return what this machine lacks for a plan, or for a usual one, in one line; empty if nothing."""
        try:
            target = plan.target if plan is not None else usual(read_settings(self, self.settings).target)
        except UserError:
            return ""
        for program, package in target.programs.items():
            if not self.machine.has(program):
                return f"juju exec --unit {self.unit.name} -- apt install -y {package}"
        preparation = Preparation(self.machine, target.needs)
        if preparation.impossible:
            return f"{self.unit.name}: {preparation.impossible}"
        if lacking := preparation.lacking:
            name = plan.name if plan is not None else "NAME"
            return f"juju run {self.unit.name} prepare plan={name}: it lacks {', '.join(lacking)}"
        return ""

    def _situation(self) -> Situation:
        run = self.peers.run
        now = Situation(self.unit.name, away=self.exchange.away, run=run, unreached=self.exchange.unreached)
        try:
            settings = read_settings(self, self.settings)
        except UserError as wrong:
            now.problem = str(wrong)
            return now
        now.problem = str(self._stored.problem)
        now.late = str(self._stored.late)
        now.refresh_waits = self._refresh_waits
        if run is not None and not run.over:
            now.leads = self.unit.is_leader()
            now.words = self.peers.remembered() if now.leads else {}
            now.words[self.unit.name] = self.exchange.word
        elif not now.problem and not now.away:
            now.left = "" if self.exchange.word is None else self.exchange.word.left
            now.access = find_access(self, settings.target)
            now.login = self.exchange.try_access(now.access)
            if now.login.refused:
                source = now.access.source
                now.mend = how_to_update(self, source) if source == "credentials" else source
            now.lacking = self.lacking() or scale_run.problem(self)
        return now
