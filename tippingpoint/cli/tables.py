"""A table of texts on standard output, whose last columns are cut where a terminal is too narrow."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below a header, which a terminal shows in bold."""
    wide = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    console = Console()
    for number, row in enumerate((header, *rows)):
        line = "  ".join(f"{cell:{width}}" for cell, width in zip(row, wide, strict=True)).rstrip()
        text = Text(line, style="bold" if not number else "", no_wrap=True, overflow="ellipsis")
        console.print(text, highlight=False, soft_wrap=not console.is_terminal)
