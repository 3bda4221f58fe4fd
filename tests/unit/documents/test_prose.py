"""Documents are plain English, measured: short sentences, and a README that ends."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.unit.documents.reading import ROOT, documents, name_of, sentences

WORDS = 16
"""The most words that a sentence has on average."""
LONG = 30
"""A sentence of more words has a good reason."""
LONG_SHARE = 0.03
README_LINES = 120
GROUPS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/", "charms/", "bundles/")


def lengths(paths: Iterable[Path]) -> list[int]:
    """The words of each sentence of documents."""
    return [len(each.split()) for path in paths for each in sentences(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("document", documents(), ids=name_of)
def test_sentences_are_short(document: Path) -> None:
    found = lengths([document])
    average = sum(found) / max(1, len(found))

    assert average <= WORDS, f"{average:.1f} words a sentence"


@pytest.mark.parametrize("group", GROUPS)
def test_few_sentences_are_long(group: str) -> None:
    paths = [path for path in documents() if name_of(path).startswith(group)]
    long = [
        f"{name_of(path)}: {each}"
        for path in paths
        for each in sentences(path.read_text(encoding="utf-8"))
        if len(each.split()) > LONG
    ]
    share = len(long) / max(1, len(lengths(paths)))

    assert share <= LONG_SHARE, "\n".join(long)


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES


def test_prose_is_read_without_code_tables_and_targets() -> None:
    text = (
        "# Not this heading\n\nOne `a b c` two. Three [four](five.md)\nfive.\n\n    not this\n\n| nor | this |\n\n"
        "- Six seven: eight nine.\n- Ten eleven.\n"
    )
    assert sentences(text) == ["One X two.", "Three four five.", "Six seven: eight nine.", "Ten eleven."]
