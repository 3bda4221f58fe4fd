"""What a worker writes while it runs: a HdrHistogram interval log and an event log, append-only.

Every line is written whole or not at all, so a worker killed at any instant loses at most the interval that
was open. A full disk loses nothing either: lines wait in memory until they can be written, and go to a
rescue directory when the run ends before that.

All times are seconds since the run's start on the monotonic clock, so a step of the wall clock moves nothing.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from tippingpoint.errors import UserError
from tippingpoint.hdr import Histogram

RESCUE_PREFIX = "tippingpoint-rescue-"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG}


class AppendFile:
    """A file that only grows by whole chunks. A chunk that finds no room waits in memory, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as problem:
            raise UserError(
                "--out", str(path), f"a directory that can be written ({problem.strerror})"
            ) from None
        self._size = os.fstat(self._fd).st_size
        self._waiting: list[bytes] = []

    @property
    def waiting(self) -> int:
        """How many chunks could not be written yet."""
        return len(self._waiting)

    def append(self, chunk: bytes) -> bool:
        """Write a chunk after all that wait; False when it has to wait too."""
        self._waiting.append(chunk)
        return self._flush()

    def _flush(self) -> bool:
        while self._waiting:
            if not self._write(self._waiting[0]):
                return False
            self._waiting.pop(0)
        return True

    def _write(self, chunk: bytes) -> bool:
        written = 0
        try:
            while written < len(chunk):
                written += os.write(self._fd, chunk[written:])
        except OSError as problem:
            if problem.errno not in _NO_ROOM:
                raise
            os.ftruncate(self._fd, self._size)  # no half line stays behind
            return False
        self._size += written
        return True

    def close(self, rescue: Path) -> int:
        """Close the file; chunks that still found no room go to a file of the same name in `rescue`.

        Returns how many chunks had to go there. OSError when that has no room either.
        """
        rescued = 0
        if not self._flush():
            rescue.mkdir(parents=True, exist_ok=True)
            with open(rescue / self.path.name, "ab") as file:
                file.write(b"".join(self._waiting))
            rescued = len(self._waiting)
            self._waiting.clear()
        os.close(self._fd)
        return rescued


class Events:
    """An event log: one JSON object a line, with `t` (seconds since the run's start) and `event`."""

    def __init__(self, path: Path) -> None:
        self._file = AppendFile(path)

    def write(self, t: float, event: str, **fields: object) -> bool:
        """Append an event; False when it waits for room on the disk."""
        return self._file.append(orjson.dumps({"t": round(t, 3), "event": event, **fields}) + b"\n")

    def close(self, rescue: Path) -> int:
        """Close the log; see AppendFile.close."""
        return self._file.close(rescue)


def interval_lines(begin: float, end: float, histograms: Mapping[str, Histogram]) -> str:
    """The log lines of one interval: start and length in seconds, maximum in milliseconds, V2 histogram."""
    return "".join(
        f"Tag={tag},{begin:.3f},{end - begin:.3f},{histogram.max / 1000:.3f},{histogram.encode()}\n"
        for tag, histogram in histograms.items()
    )


class Journal:
    """One worker's journal: `worker-NAME.hlog` and `worker-NAME.jsonl` in the run's directory."""

    def __init__(self, directory: Path, worker: str, started: float) -> None:
        """`started` is the run's start as seconds since the epoch: the anchor that log viewers show."""
        self.events = Events(directory / f"worker-{worker}.jsonl")
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
        """How many intervals wait in memory because the disk is full."""
        return self._log.waiting

    def interval(self, begin: float, end: float, histograms: Mapping[str, Histogram]) -> str:
        """Append one closed interval (seconds since the run's start); returns the lines as written."""
        lines = interval_lines(begin, end, histograms)
        if lines:
            self._log.append(lines.encode())
        return lines

    def close(self, rescue: Path) -> int:
        """Close both logs; returns how many lines had to go to `rescue` because the disk was full."""
        return self._log.close(rescue) + self.events.close(rescue)


@dataclass(frozen=True)
class IntervalLog:
    """The lines of an interval log as columns; damaged lines (a cut last one) are counted and left out."""

    tags: list[str]
    begins: list[float]
    lengths: list[float]
    encoded: list[bytes]
    damaged: int


def read_interval_log(path: Path) -> IntervalLog:
    """The columns of an interval log, in the order they were written."""
    tags: list[str] = []
    begins: list[float] = []
    lengths: list[float] = []
    encoded: list[bytes] = []
    damaged = 0
    names: dict[bytes, str] = {}
    data = path.read_bytes()
    lines = data.split(b"\n")
    damaged += lines.pop() != b""
    for line in lines:
        if line.startswith((b"#", b'"')):
            continue
        try:
            tag, begin, length, _, payload = line.split(b",")
            if not tag.startswith(b"Tag="):
                raise ValueError
            begins.append(float(begin))
            lengths.append(float(length))
        except ValueError:
            damaged += 1
            del begins[len(tags) :], lengths[len(tags) :]
            continue
        name = names.get(tag)
        if name is None:
            name = names[tag] = tag[4:].decode(errors="replace")
        tags.append(name)
        encoded.append(payload)
    return IntervalLog(tags, begins, lengths, encoded, damaged)


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a log in the order they were written; a cut last line is left out."""
    events: list[dict[str, Any]] = []
    if not path.exists():
        return events
    for line in path.read_bytes().split(b"\n"):
        try:
            event = orjson.loads(line)
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict) and "t" in event and "event" in event:
            events.append(cast(dict[str, Any], event))
    return events
