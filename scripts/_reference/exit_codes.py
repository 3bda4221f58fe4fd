"""The table of docs/reference/exit-codes.md."""

from __future__ import annotations

from collections.abc import Callable

from scripts._reference.docstrings import constants
from scripts._reference.markdown import code, one_line, table
from tippingpoint.util import exit_codes


def codes() -> str:
    """The exit codes in order."""
    rows = [
        (getattr(exit_codes, name), name.lower().replace("_", " "), one_line(text))
        for name, text in constants(exit_codes).items()
    ]
    return table(
        ["code", "name", "meaning"], [[code(number), name, text] for number, name, text in sorted(rows)]
    )


PARTS: dict[str, Callable[[], str]] = {"exit-codes": codes}
