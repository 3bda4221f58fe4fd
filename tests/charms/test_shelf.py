"""What Charmhub shows of a charm: its icon, links and description."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts._reference.charms import CHARMS, ROOT, charmcraft

SVG = "{http://www.w3.org/2000/svg}"


def icon(charm: str) -> Path:
    return ROOT / "charms" / charm / "icon.svg"


@pytest.mark.parametrize("charm", CHARMS)
def test_an_icon_is_a_flat_circle_of_100_pixels_with_a_logo_and_nothing_from_elsewhere(charm: str) -> None:
    """As charmcraft's reference of icon.svg asks."""
    top = ElementTree.parse(icon(charm)).getroot()
    shapes = [each for each in top if each.tag != f"{SVG}title"]

    assert (top.tag, top.get("width"), top.get("height"), top.get("viewBox")) == (
        f"{SVG}svg",
        "100",
        "100",
        "0 0 100 100",
    )
    assert shapes[0].tag == f"{SVG}circle"
    assert [shapes[0].get(each) for each in ("cx", "cy", "r")] == ["50", "50", "50"]
    assert re.fullmatch("#[0-9a-f]{6}", shapes[0].get("fill", ""))
    assert {each.tag for each in top.iter()} <= {
        SVG + tag for tag in ("svg", "title", "circle", "g", "path", "rect")
    }
    assert icon(charm).stat().st_size < 4096


def test_icons_can_be_told_apart() -> None:
    assert len({icon(charm).read_bytes() for charm in CHARMS}) == len(CHARMS)
    assert len({ElementTree.parse(icon(charm)).getroot()[1].get("fill") for charm in CHARMS}) == len(CHARMS)


@pytest.mark.parametrize("charm", CHARMS)
def test_links_are_one_projects_and_lead_to_the_charms_page(charm: str) -> None:
    links = charmcraft(charm)["links"]
    project = charmcraft(CHARMS[0])["links"]["source"]
    page = links["documentation"].removeprefix(f"{project}/tree/main/")

    assert set(links) == {"documentation", "source", "issues"}
    assert links["source"] == project
    assert links["issues"] == f"{project}/issues"
    assert page == f"charms/{charm}"
    assert (ROOT / page / "README.md").exists()


@pytest.mark.parametrize("charm", CHARMS)
def test_a_description_says_what_the_charm_answers_and_what_it_needs(charm: str) -> None:
    said = charmcraft(charm)
    paragraphs = said["description"].strip().split("\n\n")

    assert len(said["summary"]) <= 100
    assert "?" in paragraphs[0]
    assert re.search(r"\d+ GB of memory", paragraphs[-1])
    assert said["assumes"] == ["juju >= 3.6"]
