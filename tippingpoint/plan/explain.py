"""The first error of a plan, in one line: the field as it was written, its value, and what would be accepted."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.util.text import nearest

_EXPLAINS_OTHERS = {"extra_forbidden": 1}
_NOTHING = 2


def explained(problem: ValidationError, plan: type[BaseModel], target: type[BaseModel]) -> UserError:
    """The most helpful error of a plan of this class, with this class of target."""
    errors = problem.errors(include_url=False)
    # A value that should have been a mapping explains the errors that follow from it. A misspelt key makes the right
    # one missing too, and is the better explanation.
    error = min(
        errors,
        key=lambda error: 0 if _is_no_mapping(error) else _EXPLAINS_OTHERS.get(error["type"], _NOTHING),
    )
    path = tuple(part for part in error["loc"] if part != "[key]")
    field = without_login(" ".join(".".join(str(part) for part in path).split()))[:120] or "plan"
    value = _shown(error["input"])
    if _is_no_mapping(error):
        return UserError(field, value, "a mapping")
    if error["type"] == "unknown_kind":
        found = error.get("ctx", {})
        return UserError(".".join([*map(str, path), found["field"]]), found["kind"], found["accepted"])
    if error["type"] == "extra_forbidden":
        known = _fields_at(error["loc"][:-1], plan, target)
        return UserError(field, value, f"one of {', '.join(known)}{nearest(str(path[-1]), known)}")
    if error["type"] == "missing":
        return UserError(field, "missing", f"a value; {field} is required")
    if error["type"] == "value_error":
        message = str(error["msg"]).removeprefix("Value error, ")
        if ": expected " in message:  # a model's own check names the field and the value itself
            inside, accepted = message.split(": expected ", 1)
            name, _, shown = inside.partition(": ")
            return UserError(".".join([*map(str, path), name]), shown or "given", accepted)
        return UserError(field, value, message)
    accepted = str(error["msg"]).removeprefix("Input should be ").lower()
    return UserError(
        field, value, re.sub(r"^(?:list|string) should have (.*?)(?: after .*)?$", r"\1", accepted)
    )


def _is_no_mapping(error: Mapping[str, Any]) -> bool:
    """Whether something else stands where a mapping is wanted."""
    return error["type"] == "model_type"


def _shown(value: object) -> str:
    """A value for an error message: short, even with aliases, and without anything that may be a password."""
    brief = reprlib.Repr()
    brief.maxlevel = 3
    brief.maxstring = brief.maxother = 120
    try:
        return without_login(value if isinstance(value, str) else brief.repr(value))
    except ValueError:  # Python prints no number of more than a few thousand digits
        return "a number too long to show"


def without_login(text: str) -> str:
    """A text without the user and password of a URL in it."""
    begin, end = text.find("://"), text.rfind("@")
    return f"{text[:begin]}://...{text[end:]}" if 0 <= begin < end else text


def _fields_at(path: Sequence[int | str], plan: type[BaseModel], target: type[BaseModel]) -> list[str]:
    """The fields that a plan has at a place."""
    model: Any = plan
    for part in path:
        if part == "target":
            model = target
        elif not isinstance(part, int) and model is not None:
            model = _model_in(model.model_fields[part].annotation) if part in model.model_fields else None
    return list(model.model_fields) if model is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
