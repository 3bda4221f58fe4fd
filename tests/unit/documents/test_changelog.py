"""The changelog begins with the version that this is."""

from __future__ import annotations

import re

from tests.unit.documents.reading import ROOT
from tippingpoint import __version__


def test_its_first_entry_is_of_this_version_with_the_day_of_its_release_or_unreleased() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.findall(r"^## (.*)$", text, re.MULTILINE)

    assert re.fullmatch(rf"{re.escape(__version__)} \((unreleased|\d{{4}}-\d\d-\d\d)\)", entries[0])
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", entry) for entry in entries[1:])
