"""How the units of one model interact: settings of relations, secrets and configuration.

Each change has a number, which the other side reads. So each reader shows which changes it has seen, even if it saw
only the last of several.
"""

from __future__ import annotations

import itertools
from asyncio import Future
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

Subject = tuple[str, ...]
"""What changes: ("settings", relation key, unit), ("secret", id) or ("config", application)."""


@dataclass(slots=True)
class _Change:
    number: int
    readers: set[str]
    noticed: Future[None]


@dataclass
class SharedSecret:
    """A secret that one unit owns and others read."""

    uri: str
    rotate: float
    """Seconds after which each of its revisions expires; 0 for never."""
    readers: Callable[[], Sequence[str]]
    """Returns those of its readers that are logged in."""
    latest: int = 0
    """The latest revision whose expiry the controller has announced."""


@dataclass
class Noticing:
    """The secrets of the units, and the changes that some of their readers have not noticed yet."""

    secrets: dict[str, SharedSecret] = field(default_factory=dict[str, SharedSecret])
    """By id."""

    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    """The numbers of changes."""
    _waiting: dict[Subject, list[_Change]] = field(default_factory=dict[Subject, "list[_Change]"])

    def expect(self, subject: Subject, number: int, readers: Iterable[str], noticed: Future[None]) -> None:
        """End a future once all these units have noticed the change with this number, or a later one."""
        waiting = [change for change in self._waiting.get(subject, ()) if not change.noticed.done()]
        waiting.append(_Change(number, set(readers), noticed))
        self._waiting[subject] = waiting

    def expects(self, subject: Subject) -> bool:
        """Whether anybody waits for a change of this subject."""
        return subject in self._waiting

    def seen(self, subject: Subject, number: int, reader: str) -> None:
        """Note that a unit has read a subject after the change with this number."""
        waiting = self._waiting.get(subject)
        if waiting is None:
            return
        left: list[_Change] = []
        for change in waiting:
            if change.noticed.done():  # it took too long, or failed
                continue
            if change.number <= number:
                change.readers.discard(reader)
                if not change.readers:
                    change.noticed.set_result(None)
                    continue
            left.append(change)
        if left:
            self._waiting[subject] = left
        else:
            del self._waiting[subject]
