"""The generators' action parameters. Juju checks them too; what is wrong gives one line and no traceback either way."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.errors import UserError
from tippingpoint_charm.relations.databag import shown

P = TypeVar("P", bound="Parameters")

RunId = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9._-]{0,120})?$")]
"""A run's id; nothing for the latest run, or to `clean` for all that have ended."""


def _as_juju_writes_it(name: str) -> str:
    return name.replace("_", "-")


class Parameters(BaseModel):
    """No parameters, and those of other actions on top."""

    model_config = ConfigDict(extra="forbid", strict=True, alias_generator=_as_juju_writes_it)

    @classmethod
    def read(cls: type[P], params: dict[str, Any]) -> P:
        """The parameters of an action that was asked for; UserError for the first that is wrong."""
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
                    name, shown(str(error["input"])), "text: juju run --string-args keeps it that"
                ) from None
            accepted = str(error["msg"]).removeprefix("Input should be ").replace("'", "").lower()
            raise UserError(name, error["input"], accepted) from None


class Start(Parameters):
    """Of `start`: one of the first two, and what is to differ from it, as key=value.

    The last is a text, though it is a list, as Juju 4.0 cannot carry lists (domain/operation/state/start.go keeps every
    value as text, and then finds it to be no list).
    """

    plan: Annotated[str, Field(max_length=100)] = ""
    plan_yaml: Annotated[str, Field(max_length=100_000)] = ""
    overrides: Annotated[str, Field(max_length=100_000)] = ""

    @property
    def changes(self) -> list[str]:
        """Each override: one a line, or where there is but one line between semicolons and spaces."""
        text = self.overrides.strip()
        parts = text.splitlines() if "\n" in text else text.split("; ")
        return [part.strip() for part in parts if part.strip()]


class Status(Parameters):
    """Of `status`."""

    json_: bool = Field(default=False, alias="json")


class Report(Parameters):
    """Of `report`."""

    run: RunId = ""
    format: Literal["md", "html", "json", "junit"] = "md"
    part: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Which part of a long one, from 1; 0 for none."""


class Clean(Parameters):
    """Of `clean`."""

    run: RunId = ""


class EvictMember(Parameters):
    """Of `evict-member`."""

    member: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]
