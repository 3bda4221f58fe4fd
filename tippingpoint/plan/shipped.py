"""The texts of plans: a file, or one of the plans that come with the suite. Nothing here validates them."""

from __future__ import annotations

from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.plan.packages import shipped_files
from tippingpoint.util.text import nearest

MAX_TEXT = 1 << 20
"""Characters (bytes of a file) of a plan."""


def shipped_plans() -> dict[str, str]:
    """The names of the plans that come with the suite, and their texts."""
    return {
        file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8")
        for file in shipped_files("plans")
        if file.name.endswith(".yaml")
    }


def plan_text(name: str) -> str:
    """The text of the plan in the file of that name, or of the shipped plan of that name; UserError without either."""
    path = Path(name)
    try:
        if path.is_file():
            if path.stat().st_size > MAX_TEXT:
                raise UserError("plan", name, "a file of at most 1 MiB")
            return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise UserError("plan", name, f"a readable text file ({reason})") from None
    plans = shipped_plans()
    if name in plans:
        return plans[name]
    raise UserError("plan", name, f"a file, or one of {', '.join(plans)}{nearest(name, plans)}")
