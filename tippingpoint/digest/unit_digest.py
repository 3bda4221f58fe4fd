"""Digests: the results of one unit's part of a run, as text that fits into a relation's databag.

The text is base64 of xz of a JSON head and the numbers that it describes (packing.py). For each phase, operation and
outcome there is one histogram, and how its samples are spread over the phase, in few slots. The histograms are exact
if that fits, and their course over time is as fine as then fits. The head says what is left out.
"""

from __future__ import annotations

import base64
import itertools
import lzma
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import orjson
from pydantic import BaseModel, Field, ValidationError

from tippingpoint.digest.events import Event, check_event, fewer
from tippingpoint.digest.packing import (
    MOST,
    coarsened,
    groups,
    pack_counts,
    pack_numbers,
    refined,
    signed,
    summed,
    unpack_counts,
    unpack_numbers,
    unsigned,
    width_of,
)
from tippingpoint.digest.part import (
    OVER_TIME_BITS,
    OVER_TIME_GROUPS,
    PLACES,
    TAG,
    WIDTHS,
    Phase,
    UnitPart,
    read_part,
    stage_of,
)
from tippingpoint.errors import UserError
from tippingpoint.rundir.gauges import GAUGES, SUMMED
from tippingpoint.rundir.histogram import SLOTS, FloatArray, IntArray, slots_of
from tippingpoint.rundir.journal import HALF_MS
from tippingpoint.rundir.manifest import RunStatus
from tippingpoint.rundir.recorder import HALF_BITS, HIGHEST_US
from tippingpoint.util.numbers import show_share

LIMIT = 40_000
"""Characters: two digests of a unit and its word fit into the 64 KiB that a relation's databag can hold."""
LEAST = 4_000
"""Characters that a digest needs at least."""
_UNPACKED = 1 << 20
"""The most bytes that a digest may unpack to: a larger one is refused."""
_MOST_SLOTS = 1 << 22
"""The most slots that its histograms may be spread over: 100 MB once they are read. One over its limit is not made."""
_HIGHEST_SLOT = int(slots_of(HIGHEST_US))
"""The slot of the longest time that is recorded, an hour."""
_MOST_EVENTS = (400, 100, 30, 10)
_SHARE_OF_EVENTS = 4
"""The share of the digest's size that single events may take: one in this many."""
_MOST_TICKS = 300
_POINTS = 60
"""Points over time that take precedence over the histograms' precision, once these are not exact."""
_FEW_MOMENTS = 10_000
"""Counts over time that probably fit into a digest as they are."""
_LINE = 300
_GONE = 3.0
"""Seconds without a tick after which a worker's gauges are out of date."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": _UNPACKED}]
"""xz makes these numbers a seventh smaller than zlib."""
_MEMORY = 16 << 20
"""Bytes of memory that unpacking may use."""
_LENGTH = struct.Struct(">I")
_INDEX = 5
"""Numbers that describe a histogram: tag, phase, how many words its counts take, lowest and highest slot."""
_SUMS = len(SUMMED)
_TICK_SCALES = np.asarray([{"rss": 10, "cpu": 1000, "loop_lag": 1000}.get(name, 1) for name in GAUGES])
"""Factors that make a tick's gauges whole numbers."""

Line = Annotated[str, Field(max_length=2 * _LINE)]
Tag = Annotated[str, Field(pattern=TAG)]
Count = Annotated[int, Field(ge=0, lt=MOST)]


class Head(BaseModel):
    """Everything in a digest except its numbers."""

    version: Literal[1] = 1
    run: Annotated[str, Field(max_length=200)]
    """The id of the part."""
    unit: Annotated[str, Field(max_length=200)]
    target: Annotated[str, Field(max_length=100)]
    target_version: Line
    members: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=50)]
    controller: Line
    status: RunStatus
    reason: Line
    started: Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
    """Seconds since the epoch by the unit's own clock: time 0 of all other times."""
    workers: Annotated[int, Field(ge=0, le=10_000)]
    cut: Annotated[int, Field(ge=0, le=10_000)]
    """How many of the workers ended before they were told to."""
    cores: Annotated[int, Field(ge=0, le=1_000_000)]
    notes: Annotated[list[Line], Field(max_length=20)]
    less: Annotated[list[Line], Field(max_length=20)]
    """Where the journals were more exact than this digest, in sentences."""
    bits: Annotated[int, Field(ge=0, le=HALF_BITS)]
    """The precision of the histograms: see packing.groups."""
    width: Annotated[int, Field(ge=0, le=WIDTHS[-1])]
    """Seconds in an interval; 0 if each phase is one interval."""
    phases: Annotated[list[Phase], Field(max_length=10_000)]
    tags: Annotated[list[Tag], Field(max_length=1000)]
    events: Annotated[list[dict[str, Any]], Field(max_length=1000)]
    histograms: Count
    ticks: Count


class Measured(NamedTuple):
    """The values recorded in one phase under one tag."""

    phase: int
    tag: str
    slots: IntArray
    counts: IntArray
    groups: IntArray
    """The groups of slots, with OVER_TIME_BITS, that have samples."""
    amounts: IntArray
    """How many samples each interval (row) has in each of these groups (column)."""


@dataclass(frozen=True)
class Digest:
    """A part as its digest describes it; times are milliseconds since its start."""

    head: Head
    measured: list[Measured]
    moments: IntArray
    """The moments of its ticks."""
    gauges: FloatArray
    """A row for each tick, a column for each of GAUGES."""


@dataclass(frozen=True)
class _Detail:
    """How much detail a digest has."""

    bits: int = HALF_BITS
    width: int = 0
    service: bool = True
    first: int = 0
    """The first phase that is included."""
    events: int = _MOST_EVENTS[0]
    ticks: int = _MOST_TICKS


def make_digest(directory: Path, limit: int = LIMIT, stage: int | None = None) -> str:
    """Return the digest of the part of a run in a directory, or of one `stage` of it.

    It has at most `limit` characters (at least LEAST). Raises UserError when there is no run or stage. A digest that
    does not fit loses its course over time first, then precision of the histograms, which makes room for some course
    over time. Then it loses service times and single events, and in the end the first stages.
    """
    if limit < LEAST:
        raise ValueError(f"a limit of {limit} characters: expected at least {LEAST}")
    part = read_part(directory) if stage is None else stage_of(read_part(directory), stage)
    begins = [phase.begin / 1000 for phase in part.phases]
    events = _events_within(part, begins, limit // _SHARE_OF_EVENTS)

    def told(detail: _Detail) -> str:
        few = events if len(events[0]) <= detail.events else fewer(part.events, detail.events, begins)
        return _text(part, detail, *few)

    if part.moments[0].size <= _FEW_MOMENTS:
        # Most parts of a short run fit as they are, and trying that first is quick, because each text is packed anew.
        text = told(_Detail(width=part.width))
        if len(text) <= limit:
            return text
    detail, text = _Detail(), told(_Detail())
    if len(text) > limit:
        detail, text = _first_that_fits(_details(part), told, limit)
    if detail.bits < OVER_TIME_BITS:
        return text
    finer = [
        replace(detail, width=w) for w in WIDTHS if w >= part.width and (w < detail.width or not detail.width)
    ]
    return _first_that_fits([*finer, detail], told, limit)[1]


def _first_that_fits(
    details: Sequence[_Detail], told: Callable[[_Detail], str], limit: int
) -> tuple[_Detail, str]:
    """Return the first of these details whose text fits, or the last. Each needs less room than the one before."""
    fails, fits = -1, len(details) - 1
    text = ""
    while fits - fails > 1 or not text:
        tried = (fits + fails) // 2 if fits - fails > 1 else fits
        candidate = told(details[tried])
        if len(candidate) <= limit or tried == len(details) - 1:
            text, fits = candidate, tried
        else:
            fails = tried
    return details[fits], text


def _details(part: UnitPart) -> list[_Detail]:
    """Return the levels of detail to try if not everything fits, from the most to the least."""
    least = part.phases[-1].end / 1000 / _POINTS
    width = next((width for width in WIDTHS if width >= max(part.width, least)), WIDTHS[-1])
    begins = [number for number, phase in enumerate(part.phases) if phase.phase == "begin"]
    firsts: list[int] = []
    while len(begins) > 1:
        begins = begins[1 + len(begins) // 8 :]
        firsts += begins[:1]
    return [
        *(_Detail(bits=bits, width=width) for bits in range(HALF_BITS - 1, 4, -1)),
        *(_Detail(bits=bits, ticks=60) for bits in (5, 4)),
        *(_Detail(bits=bits, service=False, events=30, ticks=0) for bits in (4, 3, 2)),
        *(
            _Detail(bits=2, service=False, first=first, events=10, ticks=0)
            for first in (*firsts, len(part.phases))
        ),
    ]


def _events_within(part: UnitPart, begins: Sequence[float], room: int) -> tuple[list[Event], int]:
    """Return as many single events as there is room for, and how many events are left out."""
    for most in _MOST_EVENTS:
        events, untold = fewer(part.events, most, begins)
        if len(lzma.compress(orjson.dumps(events))) * 4 // 3 <= room:
            return events, untold
    return fewer(part.events, 0, begins)


def _text(part: UnitPart, detail: _Detail, events: list[Event], untold: int) -> str:
    phases = [
        phase.model_copy(
            update={
                "gauges": phase.gauges and {name: round(value, 3) for name, value in phase.gauges.items()}
            }
        )
        for phase in part.phases[detail.first :]
    ]
    moments, gauges = _ticks(part, phases, detail.ticks)
    histograms, numbers, slots = _histograms(part, detail)
    if slots > _MOST_SLOTS:
        return "." * _UNPACKED  # longer than any limit
    manifest = part.manifest
    head = Head(
        run=manifest.id[:200],
        unit=manifest.unit[:200],
        target=manifest.target.kind[:100],
        target_version=_line(manifest.target.version),
        members=[member[:200] for member in manifest.target.members[: detail.events // 8]],
        controller=_line(manifest.target.controller),
        status=manifest.status,
        reason=_line(manifest.reason),
        started=manifest.started,
        workers=len(manifest.workers),
        cut=sum(worker.status == "cut" for worker in manifest.workers),
        cores=manifest.host.cores if manifest.host is not None else 0,
        notes=[_line(note) for note in part.notes[: detail.events // 20]],
        less=_less(part, detail, untold),
        bits=detail.bits,
        width=detail.width,
        phases=phases,
        tags=part.tags if phases else [],
        events=events,
        histograms=histograms,
        ticks=moments.size,
    )
    told = orjson.dumps(head.model_dump(exclude_defaults=True))
    deltas = np.diff(np.column_stack((moments, gauges)), axis=0, prepend=0)
    packed = (
        _LENGTH.pack(len(told)) + told + pack_numbers(np.concatenate((*numbers, signed(deltas.T.ravel()))))
    )
    if len(packed) > _UNPACKED:
        return "." * _UNPACKED  # longer than any limit
    return base64.b64encode(lzma.compress(packed, check=lzma.CHECK_CRC32, filters=_FILTERS)).decode()


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LINE else line[: _LINE - 3] + "..."


def _less(part: UnitPart, detail: _Detail, untold: int) -> list[str]:
    """Return what this level of detail leaves out, in sentences."""
    less: list[str] = []
    if detail.bits < HALF_BITS:
        less.append(f"latencies are accurate to {show_share(2.0**-detail.bits)}")
    if detail.width == 0:
        less.append("a point over time covers a whole phase of a stage")
    elif detail.width > 1:
        less.append(f"a point over time covers {detail.width} s")
    if not detail.service:
        less.append("service times are left out")
    if detail.first:
        kept = [phase.stage for phase in part.phases[detail.first :]]
        less.append(f"the stages before stage {kept[0]} are left out" if kept else "all stages are left out")
    if untold:
        less.append(f"{untold} of its single events are left out")
    return less


def _histograms(part: UnitPart, detail: _Detail) -> tuple[int, list[IntArray], int]:
    """Return how many histograms there are, their numbers (descriptions, counts, and course over time) and slots."""
    keys, counts = part.counts
    numbers, first = np.unique(keys // SLOTS, return_index=True)
    ends = np.append(first, keys.size)[1:]
    index: list[tuple[int, ...]] = []
    words: list[IntArray] = []
    amounts: list[IntArray] = []
    width = 0
    rows: list[list[int]] = np.stack((numbers, first, ends), axis=1).tolist()
    for number, begin, end in rows:
        tag, place = number // len(part.phases), number % len(part.phases)
        if place < detail.first or not (detail.service or not part.tags[tag].endswith(".service")):
            continue
        slots, of_slot = keys[begin:end] % SLOTS, np.minimum(counts[begin:end], MOST // 2 - 1)
        places, of_place = coarsened(slots, of_slot, detail.bits)
        words.append(pack_counts(places, of_place))
        width += width_of(places, detail.bits)
        lowest, highest = int(slots[0]), int(slots[-1])
        if detail.bits == HALF_BITS:
            lowest = highest = 0  # the counts have both
        index.append((tag, place - detail.first, words[-1].size, lowest, highest))
        intervals = part.phases[place].intervals(detail.width)
        if intervals > 1:
            amounts.append(_amounts(part, number, groups(OVER_TIME_BITS)[slots], intervals, detail.width))
    columns = np.asarray(index, dtype=np.int64).reshape(-1, _INDEX)
    return len(index), [columns.T.ravel(), *words, *amounts], width


def _amounts(part: UnitPart, number: int, of_slots: IntArray, intervals: int, width: int) -> IntArray:
    """Return how many samples of a histogram each interval has in each of its groups, row by row."""
    keys, counts = part.moments
    cells = part.intervals * OVER_TIME_GROUPS
    inside = slice(*np.searchsorted(keys, (number * cells, (number + 1) * cells)).tolist())
    filled = np.unique(of_slots)
    group = np.searchsorted(filled, keys[inside] % OVER_TIME_GROUPS)
    interval = keys[inside] // OVER_TIME_GROUPS % part.intervals * part.width // width
    cell = np.minimum(interval, intervals - 1) * filled.size + group
    return np.bincount(cell, weights=counts[inside], minlength=intervals * filled.size).astype(np.int64)


def _ticks(part: UnitPart, phases: Sequence[Phase], most: int) -> tuple[IntArray, IntArray]:
    """Return at most `most` moments (or none), and the gauges of all workers at these, as whole numbers.

    Load is its value at the moment, health the worst value since the moment before. A worker whose ticks ended some
    seconds before is left out.
    """
    lasting = [phase for phase in phases if phase.length]
    width = next((w for w in (*WIDTHS, 0) if sum(phase.intervals(w) for phase in lasting) <= most), None)
    moments: list[int] = []
    rows: list[FloatArray] = []
    for phase in lasting if width is not None else ():
        for number in range(1, phase.intervals(width or 0) + 1):
            moment = min(phase.begin + 1000 * number * width, phase.end) if width else phase.end
            since = moments[-1] if moments else phase.begin
            row = np.zeros(len(GAUGES))
            for times, gauges in part.ticks:
                begin, end = np.searchsorted(
                    times, (since / 1000 + HALF_MS, moment / 1000 + HALF_MS), side="right"
                )
                if end and times[-1] > since / 1000 - _GONE:
                    row[:_SUMS] += gauges[:_SUMS, end - 1]
                    worst = gauges[_SUMS:, min(begin, end - 1) : end].max(axis=1)
                    row[_SUMS:] = np.maximum(row[_SUMS:], worst)
            moments.append(moment)
            rows.append(row)
    scaled = np.rint(np.asarray(rows).reshape(-1, len(GAUGES)) * _TICK_SCALES)
    return np.asarray(moments, dtype=np.int64), np.clip(scaled, 0, MOST // 4).astype(np.int64)


def read_digest(text: str) -> Digest:
    """Return the content of a digest; raises UserError, in one line, for any other text."""
    try:
        return _read(text)
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, ValidationError):
            first = problem.errors(include_url=False, include_input=False)[0]
            why = f"{'.'.join(str(place) for place in first['loc'])}: {first['msg']}"
        else:
            why = str(problem)
        raise UserError("digest", text[:40], f"the digest of a part of a run ({_line(why)})") from None


def _read(text: str) -> Digest:
    if len(text) > _UNPACKED or not text.isascii():
        raise ValueError("too long, or not ASCII")
    unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
    try:
        packed = unpacking.decompress(base64.b64decode(text, validate=True), _UNPACKED + 1)
    except lzma.LZMAError as problem:
        raise ValueError(str(problem)) from None
    if len(packed) > _UNPACKED or not unpacking.eof or len(packed) < _LENGTH.size:
        raise ValueError("truncated, or too large")
    end = _LENGTH.size + _LENGTH.unpack_from(packed)[0]
    head = Head.model_validate(orjson.loads(packed[_LENGTH.size : end]))
    _check_phases(head.phases)
    for event in head.events:
        check_event(event)
    numbers = _Numbers(unpack_numbers(packed[end:]))
    index = numbers.take(_INDEX * head.histograms).reshape(_INDEX, head.histograms).T
    words = [unpack_counts(numbers.take(int(row[2]))) for row in index]
    room = _MOST_SLOTS
    measured: list[Measured] = []
    for (tag, place, _, lowest, highest), (places, counts) in zip(index.tolist(), words, strict=True):
        if tag >= len(head.tags) or place >= len(head.phases) or not places.size:
            raise ValueError("a histogram without a tag, a phase or samples")
        if places[-1] > groups(head.bits)[_HIGHEST_SLOT] or highest > _HIGHEST_SLOT:
            raise ValueError("a value of more than an hour")
        room -= width_of(places, head.bits)
        if room < 0:
            raise ValueError("more values than a unit measures")
        slots, counts = _refined(places, counts, head.bits, lowest, highest)
        of_slots = groups(OVER_TIME_BITS)[slots]
        filled, sums = summed(of_slots, counts)
        intervals = head.phases[place].intervals(head.width)
        amounts = sums[None, :]
        if intervals > 1:
            amounts = numbers.take(intervals * filled.size).reshape(intervals, filled.size)
            if (amounts.sum(axis=0) != sums).any():
                raise ValueError("a course over time that does not match its histogram")
        measured.append(
            Measured(place, head.tags[tag], slots, counts, np.searchsorted(filled, of_slots), amounts)
        )
    columns = 1 + len(GAUGES)
    ticks = np.cumsum(unsigned(numbers.take(columns * head.ticks)).reshape(columns, head.ticks).T, axis=0)
    if numbers.left or (ticks < 0).any() or (np.diff(ticks[:, 0]) < 0).any():
        raise ValueError("numbers that do not match the head")
    return Digest(head, measured, ticks[:, 0], ticks[:, 1:] / _TICK_SCALES)


class _Numbers:
    """Numbers that are read in order."""

    def __init__(self, numbers: IntArray) -> None:
        self._numbers = numbers
        self._taken = 0

    @property
    def left(self) -> int:
        return self._numbers.size - self._taken

    def take(self, count: int) -> IntArray:
        """Return the next numbers; raises ValueError if there are fewer."""
        if count > self.left:
            raise ValueError("fewer numbers than the head says")
        self._taken += count
        return self._numbers[self._taken - count : self._taken]


def _check_phases(phases: Sequence[Phase]) -> None:
    """Raise ValueError unless the phases follow each other as in a journal."""
    for before, phase in itertools.pairwise(phases):
        if phase.begin < before.end or (phase.stage, PLACES[phase.phase]) <= (
            before.stage,
            PLACES[before.phase],
        ):
            raise ValueError("phases that do not follow each other")
    if any((phase.phase == "") != (phase.stage == 0) for phase in phases):
        raise ValueError("a phase without a stage")
    if any(phase.gauges is not None and phase.gauges.keys() != set(GAUGES) for phase in phases):
        raise ValueError("unknown gauges")


def _refined(
    places: IntArray, counts: IntArray, bits: int, lowest: int, highest: int
) -> tuple[IntArray, IntArray]:
    """Return the slots and counts of a histogram; raises ValueError for an impossible one."""
    of_slot = groups(bits)
    if places[-1] > of_slot[-1] or counts.min() < 1 or counts.sum() >= MOST // 2:
        raise ValueError("an impossible histogram")
    if bits == HALF_BITS:
        return places, counts
    if not lowest <= highest < SLOTS or (of_slot[lowest], of_slot[highest]) != (places[0], places[-1]):
        raise ValueError("a histogram whose ends do not match")
    if (lowest < highest and counts.sum() < 2) or (lowest == highest and places.size > 1):
        raise ValueError("a histogram whose ends do not match")
    return refined(places, counts, bits, lowest, highest)
