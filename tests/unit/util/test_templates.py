"""Templates that are compiled once: what is kept beside them, and when it is not used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jinja2 import Environment, nodes
from jinja2.filters import FILTERS

import tippingpoint
from tippingpoint.util import templates
from tippingpoint.util.templates import template_environment

TEMPLATES = sorted(Path(tippingpoint.__file__).parent.rglob("templates/*.j2"))
Compiled = list[str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a template `page.j2`, which Python may import; returns the directory of its templates."""
    directory = tmp_path / "paged" / "templates"
    directory.mkdir(parents=True)
    (tmp_path / "paged" / "__init__.py").touch()
    (directory / "page.j2").write_text("{{ word|shout }}", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.delitem(sys.modules, "paged", raising=False)
    return directory


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """The names of templates that were compiled."""
    names: Compiled = []
    compile_one = Environment.compile

    def noted(self: Environment, source: str, name: str, *rest: object) -> object:
        names.append(name)
        return compile_one(self, source, name, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(Environment, "compile", noted)
    return names


def page() -> str:
    """The page, as a process that has just started renders it."""
    environment = template_environment("paged")
    environment.filters["shout"] = lambda word: f"{word}!"
    return environment.get_template("page.j2").render(word="<b>")


def kept_in(directory: Path) -> list[str]:
    """What is kept beside templates."""
    return [path.name for path in directory.glob("__pycache__/*")]


def test_a_template_is_compiled_once(package: Path, compiled: Compiled) -> None:
    assert [page(), page()] == ["&lt;b&gt;!"] * 2
    assert compiled == ["page.j2"]
    assert kept_in(package) == [f"page.{sys.implementation.cache_tag}.jinja"]


def test_a_template_that_changed_is_compiled_again(package: Path, compiled: Compiled) -> None:
    page()
    (package / "page.j2").write_text("{{ word }}.", encoding="utf-8")
    assert [page(), page()] == ["&lt;b&gt;."] * 2
    assert compiled == ["page.j2"] * 2


def test_a_template_is_compiled_again_for_another_jinja(
    package: Path, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    page()
    monkeypatch.setattr(templates, "version", lambda name: "99")
    page()
    assert compiled == ["page.j2"] * 2


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_no_template_has_a_filter_of_ours_of_a_constant_whose_result_would_be_kept(template: Path) -> None:
    environment = Environment()
    parsed = environment.parse(template.read_text(encoding="utf-8"))
    for found in parsed.find_all(nodes.Filter):
        if found.name not in FILTERS:
            environment.filters[found.name] = str
            with pytest.raises(nodes.Impossible):
                found.as_const()


@pytest.mark.parametrize("part", [0, 1, 20, 100])
def test_what_is_kept_and_damaged_is_not_used(package: Path, compiled: Compiled, part: int) -> None:
    page()
    (kept,) = package.glob("__pycache__/*")
    kept.write_bytes(kept.read_bytes()[:part])
    assert page() == "&lt;b&gt;!"
    assert compiled == ["page.j2"] * 2


def test_nothing_is_kept_where_nothing_can_be_written(package: Path, compiled: Compiled) -> None:
    (package / "__pycache__").write_text("a file, where a directory would be made", encoding="utf-8")
    assert [page(), page()] == ["&lt;b&gt;!"] * 2
    assert compiled == ["page.j2"] * 2


def test_nothing_is_kept_when_python_keeps_nothing(
    package: Path, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert [page(), page()] == ["&lt;b&gt;!"] * 2
    assert (kept_in(package), compiled) == ([], ["page.j2"] * 2)


@pytest.mark.usefixtures("compiled")
def test_what_is_kept_goes_where_python_keeps_its_modules(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(sys, "pycache_prefix", str(elsewhere))
    page()
    assert kept_in(package) == []
    assert [path.name for path in elsewhere.rglob("page.*")] == [f"page.{sys.implementation.cache_tag}.jinja"]
