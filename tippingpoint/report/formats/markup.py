"""Markdown that takes any text: what reports in that format are made of, and how long they may be."""

from __future__ import annotations

from collections.abc import Sequence

LIMIT = 30_000
"""Bytes (UTF-8) that no report exceeds: what an action's output takes."""
MOST_LINES = 20
"""Lines of a list; the JSON format has them all."""
_MOST_CHARACTERS = 300


def section(heading: str, body: str) -> str:
    """A heading with what stands below it; nothing when that is nothing."""
    return f"## {heading}\n\n{body}" if body else ""


def bullets(lines: Sequence[str]) -> str:
    """A list, of which the first MOST_LINES are shown."""
    shown = [f"- {plain(line)}" for line in lines[:MOST_LINES]]
    if len(lines) > len(shown):
        shown.append(f"- and {len(lines) - len(shown)} more; see the JSON report")
    return "\n".join(shown)


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = (), left_out: int = 0
) -> str:
    """A table, empty without rows; columns in `text` stand to the left, `left_out` rows are only told of."""
    if not rows:
        return ""
    rule = ["---" if column in text else "---:" for column in range(len(header))]
    lines = ["| " + " | ".join(plain(cell) for cell in row) + " |" for row in (header, *rows)]
    lines.insert(1, "|" + "|".join(rule) + "|")
    if left_out:
        lines.append(f"\n{left_out} more rows are in the JSON report.")
    return "\n".join(lines)


def plain(text: str) -> str:
    """Text as text: on one line, not too long, and nothing in it is markup."""
    line = " ".join(str(text).split())
    if len(line) > _MOST_CHARACTERS:
        line = line[: _MOST_CHARACTERS - 1] + "…"
    for character in "\\`*|[]<>":
        line = line.replace(character, "\\" + character)
    return line


def joined(blocks: Sequence[str]) -> str:
    """The blocks that have anything in them; the last ones give way when the whole would be too long."""
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
