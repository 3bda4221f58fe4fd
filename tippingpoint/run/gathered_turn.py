"""One turn of a run by many units, gathered from their reports as if one machine had brought its load."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Reported:
    """What the units of a run said of its last turn, by which that is judged."""

    run: SharedRun
    words: Mapping[str, UnitWord]
    reports: Mapping[str, ProbeReport]
    folder: Path
    """Files are made below it, and removed."""

    @property
    def turn(self) -> Turn:
        """The turn that is judged; IndexError before the first."""
        return self.run.turns[-1]

    @property
    def sharing(self) -> list[str]:
        """The units that share the turn."""
        return self.turn.sharing(self.run.units)

    @property
    def lost(self) -> str:
        """Which unit of the turn is missing; empty if none is."""
        return next((unit for unit in self.sharing if unit in self.run.missing), "")

    @property
    def unread(self) -> str:
        """Whose report on the turn is not known; empty if all are."""
        for unit in self.sharing:
            report = self.reports.get(unit)
            if report is None or (report.run, report.turn) != (self.run.id, self.turn.number):
                return f"{unit}: its figures of turn {self.turn.number} are not known"
        return ""

    @property
    def digests(self) -> list[Digest]:
        """The digests of the units that share the turn."""
        return [read_digest(self.reports[unit].digest) for unit in self.sharing]

    @contextlib.contextmanager
    def gathered(self, turns: Sequence[Turn]) -> Generator[RunData]:
        """Gather what the units that share the turn have reported. `turns` are those that they report on."""
        sharing = self.sharing
        alone = [each.model_copy(update={"of": len(sharing), "lost": []}) for each in turns]
        whole = self.run.model_copy(
            update={
                "units": sharing,
                "missing": {},
                "probes": [],
                "found": None,
                "recovery": None,
                "turns": alone,
            }
        )
        if self.turn.ends is not None:  # all units have ended it as agreed: it was not cut
            whole = whole.model_copy(update={"over": True})
        digests = {unit: self.reports[unit].digest for unit in sharing}
        with tempfile.TemporaryDirectory(prefix="judging-", dir=self.folder) as out:
            yield load_run(gather(whole, digests, self.words, Path(out)))


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
