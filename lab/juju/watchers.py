"""Watchers: a change is told to whoever asks for the next one, or kept until somebody asks.

As in Juju the first event is part of the answer that begins a watcher, and `Next` with the watcher's id waits for
a later one. A watcher of what never changes in a simulator is an id and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Topic = tuple[str, ...]
"""What is watched: ("unit", name), ("unit-relations", application), ("relation", id)."""


class Watcher:
    """One client's watcher of one topic.

    `merge` puts a change to what is pending (None at first) and returns what is pending then, None for nothing.
    """

    __slots__ = ("_answer", "_merge", "_pending")

    def __init__(self, merge: Callable[[Any, Any], Any]) -> None:
        self._merge = merge
        self._pending: Any = None
        self._answer: Callable[[Any], None] | None = None

    def changed(self, change: Any) -> None:
        """Something changed."""
        self._pending = self._merge(self._pending, change)
        self._tell()

    def next(self, answer: Callable[[Any], None]) -> None:
        """Call `answer` with what has changed, now or when it has."""
        self._answer = answer
        self._tell()

    def _tell(self) -> None:
        if self._answer is not None and self._pending is not None:
            answer, self._answer = self._answer, None
            pending, self._pending = self._pending, None
            answer(pending)


class Topics:
    """Who watches what in a model."""

    def __init__(self) -> None:
        self._watching: dict[Topic, dict[Watcher, None]] = {}

    def watch(self, topic: Topic, watcher: Watcher) -> Callable[[], None]:
        """Tell a watcher of a topic's changes; returns what ends that."""
        self._watching.setdefault(topic, {})[watcher] = None

        def end() -> None:
            there = self._watching.get(topic)
            if there is not None:
                there.pop(watcher, None)
                if not there:
                    del self._watching[topic]

        return end

    def tell(self, topic: Topic, change: Any) -> None:
        """Something of a topic changed."""
        for watcher in list(self._watching.get(topic, ())):
            watcher.changed(change)


def merge_notice(_pending: Any, _change: Any) -> Any:
    """That something changed is all there is to say."""
    return {}


def merge_names(pending: list[str] | None, change: list[str]) -> list[str]:
    """Every name once, in order."""
    return list(dict.fromkeys([*(pending or []), *change]))
