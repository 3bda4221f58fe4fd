"""A run that ends before it made anything is soon over and leaves nothing; one whose directory goes ends at once."""

from __future__ import annotations

import re
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
from tests.functional.program import (
    keys,
    leases,
    leases_left,
    no_traceback,
    only_run,
    run,
    settings,
    settings_without_lab,
    start,
    wait_for_hold,
    write_plan,
)
from tests.functional.spawn_runs import ended, going, wait_for
from tippingpoint.plan.claim import CLAIM_OPERATIONS
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.workloads.load import DRAIN_TIMEOUT

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


def test_a_threshold_with_abort_ends_the_run_when_the_target_hangs(
    etcd_private: EtcdLab, tmp_path: Path
) -> None:
    # given leases that are held for long, on an etcd that hangs soon after
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "10s", "renew_time": "500ms", "timeout": "1s"},
        stages=[{"leases": 20, "over": 0, "hold": "20m"}],
        faults=[{"do": "stop", "member": name, "stage": 1, "at": "2s"} for name in etcd_private.names],
        thresholds=[{"operation": name, "error_rate": 0.5, "abort": True} for name in ("claim", "extend")],
    )
    # when it is run
    done = run("run", plan, *settings(etcd_private), "--out", tmp_path / "runs")
    # then the run has ended long before its hold, the verdict is missed, and one line says why
    assert done.returncode == 1, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "aborted"
    line = re.compile(
        r"^aborted: (?:claim|extend) error rate was [0-9.]+ % \(threshold 50 %, abort\)$", re.MULTILINE
    )
    assert line.search(done.stdout)
    (aborted,) = [event for event in measured.events if event["event"] == "aborted"]
    assert aborted["reason"] == measured.manifest.reason
    assert measured.stages[0].count("extend") > 0


def test_a_search_takes_a_load_away_that_a_threshold_aborts(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a threshold that no load meets, and holds that would last for minutes
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "60s", "renew_time": "200ms", "timeout": "30s"},
        stages=[],
        find={"start": 1, "limit": 1000, "over": 0, "hold": "10m"},
        thresholds=[{"operation": "extend", "p99": "1us", "abort": True}],
    )
    # when it is run
    done = run("run", plan, *settings_without_lab(etcd), "--out", tmp_path / "runs")
    # then its first probe is broken and aborted, no other load is tried, and nothing is left
    assert done.returncode == 1, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "complete"
    (probe,) = probe_events(measured.events)
    assert (probe.size, probe.held, probe.aborted) == (1, False, True)
    assert re.fullmatch(r"aborted: extend p99 was .* \(threshold 1 µs, abort\)", probe.broken[0])
    assert "not even 1 lease passed" in done.stdout
    assert leases_left(etcd) == []


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str, float]:
    """What comes of a run that is ended by Ctrl-C, and the seconds that took."""
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=_SOON_S)
    return process.returncode, out, err, time.monotonic() - begun


def expect_nothing(ended: tuple[int, str, str, float], runs: Path) -> None:
    code, out, err, took = ended
    assert (code, out) == (130, ""), err
    assert err.splitlines() == [
        "stopping; press again to leave everything in place",
        "tippingpoint: ended early on request, before anything was created",
    ]
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
def test_a_second_ctrl_c_cuts_what_is_under_way(etcd_private: EtcdLab, tmp_path: Path, api: str) -> None:
    """Given claims under way, when they are cut, then nothing of ours is complained of, and no claim has failed. (A
    target that falls silent is tried in virtual time.)"""
    stages = [{"leases": 1000, "over": "4s", "hold": "10m"}]
    workload = {"units": 1, "claim_time": "30s", "renew_time": "1s"}
    process = start(
        "run", write_plan(tmp_path, stages=stages, workload=workload), *settings(etcd_private),
        "--set", f"target.api={api}", "--out", tmp_path / "runs",
    )  # fmt: skip
    with going(process):
        wait_for(tmp_path / "runs", process, "tick", 4)
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
    if any(stall.seconds > DRAIN_TIMEOUT for stall in measured.stalls):
        return  # the machine stood still for longer than an answer is waited for at the end: that was over at once
    failures = [stage.failures(operation) for stage in measured.stages for operation in CLAIM_OPERATIONS]
    assert failures == [0] * len(CLAIM_OPERATIONS)
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
