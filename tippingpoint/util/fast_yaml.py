"""YAML that is installed beside the program, read quickly."""

from __future__ import annotations

from typing import Any, cast

import yaml

FAST_LOADER = cast("type[yaml.SafeLoader]", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
"""libyaml's, several times as fast, where the installed PyYAML has it."""


def field_of(text: str, name: str) -> str:
    """The field of this name of the mapping in a text; empty where there is no such field, or no mapping."""
    try:
        document = yaml.load(text, FAST_LOADER)
    except (yaml.YAMLError, ValueError):
        return ""
    return str(cast("dict[str, Any]", document).get(name, "")) if isinstance(document, dict) else ""
