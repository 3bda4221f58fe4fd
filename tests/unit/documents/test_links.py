"""Every link and picture of a document leads to a file, and to a heading of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.documents.reading import ROOT, anchors, documents, links, name_of


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_links_resolve(document: Path) -> None:
    broken: list[str] = []
    for target in links(document.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        leads_to = (document.parent / path) if path else document
        if not leads_to.exists():
            broken.append(f"{target}: no such file")
        elif anchor and anchor not in anchors(leads_to.read_text(encoding="utf-8")):
            broken.append(f"{target}: no such heading")
    assert broken == []


def test_a_link_outside_of_code_is_found_with_its_heading() -> None:
    text = "# A `b` (c)\n\n[d](e.md#f) `[g](h)`\n\n    [i](j)\n\n# A b c\n\n![k](l.png)\n"

    assert links(text) == ["e.md#f", "l.png"]
    assert anchors(text) == {"a-b-c", "a-b-c-1"}


def test_every_page_is_reached_from_the_readme() -> None:
    """Given the README, when its links are followed from page to page, then every document is found."""
    found: set[Path] = set()
    following = [ROOT / "README.md"]
    while following:
        page = following.pop()
        found.add(page)
        for target in links(page.read_text(encoding="utf-8")):
            path = (page.parent / target.partition("#")[0]).resolve()
            if "://" not in target and path.suffix == ".md" and path not in {*found, *following}:
                following.append(path)
    assert sorted(name_of(page) for page in {*documents()} - found) == []
