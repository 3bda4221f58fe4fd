"""A model's operations: actions that users ask units to run, and what becomes of them.

As in Juju 4.0 an operation and its tasks take their ids from one sequence, and an operation's status is computed from
its tasks' (domain/operation; from source).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from lab.juju.refusals import Refused
from lab.juju.statuses import NEVER, now
from lab.juju.watchers import Topics

_PENDING, _RUNNING, _ABORTING = "pending", "running", "aborting"
_FINAL = ("completed", "failed", "aborted", "cancelled", "error")
_ORDER = (_RUNNING, _ABORTING, _PENDING, "error", "failed", "cancelled", "completed")
"""The first of these that a task has is its operation's status."""


@dataclass(slots=True)
class Task:
    """An action on one unit."""

    id: str
    unit: str
    name: str
    parameters: dict[str, Any]
    parallel: bool
    group: str
    enqueued: str = field(default_factory=now)
    started: str = NEVER
    completed: str = NEVER
    status: str = _PENDING
    message: str = ""
    log: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    output: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(slots=True)
class Operation:
    """What one request asked for: the same action on some units."""

    id: str
    summary: str
    tasks: list[Task] = field(default_factory=list[Task])
    enqueued: str = field(default_factory=now)
    completed: str = NEVER

    @property
    def status(self) -> str:
        statuses = {task.status for task in self.tasks}
        return next((status for status in _ORDER if status in statuses), "error")

    @property
    def started(self) -> str:
        """When its first task started."""
        return min((task.started for task in self.tasks if task.started != NEVER), default=NEVER)


class Operations:
    """The operations of one model. Tells ("actions", unit) of tasks to run, ("task-log", id) of messages."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._next = 0
        self._of_task: dict[str, Operation] = {}
        self._tasks: dict[str, Task] = {}
        self._pending: dict[str, dict[str, None]] = {}
        self.all: dict[str, Operation] = {}

    def begin(self, summary: str) -> Operation:
        """Add an operation without tasks."""
        operation = Operation(self._id(), summary)
        self.all[operation.id] = operation
        return operation

    def add(
        self,
        operation: Operation,
        unit: str,
        name: str,
        parameters: dict[str, Any],
        parallel: bool,
        group: str,
    ) -> Task:
        """Add a task for a unit, which its watcher is told."""
        task = Task(self._id(), unit, name, parameters, parallel, group)
        operation.tasks.append(task)
        self._of_task[task.id] = operation
        self._tasks[task.id] = task
        self._pending.setdefault(unit, {})[task.id] = None
        self._topics.tell(("actions", unit), [task.id])
        return task

    def task(self, number: str) -> Task | None:
        """Return a task by id; None without one."""
        return self._tasks.get(number)

    def waiting_for(self, unit: str) -> list[str]:
        """Return the ids of a unit's pending tasks."""
        return list(self._pending.get(unit, ()))

    def start(self, task: Task) -> None:
        """Record that a unit runs a task."""
        if task.status != _PENDING:
            raise Refused(f'starting task "{task.id}": task "{task.id}": task not pending')
        task.started = now()
        task.status = _RUNNING
        self._no_longer_pending(task)

    def finish(self, task: Task, status: str, output: dict[str, Any], message: str) -> None:
        """Record a task's result."""
        if status not in _FINAL:
            raise Refused(f'status "{status}" not valid', "not valid")
        task.status, task.message, task.output = status, message, output
        task.completed = now()
        self._no_longer_pending(task)
        operation = self._of_task[task.id]
        if all(one.completed != NEVER for one in operation.tasks):
            operation.completed = task.completed

    def cancel(self, task: Task) -> None:
        """Cancel a pending task, or tell a running one's unit to abort it."""
        if task.status == _PENDING:
            self.finish(task, "cancelled", {}, "")
        elif task.status == _RUNNING:
            task.status = _ABORTING
            self._topics.tell(("actions", task.unit), [task.id])

    def log(self, task: Task, message: str) -> None:
        """Add a message to a task's log."""
        entry = {"timestamp": now(), "message": message}
        task.log.append(entry)
        self._topics.tell(("task-log", task.id), [json.dumps(entry)])

    def _no_longer_pending(self, task: Task) -> None:
        waiting = self._pending.get(task.unit)
        if waiting is not None:
            waiting.pop(task.id, None)
            if not waiting:
                del self._pending[task.unit]

    def _id(self) -> str:
        number = str(self._next)
        self._next += 1
        return number
