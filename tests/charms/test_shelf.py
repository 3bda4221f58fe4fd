"""What Charmhub shows of a charm: its icon, links and description."""

from __future__ import annotations

import configparser
import hashlib
import re
import tomllib
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

    assert set(links) == {"documentation", "source", "issues", "website", "contact"}
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


@pytest.mark.parametrize("charm", CHARMS)
def test_the_listing_review_finds_what_it_asks_for(charm: str) -> None:
    """The rules of Charmhub's listing review that need no network (canonical/charmhub-listing-review, July 2026).

    docs/how-to/charms.md has all of them. One is not met, a repository named CHARM-operator: it has three charms.
    """
    said, folder = charmcraft(charm), ROOT / "charms" / charm
    slug = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

    assert all(said[field] for field in ("name", "title", "summary", "description"))
    assert all(slug.fullmatch(name) for name in (charm, *said["actions"], *said["config"]["options"]))
    assert all("optional" in of for role in ("requires", "provides") for of in said[role].values())
    assert "icon.svg" in said["parts"]["icon"]["stage"]
    with (folder / "pyproject.toml").open("rb") as file:
        assert tomllib.load(file)["project"]["requires-python"]
    commands = configparser.ConfigParser()
    commands.read(folder / "tox.ini")
    assert {f"testenv:{name}" for name in ("format", "lint", "unit", "integration")} <= set(
        commands.sections()
    )
    assert (folder / "uv.lock").resolve() == ROOT / "uv.lock"
    licence = (ROOT / "LICENSE").read_text().strip().encode()
    assert hashlib.sha512(licence).hexdigest().startswith("fdae7ed259455ca9fa45939e7f25cbb4")
    for page in ("CONTRIBUTING.md", "LICENSE", "SECURITY.md"):
        assert (ROOT / page).read_text().strip()
    assert "Report a vulnerability" in (ROOT / "SECURITY.md").read_text()
