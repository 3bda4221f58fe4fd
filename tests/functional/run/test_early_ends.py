"""A run that ends before it made anything is soon over and leaves nothing; one whose directory goes ends at once."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_runs import contents, juju_plan
from tests.functional.program import keys, leases, only_run, settings, start, wait_for_hold, write_plan
from tests.functional.spawn_runs import ended, going, wait_for
from tippingpoint.plan.claim import CLAIM_OPERATIONS

_SOON_S = 600.0
LONG = [{"leases": 20, "over": "200ms", "hold": "10m"}]


@contextmanager
def silent() -> Iterator[tuple[str, threading.Event]]:
    """A server that accepts connections and says nothing; its address, and when the first was made."""
    asked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return
                asked.set()

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}", asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(_SOON_S)
            for each in kept:
                each.close()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str, float]:
    """What comes of a run that is ended by Ctrl-C, and the seconds that took."""
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=_SOON_S)
    return process.returncode, out, err, time.monotonic() - begun


def expect_nothing(ended: tuple[int, str, str, float], runs: Path) -> None:
    code, out, err, took = ended
    assert (code, out) == (130, ""), err
    assert err == "tippingpoint: ended early on request, before anything was made\n"
    assert [*runs.iterdir()] == []
    print(f"from SIGINT to the exit: {took:.2f} s")


@pytest.mark.parametrize("api", ["v2", "v3"])
def test_interrupted_while_an_etcd_says_nothing(tmp_path: Path, api: str) -> None:
    with silent() as (address, asked):
        process = start(
            "run", write_plan(tmp_path), "--set", f"target.endpoints=[http://{address}]", "--set",
            f"target.api={api}", "--out", tmp_path / "runs",
        )  # fmt: skip
        assert asked.wait(_SOON_S)
        expect_nothing(interrupted(process), tmp_path / "runs")


def test_interrupted_while_a_controller_says_nothing(juju: JujuLab, tmp_path: Path) -> None:
    with silent() as (address, asked):
        credentials = tmp_path / "me.yaml"
        credentials.touch(0o600)
        access = {"addresses": [address], "ca": juju.ca, "user": "admin", "password": "secret"}
        credentials.write_text(yaml.safe_dump(access))
        process = start(
            "run",
            juju_plan(tmp_path),
            "--set",
            f"target.credentials={credentials}",
            "--out",
            tmp_path / "runs",
        )
        assert asked.wait(_SOON_S)
        expect_nothing(interrupted(process), tmp_path / "runs")


@pytest.mark.parametrize("api", ["v2", "v3"])
@pytest.mark.parametrize("hangs", [False, True])
def test_what_a_second_ctrl_c_cuts_is_no_failure_of_the_target(
    etcd_private: EtcdLab, tmp_path: Path, api: str, hangs: bool
) -> None:
    """Given claims under way, at an etcd that answers or for a moment does not, when they are cut, then nothing of ours
    is complained of, and no claim has failed."""
    stages = [{"leases": 4000, "over": "4s", "hold": "10m"}]
    workload = {"units": 1, "claim_time": "30s", "renew_time": "1s"}
    process = start(
        "run", write_plan(tmp_path, stages=stages, workload=workload), *settings(etcd_private),
        "--set", f"target.api={api}", "--out", tmp_path / "runs",
    )  # fmt: skip
    with going(process):
        wait_for(tmp_path / "runs", process, "tick", 4)
        if hangs:
            for name in etcd_private.names:
                etcd_private.stop(name)
        process.send_signal(signal.SIGINT)
        wait_for(tmp_path / "runs", process, "interrupted")
        process.send_signal(signal.SIGINT)
        done = ended(process)
    said = done.stdout + done.stderr
    assert done.returncode == 4, said
    assert not [line for line in said.splitlines() if "RuntimeError" in line or "never retrieved" in line]
    assert not [line for line in said.splitlines() if "exception in callback" in line.lower()]
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "interrupted"
    assert [stage.failures(operation) for stage in measured.stages for operation in CLAIM_OPERATIONS] == [
        0
    ] * len(CLAIM_OPERATIONS)
    assert [event for event in measured.events if event["event"] == "error"] == []


@pytest.mark.parametrize("target", ["etcd", "juju"])
def test_a_run_whose_directory_is_removed_ends_at_once(
    request: pytest.FixtureRequest, tmp_path: Path, target: str
) -> None:
    """Given a run that holds its load for minutes, when somebody removes its directory, then it ends with one line, and
    what it made is gone."""
    lab: EtcdLab | JujuLab = request.getfixturevalue(target)
    there: Callable[[], object]
    if isinstance(lab, EtcdLab):
        plan = write_plan(tmp_path, stages=LONG)
        more = ["--set", f"target.endpoints={yaml.safe_dump(lab.endpoints, default_flow_style=True).strip()}"]
        environment: dict[str, str] = {}

        def there() -> object:
            return keys(lab.endpoints[0]), leases(lab.endpoints[0])
    else:
        plan, more, environment = juju_plan(tmp_path, stages=LONG), [], lab.environment

        def there() -> object:
            return contents(lab)

    before = there()
    process = start("run", plan, *more, "--out", tmp_path / "runs", **environment)
    directory = wait_for_hold(tmp_path / "runs")
    assert there() != before
    begun = time.monotonic()
    shutil.rmtree(directory)
    out, err = process.communicate(timeout=_SOON_S)
    print(f"from the removal to the exit: {time.monotonic() - begun:.2f} s")
    assert (process.returncode, out) == (2, ""), err
    (line,) = [line for line in err.splitlines() if line.startswith("tippingpoint: ")]
    assert line.startswith("tippingpoint: --out: /")
    assert line.endswith(": expected the run's directory to exist until the run ends (it is gone)")
    assert "left behind" not in err
    assert "Traceback" not in err
    assert not directory.exists()
    assert there() == before
