"""What is known of Prometheus' figures in the turns of a run by many units, to its leader and to every later leader."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from tippingpoint.conduct.search_messages import MOST_PROBES
from tippingpoint.plan.figures import subjects_of
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.figure_values import FigureValue

_TEXT = 80
"""The most characters of a host's name or a reason in the leader's databag."""
_MOST_TEXTS = 30
"""How many different hosts and reasons are kept there; ELSE replaces the others."""
ELSE = "(not kept: too many hosts or reasons)"
_PER_VALUE = 40
"""The most characters of a value in the leader's databag."""

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Place = Annotated[int, Field(ge=0, le=10**6)]
_Text = Annotated[str, Field(max_length=_TEXT)]
_Value = tuple[_Place, _Place, _Finite | None, _Place, _Finite | None, _Place]
"""Turn, which figure (from 0, in the order of `subjects_of`), value, host, error, and why: as in FigureValue."""


class FigureNews(BaseModel, frozen=True):
    """What the leader's agent knows about the figures of a run."""

    run: Annotated[str, Field(max_length=130)]
    values: list[FigureValue] = []
    """The figures of turns that are over and that the SharedRun does not have yet."""
    measuring: bool = False
    """Whether Prometheus is still being queried about such a turn: the run is not over before that."""
    abort: Annotated[str, Field(max_length=900)] = ""
    """The threshold with `abort` that is clearly missed, in a line; empty if none is."""
    unwatched: str = ""
    """Why thresholds with `abort` were not watched all the time; empty if they were."""


class FiguresTold(BaseModel, frozen=True):
    """The figures that were measured in the turns of a run."""

    texts: Annotated[list[_Text], Field(max_length=_MOST_TEXTS + 1)] = []
    """Hosts and reasons; values refer to them by their place, from 1; 0 is none."""
    values: Annotated[list[_Value], Field(max_length=100_000)] = []
    unwatched: _Text = ""
    """Why those with `abort` were not watched all the time; empty if they were."""

    @property
    def turns(self) -> set[int]:
        """The numbers of the turns whose figures are known, or known to be unknown."""
        return {value[0] for value in self.values}

    def with_news(self, plan: Plan, news: FigureNews) -> FiguresTold:
        """Return this with the figures of further turns; those of a turn that is known already change nothing."""
        names, known = subjects_of(plan), self.turns
        texts, values = [*self.texts], [*self.values]

        def place(text: str) -> int:
            if not text:
                return 0
            kept = text[:_TEXT] if text[:_TEXT] in texts or len(texts) < _MOST_TEXTS else ELSE
            if kept not in texts:
                texts.append(kept)
            return texts.index(kept) + 1

        for value in news.values:
            if value.name in names and value.stage not in known:
                told = (value.value, place(value.host), value.error, place(value.why))
                values.append((value.stage, names.index(value.name), *told))
        return self.model_copy(
            update={"texts": texts, "values": values, "unwatched": self.unwatched or news.unwatched[:_TEXT]}
        )

    def known(self, plan: Plan) -> list[FigureValue]:
        """Return the figures; damaged ones are left out."""
        names = subjects_of(plan)
        return [
            FigureValue(
                stage=turn,
                name=names[figure],
                value=value,
                host=self._text(host),
                error=error,
                why=self._text(why),
            )
            for turn, figure, value, host, error, why in self.values
            if turn >= 1 and figure < len(names)
        ]

    def _text(self, place: int) -> str:
        return self.texts[place - 1] if 1 <= place <= len(self.texts) else ""


def room_for_figures(plan: Plan) -> int:
    """Return the most characters that the figures of a plan's turns take; 0 for a plan without any."""
    figures = len(subjects_of(plan))
    if not figures:
        return 0
    turns = MOST_PROBES if plan.find is not None else len(plan.stages) + len(plan.faults)
    return (_MOST_TEXTS + 1) * (_TEXT + 3) + figures * turns * _PER_VALUE
