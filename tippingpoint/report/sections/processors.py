"""The section on the target's processors: who used them over time and in each stage, and who waited for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tippingpoint.analysis.foreign_work import beside, span_of
from tippingpoint.report import figures
from tippingpoint.rundir.machine import Used, during
from tippingpoint.rundir.resources import MOST_POINTS
from tippingpoint.rundir.results import RunData
from tippingpoint.util.numbers import show_share
from tippingpoint.util.text import choose

_USERS = ("target", "ours", "others", "steal")


def build_processors(run: RunData) -> dict[str, Any]:
    """Return the document's key `processors`; nothing for a run without data on what else ran.

    It has columns over time (`t`): the shares of the target's processors that `target`, `ours`, `others` and the
    hypervisor (`steal`) took, and `waited`, the seconds that the target's threads waited for a processor per second
    that they ran. `stages` has the same for each stage that was held.
    """
    told = [used for used in run.machine if used.others is not None]
    if not told:
        return {}
    chunk = -(-len(told) // MOST_POINTS)
    points = [told[first : first + chunk] for first in range(0, len(told), chunk)]
    columns = [_shares(point) for point in points]
    return {
        "processors": {
            "cpus": max(used.cpus for used in told),
            "sentence": _sentence(run, told),
            "t": [round(point[-1].t, 1) for point in points],
            **{name: [column[name] for column in columns] for name in (*_USERS, "waited")},
            "stages": [
                {
                    "number": stage.number,
                    "size": stage.size,
                    "kind": stage.kind,
                    "explains": found.explains,
                    **_shares(during(told, *span_of(stage))),
                }
                for stage in run.stages
                if (found := beside(run, stage)) is not None
            ],
        }
    }


def _shares(seconds: Sequence[Used]) -> dict[str, float | None]:
    whole = sum(used.seconds * used.cpus for used in seconds)
    if not whole:
        return dict.fromkeys((*_USERS, "waited"))
    totals = {name: sum(getattr(used, name) or 0.0 for used in seconds) for name in _USERS}
    ran, waited = totals["target"], sum(used.waited or 0.0 for used in seconds)
    return {
        **{name: round(max(0.0, total) / whole, 4) for name, total in totals.items()},
        "waited": round(waited / ran, 3) if ran else None,
    }


def _sentence(run: RunData, told: Sequence[Used]) -> str:
    """Say who used the processors from the first stage's start to the last one's end."""
    if run.stages:
        told = during(told, run.stages[0].begin, span_of(run.stages[-1])[1]) or told
    of, cpus = _shares(told), max(used.cpus for used in told)
    shares = {name: show_share(round(of[name] or 0.0, 2)) for name in _USERS}
    which = f"the target's {choose(cpus, 'processor', f'{figures.number(cpus)} processors')}"
    stolen = f", and the hypervisor withheld {shares['steal']}" if (of["steal"] or 0.0) >= 0.005 else ""
    return (
        f"Of {which}, the target used {shares['target']}, the generator {shares['ours']} and other programs "
        f"{shares['others']}{stolen}."
    )
