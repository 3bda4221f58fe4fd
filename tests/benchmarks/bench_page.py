"""How large the page of a large run is, and when a browser has it ready: 100 hosts, 4 hours, 15 figures of 400 points.

Run by hand: python tests/benchmarks/bench_page.py [ROUNDS]. Prints what the report costs (CPU seconds, peak memory of
this process), the page's size, and medians of ROUNDS (default 5) openings in headless Chromium: until its charts are
drawn and it answers (the load event: scripts are at the page's end), and until a click has sorted the table of hosts.
"""

from __future__ import annotations

import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.browser.conftest import find_chromium  # noqa: E402
from tests.unit.made.resource_figures import MEANINGS, resources_of  # noqa: E402
from tests.unit.made.synthetic import MadeStage, write_run  # noqa: E402
from tippingpoint.analysis.analyse import analyse  # noqa: E402
from tippingpoint.report import write_report  # noqa: E402
from tippingpoint.rundir.resources import write_resources  # noqa: E402
from tippingpoint.rundir.results import load_run  # noqa: E402

HOSTS = [f"node-{number}" for number in range(1, 101)]
FIGURES = [*MEANINGS, *(f"made-{number}" for number in range(15 - len(MEANINGS)))]


def write_large_run(directory: Path) -> Path:
    """Eight stages of half an hour, with resources on the grid that gathering them makes of four hours."""
    write_run(
        directory, [MadeStage(500 * 2**n, over=100, hold=1700, extends_per_second=200) for n in range(8)]
    )
    led = [(-200.0, "node-7"), (6000.0, "node-40")]
    write_resources(directory, resources_of(HOSTS, 8 * 1800, step=36.3, led=led, figures=FIGURES))
    return directory


def open_once(page: Page, file: Path) -> tuple[float, float]:
    """Seconds until the page is ready, and that a click on a heading takes to sort 100 hosts, as the page sees it."""
    page.goto(file.as_uri())
    ready = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
    page.locator("details:has(table.hosts)").evaluate("details => details.open = true")
    sorting = page.evaluate(
        """() => new Promise(done => {
            const began = performance.now();
            document.querySelector("table.hosts thead th:nth-child(3) button").click();
            requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
        })"""
    )
    return ready, sorting / 1000


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as base:
        directory = write_large_run(Path(base) / "run")
        wall, cpu = time.perf_counter(), time.process_time()
        text = write_report(analyse(load_run(directory)), "html")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"report: {wall:.2f} s, {cpu:.2f} CPU-s, peak {peak:.0f} MiB")
        print(f"page: {len(text.encode()) / 1e6:.2f} MB")
        file = Path(base) / "page.html"
        file.write_text(text, encoding="utf-8")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=find_chromium())
            times: list[tuple[float, float]] = []
            for _ in range(rounds):
                context = browser.new_context(viewport={"width": 1180, "height": 900}, offline=True)
                times.append(open_once(context.new_page(), file))
                context.close()
            browser.close()
        ready, sorting = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"ready: {ready:.2f} s, sorted: {sorting * 1000:.0f} ms")


main()
