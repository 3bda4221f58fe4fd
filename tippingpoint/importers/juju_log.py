"""Imports a log of Juju's leadershipclaimer as a run directory that loads, reports and compares like any other.

A log has no common clock, and does not show how many leases were held. So the user assigns lines to stages (`--stage`,
or a sidecar file). Time in the run is the order of its stages: stage k lies between k - 1 and k.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from array import array
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.importers.juju_log_lines import SIDECAR_SUFFIX, Line, parse_line
from tippingpoint.plan.base import MAX_STAGES
from tippingpoint.plan.claim import MAX_LEASES
from tippingpoint.rundir.held import HeldDirectory, by_name, make_directories
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import RESCUE_PREFIX, Events, Journal
from tippingpoint.rundir.manifest import Manifest, TargetEntry, WorkerEntry, new_run_id
from tippingpoint.rundir.operations import CONNECT
from tippingpoint.rundir.tags import tag
from tippingpoint.util import timing
from tippingpoint.util.inputs import Input
from tippingpoint.util.secret_files import read_text
from tippingpoint.util.strict_yaml import StrictLoader

WORKER = "log"
LONGEST_LINE = 4 << 10
"""The most bytes of a line that are read; the tool's lines have 200."""
LONGEST_TO_SKIP = 16 << 20
"""The most bytes of a line that are skipped, for example a hole that a crash left in a file."""
EXAMPLE = "93.596s extended a0702/0 held for 1m30s in 47ms"
CLOSED_LOOP = (
    "closed loop: the tool timed each call from its send and sent the next renewal only after the answer, "
    "so response times are service times here"
)
_STAGE = re.compile(r"([0-9]{1,9})@([0-9]{1,12})(?::(ramp|storm))?")
_STAGE_FORM = "SIZE@LINE or SIZE@LINE:storm, such as 2000@66 (2000 leases from line 66 on)"


class LoggedStage(BaseModel):
    """The first line (counted from 1) from which this many leases were held, or intended."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    size: Annotated[int, Field(ge=1, le=MAX_LEASES, strict=True)]
    line: Annotated[int, Field(ge=1, strict=True)]
    kind: Literal["ramp", "storm"] = "ramp"
    because: str = ""
    """The evidence: a command or a count in the log, or a sentence of the source."""


class LoggedTarget(BaseModel):
    """The target of the log."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Annotated[str, Field(min_length=1)] = "juju"
    version: str = ""


class Sidecar(BaseModel):
    """The facts that a log lacks: YAML in a file with the log's name and `.stages.yaml` added."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    target: LoggedTarget = LoggedTarget()
    stages: Annotated[list[LoggedStage], Field(max_length=MAX_STAGES)] = []


def import_log(
    log: Path | Input,
    out: Path,
    stages: Sequence[str] = (),
    sidecar: Path | None = None,
    title: str | None = None,
) -> Path:
    """Make a run directory below `out` from a log, and return its path.

    `log` is a path, or an input that is open already. `stages` (`SIZE@LINE`, `SIZE@LINE:storm`) replace those of the
    sidecar. The sidecar is the log's name with `.stages.yaml` added, unless another is given. Lines without a sample
    are counted, and the run has their number. Raises UserError if the log cannot be read, has no sample, or has one
    before the first stage.
    """
    if isinstance(log, Path):
        with Input("log", log) as opened:
            return import_log(opened, out, stages, sidecar, title)
    described = _sidecar(log.path, sidecar)
    plan = [_parse_stage(text) for text in stages] or described.stages
    _check_order(plan)
    name = log.name
    title = title or described.title or name
    started = timing.wall()
    with new_run(out, title, started) as (run_id, directory):
        _write(log, plan, directory, started)
        Manifest(
            id=run_id,
            title=title,
            source="import",
            origin=f"{name}, a log of leadershipclaimer ({CLOSED_LOOP})",
            timeline="order",
            target=TargetEntry(kind=described.target.kind, version=described.target.version),
            status="complete",
            started=started,
            ended=timing.wall(),
            workers=[WorkerEntry(name=WORKER, status="complete")],
        ).save(directory)
    return out / run_id


@contextlib.contextmanager
def new_run(out: Path, title: str, started: float) -> Generator[tuple[str, Path]]:
    """Yield a new run's id, and the directory to write it into, which becomes `out`/ID when it is complete.

    Raises UserError if `out` cannot be written. Any error leaves nothing behind.
    """
    run_id = new_run_id(re.sub(r"[^a-z0-9.]+", "-", title.lower()).strip("-.")[:40] or "import", started)
    try:
        make_directories(out)
        held = HeldDirectory.make_temporary(f".{run_id}-", out)
    except OSError as problem:
        raise UserError("--out", str(out), f"a directory that can be written ({problem.strerror})") from None
    try:
        yield run_id, held.inside
        os.fchmod(held.descriptor, 0o755)
        held.path.rename(out / run_id)
    except BaseException as problem:
        shutil.rmtree(held.path, ignore_errors=True)
        if isinstance(problem, OSError):  # what is read has its own error
            raise _no_room(out, problem) from None
        raise
    finally:
        held.close()


def _no_room(out: Path, problem: OSError) -> UserError:
    accepted = f"a directory with room for the imported run ({problem.strerror})"
    return UserError("--out", str(out), accepted)


@contextlib.contextmanager
def new_journal(directory: Path, worker: str, started: float) -> Generator[tuple[Journal, Events]]:
    """Yield the journal of an imported run's only worker, and the run's own events.

    Raises UserError if the disk is full.
    """
    journal = Journal(directory, worker, started)
    run_events = Events(directory / "events.jsonl")
    rescued = 0
    try:
        yield journal, run_events
    finally:
        rescue = directory / RESCUE_PREFIX.rstrip("-")
        rescued = journal.close(rescue) + run_events.close(rescue)
    if rescued:
        raise UserError("--out", str(by_name(directory).parent), "a directory with room for the imported run")


def _parse_stage(text: str) -> LoggedStage:
    found = _STAGE.fullmatch(text)
    if found is None:
        raise UserError("--stage", text, _STAGE_FORM)
    size, line = int(found[1]), int(found[2])
    if not 1 <= size <= MAX_LEASES or line < 1:
        raise UserError("--stage", text, f"{_STAGE_FORM}; SIZE from 1 to {MAX_LEASES}, LINE from 1")
    return LoggedStage(size=size, line=line, kind="storm" if found[3] == "storm" else "ramp")


def _check_order(stages: Sequence[LoggedStage]) -> None:
    if len(stages) > MAX_STAGES:
        raise UserError("--stage", f"{len(stages)} stages", f"at most {MAX_STAGES}")
    for before, after in itertools.pairwise(stages):
        if after.line <= before.line:
            raise UserError("--stage", f"{after.size}@{after.line}", f"a line after {before.line}, in order")


def _sidecar(log: Path, given: Path | None) -> Sidecar:
    path = given or log.with_name(log.name + SIDECAR_SUFFIX)
    if given is None and not path.is_file():
        return Sidecar()
    try:
        text = read_text("sidecar", path, "a readable YAML file")
        return Sidecar.model_validate(yaml.load(text, StrictLoader) or {})
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        field = ".".join(str(part) for part in error["loc"]) or "sidecar"
        accepted = "title, target (kind, version) and stages (a list of size, line, kind ramp|storm, because)"
        raise UserError(f"{path.name}: {field}", error["input"], f"{accepted} ({error['msg']})") from None
    except (ValueError, OverflowError, yaml.YAMLError, RecursionError) as problem:
        told = " ".join(str(problem).split())
        raise UserError("sidecar", str(path), f"a readable YAML file ({told})") from None


def _write(log: Input, stages: Sequence[LoggedStage], directory: Path, started: float) -> None:
    with new_journal(directory, WORKER, started) as (journal, run_events):
        reading = _Reading(journal, stages)
        reading.read(_lines(log))
        for text in reading.notes(log.name):
            run_events.write(0.0, "note", text=text)


def _lines(log: Input) -> Iterator[str]:
    """Yield the lines of a log; for overlong ones the beginning.

    Raises UserError if it cannot be read to its end, or a line is longer than LONGEST_TO_SKIP, as in a file that is not
    text.
    """

    def read() -> bytes:
        try:
            return log.file.readline(LONGEST_LINE)
        except OSError as problem:
            raise log.unreadable(problem) from None

    number = 0
    while begin := read():
        number += 1
        size = len(begin)
        rest = begin
        while not rest.endswith(b"\n") and (rest := read()):
            size += len(rest)
            if size > LONGEST_TO_SKIP:
                accepted = f"a log, whose lines have at most {LONGEST_LINE >> 10} KiB"
                raise UserError("log", f"line {number} is longer than {LONGEST_TO_SKIP >> 20} MiB", accepted)
        yield begin.decode("utf-8", "replace") + ("..." if rest is not begin else "")


class _Reading:
    """One pass over a log. Samples of the open stage are in memory, closed stages in the journal."""

    def __init__(self, journal: Journal, stages: Sequence[LoggedStage]) -> None:
        self._journal = journal
        self._stages = stages
        self._open = 0
        """The number of the open stage; 0 before the first."""
        self._samples: dict[str, array[int]] = {}
        self._in_stage = 0
        self._empty_stages: list[int] = []
        self._counts: Counter[str] = Counter()
        self._first_damaged = 0
        self._holding: dict[str, float] = {}
        """Holders of leases, with their process's age at the last line about it."""
        self._twins: set[tuple[str, float, float | None]] = set()

    def read(self, lines: Iterable[str]) -> None:
        number = 0
        for number, text in enumerate(lines, start=1):
            if self._open < len(self._stages) and number == self._stages[self._open].line:
                self._next_stage()
            try:
                line = parse_line(text)
            except ValueError:
                self._counts["damaged"] += 1
                self._first_damaged = self._first_damaged or number
                continue
            if line is None:
                self._counts["other"] += 1
            else:
                self._take(line, number)
        self._counts["lines"] = number
        if not self._counts["samples"]:
            raise UserError(
                "log",
                f"no sample in {number} lines",
                f"a log of the lease tool, with lines such as {EXAMPLE!r}",
            )
        if self._open < len(self._stages):
            stage = self._stages[self._open]
            raise UserError("--stage", f"{stage.size}@{stage.line}", f"a line of the log, which has {number}")
        self._end_stage()

    def notes(self, name: str) -> list[str]:
        """Return remarks on the source for the run's reader."""
        counts = self._counts
        found = [f"{counts['samples']} samples from {counts['lines']} lines of {name}; {CLOSED_LOOP}"]
        found += [
            f"stage {number}: {stage.size} leases from line {stage.line} on: {stage.because}"
            for number, stage in enumerate(self._stages, start=1)
            if stage.because
        ]
        if counts["other"]:
            found.append(f"{counts['other']} lines are no samples and were left out")
        if counts["damaged"]:
            found.append(
                f"{counts['damaged']} lines begin like samples and cannot be read, the first is line "
                f"{self._first_damaged}"
            )
        if counts["twins"]:
            found.append(f"{counts['twins']} timeouts stand twice (stdout and stderr) and were counted once")
        if counts["connected"] or counts["refused"]:
            found.append(
                f"{counts['connected']} connections made and {counts['refused']} refused; the log does not say "
                "how long a refusal took"
            )
        if counts["early"]:
            found.append(f"{counts['early']} connections were made before the first stage and not measured")
        if self._empty_stages:
            numbers = ", ".join(str(number) for number in self._empty_stages)
            found.append(f"no sample in stage {numbers}")
        return found

    def _next_stage(self) -> None:
        self._end_stage()
        stage = self._stages[self._open]
        self._open += 1
        self._mark(stage, "begin", self._open - 1)

    def _mark(self, stage: LoggedStage, phase: str, t: int) -> None:
        # There is no `hold` mark: a log does not show when a load was up, so rates would be invented.
        self._journal.events.write(
            float(t), "stage", stage=self._open, size=stage.size, kind=stage.kind, phase=phase
        )

    def _end_stage(self) -> None:
        if not self._open:
            return
        if not self._in_stage:
            self._empty_stages.append(self._open)
        histograms = {
            name: Histogram.of(np.frombuffer(values, dtype=np.int64))
            for name, values in sorted(self._samples.items())
        }
        self._journal.interval(float(self._open - 1), float(self._open), histograms)
        self._mark(self._stages[self._open - 1], "end", self._open)
        self._samples.clear()
        self._in_stage = 0

    def _take(self, line: Line, number: int) -> None:
        if line.action == "connected":
            self._counts["connected"] += 1
            self._holding.pop(line.holder, None)
            if self._open:
                self._record(tag(CONNECT), line)
                self._record(tag(CONNECT, service=True), line)
            else:
                self._counts["early"] += 1
        elif line.action == "refused":
            self._counts["refused"] += 1
            outcome = "limited" if "try again" in line.error else "error"
            self._event(number, line, "error", operation=CONNECT, outcome=outcome, error=line.error)
        elif line.action == "blocking":
            self._counts["blocking"] += 1
            self._holding.pop(line.holder, None)
            if line.error:
                self._event(number, line, "error", operation="wait", outcome="error", error=line.error)
        else:
            self._sample(line, number)

    def _sample(self, line: Line, number: int) -> None:
        if line.twin:
            twin = (line.holder, line.age, line.took)
            if twin in self._twins:
                self._counts["twins"] += 1
                return
            self._twins.add(twin)
        if not self._open:
            raise UserError(
                "--stage",
                f"line {number} is a sample before the first stage",
                f"SIZE@LINE, with SIZE the leases held from LINE on, such as --stage 1000@{number}; "
                f"or a sidecar LOG{SIDECAR_SUFFIX} with `stages: [{{size: 1000, line: {number}}}]`",
            )
        self._counts["samples"] += 1
        self._in_stage += 1
        if line.action == "claimed" or line.action == "extended":
            operation = "claim" if line.action == "claimed" else "extend"
            self._holding[line.holder] = line.age
            self._record(tag(operation), line)
            self._record(tag(operation, service=True), line)
        elif line.action == "denied":
            self._holding.pop(line.holder, None)
            self._record(tag("claim", "denied"), line)
        elif line.action == "lost":
            self._holding.pop(line.holder, None)
            self._record(tag("extend", "lost"), line)
            self._event(number, line, "lost", held_for=line.held_for)
        else:
            operation = "extend" if self._held_at_send(line) else "claim"
            outcome = "timeout" if line.timed_out else "error"
            self._record(tag(operation, outcome), line)
            self._event(number, line, "error", operation=operation, outcome=outcome, error=line.error)

    def _held_at_send(self, line: Line) -> bool:
        """Return whether a failed claim was a renewal: the tool writes `claim of ... failed` for both."""
        since = self._holding.get(line.holder)
        return since is not None and line.age - (line.took or 0.0) >= since - 0.001

    def _record(self, name: str, line: Line) -> None:
        values = self._samples.get(name)
        if values is None:
            values = self._samples[name] = array("q")
        values.append(round((line.took or 0.0) * 1e6))

    def _event(self, number: int, line: Line, event: str, **fields: object) -> None:
        if self._open:  # the middle of the stage, because there is no common clock
            self._journal.events.write(
                self._open - 0.5,
                event,
                lease=line.lease,
                unit=line.holder,
                age=line.age,
                line=number,
                count=1,
                **fields,
            )
