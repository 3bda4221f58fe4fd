"""The texts of plans: a file, or one of the plans that come with the suite. Nothing here validates them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.plan.packages import shipped_files
from tippingpoint.util.secret_files import read_text
from tippingpoint.util.text import nearest_three

MAX_TEXT = 1 << 17
"""Characters (bytes of a file) of a plan. PyYAML reads some 50,000 a second; the largest plan shipped has 1,139."""


def shipped_plans() -> dict[str, str]:
    """The names of the plans that come with the suite, and their texts."""
    return {
        file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8")
        for file in shipped_files("plans")
        if file.name.endswith(".yaml")
    }


def plan_text(name: str) -> str:
    """The text of the plan in the file of that name, or of the shipped plan of that name; UserError without either."""
    accepted = "a readable text file"
    try:
        is_input = not stat.S_ISDIR(os.stat(name).st_mode)  # a file, or a pipe: <(make-plan), /dev/stdin
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL
        is_input = False
    except OSError as problem:
        raise UserError("plan", name, f"{accepted} ({problem.strerror})") from None
    if is_input:
        return read_text("plan", Path(name), accepted)
    plans = shipped_plans()
    if name in plans:
        return plans[name]
    near = nearest_three(name, plans)
    raise UserError(
        "plan",
        name,
        f"a file, or a shipped plan{f' such as {near}' if near else ''} (tippingpoint plans lists them)",
    )
