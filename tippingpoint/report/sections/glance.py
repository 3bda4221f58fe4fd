"""Builds what a reader sees first: which load passes, where the target tips, why, and how certain this is."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.cause import Cause, shown
from tippingpoint.analysis.cliff import Cliff
from tippingpoint.analysis.foreign_work import beside
from tippingpoint.analysis.knee import Knee
from tippingpoint.analysis.reasons import largest_held
from tippingpoint.analysis.search.found import bounds_words, told, told_low
from tippingpoint.analysis.tipping import ON_PURPOSE, TippingPoint
from tippingpoint.report import figures
from tippingpoint.util.text import choose, show_amount, show_count, show_list, show_size

_UNKNOWN = "Why it tipped is not known: "
_SIGNS = {"cliff": "cliff", "threshold": "missed threshold", "knee": "knee", "limit": "limit"}


def build_glance(analysis: Analysis, tests: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return three `tiles`, each a question answered in a few words and in a sentence, and `sure`, some sentences.

    For a cluster's own tests (`tests`, see build_cluster_tests), the tiles show how many passed, the longest, and those
    that failed. For other runs, they show the largest load that passed, where the target tips, and why.
    """
    if tests is not None:
        return {"tiles": _of_tests(tests), "sure": _whole(analysis)}
    return {
        "tiles": [_holds(analysis), _tips(analysis), _why(analysis)],
        "sure": [*_sure(analysis), *_whole(analysis)],
    }


def _tile(title: str, value: str, words: str = "") -> dict[str, str]:
    return {"title": title, "value": value, "words": words}


def _of_tests(tests: Mapping[str, Any]) -> list[dict[str, str]]:
    every = tests["tests"]
    passed = [test for test in every if test["outcome"] == "passed"]
    failed = [test for test in every if test["outcome"] == "failed"]
    skipped = len(every) - len(passed) - len(failed)
    longest = max(passed, key=lambda test: test["seconds"], default=None)
    return [
        _tile(
            "Passed",
            f"{len(passed)} of {show_count(len(passed) + len(failed), 'test')}",
            f"{show_count(skipped, 'test')} skipped" if skipped else "",
        ),
        _tile("Longest", f"{longest['test']}, {figures.seconds(longest['seconds'])}")
        if longest
        else _tile("Longest", "–"),
        _tile(
            "Failed",
            figures.listed(dict.fromkeys(str(test["test"]) for test in failed)) or "none",
            "; ".join(dict.fromkeys(str(test["assertion"]) for test in failed)),
        ),
    ]


def _holds(analysis: Analysis) -> dict[str, str]:
    """Give the load up to which every threshold was met."""
    run, found, verdict = analysis.run, analysis.found, analysis.verdict
    unit = run.manifest.load_unit
    if verdict.outcome == "failed":
        return _tile("Passes", "nothing", "the run failed")
    if found is not None:
        answer = found.answer
        if answer.limit is not None and answer.share is not None and told_low(answer) > 0:
            share = f"at least {int(100 * answer.share)} % of holds meet every threshold"
            return _tile("Passes", show_amount(told_low(answer), unit), share)
        if answer.limit is None and answer.low:
            return _tile("Passes", show_amount(answer.low, unit), "the largest load known to pass")
        return _tile("Passes", "not known", "no load is known to pass")
    held = largest_held(analysis.findings, verdict.checks)
    point = analysis.tipping.point
    if held is not None and not verdict.checks and point is not None and point.by == "cliff":
        held = None if point.last_held is None else min(held, point.last_held)
    if held is None:
        return _none_held(analysis)
    largest = max(stage.size for stage in run.stages)
    if not verdict.checks:
        words = "most of it answered in time; no thresholds were set"
    elif held == largest:
        words = "every threshold was met up to the largest load tried"
    else:
        words = "the largest load up to which every threshold was met"
    return _tile("Passes", show_amount(held, unit), words)


def _none_held(analysis: Analysis) -> dict[str, str]:
    run = analysis.run
    if not run.stages:
        return _tile("Passes", "not known", "no stage was started")
    least = min(stage.size for stage in run.stages)
    smallest = show_amount(least, run.manifest.load_unit)
    missed = any(check.met is False and check.size == least for check in analysis.verdict.checks)
    if analysis.verdict.outcome == "withheld" or (not missed and least in analysis.findings.loads_held):
        return _tile("Passes", "not known", f"not even {smallest} could be judged")
    return _tile("Passes", "no load tried", f"not even {smallest}")


def _tips(analysis: Analysis) -> dict[str, str]:
    """Say between which loads the first sign of tipping is."""
    run, point, found = analysis.run, analysis.tipping.point, analysis.found
    unit = run.manifest.load_unit
    if found is not None and (limit := found.answer.limit) is not None:
        return _tile("Tips at", show_amount(told(limit, found.answer), unit), found.binds)
    if point is None:
        loads = analysis.findings.loads_held
        if found is not None and isfinite(found.answer.high) and not found.answer.low:
            return _tile(
                "Tips at", f"{show_amount(found.answer.high, unit)} or less", "not even that load passed"
            )
        if _nothing_passed(analysis):
            return _tile("Tips at", "not known", "no load could be judged")
        if not loads:
            return _tile("Tips at", "not known", "no load was sustained")
        return _tile(
            "Tips at",
            f"above {show_amount(max(loads), unit)}",
            "no sign of tipping at any load that was sustained",
        )
    return _tile("Tips at", _range(point, unit), f"{_SIGNS[point.by]}: {point.evidence}")


def _nothing_passed(analysis: Analysis) -> bool:
    """Whether a search ended without any load that passed: then nothing is known of where the target tips."""
    return analysis.found is not None and not analysis.found.answer.low


def _range(point: TippingPoint, unit: str) -> str:
    beyond = show_amount(point.first_beyond, unit)
    return f"{beyond} or less" if point.last_held is None else f"{show_size(point.last_held)} to {beyond}"


def _why(analysis: Analysis) -> dict[str, str]:
    """Name what saturated where the target tipped."""
    point = analysis.tipping.point
    if point is None:
        tipped_not = analysis.findings.loads_held and not _nothing_passed(analysis)
        return _tile("Why", "–", "it did not tip" if tipped_not else "")
    if point.doubt:
        return _tile("Why", "not the load" if point.doubt == ON_PURPOSE else "unclear", point.doubt)
    cause = next(iter(analysis.causes), None)
    if cause is None:
        return _tile("Why", "not known", "imported figures have no metrics of the target's hosts")
    if analysis.run.resources is None:
        return _tile("Why", "not known", "no host metrics of the target were collected")
    if cause.named is None:
        return _tile("Why", "not known", cause.sentence.removeprefix(_UNKNOWN).rstrip("."))
    return _tile("Why", _resource(cause), _level(cause, analysis.run.manifest.load_unit))


def _resource(cause: Cause) -> str:
    assert cause.named is not None
    hosts = show_list(cause.hosts) if len(cause.hosts) <= 2 else f"{len(cause.hosts)} hosts"
    other = f" or {cause.instead.of}" if cause.instead is not None else ""
    return f"{cause.named.of}{other} of {hosts}"


def _level(cause: Cause, unit: str) -> str:
    named = cause.named
    assert named is not None
    at = f" at {show_amount(cause.load, unit)}" if cause.load is not None else ""
    before = f", {shown(named.plateau, named.unit)} on the plateau" if named.plateau is not None else ""
    beyond = f"saturated {named.limit_is} {shown(named.limit, named.unit)}"
    return f"{named.title} {shown(named.tipped, named.unit)}{at}{before} ({beyond})"


def _sure(analysis: Analysis) -> list[str]:
    """Say how certain the tipping point is: its interval, its confidence, or that each load was tried only once."""
    point, found, tipping = analysis.tipping.point, analysis.found, analysis.tipping
    unit = analysis.run.manifest.load_unit
    if found is not None:
        answer = found.answer
        probes = show_count(len(found.probes), "probe")
        doubts = [f"{doubt[:1].upper()}{doubt[1:]}." for doubt in (answer.drifts, answer.stays_hurt) if doubt]
        if answer.limit is None:
            return [f"{probes} gave no limit.", *doubts]
        return [f"95 % interval of the limit: {bounds_words(answer, unit)}, from {probes}.", *doubts]
    if point is not None and point.by == "knee":
        return [_of_knee(tipping.knees[point.operation], unit)]
    if point is not None and point.by == "cliff" and tipping.cliff is not None:
        return [_of_cliff(tipping.cliff)]
    sizes = [stage.size for stage in analysis.run.stages if stage.is_step]
    if (
        sizes
        and analysis.findings.loads_held
        and analysis.run.manifest.source == "run"
        and len(set(sizes)) == len(sizes)
    ):
        return ["Each load was tried once, so run-to-run variation is unknown."]
    return []


def _of_knee(knee: Knee, unit: str) -> str:
    interval = f"{show_size(round(knee.low))} to {show_amount(round(knee.high), unit)}"
    return f"{figures.confidence(knee.confidence)} confidence that this is a knee; 95 % interval {interval}."


def _of_cliff(cliff: Cliff) -> str:
    return f"{figures.confidence(cliff.confidence)} confidence that this is not chance."


def _whole(analysis: Analysis) -> list[str]:
    """Say what makes the whole run less certain: the generator, other programs, faults, an early end."""
    run = analysis.run
    lines: list[str] = []
    if run.manifest.status not in ("complete", "failed", "running"):
        lines.append("The run ended early.")
    stages = len(run.stages)
    strained = [found.stage.number for found in analysis.findings.stages if found.strained]
    if strained:
        lines.append(f"The generator was strained in {_of_stages(len(strained), stages)}.")
    foreign = [work for stage in run.stages if (work := beside(run, stage)) is not None and work.explains]
    if foreign:
        who = "Other programs" if any(work.others >= work.steal for work in foreign) else "The hypervisor"
        lines.append(
            f"{who} took enough of the target's processors in {_of_stages(len(foreign), stages)} to explain a miss."
        )
    lacking = sum(unit.status in ("cut", "missing") for unit in run.units)
    if lacking:
        lines.append(
            f"{lacking} of {show_count(len(run.units), 'unit')} {choose(lacking, 'was', 'were')} missing."
        )
    return lines


def _of_stages(count: int, stages: int) -> str:
    """Return how many of the stages are meant: the only stage, all 3 stages, 2 of 3 stages."""
    if count < stages:
        return f"{count} of {stages} stages"
    return "the only stage" if stages == 1 else f"all {stages} stages"
