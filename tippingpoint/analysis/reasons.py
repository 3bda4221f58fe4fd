"""Describes what was wrong with a run and its loads apart from thresholds, one line each, and which loads were held."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from tippingpoint.analysis.check_words import first_of, miss_words, where_words
from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.generator_health import OwnLosses
from tippingpoint.analysis.recovery.comeback import comeback_of
from tippingpoint.analysis.thresholds import Check
from tippingpoint.rundir.gathered import UnitStatus
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.takeovers import takeovers
from tippingpoint.util.text import (
    choose,
    place_of,
    show_amount,
    show_count,
    show_list,
    show_names,
    show_size,
    show_sizes,
)

EARLY = ("interrupted", "aborted", "cut", "running")
"""How a run ends before its plan does."""
_NAMED = 3
"""The most units that one sentence names."""


def reasons_of(findings: Findings, checks: Sequence[Check], damage: Sequence[str]) -> list[str]:
    """Return all remarks on a run that had stages; `damage` has the remarks on its journals."""
    run = findings.run
    return [
        *ended_early(run),
        *damage,
        *_bottlenecks(findings),
        *(own_words(run, found.stage, found.own_losses) for found in findings.stages if found.own_losses),
        *_not_held(findings),
        *_coming_back(findings),
        *_inconclusive(findings, checks),
        *_gaps(checks, [found.stage for found in findings.stages], run.manifest.load_unit),
    ]


def held_through(findings: Findings, checks: Iterable[Check], below: float = inf) -> str:
    """Return the largest_held load in words, to end a sentence; empty without one."""
    held = largest_held(findings, checks, below)
    return f"; passed up to {show_amount(held, findings.run.manifest.load_unit)}" if held is not None else ""


def largest_held(findings: Findings, checks: Iterable[Check], below: float = inf) -> float | None:
    """Return the largest load up to which every load was held and met every check; None if there is none `below`."""
    steps = {
        found.stage.number: found.stage.size
        for found in findings.stages
        if found.stage.is_step and found.stage.size < below
    }
    unmet = {check.size for check in checks if check.stage in steps and check.met is not True}
    unmet |= {  # a load that was tried again may have been held in most tries only
        found.stage.size for found in findings.stages if found.stage.number in steps and found.why_not_held
    }
    held: float | None = None
    for size in sorted(set(steps.values())):
        if size not in findings.loads_held or size in unmet:
            break
        held = size
    return held


def ended_early(run: RunData) -> list[str]:
    """Return one line for each reason why a run, or a part of its load, ended early or was missing."""
    reasons: list[str] = []
    if run.manifest.status in EARLY:
        words = {
            "interrupted": "was interrupted",
            "aborted": "was aborted",
            "cut": "was cut",
            "running": "is still running",
        }
        because = f": {run.manifest.reason}" if run.manifest.reason else ""
        reasons.append(f"the run {words[run.manifest.status]}{because}")
    of_units = {unit.name for unit in run.units}
    cut = [w.name for w in run.manifest.workers if w.status == "cut" and w.name not in of_units]
    if cut:
        were, theirs = choose(len(cut), "was", "were"), choose(len(cut), "its share", "their shares")
        missing = f"{theirs} of the load {choose(len(cut), 'is', 'are')} missing from then on"
        reasons.append(f"{show_names(cut, 'worker')} {were} cut: {missing}")
    return reasons + missing_units(run) + taken_up(run)


def taken_up(run: RunData) -> list[str]:
    """Return one line for each part that was cut off and has an incomplete stage."""
    return [taken.words for taken in takeovers(run.events) if taken.again]


def missing_units(run: RunData) -> list[str]:
    """Return one line for each reason why units' shares were missing or ended early."""
    groups: dict[tuple[UnitStatus, str], list[str]] = {}
    for unit in run.units:
        if unit.status in ("cut", "missing"):
            groups.setdefault((unit.status, unit.why), []).append(unit.name)
    reasons: list[str] = []
    for (status, why), names in groups.items():
        several = len(names) > 1
        who = show_list(
            names if len(names) <= _NAMED else [*names[:_NAMED], show_count(len(names) - _NAMED, "more unit")]
        )
        share = f"{'their shares' if several else 'its share'} of the load {'were' if several else 'was'}"
        if status == "missing":
            reasons.append(f"{who} {'are' if several else 'is'} missing: {why}, {share} not measured")
        else:
            reasons.append(f"{who} {'were' if several else 'was'} cut: {why}, {share} missing from then on")
    return reasons


def _bottlenecks(findings: Findings) -> list[str]:
    unit = findings.run.manifest.load_unit
    return [
        f"stage {found.stage.number} ({show_amount(found.stage.size, unit)}): the generator itself was strained: "
        f"{found.strained}"
        for found in findings.stages
        if found.strained
    ]


def _not_held(findings: Findings) -> list[str]:
    """Return one line for each stage whose load was incomplete, or was not sustained by the target.

    The answer of a search covers its probes.
    """
    lines: list[str] = []
    for found in findings.stages:
        if found.not_made:
            lines.append(found.not_made)
        elif (
            found.stage.is_step
            and found.stage.kind != "find"
            and not found.cut_short
            and found.failed_to_hold
        ):
            lines.append(were_not_held(findings.run, found.stage, found.failed_to_hold))
    return lines


def were_not_held(run: RunData, stage: StageResult, why: str) -> str:
    """Say that the load of a stage was not sustained: 2,000 leases were not sustained: ..."""
    return f"{show_amount(stage.size, run.manifest.load_unit)} {choose(stage.size, 'was', 'were')} not sustained: {why}"


def own_words(run: RunData, stage: StageResult, own: OwnLosses) -> str:
    """Say how many of the leases lost in a stage the generator may have lost itself, and why."""
    lost = f"{show_size(own.count)} of {show_amount(own.of, 'leases')} lost {where_words(run, stage)}"
    return f"{lost} may be the generator's own loss: {own.why}"


def _inconclusive(findings: Findings, checks: Sequence[Check]) -> list[str]:
    """Return one line for each load below the first miss at which a threshold could not be judged.

    Without a miss, the verdict is withheld and names one of them. A search's answer covers its probes.
    """
    run = findings.run
    missed = {check.size for check in checks if check.met is False and check.size is not None}
    steps = {
        found.stage.number for found in findings.stages if found.stage.is_step and found.stage.kind != "find"
    }
    doubtful: dict[float, list[Check]] = {}
    for check in checks:
        if (
            check.is_doubtful
            and check.observed is not None
            and check.size is not None
            and check.stage in steps
        ):
            doubtful.setdefault(check.size, []).append(check)
    return [
        f"{show_amount(size, run.manifest.load_unit)} {choose(size, 'is', 'are')} inconclusive: "
        f"{miss_words(run, worst)}, but {worst.why}"
        for size, of_size in sorted(doubtful.items())
        if size < min(missed, default=0.0)
        for worst in (first_of(run, of_size),)
    ]


def _gaps(checks: Iterable[Check], stages: Sequence[StageResult], unit: str) -> list[str]:
    """Return a line for each limit that could not be measured in some stages, and for each reason."""
    kinds = {stage.number: stage.kind for stage in stages}
    checked = list(checks)
    in_storms = {
        (check.operation, check.limit, check.size)
        for check in checked
        if check.observed is not None and check.stage is not None and kinds[check.stage] == "storm"
    }
    missing: dict[tuple[str, str], dict[tuple[str, str], list[float]]] = {}
    for check in checked:
        if check.observed is None and check.size is not None and check.stage is not None:
            name, why = check.name, f": {check.why}" if check.is_figure else ""
            of = place_of(kinds[check.stage])
            stormed = of == place_of("ramp") and (check.operation, check.limit, check.size) in in_storms
            places = missing.setdefault((name, why), {})
            places.setdefault((of, " before the storm" if stormed else ""), []).append(check.size)
    lines: list[str] = []
    for (name, why), places in missing.items():
        if sum(len(sizes) for sizes in places.values()) == len(stages):
            lines.append(f"{name} was never measured{why}")
            continue
        where = [f"{of} {show_sizes(sizes, unit)}{before}" for (of, before), sizes in places.items()]
        lines.append(f"{name} was not measured {show_list(where)}{why}")
    return lines


def _coming_back(findings: Findings) -> list[str]:
    """Return what the lower loads after the last one showed; they change no outcome."""
    comeback = comeback_of(findings)
    return [comeback.sentence] if comeback is not None else []
