"""An atlas is checked against its runs, and its pages are those that its entries make."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from tests.unit.made.synthetic import MadeStage, write_run
from tests.unit.test_kept_runs import KEPT
from tippingpoint.analysis.analyse import analyse
from tippingpoint.atlas.adding import add_entry
from tippingpoint.atlas.checking import check_atlas, ratio_of, verdict_of
from tippingpoint.atlas.entry import Figure
from tippingpoint.atlas.figures import measured, show_bounds
from tippingpoint.atlas.pages import pages_of, stale_pages, write_pages
from tippingpoint.errors import UserError
from tippingpoint.rundir.results import load_run

OURS = Path(__file__).resolve().parents[3] / "docs" / "atlas"
FILLED = {
    "load": "leases of a test",
    "machine": "a laptop with two cores",
    "command": "tippingpoint run etcd-ramp",
    "limits": ["It was one run."],
}
Change = Callable[[dict[str, Any]], object]


def test_every_page_of_our_atlas_is_what_its_entries_make() -> None:
    """If this fails: tippingpoint atlas check docs/atlas, and tippingpoint atlas render docs/atlas."""
    checked = check_atlas(OURS)
    assert checked.problems == []
    assert list(stale_pages(OURS, checked.entries)) == []


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An atlas with one filled entry, of a run on etcd 3.4.23."""
    atlas = tmp_path_factory.mktemp("atlas")
    add_entry(atlas, "etcd-3.4.23-test", [KEPT / "etcd"])
    rewrite(atlas, entry(**FILLED))
    return atlas


@pytest.fixture
def atlas(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "atlas"))


def rewrite(atlas: Path, change: Change, name: str = "etcd-3.4.23-test") -> None:
    file = atlas / "entries" / name / "entry.yaml"
    said = yaml.safe_load(file.read_text())
    change(said)
    file.write_text(yaml.safe_dump(said, sort_keys=False))


def problem_of(atlas: Path) -> str:
    """The only problem of an atlas, without the place of the atlas."""
    (problem,) = check_atlas(atlas).problems
    assert "\n" not in problem
    return problem.replace(f"{atlas}/entries/", "")


def test_a_filled_entry_is_accepted_and_rendered_once(atlas: Path) -> None:
    checked = check_atlas(atlas)
    assert checked.problems == []
    assert "etcd-releases.md" in write_pages(atlas, checked.entries)
    assert write_pages(atlas, check_atlas(atlas).entries) == []
    page = (atlas / "etcd-releases.md").read_text()
    assert "## Leases of a test" in page
    assert "[3.4.23](#3423-leases-of-a-test)" in page
    assert "    tippingpoint run etcd-ramp" in page
    assert "(entries/etcd-3.4.23-test/run-1.digest)" in page


def test_published_results_stand_beside_the_measured_ones(atlas: Path) -> None:
    pages = pages_of(atlas, check_atlas(atlas).entries)
    assert "| juju-2.5.0 | where it tips | Tips between 2,000 and 4,000 leases" in pages["juju-releases.md"]
    assert (
        "| juju-2.5.1 | where it tips | No sign of tipping up to 16,000 leases" in pages["juju-releases.md"]
    )
    assert "No run of a real one is in the atlas yet." in pages["juju-releases.md"]


def test_a_draft_is_refused_until_it_is_filled_in(tmp_path: Path) -> None:
    add_entry(tmp_path, "etcd-3.4.23-test", [KEPT / "etcd"])
    assert problem_of(tmp_path).startswith("etcd-3.4.23-test/entry.yaml: load: ?: expected ")
    said = yaml.safe_load((tmp_path / "entries/etcd-3.4.23-test/entry.yaml").read_text())
    assert said["release"] == "3.4.23"
    assert {figure["figure"] for figure in said["figures"]} >= {"tips", "p99", "failures", "lost"}


def test_a_load_that_a_run_did_not_reach_is_not_known_and_no_bound(tmp_path: Path) -> None:
    # given two runs, of which one was interrupted before the second load
    runs = [
        analyse(load_run(write_run(tmp_path / f"{seed}", [MadeStage(size) for size in sizes], seed=seed)))
        for seed, sizes in ((1, (100, 200)), (2, (100,)))
    ]
    at = [Figure(figure="p99", of="extend", at=size, low=None, high=None) for size in (100, 200)]
    low, high = measured(at[0], runs)
    assert low is not None
    assert high is not None
    assert measured(at[1], runs) == (None, None)
    # and where they tip is at least what all of them held
    assert measured(Figure(figure="tips", low=None, high=None), runs) == (100.0, None)


def test_a_copied_run_is_added_once_with_a_caution(tmp_path: Path) -> None:
    copy = Path(shutil.copytree(KEPT / "etcd", tmp_path / "backup"))
    added = add_entry(tmp_path, "etcd-copied", [KEPT / "etcd", copy])
    assert [path.name for path in added.draft.parent.glob("*.digest")] == ["run-1.digest"]
    (line,) = added.copies
    assert line.endswith(f"{copy} is a copy of {KEPT / 'etcd'}: the run counts once")


def figure(**fields: object) -> Change:
    return lambda said: said["figures"][0].update(fields)


def entry(**fields: object) -> Change:
    return lambda said: said.update(fields)


def without(field: str) -> Change:
    return lambda said: said.pop(field)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (figure(high=7), "figures.0.high: 7.0: expected "),
        (figure(figure="tip"), "figures.0.figure: tip: expected 'tips', "),
        (entry(release="3.5.16"), "release: 3.5.16: expected a part of 3.4.23 (v3 API)"),
        (entry(target="lxd"), "target: lxd: expected etcd, as run-1.digest has it"),
        (entry(target="zookeeper"), "target: zookeeper: expected one of etcd, juju"),
        (entry(limit=[]), "limit: []: expected no such field (did you mean limits?)"),
        (without("machine"), "machine: missing: expected a value; it is required"),
        (entry(date="soon"), "date: soon: expected "),
        (entry(command="run /home/me/plan.yaml"), "/home/me/plan.yaml: expected no path"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(atlas: Path, change: Change, told: str) -> None:
    rewrite(atlas, change)
    problem = problem_of(atlas)
    assert problem.startswith("etcd-3.4.23-test/entry.yaml: ")
    assert told in problem


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("entry.yaml", b"date: 2026-13-45", "month must be in 1..12: expected YAML"),
        ("entry.yaml", b"load: \xff", "expected YAML"),
        ("entry.yaml", b"x" * 100_000, "larger than 64 KiB: expected a readable file"),
        ("run-1.digest", b"\xff", "expected a digest file"),
    ],
)
def test_files_that_cannot_be_read_are_told_in_one_line(
    atlas: Path, name: str, content: bytes, told: str
) -> None:
    (atlas / "entries" / "etcd-3.4.23-test" / name).write_bytes(content)
    assert told in problem_of(atlas)


def test_a_simulator_is_never_called_real(tmp_path: Path) -> None:
    add_entry(tmp_path, "juju-test", [KEPT / "juju-hollow"])
    rewrite(tmp_path, entry(**FILLED), "juju-test")
    assert problem_of(tmp_path).endswith("expected a real target, not a simulator")


def test_other_files_and_missing_runs_are_refused(atlas: Path) -> None:
    directory = atlas / "entries" / "etcd-3.4.23-test"
    (directory / "notes.txt").write_text("x")
    assert "notes.txt: expected only entry.yaml and files that end in .digest" in problem_of(atlas)
    (directory / "notes.txt").unlink()
    (directory / "run-1.digest").unlink()
    assert "no runs: expected one file or more" in problem_of(atlas)


def test_a_run_counts_once(atlas: Path) -> None:
    directory = atlas / "entries" / "etcd-3.4.23-test"
    shutil.copy(directory / "run-1.digest", directory / "run-2.digest")
    assert problem_of(atlas).endswith("expected each run once")


def test_an_entry_is_added_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="that has ended by itself"):
        add_entry(tmp_path, "lxd-test", [KEPT / "lxd", KEPT / "lxd-cut"])
    assert not (tmp_path / "entries" / "lxd-test").exists()
    add_entry(tmp_path, "lxd-test", [KEPT / "lxd"])
    with pytest.raises(UserError, match="a name that no entry of this atlas has"):
        add_entry(tmp_path, "lxd-test", [KEPT / "lxd"])
    with pytest.raises(UserError, match="NAME: Up/x: expected lower-case letters"):
        add_entry(tmp_path, "Up/x", [KEPT / "lxd"])
    with pytest.raises(UserError, match="RUN: none: expected "):
        add_entry(tmp_path, "lxd-none", [])


class TestClaims:
    CLAIM: ClassVar[dict[str, Any]] = {
        "source": "notes: https://example.com/notes",
        "claim": "Twice as fast.",
        "figure": "lost",
        "against": "etcd-3.4.23-test",
        "expected": [1.2, 2],
        "low": None,
        "high": None,
        "says": "not told",
        "why": "One run each.",
    }

    def claim(self, atlas: Path, **fields: object) -> None:
        rewrite(atlas, entry(claims=[self.CLAIM | fields]))

    def test_one_run_tells_nothing(self, atlas: Path) -> None:
        self.claim(atlas, figure="tips at", low=1, high=1, says="refuted")
        assert "claims.0.says: refuted: expected not told, as the runs have it" in "\n".join(
            check_atlas(atlas).problems
        )

    def test_a_figure_and_an_entry_have_to_be_there(self, atlas: Path) -> None:
        self.claim(atlas, figure="speed")
        assert "claims.0.figure: speed: expected one of tips at, " in problem_of(atlas)
        self.claim(atlas, against="etcd-9")
        assert "claims.0.against: etcd-9: expected one of etcd-3.4.23-test" in problem_of(atlas)

    def test_a_claim_without_a_figure_is_not_told(self, atlas: Path) -> None:
        self.claim(atlas, figure=None, says="confirmed")
        assert "claims.0.says: confirmed: expected not told" in problem_of(atlas)
        self.claim(atlas, figure=None)
        assert "| **not told** |" in pages_of(atlas, check_atlas(atlas).entries)["etcd-releases.md"]

    @pytest.mark.parametrize(
        ("low", "high", "runs", "says"),
        [
            (1.3, 1.9, 2, "confirmed"),
            (1.1, 1.9, 2, "not told"),
            (0.8, 1.1, 2, "refuted"),
            (2.1, 3.0, 2, "refuted"),
            (2.1, None, 2, "refuted"),
            (1.3, None, 2, "not told"),
            (None, None, 2, "not told"),
            (1.3, 1.9, 1, "not told"),
        ],
    )
    def test_a_claim_is_confirmed_where_all_ratios_are_as_claimed(
        self, low: float | None, high: float | None, runs: int, says: str
    ) -> None:
        assert verdict_of((1.2, 2.0), (low, high), runs, 3) == says
        assert verdict_of((0.0, inf), (low, high), 1, 1) == "not told"

    def test_a_ratio_is_as_wide_as_both_figures_allow(self) -> None:
        ours = Figure(figure="tips", low=2000, high=3000)
        theirs = Figure(figure="tips", low=1000, high=1500)
        assert ratio_of(ours, theirs, 1.0) == (1.33, 3.0)
        assert ratio_of(ours.model_copy(update={"high": None}), theirs, 1.0) == (1.33, None)

    def test_a_ratio_is_as_wide_as_runs_of_one_release_differ(self) -> None:
        """Given figures of few runs that agree, when repeats of another release were 4 times apart, so may these be."""
        ours, theirs = (Figure(figure="tips", low=at, high=at) for at in (2000, 1000))
        assert ratio_of(ours, theirs, 4.0) == (0.5, 8.0)


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (1120, 1630, "1,120 to 1,630"),
        (38.1, 38.1, "38.1"),
        (4000, None, "beyond 4,000"),
        (None, 250, "up to 250"),
        (None, None, "not known"),
        (64_100_000, 70_000_000, "64.1 M to 70 M"),
    ],
)
def test_bounds_are_shown_with_three_digits(low: float | None, high: float | None, shown: str) -> None:
    assert show_bounds(low, high) == shown
