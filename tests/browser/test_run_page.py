"""The page of a run in a browser: it opens from a file, draws its charts, sorts its tables, fits phone and paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page

from tests.browser.conftest import Opened
from tests.unit.made.lxd_runs import FILL_PLAN, Fill, write_fill
from tests.unit.made.openstack_runs import computes, write_cycles, write_servers
from tests.unit.made.resource_figures import MEANINGS, resources_of
from tests.unit.made.searches import NARROWED, write_search
from tests.unit.made.synthetic import MadeStage, write_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.rundir.results import load_run

CLAIMS: dict[str, Any] = {
    "name": "etcd-leases",
    "stages": [{"leases": size, "hold": "8s", "over": "2s"} for size in (500, 1000, 2000, 4000)],
    "thresholds": [{"operation": "claim", "p99": "100ms", "error_rate": 0.001}],
}

DRAWN = """chart => {
    const canvas = chart.querySelector("canvas");
    if (!canvas) return "no canvas";
    const colours = [...chart.querySelectorAll(".u-marker")].map(marker => getComputedStyle(marker).borderTopColor)
        .map(colour => colour.match(/[\\d.]+/g).map(Number)).filter(parts => parts.length === 3);
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4)
        if (colours.some(colour => colour.every((part, n) => Math.abs(part - data[at + n]) < 8))) found++;
    return found;
}"""
"""How many pixels of a chart have a colour of its legend's lines."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Reports of runs with few hosts, with many, with leases of which nothing was gathered, with hardly anything."""
    base = tmp_path_factory.mktemp("runs")
    cluster = load_run(
        write_fill(
            base / "lxd",
            [Fill(10), Fill(20), Fill(30, lose="lxd2"), Fill(30, kind="destroy")],
            plan=FILL_PLAN,
        )
    )
    hosts = ["lxd1", "lxd2", "lxd3"]
    cluster.resources = resources_of(hosts, 100, led=[(-4, "lxd1"), (63, "lxd3")], away=("lxd2", 58, 68))
    stages = [
        MadeStage(size, failures={"claim.error": 5}, errors=["timed out"]) for size in (500, 1000, 2000, 4000)
    ]
    claims = load_run(write_run(base / "claims", stages, plan=CLAIMS))
    many = load_run(write_run(base / "many", stages, plan=CLAIMS))
    nodes = [f"node-{number}" for number in range(1, 101)]
    many.resources = resources_of(nodes, 40, led=[(-4, "node-7"), (20, "node-40")])
    empty = load_run(write_run(base / "empty", []))
    bare = load_run(write_run(base / "bare", []))
    bare.resources = resources_of(hosts, 60)
    shares = {name: float(number % 3) for number, name in enumerate(computes(300))}
    servers = load_run(write_servers(base / "servers", [2000, 4000], hosts=shares, per_second=100))
    boots = load_run(write_cycles(base / "boots", 50, failures=2))
    runs = {"cluster": cluster, "claims": claims, "many": many, "empty": empty, "bare": bare}
    search = load_run(write_search(base / "search", NARROWED))
    runs |= {"servers": servers, "boots": boots, "search": search}
    return {name: write_report(analyse(run), "html") for name, run in runs.items()}


def charts(page: Page) -> list[Locator]:
    for details in page.locator("details").all():
        details.evaluate("details => details.open = true")
    return page.locator(".chart:not([hidden])").all()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["cluster", "claims", "many", "servers", "boots", "search"])
def test_every_chart_is_drawn_in_both_colour_schemes(
    opened: Opened, pages: Mapping[str, str], name: str, scheme: str
) -> None:
    page = opened(pages[name], scheme=scheme)
    drawn = {chart.get_attribute("id"): chart.evaluate(DRAWN) for chart in charts(page)}
    assert len(drawn) > 6
    assert {id: pixels for id, pixels in drawn.items() if not isinstance(pixels, int) or pixels < 20} == {}


def test_the_targets_resources_are_drawn_though_no_load_was_measured(
    opened: Opened, pages: Mapping[str, str]
) -> None:
    page = opened(pages["bare"])
    assert len(charts(page)) == len(MEANINGS)
    assert [chart.get_attribute("id") for chart in charts(page) if chart.evaluate(DRAWN) < 20] == []


def test_failures_are_on_the_chart_at_what_they_cost_and_successes_alone_are_told_apart(
    opened: Opened, tmp_path: Path
) -> None:
    # given a stage in which leases were lost after 2 s, where extensions that succeed take 2 ms
    stages = [MadeStage(500), MadeStage(1000, claim_ms=500, failures={"extend.lost": 60}), MadeStage(2000)]
    run = load_run(write_run(tmp_path / "run", stages, plan=CLAIMS))
    page = opened(write_report(analyse(run), "html"))
    # then the table has both, one below the other, also when it is sorted
    rows = page.locator("#operations .scroll").first.locator("tbody:has-text('extend') tr:not(:has(.group))")
    names = [" ".join(text.split()[1:4]) for text in rows.all_inner_texts()]
    assert [name.partition(" ")[0] for name in names] == ["500", "1,000", "extend,", "2,000"]
    assert rows.nth(2).locator("td").first.inner_text() == "extend, successes alone"
    waited, alone = (float(rows.nth(n).locator("td").nth(3).inner_text().replace(",", "")) for n in (1, 2))
    assert waited > 1000 > 100 > alone
    page.locator("#operations .scroll").first.locator("thead button", has_text="leases").click()
    assert rows.nth(2).locator("td").first.inner_text() == "extend, successes alone"
    # and the chart has a line for each, the one as high as what was lost cost
    chart = page.locator("#chart-time-extend")
    assert chart.locator(".u-legend .u-label").all_inner_texts()[1:] == [
        "extend p50",
        "extend p99",
        "extend max",
        "extend max, successes alone",
    ]
    assert chart.evaluate(DRAWN) > 20
    ticks = page.evaluate(
        "JSON.parse(document.querySelector('script[type=\"application/json\"]').textContent).timeline"
    )
    assert max(value or 0 for value in ticks["cost"]["extend"]["max"]) >= waited * 1000
    # where nothing failed, successes have no row and no line of their own
    assert page.locator("#chart-time-claim .u-legend .u-series").count() == 4
    assert "claim, successes alone" not in page.locator("#operations").inner_text()


def test_where_lines_are_many_medians_are_behind_a_switch(opened: Opened, pages: Mapping[str, str]) -> None:
    page = opened(pages["cluster"])
    names = page.locator("#chart-load .u-series:visible .u-label")
    assert [name.rpartition(" ")[2] for name in names.all_inner_texts()[1:]] == ["p99"] * 4
    page.locator("#load").get_by_label("with medians").first.check()
    assert {name.rpartition(" ")[2] for name in names.all_inner_texts()[1:]} == {"p50", "p99"}
    # and it stays on when the page is drawn again
    page.emulate_media(color_scheme="dark")
    assert page.locator("#load").get_by_label("with medians").first.is_checked()


def test_a_chart_of_one_point_is_not_there(opened: Opened, tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", [MadeStage(500)], plan=CLAIMS))
    page = opened(write_report(analyse(run), "html"))
    assert page.locator("#chart-load").count() == 0
    assert page.locator("main > section").nth(1).get_attribute("id") == "time"


def test_a_run_with_hardly_anything_opens(opened: Opened, pages: Mapping[str, str]) -> None:
    page = opened(pages["empty"])
    assert page.locator("#verdict .badge").is_visible()


def test_a_search_shows_its_answer_the_chance_to_pass_and_every_probe(
    opened: Opened, pages: Mapping[str, str]
) -> None:
    page = opened(pages["search"])
    assert "95 %" in page.locator("#verdict .sure").inner_text()
    labels = page.locator("#chart-chance .u-legend .u-label").all_inner_texts()
    assert labels[1:] == [
        "chance to pass",
        "95 % from",
        "95 % to",
        "probes that passed",
        "probes that failed",
    ]
    assert page.locator("#search [aria-label='The probes'] tbody tr").count() == len(NARROWED)
    assert all(page.locator(f"#{chart}").evaluate(DRAWN) > 20 for chart in ("chart-chance", "chart-probes"))


@pytest.mark.parametrize("name", ["cluster", "claims", "many", "empty", "search"])
def test_a_page_400_pixels_wide_needs_no_sideways_scroll(
    opened: Opened, pages: Mapping[str, str], name: str
) -> None:
    assert_within_400_pixels(opened(pages[name], width=400))


def assert_within_400_pixels(page: Page) -> None:
    """Neither a chart nor the page as a whole is wider."""
    for chart in charts(page):
        box = chart.locator("canvas").bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 400
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_are_told_from_what_they_stand_on(
    opened: Opened, pages: Mapping[str, str], scheme: str
) -> None:
    """4.5 for text and 3 for lines is what WCAG 2.2 asks for (1.4.3, 1.4.11)."""
    page = opened(pages["cluster"], scheme=scheme)
    card = luminance(page, "--card")
    for name, least in [
        *[(name, 4.5) for name in ("--text", "--soft", "--link", "--bad", "--good")],
        *[(f"--op-{number}", 3.0) for number in range(1, 9)],
        *[(name, 3.0) for name in ("--leader", "--followers", "--held", "--health", "--lost", "--error")],
    ]:
        lighter, darker = sorted((luminance(page, name), card), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) >= least, name


def luminance(page: Page, name: str) -> float:
    """The relative luminance of a colour of the page, as WCAG 2.2 defines it."""
    shown = page.evaluate(
        """name => {
            const probe = document.body.appendChild(document.createElement("p"));
            probe.style.color = `var(${name})`;
            const colour = getComputedStyle(probe).color;
            probe.remove();
            return colour.match(/[\\d.]+/g).map(Number);
        }""",
        name,
    )
    parts = [part / 255 for part in shown[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# ---- one timeline --------------------------------------------------------------------------------


def legend(page: Page, chart: str) -> list[str]:
    return page.locator(f"#{chart} .u-value").all_text_contents()


def test_pointing_at_one_chart_shows_the_same_moment_in_all(opened: Opened, pages: Mapping[str, str]) -> None:
    page = opened(pages["cluster"])
    page.locator("#chart-resources-network-out").scroll_into_view_if_needed()
    over = page.locator("#chart-resources-network-out .u-over").bounding_box()
    assert over is not None
    page.mouse.move(over["x"] + over["width"] / 2, over["y"] + 40)
    page.wait_for_function("document.querySelector('#chart-time-launch .u-value').textContent !== '–'")
    time, *values = legend(page, "chart-resources-network-out")
    assert all(value.endswith("bit/s") for value in values[:2])
    for other in ("chart-held", "chart-time-launch", "chart-resources-memory"):
        assert legend(page, other)[0] == time


def test_a_part_of_one_chart_that_is_dragged_over_is_shown_by_all_until_a_double_click(
    opened: Opened, pages: Mapping[str, str]
) -> None:
    page = opened(pages["cluster"])
    seen = "() => document.querySelector('#chart-time-launch canvas').toDataURL()"
    whole = page.evaluate(seen)
    page.locator("#chart-resources-cpu").scroll_into_view_if_needed()
    over = page.locator("#chart-resources-cpu .u-over").bounding_box()
    assert over is not None
    page.mouse.move(over["x"] + over["width"] / 4, over["y"] + 40)
    page.mouse.down()
    page.mouse.move(over["x"] + over["width"] / 2, over["y"] + 40, steps=4)
    page.mouse.up()
    page.wait_for_function(f"before => ({seen})() !== before", arg=whole)
    page.mouse.dblclick(over["x"] + over["width"] / 4, over["y"] + 40)
    page.wait_for_function(f"before => ({seen})() === before", arg=whole)


# ---- tables --------------------------------------------------------------------------------------


def column(table: Locator, place: int) -> list[str]:
    return [row.locator("th, td").nth(place).inner_text() for row in table.locator("tbody tr").all()]


def test_a_click_on_a_heading_sorts_and_the_next_one_turns_it_round(
    opened: Opened, pages: Mapping[str, str]
) -> None:
    page = opened(pages["cluster"])
    table = page.locator("#resources table").first
    headings = table.locator("thead th")
    ratio = headings.all_text_contents().index("leader / followers")
    before = column(table, 0)
    headings.nth(ratio).locator("button").click()
    assert headings.nth(ratio).get_attribute("aria-sort") == "ascending"
    up = [float(text.removesuffix("x")) for text in column(table, ratio)]
    assert up == sorted(up)
    headings.nth(ratio).locator("button").click()
    assert headings.nth(ratio).get_attribute("aria-sort") == "descending"
    assert [float(text.removesuffix("x")) for text in column(table, ratio)] == up[::-1]
    assert column(table, 0)[0] == "Network out"
    headings.nth(0).locator("button").click()
    assert [heading.get_attribute("aria-sort") for heading in headings.all()].count(
        "none"
    ) == headings.count() - 1
    assert column(table, 0) == sorted(before)


def test_a_table_sorts_by_the_keyboard(opened: Opened, pages: Mapping[str, str]) -> None:
    page = opened(pages["many"])
    charts(page)
    table = page.locator("table.hosts")
    hosts = column(table, 0)
    assert hosts[:3] == ["node-1", "node-2", "node-3"]
    table.locator("thead button").first.focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    assert table.locator("thead th").nth(1).get_attribute("aria-sort") == "descending"
    assert set(column(table, 0)[:2]) == {"node-7", "node-40"}
    table.locator("thead button").first.press("Enter")
    assert column(table, 0) == hosts  # node-9 before node-10


def test_figures_with_units_sort_by_what_they_are_and_rows_stay_in_their_group(
    opened: Opened, pages: Mapping[str, str]
) -> None:
    page = opened(pages["claims"])
    table = page.locator("#operations table").first
    groups = table.locator("tbody").all()
    first = [group.locator("tr").first.inner_text() for group in groups]
    heading = table.locator("thead th", has_text="99 %ile").locator("button")
    heading.click()
    heading.click()
    assert [group.locator("tr").first.inner_text() for group in groups] == first
    for group in groups:
        p99 = [
            float(row.locator("td").nth(7).inner_text().replace(",", ""))
            for row in group.locator("tr").all()[1:]
        ]
        assert p99 == sorted(p99, reverse=True)


# ---- paper, and no scripts -----------------------------------------------------------------------


def test_paper_is_white_and_as_wide_as_its_charts(
    opened: Opened, pages: Mapping[str, str], tmp_path: Path
) -> None:
    page = opened(pages["cluster"], scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--text').trim()")
        == "#1d1f22"
    )
    widths = page.evaluate(
        "[...document.querySelectorAll('.chart canvas')].map(canvas => canvas.clientWidth)"
    )
    assert max(widths) <= 680
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen", color_scheme="dark")
    assert page.locator("#chart-resources-cpu").evaluate(DRAWN) > 20


def test_without_scripts_every_figure_is_in_a_table_and_nothing_pretends_to_sort(
    opened: Opened, pages: Mapping[str, str]
) -> None:
    page = opened(pages["cluster"], scripts=False)
    assert page.locator(".no-script").is_visible()
    assert page.locator("#resources table").first.is_visible()
    assert page.locator("table button").count() == 0
    assert page.locator("#chart-resources-cpu").is_hidden()
