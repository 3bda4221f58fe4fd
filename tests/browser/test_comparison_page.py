"""The page of a comparison in a browser: the seeds' own, two runs with their targets' resources, and a dozen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.browser.conftest import Opened
from tests.browser.test_run_page import DRAWN, assert_within_400_pixels, charts, luminance
from tests.unit.made.resource_figures import resources_of
from tests.unit.made.synthetic import STARTED, MadeStage, write_run
from tippingpoint.compare.baselines import load_baseline
from tippingpoint.compare.compare import compare
from tippingpoint.report import write_comparison
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import RunData, load_run

SIZES = (500, 1000, 2000, 4000)
NAMES = ["juju", "etcd", "two", "dozen"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Comparisons of published transcripts, of published figures, of two runs with resources, and of twelve weeks."""
    base = tmp_path_factory.mktemp("runs")
    two = [made(base / name, week, claim_ms) for week, (name, claim_ms) in enumerate((("a", 40), ("b", 10)))]
    for run in two:
        run.resources = resources_of(["m1", "m2", "m3"], 45, led=[(-4, "m1")])
    dozen = [made(base / f"w{week}", week, 10 + week, lost=week > 9) for week in range(12)]
    return {
        "juju": seeds("juju-2.5.0", "juju-2.5.1"),
        "etcd": seeds("etcd2", "etcd3"),
        "two": write_comparison(compare(two), "html"),
        "dozen": write_comparison(compare(dozen), "html"),
    }


def seeds(*names: str) -> str:
    beside = [load_baseline(name) for name in names]
    runs = [run for baseline in beside if (run := baseline.run()) is not None]
    return write_comparison(compare(runs, 0.1, beside), "html")


def made(path: Path, week: int, claim_ms: float, *, lost: bool = False) -> RunData:
    failures = {"extend.lost": 300} if lost else {}
    stages = [MadeStage(size, claim_ms, failures=failures if size == 4000 else {}) for size in SIZES]
    directory = write_run(path, stages, seed=week + 1)
    manifest = Manifest.load(directory)
    manifest.started = STARTED + week * 7 * 86400
    manifest.save(directory)
    return load_run(directory)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "least"), [("juju", 2), ("two", 11), ("dozen", 6)])
def test_every_chart_is_drawn_in_both_colour_schemes(
    opened: Opened, pages: Mapping[str, str], name: str, least: int, scheme: str
) -> None:
    page = opened(pages[name], scheme=scheme)
    drawn = {chart.get_attribute("id"): chart.evaluate(DRAWN) for chart in charts(page)}
    assert len(drawn) >= least
    assert {id: pixels for id, pixels in drawn.items() if not isinstance(pixels, int) or pixels < 20} == {}


def test_the_seeds_four_charts_need_no_script(opened: Opened, pages: Mapping[str, str]) -> None:
    page = opened(pages["etcd"], scripts=False)
    bars = page.locator("#published .bar").all()
    assert len(bars) == 8
    widths = [
        bar.locator("rect:not(.room)").bounding_box() if bar.locator("rect:not(.room)").count() else None
        for bar in bars
    ]
    v2, v3 = widths[2], widths[3]  # memory: over 30 GB, 17 GB
    assert v2 is not None
    assert v3 is not None
    assert v3["width"] / v2["width"] == pytest.approx(17 / 30, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_400_pixels_wide_needs_no_sideways_scroll(
    opened: Opened, pages: Mapping[str, str], name: str
) -> None:
    page = opened(pages[name], width=400)
    assert_within_400_pixels(page)
    # what was found of each run is read without scrolling its table
    for cell in page.locator("table.runs td").all():
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 400


def test_the_figures_of_two_runs_are_sorted_by_a_click(opened: Opened, pages: Mapping[str, str]) -> None:
    page = opened(pages["juju"])
    heading = page.locator("#figures th", has_text="change")
    heading.locator("button").click()
    shown = (
        page.locator("#figures tbody")
        .first.locator("tr:not(:has(th.group)) td:nth-child(5)")
        .evaluate_all("cells => cells.map(cell => Number(cell.dataset.value))")
    )
    assert len(shown) == 15
    assert shown == sorted(shown)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_a_reader_must_know_of_a_run_is_readable(
    opened: Opened, pages: Mapping[str, str], scheme: str
) -> None:
    page = opened(pages["two"], scheme=scheme)
    lighter, darker = sorted((luminance(page, "--withheld"), luminance(page, "--card")), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5
