"""The page of collected runs in a browser: log in, follow a run, read a report, compare; on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import WITHIN_MS
from tests.functional.collect.page_server import TOKEN, UNITS, Reader, a_run, collect, digests_of, page_of
from tests.unit.made.synthetic import STARTED
from tippingpoint.collect.runs import Runs
from tippingpoint.conduct.run_state import Turn, UnitProgress, UnitWord

FIRST, SECOND = (f"2026112{day}-000000-juju-leases-small-1f3a" for day in (1, 2))
LIVE = "20261123-000000-juju-leases-small-1f3a"
FAILED = "20261120-000000-juju-leases-small-1f3a"
WHY = "admin is refused: invalid entity name or password"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collector")


@pytest.fixture(scope="module")
def runs(place: Path) -> Runs:
    """Two that are over, one that failed at login, and one that goes on."""
    runs = Runs(place / "runs")
    for name, claim_ms in ((FIRST, 10.0), (SECOND, 400.0)):
        collect(runs, a_run(name), digests_of(place / "parts", name, claim_ms))
    runs.find(FIRST).verdict_file.write_text('{"outcome": "met", "sentence": "All thresholds are met."}')
    runs.find(SECOND).verdict_file.write_text(
        '{"outcome": "missed", "sentence": "A claim takes 402 ms at 200 leases, which is more than 100 ms."}'
    )
    runs.keep(a_run(FAILED, turns=[], started=None, missing=dict.fromkeys(UNITS, WHY)))
    for unit in UNITS:
        runs.keep_word(unit, UnitWord(run=FAILED, phase="failed", t=STARTED, problem=WHY))
    turn = Turn(number=2, stage=2, kind="ramp", of=2, begin=STARTED + 10.0, lasts=20)
    runs.keep(a_run(LIVE, over=False, turns=[turn]))
    say(runs, held=20, p99_ms=31.0)
    return runs


def say(runs: Runs, t: float = STARTED + 100.0, **progress: float) -> None:
    """A word of the live run's first unit."""
    told = UnitProgress.model_validate({"stage": 2, "stages": 5, "size": 25, **progress})
    runs.keep_word(UNITS[0], UnitWord(run=LIVE, phase="up", turn=2, t=t, progress=told))


@pytest.fixture(scope="module")
def server(place: Path, runs: Runs) -> Iterator[Reader]:
    with page_of(place / "runs", place / "page") as reader:
        yield reader


@pytest.fixture(params=[("light", 1180), ("dark", 400)], ids=lambda p: f"{p[0]}-{p[1]}")
def page(request: pytest.FixtureRequest, browser: Browser, server: Reader) -> Iterator[Page]:
    """Somebody who has just logged in; what the browser complained of since fails the test."""
    scheme, width = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        ignore_https_errors=True,  # its certificate is one of its own
        base_url=f"https://127.0.0.1:{server.port}",
    )
    context.set_default_timeout(WITHIN_MS)
    page = context.new_page()
    page.goto("/")
    token = page.get_by_label("The page's token")
    # The page focuses it itself, and the browser complains where somebody was faster.
    expect(token).to_be_focused()
    token.fill(TOKEN)
    complaints: list[str] = []
    page.on("pageerror", lambda problem: complaints.append(str(problem)))
    page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    yield page
    context.close()
    assert complaints == []


def fits(page: Page) -> bool:
    """Whether nothing but tables, which scroll by themselves, is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_runs_are_there_and_the_token_is_not(page: Page) -> None:
    assert page.locator("tbody tr").count() == 4
    assert fits(page)
    assert TOKEN not in page.content() + page.url
    assert page.evaluate("document.cookie") == ""


def test_a_live_run_is_followed_without_a_reload(page: Page, runs: Runs) -> None:
    say(runs, held=20, p99_ms=31.0)
    page.locator(f'tr[data-row="{LIVE}"] a').click()
    expect(page.get_by_text("20 of 25 leases").first).to_be_visible()
    page.evaluate("window.here = true")

    say(runs, held=25, p99_ms=45.0)

    expect(page.get_by_text("25 of 25 leases").first).to_be_visible()
    expect(page.get_by_role("cell", name="p99 45 ms")).to_be_visible()
    assert page.evaluate("window.here") is True
    assert fits(page)


def test_a_live_run_is_drawn_and_drawn_on(page: Page, runs: Runs) -> None:
    """Given a run that goes on, then its charts are there, and a word that arrives is drawn without a reload."""
    say(runs, held=5, rate=3.0, p99_ms=20.0, t=STARTED + 40.0)
    say(runs, held=12, rate=4.0, p99_ms=25.0, t=STARTED + 70.0)
    page.goto(f"/runs/{LIVE}")
    for name in ("time-call", "held", "ok"):
        expect(page.locator(f"#chart-{name} canvas")).to_be_visible()
    expect(page.locator("#chart-outcomes")).to_have_count(0)
    page.evaluate("window.here = true")

    say(runs, held=13, rate=4.0, errors=3, t=STARTED + 200.0)
    say(runs, held=13, rate=4.0, errors=9, t=STARTED + 230.0)

    expect(page.locator("#chart-outcomes canvas")).to_be_visible()
    assert page.locator("#chart-held canvas").count() == 1
    assert page.evaluate("window.here") is True
    assert fits(page)
    say(runs, held=13, errors=0, t=STARTED + 100.0)
    (runs.find(LIVE).directory / "course.jsonl").unlink()


def test_why_a_run_failed_stands_there(page: Page) -> None:
    """Given units that could not log in, then the run's page says so."""
    page.goto(f"/runs/{FAILED}")

    expect(page.locator("#verdict")).to_contain_text(WHY)
    assert fits(page)


def test_marks_stay_while_the_list_is_followed(page: Page, runs: Runs) -> None:
    box = page.get_by_label(f"Compare {SECOND}")
    box.check()

    with page.expect_response(lambda answer: answer.url.endswith("/")):
        pass

    expect(box).to_be_checked()


def test_a_report_draws_its_charts_though_it_is_nobodys(page: Page) -> None:
    page.locator(f'tr[data-row="{FIRST}"] th a').click()

    expect(page.locator(".chart canvas").first).to_be_visible()
    assert page.evaluate("self.origin") == "null"
    assert fits(page)


def test_runs_are_compared(page: Page) -> None:
    page.get_by_label(f"Compare {SECOND}").check()
    page.get_by_label("What the others are compared with").select_option(FIRST)

    page.get_by_role("button", name="Compare").click()

    expect(page.get_by_text("worse").first).to_be_visible()
    assert fits(page)


def test_after_a_logout_nothing_is_shown(page: Page) -> None:
    page.get_by_role("button", name="Log out").click()

    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
