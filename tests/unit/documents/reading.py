"""A small reader of Markdown: the links, headings and commands of a document."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)")
_PROGRAMS = ("tippingpoint", "juju", "tox", "pytest", "python")


def documents() -> list[Path]:
    """All documents that people read: those at the top, docs, and the README of each charm and of the bundles."""
    patterns = (
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "charms/*/README.md",
        "bundles/README.md",
    )
    return [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def name_of(path: Path) -> str:
    """The path of a document in the repository."""
    return path.relative_to(ROOT).as_posix()


def links(text: str) -> list[str]:
    """The targets of all links and images outside of code."""
    outside = re.sub(r"`[^`\n]*`", "", "\n".join(_without_code(text)))
    return [found["target"] for found in _LINK.finditer(outside)]


def anchors(text: str) -> set[str]:
    """The anchors of all headings, as GitHub makes them."""
    found: dict[str, int] = {}
    made: set[str] = set()
    for line in _without_code(text):
        if heading := re.match(r"#{1,6} (.*)", line):
            plain = _LINK.sub(r"\g<text>", heading[1]).strip().lower()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            made.add(f"{slug}-{found[slug]}" if slug in found else slug)
            found[slug] = found.get(slug, 0) + 1
    return made


def commands(text: str) -> Iterator[list[str]]:
    """The commands of code blocks, as words without comments; options before a pipe or a second command only."""
    for block in _blocks(text):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            yield from _split(line)


def plans(text: str) -> list[str]:
    """The plans in code blocks: YAML that begins with a name and has stages, or a search."""
    blocks = [textwrap.dedent(block) for block in _blocks(text)]
    return [
        each for each in blocks if re.match(r"name: ", each) and re.search(r"^(stages|find):", each, re.M)
    ]


def inline(text: str) -> Iterator[list[str]]:
    """The commands in the text itself, between backticks: their arguments may be left out."""
    for found in names(text):
        yield from _split(found)


def names(text: str) -> list[str]:
    """What stands between backticks in the text itself."""
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", "\n".join(_without_code(text)))]


def _without_code(text: str) -> list[str]:
    """The lines outside of code blocks."""
    lines = _FENCE.sub("", text).split("\n")
    code = _indented(lines)
    return [line for number, line in enumerate(lines) if number not in code]


def _blocks(text: str) -> Iterator[str]:
    """The code blocks, fenced or indented."""
    for fence in _FENCE.finditer(text):
        yield "\n".join(fence[0].split("\n")[1:-1])
    lines = _FENCE.sub("", text).split("\n")
    block: list[str] = []
    code = _indented(lines)
    for number, line in enumerate([*lines, "end"]):
        if number in code or (block and not line.strip()):
            block.append(line)
        elif block:
            yield "\n".join(block).rstrip()
            block = []


def _indented(lines: list[str]) -> set[int]:
    """The numbers of the lines of indented code: four spaces or more after a blank line, and two more in a list."""
    found: set[int] = set()
    inside = blank = False
    margin = 0
    for number, line in enumerate(lines):
        if not line.strip():
            blank = True
            continue
        indent = len(line) - len(line.lstrip())
        if item := re.match(r"(\s*)(?:[-*]|\d+\.) +", line):
            if not inside or indent < margin + 4:
                margin, inside = len(item[0]), False
        elif indent == 0:
            margin, inside = 0, False
        if indent >= margin + 4 and (blank or inside):
            found.add(number)
            inside = True
        elif item is None:
            inside = False
        blank = False
    return found


def _split(line: str) -> Iterator[list[str]]:
    """The commands in a line that are ours to check."""
    line = re.sub(r"(^|\s)#(\s.*)?$", "", line)
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|;&<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = [*lexer]
    except ValueError:
        words = line.split()
    command: list[str] = []
    for word in [*words, ";"]:
        if word and set(word) <= set("|;&<>()"):
            while command and re.fullmatch(r"[A-Z_]+=.*", command[0]):
                command = command[1:]
            program = command[0].removeprefix(".venv/bin/") if command else ""
            if program in _PROGRAMS or program.startswith("./scripts/"):
                yield [program, *command[1:]]
            command = []
        else:
            command.append(word)
