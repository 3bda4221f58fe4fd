"""A collector gathers the resources of a run's target from a Prometheus, and then the run is judged."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lab.recorded import Recorded
from tests.functional.collect.page_server import UNITS, a_run, collect, digests_of
from tests.functional.program import WITHIN_S, until
from tests.unit.made.synthetic import STARTED
from tippingpoint.collect import sandbox
from tippingpoint.collect.runs import Runs, StoredRun
from tippingpoint.errors import UserError
from tippingpoint.rundir.resources import Resources
from tippingpoint.rundir.results import load_run

RUN = "20261121-000000-juju-leases-small-1f3a"
PASSWORD = "correct horse battery staple"
"""It must show nowhere."""


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return digests_of(tmp_path_factory.mktemp("parts"), RUN, 10.0)


@pytest.fixture
def run(tmp_path: Path, digests: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> StoredRun:
    """A run that is over. The engine runs as ourselves: nobody may not read this checkout."""
    monkeypatch.setattr(sandbox, "UNPRIVILEGED", "")
    runs = Runs(tmp_path / "runs")
    collect(runs, a_run(RUN), digests)
    return runs.find(RUN)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """One that scraped a machine while the run was."""
    moments = range(int(STARTED) - 300, int(STARTED) + 600, 15)
    labels = '{job="node",instance="m1:9100",host="m1"}'
    metrics = {
        "up": {labels: [(t, 1.0) for t in moments]},
        "node_load1": {labels: [(t, 2.5) for t in moments]},
    }
    with Recorded(tmp_path_factory.mktemp("prometheus"), metrics) as recorded:
        yield recorded


def concluded(run: StoredRun, **prometheus: str) -> Resources:
    """What is in the run's directory once it is judged."""
    sandbox.conclude(run, prometheus)
    until(lambda: run.verdict is not None)
    assert run.resources is not None
    return Resources.model_validate_json(run.resources)


def test_resources_are_in_the_run_its_report_and_its_export(
    run: StoredRun, prometheus: Recorded, tmp_path: Path
) -> None:
    found = concluded(run, url=prometheus.url)

    load = found.figure("host-load-1")
    assert load is not None
    assert {(series.host, series.values[len(series.values) // 2]) for series in load.series} == {("m1", 2.5)}
    assert stat.S_IMODE(run.resources_file.stat().st_mode) == 0o644
    sandbox.write(tmp_path / "export.tar.gz", sandbox.question("export", [run]), within=WITHIN_S)
    with tarfile.open(tmp_path / "export.tar.gz") as archive:
        archive.extractall(tmp_path / "elsewhere", filter="data")
    assert load_run(tmp_path / "elsewhere" / RUN).resources == found


def test_only_what_is_the_targets_is_taken(run: StoredRun, prometheus: Recorded) -> None:
    assert concluded(run, url=prometheus.url, selector='host="m2"').figures == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://nowhere"])
def test_a_prometheus_that_cannot_be_asked_is_told_and_the_run_is_judged(run: StoredRun, url: str) -> None:
    found = concluded(run, url=url)

    assert found.figures == []
    assert found.missing


def report_of(run: StoredRun, place: Path) -> str:
    """The run's report as text."""
    sandbox.write(place / "report.md", sandbox.question("report", [run], format="md"), within=WITHIN_S)
    return (place / "report.md").read_text()


def engines(module: str, of: Sequence[int]) -> list[int]:
    """The processes of this module of the engine that any `of` these processes has begun. (Tests that run at the same
    time have some, too.)"""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().split(b"\0")
            if line[1:3] == [b"-m", module.encode()] and parent(int(process.name)) in of:
                found.append(int(process.name))
    return found


def parent(pid: int) -> int:
    """The pid of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def gives_way(process: int) -> bool:
    """Whether it would rather be killed than others."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/oom_score_adj").read_text().strip() == "1000"
    return False


def place_of(process: int) -> Path:
    """The directory for temporary files that a process was given."""
    environment = dict(
        line.split(b"=", 1) for line in Path(f"/proc/{process}/environ").read_bytes().split(b"\0") if line
    )
    return Path(environment[b"TMPDIR"].decode())


def laid_down(place: Path) -> bytes:
    """All that is in files of a directory, which has some."""
    files = [path for path in place.rglob("*") if path.is_file()]
    assert files
    return b"".join(path.read_bytes() for path in files)


def send(what: signal.Signals, processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, what)


@pytest.mark.parametrize("mebibytes", [0, 50])
def test_one_that_answers_garbage_or_50_mb_is_told_in_the_report(
    run: StoredRun, tmp_path: Path, mebibytes: int
) -> None:
    # given something in the place of a Prometheus that sends what is no answer
    class Garbage(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"status": "success", "data": {"resultType": "matrix", "result": [')
            for _ in range(mebibytes):
                self.wfile.write(b"[1, " * (1 << 18))

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):  # it was hung up on
                super().handle()

    with ThreadingHTTPServer(("127.0.0.1", 0), Garbage) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            # when the run is over
            found = concluded(run, url=f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
    # then its report is there and says what is missing and why
    assert found.figures == []
    report = report_of(run, tmp_path).partition("## Missing metrics of the target\n")[2]
    lines = report.splitlines()
    assert [why for _, why in found.missing if not any(line.endswith(f": {why}") for line in lines)] == []
    assert all(why.startswith(f"http://127.0.0.1:{server.server_port}: ") for _, why in found.missing)


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_collector_that_is_ended_while_it_gathers_does_it_again(
    run: StoredRun, prometheus: Recorded, tmp_path: Path, ended_by: signal.Signals
) -> None:
    # given one that asks a Prometheus which does not answer, and is ended meanwhile, as on a machine that restarts
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent:
        login = {"username": "reader", "password": "swordfish"}
        sandbox.conclude(run, {"url": f"http://127.0.0.1:{silent.server_port}", **login})
        gathering = partial(engines, "tippingpoint.collect.gather_resources")
        asking = until(
            lambda: [process for process in gathering(gathering([os.getpid()])) if gives_way(process)]
        )
        until(lambda: select.select([silent], [], [], 0)[0])
        place = place_of(asking[0])
        assert b"swordfish" not in laid_down(place)
        send(ended_by, gathering([os.getpid()]))
        until(lambda: not gathering([os.getpid()]))
        # then one that was stopped has left nothing, and the run has a report, without what was not gathered
        if ended_by == signal.SIGTERM:
            assert not list(run.directory.glob(".*"))
            assert not place.exists()
        assert run.resources is None
        assert run.verdict is None
        assert run.id in report_of(run, tmp_path)
        # and what was left of it spoils nothing when it is done again
        found = concluded(run, url=prometheus.url)
        send(signal.SIGKILL, asking)
    assert found.figure("host-load-1") is not None
    assert not list(run.directory.glob(".*"))
    assert not place.exists()


def refusal(path: Path, asked: bytes) -> str:
    """Why a report cannot be written; empty if it was, as nobody came in time to hinder it."""
    try:
        sandbox.write(path, asked, within=WITHIN_S)
    except UserError as problem:
        return str(problem)
    path.unlink()
    return ""


def test_a_renderer_that_is_killed_for_memory_is_told_and_asked_again(
    run: StoredRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a report that is being made, by a process that the kernel would take first, and has laid something down
    over = threading.Event()

    def kill_all() -> None:
        while not over.is_set():
            # (Path.glob would raise for a directory that goes meanwhile)
            if glob.glob("*/*/*", root_dir=meanwhile, include_hidden=True):
                send(signal.SIGKILL, filter(gives_way, engines("tippingpoint.collect", [os.getpid()])))

    with (
        TemporaryDirectory() as meanwhile,
        ThreadPoolExecutor(1) as beside,
        monkeypatch.context() as elsewhere,
    ):
        elsewhere.setattr(tempfile, "tempdir", meanwhile)
        killing = beside.submit(kill_all)
        asked = sandbox.question("report", [run], format="html")
        # then that is told in a line
        try:
            said = until(lambda: refusal(tmp_path / "report.html", asked))
        finally:
            over.set()
        killing.result()
        assert "it was killed: the machine has too little memory for it" in said
        assert not list(Path(meanwhile).iterdir())
    # and there is nothing of it, and the next is made
    assert list(tmp_path.glob("*report*")) == []
    assert run.id in report_of(run, tmp_path)


def test_a_full_disk_costs_what_was_gathered_and_nothing_that_was_there(
    run: StoredRun, prometheus: Recorded, tmp_path: Path
) -> None:
    # given a run on a disk that is full
    place, kept = tmp_path / "small", tmp_path / "kept" / run.id
    place.mkdir()
    script = """
        mount -t tmpfs -o size=1m none "$0" && cp -a "$1" "$0" && { dd if=/dev/zero of="$0/full" bs=4k 2>&- || true; }
        "$2" -m tippingpoint.collect.gather_resources "$0/$(basename "$1")" "" && cp -a "$0/$(basename "$1")" "$3"
    """
    line = ["unshare", "-Urm", "sh", "-c", script, place, run.directory, sys.executable, kept]
    kept.parent.mkdir()
    # when its target's resources are gathered
    asked = json.dumps({"run": run.as_text(), "url": prometheus.url})
    done = subprocess.run(line, input=asked.encode(), capture_output=True, timeout=WITHIN_S)
    # then nothing is broken by it, and it is done when there is room
    assert done.returncode == 0, done.stderr
    before = {path.name: path.read_bytes() for path in run.directory.iterdir()}
    left = {path.name: path.read_bytes() for path in kept.iterdir()}
    assert {name: left[name] for name in before} == before
    assert left.keys() - before.keys() <= {"verdict.json"}
    shutil.copytree(kept, run.directory, dirs_exist_ok=True)
    assert run.verdict is None
    assert concluded(run, url=prometheus.url).figure("host-load-1") is not None


def test_a_login_is_in_nothing_that_is_kept(run: StoredRun, prometheus: Recorded) -> None:
    concluded(run, url=prometheus.url, username="tippingpoint", password=PASSWORD)

    assert not any(PASSWORD in path.read_text() for path in run.directory.iterdir())
    assert {path.name for path in run.directory.iterdir()} == {
        *("run.json", "verdict.json", "resources.json", "course.jsonl"),
        *(f"{unit.replace('/', '-')}.{kind}" for unit in UNITS for kind in ("word.json", "digest")),
    }
