"""Reports of comparisons: what the document holds, and that the page and the Markdown say it, safely and whole."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.made.made_runs import made_run, made_stage, repeated
from tests.unit.made.resource_figures import made_figure, made_resources
from tests.unit.made.synthetic import STARTED, MadeStage, write_run
from tests.unit.report.test_report import (
    HOSTILE,
    PLAN,
    SPAWN,
    STEADY,
    Page,
    assert_loads_nothing,
    made,
    said,
    spawn_stages,
)
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import Comparison
from tippingpoint.report import write_comparison
from tippingpoint.report.formats.markup import LIMIT
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.resources import write_resources
from tippingpoint.rundir.results import RunData, load_run

WEEK = 7 * 86400
SIZES = (500, 1000, 2000, 4000)


def told(comparison: Comparison) -> dict[str, Any]:
    return json.loads(write_comparison(comparison, "json"))


def page_of(comparison: Comparison) -> Page:
    return assert_loads_nothing(write_comparison(comparison, "html"))


def ids(page: Page) -> set[str]:
    return {str(attributes["id"]) for attributes in page.attributes("div") if "id" in attributes}


def seeds(*names: str) -> Comparison:
    beside = [load_baseline(name) for name in names]
    return compare([run for baseline in beside if (run := baseline.run()) is not None], 0.1, beside)


def weeks(path: Path, count: int) -> list[RunData]:
    """The same plan on the same release, a week apart; the last two lose leases at 4,000."""
    runs: list[RunData] = []
    for week in range(count):
        lost = {"extend.lost": 300} if week >= count - 2 else {}
        stages = [MadeStage(size, failures=lost if size == 4000 else {}) for size in SIZES]
        directory = write_run(path / f"week-{week}", stages, seed=week + 1)
        manifest = Manifest.load(directory)
        manifest.started = STARTED + week * WEEK
        manifest.save(directory)
        runs.append(load_run(directory))
    return runs


def with_resources(run: RunData, each: float) -> RunData:
    """On every member so many bytes for each lease, on the leader twice as many."""
    t = np.arange(-10.0, 45.0)
    held = np.select(
        [(t > s.begin) & (t <= (s.end or 0)) for s in run.stages], [s.size for s in run.stages], 0
    )
    courses = {f"m{n}": held * each * (2 if n == 1 else 1) for n in (1, 2, 3)}
    figures = [made_figure("memory", t, courses), made_figure("network-in", t, courses)]
    write_resources(run.directory, made_resources(figures, t, leader=[(0, "m1")]))
    return load_run(run.directory)


def test_a_comparison_leads_with_its_sentence_and_what_got_worse(tmp_path: Path) -> None:
    slow = [MadeStage(s.size, claim_ms=30) for s in STEADY]
    before = [made(tmp_path / f"a{seed}", STEADY, title="before", seed=seed) for seed in (1, 2, 3)]
    after = [made(tmp_path / f"b{seed}", slow, title="after", seed=seed) for seed in (4, 5, 6)]
    comparison = compare([before, after])
    document = told(comparison)
    assert (document["regressed"], document["outcome"], document["main"]) == (True, "worse", "claim")
    assert [run["label"] for run in document["runs"]] == ["before", "after"]
    page = page_of(comparison)
    verdict = said(page, "verdict")
    assert verdict.startswith(
        "✕ got worse before and after passed 4,000 leases, the largest tried; "
        "a typical call of after up to 4,000 leases takes 1.7"
    )
    assert "); claim p50 " in verdict
    assert comparison.sentence in verdict
    assert comparison.changes in said(page, "verdict")
    assert "One line per release, the mean of its runs" in said(page, "load")
    assert [len(run["repeats"]) for run in document["runs"]] == [3, 3]
    assert said(page, "runs").count("Run 3: passed 4,000 leases, the largest tried") == 2
    assert comparison.worse[0] in said(page, "changes")
    assert {"chart-load-claim", "chart-load-extend", "chart-rate-extend"} <= ids(page)
    markdown = write_comparison(comparison, "md")
    assert "❌ got worse" in markdown
    assert "## Figures over all loads" in markdown
    assert "| claim | 2,000 | p50 |" in markdown
    assert len(markdown.encode()) < LIMIT


def test_a_heading_says_both_where_something_got_worse_and_something_better(tmp_path: Path) -> None:
    # given a release that claims more slowly and extends more quickly, at the same tipping point
    other = [MadeStage(s.size, claim_ms=30, extend_ms=s.extend_ms / 2) for s in STEADY]
    before = [made(tmp_path / f"a{seed}", STEADY, title="before", seed=seed) for seed in (1, 2, 3)]
    after = [made(tmp_path / f"b{seed}", other, title="after", seed=seed) for seed in (4, 5, 6)]
    comparison = compare([before, after])
    assert comparison.worse
    assert comparison.better
    # then it counts as worse, and is not headed as if it were only that
    assert comparison.regressed
    assert said(page_of(comparison), "verdict").startswith("✕ some figures got worse, others better before")
    assert ": ❌ some figures got worse, others better\n" in write_comparison(comparison, "md")


def test_a_heading_by_tipping_points_says_which_figures_are_contrary(tmp_path: Path) -> None:
    # given a release that holds more, and is slower at what both hold
    lost = {"extend.lost": 300}
    slow = [MadeStage(s.size, claim_ms=30) for s in STEADY]
    early = [MadeStage(s.size, failures=lost if s.size >= 2000 else {}) for s in STEADY]
    before = [made(tmp_path / f"a{seed}", early, title="before", seed=seed) for seed in (1, 2, 3)]
    after = [made(tmp_path / f"b{seed}", slow, title="after", seed=seed) for seed in (4, 5, 6)]
    for first, other, words in (
        (before, after, "got better, though worse in some figures"),
        (after, before, "got worse, though better in some figures"),
    ):
        comparison = compare([first, other])
        assert comparison.tips[0] == comparison.outcome
        assert words in said(page_of(comparison), "verdict")
        assert words in write_comparison(comparison, "md").partition("\n")[0]


def test_curves_are_over_all_loads_of_every_run_shared_or_not(tmp_path: Path) -> None:
    small, large = made(tmp_path / "a", STEADY[:2]), made(tmp_path / "b", STEADY, seed=2)
    document = told(compare([small, large]))
    curve = next(curve for curve in document["curves"] if curve["operation"] == "extend")
    assert curve["sizes"] == [500, 1000, 2000, 4000]
    assert [value is None for value in curve["p50"][0]] == [False, False, True, True]
    assert curve["p99"][1][3] == pytest.approx(2000 * np.exp(0.35 * 2.33), rel=0.2)
    assert curve["throughput"][1][3] == pytest.approx(4000 / 30, rel=0.1)
    assert {row["size"] for row in document["rows"]} == {500, 1000}


def test_the_juju_seed_is_the_summary_chart_with_what_it_published(tmp_path: Path) -> None:
    comparison = seeds("juju-2.5.0", "juju-2.5.1")
    document = told(comparison)
    assert document["charted"] == ["claim", "extend"]
    claim = next(curve for curve in document["curves"] if curve["operation"] == "claim")
    assert claim["sizes"] == [1000, 2000, 4000, 8000, 16000]
    assert [run["reach"]["words"] for run in document["runs"]] == [
        "at 2,000 to 4,000 leases",
        "passed 16,000 leases, the largest tried",
    ]
    assert document["rated"] == []  # a log in order has no rates
    page = page_of(comparison)
    assert "467 kB per connection" in said(page, "published")
    assert "156 kB per connection · 0.33x · 1.4 GB at 9,000 connections" in said(page, "published")
    assert said(page, "verdict").startswith(
        "? one run each 2.5.1 passed 16,000 leases, the largest tried; 2.5.0 tips at 2,000 to 4,000; "
    )
    assert "→ 0.33x" in write_comparison(comparison, "md")


def test_the_etcd_seed_is_four_charts_without_a_run() -> None:
    comparison = seeds("etcd2", "etcd3")
    document = told(comparison)
    rows = document["published"]["rows"]
    assert [row["resource"] for row in rows] == ["CPU", "memory", "disk IOPS", "network"]
    assert [[told["length"] for told in row["told"]] for row in rows] == [
        [0, 1],
        [1, pytest.approx(17 / 30)],
        [1, pytest.approx(1 / 3)],
        [1, 0.1],
    ]
    page = page_of(comparison)
    assert "runs" not in page.sections
    assert "over 30 GB" in said(page, "published")
    assert "17 GB · at most 0.57x" in said(page, "published")
    assert "at least 1 core less" in said(page, "published")
    assert write_comparison(comparison, "md").startswith("# etcd: v2 schema / v3 schema: as published\n")


def test_the_targets_resources_stand_side_by_side_against_load(tmp_path: Path) -> None:
    def run(api: str, each: float) -> RunData:
        plan = {**PLAN, "target": {"kind": "etcd", "api": api}}
        return with_resources(made(tmp_path / api, STEADY, plan=plan), each)

    comparison = compare([[run("v2", 4e5)] * 2, [run("v3", 1e5)] * 2])
    document = told(comparison)
    assert [run["label"] for run in document["runs"]] == ["api v2", "api v3"]
    assert document["differs"] == ["target.api: v2 / v3"]
    memory = document["resources"][0]
    assert (memory["title"], memory["sizes"]) == ("Resident memory", list(SIZES))
    assert memory["levels"][1][3]["typical"] == pytest.approx(4000 * 1e5 * 4 / 3)
    assert memory["levels"][1][3]["leader"] == pytest.approx(4000 * 2e5)
    assert memory["ratios"][0][3]["ratio"] == pytest.approx(0.25)
    assert "resident memory 0.25x" in comparison.sentence
    page = page_of(comparison)
    assert {"chart-resource-0", "chart-resource-1"} <= ids(page)
    assert "533 MB0.25x (0.25x to 0.25x)" in said(page, "resources")
    assert "| Resident memory | 4,000 | 2.13 GB | 533 MB, 0.25x (0.25x to 0.25x) |" in write_comparison(
        comparison, "md"
    )


def test_a_page_of_repeats_says_how_often_a_release_beside_itself_seems_to_differ(tmp_path: Path) -> None:
    runs = [[made(tmp_path / name / str(seed), STEADY, seed=seed) for seed in (1, 2)] for name in "ab"]
    comparison = compare(runs)
    assert told(comparison)["errs"] == 0.025
    assert "shows a false change on about one page in 40" in write_comparison(comparison, "html")


def noisy(random: np.random.Generator, noise: float) -> RunData:
    """A run that holds all loads, and whose latency is as far from that of others as chance has it."""
    level = 5 * np.exp(random.normal(0, noise))
    times = [level * np.exp(random.normal(0, 0.2, 2000)) for _ in SIZES]
    return made_run(
        [made_stage(n, s, {"extend.ok": t}) for n, (s, t) in enumerate(zip(SIZES, times, strict=True), 1)]
    )


@pytest.mark.parametrize(("noise", "known"), [(0.02, True), (1.0, False)])
def test_no_difference_is_told_from_one_that_repeats_cannot_show(noise: float, known: bool) -> None:
    comparison = compare([repeated(noisy, 1, noise=noise), repeated(noisy, 2, noise=noise)])
    # given releases of which none was found to differ
    assert comparison.outcome == "none"
    page, text = write_comparison(comparison, "html"), write_comparison(comparison, "md")
    # then the page says so in green only if a large difference is ruled out
    assert ("✓ no difference" in page, "✅ no difference" in text) == (known, known)
    assert ("? cannot tell (" in page, "❔ cannot tell (" in text) == (not known, not known)
    assert ('<section class="verdict met"' in page) == known
    assert (told(comparison)["cannot_tell"] == "") == known


def test_a_run_without_resources_is_named_and_nothing_else_is_lost(tmp_path: Path) -> None:
    bare = made(tmp_path / "a", STEADY, title="bare")
    full = with_resources(made(tmp_path / "b", STEADY, title="full", seed=2), 1e5)
    third = with_resources(made(tmp_path / "c", STEADY, title="third", seed=3), 1e5)
    assert "No two of these runs have a figure in common" in said(page_of(compare([bare, full])), "resources")
    assert "No figures were collected for bare." in said(page_of(compare([bare, full, third])), "resources")


def test_a_dozen_runs_a_week_apart_are_one_series_with_a_line_for_each(tmp_path: Path) -> None:
    comparison = compare(weeks(tmp_path, 12))
    document = told(comparison)
    assert document["title"] == "etcd: 12 runs, from 2026-09-21 to 2026-12-07"
    assert comparison.sentence.startswith(
        "10 runs passed 4,000 leases, the largest tried; 2026-11-30 and 2026-12-07 tip at 2,000 to 4,000"
    )
    series = document["series"]
    assert (series["operation"], series["size"], len(series["p50"])) == ("claim", 4000, 12)
    page = page_of(comparison)
    assert {"chart-series", "chart-load-claim", "chart-p99-claim"} <= ids(page)
    rows = said(page, "figures")
    assert rows.count("2026-11-30") == 1  # in the heading
    assert len(write_comparison(comparison, "md").encode()) < LIMIT
    assert len(write_comparison(comparison, "html")) < 500_000


def test_a_series_is_told_at_the_largest_load_that_most_runs_have(tmp_path: Path) -> None:
    few = [
        made(tmp_path / str(n), STEADY[:size], seed=n + 1, title=f"r{n}")
        for n, size in enumerate((4, 4, 4, 2))
    ]
    assert told(compare(few))["series"]["size"] == 4000
    less = [
        made(tmp_path / f"x{n}", STEADY[:size], seed=n + 1, title=f"r{n}")
        for n, size in enumerate((4, 2, 2, 2))
    ]
    assert told(compare(less))["series"]["size"] == 1000
    assert told(compare(few[:3]))["series"] is None


def test_what_a_reader_must_know_of_a_run_stands_in_its_row(tmp_path: Path) -> None:
    cut = made(
        tmp_path / "a",
        STEADY[:2],
        title="cut",
        plan=PLAN,
        status="interrupted",
        reason="ended early on request",
    )
    whole = made(tmp_path / "b", STEADY, title="whole", plan=PLAN, seed=2)
    comparison = compare([whole, cut])
    assert "ended early on request" in " ".join(told(comparison)["runs"][1]["caveats"])
    assert "ended early on request" in said(page_of(comparison), "runs")
    assert "cut: Withheld" in comparison.sentence


def test_a_bound_that_the_samples_do_not_give_is_no_number(tmp_path: Path) -> None:
    few = [
        made(tmp_path / name, [MadeStage(500, over=1, hold=1, extends_per_second=3)], seed=n)
        for n, name in enumerate("ab", 1)
    ]
    rows = told(compare(few))["rows"]
    p99 = next(row for row in rows if (row["operation"], row["measure"]) == ("extend", "p99"))
    assert (p99["against"][0]["low"], p99["against"][0]["high"]) == (None, None)
    assert said(page_of(compare(few)), "verdict").startswith("? one run each")


def test_a_comparison_of_spawn_runs_charts_what_has_a_load(tmp_path: Path) -> None:
    runs = [
        [
            made(tmp_path / f"{name}{seed}", spawn_stages(slower), plan=SPAWN, title=name, seed=seed)
            for seed in range(first, first + 3)
        ]
        for name, slower, first in (("a", 1.0, 10), ("b", 2.0, 20))
    ]
    comparison = compare(runs)
    document = told(comparison)
    assert document["charted"] == ["add-unit", "add-machine", "relate", "status", "full-status"]
    assert set(document["operations"]) == {*document["charted"], "remove-unit", "remove-machine"}
    # Relations fail at 504 units, which is past the cliff: nothing is worse or better there.
    assert any("add-unit p50 at 252 units" in line for line in document["worse"])
    assert not any("504" in line for line in document["worse"])
    assert "past the cliff of a" in said(page_of(comparison), "figures")
    assert "though" not in comparison.sentence
    assert "504destroy" in said(page_of(comparison), "figures")


def test_published_figures_stand_beside_a_comparison(tmp_path: Path) -> None:
    runs = [made(tmp_path / name, STEADY, seed=seed) for seed, name in enumerate("ab", start=1)]
    baseline = load_baseline("openstack-rally-one-broker")
    comparison = compare(runs, beside=[baseline])
    text = write_comparison(comparison, "html")
    assert_loads_nothing(text)
    assert "nova.boot_server" in text
    assert html.escape(baseline.title) in text
    assert baseline.title in write_comparison(comparison, "md").replace("\\", "")


def test_one_run_beside_figures_alone_claims_no_change(tmp_path: Path) -> None:
    comparison = compare([made(tmp_path, STEADY)], beside=[load_baseline("etcd3")])
    document = told(comparison)
    assert (document["outcome"], document["changes"], document["regressed"]) == ("published", "", False)
    page = page_of(comparison)
    assert "shown with published figures" in said(page, "verdict")
    assert "changes" not in page.sections


@pytest.mark.parametrize("titles", [(HOSTILE, "b"), ("a" * 200, "b" * 200)], ids=["hostile", "long"])
def test_names_are_text_whatever_they_hold(tmp_path: Path, titles: Sequence[str]) -> None:
    runs = [made(tmp_path / str(n), STEADY[:2], title=f"t{n}", seed=n + 1) for n in range(2)]
    for run, title in zip(runs, titles, strict=True):
        run.manifest.title = title
    comparison = compare(runs)
    page = page_of(comparison)
    assert "alert(1)" not in "".join(page.texts["script"][-1:])
    assert [run["label"] for run in told(comparison)["runs"]] == ["A", "B"]
    assert "<script>alert" not in write_comparison(comparison, "md")
