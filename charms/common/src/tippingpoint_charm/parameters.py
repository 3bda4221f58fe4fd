"""The parameters of the generators' actions. Juju checks them, too; a wrong one fails the action with one line."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.errors import UserError
from tippingpoint_charm.relations.databag import shown

P = TypeVar("P", bound="Parameters")

RunId = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,120})?$")]
"""A run's id. Empty means the latest run, and for `clean` all runs that have ended."""


def _as_juju_writes_it(name: str) -> str:
    return name.replace("_", "-")


class Parameters(BaseModel):
    """The base of all actions' parameters, which has none itself."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=_as_juju_writes_it)

    @classmethod
    def read(cls: type[P], params: dict[str, Any]) -> P:
        """Read the parameters of an action. Raises UserError for the first wrong one."""
        try:
            return cls.model_validate(params)
        except ValidationError as problem:
            error = problem.errors(include_url=False)[0]
            name = shown(".".join(str(part) for part in error["loc"]))
            if error["type"] == "extra_forbidden":
                known = ", ".join(map(_as_juju_writes_it, cls.model_fields)) or "no parameters"
                raise UserError(name, error["input"], known) from None
            if error["type"] == "missing":
                raise UserError(name, "missing", f"{name}=...") from None
            if error["type"] == "string_type":  # `juju run` reads what looks like YAML as YAML
                raise UserError(
                    name, shown(str(error["input"])), "text: pass it with juju run --string-args"
                ) from None
            accepted = str(error["msg"]).removeprefix("Input should be ").replace("'", "").lower()
            raise UserError(name, error["input"], accepted) from None


class Start(Parameters):
    """The parameters of `start`: one of the first two, and overrides as key=value.

    The overrides are a text, because Juju 4.0 cannot carry lists: domain/operation/state/start.go keeps every value as
    text, and then refuses it as a list.
    """

    plan: Annotated[str, Field(max_length=100)] = ""
    plan_yaml: Annotated[str, Field(max_length=100_000)] = ""
    overrides: Annotated[str, Field(max_length=100_000)] = ""

    @property
    def changes(self) -> list[str]:
        """The overrides: one per line, or on a single line separated by semicolons or spaces."""
        text = self.overrides.strip()
        parts = text.splitlines() if "\n" in text else text.split("; ")
        return [part.strip() for part in parts if part.strip()]


class Status(Parameters):
    """The parameters of `status`."""

    json_: bool = Field(default=False, alias="json")


class Report(Parameters):
    """The parameters of `report`."""

    run: RunId = ""
    format: Literal["md", "html", "json", "junit"] = "md"
    part: Annotated[int, Field(ge=0, le=10_000)] = 0
    """The number of the part of a long report, from 1; 0 for none."""


class Clean(Parameters):
    """The parameters of `clean`."""

    run: RunId = ""


class EvictMember(Parameters):
    """The parameters of `evict-member`."""

    member: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
