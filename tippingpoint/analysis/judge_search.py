"""Judges a search by the answer that its probes give."""

from __future__ import annotations

from math import floor

from tippingpoint.analysis.check_words import first_of, saw
from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.reasons import ended_early, held_through, own_words, were_not_held
from tippingpoint.analysis.search.found import Found, told_high, told_low
from tippingpoint.analysis.thresholds import Check
from tippingpoint.analysis.verdict import Outcome
from tippingpoint.util.text import show_amount


def judge_answer(findings: Findings, found: Found) -> tuple[Outcome, str]:
    """Judge a search by the answer that its probes give, however it ended."""
    run, answer = findings.run, found.answer
    unit = run.manifest.load_unit
    ended = next(iter(ended_early(run)), "")
    early = f"; {ended}" if ended else ""
    if answer.limit is not None:
        low, share = told_low(answer), answer.share
        if low <= 0 or share is None:
            most = f"the limit may be anywhere up to {show_amount(told_high(answer), unit)}"
            return "withheld", f"Withheld: no load is known to hold: {most}{early}."
        there = f"where at least {floor(100 * share)} % of holds meet the thresholds (95 %)"
        return "met", f"Met: the limit is at least {show_amount(low, unit)}, {there}{early}."
    if answer.ended == "limit":
        held, of = found.at_largest
        return (
            "met",
            f"Met: the limit is above {show_amount(answer.low, unit)}, the largest load that the plan allows: "
            f"it held in {held} of {of} probes.",
        )
    if answer.ended == "broken at start":
        return "missed", f"Missed: not even {show_amount(answer.high, unit)} held."
    held = f"; {show_amount(answer.low, unit)} held" if answer.low else ""
    return "withheld", f"Withheld: {ended or answer.withheld or 'the search has no answer'}{held}."


def judge_find(findings: Findings, checks: list[Check]) -> tuple[Outcome, str]:
    """Judge a search of versions before 0.2, whose probes had no margins, or one that ended before its first probe.

    Loads beyond the answer may miss thresholds: that is how the answer is found.
    """
    run = findings.run
    unit = run.manifest.load_unit
    found = next((event for event in reversed(run.events) if event["event"] == "found"), None)
    if found is None:
        why = (ended_early(run) or ["the search has no answer"])[0]
        return "withheld", f"Withheld: {why}{held_through(findings, checks)}."
    held: float | None = found.get("held")
    broken: float | None = found.get("broken")
    at_broken = [check for check in checks if check.size == broken and check.met is not True]
    missed = [check for check in at_broken if check.met is False]
    gave = [
        (each.stage, each.gave_way)
        for each in findings.stages
        if each.stage.size == broken and not each.cut_short and each.gave_way
    ]
    beyond = ""
    if gave and not missed:
        beyond = f"; {were_not_held(run, *gave[0])}"
    elif broken is not None and at_broken:
        worst = first_of(run, missed or at_broken)
        beyond = f"; {saw(run, worst)}" + (
            f", but {worst.why}" if worst.met is None and worst.observed else ""
        )
    if held is None:
        if not (missed or gave):
            return "withheld", f"Withheld: no load was shown to hold{beyond}."
        return "missed", f"Missed: not even {show_amount(broken or 0, unit)} held{beyond}."
    if not found.get("confirmed"):
        return (
            "withheld",
            f"Withheld: {show_amount(held, unit)} held once, but repeats did not confirm it{beyond}.",
        )
    repeats = f"confirmed by {found['agreeing']} of {found['repeats']} repeats"
    if broken is not None and not (missed or gave):
        return (
            "withheld",
            f"Withheld: the thresholds held up to {show_amount(held, unit)} ({repeats}){beyond}.",
        )
    if any(each.load_missing for each in findings.stages):
        return "withheld", f"Withheld: a worker was cut, so load is missing; {show_amount(held, unit)} held."
    for each in findings.stages:
        if each.own_losses and each.stage.size <= held:
            return "withheld", f"Withheld: {own_words(run, each.stage, each.own_losses)}{beyond}."
    limit = "; the search's limit" if broken is None else ""
    return "met", f"Met: the thresholds hold up to {show_amount(held, unit)} ({repeats}{limit}){beyond}."
