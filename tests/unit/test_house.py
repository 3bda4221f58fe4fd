"""What the house promises of itself and `lint-imports` cannot see. What it can is in pyproject.toml."""

from __future__ import annotations

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.functional.chosen import LAB, NIGHTLY, QUICK

ROOT = Path(__file__).resolve().parents[2]
CHARMS = sorted(path.parent for path in ROOT.glob("charms/*/charmcraft.yaml"))
DATA = ("py.typed", "__pycache__")


def imported(source: Path) -> set[str]:
    """The modules that a module imports anywhere in it, for types included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
    return found


def test_the_top_of_the_engine_and_beside_it_is_small() -> None:
    top = {path.stem for path in (ROOT / "tippingpoint").iterdir() if path.name not in DATA}
    beside = {path.parent.parent.name for path in ROOT.glob("charms/*/src")} | {"lab"}
    assert len(top | beside) <= 24, sorted(top | beside)


@pytest.mark.parametrize("charm", CHARMS, ids=lambda charm: charm.name)
def test_a_charms_own_modules_import_each_other_without_a_cycle(charm: Path) -> None:
    own = {path.stem: imported(path) for path in (charm / "src").glob("*.py")}
    order = TopologicalSorter({name: names & own.keys() for name, names in own.items()}).static_order()
    assert list(order)[-1] == "charm"


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", *(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md"))]
)
def test_a_page_names_files_that_there_are(page: str) -> None:
    there = [path.relative_to(ROOT).as_posix() for path in files()]
    named = set(re.findall(r"`([\w./-]+\.(?:py|js|css))`", (ROOT / page).read_text()))
    assert sorted(name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in there)) == []


def files() -> list[Path]:
    """The files that pages may name: those of the engine, the charms, the labs, tests and scripts."""
    return [
        path
        for top in ("tippingpoint", "charms", "docs", "lab", "tests", "scripts")
        for path in (ROOT / top).rglob("*")
    ]


def test_each_nightly_test_has_a_row_that_says_what_takes_its_place() -> None:
    page = (ROOT / "docs/explanation/simulated-runs.md").read_text()
    table = page.split("## What takes the place of which test")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall("`([^`]+)`", row)} - {"abort"}
    assert named == {nightly.partition("::")[0] for nightly in NIGHTLY}


@pytest.mark.parametrize("chosen", [*QUICK, *LAB, *NIGHTLY])
def test_what_is_listed_to_run_then_exists(chosen: str) -> None:
    place, _, name = chosen.partition("::")
    path = ROOT / "tests/functional" / place
    assert path.exists()
    for part in filter(None, name.split("::")):
        assert re.search(rf"^ *(class|def|async def) {part}\b", path.read_text(), re.MULTILINE), part
