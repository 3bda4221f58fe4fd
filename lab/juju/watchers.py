"""Watchers, which deliver a change to the next request for it, or keep it until then.

As in Juju the first event is part of the answer that begins a watcher. `Next` with the watcher's id waits for a later
one. If something never changes in a simulator, its watcher is only an id.

A change is delivered at once. A real controller looks for changes of a model every 0.1 s while there are some, and
after up to 10 s once there are none (internal/changestream/stream of Juju 4.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Topic = tuple[str, ...]
"""The topic of a watcher: ("unit", name), ("unit-relations", application), ("relation", id), ("actions", unit), ..."""


class Watcher:
    """One client's watcher of one topic.

    `merge` adds a change to the pending ones (None at first) and returns the result; None for nothing. `render` makes
    the event that is delivered of what is pending then.
    """

    __slots__ = ("_answer", "_merge", "_pending", "_render", "_stopped")

    def __init__(
        self, merge: Callable[[Any, Any], Any], render: Callable[[Any], Any] = lambda pending: pending
    ) -> None:
        self._merge = merge
        self._render = render
        self._pending: Any = None
        self._answer: Callable[[Any], None] | None = None
        self._stopped: Callable[[], None] = lambda: None

    def changed(self, change: Any) -> None:
        """Record a change."""
        self._pending = self._merge(self._pending, change)
        self._tell()

    def next(self, answer: Callable[[Any], None], stopped: Callable[[], None]) -> None:
        """Call `answer` with the pending changes, now or when there are any, or `stopped` if it is stopped before."""
        self._answer, self._stopped = answer, stopped
        self._tell()

    def stop(self) -> None:
        """End the wait for a change."""
        if self._answer is not None:
            self._answer = None
            self._stopped()

    def _tell(self) -> None:
        if self._answer is not None and self._pending is not None:
            answer, self._answer = self._answer, None
            pending, self._pending = self._pending, None
            answer(self._render(pending))


class Topics:
    """The watchers in a model, by topic."""

    def __init__(self) -> None:
        self._watching: dict[Topic, dict[Watcher, None]] = {}

    def watch(self, topic: Topic, watcher: Watcher) -> Callable[[], None]:
        """Subscribe a watcher to a topic, and return a function that ends this."""
        self._watching.setdefault(topic, {})[watcher] = None

        def end() -> None:
            there = self._watching.get(topic)
            if there is not None:
                there.pop(watcher, None)
                if not there:
                    del self._watching[topic]

        return end

    def tell(self, topic: Topic, change: Any) -> None:
        """Send a topic's change to its watchers."""
        for watcher in list(self._watching.get(topic, ())):
            watcher.changed(change)


def merge_notice(_pending: Any, _change: Any) -> Any:
    """Merge changes without content."""
    return {}


def merge_names(pending: list[str] | None, change: list[str]) -> list[str] | None:
    """Merge names, each once, in order. No names are no change."""
    return list(dict.fromkeys([*(pending or []), *change])) or None


def merge_last(_pending: Any, change: Any) -> Any:
    """Keep the last change only."""
    return change
