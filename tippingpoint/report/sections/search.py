"""The search of a report: its answer, the curve of the chance to hold, and every probe."""

from __future__ import annotations

from math import isfinite
from typing import Any

from tippingpoint.analysis.search.conclusion import Search


def build_search(search: Search) -> dict[str, Any]:
    """Return a search's answer and its probes in order.

    `found.limit` is null if none was found, `found.low` and `found.high` are the 95 % interval (high null: no upper
    bound). `found.curve` is the chance to hold over the load, as [load, chance, low, high]. A probe's margins are
    [name, ln(observed / allowed), standard error or null].
    """
    answer = search.answer
    return {
        "probes": [probe.model_dump() for probe in search.probes],
        "found": {
            "limit": answer.limit,
            "low": answer.low,
            "high": answer.high if isfinite(answer.high) else None,
            "ended": answer.ended,
            "binds": answer.binds,
            "shape": answer.shape,
            "withheld": answer.withheld,
            "drifts": answer.drifts,
            "stays_hurt": answer.stays_hurt,
            "seconds": search.seconds,
            "sentence": search.sentence,
            "curve": [[point.load, point.chance, point.low, point.high] for point in answer.curve],
        },
    }
