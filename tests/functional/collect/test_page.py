"""The page of collected runs, asked by readers with and without its token, and by those who mean it harm."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.functional.collect.page_server import TOKEN, UNITS, Reader, a_run, collect, digests_of, page_of
from tests.functional.program import WITHIN_S
from tippingpoint.collect.page import server
from tippingpoint.collect.runs import Runs
from tippingpoint.conduct.run_state import Turn, UnitProgress, UnitWord
from tippingpoint.rundir.results import load_run

FIRST, SECOND = (f"2026112{day}-000000-juju-leases-small-1f3a" for day in (1, 2))
LIVE = "20261123-000000-juju-leases-small-1f3a"
PATHS = [
    "/",
    f"/runs/{FIRST}",
    f"/runs/{FIRST}/report.html",
    f"/runs/{FIRST}/export.tar.gz",
    "/compare",
    "/nothing",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("collector")


@pytest.fixture(scope="module")
def runs(place: Path) -> Runs:
    """FIRST had the usual latencies, SECOND was slow, LIVE goes on."""
    runs = Runs(place / "runs")
    for name, claim_ms in ((FIRST, 10.0), (SECOND, 400.0)):
        collect(runs, a_run(name), digests_of(place / "parts", name, claim_ms))
    turn = Turn(number=1, stage=1, kind="ramp", of=2, begin=1_780_000_010.0, lasts=20)
    runs.keep(a_run(LIVE, over=False, turns=[turn]))
    runs.find(FIRST).verdict_file.write_text('{"outcome": "met", "sentence": "All <b>was</b> well."}')
    return runs


@pytest.fixture(scope="module")
def stranger(place: Path, runs: Runs) -> Iterator[Reader]:
    """Somebody who knows no token."""
    with page_of(place / "runs", place / "page") as reader:
        yield reader


@pytest.fixture(scope="module")
def reader(stranger: Reader) -> Reader:
    """A script with the token."""
    return stranger.with_token()


class TestAccess:
    @pytest.mark.parametrize("path", PATHS)
    def test_without_the_token_nothing_is_told(self, stranger: Reader, path: str) -> None:
        answer = stranger.ask(path)

        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert FIRST not in answer.text.replace(f'value="{path}"', "")
        assert "All runs" not in answer.text

    @pytest.mark.parametrize(
        "given", ["Bearer wrong-token-wrong-token", "Basic eDp5", "Bearer", TOKEN, "Bearer \xe9"]
    )
    def test_what_is_not_the_token_lets_nobody_in(self, stranger: Reader, given: str) -> None:
        assert stranger.ask("/", Authorization=given).status == 401

    def test_a_token_in_the_address_lets_nobody_in(self, stranger: Reader) -> None:
        assert stranger.ask(f"/?token={TOKEN}").status == 401

    def test_the_login_form_leads_to_where_one_wanted_to_go(self, stranger: Reader) -> None:
        assert f'name="next" value="/runs/{FIRST}"' in stranger.ask(f"/runs/{FIRST}").text

        answer = stranger.login(there=f"/runs/{FIRST}")

        assert (answer.status, answer.headers["Location"]) == (303, f"/runs/{FIRST}")
        attributes = set(answer.headers["Set-Cookie"].split("; ")[1:])
        assert attributes >= {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"}
        assert TOKEN not in str(answer.headers)
        assert stranger.ask(f"/runs/{FIRST}", Cookie=answer.cookie).status == 200

    @pytest.mark.parametrize(
        "there",
        [
            "https://example.com/",
            "//example.com",
            "/\\example.com",
            "javascript:alert(1)",
            "",
            "/login",
            "/%0aX",
        ],
    )
    def test_a_login_leads_nowhere_else(self, stranger: Reader, there: str) -> None:
        location = stranger.login(there=quote(there)).headers["Location"]

        assert re.fullmatch(r"/(%0A)?X?", location)

    def test_a_wrong_token_in_the_form_is_told(self, stranger: Reader) -> None:
        answer = stranger.login("wrong-token-wrong-token")

        assert answer.status == 401
        assert "Wrong token." in answer.text
        assert "Set-Cookie" not in answer.headers
        assert "wrong-token" not in answer.text

    @pytest.mark.parametrize(
        "mark", ["", "x", "9999999999.", "9999999999.00", "1.é", "9999999999." + "0" * 64]
    )
    def test_a_forged_login_lets_nobody_in(self, stranger: Reader, mark: str) -> None:
        cookie = f"__Host-tippingpoint={quote(mark)}"

        assert stranger.ask("/", Cookie=cookie).status == 401

    def test_a_form_that_is_too_large_or_none_is_refused(self, stranger: Reader) -> None:
        assert stranger.login("x" * 10_000).status == 413
        assert stranger.ask("/login", "POST", "{}", Content_Type="application/json").status == 415

    def test_after_a_logout_the_browser_has_no_login(self, stranger: Reader) -> None:
        answer = stranger.ask("/logout", "POST", Cookie=stranger.login().cookie)

        assert answer.headers["Location"] == "/login"
        assert 'tippingpoint="";' in answer.headers["Set-Cookie"]


class TestRuns:
    def test_runs_are_listed_with_the_newest_first(self, reader: Reader) -> None:
        text = reader.ask("/").text

        assert re.findall(r'data-row="([^"]+)"', text) == [LIVE, SECOND, FIRST]
        assert "juju-leases-small" in text
        assert '<span class="badge">met</span>' in text

    def test_what_others_wrote_is_text_and_no_markup(self, reader: Reader, runs: Runs) -> None:
        told = UnitProgress(stage=1, size=10, held=1, what="<b>leases</b>")
        runs.keep_word(UNITS[1], UnitWord(run=LIVE, phase="up", turn=1, t=1_780_000_090.0, progress=told))
        text = reader.ask(f"/runs/{LIVE}").text

        assert "&lt;b&gt;leases&lt;/b&gt;" in text
        assert "<b>leases" not in text

    def test_a_run_that_goes_on_is_followed(self, reader: Reader, runs: Runs) -> None:
        """When a unit says something new, then the next answer has it."""
        before = reader.ask(f"/runs/{LIVE}").text
        told = UnitProgress(stage=3, stages=5, size=40, held=17, p99_ms=31.0, errors=2)
        runs.keep_word(UNITS[0], UnitWord(run=LIVE, phase="up", turn=3, t=1_780_000_100.0, progress=told))
        after = reader.ask(f"/runs/{LIVE}").text
        holds = told.model_copy(update={"phase": "hold"})
        runs.keep_word(UNITS[0], UnitWord(run=LIVE, phase="up", turn=3, t=1_780_000_101.0, progress=holds))
        later = reader.ask(f"/runs/{LIVE}").text

        assert "nothing heard" in before
        assert "stage 3/5 hold" in later
        assert '<body data-live="yes">' in after
        assert "stage 3/5 ramp" in after
        assert "17 of 40 leases" in after
        assert "31 ms" in after

    def test_a_run_that_is_over_has_its_report_and_is_followed_no_longer(self, reader: Reader) -> None:
        answer = reader.ask(f"/runs/{FIRST}")

        assert "data-live" not in answer.text
        assert answer.text == reader.ask(f"/runs/{FIRST}/report.html").text

    def test_a_run_whose_results_are_still_arriving_shows_those_that_came(
        self, reader: Reader, runs: Runs, place: Path
    ) -> None:
        name = "20261124-000000-juju-leases-small-1f3a"
        collect(runs, a_run(name), dict([next(iter(digests_of(place / "late", name, 10.0).items()))]))

        answer = reader.ask(f"/runs/{name}")

        assert '<body data-live="yes">' in answer.text
        assert "200 leases" in answer.text
        shutil.rmtree(runs.find(name).directory)

    def test_a_run_that_is_not_here_is_not_found(self, reader: Reader) -> None:
        assert reader.ask("/runs/other").status == 404
        assert reader.ask("/runs/other/report.html").status == 404


class TestReports:
    def test_a_report_is_whole_and_may_reach_nothing(self, reader: Reader) -> None:
        answer = reader.ask(f"/runs/{FIRST}/report.html")

        assert answer.status == 200
        assert "<!DOCTYPE html>" in answer.text
        assert answer.headers["Content-Security-Policy"].startswith(
            "sandbox allow-scripts; default-src 'none'"
        )
        assert "script-src 'sha256-" in answer.text

    def test_the_other_formats_are_there(self, reader: Reader) -> None:
        document = json.loads(reader.ask(f"/runs/{FIRST}/report.json").text)

        assert document["run"]["id"] == FIRST
        assert reader.ask(f"/runs/{FIRST}/report.md").headers["Content-Type"] == "text/plain; charset=utf-8"
        assert reader.ask(f"/runs/{FIRST}/report.junit").text.startswith("<?xml")
        assert reader.ask(f"/runs/{FIRST}/report.exe").status == 404

    def test_an_export_is_a_run_for_the_command_line(self, reader: Reader, tmp_path: Path) -> None:
        content = reader.ask(f"/runs/{FIRST}/export.tar.gz").content

        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(tmp_path, filter="data")
        assert [stage.size for stage in load_run(tmp_path / FIRST).stages] == [10, 25, 50, 100, 200]

    def test_runs_are_compared_with_one_of_them(self, reader: Reader) -> None:
        document = json.loads(reader.ask(f"/compare?against={FIRST}&run={SECOND}&format=json").text)

        assert document["kind"] == "comparison"
        assert reader.ask(f"/compare?against=seed:juju-2.5.1&run={FIRST}").status == 200

    def test_repeats_are_compared_with_those_of_another_release(self, reader: Reader) -> None:
        document = json.loads(reader.ask(f"/compare?against={FIRST}&with={SECOND}&format=json").text)

        assert document["outcome"] == "single"

    @pytest.mark.parametrize(
        ("query", "line"),
        [
            ("", "runs: none: expected 2 to 24"),
            (f"against={FIRST}", f"runs: {FIRST}: expected 2 to 24"),
            (f"against={FIRST}&run={FIRST}", f"runs: {FIRST}: expected 2 to 24"),
            (f"against={FIRST}&run={SECOND}&control={FIRST}", f"control: {FIRST}: expected none without"),
            (f"against={FIRST}&run={SECOND}&format=exe", "format: exe: expected html, md or json"),
            (f"against={FIRST}&run={SECOND}&tolerance=nan", "tolerance: nan: expected a number, 0 to 100"),
            (f"against={FIRST}&run=seed:nothing", "nothing"),
        ],
    )
    def test_what_cannot_be_compared_is_told(self, reader: Reader, query: str, line: str) -> None:
        answer = reader.ask(f"/compare?{query}")

        assert answer.status == 409
        assert line in answer.text

    def test_a_run_without_results_has_no_report_yet(self, reader: Reader) -> None:
        answer = reader.ask(f"/runs/{LIVE}/report.html")

        assert answer.status == 409
        assert "a run with a result" in answer.text


class TestHarm:
    @pytest.mark.parametrize("path", [*PATHS, "/login", "/style.css", "/script.js"])
    def test_every_answer_says_what_a_browser_may_do_with_it(self, reader: Reader, path: str) -> None:
        headers = reader.ask(path).headers

        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert (
            "unsafe" not in headers["Content-Security-Policy"]
            or "sandbox" in headers["Content-Security-Policy"]
        )
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Server"] == "tippingpoint"

    @pytest.mark.parametrize("path", ["/x y", f"/{'y' * 9000}", "http://[/"])
    def test_so_does_the_answer_to_what_is_no_request(self, reader: Reader, path: str) -> None:
        with reader.connect() as there:
            there.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = b"".join(iter(lambda: there.recv(65536), b"")).decode()

        assert " 400 " in answer.partition("\r\n")[0]
        told = dict(line.split(": ", 1) for line in answer.partition("\r\n\r\n")[0].split("\r\n")[1:])
        assert "default-src 'none'" in told["Content-Security-Policy"]
        assert told["X-Content-Type-Options"] == "nosniff"
        assert told["Server"] == "tippingpoint"

    def test_pages_load_nothing_from_elsewhere(self, reader: Reader) -> None:
        for path in ("/", "/login"):
            text = reader.ask(path).text
            assert all(
                found.startswith(("/", "data:")) for found in re.findall(r'(?:src|href)="([^"]*)"', text)
            )
            assert "<script>" not in text
            assert "style=" not in text

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE"])
    def test_nothing_can_be_changed(self, reader: Reader, method: str) -> None:
        assert reader.ask(f"/runs/{FIRST}", method).status == 405

    @examples(150)
    @given(
        parts=st.lists(
            st.one_of(
                st.sampled_from(
                    ["..", ".", "", "%2e%2e", "%2f", "..%2f..", "runs", FIRST, "report.html", "etc", "passwd"]
                ),
                st.text(max_size=20).map(lambda text: quote(text, safe="")),
                st.text("%0123456789abcdef./\\", max_size=12),
            ),
            max_size=8,
        ),
        query=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40),
    )
    def test_no_address_leads_out_or_breaks_anything(
        self, reader: Reader, parts: list[str], query: str
    ) -> None:
        answer = reader.ask(f"/{'/'.join(parts)}?{query}")

        assert answer.status in {200, 303, 400, 404, 405, 409}
        assert b"root:" not in answer.content
        assert b"PRIVATE KEY" not in answer.content
        assert b"Traceback" not in answer.content

    @examples(60)
    @given(
        garbage=st.one_of(
            st.binary(min_size=1, max_size=300),
            st.text(max_size=100).map(lambda text: f"GET {text} HTTP/1.1\r\n{text}\r\n\r\n".encode()),
            st.integers(-5, 10**30).map(
                lambda length: f"POST /login HTTP/1.1\r\nContent-Length: {length}\r\n\r\nx".encode()
            ),
        ),
        encrypted=st.booleans(),
    )
    def test_garbage_is_answered_or_hung_up_on(
        self, stranger: Reader, garbage: bytes, encrypted: bool
    ) -> None:
        there = stranger.connect() if encrypted else socket.create_connection((stranger.host, stranger.port))
        with there:
            there.sendall(garbage)

        assert stranger.ask("/login").status == 200

    def test_a_connection_that_asks_for_nothing_is_ended(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "FIRST_WITHIN", 2.0)
        with page_of(place / "runs", place / "page") as stranger:
            for first in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n"):
                # (one that stands still meanwhile is hung up on before it has shaken hands, or has said that)
                with contextlib.suppress(ConnectionError, ssl.SSLError), stranger.connect() as there:
                    there.sendall(first)
                    assert there.recv(1) == b""

    def test_with_too_many_connections_a_silent_one_goes(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "MOST_CONNECTIONS", 5)
        with page_of(place / "runs", place / "page") as stranger:
            others = [stranger.connect() for _ in range(5)]
            assert stranger.ask("/login").status == 200
            assert others[0].recv(1) == b""
            for other in others:
                other.close()


class Program:
    """The page as a process of its own."""

    def __init__(self, place: Path, *arguments: str) -> None:
        self.place = place
        token = place / "token"
        token.write_text(f"{TOKEN}\n")
        token.chmod(0o600)
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tippingpoint.collect.page.server", "--runs", str(place / "runs")),
                *(
                    "--token",
                    str(token),
                    "--state",
                    str(place / "state"),
                    "--listen",
                    "127.0.0.1:0",
                    *arguments,
                ),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Program:
        assert self.process.stdout is not None
        self.url, _, self.fingerprint = self.process.stdout.readline().strip().partition(" ")
        assert self.url.startswith("https://127.0.0.1:")
        self.reader = Reader(int(self.url.rpartition(":")[2]), self.place / "state/page.crt")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def resident(self) -> int:
        """Bytes of its memory that are in use."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class TestProgram:
    def test_it_tells_its_address_and_the_fingerprint_that_it_shows(self, tmp_path: Path) -> None:
        with Program(tmp_path) as program, program.reader.connect() as there:
            shown = there.getpeercert(binary_form=True)
            assert shown is not None
            assert program.fingerprint == hashlib.sha256(shown).digest().hex(":").upper()

    def test_the_pair_it_makes_stays_and_only_its_owner_can_read_it(self, tmp_path: Path) -> None:
        told: list[str] = []
        for _ in range(2):
            with Program(tmp_path, "--name", "collector.example", "--name", "10.1.2.3") as program:
                told.append(program.fingerprint)

        assert told[0] == told[1]
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "state").iterdir()}
        assert modes == {"page.crt": 0o600, "page.key": 0o600}

    def test_the_token_shows_nowhere(self, tmp_path: Path) -> None:
        with Program(tmp_path) as program:
            answers = [
                program.reader.login(),
                program.reader.with_token().ask("/"),
                program.reader.with_token().ask(f"/{'y' * 9000}"),
                program.reader.login(TOKEN + "x"),
            ]
            process = Path(f"/proc/{program.process.pid}")
            exposed = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            program.process.send_signal(signal.SIGTERM)
            assert program.process.stdout is not None
            said = program.process.stdout.read()
            assert program.process.wait(WITHIN_S) == 0

        assert [answer.status for answer in answers] == [303, 200, 400, 401]
        assert not any(TOKEN in str(answer.headers) + answer.text for answer in answers)
        assert TOKEN.encode() not in exposed
        assert said == ""

    def test_a_thousand_idle_connections_do_no_harm(self, tmp_path: Path) -> None:
        with Program(tmp_path) as program:
            context = program.reader.context
            assert program.reader.ask("/login").status == 200
            before, idle = program.resident, list[ssl.SSLSocket]()
            for _ in range(1000):
                plain = socket.create_connection((program.reader.host, program.reader.port))
                idle.append(context.wrap_socket(plain, server_hostname=program.reader.host))
            grown = program.resident - before
            answer = program.reader.with_token().ask("/")
            for each in idle:
                each.close()

        assert answer.status == 200
        assert grown < 200 << 20

    def refused(self, tmp_path: Path, *arguments: str) -> str:
        program = Program(tmp_path, *arguments)
        said, _ = program.process.communicate(timeout=WITHIN_S)
        assert program.process.returncode == 2
        assert said.count("\n") == 1
        return said

    def test_a_token_that_others_can_read_or_guess_is_refused(self, tmp_path: Path) -> None:
        open_to_all, short = tmp_path / "open", tmp_path / "short"
        open_to_all.write_text(TOKEN)
        short.write_text("secret")
        short.chmod(0o600)

        assert "mode 0600" in self.refused(tmp_path, "--token", str(open_to_all))
        assert self.refused(tmp_path, "--token", str(short)) == (
            "tippingpoint: --token: (not shown): expected 16 to 1000 characters of printable ASCII\n"
        )

    def test_a_pair_that_cannot_be_used_is_refused(self, tmp_path: Path) -> None:
        with Program(tmp_path):
            pass
        made = tmp_path / "state"
        (made / "page.key").chmod(0o640)
        pair = ("--certificate", str(made / "page.crt"), "--key", str(made / "page.key"))

        assert "mode 0600" in self.refused(tmp_path, *pair)
        (made / "page.key").chmod(0o600)
        (made / "page.crt").write_text("garbage")
        assert "expected a certificate (PEM) whose key" in self.refused(tmp_path, *pair)
        assert "--certificate and --key, or neither" in self.refused(tmp_path, *pair[:2])

    @pytest.mark.parametrize("address", ["9480", "127.0.0.1:x", "127.0.0.1:99999", "192.0.2.1:9480"])
    def test_an_address_that_cannot_be_had_is_refused(self, tmp_path: Path, address: str) -> None:
        assert f"--listen: {address}: expected " in self.refused(tmp_path, "--listen", address)
