"""Judges a search by the answer that its probes give."""

from __future__ import annotations

from math import floor

from tippingpoint.analysis.findings import Findings
from tippingpoint.analysis.reasons import ended_early
from tippingpoint.analysis.search.found import Found, told_high, told_low
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
            return "withheld", f"Withheld: no load is known to pass; {most}{early}."
        there = f"where at least {floor(100 * share)} % of holds meet the thresholds (with 95 % confidence)"
        return "met", f"Met: the limit is at least {show_amount(low, unit)}, {there}{early}."
    if answer.ended == "limit":
        held, of = found.at_largest
        return (
            "met",
            f"Met: the limit is above {show_amount(answer.low, unit)}, the largest load that the plan allows: "
            f"it passed in {held} of {of} probes.",
        )
    if answer.ended == "broken at start":
        return "missed", f"Missed: not even {show_amount(answer.high, unit)} passed."
    held = f"; {show_amount(answer.low, unit)} passed" if answer.low else ""
    return "withheld", f"Withheld: {ended or answer.withheld or 'the search has no answer'}{held}."
