"""Builds the section on what bound the target when it tipped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from tippingpoint.analysis.cause import Cause, Evidence


def build_causes(causes: Iterable[Cause]) -> list[dict[str, Any]]:
    """Return the document's part: one entry for each sign of tipping, with `evidence` as the rows of its table.

    `result` describes in words what happened to each figure.
    """
    return [
        {
            **asdict(cause),
            "evidence": [{**asdict(each), "result": _result(each)} for each in cause.evidence],
        }
        for cause in causes
    ]


def _result(each: Evidence) -> str:
    if each.saturated:
        return "saturated"
    if each.share < 1:
        return "within it"
    return "beyond it, as before" if each.plateau is not None else "beyond it, unknown before"
