"""A list of names with a text beside each, as wide as the terminal."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence

_GAP = "  "
_NARROWEST = 20
"""The fewest columns of a text, however narrow the terminal is."""


def print_list(heading: tuple[str, str], rows: Sequence[tuple[str, str]]) -> None:
    """Print names and texts in two columns below a heading, which a terminal shows in bold."""
    wide = max(len(name) for name, _ in [heading, *rows])
    left = shutil.get_terminal_size().columns - wide - len(_GAP)
    bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    lines = [f"\x1b[1m{line}\x1b[0m" if bold else line for line in _lines(heading, wide, left)]
    for row in rows:
        lines += _lines(row, wide, left)
    print("\n".join(lines))


def _lines(row: tuple[str, str], wide: int, left: int) -> list[str]:
    name, text = row
    first, *others = textwrap.wrap(text, max(left, _NARROWEST), break_on_hyphens=False) or [""]
    return [f"{name:{wide}}{_GAP}{first}".rstrip(), *(f"{'':{wide}}{_GAP}{line}" for line in others)]
