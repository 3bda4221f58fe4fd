"""Finds when clients noticed a fault, when the target was back, and what the fault cost meanwhile.

Workers record what ended in each second, so moments are known to about half a second. The durations of the operations
that ended then narrow this down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from tippingpoint.analysis.recovery.incidents import UNSEEN, Trigger, triggers_of
from tippingpoint.analysis.recovery.level import CHANCE, Level, failures, level_of
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.cluster_events import ONLINE
from tippingpoint.rundir.intervals import Interval, read_intervals
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.operations import OWN_CALLS
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.tags import FAILURES
from tippingpoint.util.durations import format_duration

BEFORE = 60.0
"""The maximum number of seconds before a fault that are used as its usual level."""
_AFTER = 6.0
"""Seconds after the end of a load during which its last operations are counted."""
_SHORTEST = 3.0
"""The minimum number of seconds of a hold that show what was usual; if it is shorter, the seconds before count too."""
_SILENT = 7.0
"""A silence in which at least this many answers were expected is not chance: exp(-7) is one in a thousand."""
_UNSURE = 2.0
"""The longest acceptable time without an answer, in seconds, if it is unknown how many answers were expected."""
_AT_ONCE = 1.0
"""Faults within this many seconds of each other count as one."""
_DEAF = 0.5
"""The least number of seconds for which a worker stood still that is reported."""


@dataclass(frozen=True)
class Aftermath:
    """What followed a fault, or several faults if the later ones came before the target was back."""

    what: str
    """What happened: `kill m1`, or `stop m1, stop m2 4 s later`."""
    t: float
    """When it began, in seconds since the run's start."""
    injected: bool
    """Whether it was one of the plan's faults; otherwise it begins with the first effect that was noticed."""
    stage: int | None
    """The number of the stage."""
    undone: float | None
    """Seconds until it was undone, if the target was not back by then."""
    noticed: float | None
    """Seconds until a client noticed; None if nothing was noticed, or if the start is unknown."""
    noticed_by: str
    """What was noticed: `extend failed`, `extend late`, `m1 offline`, `silence`; empty if nothing was noticed."""
    recovered: float | None
    """Seconds until thresholds were met, or the usual level was reached, again for good; None if this did not happen,
    or if nothing was broken."""
    exact_to: float
    """The uncertainty of these times, in seconds."""
    watched: float
    """Seconds from its start until the load changed, the next fault came or the run ended."""
    ended: int
    """How many operations ended between its start and the moment when the target was back."""
    late: int
    """How many of them were answered late."""
    failed: int
    """How many ended in an error or a timeout."""
    lost: int
    """How many leases or things were lost."""
    worst: str
    """The operation that took longest meanwhile."""
    worst_us: int | None
    """How long that operation took, in microseconds."""
    before_us: int | None
    """The 99th percentile of that operation before the fault, in microseconds."""
    limit_us: float | None
    """The time beyond which that operation counted as late."""
    by_thresholds: bool
    """Whether that time is a threshold of the plan, not the usual level before."""
    broken: bool
    """Whether anything was worse than thresholds, or the usual level before, allow."""
    unwatched: str
    """Why it is unknown what clients would have noticed during a part of the time; empty if they were present
    throughout."""

    @property
    def noticed_nothing(self) -> bool:
        """Whether clients were present throughout, and nothing was late, failed or lost."""
        return not (self.broken or self.late or self.failed or self.lost or self.unwatched)


def aftermaths(run: RunData, thresholds: Sequence[Threshold]) -> list[Aftermath]:
    """Return what followed each fault of a run, and each leader or membership change that no fault explains.

    This needs a clock; a run whose times only give an order has none.
    """
    triggers = triggers_of(run.events)
    if run.manifest.timeline != "seconds" or not triggers:
        return []
    found: list[Aftermath] = []
    while triggers:
        after, taken = _after(run, thresholds, triggers)
        found += [after] if after is not None else []
        triggers = triggers[taken:]
    return found


@dataclass(frozen=True)
class _Effect:
    """Something worse than before: when it was noticed and when it was over, each as a range between two moments."""

    what: str
    due: float
    """When the late or failed operation began: anything that happened before may be its cause."""
    noticed: tuple[float, float]
    over: tuple[float, float]


@dataclass(frozen=True)
class _Watch:
    """What clients observed of the target from a given moment until its load changed."""

    run: RunData
    stage: StageResult | None
    begin: float
    until: float
    levels: Mapping[str, Level]
    rate: float
    """Answers per second before that moment."""
    after: Sequence[Interval]

    @property
    def chance(self) -> float:
        """The probability below which one worker's interval is worse than chance explains."""
        return CHANCE / len({interval.worker for interval in self.after})

    def ended(self, interval: Interval) -> int:
        """Return how many operations ended in an interval."""
        return sum(interval.count(name, outcome) for name in self.levels for outcome in ("ok", *FAILURES))

    def gaps(self) -> list[tuple[float, float]]:
        """Return the spans of time in which no operation ended at any worker."""
        found: list[tuple[float, float]] = []
        since = self.begin
        for interval in self.after:
            if self.ended(interval):
                if interval.begin > since:
                    found.append((since, min(interval.begin, self.until)))
                since = max(since, interval.end)
        return [*found, (since, self.until)] if since < self.until else found

    def was_silent(self, gap: tuple[float, float]) -> bool:
        """Return whether answers were expected in a span without any, and the generator could have received them."""
        begin, end = gap
        heard = end - begin - sum(max(0.0, min(end, to) - max(begin, since)) for since, to in self._deaf())
        return self.rate * heard >= _SILENT

    def _deaf(self) -> list[tuple[float, float]]:
        """Return when the generator itself could not receive answers."""
        return [(stall.begin, stall.end) for stall in self.run.stalls] + [
            (found.begin, found.end) for found in self.run.damage
        ]

    def unwatched(self, until: float) -> str:
        """Return why it is unknown what clients would have noticed during a part of the time until a moment."""
        if not any(self.ended(interval) for interval in self.after if interval.begin < until):
            return f"no operation ended in the {_seconds(until - self.begin)} after it"
        if not any(level.limits for level in self.levels.values()):
            return "too little was measured beforehand to know which latency counts as late"
        for damage in self.run.damage:
            if damage.begin < until and damage.end > self.begin:
                return damage.sentence
        for event in self.run.events:
            if event["event"] == "worker-cut" and float(event["t"]) < until:
                return f"worker {event.get('worker')} was cut"
        stalls = [
            stall
            for stall in self.run.stalls
            if stall.begin < until and stall.end > self.begin and stall.seconds >= _DEAF
        ]
        if stalls:
            longest = max(stalls, key=lambda stall: stall.seconds)
            return f"a worker stood still for {_seconds(longest.seconds)}"
        gaps = [(since, min(to, until)) for since, to in self.gaps() if since < until]
        unknown = max((to - since for since, to in gaps if not self.was_silent((since, to))), default=0.0)
        return f"no operation ended for {_seconds(unknown)}" if unknown > _UNSURE else ""


def _seconds(seconds: float) -> str:
    return format_duration(round(seconds, 1))


def _after(
    run: RunData, thresholds: Sequence[Threshold], triggers: Sequence[Trigger]
) -> tuple[Aftermath | None, int]:
    """Return what followed the first trigger, and how many triggers this covers; None if nothing was measured then."""
    first = triggers[0]
    watch = _watch(run, thresholds, first)
    if watch is None:
        return None, 1
    effects = _effects(watch)
    answers = _in_time(watch)
    taken = 1
    while True:
        following = triggers[taken].t if taken < len(triggers) else inf
        until = min(following, watch.until)
        mine = [effect for effect in effects if effect.due < until]
        back = _back(mine, answers, until) if mine else None
        is_open = bool(mine) and (back is None or back[1] >= following)
        if following >= watch.until or not (is_open or following - first.t < _AT_ONCE):
            return _told(watch, triggers[:taken], mine, back, until), taken
        taken += 1


def _told(
    watch: _Watch,
    triggers: Sequence[Trigger],
    effects: Sequence[_Effect],
    back: tuple[float, float] | None,
    until: float,
) -> Aftermath:
    """Sum up what was observed from the first of these triggers until the target was back."""
    run, levels, injected = watch.run, watch.levels, triggers[0].injected
    end = back[1] if back is not None else until
    meanwhile = [interval for interval in watch.after if interval.begin < end]
    noticed = effects[0].noticed if effects else None
    zero = sum(noticed) / 2 if noticed and not injected else triggers[0].t
    worst, worst_us = _worst(levels, meanwhile)
    level = levels.get(worst)
    undone = next((trigger.t for trigger in triggers[1:] if trigger.undoes), None)
    spans = [*([noticed] if noticed else []), *([back] if back else [])]
    return Aftermath(
        what=_words(triggers),
        t=zero,
        injected=injected,
        stage=watch.stage.number if watch.stage is not None else None,
        undone=undone - zero if undone is not None else None,
        noticed=max(0.0, sum(noticed) / 2 - zero) if noticed and injected else None,
        noticed_by=effects[0].what if effects else "",
        recovered=max(0.0, sum(back) / 2 - zero) if back is not None else None,
        exact_to=max([(high - low) / 2 for low, high in spans], default=run.bin_seconds / 2),
        watched=until - zero,
        ended=sum(watch.ended(interval) for interval in meanwhile),
        late=sum(each.late(interval, watch.chance) for each in levels.values() for interval in meanwhile),
        failed=sum(failures(interval, name) for name in levels for interval in meanwhile),
        lost=_lost(watch, meanwhile, end),
        worst=worst,
        worst_us=worst_us or None,
        before_us=level.p99_us if level is not None else None,
        limit_us=level.limit_us if level is not None else None,
        by_thresholds=level is not None and level.allowed,
        broken=bool(effects),
        unwatched=watch.unwatched(until),
    )


def _words(triggers: Sequence[Trigger]) -> str:
    parts = [triggers[0].what]
    for before, trigger in pairwise(triggers):
        gap = trigger.t - before.t
        parts.append(trigger.what if gap < _AT_ONCE else f"{trigger.what} {_seconds(gap)} later")
    return ", ".join(parts)


def _watch(run: RunData, thresholds: Sequence[Threshold], first: Trigger) -> _Watch | None:
    begin = first.t if first.injected else max(0.0, first.t - UNSEEN)
    stage, until = _same_load(run, first.t)
    # Operations that the last load left unfinished are counted after its end.
    further = _AFTER if not any(other.begin >= until - _AT_ONCE for other in run.stages) else 0.0
    intervals = [
        interval
        for interval in read_intervals(run.directory, begin - BEFORE, until + further)
        if interval.begin < until + further - 0.001
    ]
    after = [interval for interval in intervals if interval.end > begin]
    if not after:
        return None
    before = _before(stage, intervals, begin)
    tried = {name.partition(".")[0] for interval in after for name in interval.counts}
    levels = {
        name: level_of(name, thresholds, before)
        for name in run.operations
        if name in tried and name not in OWN_CALLS
    }
    answered = sum(interval.count(name) for interval in before for name in levels)
    span = max((interval.end for interval in before), default=0.0) - min(
        (interval.begin for interval in before), default=0.0
    )
    until = min(until, max(interval.end for interval in after))
    return _Watch(run, stage, begin, until, levels, answered / span if span > 0 else 0.0, after)


def _same_load(run: RunData, t: float) -> tuple[StageResult | None, float]:
    """Return the stage at a moment, and when its load changed; storms belong to their stage."""
    stage = next((stage for stage in reversed(run.stages) if stage.is_step and stage.begin <= t), None)
    if stage is None:
        return None, min((other.begin for other in run.stages), default=t)
    until = inf if stage.end is None else stage.end
    for other in run.stages:
        if other.number > stage.number:
            if other.kind != "storm":
                return stage, min(until, other.begin)
            until = inf if other.end is None else other.end
    return stage, until


def _before(stage: StageResult | None, intervals: Iterable[Interval], begin: float) -> list[Interval]:
    """Return the intervals that show the usual level: those of the hold, if it had lasted long enough."""
    ended = [interval for interval in intervals if interval.end <= begin + 0.001]
    if stage is not None and stage.hold_begin is not None and begin - stage.hold_begin >= _SHORTEST:
        return [interval for interval in ended if interval.begin >= stage.hold_begin - 0.001]
    return ended


def _effects(watch: _Watch) -> list[_Effect]:
    """Return all that was worse than before, by the moment at which it was noticed."""
    begin, chance = watch.begin, watch.chance
    found: list[_Effect] = []
    for interval in watch.after:
        for name, level in watch.levels.items():
            if level.is_failing(interval, chance):
                word = "failed" if failures(interval, name) else "lost"
                longest = max(interval.longest(name, outcome) for outcome in FAILURES)
                found.append(_effect(f"{name} {word}", begin, interval, longest, level.limit_us or longest))
            exceeded = level.exceeded(interval, chance)
            if exceeded is not None:
                found.append(_effect(f"{name} late", begin, interval, interval.longest(name), exceeded))
    found += _events(watch)
    soonest = min((level.limit_us / 1e6 for level in watch.levels.values() if level.limit_us), default=0.0)
    found += [
        _Effect("silence", since, (since + soonest, since + soonest), (to, to))
        for since, to in watch.gaps()
        if to - since > soonest and watch.was_silent((since, to))
    ]
    return sorted(found, key=lambda effect: sum(effect.noticed))


def _effect(what: str, begin: float, interval: Interval, longest_us: float, limit_us: float) -> _Effect:
    """Return the effect shown by the slowest of an interval's bad operations; it was overdue beyond its limit."""
    low, high = max(begin, interval.begin), max(begin, interval.end)
    longest = longest_us / 1e6
    overdue = min(longest, limit_us / 1e6)
    since = min(max(begin, interval.begin - longest) + overdue, high)
    return _Effect(
        what,
        due=max(begin, (low + high) / 2 - longest),
        noticed=(since, max(since, min(interval.end - longest + overdue, high))),
        # An operation that was due after the fault cannot have ended before this much time had passed.
        over=(min(max(low, begin + longest), high), high),
    )


def _events(watch: _Watch) -> list[_Effect]:
    """Return what the cluster or a client's connection reported by itself."""
    found: list[_Effect] = []
    for event in watch.run.events:
        t = float(event["t"])
        if not watch.begin <= t < watch.until:
            continue
        match event["event"]:
            case "member" if event.get("status") not in ONLINE:
                found.append(_Effect(f"{event.get('member')} {event.get('status')}", t, (t, t), (t, t)))
            case "error" if event.get("operation") == "connection":
                since = max(watch.begin, t - watch.run.bin_seconds)
                found.append(_Effect("connection lost", since, (since, t), (since, t)))
            case "lost":
                found.append(_Effect("lost", t, (t, t), (t, t)))
            case _:
                pass
    return found


def _in_time(watch: _Watch) -> list[Interval]:
    """Return the intervals with timely answers."""
    return [
        interval
        for interval in watch.after
        if any(
            interval.count(name) > level.late(interval, watch.chance) for name, level in watch.levels.items()
        )
    ]


def _back(
    effects: Sequence[_Effect], answers: Sequence[Interval], until: float
) -> tuple[float, float] | None:
    """Return the moments between which the target was back: with the first good answer after the last effect."""
    low, high = max((effect.over for effect in effects), key=lambda over: over[1])
    if high > low and any(each.begin < high <= each.end + 0.001 for each in answers):
        return low, high
    following = next((each for each in answers if each.end > high and each.begin < until), None)
    return None if following is None else (max(low, following.begin), max(high, following.end))


def _worst(levels: Mapping[str, Level], meanwhile: Sequence[Interval]) -> tuple[str, int]:
    """Return the operation that exceeded what was usual or allowed the most, and how long it took."""
    longest = {
        name: max(
            (interval.longest(name, outcome) for interval in meanwhile for outcome in ("ok", *FAILURES)),
            default=0,
        )
        for name in levels
    }
    known = [name for name, level in levels.items() if level.limit_us is not None and longest[name]] or [
        name for name in levels if longest[name]
    ]
    if not known:
        return "", 0
    worst = max(known, key=lambda name: longest[name] / (levels[name].limit_us or 1.0))
    return worst, longest[worst]


def _lost(watch: _Watch, meanwhile: Iterable[Interval], end: float) -> int:
    told = sum(
        count_of(event)
        for event in watch.run.events
        if event["event"] == "lost" and watch.begin <= float(event["t"]) < end
    )
    return max(told, sum(interval.count(name, "lost") for interval in meanwhile for name in watch.levels))
