"""Reads Rally's task results in both forms: `rally task report --json` and the older `rally task results`.

The formats follow plugins/task/exporters/json_exporter.py and old_json_results.py, and cli/task_results_loader.py of
Rally 5.1.1. The first form is an object with `tasks`. The second is a list of workloads, whose atomic actions have
durations but no times. Rally 0.x sorted the keys of everything in it, so the order of actions is lost.

Runners follow plugins/task/runners of the same release: `constant`, `constant_for_duration` and `serial` keep a number
of iterations going, `rps` begins them at a rate, which may rise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeGuard, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.util.inputs import Input

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
_LONGEST_WORDS = 60
_MOST_LOAD = 1 << 31
_OUTSIDE = 0.1
"""Seconds of an iteration that may be outside its actions, where nothing but Rally itself took time."""
_OUTSIDE_SHARE = 0.01
_Done = tuple[str, float, float, bool]
"""An action's name, its begin and its end in seconds since the epoch, and whether it failed."""

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
    contexts: Any = None
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
    args: Any = None
    context: Any = None
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


Pace = Literal["at once", "a second", ""]
"""What a runner keeps constant: the iterations at once, or those that begin per second; empty for other runners."""


@dataclass(frozen=True)
class Runner:
    """How a workload's iterations were begun."""

    pace: Pace
    """What `load` counts."""
    load: float
    """The number of concurrent iterations, or how many begin a second; 0 without a pace that is the same throughout."""
    words: str
    """The same for people, such as `5 at once` or `0.5 a second`; empty if nothing is known."""
    counted: bool
    """Whether it was given the number of iterations to do, and not how long to begin them."""
    rest: Mapping[str, Any]
    """Its other settings, such as a time limit."""

    @property
    def open_loop(self) -> bool:
        """Whether iterations begin when they are due, whether or not others have ended."""
        return self.pace == "a second"


@dataclass(frozen=True)
class Workload:
    """One workload of a task: the iterations of a scenario."""

    scenario: str
    arguments: Any
    """The scenario's arguments, and its contexts: two workloads that differ in these differ in more than the load."""
    runner: Runner
    iterations: int
    begin: float
    """The begin in seconds since the epoch."""
    end: float
    timed: list[Timed]
    unblamed: int
    """The iterations with an error for which it is unknown which action failed. Their actions are left out."""
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


def read_rally(result: Input) -> Results:
    """Read a file of Rally. Raises UserError if it is not Rally's, is damaged, or has no iteration."""
    name = result.name
    text = result.read(LARGEST_FILE, "a result of fewer tasks,")
    try:
        found: Any = orjson.loads(text.removeprefix(b"\xef\xbb\xbf"))
    except orjson.JSONDecodeError as problem:
        raise UserError("result", name, f"whole JSON, {_FORM} ({problem})") from None
    old_form = isinstance(found, list)
    try:
        if old_form:
            in_order = not _is_sorted(cast("list[object]", found))
            version, told = (
                "",
                [_of_old(one, in_order) for one in _OldReport.model_validate({"tasks": found}).tasks],
            )
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
        found = "missing" if error["type"] == "missing" else error["input"]
        raise UserError(f"{name}: {field}", found, f"{_FORM} ({error['msg']})") from None
    workloads = sorted((one for one in told if one.iterations), key=lambda one: one.begin)
    if not workloads:
        raise UserError("result", f"{name}, {len(told)} workloads without an iteration", _FORM)
    return Results(version, old_form, workloads, len(told) - len(workloads))


def _is_sorted(told: list[object]) -> bool:
    """Return whether all keys are sorted by name, as Rally 0.x wrote them; then nothing has an order of its own."""
    return all(names == sorted(names) for names in _names(told))


def _names(told: object, depth: int = 5) -> Iterator[list[str]]:
    """Yield the keys of the mappings in a result; output of the iterations is nested deeper, and belongs to them."""
    if isinstance(told, dict):
        fields = cast("dict[str, object]", told)
        yield list(fields)
        told = list(fields.values())
    if depth and isinstance(told, list):
        for one in cast("list[object]", told):
            yield from _names(one, depth - 1)


def _of_new(told: _Workload) -> Workload:
    ((scenario, arguments),) = told.scenario.items()
    ((kind, runner),) = told.runner.items()
    said = [arguments, told.contexts]
    return _workload(
        scenario, said, _runner(kind, runner), told.data, told.load_duration, told.sla_results.sla, True
    )


def _of_old(told: _OldWorkload, in_order: bool) -> Workload:
    arguments = told.key.kw
    runner = {name: value for name, value in arguments.runner.items() if name != "type"}
    kind = str(arguments.runner.get("type", "serial"))  # Rally's own default then
    said = [arguments.args, arguments.context]
    return _workload(
        told.key.name, said, _runner(kind, runner), told.result, told.load_duration, told.sla, in_order
    )


def _workload(
    scenario: str,
    arguments: Any,
    runner: Runner,
    iterations: list[_Iteration],
    load_duration: float | None,
    criteria: list[_Sla],
    in_order: bool,
) -> Workload:
    timed: list[Timed] = []
    unblamed = 0
    for iteration in iterations:
        actions = _actions(iteration, in_order)
        unblamed += actions is None
        timed += _timed(iteration, actions or [])
    begin = min((iteration.timestamp for iteration in iterations), default=0.0)
    # An iteration that timed out has its end as its time (rally/task/runner.py), so the load's duration decides.
    last = max((sample.ended for sample in timed), default=begin)
    return Workload(
        scenario=scenario,
        arguments=arguments,
        runner=runner,
        iterations=len(iterations),
        begin=begin,
        end=begin + load_duration if load_duration is not None and load_duration > 0 else last,
        timed=timed,
        unblamed=unblamed,
        missed=[" ".join(f"{one.criterion}: {one.detail}".split()) for one in criteria if not one.success],
    )


def _runner(kind: str, told: Mapping[str, Any]) -> Runner:
    pace: Pace = ""
    load, words = 0.0, ""
    rest = {name: value for name, value in told.items() if name not in ("times", "duration")}
    if kind == "rps":
        rate = rest.pop("rps", None)
        if _is_amount(rate):
            pace, load, words = "a second", rate, f"{rate:g} a second"
        elif isinstance(rate, dict):
            rising = cast("dict[str, object]", rate)
            words = f"{rising.get('start')} to {rising.get('end')} a second"[:_LONGEST_WORDS]
            rest["rps"] = rate
    elif kind == "serial" or kind.startswith("constant"):
        at_once = 1 if kind == "serial" else rest.pop("concurrency", 1)
        if _is_amount(at_once) and isinstance(at_once, int):
            pace, load, words = "at once", at_once, f"{at_once} at once"
    # One at a time is the same load, whichever runner keeps it.
    return Runner(pace, load, words, kind != "constant_for_duration", {"runner": pace or kind, **rest})


def _is_amount(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MOST_LOAD


def _timed(iteration: _Iteration, actions: list[_Done]) -> list[Timed]:
    """Return the samples of one iteration: one per action, with repetitions added up as in Rally's table."""
    failed, error = _failure(iteration.error)
    seconds: dict[str, float] = {}
    ended: dict[str, float] = {}
    outcomes: dict[str, str] = {}
    for name, begin, end, broken in actions:
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


def _actions(iteration: _Iteration, in_order: bool) -> list[_Done] | None:
    """Return each action with its begin and end, and whether it failed; None if it is unknown which one failed."""
    told = iteration.atomic_actions
    whole = iteration.duration + iteration.idle_duration
    if isinstance(told, list):
        return [
            (_operation(one.name), *_span(one, iteration.timestamp, whole), one.failed)
            for one in told
            if one.failed or (one.started_at is not None and one.finished_at is not None)
        ]
    # The old form records at most that a failed action took no time. Without that, the last action failed, because
    # nothing begins after it, if it is among the actions at all: otherwise, time that none of them took is its own.
    unnamed = bool(iteration.error) and None not in told.values()
    taken = sum(took for took in told.values() if took is not None)
    among = unnamed and iteration.duration - taken <= max(_OUTSIDE, _OUTSIDE_SHARE * iteration.duration)
    if among and len(told) > 1 and not in_order:
        return None
    found: list[_Done] = []
    now = iteration.timestamp
    for number, (name, took) in enumerate(told.items(), start=1):
        broken = took is None or (among and number == len(told))
        end = now + (took or 0.0) if in_order else iteration.timestamp + whole
        found.append((_operation(re.sub(r" \([0-9]+\)$", "", name)), end - (took or 0.0), end, broken))
        now = end if in_order else now
    return found


def _span(action: _Action, began: float, whole: float) -> tuple[float, float]:
    """Return when an action began and ended; one that failed may lack either."""
    begin = action.started_at if action.started_at is not None else began
    return begin, action.finished_at if action.finished_at is not None else max(begin, began + whole)


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
