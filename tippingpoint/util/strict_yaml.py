"""Reads YAML that people write for us, as they mean it, and writes what is read back so.

PyYAML follows YAML 1.1, in which `0100` is 64, `1:30` is 90, `1_000` is 1000, and `no` is false. Here these are texts,
as most of them are in YAML 1.2, and a field for a number refuses them. A key that is given twice is refused, and so are
merge keys: a few lines of them can expand to more than fits into memory. Half a character is refused too.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, cast

import yaml
from yaml.constructor import ConstructorError

_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_BOOL = "tag:yaml.org,2002:bool"
_MERGE = "tag:yaml.org,2002:merge"


class NotOurs(ConstructorError):
    """Raised for what is YAML but is refused here: a key that is given twice, a merge key, half of a character."""

    def __init__(self, problem: str) -> None:
        super().__init__(None, None, problem)


class StrictLoader(yaml.SafeLoader):
    """PyYAML's safe loader, except for the numbers and truth values above, repeated keys, merge keys and halves of
    characters."""

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        """Return the value; raises NotOurs for a lone surrogate, as "\\ud800" makes it, which nothing can write."""
        value = node.value if isinstance(node, yaml.ScalarNode) else ""
        if not value.isascii() and any("\ud800" <= mark <= "\udfff" for mark in value):
            raise NotOurs("a lone surrogate, which is half a character")
        return super().construct_scalar(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Return the mapping; raises NotOurs for a key that is given twice."""
        lines: dict[Hashable, int] = {}
        for key, _ in node.value:
            if key.tag == _MERGE:
                raise NotOurs("a merge key (<<)")
            line = key.start_mark.line + 1
            found = cast(Any, self).construct_object(key, deep=True)
            if not isinstance(found, Hashable):
                continue  # PyYAML itself refuses that
            if found in lines:
                where = f"in line {lines[found]} and in line {line}"
                raise NotOurs(f"{key.value} is given twice, {where}")
            lines[found] = line
        return super().construct_mapping(node, deep)


_OURS: dict[str, tuple[str, re.Pattern[str]]] = {
    "tTfF": (_BOOL, re.compile(r"(?:true|True|TRUE|false|False|FALSE)$")),
    "-+0123456789": (_INT, re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)$")),
    "-+.0123456789": (
        _FLOAT,
        re.compile(
            r"(?:[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
        ),
    ),
}
"""By the characters that a value may begin with: its tag, and its form."""


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """Return PyYAML's forms with ours instead of its numbers and truth values; the first that matches counts."""
    theirs: dict[str, list[tuple[str, re.Pattern[str]]]] = yaml.SafeLoader.yaml_implicit_resolvers
    found = {
        first: [(tag, form) for tag, form in forms if tag not in (_INT, _FLOAT, _BOOL)]
        for first, forms in theirs.items()
    }
    for marks, form in _OURS.items():
        for mark in marks:
            found.setdefault(mark, []).append(form)
    return found


StrictLoader.yaml_implicit_resolvers = _resolvers()


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, which also quotes the texts that only StrictLoader would read as numbers: 0e0."""


_Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        *StrictLoader.yaml_implicit_resolvers.get(first, []),
    ]
    for first in (*yaml.SafeDumper.yaml_implicit_resolvers, *StrictLoader.yaml_implicit_resolvers)
}


def dump_yaml(document: Any, *, flow: bool | None = False) -> str:
    """Return YAML that StrictLoader, and any loader of YAML 1.1, reads back as this document.

    Keys stay in order. With `flow` None, mappings and lists that contain no others are written on one line.
    """
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=flow)
