"""One turn of a run by many units, gathered from their reports as if one machine had brought its load."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

from tippingpoint.analysis.search.stage_margins import Second
from tippingpoint.run.hold_so_far import Measured
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.tags import OUTCOMES
from tippingpoint.units.digest import Digest, read_digest
from tippingpoint.units.merge import gather
from tippingpoint.units.search_words import ProbeReport
from tippingpoint.units.shared_run import SharedRun, Turn, UnitWord
from tippingpoint.units.spread import Placed

_LONGEST = 10**10
"""More milliseconds than any stage has."""


def unread(run: SharedRun, turn: Turn, reports: Mapping[str, ProbeReport]) -> str:
    """Return whose report on a turn is not known; empty if all are."""
    for unit in turn.sharing(run.units):
        report = reports.get(unit)
        if report is None or (report.run, report.turn) != (run.id, turn.number):
            return f"{unit}: its figures of turn {turn.number} are not known"
    return ""


@contextlib.contextmanager
def gathered(
    run: SharedRun,
    turn: Turn,
    words: Mapping[str, UnitWord],
    reports: Mapping[str, ProbeReport],
    folder: Path,
    turns: Sequence[Turn],
) -> Generator[RunData]:
    """Gather what the units that share a turn have reported, below `folder`. `turns` are those that they report on."""
    sharing = turn.sharing(run.units)
    alone = [each.model_copy(update={"of": len(sharing), "lost": []}) for each in turns]
    whole = run.model_copy(
        update={
            "units": sharing,
            "missing": {},
            "probes": [],
            "found": None,
            "recovery": None,
            "turns": alone,
        }
    )
    if turn.ends is not None:  # all units have ended it as agreed: it was not cut
        whole = whole.model_copy(update={"over": True})
    digests = {unit: reports[unit].digest for unit in sharing}
    with tempfile.TemporaryDirectory(prefix="judging-", dir=folder) as out:
        yield load_run(gather(whole, digests, words, Path(out)))


def digests_of(run: SharedRun, turn: Turn, reports: Mapping[str, ProbeReport]) -> list[Digest]:
    """Return the digests of the units that share a turn."""
    return [read_digest(reports[unit].digest) for unit in turn.sharing(run.units)]


def seconds_of(digests: Sequence[Digest], number: int) -> tuple[int, dict[int, Measured]]:
    """Return how many seconds each part of a turn lasts, and the histograms of all units in each part.

    The parts are counted from the begin of the hold, and those before it have negative numbers. There are none if a
    digest does not say how its samples are spread.
    """
    width = max(digest.head.width for digest in digests)
    if any(not digest.head.width for digest in digests):
        return width, {}
    step = 1000 * width
    zero = _LONGEST // step * step
    parts: defaultdict[int, Measured] = defaultdict(dict)
    for digest in digests:
        phases = [phase for phase in digest.head.phases if (phase.stage, phase.phase) == (number, "hold")]
        for hold in phases:
            for begin, _, histograms in Placed(digest, zero - hold.begin).intervals(width):
                if begin >= zero + hold.length:
                    continue
                part = parts[(begin - zero) // step]
                for tag, encoded in histograms.items():
                    if tag.rpartition(".")[2] in OUTCOMES:
                        part.setdefault(tag, Histogram()).add(Histogram.decode(encoded.text))
    return width, {number: parts[number] for number in sorted(parts)}


def hold_seconds(digests: Sequence[Digest], turn: Turn) -> list[Second]:
    """Return the histograms of equal parts of a turn's hold, in order."""
    return [part for number, part in seconds_of(digests, turn.number)[1].items() if number >= 0]
