"""Builds the section on what one operation costs the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tippingpoint.analysis.operation_costs import OperationCost, interval_words
from tippingpoint.report import figures

_RATE_OF = {"seconds": "cores", "bytes": "bytes/s", "count": "count/s"}
"""The unit of a rate of use, by the unit of the amount used."""


def build_operation_costs(every: Sequence[OperationCost]) -> dict[str, Any]:
    """Build `operation_costs`: what each operation costs the target, overall and at each load.

    Only costs that exceed noise are listed; `no_operation_costs` says why others are not. Both are empty if nothing was
    measured on the target. The measurements may be figures from Prometheus, or the CPU time that the kernel counts for
    a lab.
    """
    return {
        "operation_costs": [
            {
                **asdict(cost),
                "words": cost.show(cost.value),
                "base_words": figures.quantity(max(cost.base, 0.0), _RATE_OF[cost.unit]),
                "loads": [
                    {
                        **asdict(load),
                        "words": cost.show(load.value),
                        "interval": interval_words(cost, load.low, load.high),
                    }
                    for load in cost.loads
                ],
                **{name: getattr(cost, name) for name in ("what", "interval", "sentence")},
            }
            for cost in every
            if cost.is_told
        ],
        "no_operation_costs": list(dict.fromkeys(cost.withheld for cost in every if cost.withheld)),
    }
