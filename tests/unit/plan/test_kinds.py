"""Kinds of target: ours and what other packages bring, what is known of each, and what workloads were called before."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tippingpoint.errors import UserError
from tippingpoint.plan import kinds
from tippingpoint.plan import packages as targets
from tippingpoint.plan.read import parse_plan, validate_plan
from tippingpoint.plan.shipped import shipped_plans
from tippingpoint.plan.spawn import SpawnPlan

SECTION = """
from typing import ClassVar, Literal
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.spawn import SpawnPlan

class Shelf(TargetSection):
    kind: Literal["shelf"]
    boards: int = 3
    plans: ClassVar = {"spawn": SpawnPlan}
    things = "books"

SECTION = Shelf
"""
FILL = "name: x\ntarget: {kind: shelf}\nworkload: {kind: spawn, rate: 1}\nstages: [{instances: 2}]"


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A place that packages are imported from, with one that brings the target `shelf`, and one that is broken."""
    (tmp_path / "shelves" / "plans").mkdir(parents=True)
    (tmp_path / "shelves" / "__init__.py").touch()
    (tmp_path / "shelves" / "plan.py").write_text(SECTION)
    (tmp_path / "shelves" / "plans" / "shelf-small.yaml").write_text(
        FILL.replace("name: x", "name: shelf-small")
    )
    about = tmp_path / "shelves-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shelves\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[tippingpoint.targets]\nshelf = shelves\netcd = shelves\n")
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield tmp_path
    monkeypatch.undo()
    for name in [name for name in sys.modules if name.partition(".")[0] == "shelves"]:
        del sys.modules[name]
    _forget()


def _forget() -> None:
    kinds.section_of.cache_clear()
    targets.brought.cache_clear()


def test_a_package_brings_a_target_by_an_entry_point(packages: Path) -> None:
    # given a package with an entry point, when a plan names its kind
    plan = parse_plan(FILL, ["target.boards=4"])
    # then its section reads the target, its words are used, and its plans are shipped
    assert isinstance(plan, SpawnPlan)
    assert plan.target.model_dump() == {"kind": "shelf", "boards": 4}
    assert plan.load_unit == "books"
    assert validate_plan(plan.model_dump(mode="json")) == plan
    assert "shelf-small" in shipped_plans()
    assert targets.kinds() == (*targets.BUILT_IN, "shelf")


def test_a_target_that_is_brought_is_told_what_is_wrong_with_its_section(packages: Path) -> None:
    with pytest.raises(
        UserError,
        match=r"target\.bords: 4: expected one of kind, boards, for shelf \(did you mean boards\?\)",
    ):
        parse_plan(FILL, ["target.bords=4"])
    with pytest.raises(
        UserError,
        match=r"target\.kind: etcd: expected one of lxd, maas, openstack, pacemaker, shelf, for spawn",
    ):
        parse_plan(FILL, ["target.kind=etcd"])


def test_no_package_replaces_a_target_of_the_suite(packages: Path) -> None:
    assert targets.package_of("etcd") == "tippingpoint.targets.etcd"


def test_a_package_that_cannot_be_imported_is_named_in_one_line(packages: Path) -> None:
    (packages / "shelves" / "plan.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(
        UserError, match=r"target\.kind: shelf: expected a target that can be imported \(No module"
    ):
        kinds.section_of("shelf")


@pytest.mark.parametrize(
    ("module", "text", "why"),
    [
        ("__init__", "import nothing_of_that_name\n", "a target that can be imported (No module"),
        ("__init__", "1 / 0\n", "a target that can be imported (unexpected ZeroDivisionError"),
        ("plan", "def\n", "a target that can be imported (unexpected SyntaxError"),
        ("plan", "", "a target whose module `plan` has a SECTION"),
    ],
)
def test_a_broken_package_is_reported_once_and_left_out_of_lists(
    packages: Path, module: str, text: str, why: str
) -> None:
    # given a package that is broken, when all kinds are gone through, more than once
    (packages / "shelves" / f"{module}.py").write_text(text)
    script = (
        "from tippingpoint.plan.kinds import kinds_of\n"
        "from tippingpoint.plan.packages import options\n"
        "from tippingpoint.plan.read import parse_plan, plan_schema\n"
        "from tippingpoint.plan.shipped import shipped_plans\n"
        "parse_plan('name: x\\ntarget: {kind: lxd}\\nworkload: {kind: spawn, rate: 1}\\nstages: [{instances: 2}]')\n"
        "plan_schema()\n"
        "print(kinds_of('spawn'), 'etcd-demo' in shipped_plans(), *options())"
    )
    done = run(packages, "-c", script)
    # then it is left out, in one line that says why, and the others are there
    assert done.stdout == "('lxd', 'maas', 'openstack', 'pacemaker') True controller remote\n"
    assert done.stderr.startswith("tippingpoint: left out: target.kind: shelf: expected ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    # and a plan that names it is refused by the same reason
    refused = run(packages, "-m", "tippingpoint", "run", "shelf.yaml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert why in refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("tippingpoint: target.kind: shelf: expected ")


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in that place, from which it imports too, where a plan of shelves is kept."""
    (place / "shelf.yaml").write_text(FILL)
    paths = os.pathsep.join([str(place), str(Path(__file__).parents[3])])
    return subprocess.run(
        [sys.executable, *arguments], cwd=place, env={**os.environ, "PYTHONPATH": paths}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


def test_of_a_kind_that_nobody_knows_is_known_what_holds_for_any() -> None:
    with pytest.raises(LookupError):
        kinds.section_of("mainframe")
    facts = kinds.facts_of("mainframe")
    assert (facts.things, facts.member, facts.plans) == ("containers", "member", {})


def test_a_plan_imports_no_target_but_its_own() -> None:
    # given a process of its own, when it reads a plan for etcd
    script = (
        "import sys; from tippingpoint.plan.read import parse_plan\n"
        "parse_plan('name: x\\nstages: [{leases: 1}]')\n"
        "print(*sorted(name for name in sys.modules if name.startswith('tippingpoint.targets.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    # then of the targets it has etcd's section, and nothing of another's
    assert done.stdout.split() == ["tippingpoint.targets.etcd", "tippingpoint.targets.etcd.plan"]


def test_only_a_model_grows() -> None:
    with pytest.raises(UserError, match=r"target\.kind: lxd: expected one of juju, for grow"):
        parse_plan("name: x\ntarget: {kind: lxd}\nworkload: {kind: grow}\nstages: [{applications: 1}]")
    with pytest.raises(UserError, match=r"target: missing"):
        parse_plan("name: x\nworkload: {kind: grow}\nstages: [{applications: 1}]")


@pytest.mark.parametrize(
    ("kind", "version", "said"),
    [
        ("lxd", "5.0.2", "lxd 5.0.2"),
        ("lxd", "incus 6.0.4", "incus 6.0.4"),
        ("etcd", "3.5.16 (v3 API)", "etcd 3.5.16 (v3 API)"),
        ("maas", "", "maas"),
        ("unheard-of", "incus 1", "unheard-of incus 1"),
    ],
)
def test_a_target_is_named_by_its_product(kind: str, version: str, said: str) -> None:
    assert kinds.target_name(kind, version) == said
