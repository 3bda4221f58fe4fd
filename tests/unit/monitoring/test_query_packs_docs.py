"""docs/reference/metrics.md has the packs' figures. Run this module to print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tippingpoint.monitoring.query_packs import Figure, Pack, shipped_packs

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "metrics.md"
PACKS = shipped_packs()


@pytest.mark.parametrize("pack", PACKS.values(), ids=list(PACKS))
def test_the_documentation_has_a_pack_as_it_is(pack: Pack) -> None:
    assert section(pack) in DOCS.read_text(), (
        f"docs/reference/metrics.md: expected of {pack.name}:\n{section(pack)}"
    )


def section(pack: Pack) -> str:
    """A pack's part of the page."""
    whose = f"Of runs on {', '.join(pack.targets)}." if pack.targets else "Of every run."
    rows = [
        "| figure | unit | meaning | from |",
        "|---|---|---|---|",
        *(row(figure) for figure in pack.figures),
    ]
    return "\n".join(
        [f"### {pack.title} (`{pack.name}`)", "", f"{one_line(pack.meaning)} {whose}", "", *rows, ""]
    )


def row(figure: Figure) -> str:
    said = [one_line(figure.meaning)]
    if figure.part:
        said.append(f"One for each {figure.part}.")
    if figure.cost:
        said.append("Also per unit of load." if figure.cost == "load" else "Also per operation.")
    if figure.alert:
        said.append(f"Alert: {figure.alert.condition} for {figure.alert.for_}.")
    return f"| `{figure.name}` | {figure.unit} | {' '.join(said)} | {one_line(figure.source)} |"


def one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    print("\n".join(section(pack) for pack in PACKS.values()))
