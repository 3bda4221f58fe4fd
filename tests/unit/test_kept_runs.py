"""Run directories, digests and exports of an older commit open, report and compare as they did then."""

from __future__ import annotations

import gzip
import json
import math
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tippingpoint.agent.run_store import RunStore
from tippingpoint.analysis.analyse import analyse
from tippingpoint.collect.course import build_course, points_of
from tippingpoint.collect.runs import Runs, StoredRun
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.compare.repeats import ERRS
from tippingpoint.digest.merge import gather
from tippingpoint.digest.unit_digest import Digest, make_digest, read_digest
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.play.resume import take_up
from tippingpoint.report import write_comparison, write_report
from tippingpoint.rundir.ledger import entries
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import own_entries
from tippingpoint.rundir.resources import FILE as RESOURCES
from tippingpoint.rundir.results import load_run

KEPT = Path(__file__).parents[1] / "data" / "kept-runs"
"""Its README.md says what each is, and how it was made."""
RUNS = sorted(path.parent.name for path in KEPT.glob("*/manifest.json"))
MADE = [name for name in RUNS if (KEPT / name / "ledger.jsonl").exists()]
"""Those that made something in a target."""
COMPARED = {
    "etcd-v2-with-v3": ("etcd", "etcd-v2"),
    "juju-agent-with-hollow": ("juju-hollow", "juju-agent"),
    "lxd-cut-with-whole": ("lxd", "lxd-cut"),
    "etcd-v2-with-published": ("etcd-v2", "seed:etcd3"),
}


def expect_same(told: str, name: str, form: str) -> None:
    """A report or comparison is the one that was kept."""
    if form == "md":
        assert told == (KEPT / f"{name}.md").read_text(encoding="utf-8")
        return
    ours, kept = (
        json.loads(text) for text in (told, gzip.decompress((KEPT / f"{name}.json.gz").read_bytes()))
    )
    for document in (ours, kept):
        assert document.pop("made_by").startswith("tippingpoint ")  # and the version, which goes on
    if "comparisons" in name:  # and a comparison says how often it errs
        kept["errs"] = ERRS
    assert differences(ours, kept) == []


def differences(ours: Any, kept: Any) -> list[str]:
    """Where two JSON documents differ."""
    told, wanted = dict(leaves(ours)), dict(leaves(kept))
    places = [*wanted, *(place for place in told if place not in wanted)]
    return [
        f"{place}: {told.get(place, 'missing')!r}, kept: {wanted.get(place, 'missing')!r}"
        for place in places
        if not same(told.get(place, "missing"), wanted.get(place, "missing"))
    ]


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same. Sums and logarithms differ in their last digits from one processor's vector
    instructions to another's."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return type(one) is type(other) and one == other


def leaves(document: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in a JSON document that is not made of other things, by where it is; what is empty is one, too."""
    if isinstance(document, dict | list) and document:
        for key, value in document.items() if isinstance(document, dict) else enumerate(document):
            yield from leaves(value, f"{path}.{key}")
    else:
        yield path, document


def test_what_was_kept_is_there() -> None:
    assert len(RUNS) == 13
    assert len(MADE) == 10
    reported = {path.name.removesuffix(".md") for path in (KEPT / "reports").glob("*.md")}
    assert reported == {*RUNS, "two-units-export"}
    assert {path.stem for path in (KEPT / "comparisons").glob("*.md")} == COMPARED.keys()


@pytest.mark.parametrize("form", ["json", "md"])
@pytest.mark.parametrize("name", RUNS)
def test_a_run_reports_the_same(name: str, form: Any) -> None:
    expect_same(write_report(analyse(load_run(KEPT / name)), form), f"reports/{name}", form)


@pytest.mark.parametrize("form", ["json", "md"])
@pytest.mark.parametrize("name", COMPARED)
def test_runs_compare_the_same(name: str, form: Any) -> None:
    names = COMPARED[name]
    runs = [load_run(KEPT / one) for one in names if not one.startswith("seed:")]
    beside = [load_baseline(one) for one in names if one.startswith("seed:")]
    expect_same(write_comparison(compare(runs, beside=beside), form), f"comparisons/{name}", form)


@pytest.mark.parametrize("name", MADE)
def test_a_ledger_says_what_clean_is_to_remove(name: str) -> None:
    written = [json.loads(line) for line in (KEPT / name / "ledger.jsonl").read_text().splitlines()]

    found = entries(KEPT / name)

    # every field that was written is understood
    assert [entry.model_dump(mode="json", exclude_unset=True) for entry in found] == written
    # and clean takes it for the run's own
    manifest = Manifest.load(KEPT / name)
    assert [entry.kind for entry in own_entries(KEPT / name, manifest)] == [manifest.target.kind]


def test_a_run_that_was_cut_can_be_gone_on_with() -> None:
    plan, taken_up = take_up(KEPT / "lxd-cut")

    assert isinstance(plan, SpawnPlan)
    assert plan.name == "kept-lxd"
    assert taken_up.stage == 2
    assert taken_up.entry.prefix == json.loads((KEPT / "lxd-cut" / "ledger.jsonl").read_text())["prefix"]


# A run of two units


@pytest.fixture
def collected(tmp_path: Path) -> StoredRun:
    """It as a collector finds it: by its id."""
    run = Manifest.load(KEPT / "two-units-agent").id
    shutil.copytree(KEPT / "two-units-collected", tmp_path / "collected" / run)
    return Runs(tmp_path / "collected").find(run)


def same_digest(one: Digest, other: Digest) -> bool:
    """Whether two digests tell the same; how their text was packed is not asked."""
    return (
        one.head == other.head
        and (one.moments == other.moments).all()
        and (one.gauges == other.gauges).all()
        and all(
            (ours.phase, ours.tag) == (theirs.phase, theirs.tag)
            and all((a == b).all() for a, b in zip(ours[2:], theirs[2:], strict=True))
            for ours, theirs in zip(one.measured, other.measured, strict=True)
        )
    )


def test_a_part_comes_to_the_same_digest(collected: StoredRun) -> None:
    unit = Manifest.load(KEPT / "two-units-part-0").unit

    made = make_digest(KEPT / "two-units-part-0")

    assert same_digest(read_digest(made), read_digest(collected.digests[unit]))


def test_what_a_collector_kept_makes_the_same_report(collected: StoredRun, tmp_path: Path) -> None:
    assert (collected.reported, collected.complete, len(collected.words)) == (2, True, 2)
    course = json.loads((KEPT / "reports" / "two-units-collected.course.json").read_text())
    drawn = build_course(collected.shared, points_of(collected.course))
    assert differences(drawn, course) == []

    directory = gather(collected.shared, collected.digests, collected.words, tmp_path / "gathered")
    assert collected.resources is not None
    (directory / RESOURCES).write_text(collected.resources)

    run = load_run(directory)
    verdict, kept = analyse(run).verdict, collected.verdict
    assert kept is not None
    assert verdict.outcome == kept.outcome
    for form in ("json", "md"):
        expect_same(write_report(analyse(run), form), "reports/two-units-export", form)


def test_what_an_agent_kept_makes_the_same_report(tmp_path: Path) -> None:
    run = Manifest.load(KEPT / "two-units-agent").id
    shutil.copytree(KEPT / "two-units-agent", tmp_path / "state" / "gathered" / run)
    keeping = RunStore(tmp_path / "state")

    (kept,) = keeping.all()
    directory = gather(kept.run, keeping.digests(run), kept.words, tmp_path / "gathered")

    assert (kept.run.id, kept.verdict) == (run, "met")
    for form in ("json", "md"):
        expect_same(write_report(analyse(load_run(directory)), form), "reports/two-units-agent", form)


def test_an_export_opens_and_reports_the_same(tmp_path: Path) -> None:
    with tarfile.open(KEPT / "two-units-export.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (directory,) = tmp_path.iterdir()

    for form in ("json", "md"):
        expect_same(write_report(analyse(load_run(directory)), form), "reports/two-units-export", form)
