"""The texts below assignments in a module, which say what a constant or an attribute means."""

from __future__ import annotations

import ast
import inspect
import itertools
from types import ModuleType


def constants(module: ModuleType) -> dict[str, str]:
    """The constants of a module that have a text, and the text of each."""
    return _texts(ast.parse(inspect.getsource(module)).body)


def attributes(kind: type) -> dict[str, str]:
    """The attributes of a class that have a text, those of its base classes included, and the text of each."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        module = inspect.getmodule(each)
        if module is None or not module.__name__.startswith("tippingpoint"):
            continue
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ClassDef) and node.name == each.__name__:
                found |= _texts(node.body)
    return found


def summary(kind: type) -> str:
    """The first paragraph of a class's own docstring."""
    return (inspect.cleandoc(kind.__doc__ or "")).partition("\n\n")[0]


def _texts(body: list[ast.stmt]) -> dict[str, str]:
    found: dict[str, str] = {}
    for assigned, text in itertools.pairwise(body):
        target = assigned.targets[0] if isinstance(assigned, ast.Assign) else None
        if isinstance(assigned, ast.AnnAssign):
            target = assigned.target
        below = text.value if isinstance(text, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(below, ast.Constant) and isinstance(below.value, str):
            found[target.id] = below.value
    return found
