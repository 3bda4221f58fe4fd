"""The targets there are, by the kind that plans name them by."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.plan.packages import kinds, module_of
from tippingpoint.targets.target import Target


@cache
def target_of(kind: str) -> Target[Any, Any, Any]:
    """The target of this kind; UserError when nobody brings it, or what brings it cannot be imported."""
    try:
        target = getattr(module_of(kind, "target"), "TARGET", None)
    except LookupError:
        raise UserError("target.kind", kind, f"one of {', '.join(kinds())}") from None
    if target is None:
        raise UserError("target.kind", kind, "a target whose module `target` has a TARGET")
    return cast("Target[Any, Any, Any]", target)
