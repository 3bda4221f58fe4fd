"""The parameters of the collector's own actions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator
from tippingpoint_charm.parameters import Parameters, RunId


class Export(Parameters):
    """The parameters of `export`."""

    run: RunId = ""


class Trend(Parameters):
    """The parameters of `trend`."""

    by: Literal["date", "release"] = "date"
    acknowledge: RunId = ""
    """The run whose changes are accepted."""
    reason: Annotated[str, Field(max_length=500)] = ""
    format: Literal["md", "html", "json"] = "md"
    part: Annotated[int, Field(ge=0, le=10_000)] = 0
    """The number of the part of a long trend, from 1; 0 for none."""


class Compare(Parameters):
    """The parameters of `compare`."""

    runs: Annotated[str, Field(max_length=4000)] = ""
    baseline: Annotated[str, Field(max_length=200)] = ""
    with_: str = Field(default="", max_length=4000, alias="with")
    control: Annotated[str, Field(max_length=4000)] = ""
    format: Literal["md", "html", "json"] = "md"
    tolerance: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.10
    part: Annotated[int, Field(ge=0, le=10_000)] = 0
    """The number of the part of a long report, from 1; 0 for none."""

    @field_validator("tolerance", mode="before")
    @classmethod
    def _whole_numbers_too(cls, value: object) -> object:
        return (
            float(value)
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1e9
            else value
        )

    @property
    def names(self) -> list[str]:
        """The ids of runs, or seed:NAME for published results. The first is the baseline."""
        names = _named(self.runs)
        base = self.baseline.strip()
        return [base, *(name for name in names if name != base)] if base else names

    @property
    def others(self) -> list[str]:
        """The ids of another release's runs; then `names` are repeats of one release."""
        return _named(self.with_)

    @property
    def controls(self) -> list[str]:
        """The ids of further runs of the first release."""
        return _named(self.control)


def _named(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
