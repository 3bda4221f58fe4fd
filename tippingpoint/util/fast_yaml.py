"""Reads YAML files that are installed with the program, quickly."""

from __future__ import annotations

from typing import Any, cast

import yaml

FAST_LOADER = cast("type[yaml.SafeLoader]", getattr(yaml, "CSafeLoader", yaml.SafeLoader))
"""libyaml's loader, which is several times as fast, if the installed PyYAML includes it."""


def field_of(text: str, name: str) -> str:
    """Return the field of this name in a YAML mapping; empty without such a field, or if the text is no mapping."""
    try:
        document = yaml.load(text, FAST_LOADER)
    except (yaml.YAMLError, ValueError):
        return ""
    return str(cast("dict[str, Any]", document).get(name, "")) if isinstance(document, dict) else ""
