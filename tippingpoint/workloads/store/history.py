"""What watchers of one prefix must have seen: its writes by revision, and how far each watcher is.

All watchers of a prefix have to see the same changes in the order of their revisions. The history is the union of the
writes that the target acknowledged and of the events that any watcher received. So normally a watcher's next event is
only compared with the next one of the history, which costs one comparison; anything else is examined closely.

This module reads no clock and knows no target.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Literal, NamedTuple

GRACE = 2.0
"""Seconds after which a skipped event counts as lost; if it arrives before that, it is out of order instead."""
_KEPT = 2000
"""The fewest revisions that are remembered, so that an event that arrives again is recognized as such."""

ViolationKind = Literal[
    "stale-read",
    "revision-back",
    "key-gone",
    "event-lost",
    "event-repeated",
    "event-reordered",
    "expired-early",
]


class Violation(NamedTuple):
    """What a store must never do."""

    kind: ViolationKind
    key: bytes
    revision: int
    """The revision that shows it: the one that was read, or that of the event."""
    expected: int
    """The revision that it contradicts: the acknowledged one, or the last one that the watcher had seen."""
    watcher: int = 0
    """The watch's number; 0 if no watcher saw it."""


class Reader:
    """How far one watcher is in the history of its prefix."""

    __slots__ = ("given_up", "key", "keys", "missed", "number", "position", "revision", "start")

    def __init__(self, number: int) -> None:
        self.number = number
        self.position = 0
        """The place in the history of the next event."""
        self.start = 0
        """The first revision that it watches."""
        self.revision = 0
        """The revision of its last event."""
        self.key = b""
        """The key of its last event."""
        self.keys: set[bytes] | None = None
        """All keys of its last revision, if there are several."""
        self.missed: dict[int, float] | None = None
        """Revisions that it skipped, and when."""
        self.given_up = 0
        """The place in the history up to which its overdue events have been counted."""

    @property
    def next_revision(self) -> int:
        """The revision from which it has to be watched again."""
        return max(self.start, self.revision + 1)


class History:
    """The changes below one prefix. Moments are any clock's."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        """What was found, until it is taken."""
        self.readers: set[Reader] = set()
        self._revisions: list[int] = []
        self._first = 0
        """The place in the history of the first of the remembered revisions."""
        self._keys: dict[int, bytes] = {}
        self._acknowledged: dict[int, float] = {}
        self._early: dict[int, int] = {}
        """By revision, how many watchers saw it before the answer to its write arrived."""
        self._furthest = 0
        self._forgotten = 0
        """The latest revision that is no longer remembered."""

    def join(self, reader: Reader, start: int) -> None:
        """Expect a watcher to see all changes from a revision on."""
        reader.start = start
        reader.revision = start - 1
        reader.key = b""
        reader.keys = reader.missed = None
        reader.position = reader.given_up = self._first + bisect_left(self._revisions, start)
        self._furthest = max(self._furthest, reader.position)
        self.readers.add(reader)

    def leave(self, reader: Reader) -> None:
        """Expect nothing more of a watcher."""
        self.readers.discard(reader)

    def written(self, revision: int, key: bytes, moment: float) -> int:
        """Note that a write was acknowledged; returns how many watchers had seen it before."""
        self._acknowledged[revision] = moment
        revisions = self._revisions
        if not revisions or revision > revisions[-1]:
            revisions.append(revision)
            self._keys[revision] = key
            return 0
        place = bisect_left(revisions, revision)
        if revisions[place] != revision:
            self._insert(place, revision, key, moment)
        return self._early.pop(revision, 0)

    def seen(self, reader: Reader, revision: int, key: bytes, now: float) -> float | None:
        """Note an event of a watcher; returns the moment at which its write was acknowledged, if that is known."""
        revisions = self._revisions
        place = reader.position - self._first
        if place < len(revisions) and revisions[place] == revision:
            self._passed(reader, place, revision, key)
        elif revision == reader.revision:
            self._same_revision(reader, revision, key)
            return None
        elif revision > reader.revision:
            self._skipped_to(reader, place, revision, key, now)
        else:
            self._gone_back(reader, revision, key, now)
            return None
        moment = self._acknowledged.get(revision)
        if moment is None:
            self._early[revision] = self._early.get(revision, 0) + 1
        return moment

    def lost(self, now: float) -> list[float]:
        """Return when the writes were acknowledged whose events watchers have by now skipped for good.

        Each is a violation, too. Must be called about once a second, because old changes are forgotten then as well.
        """
        acknowledged: list[float] = []
        for reader in self.readers:
            if not reader.missed:
                continue
            for revision, since in list(reader.missed.items()):
                if now - since >= GRACE:
                    del reader.missed[revision]
                    self._violated("event-lost", self._keys.get(revision, b""), revision, reader)
                    acknowledged.append(self._acknowledged.get(revision, since))
        if len(self._revisions) > 2 * _KEPT:
            self._forget()
        return acknowledged

    def overdue(self, reader: Reader, before: float) -> Iterator[float]:
        """Yield, once for each, when writes that a watcher has not seen were acknowledged, if that was before a
        moment."""
        place = max(reader.position, reader.given_up)
        while place - self._first < len(self._revisions):
            revision = self._revisions[place - self._first]
            moment = self._acknowledged.get(revision)
            if moment is not None and moment >= before:
                break
            if moment is not None and revision >= reader.start:
                yield moment
            place += 1
        reader.given_up = place

    def _passed(self, reader: Reader, place: int, revision: int, key: bytes) -> None:
        reader.position = position = place + 1 + self._first
        reader.revision = revision
        reader.key = key
        reader.keys = None
        self._furthest = max(self._furthest, position)

    def _same_revision(self, reader: Reader, revision: int, key: bytes) -> None:
        keys = reader.keys
        if keys is None:
            keys = reader.keys = {reader.key}
        if key in keys or not reader.key:
            self._violated("event-repeated", key, revision, reader)
        keys.add(key)

    def _skipped_to(self, reader: Reader, place: int, revision: int, key: bytes, now: float) -> None:
        """Note that a watcher is at a later event than its next one: the events between them were skipped."""
        revisions = self._revisions
        there = bisect_left(revisions, revision, place)
        # Answers to writes from before it began may have arrived since.
        if skipped := [each for each in revisions[place:there] if each >= reader.start]:
            missed = reader.missed = reader.missed if reader.missed is not None else {}
            missed.update(dict.fromkeys(skipped, now))
        if there == len(revisions) or revisions[there] != revision:
            # Its own position is not after it yet.
            self._insert(there, revision, key, now)
        self._passed(reader, there, revision, key)

    def _gone_back(self, reader: Reader, revision: int, key: bytes, now: float) -> None:
        """Judge an event that is older than the watcher's last one."""
        if reader.missed is not None and reader.missed.pop(revision, None) is not None:
            self._violated("event-reordered", key, revision, reader)
            return
        place = bisect_left(self._revisions, revision)
        known = place < len(self._revisions) and self._revisions[place] == revision
        if known or revision < reader.start or revision <= self._forgotten:
            self._violated("event-repeated", key, revision, reader)
            return
        self._insert(place, revision, key, now)
        if reader.missed is not None:
            reader.missed.pop(revision, None)
        self._violated("event-reordered", key, revision, reader)

    def _insert(self, place: int, revision: int, key: bytes, now: float) -> None:
        """Add a revision. Watchers that are already beyond it have skipped it, unless it precedes what they watch."""
        self._revisions.insert(place, revision)
        self._keys.setdefault(revision, key)
        absolute = self._first + place
        if absolute < self._furthest:
            self._furthest += 1
            for reader in self.readers:
                if reader.position > absolute:
                    reader.position += 1
                    reader.given_up = max(reader.given_up, reader.position)
                    if revision >= reader.start:
                        missed = reader.missed = reader.missed if reader.missed is not None else {}
                        missed[revision] = now

    def _violated(self, kind: ViolationKind, key: bytes, revision: int, reader: Reader) -> None:
        self.violations.append(Violation(kind, key, revision, reader.revision, reader.number))

    def _forget(self) -> None:
        """Forget the oldest revisions that every watcher has seen."""
        seen = min((reader.position for reader in self.readers), default=self._first + len(self._revisions))
        count = min(seen - self._first, len(self._revisions) - _KEPT)
        if count <= 0:
            return
        self._forgotten = self._revisions[count - 1]
        for revision in self._revisions[:count]:
            self._keys.pop(revision, None)
            self._acknowledged.pop(revision, None)
            self._early.pop(revision, None)
        del self._revisions[:count]
        self._first += count
