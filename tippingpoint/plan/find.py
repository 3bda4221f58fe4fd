"""A search in a plan: which load it looks for, where it begins, and when it ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.base import MAX_STAGES, BasePlan, BaseStage, Fault, Threshold, share_of
from tippingpoint.plan.fields import Amount, Seconds, Section, as_amount, in_units
from tippingpoint.util.durations import format_duration


class Find(Section, frozen=True):
    """A search for the load at which the thresholds are met in half of all holds. It ends when the 95 % interval of
    that load is as narrow as `resolution`, or after `within`."""

    rates: ClassVar[frozenset[str]] = frozenset()
    """The loads that are rates. All others are whole numbers."""

    load: str = Field(description="Which load is searched.")
    start: Amount = Field(default=100, description="The first load.")
    limit: Amount = Field(default=100_000, description="The largest load that is tried; at least `start`.")
    hold: Seconds = Field(
        default=30.0,
        description="How long each load is held at most, once it is up. A hold whose answer is clear ends earlier.",
    )
    resolution: Annotated[float, Field(gt=0, le=1, json_schema_extra=in_units("share"))] = Field(
        default=0.2,
        description="The search ends when its 95 % interval is at most this share of the answer wide.",
    )
    within: Seconds | None = Field(
        default=None, description="After this time no further load is tried; without it there is no limit."
    )
    also: list[Threshold] = Field(
        default=[],
        max_length=20,
        description="Thresholds whose limits are reported too. They do not steer the search.",
    )

    @property
    def whole(self) -> bool:
        """Whether the loads are whole numbers."""
        return self.load not in self.rates

    @model_validator(mode="after")
    def _order(self) -> Find:
        if any(threshold.abort for threshold in self.also):
            raise ValueError(
                "also: abort: true: expected among the plan's thresholds, as these decide nothing"
            )
        if self.within is not None and self.within < self.hold:
            raise ValueError(
                f"within: {format_duration(self.within)}: expected at least hold ({format_duration(self.hold)})"
            )
        for name in ("start", "limit"):
            value = as_amount(getattr(self, name))
            if self.whole and not isinstance(value, int):
                raise ValueError(f"{name}: {value}: expected a whole number of {self.load}")
        if self.limit < self.start:
            raise ValueError(
                f"limit: {as_amount(self.limit)}: expected at least start ({as_amount(self.start)})"
            )
        return self


class FindBesideOthers(Find, frozen=True):
    """A search for one of several loads, beside fixed amounts of the others: each has a field of its name."""

    loads: ClassVar[tuple[str, ...]]

    @property
    def fixed(self) -> dict[str, Any]:
        """The amounts that are given, by load."""
        return {name: given for name in self.loads if (given := getattr(self, name)) is not None}

    @model_validator(mode="after")
    def _searched(self) -> Self:
        given = self.fixed.get(self.load)
        if given is not None:
            raise ValueError(f"{self.load}: {as_amount(given)}: expected none, as find looks for it")
        return self


class BaseSearchPlan(BasePlan, frozen=True):
    """A plan that lists its loads as stages, or searches one."""

    if TYPE_CHECKING:  # each such plan has this field, and one for its stages
        workload: Section
        find: Find | None

    @abstractmethod
    def stage_at(self, load: float) -> BaseStage:
        """Return the stage with this load: a stage of the search, or one otherwise like the last listed stage."""

    def load_at(self, load: float) -> float:
        """Return the actual load of the stage with this load, which consists of whole things."""
        return self.load_of(self.stage_at(load))

    @abstractmethod
    def listed_part(self, index: int, of: int) -> Self:
        """Return the part of a plan with stages for the unit with this index out of this many."""

    def only(self, stage: BaseStage) -> Self:
        """Return the plan with this stage alone, which may be a stage of the search."""
        return self.model_copy(update={"stages": [stage], "find": None})

    def part(self, index: int, of: int) -> Self:
        """Return the part of the plan for the unit with this index out of this many.

        A search has the pace of one unit, and that unit's share of the first and of the largest load.
        """
        find = self.find
        if find is None:
            return self.listed_part(index, of)
        part = self
        for load in (find.start, find.limit):
            try:
                part = self.only(self.stage_at(load)).listed_part(index, of)
            except UserError as refused:
                raise UserError(
                    refused.field.replace("stages.0", "find"), refused.value, refused.accepted
                ) from None
        loads: dict[str, float] = {
            name: max(1, share_of(round(value), index, of)) if find.whole else value / of
            for name, value in (("start", find.start), ("limit", find.limit))
        }
        return self.model_copy(update={"find": find.model_copy(update=loads), "workload": part.workload})


def check_find(
    stages: Sequence[Any],
    find: Find | None,
    thresholds: Sequence[Threshold],
    faults: Sequence[Fault],
) -> None:
    """Check that a plan has either stages or a search, and what a search needs of the rest of the plan.

    Raises ValueError.
    """
    if stages and find is not None:
        raise ValueError("find: given beside stages: expected either stages or find")
    if not stages and find is None:
        raise ValueError(f"stages: none: expected 1 to {MAX_STAGES} stages, or find")
    if find is None:
        return
    if not thresholds:
        raise ValueError(
            "thresholds: none: expected at least one, as find looks for the load that misses one"
        )
    for place, each in (("thresholds", thresholds), ("find.also", find.also)):
        number = next((n for n, threshold in enumerate(each) if threshold.cpu is not None), None)
        if number is not None:
            raise ValueError(
                f"{place}.{number}.cpu: expected none, as it is known after the run, not after a probe"
            )
    staged = next((n for n, fault in enumerate(faults) if fault.stage is not None), None)
    if staged is not None:
        raise ValueError(
            f"faults.{staged}.stage: {faults[staged].stage}: expected none, as find lists no stages"
        )
