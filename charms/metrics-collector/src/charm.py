#!/usr/bin/env python3
"""The metrics-collector charm: keeps what generators tell of their runs, and reports, compares and exports them."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import engine
import ops
from parameters import Compare, Export
from tippingpoint_charm.parameters import Parameters, Report
from tippingpoint_charm.relations import scale_run
from tippingpoint_charm.relations.scale_run import Reported

from tippingpoint.collect.runs import RESULTS_WITHIN, Runs, StoredRun, forget_oldest
from tippingpoint.errors import UserError

logger = logging.getLogger(__name__)

STATE = Path("/var/lib")
LARGEST_TEXT = 16 * 1024
"""Bytes of a report that an action's result carries; Juju keeps results in its database, and prints them."""
LISTED = 50
"""Runs that `list-runs` names."""
_JUDGED_WITHIN = 120.0
"""Seconds that the engine may judge a run for; then it is asked again."""
_SUFFIX = {"md": "md", "html": "html", "json": "json", "junit": "xml"}
_SEED = "seed:"
_RELATION = "scale-run"

Results = dict[str, str]


def _answers(
    do: Callable[[MetricsCollectorCharm, ops.ActionEvent], Results],
) -> Callable[[MetricsCollectorCharm, ops.ActionEvent], None]:
    """An action whose refusals are one line of its own."""

    @functools.wraps(do)
    def action(charm: MetricsCollectorCharm, event: ops.ActionEvent) -> None:
        try:
            event.set_results(do(charm, event))
        except UserError as refused:
            event.fail(str(refused))
        except OSError as problem:
            event.fail(f"{problem.filename or 'disk'}: {problem.strerror}")

    return action


class MetricsCollectorCharm(ops.CharmBase):
    """Stores in hooks what arrives; everything else is asked of the engine."""

    _stored = ops.StoredState()

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        os.umask(0o022)  # `juju scp` reads as another user what is kept here
        self._stored.set_default(problems={})
        self._state = STATE / f"tippingpoint-{self.unit.name.replace('/', '-')}"
        self._runs = Runs(self._state / "runs")
        on, relation = self.on, self.on[_RELATION]
        framework.observe(relation.relation_created, self._on_speaking)
        framework.observe(on.leader_elected, self._on_speaking)
        framework.observe(relation.relation_changed, self._on_changed)
        framework.observe(relation.relation_departed, self._on_departed)
        framework.observe(relation.relation_broken, self._on_broken)
        framework.observe(on.upgrade_charm, self._on_upgrade)
        framework.observe(on.update_status, self._on_update_status)
        framework.observe(on.remove, self._on_remove)
        framework.observe(on.collect_unit_status, self._on_collect_status)
        framework.observe(on.report_action, self._on_report)
        framework.observe(on.compare_action, self._on_compare)
        framework.observe(on.export_action, self._on_export)
        framework.observe(on.list_runs_action, self._on_list_runs)
        framework.observe(on.status_action, self._on_status)

    # What arrives

    def _on_speaking(self, _: ops.EventBase) -> None:
        scale_run.publish_collector(self)

    def _on_changed(self, event: ops.RelationChangedEvent) -> None:
        """Keep what changed: one unit's word among a hundred is no reason to read them all."""
        self._keep(scale_run.read_changed(event.relation, None), event.app.name)
        if event.unit is not None:
            self._keep(scale_run.read_changed(event.relation, event.unit), event.unit.name)

    def _on_upgrade(self, _: ops.UpgradeCharmEvent) -> None:
        scale_run.publish_collector(self)
        self._keep_all()

    def _on_update_status(self, _: ops.UpdateStatusEvent) -> None:
        if self._stored.problems:
            self._keep_all()  # what could not be kept, for want of room, is still there to be read
        for run in self._runs.newest_first()[:LISTED]:
            if run.shared.over and time.time() - run.heard > RESULTS_WITHIN:
                self._judge(run)

    def _on_departed(self, event: ops.RelationDepartedEvent) -> None:
        if event.departing_unit is not None:
            self._note(event.departing_unit.name, [])

    def _on_broken(self, event: ops.RelationBrokenEvent) -> None:
        self._note(event.app.name, [])

    def _on_remove(self, _: ops.RemoveEvent) -> None:
        shutil.rmtree(self._state, ignore_errors=True)

    def _keep_all(self) -> None:
        self._stored.problems = {}
        for reported in scale_run.read(self):
            self._keep(reported, reported.application)

    def _keep(self, reported: Reported, sender: str) -> None:
        """Keep what was reported, and what was wrong with it."""
        problems = list(reported.problems)
        try:
            if reported.run is not None:
                self._runs.keep(reported.run)
            for unit, word in reported.words.items():
                self._runs.keep_word(unit, word)
            for unit, result in reported.results.items():
                self._runs.keep_digest(unit, result.run, result.digest)
        except UserError as refused:
            problems.append(f"{_RELATION}: {sender}: {refused}")
        except OSError as problem:
            problems.append(
                f"{self._state}: {problem.strerror}: make room, it is tried again every few minutes"
            )
        self._note(sender, problems)
        told = {reported.run.id} if reported.run is not None else set[str]()
        told |= {result.run for result in reported.results.values()}
        for run in told:
            self._judge_when_complete(run)

    def _note(self, sender: str, problems: list[str]) -> None:
        """Remember what is wrong with what somebody sent, for the status; nothing any more when it is in order."""
        if problems:
            logger.warning(problems[0])
            self._stored.problems[sender] = problems[0]
        else:
            self._stored.problems.pop(sender, None)

    def _judge_when_complete(self, run: str) -> None:
        try:
            stored = self._runs.find(run)
        except UserError:  # its units were faster than its leader
            return
        if stored.complete:
            self._judge(stored)

    def _judge(self, run: StoredRun) -> None:
        """Have a run judged, unless it is, or just is being."""
        if run.reported and run.verdict is None and not run.judged_since(time.time() - _JUDGED_WITHIN):
            engine.judge(run)

    # Status

    def _on_collect_status(self, event: ops.CollectStatusEvent) -> None:
        for problem in self._stored.problems.values():
            event.add_status(ops.BlockedStatus(str(problem)))
        runs = self._runs.newest_first()
        related = [relation.app.name for relation in self.model.relations[_RELATION] if relation.active]
        if runs:
            count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
            event.add_status(ops.ActiveStatus(f"{count}, last: {runs[0].id} {_came_to(runs[0])}"))
        elif related:
            event.add_status(ops.ActiveStatus(f"no run yet: juju run {related[0]}/leader start plan=NAME"))
        else:
            event.add_status(
                ops.WaitingStatus("relate load-claimer:scale-run or container-spawner:scale-run")
            )

    # Actions

    @_answers
    def _on_report(self, event: ops.ActionEvent) -> Results:
        asked = Report.read(event.params)
        run = self._runs.find(asked.run)
        path = self._reports / f"{run.id}.{_SUFFIX[asked.format]}"
        engine.write(path, "report", [run], format=asked.format)
        return {"run": run.id, "state": run.state(time.time()), **self._told(path, asked.format)}

    @_answers
    def _on_compare(self, event: ops.ActionEvent) -> Results:
        asked = Compare.read(event.params)
        if len(asked.names) < 2:
            raise UserError(
                "runs", asked.runs, "two runs or more, or a run and seed:NAME, separated by commas"
            )
        runs = [self._runs.find(name) for name in asked.names if not name.startswith(_SEED)]
        key = hashlib.sha256(f"{asked.names} {asked.tolerance}".encode()).hexdigest()[:8]
        path = self._reports / f"comparison-{key}.{_SUFFIX[asked.format]}"
        worse = engine.write(
            path,
            "compare",
            list({run.id: run for run in runs}.values()),
            names=asked.names,
            format=asked.format,
            tolerance=asked.tolerance,
        )
        return {"regressed": "true" if worse else "false", **self._told(path, asked.format)}

    @_answers
    def _on_export(self, event: ops.ActionEvent) -> Results:
        run = self._runs.find(Export.read(event.params).run)
        path = self._reports / f"{run.id}.tar.gz"
        engine.write(path, "export", [run])
        return {
            "run": run.id,
            **self._whereabouts(path),
            "then": f"tar xzf {path.name} && tippingpoint report {run.id}",
        }

    @_answers
    def _on_list_runs(self, event: ops.ActionEvent) -> Results:
        Parameters.read(event.params)
        runs = self._runs.newest_first()
        lines = [_line(run) for run in runs[:LISTED]]
        if len(runs) > LISTED:
            lines.append(f"and {len(runs) - LISTED} older ones")
        return {"count": str(len(runs)), "runs": "\n".join(lines) or "none yet"}

    @_answers
    def _on_status(self, event: ops.ActionEvent) -> Results:
        Parameters.read(event.params)
        related = [relation.app.name for relation in self.model.relations[_RELATION] if relation.active]
        results = {"related": ", ".join(related) or "nothing"}
        if self._stored.problems:
            results["problems"] = "\n".join(str(problem) for problem in self._stored.problems.values())
        runs = self._runs.newest_first()
        results["runs"] = str(len(runs))
        if runs:
            results |= _last(runs[0])
        return results

    @property
    def _reports(self) -> Path:
        return self._state / "reports"

    def _told(self, path: Path, form: str) -> Results:
        """What an action says of a report: its text, as much of it as a result may have, and how to get all of it."""
        forget_oldest(self._reports)
        text = path.read_bytes()
        results = self._whereabouts(path)
        if len(text) <= LARGEST_TEXT:
            results["text"] = text.decode()
        elif form == "md":
            cut = text[:LARGEST_TEXT].rpartition(b"\n")[0].decode()
            results["text"] = f"{cut}\n(cut: {len(text) >> 10} KiB in all; {results['fetch']})\n"
        else:
            results["note"] = (
                f"{len(text) >> 10} KiB, which is more than a result may have; {results['fetch']}"
            )
        return results

    def _whereabouts(self, path: Path) -> Results:
        return {
            "path": str(path),
            "fetch": f"juju scp -m {self.model.name} {self.unit.name}:{path} .",
        }


def _came_to(run: StoredRun) -> str:
    """What a run came to, or where it is, in a few words."""
    if run.verdict is not None:
        return run.verdict.outcome
    if run.complete and run.reported:
        return "is being judged"
    return run.state(time.time())


def _line(run: StoredRun) -> str:
    units = f"{len(run.shared.units)} unit{'s' * (len(run.shared.units) != 1)}"
    return f"{run.id}  {units}, {run.reported} reported  {_came_to(run)}"


def _last(run: StoredRun) -> Results:
    """What `status` says of the latest run."""
    words = run.words
    lines: list[str] = []
    for unit in run.shared.units:
        word = words.get(unit)
        told = "nothing heard" if word is None else word.phase + (f": {word.problem}" if word.problem else "")
        if unit in run.shared.missing:
            told += f"; missing: {run.shared.missing[unit]}"
        lines.append(f"{unit}: {told}")
    results = {"run": run.id, "state": run.state(time.time()), "units": "\n".join(lines)}
    if run.verdict is not None:
        results |= {"verdict": run.verdict.outcome, "sentence": run.verdict.sentence}
    return results


if __name__ == "__main__":
    ops.main(MetricsCollectorCharm)
