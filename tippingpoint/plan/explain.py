"""The first error of a plan, in one line: the field as it was written, its value, and what would be accepted."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, cast

from pydantic import BaseModel, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.util.secret_words import NOT_SHOWN, is_secret, without_secrets
from tippingpoint.util.text import nearest

_EXPLAINS_OTHERS = {"extra_forbidden": 1}
_NOTHING = 2
_ACCEPTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text, or a number in quotes",
    "list_type": "a list, such as [a, b]",
    "dict_type": "a mapping, such as {{a: 1}}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
}
"""What would be accepted, by pydantic's type of error."""
_BOUNDS = ("gt", "ge", "lt", "le")


def explained(problem: ValidationError, plan: type[BaseModel], target: type[BaseModel]) -> UserError:
    """The most helpful error of a plan of this class, with this class of target."""
    errors = problem.errors(include_url=False)
    # A value that should have been a mapping explains the errors that follow from it. A misspelt key makes the right
    # one missing too, and is the better explanation.
    error = min(
        errors,
        key=lambda error: 0 if _is_no_mapping(error) else _EXPLAINS_OTHERS.get(error["type"], _NOTHING),
    )
    path = tuple(part for part in _written(error["loc"], plan, target) if part != "[key]")
    field = written(" ".join(".".join(str(part) for part in path).split()))[:120] or "plan"
    value = NOT_SHOWN if any(is_secret(str(part)) for part in path) else _shown(error["input"])
    if _is_no_mapping(error):
        return UserError(field, value, "a mapping")
    if error["type"] == "unknown_kind":
        found = error.get("ctx", {})
        named = ".".join([*map(str, path), found["field"]])
        return UserError(named, _shown(found["kind"]), found["accepted"])
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        found = error.get("ctx", {})
        known = ", ".join(map(str, _walked(error["loc"], plan, target).choices))
        name = str(found.get("discriminator")).strip("'")
        return UserError(f"{field}.{name}", _shown(found.get("tag", "missing")), f"one of {known}")
    if error["type"] == "extra_forbidden":
        known, kind = _fields_at(error["loc"][:-1], plan, target)
        of = f", for {kind}" if kind else ""
        return UserError(field, value, f"one of {', '.join(known)}{of}{nearest(str(path[-1]), known)}")
    if error["type"] == "missing":
        return UserError(field, "missing", f"a value; {field} is required")
    if error["type"] == "value_error":
        message = str(error["msg"]).removeprefix("Value error, ")
        if ": expected " in message:  # a model's own check names the field and the value itself
            inside, accepted = message.split(": expected ", 1)
            name, _, shown = inside.partition(": ")
            shown = NOT_SHOWN if is_secret(name) and shown else written(shown)
            return UserError(".".join([*map(str, path), name]), shown or "given", accepted)
        return UserError(field, value, message)
    return UserError(field, value, _accepted(error))


def _accepted(error: Mapping[str, Any]) -> str:
    """What pydantic would accept, in our words; in its own for a type of error that is not in the table."""
    found: Mapping[str, Any] = error.get("ctx", {})
    if error["type"] == "literal_error":
        choices = re.findall("'([^']*)'", str(found["expected"]))
        near = nearest(error["input"], choices) if isinstance(error["input"], str) else ""
        return f"{'one of ' * (len(choices) > 1)}{', '.join(choices)}{near}"
    words = _ACCEPTED.get(error["type"])
    if words is not None:
        return words.format_map({name: f"{bound:.15g}" for name, bound in found.items() if name in _BOUNDS})
    accepted = str(error["msg"]).removeprefix("Input should be ").lower()
    return re.sub(r"^(?:list|string) should have (.*?)(?: after .*)?$", r"\1", accepted)


def _is_no_mapping(error: Mapping[str, Any]) -> bool:
    """Whether something else is given where a mapping is expected."""
    return error["type"] in ("model_type", "model_attributes_type")


def _shown(value: object) -> str:
    """A value for an error message: short, even with aliases, and without anything that may be a password."""
    brief = reprlib.Repr()
    brief.maxlevel = 3
    brief.maxstring = brief.maxother = 120
    try:
        return written(value) if isinstance(value, str) else without_login(brief.repr(_hidden(value)))
    except ValueError:  # Python prints no number of more than a few thousand digits
        return "a number too long to show"


def _hidden(value: object, deep: int = 4) -> object:
    """A value without the parts that its own keys call a secret, as deep as it is shown."""
    if isinstance(value, dict) and deep:
        fields = islice(cast("dict[object, object]", value).items(), 10)
        return {
            key: NOT_SHOWN if is_secret(str(key)) else _hidden(inside, deep - 1) for key, inside in fields
        }
    if isinstance(value, list) and deep:
        return [_hidden(inside, deep - 1) for inside in islice(cast("list[object]", value), 10)]
    return written(value) if isinstance(value, str) else cast(object, value)


def written(text: str) -> str:
    """A user's text for an error message, without anything that may be a password."""
    return without_secrets(without_login(text))


def without_login(text: str) -> str:
    """A text without the user and password of a URL in it."""
    begin, end = text.find("://"), text.rfind("@")
    return f"{text[:begin]}://...{text[end:]}" if 0 <= begin < end else text


def _written(path: Sequence[int | str], plan: type[BaseModel], target: type[BaseModel]) -> list[int | str]:
    """The parts of a path that are in the file: pydantic's own names of choices are left out."""
    return [part for part, tag in _walked(path, plan, target).parts if not tag]


def _fields_at(
    path: Sequence[int | str], plan: type[BaseModel], target: type[BaseModel]
) -> tuple[list[str], str]:
    """The fields that a plan has at a place, and the kind of workload or target that they belong to, if any."""
    model = _walked(path, plan, target).model
    if model is None:
        return [], ""
    kinds: tuple[str, ...] = ()
    if path in (("workload",), ("target",)) and "kind" in model.model_fields:
        kinds = getattr(model.model_fields["kind"].annotation, "__args__", ())
    return list(model.model_fields), kinds[0] if len(kinds) == 1 else ""


class _Walked(NamedTuple):
    parts: list[tuple[int | str, bool]]
    """Each part of a path, with whether it is the tag of a choice between models."""
    model: type[BaseModel] | None
    """The model at its end."""
    choices: dict[Any, type[BaseModel]]
    """The models to choose from there, by their tags."""


def _walked(path: Sequence[int | str], plan: type[BaseModel], target: type[BaseModel]) -> _Walked:
    model: type[BaseModel] | None = plan
    choices: dict[Any, type[BaseModel]] = {}
    walked: list[tuple[int | str, bool]] = []
    for part in path:
        walked.append((part, part in choices))
        if part in choices:
            model, choices = choices[part], {}
        elif part == "target":
            model = target
        elif not isinstance(part, int) and model is not None:
            field = model.model_fields.get(part)
            model = _model_in(field.annotation) if field is not None else None
            if field is not None and isinstance(field.discriminator, str):
                choices = _by_tag(field.annotation, field.discriminator)
    return _Walked(walked, model, choices)


def _by_tag(annotation: Any, discriminator: str) -> dict[Any, type[BaseModel]]:
    """The models of a choice, by their value of the field that distinguishes them."""
    models: list[type[BaseModel]] = list(getattr(annotation, "__args__", ()))
    return {model.model_fields[discriminator].annotation.__args__[0]: model for model in models}  # pyright: ignore


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type):
        return annotation if issubclass(annotation, BaseModel) else None
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None
