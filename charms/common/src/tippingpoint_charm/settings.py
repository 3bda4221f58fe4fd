"""A generator's configuration, except `credentials`: access.find_access reads that secret."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import ops
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import kinds_of
from tippingpoint.plan.packages import kinds
from tippingpoint.targets.secret import secret_of
from tippingpoint_charm.relations import prometheus_api
from tippingpoint_charm.relations.databag import NotThere
from tippingpoint_charm.relations.lxd import project_names

S = TypeVar("S", bound=BaseModel)


def targets_of(*workloads: str, default: str) -> tuple[str, ...]:
    """Return the kinds of target with one of these workloads that a charm can reach; the default comes first."""
    answering = {kind for workload in workloads for kind in kinds_of(workload)}
    known = [kind for kind in kinds() if kind in answering and secret_of(kind) is not None]
    return (default, *(kind for kind in known if kind != default))


class Settings(BaseModel):
    """The options of both generators. Each charm adds the targets of its workload."""

    model_config = ConfigDict(frozen=True)

    targets: ClassVar[tuple[str, ...]]

    target: str
    lxd_projects: str = ""
    prometheus_only: str = ""

    @field_validator("target")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in cls.targets:
            *others, last = cls.targets
            raise ValueError(f"expected {', '.join(others)} or {last}")
        return value

    @field_validator("lxd_projects")
    @classmethod
    def _names(cls, value: str) -> str:
        try:
            project_names(value)
        except NotThere as problem:
            raise ValueError(str(problem)) from None
        return value

    @field_validator("prometheus_only")
    @classmethod
    def _labels(cls, value: str) -> str:
        prometheus_api.matchers("prometheus-only", value)
        return value


def read_settings(charm: ops.CharmBase, kind: type[S]) -> S:
    """Read the present configuration. Raises UserError for the first wrong value."""
    try:
        return charm.load_config(kind)
    except ValidationError as problem:
        error = problem.errors(include_url=False)[0]
        option = str(error["loc"][0]).replace("_", "-")
        said = str(error["msg"])
        # A validator's own line starts with the option and the value, and says what is accepted after "expected".
        accepted = said.partition("expected ")[2] or said.removeprefix("Input should be ").replace("'", "")
        value = "missing" if error["type"] == "missing" else error["input"]
        if "@" in str(value):  # a login, most likely
            value = "(not shown)"
        raise UserError(option, value, accepted) from None
