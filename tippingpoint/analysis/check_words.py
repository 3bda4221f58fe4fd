"""Describes what a check observed, where, and under which circumstances, and chooses which miss to name."""

from __future__ import annotations

from collections.abc import Sequence

from tippingpoint.analysis.fault_spans import lasting_faults
from tippingpoint.analysis.rate_limit import waited_for_rate_limit
from tippingpoint.analysis.thresholds import Check
from tippingpoint.plan.kinds import facts_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.text import show_amount, show_count, show_list, show_load

_DOWN = ("kill", "stop")
"""Faults after which a member does not answer."""


def first_misses(run: RunData, checks: Sequence[Check]) -> list[Check]:
    """Return the missed checks at the smallest load that misses any, the furthest beyond its limit first.

    Storms and removals are left out. In a search, loads up to its answer are left out too: one of their repeats may
    have failed.
    """
    found = next((event for event in reversed(run.events) if event["event"] == "found"), None)
    answer: float = found.get("low") or 0 if found is not None else 0
    steps = {stage.number for stage in run.stages if stage.is_step}
    missed = [
        check
        for check in checks
        if check.met is False and check.stage in steps and (check.size or 0) > answer
    ]
    first = min((check.size or 0 for check in missed), default=0)
    return sorted((check for check in missed if check.size == first), key=_excess, reverse=True)


def miss_words(run: RunData, check: Check) -> str:
    """Write a miss with its limit: extend p99 was 1.32 s (threshold 100 ms)."""
    allowed = f"(threshold {check.show(check.allowed)}{_circumstances(run, check)})"
    return f"{check.title} was {check.show(check.observed or 0.0)} {allowed}"


def first_miss(run: RunData, missed: list[Check]) -> str:
    """Say which check missed its limit first, and how many other limits were missed."""
    first = first_of(run, missed)
    more = len({(check.operation, check.limit) for check in missed}) - 1
    others = f" and {show_count(more, 'other threshold')}" if more else ""
    return saw(run, first) + others


def first_of(run: RunData, checks: list[Check]) -> Check:
    """Return the check to name: the one furthest beyond its limit at the smallest load; storms and removals last."""

    def rank(check: Check) -> tuple[bool, float, float]:
        no_step = check.stage is not None and not run.stage(check.stage).is_step
        return no_step, check.size or 0, -_excess(check)

    return min(checks, key=rank)


def saw(run: RunData, check: Check) -> str:
    """Say what a check observed, and where: extend p99 was 1.32 s at 2,000 leases (threshold 100 ms)."""
    where = (
        f"at {show_amount(check.size or 0, run.manifest.load_unit)}"
        if check.stage is None
        else where_words(run, run.stage(check.stage))
    )
    if check.observed is None:
        return f"{check.title} was not measured {where}"
    return (
        f"{check.title} was {check.show(check.observed)} {where} "
        f"(threshold {check.show(check.allowed)}{_circumstances(run, check)})"
    )


def where_words(run: RunData, stage: StageResult) -> str:
    """Name the load of a stage: at 2,000 leases."""
    return show_load(stage.size, run.manifest.load_unit, stage.kind)


def _excess(check: Check) -> float:
    if check.observed is None:
        return 0.0
    small = 1e-9
    if check.is_least:
        return check.allowed / max(check.observed, small)
    return check.observed / max(check.allowed, small)


def _circumstances(run: RunData, check: Check) -> str:
    """Name what else affected a check's value in its stage: faults of members, and a rate limit."""
    if check.stage is None:
        return ""
    stage = run.stage(check.stage)
    faults = [fault for fault in lasting_faults(run.events) if stage.overlaps(fault.begin, fault.until)]
    gone = sorted({fault.member for fault in faults if fault.do in _DOWN})
    found = f"; {show_list(gone)} {'was' if len(gone) == 1 else 'were'} down on purpose" if gone else ""
    others = dict.fromkeys(f"{fault.do} of {fault.member}" for fault in faults if fault.do not in _DOWN)
    if others:
        found += f"; during {show_list(list(others))}"
    if check.percentile is not None and waited_for_rate_limit(stage, check.operation, check.percentile):
        limit = facts_of(run.manifest.target.kind).rate_limit or "the target's rate limit"
        found += f"; mostly waiting because of {limit}"
    return found
