"""The actions of both generators. The agent does whatever takes long; actions start it, or report its progress."""

from __future__ import annotations

import functools
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import ops

from tippingpoint.agent.client import AgentAway
from tippingpoint.conduct.director import begin_run, stop, summary
from tippingpoint.conduct.figure_messages import room_for_figures
from tippingpoint.conduct.recovery_messages import room_for_recovery
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.conduct.search_messages import room_for_probes
from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.plan.share import part_of
from tippingpoint.plan.shipped import shipped_plans
from tippingpoint.util.numbers import show_us
from tippingpoint.util.text import nearest, show_amount
from tippingpoint_charm.access import find_access
from tippingpoint_charm.agent import Agent, Refused
from tippingpoint_charm.exchange import Exchange
from tippingpoint_charm.machine import Machine, MachineProblem
from tippingpoint_charm.parameters import Clean, Parameters, Report, Start, Status
from tippingpoint_charm.peers import LARGEST_RUN, Peers
from tippingpoint_charm.results import Results as Results
from tippingpoint_charm.results import how_to_fetch, report_results, verbatim

O = TypeVar("O", bound=ops.Object)  # noqa: E741

LARGEST_ARGUMENT = 100_000
"""The most bytes of a result. It is an argument of a program, which may have 128 KiB (execve(2))."""
PATIENCE = 20.0
"""Seconds that an action waits for its agent: `juju run` waits 60, and other hooks wait for the action."""

_RUNS = {
    **dict.fromkeys(("claim", "store", "operate"), "load-claimer"),
    **dict.fromkeys(("spawn", "grow"), "container-spawner"),
}
"""The charm that runs plans of a workload."""
_OWN_PLAN = 'juju run --string-args ... plan-yaml="$(cat FILE)"'
"""Without that option Juju parses the text as YAML, and refuses it or passes something else."""


def answers(do: Callable[[O, ops.ActionEvent], Results]) -> Callable[[O, ops.ActionEvent], None]:
    """Make a handler an action that fails with one line for each refusal."""

    @functools.wraps(do)
    def action(self: O, event: ops.ActionEvent) -> None:
        try:
            event.set_results(do(self, event))
        except (UserError, Refused, AgentAway, MachineProblem) as refused:
            event.fail(" ".join(str(refused).split()))
        except OSError as problem:
            event.fail(f"{problem.filename or 'disk'}: {problem.strerror}")

    return action


class ActingCharm(ops.CharmBase, ABC):
    """The part of a generator's charm that its actions use."""

    workloads: ClassVar[Sequence[str]]
    """The workloads that it runs."""
    port: ClassVar[int]
    """The port of the exporter."""
    machine: ClassVar[Machine] = Machine()
    agent: Agent
    peers: Peers
    exchange: Exchange

    @abstractmethod
    def catch_up(self) -> None:
        """Do all that a hook does. Actions that need the present state do it first."""

    @abstractmethod
    def lacking(self, plan: Plan | None = None) -> str:
        """Return what this machine lacks for a plan, or for a usual one, in one line; empty if nothing."""


class Actions(ops.Object):
    """The actions that both generators have."""

    def __init__(self, charm: ActingCharm) -> None:
        super().__init__(charm, "actions")
        self._charm = charm
        framework, on = charm.framework, charm.on
        framework.observe(on.start_action, self._on_start)
        framework.observe(on.status_action, self._on_status)
        framework.observe(on.stop_action, self._on_stop)
        framework.observe(on.report_action, self._on_report)
        framework.observe(on.list_runs_action, self._on_list_runs)
        framework.observe(on.clean_action, self._on_clean)

    @answers
    def _on_start(self, event: ops.ActionEvent) -> Results:
        charm = self._charm
        plan = read_plan(Start.read(event.params), charm.workloads)
        charm.exchange.need_leader("start plan=NAME")
        plan.target.check_in_charm()
        charm.catch_up()
        before = charm.peers.run
        if before is not None and not before.over:
            raise Refused(
                f"run {before.id} is in progress: stop it first: juju run {charm.app.name}/leader stop"
            )
        access = find_access(charm, plan.target.kind)
        missing = access.missing or charm.lacking(plan)
        if missing:
            raise Refused(missing)
        _check_projects(plan, access.target.get("projects"))
        charm.agent.ask("ping")
        charm.exchange.check_figures(plan)
        charm.exchange.keep_results()
        units = [charm.unit.name, *(unit.name for unit in charm.peers.others)]
        if len(units) > 1:
            part_of(plan, 0, len(units))
        run = begin_run(plan, units, time.time())
        size = len(run.model_dump_json(exclude_none=True))
        probes = room_for_probes(plan) if run.shared else 0
        room = LARGEST_RUN - probes - (room_for_recovery(plan) if run.recovers else 0)
        room -= 0 if run.searches_alone else room_for_figures(plan)
        if size > room:
            raise UserError("plan", plan.name, f"a plan that fits into {max(0, room)} characters ({size})")
        charm.exchange.write_run(run, "start plan=NAME")
        charm.exchange.update()
        silent = charm.machine.unanswered(charm.peers.addresses(), charm.port)
        return {
            "run": run.id,
            "units": str(len(units)),
            **({"silent": "; ".join(f"{unit}: {why}" for unit, why in silent.items())} if silent else {}),
            "follow": verbatim(f"juju run {charm.app.name}/leader status"),
            "then": verbatim(f"juju run {charm.app.name}/leader report run={run.id}"),
        }

    @answers
    def _on_status(self, event: ops.ActionEvent) -> Results:
        asked = Status.read(event.params)
        charm = self._charm
        charm.catch_up()
        run = charm.peers.run
        if run is None:
            document: dict[str, Any] = {"run": None, "status": "no run yet", "units": {}}
        else:
            words, _ = charm.peers.read_all()
            words[charm.unit.name] = charm.exchange.word
            document = {
                "run": run.id,
                "status": summary(run, words),
                "units": {unit: _said(run, unit, words.get(unit)) for unit in _all_units(run, words)},
            }
        if asked.json_:
            return {"json": _cut(json.dumps(document))}
        results = {"status": str(document["status"])}
        if run is not None:
            lines = [_line(unit, said) for unit, said in document["units"].items()]
            results |= {"run": run.id, "units": _cut("\n".join(lines))}
        return results

    @answers
    def _on_stop(self, event: ops.ActionEvent) -> Results:
        Parameters.read(event.params)
        run = self._charm.exchange.change_run("stop", lambda run, _: stop(run, "asked to stop"))
        return {"run": run.id, "follow": verbatim(f"juju run {self._charm.app.name}/leader status")}

    @answers
    def _on_report(self, event: ops.ActionEvent) -> Results:
        asked = Report.read(event.params)
        charm = self._charm
        told = charm.exchange.told_of_run(asked.run)
        answer = charm.agent.ask("report", within=PATIENCE, run=asked.run, format=asked.format, **told)
        run, path = str(answer["run"]), str(answer["path"])
        ask = f"juju run {charm.unit.name} report run={run} format={asked.format}"
        fetch = how_to_fetch(charm.model.name, charm.unit.name, path, f"{ask} part=1")
        told = report_results(str(answer["text"]), asked.format, asked.part, fetch)
        return {"run": run, "path": path, "fetch": fetch, **told}

    @answers
    def _on_list_runs(self, event: ops.ActionEvent) -> Results:
        Parameters.read(event.params)
        runs = self._charm.agent.ask("runs")["runs"]
        lines = [
            f"{run['id']}  {_count(run['units'])}, {run['status']}" + f"  {run['verdict']}".rstrip()
            for run in runs
        ]
        return {"count": str(len(runs)), "runs": _cut("\n".join(lines)) or "none yet"}

    @answers
    def _on_clean(self, event: ops.ActionEvent) -> Results:
        asked = Clean.read(event.params)
        self._charm.exchange.lend_credentials()
        text = self._charm.agent.have_done("clean", within=PATIENCE, run=asked.run)
        return {"result": goes_on(text)}


def _count(units: list[str]) -> str:
    return f"{len(units)} unit{'s' * (len(units) != 1)}"


def goes_on(text: str | None) -> str:
    """Return the result of a task, or that it is still in progress."""
    return "still in progress: ask again" if text is None else _cut(text) or "done"


def read_plan(asked: Start, workloads: Sequence[str]) -> Plan:
    """Return the plan that was asked for. Raises UserError if it is missing, wrong, or not of these workloads."""
    if bool(asked.plan) == bool(asked.plan_yaml):
        raise UserError("plan", asked.plan or "missing", f"either plan=NAME, or {_OWN_PLAN}")
    text, source = asked.plan_yaml, "plan-yaml"
    if asked.plan:
        plans = shipped_plans()
        if asked.plan not in plans:
            ours = [name for name, text in plans.items() if parse_plan(text).workload.kind in workloads]
            raise UserError(
                "plan", asked.plan, f"one of {', '.join(ours)}{nearest(asked.plan, ours)}, or {_OWN_PLAN}"
            )
        text, source = plans[asked.plan], asked.plan
    try:
        plan = parse_plan(text, asked.changes, source)
    except UserError as problem:
        if problem.field == "--set":  # the command line's name for it
            raise UserError("overrides", problem.value, problem.accepted) from None
        if problem.field == source == "plan-yaml":  # no plan at all, such as one that Juju parsed
            raise UserError(source, problem.value, f"{problem.accepted}; {_OWN_PLAN}") from None
        raise
    if plan.workload.kind not in workloads:
        other = _RUNS.get(plan.workload.kind, "only the command line")
        wanted = ", ".join(workloads[:-1]) + " or " + workloads[-1]
        raise UserError("plan", plan.name, f"a plan of the workload {wanted}: {other} runs this one")
    return plan


def _check_projects(plan: Plan, projects: list[str] | None) -> None:
    """Raise UserError if a fill needs more projects than are allowed. Otherwise each unit would fail by itself."""
    if projects:
        fields = plan.model_dump(mode="json", exclude_none=True)
        fields["target"]["projects"] = projects
        parse_plan(json.dumps(fields), source=plan.name)


def _all_units(run: SharedRun, words: dict[str, UnitWord | None]) -> list[str]:
    joining = [unit for unit, word in words.items() if word is not None and word.run == run.id]
    return list(dict.fromkeys([*run.units, *joining]))


def _said(run: SharedRun, unit: str, word: UnitWord | None) -> dict[str, Any]:
    """Return a unit's word on this run, in short."""
    if word is None or word.run != run.id:
        said: dict[str, Any] = {"phase": "nothing heard"}
    else:
        said = {"phase": word.phase}
        if word.problem:
            said["problem"] = word.problem
        # What is held has no name before the first stage.
        if word.progress is not None and word.progress.what and word.phase not in ("over", "failed"):
            said["held"] = word.progress.held
            said["what"] = word.progress.what
            said["p99_ms"] = word.progress.p99_ms
    if unit in run.missing:
        said["missing"] = run.missing[unit]
    return said


def _line(unit: str, said: dict[str, Any]) -> str:
    parts = [str(said["phase"])]
    if "held" in said:
        parts.append(show_amount(said["held"], said["what"]))
    if said.get("p99_ms") is not None:
        parts.append(f"p99 {show_us(1000 * said['p99_ms'])}")
    if "problem" in said:
        parts.append(str(said["problem"]))
    if "missing" in said:
        parts.append(f"missing: {said['missing']}")
    return f"{unit}: {', '.join(parts)}"


def _cut(text: str) -> str:
    whole = text.encode()
    if len(whole) <= LARGEST_ARGUMENT:
        return text
    return whole[:LARGEST_ARGUMENT].decode(errors="ignore") + " (cut)"
