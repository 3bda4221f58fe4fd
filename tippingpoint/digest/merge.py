"""Gathers the parts of several units into one run: a directory that can be opened like that of any other run.

Each unit appears in it as one worker. Its journal is written anew from its digest: the histograms of each phase,
spread over the phase as the digest says. Times are on the run's own clock, whose 0 is when its first turn begins. A
digest comes from another machine and is not trusted: the unit of an invalid one is missing, with one line that says
why.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import BaseModel, Field, ValidationError

from tippingpoint.conduct.recovery_messages import RECOVERING
from tippingpoint.conduct.run_state import ABORTED, SharedRun, UnitWord
from tippingpoint.digest.part import Phase
from tippingpoint.digest.spread import Placed
from tippingpoint.digest.unit_digest import Head, read_digest
from tippingpoint.errors import UserError
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.fields import StageKind, as_amount
from tippingpoint.plan.read import Plan, said_kinds
from tippingpoint.rundir.curves import CHART_BINS
from tippingpoint.rundir.damage import DAMAGED
from tippingpoint.rundir.figure_values import EVENT as FIGURE
from tippingpoint.rundir.figure_values import FigureValue
from tippingpoint.rundir.gathered import GATHERED, UNIT, Unit, UnitStatus
from tippingpoint.rundir.journal import Events, Journal
from tippingpoint.rundir.manifest import FILE, Manifest, RunStatus, TargetEntry, WorkerEntry, Workload
from tippingpoint.rundir.probe_events import EVENT, FOUND, ProbeEvent
from tippingpoint.util.text import choose, show_count

_EARLY = 60.0
"""Seconds that a unit's first stage may begin before the run does: how far an unmeasured clock may be off."""
_LATE = 3600.0
"""Seconds after the end of the last known turn in which operations in flight may still end."""
_LONGEST = 30 * 86400.0
"""The most seconds that a search may take, because it has no turns."""
_LEAST_POINTS = 30
"""The fewest points over time: a unit with longer intervals is spread over those of the other units."""
_WHOLE_PHASES = 10
"""Seconds of an interval in a phase whose course over time is unknown."""


@dataclass
class _MergedPart:
    """One unit, and what is known about its part."""

    unit: str
    word: UnitWord | None
    head: Head | None
    problem: str
    """Why there is no digest; empty if there is one."""
    is_reference: bool = False
    """Whether the run's times are by this unit's clock."""
    shift: int = 0
    """Milliseconds to add to its times."""
    status: UnitStatus = "complete"
    why: str = ""

    @property
    def offset(self) -> float | None:
        """Seconds that its clock is ahead of the run's."""
        if self.is_reference:
            return 0.0
        return self.word.offset if self.word is not None else None

    @property
    def offset_error(self) -> float | None:
        """Seconds that `offset` may be off."""
        if self.is_reference:
            return 0.0
        return self.word.offset_error if self.word is not None else None

    @property
    def phases(self) -> list[Phase]:
        """The phases of its stages."""
        return [phase for phase in self.head.phases if phase.stage] if self.head is not None else []

    @property
    def failed(self) -> bool:
        """Whether it could not begin or could not go on."""
        said = self.word is not None and self.word.phase == "failed"
        return said or (self.head is not None and self.head.status == "failed")


def gather(run: SharedRun, digests: Mapping[str, str], words: Mapping[str, UnitWord], out: Path) -> Path:
    """Write the run, from the digests and last words of its units, to a directory in `out`; returns the directory.

    Files of an earlier call are replaced, other files stay. Raises UserError when the run's plan is invalid, or when
    the directory cannot be written.
    """
    try:
        plan = run.validated()
    except ValidationError:
        raise UserError("run", run.id, "a plan that this version reads") from None
    parts = [_part(run, unit, digests.get(unit), words.get(unit)) for unit in dict.fromkeys(run.units)]
    _set_reference(parts)
    begin = _begin(run, parts)
    for number, part in enumerate(parts):
        _place(run, part, begin)
        part.status, part.why = _status(run, number, part)
    directory = out / run.id
    try:
        directory.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=".gathering-", dir=directory))
        try:
            _Gathering(run, plan, parts, begin, fresh).write(digests)
            _replace(fresh, directory)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as problem:
        raise UserError("--out", str(directory), f"a writable directory ({problem.strerror})") from None
    return directory


def _part(run: SharedRun, unit: str, text: str | None, word: UnitWord | None) -> _MergedPart:
    part = _MergedPart(unit, word if word is not None and word.run == run.id else None, None, "")
    if text is None:
        part.problem = "its result did not arrive" if run.over else "its result has not arrived yet"
        return part
    try:
        head = read_digest(text).head
    except UserError as refused:
        part.problem = f"its result cannot be read: {refused}"
        return part
    if head.run.startswith(f"{run.id}.") and head.unit in ("", unit):
        part.head = head
    else:
        part.problem = f"its result belongs to another run ({head.run} of {head.unit or 'no unit'})"
    return part


def _set_reference(parts: Iterable[_MergedPart]) -> None:
    """Make the first unit with a word the reference of the run's clock, if it has measured no offset itself."""
    first = next((part for part in parts if part.word is not None), None)
    if first is not None and first.offset is None:
        first.is_reference = True


def _begin(run: SharedRun, parts: Iterable[_MergedPart]) -> float:
    """Return when the run began: with its first turn, or the only part of a search, or else when it was requested."""
    if run.started is not None:
        return run.started
    begun = [part.head.started - (part.offset or 0.0) for part in parts if part.head is not None]
    return max(0.0, min(begun, default=run.made))


def _place(run: SharedRun, part: _MergedPart, begin: float) -> None:
    """Find a unit's times in the run; a digest with impossible times is refused."""
    if part.head is None:
        return
    part.shift = round((part.head.started - (part.offset or 0.0) - begin) * 1000)
    latest = max(turn.until for turn in run.turns) - begin + _LATE if run.turns else _LONGEST
    first = min((phase.begin for phase in part.phases), default=-part.shift)
    last = max((phase.end for phase in part.head.phases), default=-part.shift)
    if first + part.shift < -_EARLY * 1000 or last + part.shift > latest * 1000:
        part.head, part.problem = (
            None,
            "its times do not fit the run: its clock, or the offset measured for it, is wrong",
        )


def _status(run: SharedRun, number: int, part: _MergedPart) -> tuple[UnitStatus, str]:
    """Return what became of a unit's share, and why in one line."""
    said = run.missing.get(part.unit, "")
    if not said and part.word is not None and part.word.phase == "failed":
        said = part.word.problem or "it failed"
    head = part.head
    if head is None or not part.phases:
        had = any(turn.place_of(number) is not None for turn in run.turns)
        if not (said or run.searches_alone or had):
            return "idle", "it joined after the last stage had begun" if run.turns else "no stage began"
        return "missing", _line(
            said or part.problem or (head.reason if head else "") or "it measured nothing"
        )
    if not said and (head.status in ("cut", "failed") or (head.status == "interrupted" and not run.stopped)):
        said = head.reason or head.status
    if not said and head.cut:
        said = (
            f"{head.cut} of its {show_count(head.workers, 'worker')} ended before "
            f"{choose(head.cut, 'it was', 'they were')} told to"
        )
    return ("cut", _line(said)) if said else ("complete", "")


def _line(text: str) -> str:
    return " ".join(text.split())


class _Gathering:
    """Writes the files of a run into a directory of their own."""

    def __init__(
        self, run: SharedRun, plan: Plan, parts: Sequence[_MergedPart], begin: float, into: Path
    ) -> None:
        self._run, self._plan, self._parts, self._begin, self._into = run, plan, parts, begin, into
        self._loads = _loads(run, plan, parts)
        ends = [
            (phase.end + part.shift) / 1000
            for part in parts
            if part.head is not None
            for phase in part.head.phases
        ]
        self._seconds = max(0.0, *ends) if ends else 0.0
        widths = [part.head.width or _WHOLE_PHASES for part in parts if part.head is not None]
        within = max((width for width in widths if width * _LEAST_POINTS <= self._seconds), default=1)
        self._interval = max(within, math.ceil(self._seconds / CHART_BINS))
        self._events: list[dict[str, Any]] = []
        self._notes: defaultdict[str, list[str]] = defaultdict(list)
        """What the reader should know about the data, and which units it concerns."""
        self._cleaned = 0

    def write(self, digests: Mapping[str, str]) -> None:
        """Write all files, the manifest last."""
        target: Head | None = None
        for part in self._parts:
            if part.head is not None:
                target = target or part.head
                self._write_unit(part, digests[part.unit])
        self._tell_of_units()
        self._tell_of_judged()
        log = Events(self._into / "events.jsonl")
        log.write(0.0, GATHERED, interval=self._interval)
        for event in sorted(self._events, key=lambda event: event["t"]):
            _write(log, event)
        self._close(log)
        self._manifest(target).save(self._into)

    def _close(self, file: Events | Journal) -> None:
        """Close a file; raises OSError when not all of it could be written."""
        rescue = self._into / "rescue"
        if file.close(rescue):
            raise OSError(0, "no disk space left")

    def _write_unit(self, part: _MergedPart, text: str) -> None:
        """Write a unit's journal: marks with gauges, ticks, single events and intervals."""
        digest = read_digest(text)
        placed = Placed(digest, part.shift)
        journal = Journal(self._into, part.unit.replace("/", "-"), self._begin)
        for begin, phase in placed.marks:
            kind, size = self._loads.get(phase.stage, (phase.kind, phase.size))
            mark: dict[str, Any] = {"stage": phase.stage, "size": size, "kind": kind, "phase": phase.phase}
            if phase.gauges is not None:
                mark["gauges"] = phase.gauges
            journal.events.write(begin / 1000, "stage", **mark)
        for moment, gauges in placed.ticks:
            journal.events.write(moment / 1000, "tick", **gauges)
        for event in digest.head.events:
            t = min(max(0.0, event["t"] + part.shift / 1000), self._seconds)
            self._retell(journal, part, {**event, "t": t})
        for begin, end, histograms in placed.intervals(self._interval):
            journal.interval(begin / 1000, end / 1000, histograms)
        self._close(journal)

    def _retell(self, journal: Journal, part: _MergedPart, event: dict[str, Any]) -> None:
        """Write a unit's event in the form that suits the whole run."""
        unit = part.unit
        kind = event["event"]
        match kind:
            case "stage" | "tick" | "interrupted" | "aborted" | "unit" | "gathered":
                return  # these are written here, whatever a digest says
            case "note":
                self._notes[_line(str(event.get("text", "")))].append(unit)
            case "cleaned":
                removed = event.get("removed")
                self._cleaned += removed if isinstance(removed, int) else 0
            case "probe" | "found" | "recovering" | "figure":
                if self._run.searches_alone and _is_of_a_search(event):
                    self._events.append(event)
            case _ if kind == DAMAGED:
                until, worker = event.get("until"), event.get("worker")
                # Damage from before the run began is reported at its begin.
                shifted = (
                    max(event["t"], until + part.shift / 1000) if isinstance(until, int | float) else None
                )
                told = {**event, "until": shifted, "worker": f"{unit} worker {worker}" if worker else unit}
                _write(journal.events, told)
            case "left-behind":
                told = {
                    **event,
                    "problem": f"{unit}: {event.get('problem')}",
                    "remedy": f"juju run {unit} clean, unless its agent does that first: it retries for a day",
                }
                _write(journal.events, told)
            case "journal-lost" | "fault-failed" | "room-unknown":
                _write(journal.events, {**event, "problem": f"{unit}: {event.get('problem')}"})
            case "left-to-expire" if not isinstance(event.get("leases"), int):
                return
            case _:
                worker = event.get("worker")
                _write(
                    journal.events, {**event, "worker": unit if worker is None else f"{unit} worker {worker}"}
                )

    def _tell_of_units(self) -> None:
        """Write the events about the units: what their digests leave out, and from when on a share is missing."""
        of = max((turn.of for turn in self._run.turns), default=len(self._parts))
        for number, part in enumerate(self._parts, start=1):
            unit = Unit(
                name=part.unit,
                share=number,
                of=of,
                status=part.status,
                why=part.why,
                workers=part.head.workers if part.head is not None else 0,
                cores=part.word.cores
                if part.word is not None
                else part.head.cores
                if part.head is not None
                else 0,
                clock_offset=part.offset,
                clock_error=part.offset_error,
            )
            self._events.append({"t": 0.0, "event": UNIT, **unit.model_dump()})
            if part.status in ("cut", "missing"):
                last = max((phase.begin for phase in part.phases), default=-part.shift) + part.shift
                t = min(max(0.0, last / 1000), self._seconds)
                self._events.append({"t": t, "event": "worker-cut", "worker": part.unit, "problem": part.why})
            for text in [*part.head.less, *part.head.notes] if part.head is not None else ():
                self._notes[text].append(part.unit)
        for text, units in self._notes.items():
            self._events.append(
                {"t": 0.0, "event": "note", "text": f"{_named([*dict.fromkeys(units)])}: {text}"}
            )
        if self._run.stopped:
            aborted = self._run.stopped.startswith(ABORTED)
            self._events.append({"t": self._seconds, "event": "aborted" if aborted else "interrupted"})
        if self._cleaned:
            self._events.append({"t": self._seconds, "event": "cleaned", "removed": self._cleaned})

    def _tell_of_judged(self) -> None:
        """Write the events of what the leader judged or requested: the loads that a shared search tried, its answer,
        the lower loads after it, and the Prometheus figures in all turns."""
        for probe in self._run.probes:
            t = min(probe.began + probe.seconds, self._seconds)
            self._events.append({"t": t, "event": EVENT, **probe.model_dump()})
        if self._run.found is not None:
            self._events.append({"t": self._seconds, "event": FOUND, **self._run.found.model_dump()})
        if self._run.recovery is not None:
            lowered = self._run.recovery.events()
            self._events += [{"t": self._seconds, "event": RECOVERING, **fields} for fields in lowered]
        figures = self._run.figures
        for value in figures.known(self._plan):
            self._events.append({"t": self._seconds, "event": FIGURE, **value.model_dump()})
        if figures.unwatched:
            text = f"figures with abort were not watched all the time: {figures.unwatched}"
            self._events.append({"t": 0.0, "event": "note", "text": text})

    def _manifest(self, head: Head | None) -> Manifest:
        status, reason = _ended(self._run, self._parts)
        target = TargetEntry(kind=self._plan.target.kind)
        if head is not None:
            target.version, target.members = head.target_version, head.members
            target.controller = head.controller
        return Manifest(
            id=self._run.id,
            title=self._plan.name,
            workload=cast(Workload, said_kinds(self._run.plan)[0] or "claim"),
            load_unit=self._plan.load_unit,
            target=target,
            plan=self._run.plan,
            status=status,
            reason=reason,
            started=self._begin,
            ended=self._begin + self._seconds,
            workers=[
                WorkerEntry(name=part.unit, status="complete" if part.status == "complete" else "cut")
                for part in self._parts
                if part.status != "idle"
            ],
        )


def _write(log: Events, event: Mapping[str, Any]) -> None:
    fields = {name: value for name, value in event.items() if name not in ("self", "t", "event")}
    log.write(event["t"], event["event"], **fields)


def _ended(run: SharedRun, parts: Sequence[_MergedPart]) -> tuple[RunStatus, str]:
    """Return the status of the run as a whole, and why; a few missing units do not end it."""
    failed = [
        part
        for part in parts
        if part.status == "missing" and (part.failed or (run.over and part.unit in run.missing))
    ]
    if failed and not any(part.phases for part in parts):
        return "failed", f"{_named([part.unit for part in failed])}: {failed[0].why}"
    if not run.over:
        return "cut", "not all of its units have ended their parts"
    if run.stopped.startswith(ABORTED):
        return "aborted", run.stopped.removeprefix(ABORTED)
    return ("interrupted", run.stopped) if run.stopped else ("complete", "")


def _named(units: Sequence[str]) -> str:
    """Return up to three units by name; if there are more, the first and a count."""
    return ", ".join(units) if len(units) <= 3 else f"{units[0]} and {len(units) - 1} more units"


def _loads(run: SharedRun, plan: Plan, parts: Iterable[_MergedPart]) -> dict[int, tuple[StageKind, float]]:
    """Return kind and load by the number of a stage in the journals, as the whole plan has them; empty for a search
    by a single unit.

    Storms requested during a run are in no plan. A stage is found in the plan by counting the stages before it, by
    the kind that most units have for each, and from the turns that are still known.
    """
    if run.shared:
        return _probed(run, plan, parts)
    if run.searches:
        return {}
    loads = _lowered(run, parts)
    kinds: defaultdict[int, Counter[StageKind]] = defaultdict(Counter)
    for part in parts:
        for phase in part.phases:
            kinds[phase.stage][phase.kind] += phase.phase == "begin"
    turns = {turn.number: turn for turn in run.turns}
    listed, before = 0, 0
    for number in sorted(kinds.keys() - loads.keys()):
        storm = kinds[number].most_common(1)[0][0] == "storm"
        listed += number - before - storm
        before = number
        if number in turns:
            listed, storm = turns[number].stage, turns[number].kind == "storm"
        if 1 <= listed <= len(plan.loads):
            kind, size = plan.loads[listed - 1]
            loads[number] = ("storm" if storm else kind, size)
    return loads


def _probed(run: SharedRun, plan: Plan, parts: Iterable[_MergedPart]) -> dict[int, tuple[StageKind, float]]:
    """Return the loads of a search's turns; for turns in which a unit was lost, the sum of the known shares."""
    loads: defaultdict[int, float] = defaultdict(float)
    for part in parts:
        for phase in part.phases:
            loads[phase.stage] += phase.size if phase.phase == "begin" else 0.0
    for turn in run.turns:
        if turn.kind == "find" and turn.load is not None and not isinstance(plan, CtsPlan):
            loads[turn.number] = plan.load_at(turn.load)
    for probe in run.probes:
        if probe.stage is not None:
            loads[probe.stage] = probe.size
    probed: dict[int, tuple[StageKind, float]] = {number: ("find", load) for number, load in loads.items()}
    return {**probed, **_lowered(run, parts)}


def _lowered(run: SharedRun, parts: Iterable[_MergedPart]) -> dict[int, tuple[StageKind, float]]:
    """Return the loads of turns after the last load; for one that was not judged, the sum of its shares."""
    loads: defaultdict[int, float] = defaultdict(float)
    for part in parts:
        for phase in part.phases:
            if phase.kind == "recover":
                loads[phase.stage] += phase.size if phase.phase == "begin" else 0.0
    for turn in run.turns:
        if turn.kind == "recover" and turn.load is not None:
            loads[turn.number] = turn.load
    for shown in run.recovery.loads if run.recovery is not None else ():
        if shown.stage is not None:
            loads[shown.stage] = shown.load
    return {number: ("recover", as_amount(load)) for number, load in loads.items()}


class _Found(BaseModel, extra="forbid"):
    """The result of a search, as play/alone.py writes it."""

    t: float
    event: Literal["found"]
    ended: str = Field(max_length=100)
    limit: float | None
    low: float
    high: float | None


class _Skipped(BaseModel, extra="forbid"):
    """Why no lower loads followed a search, as play/alone.py writes it."""

    t: float
    event: Literal["recovering"]
    skipped: str


class _Lowered(BaseModel, extra="forbid"):
    """A lower load after a search, as play/alone.py writes it."""

    t: float
    event: Literal["recovering"]
    stage: int | None
    size: float
    held: bool | None
    after: float | None
    seconds: float
    broken: float
    before: float | None
    why: str = ""


def _is_of_a_search(event: dict[str, Any]) -> bool:
    lowered = _Skipped if "skipped" in event else _Lowered
    models = {EVENT: ProbeEvent, FOUND: _Found, RECOVERING: lowered, FIGURE: FigureValue}
    model: type[BaseModel] = models[event["event"]]
    try:
        model.model_validate(event)
    except ValidationError:
        return False
    return True


def _replace(fresh: Path, directory: Path) -> None:
    """Replace a run's old files by its new ones, the manifest last."""
    names = {path.name for path in fresh.iterdir()}
    for path in directory.glob("worker-*"):
        if path.name not in names:
            path.unlink()
    for name in sorted(names, key=lambda name: name == FILE):
        (fresh / name).replace(directory / name)
