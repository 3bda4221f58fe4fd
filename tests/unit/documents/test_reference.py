"""docs/reference is what the code says: its tables are made by ./scripts/make-reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts._reference import PARTS, RENEW, ROOT, pages, renewed, used
from tippingpoint.conduct.recovery_messages import RECOVERING
from tippingpoint.rundir.probe_events import EVENT as EVENT_OF_A_PROBE
from tippingpoint.rundir.probe_events import FOUND

EVENT = re.compile(
    r"(?<!errors)\.(?:event|note|tally|write|write_numbered)\(\s*(?:[\w.() /-]+,\s*)?\"([a-z-]+)\""
)
"""How a worker or a runner writes an event: its name is the first text."""
WRITERS = ("play", "workloads", "conduct", "digest")


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_is_as_the_code_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")

    assert text == renewed(text), f"docs/reference/{page.name} is stale: renew it with {RENEW}"


def test_each_table_is_in_one_page() -> None:
    assert sorted(name for page in pages() for name in used(page.read_text(encoding="utf-8"))) == sorted(
        PARTS
    )


def test_every_field_option_and_key_has_a_meaning() -> None:
    """Given tables with a column of meanings, then no row of them has none."""
    rows = 0
    for name, make in PARTS.items():
        place: int | None = None
        for line in make().splitlines():
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not cells:
                place = None
            elif place is None:
                place = cells.index("meaning") if "meaning" in cells else -1
            elif place >= 0:
                rows += 1
                assert cells[place], f"{name}: {line}: expected a description in the code"
    assert rows > 300


def test_every_event_is_in_the_page_of_a_runs_directory() -> None:
    written = {
        name
        for package in WRITERS
        for path in (ROOT / "tippingpoint" / package).rglob("*.py")
        for name in EVENT.findall(path.read_text(encoding="utf-8"))
    }
    written |= {EVENT_OF_A_PROBE, FOUND, RECOVERING}  # which are written by these names
    text = (ROOT / "docs" / "reference" / "run-directory.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `([a-z-]+)` \|", text, re.MULTILINE))

    assert {"stage", "stall", "member", "retry", "fault"} <= written
    assert sorted(written - named) == []
