"""The reference pages of docs/reference. Their tables are made from the code; the text around the tables is written.

A table stands between two comments, `<!-- made: NAME -->` and `<!-- end: NAME -->`. `PARTS` says which function makes
the table of that name. ./scripts/make-reference writes them, and tests/unit/documents checks that none is stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from scripts._reference import charms, commands, exit_codes, metrics, plans, run_directory

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "reference"
RENEW = "./scripts/make-reference"
"""The command that renews the pages."""
PARTS: dict[str, Callable[[], str]] = {
    **plans.PARTS,
    **commands.PARTS,
    **charms.PARTS,
    **run_directory.PARTS,
    **metrics.PARTS,
    **exit_codes.PARTS,
}
_PART = re.compile(r"<!-- made: (?P<name>[a-z-]+) -->\n.*?<!-- end: (?P=name) -->\n", re.DOTALL)


def pages() -> list[Path]:
    """The reference pages, with and without tables that are made."""
    return sorted(PAGES.glob("*.md"))


def renewed(text: str) -> str:
    """The text of a page with its tables made again; KeyError for the name of a table that no function makes."""
    return _PART.sub(lambda part: made(part["name"]), text)


def made(name: str) -> str:
    """One table between its two comments."""
    return f"<!-- made: {name} -->\n{PARTS[name]().strip()}\n<!-- end: {name} -->\n"


def used(text: str) -> list[str]:
    """The names of the tables in a page."""
    return [part["name"] for part in _PART.finditer(text)]
