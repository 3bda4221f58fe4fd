"""Pictures and measured tables of the documentation are what the commands beside them make."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.documents.pictures import LISTED, ROOT, listed, sentences_of

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MEASURED = ROOT / "docs" / "explanation" / "how-sure-the-finder-is.md"
COMMIT = re.compile(r"[0-9a-f]{7,40}")


def test_every_picture_is_listed_with_its_command_date_and_commit() -> None:
    entries = listed()
    assert entries.keys() == {path.name for path in LISTED.parent.glob("*.png")}
    for name, entry in entries.items():
        assert entry["command"].startswith("tippingpoint "), name
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(entry["made"])), name
        assert COMMIT.fullmatch(str(entry["commit"])), name
        assert entry["says"], f"{name}: no sentence of the program is on it"


@pytest.mark.parametrize("name", listed())
def test_a_picture_says_what_the_program_says_today(name: str) -> None:
    entry = listed()[name]
    today = sentences_of(entry["command"])
    old = [each for each in entry["says"] if each not in today]
    assert not old, f"{name}: take it again (.venv/bin/python -m tests.browser.picture): {old}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_says_beneath_a_picture_how_it_was_made(page: Path) -> None:
    entries = listed()
    for found in re.finditer(
        r"!\[[^\]]*\]\([^)]*images/([^)]+)\)\n\n((?:.+\n)+)", page.read_text(encoding="utf-8")
    ):
        entry = entries[found[1]]
        beneath = " ".join(found[2].split())
        assert f"`{entry['command']}`" in beneath, f"{found[1]}: expected its command beneath it"


def tables(page: Path) -> Iterator[tuple[str, list[list[str]]]]:
    """The tables of a page, each with the text of its section before it."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        section = re.split(r"^#+ ", text[: found.start()], flags=re.MULTILINE)[-1]
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[0].splitlines()]
        yield section, [row for row in rows if not set("".join(row)) <= set("-: ")]


def kind(cell: str) -> str:
    """What a cell that begins with a number is counted in: %, x, or another word; empty for text."""
    found = re.match(r"[\d.,]+ ?(%|x\b|[a-zµ]+\b)?", cell)
    return "" if found is None else found[1] or "number"


def test_a_measured_table_states_its_command_and_day() -> None:
    for section, rows in tables(MEASURED):
        if "bench_" not in section:
            continue
        assert re.search(r"`[^`]*bench_\w+\.py [^`]*--", section), rows[0]
        assert re.search(r"\d+ [A-Z][a-z]+ 2\d{3}|on the\s+same day", section), rows[0]


def test_a_row_of_a_measured_table_has_the_units_of_its_columns() -> None:
    for _, rows in tables(MEASURED):
        head, *body = rows
        assert all(len(row) == len(head) for row in body), head
        for place, column in enumerate(head):
            kinds = {kind(row[place]) for row in body} - {""}
            assert len(kinds) <= 1, f"{column}: {kinds}: {head}"


def test_the_summary_of_the_knee_is_the_worst_of_its_rows() -> None:
    (summary, everything) = [rows for _, rows in tables(MEASURED) if "finder" in rows[0]][:2]
    head, *body = everything
    for finder, flat, outlier, middle, above, coverage in summary[1:]:
        rows = {row[0]: dict(zip(head, row, strict=True)) for row in body if row[1] == finder}

        def said(cell: str) -> tuple[float, str]:
            found = re.match(r"([\d.]+) %(?: \((.*)\))?", cell)
            assert found is not None, cell
            return float(found[1]), found[2]

        share = {name: float(row["found"].split()[0]) for name, row in rows.items() if row["found"]}
        alarms = {
            name: float(row["false alarms"].split()[0]) for name, row in rows.items() if row["false alarms"]
        }
        assert said(outlier)[0] == alarms.pop("flat, one outlier")
        assert said(flat)[0] == max(alarms.values())
        assert said(middle)[0] == share.pop("hinge, rises 5-10")
        share.pop("hinge, rises 2-4")  # the column is about hinges that rise 20 times or more
        assert said(above)[0] == min(share.values())
        if coverage != "none stated":
            held = [float(row["coverage"].split()[0]) for row in rows.values() if row["coverage"]]
            assert said(coverage)[0] == min(held)
