"""The targets there are, by the kind that plans name them by."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import kinds, module_of
from tippingpoint.targets.target import Target


@cache
def target_of(kind: str) -> Target[Any, Any, Any]:
    """The target of this kind; LookupError when nobody brings it."""
    try:
        return cast("Target[Any, Any, Any]", module_of(kind, "target").TARGET)
    except LookupError:
        raise UserError("target.kind", kind, f"one of {', '.join(kinds())}") from None
