"""What the units' digests show about the last turn of a run of many units, for judging it."""

from __future__ import annotations

import contextlib
import tempfile
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, inf
from pathlib import Path

import numpy as np

from tippingpoint.analysis.recovery.recovery_watch import RecoveryWatch, window_of
from tippingpoint.analysis.search.stage_margins import Second
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitWord
from tippingpoint.conduct.search_messages import ProbeReport
from tippingpoint.digest.merge import gather
from tippingpoint.digest.spread import Placed
from tippingpoint.digest.unit_digest import Digest, read_digest
from tippingpoint.plan.read import SearchPlan
from tippingpoint.rundir.histogram import Histogram, highest_values
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.tags import OUTCOMES

_LONGEST = 10**10
"""More milliseconds than any stage has."""
_WHOLE = 0.99
"""The least share of a load that has to be measured: shares of a rate are rounded."""


@dataclass(frozen=True)
class FromDigests:
    """A turn of a run of many units, from their reports."""

    run: SharedRun
    words: Mapping[str, UnitWord]
    reports: Mapping[str, ProbeReport]
    folder: Path
    """Files are made below it, and removed."""
    aborted = ""

    @property
    def ended(self) -> float:
        """When the turn ended."""
        return self._turn.until if self.run.turns else 0.0

    @property
    def lost(self) -> str:
        """Which unit of the turn is missing; empty if none is."""
        return next((unit for unit in self._sharing if unit in self.run.missing), "")

    @property
    def unread(self) -> str:
        """The unit whose report on the turn is missing; empty if none is."""
        for unit in self._sharing:
            report = self.reports.get(unit)
            if report is None or (report.run, report.turn) != (self.run.id, self._turn.number):
                return f"{unit}: its figures of turn {self._turn.number} are not known"
        return ""

    @property
    def gone(self) -> str:
        """Why the target no longer accepts logins, from the first unit that reports it."""
        return next((self.reports[unit].gone for unit in self._sharing if self.reports[unit].gone), "")

    @property
    def missing(self) -> str:
        """Why the first share that was never applied was not."""
        shares = (self.reports[unit] for unit in self._sharing if unit in self.reports)
        return next((report.missing for report in shares if report.missing), "")

    @property
    def unanswered(self) -> Mapping[str, Sequence[float]]:
        """The ages of all calls without an answer, by operation."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for unit in self._sharing:
            for operation, text in self.reports[unit].unanswered.items():
                slots, counts = Histogram.decode(text).filled()
                found[operation] += np.repeat(highest_values(slots) / 1e6, counts).tolist()
        return found

    @property
    def parts(self) -> Sequence[Second]:
        """The histograms of equal parts of the turn's hold, in order."""
        return [part for number, part in self._seconds[1].items() if number >= 0]

    def held_since(self, plan: SearchPlan, *, whole_hold: bool) -> float:
        """Return the moment since which all units together met the thresholds for a while.

        Where things are removed, nothing counts before all units hold the lower load. If it is unknown how the samples
        are spread, thresholds have to be met over the `whole_hold`.
        """
        turn = self._turn
        assert turn.hold is not None  # it is over
        width, parts = self._seconds
        if not parts:
            return turn.hold if whole_hold else inf
        watch = RecoveryWatch(plan.thresholds, ceil(window_of(plan) / width) * width)
        watch.begin(turn.begin - width if plan.is_held else turn.hold)
        for number in range(min(parts), max(parts) + 1):
            watch.add(turn.hold + (number + 1) * width, width, parts.get(number, {}))
        return watch.good_since

    @contextlib.contextmanager
    def whole(self, *, all_turns: bool = False) -> Generator[RunData]:
        """Gather what the units that share the turn have reported."""
        sharing = self._sharing
        turns = self.run.turns if all_turns else [self._turn]
        alone = [each.model_copy(update={"of": len(sharing), "lost": []}) for each in turns]
        run = self.run.model_copy(
            update={
                "units": sharing,
                "missing": {},
                "probes": [],
                "found": None,
                "recovery": None,
                "turns": alone,
            }
        )
        if self._turn.ends is not None:  # all units have ended it as agreed: it was not cut
            run = run.model_copy(update={"over": True})
        digests = {unit: self.reports[unit].digest for unit in sharing}
        with tempfile.TemporaryDirectory(prefix="judging-", dir=self.folder) as out:
            yield load_run(gather(run, digests, self.words, Path(out)))

    def is_whole(self, stage: int, size: float) -> bool:
        """Return whether the shares that units measured add up to the load."""
        begun = [phase for digest in self._digests for phase in digest.head.phases if phase.phase == "begin"]
        return sum(phase.size for phase in begun if phase.stage == stage) >= _WHOLE * size

    @property
    def _turn(self) -> Turn:
        return self.run.turns[-1]

    @property
    def _sharing(self) -> list[str]:
        """The units that share the turn."""
        return self._turn.sharing(self.run.units)

    @cached_property
    def _digests(self) -> list[Digest]:
        return [read_digest(self.reports[unit].digest) for unit in self._sharing]

    @cached_property
    def _seconds(self) -> tuple[int, dict[int, dict[str, Histogram]]]:
        """How many seconds each part of the turn lasts, and the histograms of all units in each part.

        The parts are counted from the begin of the hold, and those before it have negative numbers. There are none if a
        digest does not say how its samples are spread.
        """
        digests, stage = self._digests, self._turn.number
        width = max(digest.head.width for digest in digests)
        if any(not digest.head.width for digest in digests):
            return width, {}
        step = 1000 * width
        zero = _LONGEST // step * step
        parts: defaultdict[int, dict[str, Histogram]] = defaultdict(dict)
        for digest in digests:
            phases = [phase for phase in digest.head.phases if (phase.stage, phase.phase) == (stage, "hold")]
            for hold in phases:
                for begin, _, histograms in Placed(digest, zero - hold.begin).intervals(width):
                    if begin >= zero + hold.length:
                        continue
                    part = parts[(begin - zero) // step]
                    for tag, encoded in histograms.items():
                        if tag.rpartition(".")[2] in OUTCOMES:
                            part.setdefault(tag, Histogram()).add(Histogram.decode(encoded.text))
        return width, {number: parts[number] for number in sorted(parts)}
