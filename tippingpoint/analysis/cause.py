"""Names what bound a target where it tipped: the figure of a host that saturated first, with its evidence, or none.

This is the USE method (Brendan Gregg, "Thinking Methodically about Performance", ACM Queue 10:12, 2012): for each
resource of each host, examine its use and what waits for it. Only figures with a known limit count
(rundir.resources.Limit); the query packs have the limits, with the source of each. A figure saturated if it is beyond
its limit at the load that tipped but was not on the plateau.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from tippingpoint.analysis.cost import samples_between
from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.tipping import Sign, Tipping
from tippingpoint.rundir.resources import Constraint, FigureData, Resources, Series, titles_of
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.numbers import show_quantity, show_share
from tippingpoint.util.text import choose, show_amount, show_list

LEAST_SAMPLES = 2
"""The least number of samples in a part of a stage: one may be an outlier."""
GREW = 1.25
"""A figure that was beyond its limit on the plateau must have grown by this to count: by more than twice the 10 % by
which equal levels may differ (cost.SAME)."""
LENGTHENED = 2.0
"""A time or a queue must have grown by this from the plateau, whatever its limit: a knee is where a latency has doubled
(knee.py), so anything that lengthened less cannot explain a knee."""
PAST_KNEE = 2.0
"""A resource that saturates at up to this multiple of a knee's load may explain the knee. In an M/M/1 queue, latency
has doubled once half of a resource is used, so the knee comes first: nine tenths are used at 1.8 times that load. A
time or a queue that bends a latency is already long at the knee itself."""
NEAR = 0.9
"""At this share of its limit or more, a CPU is busy enough to lengthen times: equal levels may differ by 10 %
(cost.SAME)."""
_ROWS = 8
"""The most rows of evidence."""
_NAMED = 3
_IDLE_SECONDS = 120.0
"""Seconds before stage 1 that show the target without load."""
_ALWAYS: tuple[Constraint, ...] = ("CPU", "memory", "disk", "network", "file descriptors")
"""Resources of every host: a report says if one was not monitored. Not all hosts have quotas, space and queues."""
_CPUS: tuple[Constraint, ...] = ("CPU", "CPU quota")
_USED_UP: dict[Constraint, str] = {
    "CPU": "the CPU of {host} was used up",
    "CPU quota": "the CPU quota of {host} was used up",
    "memory": "the memory of {host} was used up",
    "disk": "the disk of {host} could do no more",
    "network": "the network of {host} could do no more",
    "file descriptors": "the file descriptors of {host} were used up",
    "space": "the space of {host} was used up",
    "queue": "a queue of {host} grew",
}


@dataclass(frozen=True)
class Evidence:
    """One figure of one host, on the plateau and where the target tipped. Values are in the figure's unit."""

    figure: str
    title: str
    unit: str
    host: str
    part: str
    """The part of the host, such as a device or a program; empty if the figure has none."""
    of: Constraint
    """What the figure's limit is about."""
    wait: bool
    """Whether it is a time or a queue, which other constraints can lengthen too."""
    limit: float
    limit_is: str
    """Whether values `above` or `below` the limit are beyond it."""
    because: str
    """The source of the limit."""
    plateau: float | None
    """Its median over the loads on the plateau; without one, over the time before the load. None if unknown."""
    tipped: float
    """Its value at the load that tipped."""
    others: float | None
    """The median of the other hosts at that load; None if no other has the figure."""
    since: float | None
    """The smallest load from which it stayed beyond its limit; None if it was not beyond it."""
    saturated: bool
    """Whether it saturated: it is beyond its limit, and either was not on the plateau or has grown since."""
    share: float
    """How near it is to its limit: 1 at the limit, more beyond it."""


@dataclass(frozen=True)
class Cause:
    """What bound the target at one sign of tipping."""

    sign: Sign
    """The sign: knee, cliff, threshold or limit."""
    plateau_load: float | None
    """The largest load on the plateau; None if no load was sustained."""
    load: float | None
    """The load at which figures were taken: the one that tipped or, if nothing had saturated there, a larger one up to
    twice the knee's. None if no figure was measured there."""
    named: Evidence | None
    """What saturated first; None if nothing did, or if that is unknown."""
    hosts: list[str]
    """All hosts on which that figure saturated."""
    instead: Evidence | None
    """What may have bound the target instead: the CPU of the same host, if the only evidence is a long time of its disk
    or network, because such times include waits for a CPU. None if there is no such suspicion, or if that CPU was not
    monitored."""
    evidence: list[Evidence]
    """For each figure, the host nearest its limit: what saturated first, then the others by how near they are."""
    unwatched: list[str]
    """The resources without any figure that has a limit: CPU, memory, disk, network, file descriptors."""
    sentence: str


def causes_of(findings: Findings, tipping: Tipping) -> list[Cause]:
    """Name what bound a run's target at its tipping point, or soon after a knee, and at a cliff beyond it.

    The list is empty if the target did not tip, if the run is imported, or if the sign says little about the target: an
    injected fault, or the generator itself.
    """
    point, run = tipping.point, findings.run
    if point is None or point.doubt or run.manifest.source != "run":
        return []
    places: list[tuple[Sign, float]] = [(point.by, point.first_beyond)]
    cliff = tipping.cliff
    if (
        cliff is not None
        and cliff.first_broken > point.first_beyond
        and not (cliff.during_fault or cliff.doubt)
    ):
        places.append(("cliff", cliff.first_broken))
    if run.resources is None:
        return [Cause(point.by, point.last_held, None, None, [], None, [], [*_ALWAYS], _NOT_WATCHED)]
    seen = _Seen(findings, run.resources, point.last_held)
    return [seen.cause(sign, beyond) for sign, beyond in places]


_NOT_WATCHED = (
    "Why it tipped is not known: no host metrics of the target were collected "
    "(tippingpoint collect RUN --prometheus URL)."
)


class _Seen:
    """The figures with a limit, in the stages of a run."""

    def __init__(self, findings: Findings, resources: Resources, last_held: float | None) -> None:
        self._findings, self._run, self._resources = findings, findings.run, resources
        self._last_held = last_held
        self._figures = [figure for figure in resources.figures if figure.limit is not None and figure.series]
        self._titles = titles_of(resources.figures)
        self._stages: dict[float, list[StageResult]] = {}
        for stage in self._run.stages:
            if stage.is_step:
                self._stages.setdefault(stage.size, []).append(stage)

    def cause(self, sign: Sign, beyond: float) -> Cause:
        """Name what bound the target at the smallest measured load of `beyond` or more.

        After a knee, larger loads are examined too (PAST_KNEE), until a resource saturates.
        """
        watched = {figure.limit.of for figure in self._figures if figure.limit is not None}
        unwatched = [each for each in _ALWAYS if each not in watched]
        loads = sorted(size for size in self._stages if size >= beyond)
        causes = (cause for load in loads if (cause := self._at_load(sign, load, unwatched)) is not None)
        first = next(causes, None)
        unit = self._run.manifest.load_unit
        if first is None or first.load is None:
            at = show_amount(beyond, unit)
            sentence = f"Why it tipped is not known: no metric with a known limit was collected at {at}."
            return Cause(sign, self._last_held, None, None, [], None, [], [*_ALWAYS], sentence)
        if sign == "knee" and first.named is None and not self._strained(first.load):
            for cause in causes:
                if cause.load is None or cause.load > PAST_KNEE * beyond or self._strained(cause.load):
                    break
                if cause.named is not None and not cause.named.wait:
                    at = show_amount(first.load, unit)
                    more = f"At {at} nothing that was watched was saturated."
                    return replace(cause, sentence=f"{cause.sentence} {more}")
        return first

    def _at_load(self, sign: Sign, load: float, unwatched: list[str]) -> Cause | None:
        """Return what bound the target at a load; None if no figure with a limit was gathered there."""
        found = [
            evidence
            for figure in self._figures
            for part in figure.parts
            for evidence in self._of_part(figure, part, load)
        ]
        return self._named(sign, load, found, unwatched) if found else None

    def _of_part(self, figure: FigureData, part: str, load: float) -> list[Evidence]:
        """Return the evidence of each host that has this part of a figure at a load."""
        limit = figure.limit
        if limit is None:
            return []
        series = [one for one in figure.series if one.part == part]
        levels = {one.host: level for one in series if (level := self._at(figure, one, load)) is not None}
        found: list[Evidence] = []
        for one in series:
            if one.host not in levels:
                continue
            tipped = levels[one.host]
            others = [level for host, level in levels.items() if host != one.host]
            plateau = self._on_plateau(figure, one)
            found.append(
                Evidence(
                    figure=figure.name,
                    title=self._titles.get(figure.name, figure.title),
                    unit=figure.unit,
                    host=one.host,
                    part=part,
                    of=limit.of,
                    wait=limit.wait,
                    limit=limit.value,
                    limit_is=limit.words,
                    because=limit.because,
                    plateau=plateau,
                    tipped=tipped,
                    others=median(others) if others else None,
                    since=self._since(figure, one, load),
                    saturated=_saturated(figure, plateau, tipped),
                    share=limit.share(tipped),
                )
            )
        return found

    def _at(self, figure: FigureData, series: Series, load: float) -> float | None:
        """Return a figure's level at a load: the median over its tries."""
        levels = [
            level
            for stage in self._stages.get(load, ())
            if (level := self._in_stage(figure, series, stage)) is not None
        ]
        return median(levels) if levels else None

    def _in_stage(self, figure: FigureData, series: Series, stage: StageResult) -> float | None:
        """Return its level while the load was brought up or while it was held, whichever is nearer the limit.

        Some operations, such as claims, only happen while a load is brought up, others while it is held. A rate whose
        window begins while the load is brought up counts as part of that phase, which may be shorter than the window.
        """
        end = stage.end if stage.end is not None else float("inf")
        middle = stage.hold_begin if stage.hold_begin is not None else end
        levels = [
            level
            for begin, until in ((stage.begin, min(end, middle + figure.window)), (middle, end))
            if (level := self._between(figure, series, begin, until)) is not None
        ]
        limit = figure.limit
        return max(levels, key=limit.share) if limit is not None and levels else None

    def _between(self, figure: FigureData, series: Series, begin: float, end: float) -> float | None:
        values, _ = samples_between(self._resources, series.values, figure.window, begin, end)
        if len(values) < LEAST_SAMPLES:
            return None
        # The mean of a share over windows is the share of all the time. Percentiles have no mean.
        return fmean(values) if figure.window and figure.unit == "ratio" else median(values)

    def _on_plateau(self, figure: FigureData, series: Series) -> float | None:
        """Return its median over the loads up to the last one held; if none was held, over the time before the load."""
        levels = [
            level
            for size in self._stages
            if self._last_held is not None and size <= self._last_held
            if (level := self._at(figure, series, size)) is not None
        ]
        if levels:
            return median(levels)
        if self._last_held is not None:
            return None
        begun = min((stage.begin for stage in self._run.stages), default=0.0)
        return self._between(figure, series, begun - _IDLE_SECONDS, begun - self._resources.step)

    def _since(self, figure: FigureData, series: Series, load: float) -> float | None:
        """Return the smallest load from which a figure was beyond its limit at every load up to `load`."""
        since: float | None = None
        for size in sorted((size for size in self._stages if size <= load), reverse=True):
            level = self._at(figure, series, size)
            if level is not None and figure.limit is not None:
                if figure.limit.share(level) < 1:
                    break
                since = size
        return since

    def _named(self, sign: Sign, load: float, found: Sequence[Evidence], unwatched: list[str]) -> Cause:
        ordered = sorted(found, key=_first)
        named = ordered[0] if ordered[0].saturated else None
        hosts = (
            [
                one.host
                for one in ordered
                if one.saturated and (one.figure, one.part) == (named.figure, named.part)
            ]
            if named is not None
            else []
        )
        rows: dict[str, Evidence] = {}
        for one in ordered:
            rows.setdefault(one.figure, one)
        if self._strained(load):
            named, hosts = None, []
            sentence = (
                "Why it tipped is not known: the generator itself was the bottleneck at "
                f"{show_amount(load, self._run.manifest.load_unit)}."
            )
        elif named is not None:
            sentence = self._sentence(named, hosts, ordered, load)
        else:
            sentence = self._none(ordered, load, unwatched)
        instead = _instead(named, ordered) if named is not None else None
        evidence = list(rows.values())[:_ROWS]
        return Cause(sign, self._last_held, load, named, hosts, instead, evidence, unwatched, sentence)

    def _strained(self, load: float) -> bool:
        """Return whether the generator was the bottleneck in a stage of this load."""
        numbers = {stage.number for stage in self._stages[load]}
        return any(each.stage.number in numbers and each.strained for each in self._findings.stages)

    def _sentence(
        self, named: Evidence, hosts: Sequence[str], ordered: Sequence[Evidence], load: float
    ) -> str:
        """Say what saturated first: where, by how much, since when, and what else did."""
        unit = self._run.manifest.load_unit
        whose = show_list(hosts) if len(hosts) <= _NAMED else f"{named.host} and {len(hosts) - 1} more hosts"
        what = _USED_UP[named.of].format(host=whose) + _or_its_cpu(named, hosts, ordered)
        title = f"{named.title}{f' ({named.part})' if named.part else ''}"
        words = [
            f"Why it tipped: {what}. {title} was {shown(named.tipped, named.unit)} at "
            f"{show_amount(load, unit)}, {_before(named, self._last_held, unit)}; "
            f"it is saturated {named.limit_is} {shown(named.limit, named.unit)}."
        ]
        if named.since is not None and named.since < load:
            words.append(f"It has been beyond that since {show_amount(named.since, unit)}.")
        if named.others is not None and len(hosts) == 1:
            words.append(f"On the other hosts it was {shown(named.others, named.unit)}.")
        also = dict.fromkeys(
            f"{one.title} of {one.host}"
            for one in ordered
            if one.saturated and one.figure != named.figure and one is _worst(ordered, one.figure)
        )
        if also:
            more = [*also][:_NAMED]
            words.append(f"Beyond {choose(len(more), 'its limit', 'their limits')} too: {show_list(more)}.")
        return " ".join(words)

    def _none(self, ordered: Sequence[Evidence], load: float, unwatched: Sequence[str]) -> str:
        """Say that nothing saturated, what came nearest, and what was not watched."""
        hosts = len({one.host for one in ordered})
        nearest = max(ordered, key=lambda one: one.share)
        figures = len({one.figure for one in ordered})
        words = [
            f"Why it tipped is not known: at {show_amount(load, self._run.manifest.load_unit)} none of the {figures} "
            f"watched {choose(figures, 'metric', 'metrics')} of {hosts} {choose(hosts, 'host', 'hosts')} "
            "reached its limit."
        ]
        if nearest.share >= 1:
            words = [
                f"Why it tipped is not known: nothing that was watched saturated at "
                f"{show_amount(load, self._run.manifest.load_unit)}. {nearest.title} of {nearest.host} was beyond "
                f"its limit, {_not_grown(nearest)}."
            ]
        if unwatched:
            words.append(f"Not watched: {show_list(unwatched)}.")
        return " ".join(words)


def _only_late(named: Evidence, of_host: Iterable[Evidence]) -> bool:
    """Return whether only times show that a disk or a network was exhausted. Waiting for a CPU lengthens them too."""
    direct = any(one.of == named.of and not one.wait and one.share >= 1 for one in of_host)
    return named.wait and named.of != "queue" and not direct


def _instead(named: Evidence, found: Iterable[Evidence]) -> Evidence | None:
    """Return the busy CPU of a host on which only times are long, if it has one."""
    of_host = [one for one in found if one.host == named.host]
    busy = [one for one in of_host if one.of in _CPUS and one.share >= NEAR]
    return max(busy, key=lambda one: one.share, default=None) if _only_late(named, of_host) else None


def _or_its_cpu(named: Evidence, hosts: Sequence[str], found: Iterable[Evidence]) -> str:
    """Name the CPU that may have lengthened a time; empty if it did not."""
    of_host = [one for one in found if one.host == named.host]
    its, instead = choose(len(hosts), "its", "their"), _instead(named, of_host)
    if instead is not None:
        busy = f"{instead.title} was {shown(instead.tipped, instead.unit)}"
        return f", or {its} {instead.of} was used up, for which {named.title} waits as well ({busy})"
    if _only_late(named, of_host) and not any(one.of in _CPUS for one in of_host):
        return f", or {its} CPU was used up, although no metric shows it"
    return ""


def _saturated(figure: FigureData, plateau: float | None, tipped: float) -> bool:
    limit = figure.limit
    if limit is None or limit.share(tipped) < 1:
        return False
    if plateau is None:  # it is unknown whether a time was any shorter
        return not limit.wait
    before = limit.share(plateau)
    grew = limit.share(tipped) / before if before > 0 else float("inf")
    return grew >= LENGTHENED if limit.wait else before < 1 or grew >= GREW


def _first(one: Evidence) -> tuple[bool, int, float, float]:
    """Order evidence: what saturated, at the smallest load first, then what is nearest its limit.

    An exhausted resource lengthens times and queues, and a longer time lengthens queues, so the cause comes first.
    """
    since = one.since if one.since is not None else float("inf")
    if not one.saturated:
        return True, 0, 0.0, -one.share
    return False, one.wait + (one.of == "queue"), since, -one.share


def _worst(ordered: Iterable[Evidence], figure: str) -> Evidence | None:
    return next((one for one in ordered if one.figure == figure), None)


def _not_grown(one: Evidence) -> str:
    if one.plateau is None:
        return "and it is not known whether it was before"
    return "but it was on the plateau too, or has hardly grown since"


def _before(one: Evidence, last_held: float | None, unit: str) -> str:
    if one.plateau is None:
        return "and is not known of smaller loads"
    where = "without load" if last_held is None else f"on the plateau up to {show_amount(last_held, unit)}"
    return f"and {shown(one.plateau, one.unit)} {where}"


def shown(value: float, unit: str) -> str:
    """Write a value of a figure: 96 %, 12.3 ms, 312 MB, 150."""
    return show_share(value) if unit == "ratio" else show_quantity(value, unit)
