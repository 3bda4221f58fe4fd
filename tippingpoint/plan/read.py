"""Plans as people write them: YAML texts and files, with overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast, get_args

import yaml
from pydantic import (
    PlainValidator,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WrapSerializer,
)
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema

from tippingpoint.errors import UserError
from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.claim import ClaimPlan, Stage
from tippingpoint.plan.cts import CtsPlan, CtsStage
from tippingpoint.plan.explain import explained, written
from tippingpoint.plan.grow import GrowPlan, GrowStage
from tippingpoint.plan.kinds import (
    DEFAULT,
    RECORDED,
    facts_of,
    is_unknown,
    section_of,
    unknown_kind,
)
from tippingpoint.plan.operate import OperatePlan, OperateStage
from tippingpoint.plan.packages import kinds, kinds_where
from tippingpoint.plan.shipped import MAX_TEXT, plan_text
from tippingpoint.plan.spawn import SpawnPlan, SpawnStage
from tippingpoint.plan.store import StorePlan, StoreStage
from tippingpoint.util.strict_yaml import NotOurs, StrictLoader

# YAML's own constructors raise these on values that only look like theirs, such as the date 2001-99-99.
_NO_YAML = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)

_QUOTED = re.compile(r"'.*'|\".*\"")

Plan = ClaimPlan | SpawnPlan | GrowPlan | CtsPlan | StorePlan | OperatePlan
"""A validated plan: `workload.kind` says which."""
SearchPlan = ClaimPlan | SpawnPlan | GrowPlan | StorePlan | OperatePlan
"""A plan that may have a search."""
AnyStage = Stage | SpawnStage | GrowStage | CtsStage | StoreStage | OperateStage
"""A stage of a plan, or the part of one."""

_WORKLOADS: Mapping[str, type[BasePlan]] = {
    "claim": ClaimPlan,
    "spawn": SpawnPlan,
    "grow": GrowPlan,
    "cts": CtsPlan,
    "store": StorePlan,
    "operate": OperatePlan,
}
"""By workload: the class of a plan that names no kind of target. It is also used to explain errors."""


def said_kinds(fields: object) -> tuple[object, object]:
    """The kinds of workload and target that these fields of a plan name; None where they name none."""
    sections = cast("dict[str, object]", fields) if isinstance(fields, dict) else {}
    parts = [sections.get(name) for name in ("workload", "target")]
    workload, kind = [
        cast("dict[str, object]", part).get("kind") if isinstance(part, dict) else None for part in parts
    ]
    return workload, kind


def _class_of(fields: object) -> type[BasePlan]:
    """The class of a plan with these fields. If the target is unknown, the workload decides."""
    workload, kind = said_kinds(fields)
    if not isinstance(workload, str):
        return ClaimPlan
    default = _WORKLOADS.get(workload, ClaimPlan)
    return facts_of(kind).plans.get(workload, default) if isinstance(kind, str) else default


def _read(value: object, info: ValidationInfo) -> BasePlan:
    if isinstance(value, BasePlan):
        return value
    workload, kind = said_kinds(value)
    if workload is not None and workload not in tuple(_WORKLOADS):
        raise unknown_kind("workload.kind", workload, _WORKLOADS)
    gone = info.context == RECORDED and is_unknown(kind)
    if isinstance(workload, str) and workload != "claim" and kind is not None and not gone:
        _check_answers(kind, workload)
    return _class_of(value).model_validate(value, context=info.context)


def _check_answers(kind: object, workload: str) -> None:
    """Check that targets of this kind support this workload; UserError if the package of the kind is broken."""

    def answers(kind: str) -> bool:
        return workload in section_of(kind).plans

    if not (isinstance(kind, str) and kind in kinds() and answers(kind)):
        raise unknown_kind("target.kind", kind, sorted(kinds_where(answers)), f", for {workload}")


def _as_it_is(plan: Any, handler: SerializerFunctionWrapHandler) -> Any:
    return handler(plan)


AnyPlan = Annotated[Plan, PlainValidator(_read), WrapSerializer(_as_it_is)]
"""A plan as a field of a pydantic model."""
_PLANS: TypeAdapter[Plan] = TypeAdapter(AnyPlan)


def validate_plan(fields: object) -> Plan:
    """The plan with these fields; ValidationError if they are not a plan."""
    return _PLANS.validate_python(fields)


def recorded_plan(fields: object) -> Plan:
    """The plan in a manifest, for reading its run; ValidationError if this version cannot read it.

    The section of an unknown target is kept as it was written.
    """
    return _PLANS.validate_python(fields, context=RECORDED)


def plan_schema() -> dict[str, Any]:
    """The JSON schema of plans."""
    choices = {str(n): plan.__pydantic_core_schema__ for n, plan in enumerate(get_args(Plan))}
    return GenerateJsonSchema().generate(core_schema.tagged_union_schema(choices, repr))


def parse_plan(text: str, overrides: Sequence[str] = (), source: str = "plan") -> Plan:
    """The plan in a YAML text with `key=value` overrides applied; UserError says which field is wrong and why."""
    try:
        document = read_yaml(text)
    except ValueError as problem:
        raise UserError(source, written(str(problem)), "a plan in YAML") from None
    if not isinstance(document, dict):
        found = "empty" if document is None else "a list" if isinstance(document, list) else "a single value"
        raise UserError(source, found, "a mapping of plan fields")
    fields = cast(dict[str, Any], document)
    for override in overrides:
        _override(fields, override)
    try:
        return validate_plan(fields)
    except ValidationError as problem:
        target = fields.get("target")
        kind = cast("dict[str, Any]", target).get("kind", DEFAULT) if isinstance(target, dict) else DEFAULT
        raise explained(problem, _class_of(fields), facts_of(kind)) from None
    except RecursionError:
        raise UserError(source, "nested too deeply", "a plan") from None


def read_yaml(text: str) -> object:
    """Return the value in a YAML text from outside; raises ValueError that says in one line why there is none."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"{len(text)} characters, more than {MAX_TEXT}")
    try:
        return yaml.load(text, StrictLoader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except _NO_YAML as problem:
        raise ValueError(_why(problem)) from problem


def _why(problem: Exception) -> str:
    """Why a text is not YAML, without the lines that PyYAML quotes, which may contain a password."""
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem_mark is not None:
        mark = problem.problem_mark
        words = " ".join(f"{problem.context or ''} {problem.problem or ''}".split())
        return f"{_QUOTED.sub('...', words)} in line {mark.line + 1}, column {mark.column + 1}"
    said = _QUOTED.sub("...", " ".join(str(problem).split()))
    return said or "a value that is not what its tag says"


def load_plan(name: str, overrides: Sequence[str] = ()) -> Plan:
    """The plan in the file of that name, or the shipped plan of that name; UserError if there is neither."""
    return parse_plan(plan_text(name), overrides, name)


def _override(fields: dict[str, Any], override: str) -> None:
    """Apply `workload.renew_time=10s` or `stages.0.leases=50`; the value is read as YAML."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError("--set", written(override), "key=value, such as workload.renew_time=10s")
    try:
        value = read_yaml(text)
    except ValueError as problem:
        if not isinstance(problem.__cause__, yaml.YAMLError) or isinstance(problem.__cause__, NotOurs):
            raise UserError("--set", written(override), f"a value in YAML ({problem})") from None
        value = text  # not YAML at all, such as a description with a colon
    *parents, last = key.split(".")
    place: Any = fields
    for parent in parents:
        if isinstance(place, dict):
            place = cast(dict[str, Any], place).setdefault(parent, {})
        else:
            place = _item(place, parent, override)
    if isinstance(place, dict):
        place[last] = value
    else:
        _item(place, last, override)
        place[int(last)] = value


def _item(place: Any, index: str, override: str) -> Any:
    if not isinstance(place, list):
        raise UserError("--set", written(override), f"a key of the plan ({index} is inside a value)")
    items = cast(list[Any], place)
    if not items:
        raise UserError(
            "--set", written(override), f"another key, as the list has no position {index}: it is empty"
        )
    if not re.fullmatch("[0-9]{1,9}", index) or int(index) >= len(items):
        raise UserError("--set", written(override), f"a position from 0 to {len(items) - 1}")
    return items[int(index)]
