"""Builds Markdown from any text, within length limits."""

from __future__ import annotations

from collections.abc import Sequence

from tippingpoint.util.text import choose, show_count

LIMIT = 30_000
"""The maximum size of a report that fits into an action's output, in bytes (UTF-8)."""
MOST_LINES = 20
"""The maximum number of lines of a list; the JSON format has all of them."""
_MOST_OF_CELL = 300
_MOST_OF_SENTENCE = 2000
"""The maximum number of characters of text that may come from another program. Sentences of a report are shorter."""


def section(heading: str, body: str) -> str:
    """Render a heading with its body; empty if the body is."""
    return f"## {heading}\n\n{body}" if body else ""


def bullets(lines: Sequence[str]) -> str:
    """Render the first MOST_LINES lines of a list."""
    shown = [f"- {plain(line)}" for line in lines[:MOST_LINES]]
    if len(lines) > len(shown):
        shown.append(f"- and {len(lines) - len(shown)} more; see the JSON report")
    return "\n".join(shown)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = (), left_out: int = 0
) -> str:
    """Render a table; empty without rows. Columns in `text` are left-aligned; `left_out` rows are only counted."""
    if not rows:
        return ""
    rule = ["---" if column in text else "---:" for column in range(len(header))]
    lines = ["| " + " | ".join(plain(cell, _MOST_OF_CELL) for cell in row) + " |" for row in (header, *rows)]
    lines.insert(1, "|" + "|".join(rule) + "|")
    if left_out:
        rows_more = show_count(left_out, "more row")
        lines.append(f"\n{rows_more} {choose(left_out, 'is', 'are')} in the JSON report.")
    return "\n".join(lines)


def plain(text: str, most: int = _MOST_OF_SENTENCE) -> str:
    """Escape a text: on one line, not longer than `most` characters, and without markup."""
    line = " ".join(str(text).split())
    if len(line) > most:
        line = line[: most - 1] + "…"
    for character in "\\`*|[]<>":
        line = line.replace(character, "\\" + character)
    return line


def joined(blocks: Sequence[str]) -> str:
    """Join the blocks that are not empty. The last ones are dropped if the whole would be too long."""
    kept: list[str] = []
    size = 0
    for block in blocks:
        if not block:
            continue
        length = len(block.encode()) + 2
        if size + length > LIMIT - 100:
            kept.append("The rest is in the JSON report.")
            break
        kept.append(block)
        size += length
    return "\n\n".join(kept) + "\n"
