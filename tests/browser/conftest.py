"""A headless Chromium for the tests of pages: the distribution's, driven by playwright."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.network import own_network
from tests.functional.program import WITHIN_S

Opened = Callable[..., Page]
WITHIN_MS = 1000 * WITHIN_S
expect.set_options(timeout=WITHIN_MS)


def find_chromium() -> str:
    """The browser that TIPPINGPOINT_CHROMIUM names, or the one on PATH."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = os.environ.get("TIPPINGPOINT_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    assert found, "chromium: not found: expected it on PATH or in TIPPINGPOINT_CHROMIUM"
    return found


@pytest.fixture(scope="package", autouse=True)
def network() -> Iterator[None]:
    """The network of these tests, which no lab beside them changes. Only root can make one, and labs that change the
    machine's network need root, too."""
    with own_network() if os.geteuid() == 0 else contextlib.nullcontext():
        yield


@pytest.fixture(scope="package")
def browser(network: None) -> Iterator[Browser]:
    """One browser for all tests."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), timeout=WITHIN_MS)
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Opens a page's text from a file, without a network; what it asked for and complained of fails the test."""
    asked: list[str] = []
    complaints: list[str] = []
    contexts: list[Any] = []

    def open_page(text: str, *, width: int = 1180, scheme: str = "light", scripts: bool = True) -> Page:
        file = tmp_path / f"page-{len(contexts)}.html"
        file.write_text(text, encoding="utf-8")
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,  # pyright: ignore[reportArgumentType]
            java_script_enabled=scripts,
            offline=True,
        )
        contexts.append(context)
        context.set_default_timeout(WITHIN_MS)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    assert [url for url in asked if not url.endswith(".html")] == []
