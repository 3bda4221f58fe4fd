"""A picture of a page for the documentation: some of its sections and charts, as a browser shows them.

python -m tests.browser.picture REPORT.html OUT.png [--sections verdict,time] [--charts chart-held,chart-resources-cpu]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.conftest import find_chromium

KEEP = """([sections, charts]) => {
    for (const part of document.querySelectorAll("main > *"))
        part.hidden = sections.length > 0 && !sections.includes(part.id);
    document.querySelector(".colophon").hidden = true;
    if (!charts.length) return;
    for (const table of document.querySelectorAll("section:has(.chart) .scroll")) table.hidden = true;
    for (const chart of document.querySelectorAll(".chart")) {
        if (charts.includes(chart.id)) continue;
        let part = chart;
        while (part === chart || part?.matches(".caption")) { part.hidden = true; part = part.previousElementSibling; }
        if (part?.matches(".chart-title")) part.hidden = true;
    }
    for (const half of document.querySelectorAll(".pair > div"))
        half.hidden = !half.querySelector(".chart:not([hidden])");
}"""
"""Hides what is not asked for; a chart goes with its title and caption, and where some are named, tables too."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--sections", default="")
    parser.add_argument("--charts", default="")
    parser.add_argument("--width", type=int, default=1000)
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        page = browser.new_page(viewport={"width": asked.width, "height": 800})
        page.goto(asked.report.resolve().as_uri())
        page.evaluate(
            KEEP, [list(filter(None, names.split(","))) for names in (asked.sections, asked.charts)]
        )
        page.screenshot(path=asked.picture, full_page=True)
        browser.close()


if __name__ == "__main__":
    main()
