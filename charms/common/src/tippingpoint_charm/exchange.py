"""Handles a run in a hook: hands it to the agent, publishes the agent's answer, and conducts it on the leader."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import ops
from pydantic import ValidationError

from tippingpoint.agent.client import AgentAway
from tippingpoint.conduct.director import conduct, judge_request, lose, lost_with_remains, to_judge
from tippingpoint.conduct.figure_messages import FigureNews
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.conduct.search_messages import NextLoad, ProbeReport
from tippingpoint.errors import UserError
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.read import Plan
from tippingpoint.targets.secret import PLACE, kinds_by_secret
from tippingpoint_charm.access import TargetAccess, find_access
from tippingpoint_charm.agent import HOOK_WAITS, Agent, Refused
from tippingpoint_charm.credentials import (
    DIRECTORY,
    names_of_credentials,
    remove_credentials,
    write_credentials,
)
from tippingpoint_charm.figures import FigureAccess, find_prometheus
from tippingpoint_charm.machine import Machine, MachineProblem
from tippingpoint_charm.peers import NAME as PEERS
from tippingpoint_charm.peers import Peers, now_by_reference
from tippingpoint_charm.relations import scale_run
from tippingpoint_charm.relations.databag import NotThere, reason
from tippingpoint_charm.service import USER, Service
from tippingpoint_charm.status import Login

logger = logging.getLogger(__name__)

FIGURES_WITHIN = 20.0
"""Seconds that the begin of a run waits for Prometheus."""
LAST_WORD_WITHIN = 10.0
"""Seconds that a unit has to end its part when it is removed, before a hook tells the others."""
SUMMED_UP_WITHIN = 60.0
"""Seconds that it then has to sum up what it had no time to end, which a slow machine needs some of."""


class Exchange(ops.Object):
    """The exchange about a run between the charm, its agent, its peers and collectors."""

    _stored = ops.StoredState()

    def __init__(
        self,
        charm: ops.CharmBase,
        machine: Machine,
        service: Service,
        agent: Agent,
        peers: Peers,
        lacking: Callable[[Plan], str],
    ) -> None:
        """`lacking` says in one line what the machine lacks for a plan; empty if nothing."""
        super().__init__(charm, "exchange")
        self._charm = charm
        self._machine = machine
        self._service = service
        self._agent = agent
        self._peers = peers
        self._lacking = lacking
        # run, target: the run whose target access the agent has, and this access in JSON. kept: the run whose results
        # the agent keeps, and the number of units. looked: the ended run after which credentials were checked.
        # prometheus: the access to the Prometheus that knows the run's figures, in JSON; null without one.
        self._stored.set_default(run="", target="{}", prometheus="null", kept="", looked="")
        self.took_place = False
        """Whether the agent was asked in this hook."""
        self.word: UnitWord | None = None
        """The agent's word on its part."""
        self.result: dict[str, str] | None = None
        """The result of the agent's part: `run` and `digest`."""
        self.report: ProbeReport | None = None
        """What the agent measured of its latest turn of a search."""
        self.figures: FigureNews | None = None
        """What the leader's agent has of the figures of the run; None if it is not asked for any."""
        self.away = ""
        """Why the agent does not answer, and where to look; empty if it answers."""
        self.unreached = ""
        """Why this unit takes no part in the run; empty if it does, or may."""

    def update(self, *, access_too: bool = True) -> None:
        """Hand the run to the agent, publish its answer, and on the leader conduct the run.

        With `access_too` the files with credentials are checked again, otherwise only for a new run.
        """
        self.took_place = True
        run = self._peers.run
        self._hand_over(run, access_too)
        ended = "" if run is None else run.id
        if (run is None or run.over) and (access_too or self._stored.looked != ended):
            self._look_after_credentials()
            self._stored.looked = ended
        if not self.away:
            units = 1 + len(self._peers.others)
            self._peers.say(self.word, self.result, units, self.report)
        if run is not None and self._charm.unit.is_leader():
            run = self._conduct(run)
        scale_run.publish(self._charm, run, self._peers.said(), self.result)

    def say_last_word(self) -> None:
        """End this unit's part because the unit is being removed, and publish its result while that is possible."""
        self.word = self.result = None
        try:
            within = LAST_WORD_WITHIN + SUMMED_UP_WITHIN
            answer = self._agent.ask("leave", within=within, seconds=LAST_WORD_WITHIN)
        except (AgentAway, Refused):
            return
        self.word, self.result = _as_word(answer.get("word")), _as_result(answer.get("result"))
        run = self._peers.run
        try:
            if self.word is not None:
                self._peers.say(self.word, self.result, 1)
            if run is not None and self._charm.unit.is_leader():
                run = lose(run, self._charm.unit.name)
                self._peers.write_run(run)
        except ops.ModelError as gone:  # this unit may have left the relation already
            logger.warning("the last word of this unit was not published: %s", reason(gone))
        scale_run.publish(self._charm, run, self.word, self.result)

    def keep_last_word(self, unit: ops.Unit | None) -> None:
        """Have the agent keep the result of a unit that is being removed, because its databag is removed with it."""
        run = self._peers.run
        if unit is None or run is None or unit == self._charm.unit:
            return
        word, result = self._peers.bag_of(unit)
        if word is None or not word.leaves or word.run != run.id:
            return
        digests = {unit.name: result[1]} if result is not None and result[0] == run.id else {}
        try:
            self._agent.ask(
                "keep",
                shared=run.model_dump(mode="json", exclude_none=True),
                words={unit.name: word.model_dump(mode="json", exclude_none=True)},
                digests=digests,
            )
        except (AgentAway, Refused) as problem:
            logger.warning("the result of %s: %s", unit.name, problem)

    def _hand_over(self, run: SharedRun | None, access_too: bool) -> None:
        self.away = self.unreached = ""
        self.word = self.result = self.report = self.figures = None
        try:
            if self._has_target(run, access_too):
                self._agent.ask(
                    "orders",
                    run=None if run is None else run.model_dump(mode="json", exclude_none=True),
                    unit=self._charm.unit.name,
                    target=self._target_of(run),
                    prometheus=self._prometheus_of(run, access_too),
                    leads=self._charm.unit.is_leader(),
                    reference="" if run is None else self._reference(run),
                    address="" if run is None else self._address(),
                    lost=self._lost(run),
                )
            answer = self._agent.ask("word")
        except AgentAway:
            self.away = f"the agent does not answer: journalctl -u {self._service.name}"
        except Refused as refused:
            self.unreached = str(refused)
        else:
            self.word = _as_word(answer.get("word"))
            self.result = _as_result(answer.get("result"))
            self.report = _as_report(answer.get("report"))
            self.figures = _as_figures(answer.get("figures"))

    def _has_target(self, run: SharedRun | None, access_too: bool) -> bool:
        """Tell whether the agent can get the run; write its credentials if it needs any."""
        if run is None or run.over:
            return True
        known = self._stored.run == run.id
        if known and not access_too:
            return True
        plan = run.validated()
        access = find_access(self._charm, plan.target.kind)
        lacking = "" if known or access.missing else self._lacking(plan)
        if lacking:
            self.unreached = lacking
        elif not access.missing:
            try:
                target = {**self.write_access(access), **plan.target.on_unit(self._address())}
                self._service.lend_libvirt(plan.target.needs.libvirt_key)
            except (MachineProblem, OSError) as problem:
                self.unreached = f"credentials: {problem}"
            else:
                self._stored.run = run.id
                self._stored.target = json.dumps(target)
                return True
        elif not known:
            self.unreached = access.missing
            self.try_access(access)
        # A revoked secret does not end a running part: the part ends by itself, or the target refuses it.
        return known

    def _target_of(self, run: SharedRun | None) -> dict[str, Any]:
        return {} if run is None or self._stored.run != run.id else json.loads(str(self._stored.target))

    def _prometheus_of(self, run: SharedRun | None, access_too: bool) -> dict[str, Any] | None:
        """Return the access to the Prometheus that knows the run's figures; None without figures, or without one."""
        if run is None or run.over or not run.asks_figures:
            self._stored.prometheus = "null"
        elif access_too or self._stored.prometheus == "null":
            try:
                found = self.write_access(find_prometheus(self._charm))
            except (NotThere, MachineProblem, OSError) as problem:
                logger.warning("the figures of %s are not known: %s", run.id, problem)
                found = None
            self._stored.prometheus = json.dumps(found)
        return json.loads(str(self._stored.prometheus))

    def check_figures(self, plan: Plan) -> None:
        """Have the agent ask the related Prometheus whether it can tell what a plan's thresholds are about.

        Raises UserError for a plan with such thresholds and no Prometheus, and Refused if it cannot tell.
        """
        field, threshold = next(iter(figures_of(plan)), ("", None))
        if threshold is None:
            return
        try:
            access = self.write_access(find_prometheus(self._charm))
        except NotThere as missing:
            raise UserError(f"{field}.figure", threshold.figure, str(missing)) from None
        fields = plan.model_dump(mode="json", exclude_none=True)
        within = FIGURES_WITHIN
        if self._agent.have_done("check-figures", within=within, plan=fields, prometheus=access) is None:
            raise Refused(f"{access['url']}: expected an answer of Prometheus within {within:g} s")

    def write_access(self, access: TargetAccess | FigureAccess) -> dict[str, Any]:
        """Write the files of an access for the agent, and return its fields with their paths.

        Raises MachineProblem or OSError if that fails.
        """
        if access.files:
            owner = self._machine.user(USER)
            if owner is None:
                raise MachineProblem(f"{USER}: no such user yet")
            self._service.state.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_credentials(self._service.state, access.files, owner)
        directory = str(self._service.state / DIRECTORY)
        return {
            name: value.replace(PLACE, directory) if isinstance(value, str) else value
            for name, value in access.fields.items()
        }

    def try_access(self, access: TargetAccess) -> Login:
        """Have the agent log in if the access is new, and return how that went.

        If the access awaits something, the agent wakes the charm until that has arrived.
        """
        try:
            known = self._agent.ask("access", target=access.target, files=access.files, awaits=access.awaits)
        except (AgentAway, Refused):  # it just stopped
            return Login()
        return Login(
            problem=" ".join(str(known.get("problem") or "").split()),
            refused=known.get("refused") is True,
            trying=known.get("trying") is True,
        )

    def lend_credentials(self) -> None:
        """Write the credentials of the last run's target again, so that its remains can be removed."""
        run = self._peers.run
        if run is not None:
            access = find_access(self._charm, run.validated().target.kind)
            if not access.missing:
                self.write_access(access)

    def _look_after_credentials(self) -> None:
        """Between runs, update files with secrets from their relation or secret, and remove those without one. A key
        of SSH goes when this unit has removed what it made, which MAAS may need it for."""
        state = self._service.state
        try:
            if not self.away and (self.word is None or (self.word.has_ended and not self.word.left)):
                self._service.lend_libvirt("")
            there = names_of_credentials(state)
            if not there:
                return
            files: dict[str, str] = {}
            for kind in kinds_by_secret():
                files |= find_access(self._charm, kind).files
            with suppress(NotThere):
                files |= find_prometheus(self._charm).files
            remove_credentials(state, there - {*files})
            owner = self._machine.user(USER)
            if owner is not None:
                write_credentials(state, {name: files[name] for name in there & {*files}}, owner)
        except OSError as problem:
            logger.warning("credentials: %s", problem)

    def _lost(self, run: SharedRun | None) -> list[str]:
        """Return the lost units of a run that is over, whose remains the leader must remove."""
        if run is None or not run.over or not run.missing or not self._charm.unit.is_leader():
            return []
        return lost_with_remains(run, self._peers.remembered(), self._charm.unit.name)

    def _reference(self, run: SharedRun) -> str:
        """Return the address of the reference's clock: the first unit that is present and has one.

        Empty if this unit is the reference, or the reference has not published it yet.
        """
        there = {unit.name for unit in self._peers.others}
        heard = self._peers.remembered() if self._charm.unit.is_leader() else {}
        for unit in run.units:
            if unit == self._charm.unit.name:
                return ""
            if unit not in there or unit in run.missing:
                continue
            word = heard.get(unit) or self._peers.word_of(unit)
            if word is None or word.run != run.id:
                return ""
            if word.clock:
                return word.clock
        return ""

    def _address(self) -> str:
        """Return this unit's address for the other units; empty if Juju knows none."""
        try:
            address = self._charm.model.get_binding(PEERS).network.ingress_address
        except ops.ModelError:
            return ""
        return "" if address is None else str(address)

    def _conduct(self, run: SharedRun) -> SharedRun:
        words = {
            **self._peers.remembered(),
            self._charm.unit.name: self.word or self._peers.said(),
        }
        fresh = conduct(run, words, now_by_reference(self.word), news=self.figures)
        after = to_judge(fresh, words)
        following = None if after is None else self._following(fresh, after, words)
        if following is not None:
            fresh = conduct(fresh, words, now_by_reference(self.word), following, self.figures)
        if fresh == run or not self._peers.write_run(fresh):
            return run
        self._hand_over(fresh, access_too=False)
        return fresh

    def _following(self, run: SharedRun, after: int, words: Mapping[str, UnitWord | None]) -> NextLoad | None:
        """Return what follows a turn of a search, from the agent; None while the agent works on it."""
        reports = self._peers.reports(run.turns[-1].sharing(run.units) if run.turns else [])
        if self.report is not None:
            reports[self._charm.unit.name] = self.report
        try:
            request = judge_request(run, after, words, reports)
            answer = self._agent.ask("judge", within=HOOK_WAITS, **request)
            return None if answer.get("next") is None else NextLoad.model_validate(answer["next"])
        except AgentAway:
            return None
        except (Refused, ValidationError) as problem:
            line = " ".join(str(problem).split())
            unit = self._charm.unit.name
            return NextLoad(after=after, stop=f"the agent of {unit} cannot conduct a search: {line}"[:1000])

    def need_leader(self, what: str) -> None:
        """Raise Refused unless this unit is the leader; `what` is the action asked for."""
        unit = self._charm.unit
        if not unit.is_leader():
            raise Refused(f"{unit.name} is not the leader: juju run {self._charm.app.name}/leader {what}")

    def change_run(self, what: str, change: Callable[[SharedRun, float], SharedRun]) -> SharedRun:
        """Change the current run on the leader. Raises Refused without such a run, or if another unit leads."""
        self.need_leader(what)
        self._peers.listen()
        self.update(access_too=False)
        run = self._peers.run
        if run is None or run.over:
            raise Refused(f"no run is in progress: juju run {self._charm.app.name}/leader start plan=NAME")
        fresh = change(run, now_by_reference(self.word))
        self.write_run(fresh, what)
        self.update(access_too=False)
        return fresh

    def write_run(self, run: SharedRun, what: str) -> None:
        """Publish a run to all units. Raises Refused if another unit leads by now; `what` is the action asked for."""
        if not self._peers.write_run(run):
            charm = self._charm
            raise Refused(
                f"{charm.unit.name} is no longer the leader: juju run {charm.app.name}/leader {what}"
            )

    # -- results ---------------------------------------------------------------------------------------

    def told_of_run(self, run_id: str) -> dict[str, Any]:
        """Return the units' words on a run and their results as fields of a request; empty if not of the last run."""
        run = self._peers.run
        if run is None or run_id not in ("", run.id):
            return {}
        words, results = self._peers.read_all()
        words[self._charm.unit.name] = self.word or self._peers.said()
        said = {
            unit: word.model_dump(mode="json", exclude_none=True)
            for unit, word in words.items()
            if word is not None and word.run == run.id
        }
        digests = {unit: digest for unit, (of, digest) in results.items() if of == run.id}
        return {"shared": run.model_dump(mode="json", exclude_none=True), "words": said, "digests": digests}

    def keep_results(self) -> None:
        """Have the agent keep the results of the last run, before the next run replaces them."""
        run = self._peers.run
        if run is None or not run.over or not self._charm.unit.is_leader():
            return
        reported = self._peers.have_reported(run.id)
        done = f"{run.id} {len(reported)}"
        if self._stored.kept != done:
            try:
                self._agent.ask("keep", **self.told_of_run(run.id))
            except (AgentAway, Refused) as problem:
                logger.warning("results of %s: %s", run.id, problem)
            else:
                self._stored.kept = done

    def keep_complete_results(self) -> None:
        """Keep the results once the last one is in, because reading them all takes a while."""
        run = self._peers.run
        if run is None or not run.over or not self._charm.unit.is_leader():
            return
        awaited = {unit.name for unit in self._peers.others} & {*run.units} - {*run.missing}
        if awaited <= self._peers.have_reported(run.id):
            self.keep_results()


def _as_word(fields: object) -> UnitWord | None:
    try:
        return None if fields is None else UnitWord.model_validate(fields)
    except ValidationError:
        return None


def _as_report(fields: object) -> ProbeReport | None:
    try:
        return None if fields is None else ProbeReport.model_validate(fields)
    except ValidationError:
        return None


def _as_figures(fields: object) -> FigureNews | None:
    try:
        return None if fields is None else FigureNews.model_validate(fields)
    except ValidationError:
        return None


def _as_result(fields: object) -> dict[str, str] | None:
    match fields:
        case {"run": str(run), "digest": str(digest)}:
            return {"run": run, "digest": digest}
        case _:
            return None
