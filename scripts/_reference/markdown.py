"""Tables and lines of Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell may be empty, and a bar in it is escaped."""
    lines = [_row(heads), _row(["---"] * len(heads)), *(_row(row) for row in rows)]
    return "\n".join(lines)


def code(text: object) -> str:
    """A text as code; empty for an empty text."""
    return f"`{text}`" if str(text) else ""


def one_line(text: str) -> str:
    """A text without line breaks."""
    return " ".join(text.split())


def sentence(text: str) -> str:
    """A text on one line that begins with a capital letter and ends with a full stop; empty for an empty text."""
    line = one_line(text)
    if not line:
        return ""
    return line[0].upper() + line[1:] + ("" if line.endswith((".", "!", "?")) else ".")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in cells) + " |"
