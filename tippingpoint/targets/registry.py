"""The registry of targets, by their kind in plans."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.plan.packages import kinds, module_of
from tippingpoint.targets.target import Target


@cache
def target_of(kind: str) -> Target[Any, Any, Any]:
    """Return the target of this kind; UserError if no package provides it, or its package cannot be imported."""
    try:
        target = getattr(module_of(kind, "target"), "TARGET", None)
    except LookupError:
        raise UserError("target.kind", kind, f"one of {', '.join(kinds())}") from None
    if target is None:
        raise UserError("target.kind", kind, "a target whose module `target` has a TARGET")
    return cast("Target[Any, Any, Any]", target)
