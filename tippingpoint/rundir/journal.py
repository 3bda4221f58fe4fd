"""A worker's journal, written while it runs: an HdrHistogram interval log and an event log, both append-only.

Every line is written as a whole or not at all, so a worker killed at any instant loses at most the open interval. A
full disk loses nothing either: lines are kept in memory until they can be written. If the run ends before that, they
go to a rescue directory.

All times are seconds since the run's start on the monotonic clock, so a step of the wall clock changes nothing.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeGuard, cast

import orjson

from tippingpoint.errors import UserError
from tippingpoint.rundir.event_shapes import is_sound
from tippingpoint.rundir.files import new_file, open_file, read_file
from tippingpoint.rundir.held import HeldDirectory, by_name

RESCUE_PREFIX = "tippingpoint-rescue-"
_APPEND = os.O_WRONLY | os.O_APPEND
_LONGEST = 1e9
"""Seconds, longer than any run (32 years): a later time is damage."""


HALF_MS = 0.0005
"""Seconds: times in journals are rounded to milliseconds."""
CLOSED = "closed"
"""The event at the end of a log that was closed in an orderly way."""


class AppendFile:
    """A file that grows by whole chunks only. A chunk that cannot be written waits in memory, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, _APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise UserError(
                "--out", str(by_name(path)), f"a writable directory ({problem.strerror})"
            ) from None
        self._size = os.fstat(self._fd).st_size
        self._waiting: list[bytes] = []

    @property
    def waiting(self) -> int:
        """How many chunks have not been written yet."""
        return len(self._waiting)

    def append(self, chunk: bytes) -> bool:
        """Write a chunk after those that wait; returns False if it has to wait too."""
        self._waiting.append(chunk)
        return self._flush()

    def _flush(self) -> bool:
        try:
            self._write_waiting()
        except OSError:
            return False
        return True

    def _write_waiting(self) -> None:
        while self._waiting:
            self._write(self._waiting[0])
            self._waiting.pop(0)

    def _write(self, chunk: bytes) -> None:
        written = 0
        try:
            while written < len(chunk):
                written += os.write(self._fd, chunk[written:])
        except OSError:
            try:
                os.ftruncate(self._fd, self._size)  # leave no partial line
            except OSError:
                # The partial line stays, so the next bytes written have to be the rest of it.
                self._size += written
                self._waiting[0] = chunk[written:]
            raise
        self._size += written

    def close(self, rescue: Path) -> int:
        """Close the file; chunks that could not be written go to a file of the same name in `rescue`.

        `rescue` is made unless it exists; it must be ours. Returns how many chunks went there. Raises OSError when not
        all can be written there either: the file is closed all the same, and `rescue` holds whole chunks only.
        """
        try:
            if self._flush():
                return 0
        finally:
            os.close(self._fd)
        held = HeldDirectory.open_own(rescue, make=True)
        try:
            return self._rescue(held.inside / self.path.name)
        finally:
            held.close()

    def _rescue(self, path: Path) -> int:
        self._fd = new_file(path, flags=_APPEND)
        self._size = 0
        rescued = len(self._waiting)
        try:
            self._write_waiting()
        finally:
            os.close(self._fd)
            if not self._size:
                path.unlink()
        return rescued


class Events:
    """An event log: one JSON object a line, with `t` (seconds since the run's start) and `event`.

    Some events, among them `closed` at the end, have their line number, so that missing lines are noticed.
    """

    def __init__(self, path: Path) -> None:
        self._file = AppendFile(path)
        self._lines = 0
        self._last = 0.0

    def write(self, t: float, event: str, **fields: object) -> bool:
        """Append an event; returns False if it waits because it cannot be written."""
        self._lines += 1
        self._last = max(self._last, t)
        return self._file.append(orjson.dumps({"t": round(t, 3), "event": event, **fields}) + b"\n")

    def write_numbered(self, t: float, event: str, **fields: object) -> bool:
        """Append an event with its line number."""
        return self.write(t, event, **fields, line=self._lines + 1)

    def close(self, rescue: Path, **totals: object) -> int:
        """End the log with the event `closed` and these totals; see AppendFile.close."""
        self.write_numbered(self._last, CLOSED, **totals)
        return self._file.close(rescue)


class Interval(Protocol):
    """The values recorded under one tag in one interval."""

    @property
    def total(self) -> int:
        """How many values were recorded."""
        ...

    @property
    def max(self) -> int:
        """The largest value in microseconds."""
        ...

    def encode(self) -> str:
        """Return the V2 compressed encoding in base64."""
        ...


def interval_lines(begin: float, end: float, histograms: Mapping[str, Interval]) -> str:
    """Return the log lines of one interval: start and length in seconds, maximum in milliseconds, V2 histogram."""
    return "".join(
        f"Tag={tag},{begin:.3f},{end - begin:.3f},{histogram.max / 1000:.3f},{histogram.encode()}\n"
        for tag, histogram in histograms.items()
    )


class Journal:
    """One worker's journal: `worker-NAME.hlog` and `worker-NAME.jsonl` in the run's directory."""

    def __init__(self, directory: Path, worker: str, started: float) -> None:
        """`started` is the run's start in seconds since the epoch, from which log viewers count."""
        self.events = Events(directory / f"worker-{worker}.jsonl")
        self._samples = 0
        self._log = AppendFile(directory / f"worker-{worker}.hlog")
        date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(started))
        self._log.append(
            f"#[tippingpoint worker {worker}; values in microseconds, maxima in milliseconds]\n"
            "#[Histogram log format version 1.3]\n"
            f"#[StartTime: {started:.3f} (seconds since epoch), {date}]\n"
            '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"\n'.encode()
        )

    @property
    def waiting(self) -> int:
        """How many intervals are kept in memory because the disk is full."""
        return self._log.waiting

    def interval(self, begin: float, end: float, histograms: Mapping[str, Interval]) -> str:
        """Append a closed interval (seconds since the run's start); returns the lines as written."""
        lines = interval_lines(begin, end, histograms)
        if lines:
            self._samples += sum(histogram.total for histogram in histograms.values())
            self._log.append(lines.encode())
        return lines

    def tick(self, t: float, **gauges: object) -> None:
        """Append the gauges at the end of an interval, and how many samples were written until then."""
        self.events.write_numbered(t, "tick", **gauges, samples=self._samples)

    def close(self, rescue: Path) -> int:
        """Close both logs, whatever happens; returns how many chunks went to `rescue`. See AppendFile.close."""
        try:
            rescued = self._log.close(rescue)
        finally:
            of_events = self.events.close(rescue, samples=self._samples)
        return rescued + of_events


@dataclass(frozen=True)
class IntervalLog:
    """The lines of an interval log as columns. Damaged lines, such as a partial last one, are counted and left out.

    Payloads are not decoded yet: one may turn out not to be a histogram.
    """

    tags: list[str]
    begins: list[float]
    lengths: list[float]
    encoded: list[bytes]
    damaged: int
    cut_off: int = 0
    """1 if the last line is partial: it is among the damaged ones until the rest of it is written."""
    end: int = 0
    """The first byte after the last whole line."""

    def rows(self, first: int, last: int | None = None) -> IntervalLog:
        """Return some of its intervals, without information about damage."""
        at = slice(first, last)
        return IntervalLog(self.tags[at], self.begins[at], self.lengths[at], self.encoded[at], 0)


def read_interval_log(path: Path, *, since: int = 0) -> IntervalLog:
    """Return the columns of an interval log, in the order in which they were written.

    `since` is the byte at which to begin: the `end` of what was read before.
    """
    tags: list[str] = []
    begins: list[float] = []
    lengths: list[float] = []
    encoded: list[bytes] = []
    damaged = 0
    names: dict[bytes, str] = {}
    data = read_file(path, since=since)
    lines = data.split(b"\n")
    rest = lines.pop()
    damaged += rest != b""
    for line in lines:
        if line.startswith((b"#", b'"')):
            continue
        try:
            tag, begin, length, payload = _columns(line)
        except ValueError:
            damaged += 1
            continue
        name = names.get(tag)
        if name is None:
            name = names[tag] = tag[4:].decode(errors="replace")
        tags.append(name)
        begins.append(begin)
        lengths.append(length)
        encoded.append(payload)
    end = since + len(data) - len(rest)
    return IntervalLog(tags, begins, lengths, encoded, damaged, int(rest != b""), end)


def last_begin(path: Path) -> float:
    """Return when the last interval of a log began; 0.0 if none is among its last lines."""
    with open_file(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 65536))
        lines = file.read().split(b"\n")
    for line in reversed(lines[:-1]):
        try:
            return _columns(line)[1]
        except ValueError:
            continue
    return 0.0


def _columns(line: bytes) -> tuple[bytes, float, float, bytes]:
    """Return tag, begin, length and payload of a line; raises ValueError if it is damaged."""
    tag, begin, length, _, payload = line.split(b",")
    since, seconds = float(begin), float(length)
    if not (tag.startswith(b"Tag=") and 0 <= since < _LONGEST and 0 <= seconds < _LONGEST):
        raise ValueError("no interval")
    return tag, since, seconds, payload


@dataclass(frozen=True)
class EventLog:
    """The events of a log in the order in which they were written; damaged lines are counted and left out.

    Each has a time `t` (seconds) and a kind `event` (a string). Other fields are as event_shapes.py requires.
    """

    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    damaged: int = 0
    gaps: list[tuple[float, float, int]] = field(default_factory=list[tuple[float, float, int]])
    """Between which times how many lines are missing, by their line numbers; a negative count means extra lines."""
    closed: dict[str, Any] | None = None
    """The event `closed`; None if the log was cut or is still being written."""
    cut_off: int = 0
    """1 if its last line is damaged, for example because its writer was killed."""
    lines: int = 0
    """How many lines were read."""
    end: int = 0
    """The first byte after them; 0 if the last line is partial, and may still become a whole one."""
    since: float = 0.0
    """The time of the last line that has a number."""


def read_events(path: Path, known: EventLog | None = None) -> EventLog:
    """Return the events of a log; empty if there is no such file.

    `known` is what was read from the same log before, which is not read again.
    """
    if known is None or not known.end:
        known = EventLog()
    events, gaps = [*known.events], [*known.gaps]
    closed, since = known.closed, known.since
    damaged, lines, cut_off = known.damaged, known.lines, known.cut_off
    missing = sum(gap[2] for gap in gaps)
    data = read_file(path, since=known.end) if os.path.lexists(path) else b""
    for line in data.split(b"\n"):
        if not line:
            continue
        lines += 1
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            event = None
        if not _is_event(event):
            cut_off = 1
            damaged += 1
            continue
        cut_off = 0
        number = event.get("line") if event["event"] in ("tick", CLOSED) else None
        if isinstance(number, int) and not isinstance(number, bool):
            if number - lines != missing:
                gaps.append((since, float(event["t"]), number - lines - missing))
                missing = number - lines
            since = float(event["t"])
        if event["event"] == CLOSED:
            closed = event
        else:
            events.append(event)
    end = 0 if data and not data.endswith(b"\n") else known.end + len(data)
    return EventLog(events, damaged, gaps, closed, cut_off, lines, end, since)


def _is_event(value: object) -> TypeGuard[dict[str, Any]]:
    if not isinstance(value, dict):
        return False
    fields = cast(dict[str, Any], value)
    return is_seconds(fields.get("t")) and isinstance(fields.get("event"), str) and is_sound(fields)


def is_seconds(value: object) -> bool:
    """Return whether a value read from an event can be a time in a run."""
    return is_number(value) and 0 <= cast(float, value) < _LONGEST


def is_number(value: object) -> bool:
    """Return whether a value read from an event is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def count_of(event: Mapping[str, Any]) -> int:
    """Return how many occurrences an event stands for."""
    count = event.get("count", 1)
    return count if isinstance(count, int) else 1
