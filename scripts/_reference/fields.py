"""Fields of pydantic models as rows of a table, by their JSON schema."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from scripts._reference.docstrings import attributes
from scripts._reference.markdown import code, sentence, table
from tippingpoint.plan.fields import Section
from tippingpoint.util.durations import format_duration

Schema = Mapping[str, Any]
_DURATION = "seconds"
_LARGEST = 1_000_000_000


def plan_table(model: type[Section], links: Mapping[str, str], order: Sequence[str] = ()) -> str:
    """The fields of a part of a plan. `links` has the Markdown of the parts that have a table of their own; `order` has
    the fields that come first."""
    place = {name: number for number, name in enumerate(order)}
    rows = [
        [code(name), _type(schema, links), _default(schema, required), _unit(schema), schema["description"]]
        for name, schema, required in sorted(_fields(model), key=lambda field: place.get(field[0], 99))
    ]
    return table(["field", "type", "default", "unit", "meaning"], rows)


def keys_table(model: type[BaseModel], links: Mapping[str, str]) -> str:
    """The keys of a JSON document or line, as its model has them, with the texts of the model's attributes."""
    texts = attributes(model)
    rows = [
        [code(name), _type(schema, links), sentence(re.sub(r"\bNone\b", "null", texts.get(name, "")))]
        for name, schema, _ in _fields(model)
    ]
    return table(["key", "type", "meaning"], rows)


def _fields(model: type[BaseModel]) -> list[tuple[str, Schema, bool]]:
    schema = model.model_json_schema(mode="validation")
    required = schema.get("required", [])
    return [(name, each, name in required) for name, each in schema["properties"].items()]


def _choices(schema: Schema) -> list[Schema]:
    """The schemas that a value may have, null left out."""
    found: list[Schema] = schema.get("anyOf") or [schema]
    return [each for each in found if each.get("type") != "null" and each.get("const") != ""]


def _unit(schema: Schema) -> str:
    units = [each["unit"] for each in (schema, *_choices(schema)) if "unit" in each]
    return units[0] if units else ""


def _type(schema: Schema, links: Mapping[str, str]) -> str:
    if _unit(schema) == _DURATION:
        return "duration"
    return " or ".join(_one_type(each, links) for each in _choices(schema))


def _one_type(schema: Schema, links: Mapping[str, str]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return links.get(name, "mapping")
    if "const" in schema:
        return code(schema["const"])
    if "enum" in schema:
        return ", ".join(map(code, filter(None, schema["enum"])))
    if "oneOf" in schema:
        return links.get("oneOf", "mapping")
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return "list of " + ", ".join(_type(each, links) for each in schema["prefixItems"])
        return f"list of {_plural(_type(schema.get('items', {}), links))}"
    if kind == "object":
        inner = schema.get("additionalProperties")
        if not isinstance(inner, dict):
            return "mapping"
        names = schema.get("propertyNames", {}).get("enum")
        keys = ", ".join(map(code, names)) if names else "texts"
        return f"mapping of {keys} to {_plural(_type(inner, links))}"
    if kind == "string":
        return "path of a file" if schema.get("format") == "path" else "text"
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _range(schema)
    if kind == "boolean":
        return "`true`, `false`"
    return "mapping"


def _plural(text: str) -> str:
    """A type as what a list has many of: only our own words get an ending."""
    for word in ("whole number", "number", "text", "mapping", "list"):
        if text == word or text.startswith((f"{word},", f"{word} ")):
            return f"{word}s{text.removeprefix(word)}"
    return text


def _range(schema: Schema) -> str:
    least, more_than = schema.get("minimum"), schema.get("exclusiveMinimum")
    most = schema.get("maximum")
    low = f"more than {more_than:g}" if more_than is not None else f"{least:,}" if least is not None else ""
    high = f"{most:,}" if most is not None and most < _LARGEST else ""
    if low and high:
        return f", {low}, at most {high}" if more_than is not None else f", {low} to {high}"
    return (
        f", {low if more_than is not None else f'at least {low}'}"
        if low
        else f", at most {high}"
        if high
        else ""
    )


def _default(schema: Schema, required: bool) -> str:
    if required:
        return "required"
    value = schema.get("default")
    if value in (None, [], {}, "") or isinstance(value, dict):
        return ""
    if _unit(schema) == _DURATION:
        return code(format_duration(value))
    if isinstance(value, bool):
        return code(str(value).lower())
    if isinstance(value, list):
        return code(f"[{', '.join(map(str, value))}]")
    return code(value)
