"""The page of the runs here on loopback: who is let in, a run in progress, reports, comparisons and trends."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.collect.page_server import TOKEN, Answer
from tests.functional.program import WITHIN_S
from tippingpoint.collect.page.access import PageAccess
from tippingpoint.collect.page.local import LocalPages
from tippingpoint.collect.page.server import serving
from tippingpoint.rundir.manifest import Manifest, process_started

KEPT = Path(__file__).parents[2] / "data" / "kept-runs"
FIRST, SECOND = "20261122-181015-kept-etcd-581c", "20261122-181114-kept-etcd-9e9b"
LIVE = "20261129-000000-kept-etcd-0000"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one plan that have ended, and one that goes on: this process is taken for its."""
    place = tmp_path_factory.mktemp("runs")
    for name, run in (("etcd", FIRST), ("etcd-v2", SECOND), ("etcd-v2", LIVE)):
        shutil.copytree(KEPT / name, place / run)
    going_on(place / LIVE)
    lines = (place / LIVE / "worker-0.jsonl").read_bytes().splitlines(keepends=True)
    (place / LIVE / "worker-0.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    return place


def going_on(directory: Path) -> None:
    manifest = Manifest.load(directory)
    manifest.id, manifest.status, manifest.ended, manifest.started = directory.name, "running", None, 2e9
    manifest.pid, manifest.pid_started = os.getpid(), process_started(os.getpid())
    manifest.save(directory)


class Asking:
    """Who asks the page; `cookie` is that of a login."""

    def __init__(self, port: int) -> None:
        self.port, self.cookie = port, ""

    def get(self, path: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Cookie": self.cookie} if self.cookie else {})
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())


@pytest.fixture(scope="module")
def stranger(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    place = socket.create_server(("127.0.0.1", 0))
    answers = tmp_path_factory.mktemp("answers")
    loop, ending = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with serving(LocalPages(runs, PageAccess(TOKEN), answers), place, None):
            await ending.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    yield Asking(place.getsockname()[1])
    loop.call_soon_threadsafe(ending.set)
    thread.join()


@pytest.fixture
def reader(stranger: Asking) -> Asking:
    """Who came by the address with the token."""
    let_in = Asking(stranger.port)
    let_in.cookie = stranger.get(f"/?token={TOKEN}").cookie
    return let_in


def document_of(page: Answer) -> dict[str, Any]:
    begin = page.text.index('id="document">') + len('id="document">')
    return json.loads(page.text[begin : page.text.index("</script>", begin)])


def test_only_who_has_the_address_with_the_token_is_let_in(stranger: Asking) -> None:
    assert stranger.get("/").status == 401
    assert stranger.get(f"/runs/{FIRST}?token=guessed-guessed-guessed").status == 401
    let_in = stranger.get(f"/runs/{FIRST}?token={TOKEN}")
    assert (let_in.status, let_in.headers["Location"]) == (303, f"/runs/{FIRST}")
    assert "HttpOnly" in let_in.headers["Set-Cookie"]


def test_runs_are_listed_with_a_comparison_one_click_away(reader: Asking) -> None:
    page = reader.get("/").text
    assert page.index(LIVE) < page.index(SECOND) < page.index(FIRST)
    assert f'href="/compare?against={FIRST}&amp;run={SECOND}"' in page
    assert "in progress" in page


def test_a_run_in_progress_is_its_report_which_asks_again(reader: Asking) -> None:
    page = reader.get(f"/runs/{LIVE}")
    assert 'data-live="yes"' in page.text
    assert "● running" in page.text
    assert "connect-src 'self'" in page.headers["Content-Security-Policy"]
    assert document_of(page)["run"]["status"] == "running"


def test_what_a_run_wrote_since_is_on_its_page(reader: Asking, runs: Path) -> None:
    journal = runs / LIVE / "worker-0.jsonl"
    before = document_of(reader.get(f"/runs/{LIVE}"))["run"]["sizes"]
    with journal.open("ab") as file:
        file.write((KEPT / "etcd-v2" / journal.name).read_bytes()[journal.stat().st_size :])
    after = document_of(reader.get(f"/runs/{LIVE}"))["run"]["sizes"]
    assert (len(before) < len(after), after[-1]) == (True, 160)


def test_a_run_that_has_ended_is_its_report_and_asks_for_nothing(reader: Asking) -> None:
    page = reader.get(f"/runs/{SECOND}")
    assert 'data-live="yes"' not in page.text
    assert "✕ thresholds missed" in page.text
    assert reader.get(f"/runs/{SECOND}/report.md").text.startswith("# kept-etcd")


def test_runs_are_compared_and_followed(reader: Asking) -> None:
    assert "Compared runs" in reader.get(f"/compare?against={FIRST}&run={SECOND}").text
    refused = reader.get(f"/compare?against=seed:nothing&run={SECOND}")
    assert (refused.status, "seed:nothing" in refused.text) == (409, True)
    assert reader.get("/trend").status == 200


@pytest.mark.parametrize("path", ["/runs/..", "/runs/%2e%2e%2fetc", "/runs/nosuch", "/runs/nosuch/report.md"])
def test_no_address_leads_out_of_the_directory(reader: Asking, path: str) -> None:
    assert reader.get(path).status == 404
