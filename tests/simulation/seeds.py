"""What a seed is: three of four are runs by one machine, and the fourth is one by many units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.simulation.draws import LARGE, SMALL, Drawn, draw
from tests.simulation.measured import seconds_of
from tests.simulation.questions import ask_all, ask_together
from tests.simulation.runs import Played, play
from tests.simulation.together import draw_together, play_together
from tests.simulation.truth import is_known
from tippingpoint.analysis.analyse import Analysis
from tippingpoint.plan.claim import CLAIM_OPERATIONS


@dataclass(frozen=True)
class Asked:
    """A seed that was played, and of which nothing was found."""

    kinds: list[str]
    """What was drawn."""
    seconds: float
    """How long it took, in virtual time."""
    outcome: str
    """The verdict's."""
    searched: Drawn | None = None
    """A search that named a limit whose truth is known (truth.py)."""
    interval: tuple[float, float] = (0.0, 0.0)
    """Where that search says that the limit is."""


def play_and_ask(seed: int, out: Path, *, large: bool = False) -> Asked:
    """Play a seed below `out`, and ask all questions of it; raises what was found."""
    sizes = LARGE if large else SMALL
    if seed % 4 == 3:
        together = draw_together(seed, sizes)
        played = play_together(together, out)
        analysis = ask_together(played)
        kinds = [
            f"{together.units} units",
            f"{together.hooks} hooks",
            *(["hooks twice"] if together.twice else []),
            *_kinds_of_plan(together.plan),
            *sorted({f"{event.do} a unit" for event in together.events}),
            *(f"leader killed: {turn}" for turn in played.leader_killed),
        ]
        nothing = "refused" if played.run is None else "no report"
        return Asked(kinds, played.seconds, nothing if analysis is None else analysis.verdict.outcome)
    drawn = draw(seed, sizes)
    alone = play(drawn, out)
    analysis = ask_all(alone)
    if _stands_still_alone(drawn) and analysis is not None:
        _ask_beside_calm(drawn, alone, analysis, out / "calm")
    kinds = [
        *_kinds_of_plan(drawn.plan),
        *sorted({kind for kind, _, _ in drawn.service.troubles}),
        *sorted({event.do for event in drawn.events}),
    ]
    asked = Asked(kinds, alone.seconds, "refused" if analysis is None else analysis.verdict.outcome)
    found = analysis.found if analysis is not None else None
    if found is None or found.answer.limit is None or not is_known(drawn):
        return asked
    return replace(asked, searched=drawn, interval=(found.answer.low, found.answer.high))


def _ask_beside_calm(drawn: Drawn, alone: Played, analysis: Analysis, out: Path) -> None:
    """A target that meets what it is asked for does so, and has no cliff, where only the generator stands still."""
    if analysis.verdict.outcome != "missed" and analysis.tipping.cliff is None:
        return
    calm = play(replace(drawn, events=[]), out)
    twin = ask_all(calm)
    assert twin is not None
    # Its calls have the same luck one after the other, but not in the same stages, and not the last ones.
    if len(calm.answers) < len(alone.answers) or any(
        stage.failures(operation) for stage in twin.run.stages for operation in CLAIM_OPERATIONS
    ):
        return
    assert twin.verdict.outcome != "met" or analysis.verdict.outcome != "missed", (
        f"without the generator's standstills it is met: {analysis.verdict.sentence}"
    )
    assert twin.tipping.cliff is not None or analysis.tipping.cliff is None, (
        f"without the generator's standstills there is no cliff: {analysis.tipping.sentence}"
    )


def _stands_still_alone(drawn: Drawn) -> bool:
    """Whether nothing goes wrong but that the generator stands still, for less than leases last."""
    lasts = seconds_of(drawn.plan["workload"].get("claim_time", "0s"))
    return (
        bool(drawn.events)
        and "stages" in drawn.plan
        and not drawn.service.troubles
        and all(event.do == "stand still" and event.seconds < lasts / 2 for event in drawn.events)
    )


def _kinds_of_plan(plan: Mapping[str, Any]) -> list[str]:
    return [
        {"spawn": "things", "store": "keys"}.get(plan["workload"].get("kind", ""), "leases"),
        "searches" if "find" in plan else "lists",
        *(["after: recover"] if "after" in plan else []),
        *(["storms"] if "faults" in plan else []),
    ]
