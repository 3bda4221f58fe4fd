"""Joins the directories of a part that was resumed into one, on the clock of the first."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tippingpoint.digest.unit_digest import make_digest
from tippingpoint.rundir.journal import CLOSED, HALF_MS, is_number, read_events
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.takeovers import KIND
from tippingpoint.rundir.worker_journal import bin_seconds_of, read_worker_log, worker_names


def digest_of(directories: Sequence[Path]) -> str:
    """Return the digest of a part from its directories, in order; empty if nothing was measured.

    A part that was refused before its workers began has no journal, and perhaps no directory.
    """
    there = [directory for directory in directories if worker_names(directory)]
    if len(there) < 2:
        return make_digest(there[0]) if there else ""
    with tempfile.TemporaryDirectory() as folder:
        join(there, Path(folder))
        return make_digest(Path(folder))


def join(directories: Sequence[Path], into: Path) -> None:
    """Write one run's directory from several, each of which resumed the one before.

    If a stage was repeated, only its last repetition counts. Earlier ones leave only a note that they happened.
    """
    manifests = [Manifest.load(directory) for directory in directories]
    origin = manifests[0].started
    again = inf
    cuts: list[_Cut] = []
    for directory in reversed(directories):
        begun = sorted(_begun(directory))
        end = min((t for stage, t in begun if stage >= again), default=inf)
        cuts.insert(0, _Cut(end, again))
        again = min(again, *(stage for stage, _ in begun), inf)
    before = 0.0
    for number, (directory, manifest, cut) in enumerate(zip(directories, manifests, cuts, strict=True)):
        shift = manifest.started - origin
        if number:
            first = min((stage for stage, _ in _begun(directory)), default=manifest.first_stage)
            _append(
                into / "events.jsonl",
                [_taken_up(directories[number - 1], first, shift, before, cuts[number - 1])],
            )
        logs = [*sorted(directory.glob("worker-*.jsonl")), directory / "events.jsonl"]
        written = {path.name: _written(into, path.name) if number else _Written() for path in logs}
        last = number == len(directories) - 1
        for path in sorted(directory.glob("*.hlog")):
            _append(into / path.name, _intervals(path, shift, cut.end))
        for path in logs:
            _append(into / path.name, _events(path, shift, cut, written[path.name], last=last))
        before = shift + max((tick[0] for tick in _last_ticks(directory)), default=0.0)
    joined = {"started": origin, "first_stage": manifests[0].first_stage}
    manifests[-1].model_copy(update=joined).save(into)


class _Cut(NamedTuple):
    """The point from which a directory is superseded by a later one."""

    end: float
    again: float
    """The first stage that is repeated there; those before it are complete."""


class _Written(NamedTuple):
    """How much of a journal comes from earlier directories, as its notes count it. What is damaged there stays so."""

    lines: int = 0
    samples: int = 0

    def renumber(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event of the next directory with notes that include these counts."""
        if event["event"] not in ("tick", CLOSED):
            return event
        notes = {"line": self.lines, "samples": self.samples}
        return {**event, **{name: event[name] + n for name, n in notes.items() if is_number(event.get(name))}}


def _written(into: Path, name: str) -> _Written:
    said = read_events(into / name)
    lines = said.lines + sum(gap[2] for gap in said.gaps)
    worker = name.removeprefix("worker-").removesuffix(".jsonl")
    if worker not in worker_names(into):
        return _Written(lines)
    notes = [event for event in said.events if event["event"] == "tick" and is_number(event.get("samples"))]
    since, samples = (notes[-1]["t"], notes[-1]["samples"]) if notes else (0.0, 0)
    log, batch = read_worker_log(into, worker, bin_seconds_of(into, [worker]))
    each = batch.totals(len(log.tags)).tolist()
    later = sum(n for n, begin in zip(each, log.begins, strict=True) if begin >= since - HALF_MS)
    return _Written(lines, samples + later)


def _taken_up(cut: Path, stage: int, t: float, before: float, where: _Cut) -> bytes:
    """Return the event that a part was resumed at `t`, after it was cut in that directory at `before`."""
    there = sum(int(held) for _, held in _last_ticks(cut))
    event = {"event": KIND, "t": round(t, 6), "stage": stage, "after": round(max(0.0, t - before), 3)}
    return orjson.dumps({**event, "there": there, "again": where.end < inf})


def _last_ticks(directory: Path) -> list[tuple[float, float]]:
    """Return when each worker ticked last, and how much it held."""
    last: list[tuple[float, float]] = []
    for path in directory.glob("worker-*.jsonl"):
        ticks = [event for event in read_events(path).events if event["event"] == "tick"]
        if ticks:
            last.append((float(ticks[-1]["t"]), float(ticks[-1].get("held", 0))))
    return last


def _begun(directory: Path) -> Iterable[tuple[int, float]]:
    """Return the stages of a directory, and when they began there."""
    for path in directory.glob("worker-*.jsonl"):
        for event in read_events(path).events:
            if event["event"] == "stage" and event.get("phase") == "begin":
                yield int(event["stage"]), float(event["t"])


def _intervals(path: Path, shift: float, end: float) -> Iterable[bytes]:
    """Return the lines of an interval log that begin before `end`, moved by `shift` seconds."""
    for line in path.read_bytes().split(b"\n")[:-1]:
        tag, *rest = line.split(b",")
        if not tag.startswith(b"Tag="):
            yield line
            continue
        try:
            begin = float(rest[0])
        except (IndexError, ValueError):
            continue
        if begin < end:
            yield b",".join([tag, f"{begin + shift:.3f}".encode(), *rest[1:]])


def _events(path: Path, shift: float, cut: _Cut, written: _Written, *, last: bool) -> Iterable[bytes]:
    said = read_events(path)
    for event in [*said.events, *([said.closed] if last and said.closed is not None else [])]:
        moved: dict[str, Any] = {**event, "t": round(event["t"] + shift, 6)}
        # A stage ends at the same moment at which the next one begins.
        ends = event["event"] == "stage" and event["stage"] < cut.again
        if event["t"] < cut.end or ends:
            yield orjson.dumps(written.renumber(moved))


def _append(path: Path, lines: Iterable[bytes]) -> None:
    with open(path, "ab") as file:
        file.writelines(line + b"\n" for line in lines)
