"""Pictures of pages for the documentation: some of their sections and charts, as a browser shows them.

python -m tests.browser.picture                   # all that docs/images/pictures.yaml lists, and what they say
python -m tests.browser.picture REPORT.html OUT.png [--sections verdict,time] [--charts chart-held,chart-resources-cpu]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import yaml
from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import find_chromium
from tests.unit.documents.pictures import LISTED, ROOT, listed, sentences_of

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


def take(
    browser: Browser, report: Path, picture: Path, sections: Sequence[str], charts: Sequence[str], width: int
) -> str:
    """Take a picture of a page, and return the text that it shows."""
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(report.resolve().as_uri())
    page.evaluate(KEEP, [list(sections), list(charts)])
    page.screenshot(path=picture, full_page=True)
    text = page.inner_text("body")
    page.close()
    return text


def take_all(browser: Browser) -> None:
    """Take all listed pictures again; list with each when it was made, of which commit, and what it says."""
    head = LISTED.read_text(encoding="utf-8").partition("\nreport.png:")[0]
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    entries = listed()
    for name, entry in entries.items():
        command = [sys.executable, "-m", *str(entry["command"]).split()]
        with tempfile.NamedTemporaryFile(suffix=".html") as page:
            subprocess.run(command, cwd=ROOT, stdout=page, check=False)  # a missed threshold is a result
            shown = take(
                browser,
                Path(page.name),
                LISTED.parent / name,
                entry.get("sections", ()),
                entry.get("charts", ()),
                1000,
            )
        told = " ".join(shown.split())
        entry["made"], entry["commit"] = datetime.now(UTC).date().isoformat(), commit
        entry["says"] = [each for each in sentences_of(entry["command"]) if " ".join(each.split()) in told]
    text = yaml.safe_dump(entries, sort_keys=False, allow_unicode=True, width=116, default_flow_style=None)
    LISTED.write_text(f"{head}\n{text}", encoding="utf-8")


def main() -> None:
    """Take the pictures that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, nargs="?")
    parser.add_argument("picture", type=Path, nargs="?")
    parser.add_argument("--sections", default="")
    parser.add_argument("--charts", default="")
    parser.add_argument("--width", type=int, default=1000)
    asked = parser.parse_args()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium())
        if asked.report is None or asked.picture is None:
            take_all(browser)
        else:
            sections, charts = (
                list(filter(None, names.split(","))) for names in (asked.sections, asked.charts)
            )
            take(browser, asked.report, asked.picture, sections, charts, asked.width)
        browser.close()


if __name__ == "__main__":
    main()
