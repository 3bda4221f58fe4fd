"""Writes the cautions next to a verdict: where the run's own data are missing or inexact."""

from __future__ import annotations

from collections.abc import Sequence

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.foreign_work import beside
from tippingpoint.analysis.generator_health import longest_stall, show_stall, show_worker
from tippingpoint.analysis.rate_limit import waited_for_rate_limit
from tippingpoint.plan.kinds import facts_of
from tippingpoint.report import figures
from tippingpoint.report.sections.resources import joined_gaps, was_scraped
from tippingpoint.rundir.clock import clock_steps
from tippingpoint.rundir.resources import PROMETHEUS, Resources
from tippingpoint.rundir.results import RunData
from tippingpoint.util.text import choose, show_count

CLOCK_SECONDS = 1.0
"""The least error of a clock, in seconds, that a chart could show: scrapes are seconds apart."""
STALL_SECONDS = 1.0
"""The least stall of a worker, in seconds, that is reported as a pause of the load."""
_NAMED = 3


def build_cautions(analysis: Analysis) -> list[str]:
    """Return lines on damaged journals, a strained generator, other programs, missing units, wrong clocks, missing
    scrapes and figures, and rate limits.

    Lines on the generator and units are left out if the verdict's own reasons contain them.
    """
    run, reasons = analysis.run, analysis.verdict.reasons
    return [
        *_of_journals(run, reasons),
        *_of_generator(analysis),
        *_of_others(analysis.run),
        *_of_units(run, reasons),
        *_of_clocks(run),
        *_of_resources(run),
        *_of_rate_limits(analysis),
    ]


def _of_journals(run: RunData, reasons: Sequence[str]) -> list[str]:
    return [line for line in dict.fromkeys(found.sentence for found in run.damage) if line not in reasons]


def _of_generator(analysis: Analysis) -> list[str]:
    run, reasons = analysis.run, analysis.verdict.reasons
    strained = [str(found.stage.number) for found in analysis.findings.stages if found.strained]
    lines: list[str] = []
    if strained and not any("the generator itself was strained" in reason for reason in reasons):
        stages = f"stage{'s' if len(strained) > 1 else ''} {figures.listed(strained)}"
        lines.append(f"the generator itself was strained in {stages}: see “Generator health”")
    longest = longest_stall(run.stalls)
    if longest is not None and longest.seconds >= STALL_SECONDS:
        said = show_stall(longest)
        if not any(said in reason for reason in reasons):
            worker = show_worker(run, longest)
            lines.append(f"the generator paused its load: {worker} was {said}")
    return lines


def _of_others(run: RunData) -> list[str]:
    """Say how much of the target's processors other programs took, if that could explain a miss."""
    found = [
        (work, stage) for stage in run.stages if (work := beside(run, stage)) is not None and work.explains
    ]
    if not found:
        return []
    worst, stage = max(found, key=lambda each: each[0].others + each[0].steal)
    rest = len(found) - 1
    less = f", and no more in {show_count(rest, 'other stage')}" if rest else ""
    return [f"{worst.words} in stage {stage.number}{less}, which could explain a miss there"]


def _of_units(run: RunData, reasons: Sequence[str]) -> list[str]:
    lacking = [unit.name for unit in run.units if unit.status in ("cut", "missing")]
    if not lacking or any(name in reason for name in lacking for reason in reasons):
        return []
    names = _names(lacking, "unit")
    of = show_count(len(run.units), "unit")
    return [f"{len(lacking)} of {of} {choose(len(lacking), 'is', 'are')} missing or incomplete: {names}"]


def _of_clocks(run: RunData) -> list[str]:
    lines = [
        f"the machine's clock stepped {'ahead' if step.seconds > 0 else 'back'} by "
        f"{figures.seconds(abs(step.seconds))} at {figures.clock(step.t)}; durations are measured by another clock"
        for step in clock_steps(run.events)
    ]
    lines += [
        f"the clock of {unit.name} was {_off(unit.clock_offset)}: its times are corrected for that"
        for unit in run.units
        if unit.clock_offset is not None and abs(unit.clock_offset) > CLOCK_SECONDS
    ]
    if run.resources is not None:
        corrected = [PROMETHEUS] if run.resources.corrected else []
        lines += [
            f"the clock of {host} was {_off(ahead)}: "
            + ("moments are corrected for that" if host in corrected else "its figures may be off by as much")
            for host, ahead in sorted(run.resources.clock.items())
            if abs(ahead) > CLOCK_SECONDS
        ]
    if len(lines) <= _NAMED:
        return lines
    more = len(lines) - _NAMED
    return [*lines[:_NAMED], f"{show_count(more, 'more clock')} {choose(more, 'is', 'are')} off"]


def _off(ahead: float) -> str:
    return f"{figures.seconds(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}"


def gap_lines(resources: Resources) -> list[str]:
    """Return when hosts were not scraped during a run: the longest gaps by host, and the number of others."""
    gaps = joined_gaps(resources)
    lines = [
        f"{_names(gap['hosts'], 'host')} "
        f"{'was' if len(gap['hosts']) == 1 else 'were'} not scraped from {figures.clock(gap['from'])} "
        f"to {figures.clock(gap['to'])}{'' if len(gap['hosts']) == 1 else ', or for a part of that'}"
        for gap in sorted(gaps, key=lambda gap: gap["from"] - gap["to"])[:_NAMED]
    ]
    if len(gaps) > _NAMED:
        lines.append(f"{len(gaps) - _NAMED} shorter gaps between scrapes")
    return lines


def _of_resources(run: RunData) -> list[str]:
    if run.resources is None:
        return []
    lines = gap_lines(run.resources)
    missing = [what for what, why in run.resources.missing if was_scraped(why)]
    if len(missing) > _NAMED:
        lines.append(f"{len(missing)} metrics of the target are missing: see “Resource use of the target”")
    elif missing:
        lines.append(f"missing metrics of the target: {figures.listed(missing)}")
    return lines


def _of_rate_limits(analysis: Analysis) -> list[str]:
    """Return a line for each operation that waited mostly because of a rate limit, unless the verdict says so."""
    run = analysis.run
    setting = facts_of(run.manifest.target.kind).rate_limit or "the target's rate limit"
    if setting in analysis.verdict.sentence:
        return []
    lines: list[str] = []
    for operation in run.operations:
        waited = [stage for stage in run.stages if waited_for_rate_limit(stage, operation)]
        if waited:
            refusals = show_count(sum(stage.count(operation, "limited") for stage in waited), "refusal")
            lines.append(f"{operation} spent most of its time waiting after {refusals} by {setting}")
    return lines


def _names(names: Sequence[str], what: str) -> str:
    if len(names) <= _NAMED:
        return figures.listed(names)
    return f"{figures.listed([*names[:_NAMED], show_count(len(names) - _NAMED, f'more {what}')])}"
