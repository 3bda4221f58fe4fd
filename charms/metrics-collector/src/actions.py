"""The collector's actions, which list, report, compare and export the runs it keeps."""

from __future__ import annotations

import functools
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import ops
from parameters import Compare, Export, Trend
from tippingpoint_charm.parameters import Parameters, Report
from tippingpoint_charm.results import Results, how_to_fetch, report_results, verbatim
from trend import Trends

from tippingpoint.collect import sandbox
from tippingpoint.collect.runs import Runs, StoredRun, forget_oldest
from tippingpoint.errors import UserError

LISTED = 50
"""The most runs that `list-runs` lists."""
_SUFFIX = {"md": "md", "html": "html", "json": "json", "junit": "xml"}
_SEED = "seed:"


def _answers(do: Callable[[Actions, ops.ActionEvent], Results]) -> Callable[[Actions, ops.ActionEvent], None]:
    """Make a handler an action that fails with one line for each refusal."""

    @functools.wraps(do)
    def action(actions: Actions, event: ops.ActionEvent) -> None:
        try:
            event.set_results(do(actions, event))
        except UserError as refused:
            event.fail(str(refused))
        except OSError as problem:
            event.fail(f"{problem.filename or 'disk'}: {problem.strerror}")

    return action


class ActingCharm(ops.CharmBase, ABC):
    """The part of the charm that its actions use."""

    runs: Runs
    trends: Trends
    state: Path
    """The directory of the runs that it keeps."""

    @property
    @abstractmethod
    def generators(self) -> list[str]:
        """The related generator applications."""

    @property
    @abstractmethod
    def problems(self) -> list[str]:
        """All present problems, one line each."""

    @property
    @abstractmethod
    def page_url(self) -> str:
        """The page's URL; empty while it is off."""

    @property
    @abstractmethod
    def page_told(self) -> Results:
        """Return the results of `status` about the page."""

    @property
    @abstractmethod
    def prometheus_told(self) -> str:
        """Return the line of `status` about Prometheus."""


class Actions(ops.Object):
    """The actions of the charm."""

    def __init__(self, charm: ActingCharm) -> None:
        super().__init__(charm, "actions")
        self._charm = charm
        self._runs = charm.runs
        self._reports = charm.state / "reports"
        self.framework.observe(charm.on.report_action, self._on_report)
        self.framework.observe(charm.on.compare_action, self._on_compare)
        self.framework.observe(charm.on.trend_action, self._on_trend)
        self.framework.observe(charm.on.export_action, self._on_export)
        self.framework.observe(charm.on.list_runs_action, self._on_list_runs)
        self.framework.observe(charm.on.status_action, self._on_status)

    @_answers
    def _on_report(self, event: ops.ActionEvent) -> Results:
        asked = Report.read(event.params)
        run = self._runs.find(asked.run)
        path = self._reports / f"{run.id}.{_SUFFIX[asked.format]}"
        sandbox.write(path, sandbox.question("report", [run], format=asked.format))
        page = self._on_page(f"/runs/{run.id}/report.{asked.format}")
        ask = f"report run={run.id} format={asked.format}"
        told = self._told(path, asked.format, asked.part, ask, page)
        return {"run": run.id, "state": run.state(time.time()), **told}

    @_answers
    def _on_compare(self, event: ops.ActionEvent) -> Results:
        asked = Compare.read(event.params)
        sets = {"with": asked.others, "control": asked.controls}
        if asked.controls and not asked.others:
            raise UserError("control", asked.control, "none without the runs of another release in `with`")
        if asked.baseline and asked.others:
            raise UserError("baseline", asked.baseline, "none with `with`: `runs` are the baseline")
        if len(asked.names) < (1 if asked.others else 2):
            raise UserError(
                "runs", asked.runs, "two runs or more, or a run and seed:NAME, separated by commas"
            )
        named = [*asked.names, *asked.others, *asked.controls]
        runs = [self._runs.find(name) for name in named if not name.startswith(_SEED)]
        key = hashlib.sha256(f"{asked.names} {sets} {asked.tolerance}".encode()).hexdigest()[:8]
        path = self._reports / f"comparison-{key}.{_SUFFIX[asked.format]}"
        worse = sandbox.write(
            path,
            sandbox.question(
                "compare",
                list({run.id: run for run in runs}.values()),
                names=asked.names,
                others=asked.others,
                control=asked.controls,
                format=asked.format,
                tolerance=asked.tolerance,
            ),
        )
        first, *others = asked.names
        query = [("against", first), *(("run", name) for name in others)]
        query += [(part, name) for part, names in sets.items() for name in names]
        query += [("format", asked.format)]
        page = self._on_page(f"/compare?{urlencode([*query, ('tolerance', asked.tolerance)])}")
        repeats = "".join(f" {part}={','.join(names)}" for part, names in sets.items() if names)
        ask = f"compare runs={','.join(asked.names)}{repeats} format={asked.format} tolerance={asked.tolerance:g}"
        told = self._told(path, asked.format, asked.part, ask, page)
        return {"regressed": "true" if worse else "false", **told}

    @_answers
    def _on_trend(self, event: ops.ActionEvent) -> Results:
        asked, trends = Trend.read(event.params), self._charm.trends
        if bool(asked.acknowledge) != bool(asked.reason):
            given = asked.acknowledge or asked.reason
            raise UserError("acknowledge", given, "both acknowledge and reason")
        if asked.acknowledge:
            trends.acknowledge(self._runs.find(asked.acknowledge).id, asked.reason)
        path = self._reports / f"trend-{asked.by}.{_SUFFIX[asked.format]}"
        worse = trends.write(path, asked.format, asked.by)
        page = self._on_page(f"/trend?{urlencode({'format': asked.format, 'by': asked.by})}")
        ask = f"trend format={asked.format} by={asked.by}"
        told = self._told(path, asked.format, asked.part, ask, page)
        return {"regressed": "true" if worse else "false", **told}

    @_answers
    def _on_export(self, event: ops.ActionEvent) -> Results:
        run = self._runs.find(Export.read(event.params).run)
        path = self._reports / f"{run.id}.tar.gz"
        sandbox.write(path, sandbox.question("export", [run]))
        page = self._on_page(f"/runs/{run.id}/export.tar.gz")
        return {
            "run": run.id,
            "path": str(path),
            "fetch": self._how_to_fetch(path, *page.values()),
            "then": verbatim(f"tar xzf {path.name} && tippingpoint report {run.id}"),
            **page,
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
        results = {
            "related": ", ".join(self._charm.generators) or "nothing",
            **self._charm.page_told,
            "prometheus": self._charm.prometheus_told,
        }
        if self._charm.problems:
            results["problems"] = verbatim(*self._charm.problems)
        runs = self._runs.newest_first()
        results["runs"] = str(len(runs))
        if runs:
            results |= _last(runs[0])
        return results

    def _told(self, path: Path, form: str, part: int, ask: str, page: Results) -> Results:
        """Return a report as action results: as much of its text as fits, and how to get all of it.

        `ask` is the action that asked for it, `page` the answer of `_on_page`.
        """
        forget_oldest(self._reports)
        in_parts = f"juju run {self._charm.unit.name} {ask} part=1"
        fetch = self._how_to_fetch(path, *page.values(), in_parts)
        told = report_results(path.read_text(), form, part, fetch)
        return {"path": str(path), "fetch": fetch, **told, **page}

    def _how_to_fetch(self, path: Path, *otherwise: str) -> str:
        return how_to_fetch(self._charm.model.name, self._charm.unit.name, path, *otherwise)

    def _on_page(self, path: str) -> Results:
        """Return the URL of something on the page as a result; empty while the page is off."""
        return {"page": f"{self._charm.page_url}{path}"} if self._charm.page_url else {}


def came_to(run: StoredRun) -> str:
    """Say a run's result or its progress in a few words."""
    if run.verdict is not None:
        return run.verdict.outcome
    if run.complete:
        return "verdict pending"
    return run.state(time.time())


def _line(run: StoredRun) -> str:
    units = f"{len(run.shared.units)} unit{'s' * (len(run.shared.units) != 1)}"
    return f"{run.id}  {units}, {run.reported} reported  {came_to(run)}"


def _last(run: StoredRun) -> Results:
    """Return the results of `status` about the latest run."""
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
