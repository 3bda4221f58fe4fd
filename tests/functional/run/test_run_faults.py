"""What a run survives: members, workers, disks and clocks that fail, and a user who has seen enough."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lab.control import ControlServer
from lab.etcd.cluster import EtcdLab
from tests.functional.program import (
    WITHIN_S,
    command,
    etcd_call,
    execute,
    expect_missed,
    keys,
    leases,
    leases_left,
    no_traceback,
    only_run,
    run,
    settings,
    start,
    until,
    wait_for_hold,
    workers_of,
    write_plan,
)
from tests.functional.spawn_runs import crash, ended, going, named, wait_for
from tests.functional.standstills import await_ticks, held_now
from tests.unit.play.two_members import TwoMembers
from tests.unit.report.one_maximum import assert_one_maximum
from tippingpoint.rundir.clock import clock_steps
from tippingpoint.rundir.journal import read_interval_log
from tippingpoint.rundir.results import load_run
from tippingpoint.rundir.worker_journal import read_worker_events, worker_names

LONG = [{"leases": 20, "over": "200ms", "hold": "20m"}]


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_killed_member_costs_no_lease(etcd_private: EtcdLab, tmp_path: Path, api: str) -> None:
    # given a plan that kills the leader in mid-stage and starts it again, and time to catch up with what was due then
    plan = write_plan(
        tmp_path,
        workload={"units": 2, "claim_time": "20s", "renew_time": "500ms", "timeout": "5s"},
        stages=[{"leases": 20, "over": 0, "hold": "25s"}],
        faults=[{"do": "kill", "member": etcd_private.leader(), "stage": 1, "at": "1s", "undo_after": "3s"}],
        thresholds=[{"operation": "extend", "lost_rate": 0}],
    )
    # when it is run
    done = run("run", plan, *settings(etcd_private), "--set", f"target.api={api}", "--out", tmp_path / "runs")
    # then the leases outlive the member, the fault is in the report, and the member is back
    assert done.returncode == 0, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    faults = [(event["do"]) for event in measured.events if event["event"] == "fault"]
    assert faults == ["kill", "start"]
    assert measured.stages[0].count("extend", "lost") == 0
    assert measured.stages[0].count("extend") > 100
    assert len(etcd_private.pids) == 3
    assert leases_left(etcd_private) == []


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_quorum_lost_and_back_is_recorded_and_survived(
    etcd_private: EtcdLab, tmp_path: Path, api: str
) -> None:
    # given a plan that kills two of three members for longer than a claim lasts
    plan = write_plan(
        tmp_path,
        workload={"units": 2, "claim_time": "3s", "renew_time": "500ms", "timeout": "2s"},
        stages=LONG,
        faults=[
            {"do": "kill", "member": member, "stage": 1, "at": "2s", "undo_after": "6s"}
            for member in ("m1", "m2")
        ],
        thresholds=[{"operation": "extend", "error_rate": 0.01, "lost_rate": 0}],
    )
    # when it is run until they are back, and all leases are held again
    process = start(
        "run", plan, *settings(etcd_private), "--set", f"target.api={api}", "--out", tmp_path / "runs"
    )
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "fault", 2, do="start")

        def extended() -> int:
            return load_run(directory).stages[0].count("extend")

        before = extended()
        until(lambda: extended() >= before + 20 and held_now(directory) == 20, "all are held", every=0.5)
        process.send_signal(signal.SIGINT)
        done = ended(process)
    # then failures are counted, and the thresholds are missed
    measured = only_run(tmp_path / "runs")
    expect_missed(done, measured, "extend", "error_rate")
    assert measured.manifest.status == "interrupted"
    assert measured.stages[0].failures("extend") > 0
    # and nothing is left
    assert not [key for key in keys(etcd_private.endpoints[0]) if measured.manifest.id in key]


def test_a_fault_that_takes_the_lab_long_is_over_before_the_next_stage_begins(
    etcd: EtcdLab, tmp_path: Path
) -> None:
    # given a lab that takes longer for a kill than a hold lasts
    class Slow(TwoMembers):
        def kill(self, name: str) -> None:
            time.sleep(3)
            super().kill(name)

    stage = {"leases": 4, "over": 0, "hold": "500ms"}
    plan = write_plan(
        tmp_path,
        stages=[stage, {**stage, "leases": 5}],
        faults=[{"do": "kill", "member": "b", "stage": 1}],
        lab=str(tmp_path / "lab.sock"),
    )
    # when it is run
    with ControlServer(Slow(), tmp_path / "lab.sock"):
        run("run", plan, *settings(etcd), "--set", f"lab={tmp_path / 'lab.sock'}", "--out", tmp_path / "runs")
    # then the member has died before the second stage began
    measured = only_run(tmp_path / "runs")
    died = next(event["t"] for event in measured.events if event["event"] == "fault")
    assert measured.stages[0].begin + 3 < died <= measured.stages[1].begin


def test_a_target_that_stands_still_costs_the_same_in_tables_charts_and_thresholds(
    etcd_private: EtcdLab, tmp_path: Path
) -> None:
    # given a plan that stops all members for longer than an extension is waited for, and than leases last
    members = sorted(etcd_private.pids)
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "3s", "renew_time": "250ms", "timeout": "1s"},
        stages=[{"leases": 20, "over": 0, "hold": "12s"}],
        faults=[
            {"do": "stop", "member": member, "stage": 1, "at": "3s", "undo_after": "5s"} for member in members
        ],
        thresholds=[{"operation": "extend", "max": "500ms"}],
    )
    # when it is run
    done = run("run", plan, *settings(etcd_private), "--out", tmp_path / "runs")
    # then what was lost or had no answer stands in the tables and on the charts at what it cost
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    (stage,) = measured.stages
    assert stage.failures("extend") > 0
    told = assert_one_maximum(measured, "extend")
    extend = told["stages"][0]["operations"]["extend"]
    assert extend["cost"]["max"] >= 1_000_000
    assert extend["cost"]["mean"] > extend["response"]["mean"]
    assert "extend, successes alone" in (measured.directory / "report.html").read_text()
    # and the Markdown says when: while the members stood still
    said = run("report", measured.directory).stdout.split("## Events")[1].split("\n## ")[0]
    assert all(f"| stop {member} | 1 |" in said for member in members)
    assert re.search(r"^\| extend (lost|timeout) \|", said, re.MULTILINE)


def test_a_worker_killed_in_mid_stage_loses_at_most_one_interval(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run that is held
    process = start("run", write_plan(tmp_path, stages=[{"leases": 20, "over": 0, "hold": "20s"}]),
                    *settings(etcd), "--out", tmp_path / "runs")  # fmt: skip
    directory = wait_for_hold(tmp_path / "runs")
    await_ticks(directory, 4)
    # when one of its two workers is killed
    victim = workers_of(process.pid)[0]
    closed = {
        name: read_worker_events(directory, name, 1.0).ticks[-1]["t"] for name in worker_names(directory)
    }
    os.kill(victim, signal.SIGKILL)
    out, err = process.communicate(timeout=WITHIN_S)
    # then the run goes on without its share, says so, and withholds the verdict
    assert process.returncode == 4, out + err
    assert no_traceback(out, err)
    measured = load_run(directory)
    assert measured.manifest.status == "cut"
    assert sorted(worker.status for worker in measured.manifest.workers) == ["complete", "cut"]
    (event,) = [event for event in measured.events if event["event"] == "worker-cut"]
    # (of what it had told of, nothing is lost: intervals are closed once a second, where nothing stands still)
    log = read_interval_log(directory / f"worker-{event['worker']}.hlog")
    assert log.begins[-1] + log.lengths[-1] >= closed[event["worker"]] - 0.002
    # and its report can be read, and its leases are gone
    assert "cut" in run("report", directory).stdout
    assert leases_left(etcd) == []


AN_HOUR_S = 3600.0
"""Longer than anything here takes on any machine, and far shorter than the step of a clock."""


def begun(process: subprocess.Popen[str]) -> bool:
    """Whether a program has come to its first line: then a Ctrl-C is not answered by Python any more, with a traceback.
    To be asked from its start on."""
    caught = False
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        signals = int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16)  # type: ignore[index]
        if caught and not signals >> (signal.SIGINT - 1) & 1:
            return True
        if signals >> (signal.SIGTERM - 1) & 1:  # which only a run does: it got further between two looks
            return True
        caught = bool(signals >> (signal.SIGINT - 1) & 1)
        time.sleep(0.002)
    return False


@pytest.mark.parametrize("delay", [0, 0.4, 0.8, 1.2, 2.0])
def test_ctrl_c_at_any_time_ends_in_order(etcd: EtcdLab, tmp_path: Path, delay: float) -> None:
    # given a run that was started a moment ago
    out = tmp_path / "runs"
    # (executed, as it is also interrupted while Python imports it)
    process = execute("run", write_plan(tmp_path, stages=LONG), *settings(etcd), "--out", out)
    assert begun(process)
    time.sleep(delay)
    # when the user has seen enough
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=WITHIN_S)
    # then it ends without a traceback, and what it began is reported and given back; before that there is no run
    assert no_traceback(said, err), err
    if process.returncode in (-signal.SIGINT, 130):
        assert not out.exists() or not any(out.iterdir())
    else:
        measured = only_run(out)
        assert measured.manifest.status == "interrupted"
        assert (measured.directory / "report.html").exists()
    assert leases_left(etcd) == []


def test_ctrl_c_in_a_stage_keeps_what_was_measured(etcd: EtcdLab, tmp_path: Path) -> None:
    process = start("run", write_plan(tmp_path, stages=LONG), *settings(etcd), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    await_ticks(directory, 6)  # three seconds of two workers
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=WITHIN_S)
    assert no_traceback(said, err)
    measured = load_run(directory)
    assert measured.manifest.status == "interrupted"
    assert measured.stages[0].count("claim") == 20
    assert measured.stages[0].count("extend") >= 20
    assert "report.html" in said


def test_a_second_ctrl_c_leaves_the_leases_to_expire(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run of leases that last, on a target that has stopped answering
    process = start("run", write_plan(tmp_path, stages=LONG), *settings(etcd), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    for member in etcd.names:
        etcd.stop(member)
    try:
        # when the user is in a hurry
        process.send_signal(signal.SIGINT)
        until(lambda: named(directory, "interrupted"), "it heard of that")
        process.send_signal(signal.SIGINT)
        said, err = process.communicate(timeout=WITHIN_S)
    finally:
        for member in etcd.names:
            etcd.resume(member)
    # then it ends without waiting for the target, and says what is left and how to remove it
    assert no_traceback(said, err)
    assert f"tippingpoint clean {directory}" in err
    measured = load_run(directory)
    assert measured.manifest.status == "interrupted"
    (left,) = [event for event in measured.events if event["event"] in ("left-behind", "left-to-expire")]
    assert left["problem"] == "removal stopped on request"
    assert run("clean", directory).returncode == 0
    assert leases_left(etcd) == []


def test_a_worker_that_is_stopped_does_not_hang_the_run(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a worker that will never answer again
    process = start("run", write_plan(tmp_path, stages=LONG), *settings(etcd), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    victim = workers_of(process.pid)[0]
    os.kill(victim, signal.SIGSTOP)
    # when the user ends the run
    process.send_signal(signal.SIGINT)
    said, err = process.communicate(timeout=WITHIN_S)
    # then the worker is ended too, and what it held is given back
    assert no_traceback(said, err)
    assert not Path(f"/proc/{victim}").exists()
    assert load_run(directory).manifest.status == "interrupted"
    assert leases_left(etcd) == []


def test_a_full_disk_everywhere_still_ends_with_what_fitted(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a disk that is full after a few seconds, temporary files included
    disk = tmp_path / "disk"
    disk.mkdir()
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": 0, "hold": "8s"}])
    kept = tmp_path / "kept"
    script = f'mount -t tmpfs -o size=28k tippingpoint-test {disk} && "$@"; code=$?; cp -r {disk} {kept}; exit $code'
    user = [] if os.geteuid() == 0 else ["-U", "-r"]
    # when a run writes there
    done = subprocess.run(
        ["unshare", "-m", *user, "sh", "-c", script, "sh", *command("run", plan, *settings(etcd), "--out", disk)],
        capture_output=True, text=True, timeout=WITHIN_S, check=False, env={**os.environ, "TMPDIR": str(disk)},
    )  # fmt: skip
    # then it ends in order, and says so
    assert no_traceback(done.stdout, done.stderr), done.stderr
    assert "no room" in done.stdout
    assert only_run(kept).stages[0].count("claim") == 20


def test_after_a_crash_clean_removes_exactly_what_was_made(etcd: EtcdLab, tmp_path: Path) -> None:
    # given other people's keys, and a run killed with its workers while it holds leases
    etcd_call(etcd.endpoints[0], "/v3/kv/put", {"key": "L3RpcHBpbmdwb2ludC9vdGhlcg==", "value": "eA=="})
    others = keys(etcd.endpoints[0])
    slow = {"units": 2, "claim_time": "10m", "renew_time": "1s", "timeout": "3s"}
    process = start(
        "run", write_plan(tmp_path, stages=LONG, workload=slow), *settings(etcd), "--out", tmp_path / "runs"
    )
    directory = wait_for_hold(tmp_path / "runs")
    crash(process)
    assert len(leases(etcd.endpoints[0])) >= 20
    # when it is cleaned
    done = run("clean", directory)
    # then all of its leases and keys are gone and the others' keys are there
    assert done.returncode == 0, done.stderr
    assert leases_left(etcd) == []
    assert "/tippingpoint/other" in others
    assert keys(etcd.endpoints[0]) == others
    etcd_call(etcd.endpoints[0], "/v3/kv/deleterange", {"key": "L3RpcHBpbmdwb2ludC9vdGhlcg=="})
    # and what was measured until then can be reported
    measured = load_run(directory)
    assert measured.manifest.status == "cut"
    assert measured.stages[0].count("claim") == 20


def test_workers_whose_runner_is_gone_release_and_end(etcd: EtcdLab, tmp_path: Path) -> None:
    process = start("run", write_plan(tmp_path, stages=LONG), *settings(etcd), "--out", tmp_path / "runs")
    wait_for_hold(tmp_path / "runs")
    workers = workers_of(process.pid)
    process.kill()
    process.communicate(timeout=WITHIN_S)
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    assert leases_left(etcd) == []


def test_a_full_disk_loses_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a disk with room for the first seconds of a run
    disk = tmp_path / "disk"
    disk.mkdir()
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": 0, "hold": "8s"}])
    rescue = tmp_path / "elsewhere"
    rescue.mkdir()
    mount = f'mount -t tmpfs -o size=28k tippingpoint-test {disk} && exec "$@"'
    user = [] if os.geteuid() == 0 else ["-U", "-r"]
    # when the run writes its journal there (in a mount namespace of its own, which ends with it)
    done = subprocess.run(
        ["unshare", "-m", *user, "sh", "-c", mount, "sh",
         *command("run", plan, *settings(etcd), "--out", disk)],
        capture_output=True, text=True, timeout=WITHIN_S, check=False, env={**os.environ, "TMPDIR": str(rescue)},
    )  # fmt: skip
    # then the run goes on to its end, and the whole of it is where there is room
    assert done.returncode == 0, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    assert "disk is full" in done.stderr
    assert "no disk space left" in done.stdout
    measured = only_run(rescue)
    assert measured.stages[0].count("claim") == 20
    assert measured.stages[0].count("extend") >= 20 * 2 * 4  # half of what is due, on a machine that is late
    assert measured.gauges.t.size >= 4
    assert measured.notes == []


def test_a_clock_step_moves_nothing(etcd: EtcdLab, tmp_path: Path, faketime: Path) -> None:
    # given a run whose wall clock is a day ahead
    offset = tmp_path / "offset"
    offset.write_text("+1d\n")
    process = execute(
        "run",
        write_plan(tmp_path, stages=[{"leases": 20, "over": 0, "hold": "12s"}]),
        *settings(etcd),
        "--out",
        tmp_path / "runs",
        LD_PRELOAD=str(faketime),
        FAKETIME_TIMESTAMP_FILE=str(offset),
        FAKETIME_NO_CACHE="1",
        FAKETIME_DONT_FAKE_MONOTONIC="1",
    )
    directory = wait_for_hold(tmp_path / "runs")
    # when it steps back by two days
    offset.write_text("-1d\n")
    out, err = process.communicate(timeout=WITHIN_S)
    # then neither the run nor an operation takes days
    assert process.returncode == 0, out + err
    measured = load_run(directory)
    (stage,) = measured.stages
    assert stage.hold_begin is not None
    assert stage.end is not None
    assert 11 < stage.end - stage.hold_begin < AN_HOUR_S
    assert stage.response("extend").max < AN_HOUR_S * 1e6
    assert stage.count("extend") >= 20
    # and the step did happen
    (step,) = clock_steps(measured.events)
    assert step.seconds == pytest.approx(-2 * 86_400, abs=AN_HOUR_S)
    assert measured.manifest.ended is not None
    assert 11 < measured.manifest.ended - measured.manifest.started < AN_HOUR_S


def test_an_unreachable_target_is_one_line_and_leaves_no_directory(tmp_path: Path) -> None:
    done = run(
        "run",
        write_plan(tmp_path),
        "--set",
        "target.endpoints=[http://127.0.0.1:1]",
        "--out",
        tmp_path / "runs",
    )
    assert done.returncode == 3
    assert re.fullmatch(r"tippingpoint: .*127\.0\.0\.1:1.*\n", done.stderr), done.stderr
    assert [*(tmp_path / "runs").iterdir()] == []


def test_a_wrong_authority_is_one_line(new_etcd, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    # given a cluster with TLS, and another cluster's authority
    lab: EtcdLab = new_etcd(members=1, tls=True)
    other: EtcdLab = new_etcd(members=1, tls=True)
    assert lab.ca is not None
    # when the plan names the wrong one
    wrong = [part for part in settings(lab) if not part.startswith("target.ca=")]
    wrong = [
        part
        for i, part in enumerate(wrong)
        if not (part == "--set" and (i + 1 == len(wrong) or wrong[i + 1] == "--set"))
    ]
    done = run(
        "run", write_plan(tmp_path), *wrong, "--set", f"target.ca={other.ca}", "--out", tmp_path / "runs"
    )
    # then it is refused in one line, before any load
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stderr.count("\n") == 1
    assert "target.ca" in done.stderr
    # and with the right one the same plan runs
    assert run("run", write_plan(tmp_path), *settings(lab), "--out", tmp_path / "right").returncode == 0


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("workload.renew_time=2m", "renew_time"),
        ("stages=[]", "stages"),
        ("stagse=1", "did you mean stages?"),
        ("workload.units=many", "workload.units"),
        ("faults=[{do: kill, member: m1}]", "lab"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, override: str, said: str) -> None:
    done = run("run", write_plan(tmp_path), "--set", override, "--out", tmp_path / "runs")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_output_directory_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("run", write_plan(tmp_path), "--out", tmp_path / "file")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    shutil.rmtree(tmp_path, ignore_errors=True)
