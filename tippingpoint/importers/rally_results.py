"""Reads Rally's task results in both forms: `rally task report --json` and the older `rally task results`.

The formats follow plugins/task/exporters/json_exporter.py and old_json_results.py, and cli/task_results_loader.py of
Rally 5.1.1. The first form is an object with `tasks`. The second is a list of workloads, whose atomic actions have
durations but no times.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.errors import UserError

LARGEST_FILE = 1 << 28
"""The most bytes of a file. An iteration with two actions takes about 1 kB, so this is 250,000 iterations."""
CALLED = {"nova.boot_server": "boot_server", "nova.delete_server": "delete_server"}
"""Rally's actions that our workload also times, with their names there."""
TOTAL = "total"
_FORM = "what Rally 5 writes: rally task report --json --out FILE"
_YEAR = 366 * 86400.0
_UNNAMED = re.compile(r"[^A-Za-z0-9_.-]+")
_UUID = re.compile(r"\b[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}\b")
_RANDOM_NAME = re.compile(r"\b[cs]_rally_\w+")
"""Matches names of Rally's things: s_rally_, parts of the task's id, and random letters."""
_LONGEST_MESSAGE = 300

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
"""Seconds since the epoch."""
Seconds = Annotated[float, Field(ge=-_YEAR, le=_YEAR, allow_inf_nan=False)]
"""Seconds of a duration. A clock that was set back makes it negative; see _microseconds."""


class _Told(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Action(_Told):
    name: str
    started_at: Moment | None = None
    finished_at: Moment | None = None
    failed: bool = False


class _Iteration(_Told):
    timestamp: Moment
    duration: Seconds
    idle_duration: Seconds = 0.0
    error: list[Any] | str | None = None
    atomic_actions: list[_Action] | dict[str, Seconds | None]


class _Sla(_Told):
    criterion: str = ""
    detail: str = ""
    success: bool = True


class _SlaResults(_Told):
    sla: list[_Sla] = []


class _Workload(_Told):
    scenario: Annotated[dict[str, Any], Field(min_length=1, max_length=1)]
    runner: Annotated[dict[str, dict[str, Any]], Field(min_length=1, max_length=1)]
    load_duration: Seconds | None = None
    data: list[_Iteration]
    sla_results: _SlaResults = _SlaResults()


class _Subtask(_Told):
    workloads: list[_Workload]


class _Task(_Told):
    uuid: str = ""
    subtasks: list[_Subtask]


class _Info(_Told):
    rally_version: str = ""


class _Report(_Told):
    info: _Info = _Info()
    tasks: list[_Task]


class _OldArguments(_Told):
    runner: dict[str, Any] = {}


class _OldKey(_Told):
    name: Annotated[str, Field(min_length=1)]
    kw: _OldArguments


class _OldWorkload(_Told):
    key: _OldKey
    result: list[_Iteration]
    load_duration: Seconds | None = None
    sla: list[_Sla] = []


class _OldReport(_Told):
    tasks: list[_OldWorkload]


@dataclass(frozen=True)
class Timed:
    """One sample of an operation: its end (seconds since the epoch), its duration, and its outcome."""

    operation: str
    ended: float
    microseconds: int
    outcome: str
    error: str = ""


@dataclass(frozen=True)
class Workload:
    """One workload of a task: the iterations of a scenario."""

    scenario: str
    concurrency: int | None
    """The number of concurrent iterations; None if the runner has none."""
    iterations: int
    begin: float
    """The begin in seconds since the epoch."""
    end: float
    timed: list[Timed]
    missed: list[str]
    """Rally's own success criteria that were not met."""


@dataclass(frozen=True)
class Results:
    """All results in a file."""

    version: str
    """Rally's version; empty if the form has none."""
    old_form: bool
    workloads: list[Workload]
    """The workloads in the order of their runs, without those that had no iteration."""
    empty: int
    """The number of workloads without an iteration."""


def holds_json(path: Path) -> bool:
    """Tell whether a file begins like JSON, which no log of leadershipclaimer does."""
    try:
        with path.open("rb") as file:
            return file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    except OSError:
        return False


def read_rally(path: Path) -> Results:
    """Read a file of Rally. Raises UserError if it is not Rally's, is damaged, or has no iteration."""
    name = path.name.encode(errors="replace").decode()
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
    except OSError as problem:
        raise UserError("result", str(path), f"a readable file ({problem.strerror})") from None
    if len(text) > LARGEST_FILE:
        raise UserError("result", name, f"at most {LARGEST_FILE >> 20} MiB; export fewer tasks at a time")
    try:
        found: Any = orjson.loads(text.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as problem:
        raise UserError("result", name, f"whole JSON, {_FORM} ({problem})") from None
    old_form = isinstance(found, list)
    try:
        if old_form:
            version, told = "", [_of_old(one) for one in _OldReport.model_validate({"tasks": found}).tasks]
        else:
            report = _Report.model_validate(found)
            version = report.info.rally_version
            told = [
                _of_new(workload)
                for task in report.tasks
                for subtask in task.subtasks
                for workload in subtask.workloads
            ]
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        field = ".".join(str(part) for part in error["loc"]) or "tasks"
        raise UserError(f"{name}: {field}", error["input"], f"{_FORM} ({error['msg']})") from None
    workloads = sorted((one for one in told if one.iterations), key=lambda one: one.begin)
    if not workloads:
        raise UserError("result", f"{name}, {len(told)} workloads without an iteration", _FORM)
    return Results(version, old_form, workloads, len(told) - len(workloads))


def _of_new(told: _Workload) -> Workload:
    ((scenario, _),) = told.scenario.items()
    ((kind, runner),) = told.runner.items()
    return _workload(scenario, kind, runner, told.data, told.load_duration, told.sla_results.sla)


def _of_old(told: _OldWorkload) -> Workload:
    runner = told.key.kw.runner
    return _workload(
        told.key.name, str(runner.get("type", "")), runner, told.result, told.load_duration, told.sla
    )


def _workload(
    scenario: str,
    kind: str,
    runner: Mapping[str, Any],
    iterations: list[_Iteration],
    load_duration: float | None,
    criteria: list[_Sla],
) -> Workload:
    timed = [sample for iteration in iterations for sample in _timed(iteration)]
    begin = min((iteration.timestamp for iteration in iterations), default=0.0)
    # An iteration that timed out has its end as its time (rally/task/runner.py), so the load's duration decides.
    last = max((sample.ended for sample in timed), default=begin)
    return Workload(
        scenario=scenario,
        concurrency=_concurrency(kind, runner),
        iterations=len(iterations),
        begin=begin,
        end=begin + load_duration if load_duration is not None and load_duration > 0 else last,
        timed=timed,
        missed=[" ".join(f"{one.criterion}: {one.detail}".split()) for one in criteria if not one.success],
    )


def _concurrency(kind: str, runner: Mapping[str, Any]) -> int | None:
    if kind == "serial":
        return 1
    found = runner.get("concurrency", 1 if kind.startswith("constant") else None)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 < found < 1 << 31 else None


def _timed(iteration: _Iteration) -> list[Timed]:
    """Return the samples of one iteration: one per action, with repetitions added up as in Rally's table."""
    failed, error = _failure(iteration.error)
    seconds: dict[str, float] = {}
    ended: dict[str, float] = {}
    outcomes: dict[str, str] = {}
    for name, begin, end, broken in _actions(iteration, bool(failed)):
        seconds[name] = seconds.get(name, 0.0) + end - begin
        ended[name] = end
        outcomes[name] = failed or "error" if broken else outcomes.get(name, "ok")
    whole = iteration.duration + iteration.idle_duration
    seconds[TOTAL], ended[TOTAL] = whole, iteration.timestamp + whole
    outcomes[TOTAL] = failed or "ok"
    return [
        Timed(name, ended[name], _microseconds(took), outcomes[name], error if outcomes[name] != "ok" else "")
        for name, took in seconds.items()
    ]


def _actions(iteration: _Iteration, failed: bool) -> list[tuple[str, float, float, bool]]:
    """Return each action with its begin and end, and whether it failed."""
    told = iteration.atomic_actions
    if isinstance(told, list):
        return [
            (_operation(one.name), one.started_at, one.finished_at, one.failed)
            for one in told
            if one.started_at is not None and one.finished_at is not None
        ]
    found: list[tuple[str, float, float, bool]] = []
    now = iteration.timestamp
    for number, (name, took) in enumerate(told.items(), start=1):
        # The old form does not say which action failed. It is the last one, because nothing starts after it.
        broken = took is None or (failed and number == len(told))
        found.append((_operation(re.sub(r" \([0-9]+\)$", "", name)), now, now + (took or 0.0), broken))
        now += took or 0.0
    return found


def _operation(name: str) -> str:
    """Convert an action's name to an operation's, for the tags of a histogram log."""
    called = CALLED.get(name) or _UNNAMED.sub("-", name).strip("-.")[:80]
    return called if called and called != TOTAL else f"action-{called}".rstrip("-")


def _failure(error: list[Any] | str | None) -> tuple[str, str]:
    """Return the outcome of an iteration with an error, and its message; empty texts without an error."""
    if not error:
        return "", ""
    kind, message = (str(error[0]), str(error[1])) if isinstance(error, list) and len(error) > 1 else ("", "")
    if not message:
        message = str(error[0]) if isinstance(error, list) else error
    outcome = "timeout" if "timeout" in kind.lower() else "error"
    line = _RANDOM_NAME.sub("NAME", _UUID.sub("ID", " ".join(message.split())))
    return outcome, line[:_LONGEST_MESSAGE] or kind[:_LONGEST_MESSAGE] or outcome


def _microseconds(seconds: float) -> int:
    return max(1, round(seconds * 1e6))
