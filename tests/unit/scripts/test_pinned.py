"""What the scripts install from a package index: nothing but what a hash of this checkout names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_INSTALLS = re.compile(
    r"""(?:\bpip3?\b['"\s]*|\$\{pip\[@\]\}"|\buv\s+tool|\$install)\s+install\b|^\$install|\buvx\b|\bpipx\b"""
)
_FETCHES = re.compile(r"\b(curl|wget|npm|npx)\s+[^|]*https?://")
_WITHOUT_INDEX = ("--require-hashes", "--no-index", "--no-deps .", "install -e")


def scripts() -> list[Path]:
    """All files that a person or CI executes, and the tests that install something."""
    places = [_ROOT / "scripts", _ROOT / ".ci", _ROOT / "lab", _ROOT / "tests/functional"]
    found = [path for place in places for path in place.rglob("*") if path.is_file()]
    return [path for path in [*found, _ROOT / "tox.ini"] if path.suffix in ("", ".sh", ".py", ".ini")]


def commands(path: Path) -> list[str]:
    """The lines of a script, those that end with a backslash together with the next."""
    return path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ").splitlines()


@pytest.mark.parametrize("path", scripts(), ids=lambda path: str(path.relative_to(_ROOT)))
def test_nothing_is_fetched_without_a_hash(path: Path) -> None:
    unpinned = [
        line.strip()
        for line in commands(path)
        if not line.lstrip().startswith(("#", "install="))
        and (
            (_INSTALLS.search(line) and not any(way in line for way in _WITHOUT_INDEX))
            or _FETCHES.search(line)
        )
    ]
    assert unpinned == []


@pytest.mark.parametrize(
    "path", sorted((_ROOT / "scripts/_pinned").glob("*.txt")), ids=lambda path: path.name
)
def test_a_pinned_package_has_one_version_and_its_hashes(path: Path) -> None:
    text = "".join(line for line in commands(path) if not line.startswith("#"))
    assert re.fullmatch(rf"{re.escape(path.stem)}==[0-9.]+(\s+--hash=sha256:[0-9a-f]{{64}})+\s*", text)


def test_the_scripts_use_every_pin() -> None:
    said = (_ROOT / "scripts/_bootstrap.sh").read_text()
    for path in (_ROOT / "scripts/_pinned").glob("*.txt"):
        assert f"/_pinned/{path.name}" in said


def test_what_is_locked_has_hashes() -> None:
    locked = (_ROOT / "uv.lock").read_text()
    files = re.findall(r"^\s*(?:sdist = )?\{ url = .*$", locked, re.MULTILINE)
    assert files
    assert [line for line in files if 'hash = "sha256:' not in line] == []
