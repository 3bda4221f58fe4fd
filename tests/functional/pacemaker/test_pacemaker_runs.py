"""Whole runs of the claim workload on a real Pacemaker, through the command line: what they leave, and survive."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control import LabError
from lab.pacemaker.cluster import PacemakerLab
from tests.functional.program import (
    WITHIN_S,
    no_traceback,
    only_run,
    run,
    start,
    until,
    wait_for_hold,
    write_plan,
)
from tests.functional.spawn_runs import crash
from tests.functional.standstills import await_ticks
from tippingpoint.analysis.analyse import analyse
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.worker_journal import read_worker_events, worker_names
from tippingpoint.targets.pacemaker.stores import STORES

LONG = [{"leases": 20, "over": "200ms", "hold": "20m"}]
_HELD = re.compile(r'<(?:ticket_state id|nvpair id="[^"]*" name)="(tp[^"]*)" (?:held|value)="(\d+):\d+"')
"""A lease and its holder, in either store."""
_VERSIONS = re.compile(
    r' (?:epoch|num_updates|cib-last-written|update-\w+|dc-uuid|crm-debug-origin|last-rc-change)="[^"]*"'
)


def settings(lab: PacemakerLab) -> list[str]:
    return [word for setting in lab.settings() for word in ("--set", setting)]


def plan_of(directory: Path, **changes: Any) -> Path:
    workload = {"units": 2, "claim_time": "60s", "renew_time": "500ms", "timeout": "20s"}
    return write_plan(directory, **{"target": {"kind": "pacemaker"}, "workload": workload, **changes})


def configured(lab: PacemakerLab) -> str:
    """The CIB without its versions, and without the nodes' states, which change by themselves."""
    cib = _VERSIONS.sub("", lab.cib())
    return re.sub(r"<node_state .*</node_state>", "", cib, flags=re.DOTALL)


def told(measured: RunData, event: str) -> list[dict[str, Any]]:
    return [dict(found) for found in measured.events if found["event"] == event]


def ended(process: Any, how: signal.Signals = signal.SIGINT) -> tuple[str, str]:
    """End a run as its user does, and return what it printed."""
    process.send_signal(how)
    return process.communicate(timeout=WITHIN_S)


@pytest.mark.parametrize("store", ["ticket", "config"])
def test_a_run_claims_extends_reads_back_and_leaves_the_cib_as_it_was(
    pacemaker: PacemakerLab, tmp_path: Path, store: str
) -> None:
    # given a quick plan of 20 leases of 2 units, held for longer than a machine stands still
    before = configured(pacemaker)
    workload = {"units": 2, "claim_time": "60s", "renew_time": "2s", "timeout": "20s"}
    plan = plan_of(tmp_path, workload=workload, stages=[{"leases": 20, "over": "200ms", "hold": "15s"}])
    # when it is run
    done = run(
        "run", plan, *settings(pacemaker), "--set", f"target.store={store}", "--out", tmp_path / "runs"
    )
    # then every lease was claimed by one unit, denied to the other, renewed, and seen on the other nodes
    assert done.returncode == 0, done.stdout + done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "complete"
    assert measured.manifest.target.version == "2.1.5"
    (stage,) = measured.stages
    assert stage.count("claim") == 20
    assert stage.count("claim", "denied") == 20
    assert stage.count("extend") >= 60
    assert stage.count("visible") >= 1
    assert stage.response("visible").percentile(50) >= 1
    assert stage.failures("extend") == stage.failures("visible") == 0
    # and the report says what TLS was worth, and the CIB is as it was
    assert "TLS is anonymous" in (measured.directory / "report.html").read_text()
    assert configured(pacemaker) == before


@pytest.mark.parametrize("name", STORES)
def test_leases_that_are_freed_change_hands_by_the_notification_alone(
    pacemaker: PacemakerLab, tmp_path: Path, name: str
) -> None:
    # given a run that is held, in which no holder extends its lease for a quarter of an hour
    before, store = configured(pacemaker), STORES[name]
    workload = {"units": 2, "claim_time": "20m", "renew_time": "15m", "timeout": "20s"}
    process = start(
        "run",
        plan_of(tmp_path, stages=LONG, workload=workload),
        *settings(pacemaker),
        "--set",
        f"target.store={name}",
        "--out",
        tmp_path / "runs",
    )
    wait_for_hold(tmp_path / "runs")

    def holders() -> dict[str, str]:
        return dict(_HELD.findall(pacemaker.cib()))

    until(lambda: len(holders()) == 20, "all leases")
    first = holders()
    # when an administrator frees all leases
    for lease in first:
        freed = store.create(lease, "")
        pacemaker.run_on("node2", "cibadmin", "--modify", "--scope", store.section, "--xml-text", freed)
    # then the units that waited have them
    until(lambda: holders() == {lease: "10"[int(holder)] for lease, holder in first.items()}, "other holders")
    printed = ended(process)
    assert no_traceback(*printed)
    (stage,) = only_run(tmp_path / "runs").stages
    assert stage.count("claim") == 40
    assert stage.failures("claim") == 0
    assert configured(pacemaker) == before


def test_after_a_crash_clean_removes_what_was_made(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    # given a run that is killed with its workers
    before = configured(pacemaker)
    process = start("run", plan_of(tmp_path, stages=LONG), *settings(pacemaker), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    crash(process)
    assert pacemaker.cib().count("<ticket_state ") == 20
    # when it is cleaned, twice
    for removed in ("20", "0"):
        done = run("clean", directory)
        assert done.returncode == 0, done.stderr
        assert removed in done.stdout
    # then nothing of it is left
    assert configured(pacemaker) == before


@pytest.mark.parametrize(
    ("changed", "fields", "code", "said"),
    [
        ({}, {"tls": "verified"}, 2, "target.tls: verified, and the credentials have no `ca`"),
        (
            {"password": "wrong-one"},
            {},
            3,
            "refused: expected the password of a user in the cluster's group haclient",
        ),
        ({"addresses": ["127.0.0.1"]}, {}, 3, "127.0.0.1:9898: Connection refused"),
    ],
)
def test_a_run_that_cannot_log_in_ends_with_one_line(
    pacemaker: PacemakerLab,
    tmp_path: Path,
    changed: dict[str, Any],
    fields: dict[str, str],
    code: int,
    said: str,
) -> None:
    # given credentials or a plan that are wrong
    path = tmp_path / "credentials.yaml"
    path.touch(0o600)
    path.write_text(json.dumps(yaml.safe_load(pacemaker.credentials.read_text()) | changed))
    target = {"kind": "pacemaker", "tls": "anonymous", "credentials": str(path), **fields}
    # when it is run
    done = run("run", plan_of(tmp_path, target=target), "--out", tmp_path / "runs")
    # then it says why, and no secret
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert no_traceback(done.stdout, done.stderr)
    assert "wrong-one" not in done.stdout + done.stderr


@pytest.mark.parametrize("fenced", [True, False])
def test_a_killed_dc_is_a_silence_of_known_length_and_no_cliff(
    pacemaker_to_break: PacemakerLab, tmp_path: Path, fenced: bool
) -> None:
    # given a plan that kills the DC, and a cluster that fences it, so that it boots again, or cannot
    lab = pacemaker_to_break
    dc = lab.leader()
    faults = [{"do": "kill", "member": dc, "stage": 1, "at": "2s"}]
    if not fenced:
        faults.insert(0, {"do": "fail-fencing", "member": dc, "stage": 1, "at": "1s"})
    plan = plan_of(
        tmp_path,
        # (spread, so that a write is due at any moment)
        stages=[{"leases": 20, "over": "1s", "hold": "40s"}],
        faults=faults,
        workers=1,
    )
    # when it is run
    done = run("run", plan, *settings(lab), "--out", tmp_path / "runs")
    # then it went on after all writes had stood still until Corosync had a new membership
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "complete"
    formula = lab.membership_s
    longest = max(event["seconds"] for event in told(measured, "silence"))
    waited = measured.stages[0].response("extend").max / 1e6
    assert waited >= 0.9 * formula
    # (the silence is without standstills of the worker, which a busy machine has)
    assert formula / 2 < longest <= 1.05 * waited
    # and the new DC is no cliff, as the fault explains it
    cliff = analyse(measured).tipping.cliff
    assert cliff is None or cliff.by != "leader"
    if fenced:
        lab.await_whole()


def test_a_controller_that_dies_by_itself_is_the_cliff(
    pacemaker_to_break: PacemakerLab, tmp_path: Path
) -> None:
    # given a run that is held while the DC's controller dies, as one that is evicted does
    lab = pacemaker_to_break
    process = start("run", plan_of(tmp_path, stages=LONG), *settings(lab), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    await_ticks(directory, 2)
    before = lab.leader()
    lab.kill_daemon(before, "pacemaker-controld")
    until(lambda: lab.leader() != before, "another DC")
    await_ticks(directory, 4)
    ended(process)
    # then the DC is named, whatever the answers were
    measured = only_run(tmp_path / "runs")
    found = analyse(measured)
    assert found.tipping.cliff is not None
    assert found.tipping.cliff.by == "leader"
    assert found.tipping.cliff.evidence.startswith("the DC changed")
    assert f"without a fault ({before} to " in found.tipping.sentence
    lab.await_whole()


def test_a_cluster_that_restarts_loses_its_tickets_and_gets_them_again(
    pacemaker_to_break: PacemakerLab, tmp_path: Path
) -> None:
    # given a run that is held
    lab = pacemaker_to_break
    process = start("run", plan_of(tmp_path, stages=LONG), *settings(lab), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    await_ticks(directory, 2)
    # when all nodes lose their power, and boot (none that is lost is fenced, and back, before the others are lost)
    lab.fencing_works = False
    for name in lab.names:
        lab.kill(name)
    lab.fencing_works = True
    for name in lab.names:
        with suppress(LabError):  # two that are up may have had it fenced by now, and it is on
            lab.boot(name)
    lab.await_whole()
    # then the status section is gone with all tickets, which is a loss of each, and they are made again
    until(lambda: lab.cib().count("<ticket_state ") == 20, "all tickets")
    await_ticks(directory, 3)
    printed = ended(process)
    assert no_traceback(*printed)
    measured = only_run(tmp_path / "runs")
    (stage,) = measured.stages
    assert stage.count("extend", "lost") >= 20
    assert sum(event["count"] for event in told(measured, "undone")) >= 20
    assert "ticket_state" not in lab.cib()


def test_what_a_minority_acknowledges_is_a_failure_or_a_loss(
    new_pacemaker: Callable[..., PacemakerLab], tmp_path: Path
) -> None:
    # given a cluster without fencing, and a run that is held
    lab = new_pacemaker(3, fence=False, properties={"no-quorum-policy": "ignore"})
    process = start("run", plan_of(tmp_path, stages=LONG), *settings(lab), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    await_ticks(directory, 2)
    # when one node is cut off from the others, and not from us
    lab.split(["node3"])
    alone = f"{lab.address('node3')}:9898"
    until(lambda: was_told(directory, "quorum", alone), "quorum lost")
    await_ticks(directory, 3)
    lab.heal()
    # (the others may take the node for pending for good: docs/how-to/pacemaker.md)
    until(lambda: lab.status("node3").quorum, "quorum again")
    await_ticks(directory, 6)
    printed = ended(process)
    assert no_traceback(*printed)
    # then what it acknowledged meanwhile is not taken for done
    measured = only_run(tmp_path / "runs")
    (stage,) = measured.stages
    refused = sum(
        event["count"] for event in told(measured, "error") if "acknowledged without quorum" in event["error"]
    )
    assert stage.count("extend", "lost") + refused >= 1
    assert sum(event["count"] for event in told(measured, "undone")) == stage.count("extend", "lost")
    assert told(measured, "quorum")[0]["member"] == alone


def was_told(directory: Path, event: str, member: str) -> bool:
    """Whether a run has noticed this about a member."""
    return any(
        found["event"] == event and found.get("member") == member
        for name in worker_names(directory)
        for found in read_worker_events(directory, name, 1.0).events
    )
