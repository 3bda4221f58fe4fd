"""The thresholds of a plan that are about figures of Prometheus."""

from __future__ import annotations

from tippingpoint.plan.base import Threshold
from tippingpoint.plan.read import Plan


def figures_of(plan: Plan) -> list[tuple[str, Threshold]]:
    """Return them in order, each with its field: thresholds.1, find.also.0."""
    also = plan.find.also if plan.find is not None else []
    return [
        (f"{place}.{number}", threshold)
        for place, thresholds in (("thresholds", plan.thresholds), ("find.also", also))
        for number, threshold in enumerate(thresholds)
        if threshold.figure
    ]


def subjects_of(plan: Plan) -> list[str]:
    """Return the names of these figures, each once (Threshold.subject)."""
    return list(dict.fromkeys(threshold.subject for _, threshold in figures_of(plan)))
