"""Whole runs on a simulated Juju controller, through the command line; what a run leaves there: nothing."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tests.functional.program import command, no_traceback, only_run, run, start, wait_for_hold, write_plan
from tests.functional.test_run_faults import workers_of
from tests.functional.wiretap import Wiretap
from tests.lab.juju import JujuLab
from tests.lab.juju_client import WireClient
from tippingpoint.juju.access import from_store
from tippingpoint.juju.client import ApiClient
from tippingpoint.juju.hollow import HollowFleet, application_name, make_model, remove_fleet
from tippingpoint.juju.model import HollowMachineSpec, ModelAdmin
from tippingpoint.results import load_run

T = TypeVar("T")

WITHIN_S = 120
LEASES = 10
UNITS = 2
SHORT: dict[str, Any] = {
    "target": {"kind": "juju"},
    "workload": {"units": UNITS, "claim_time": "5s", "renew_time": "1s", "timeout": "3s"},
    "stages": [{"leases": LEASES, "over": "200ms", "hold": "3s"}],
}
LONG = [{"leases": LEASES, "over": "200ms", "hold": "60s"}]
MODEL_OF_OURS = "tippingpoint-tp"
Contents = dict[str, tuple[dict[str, int], list[str]]]


def juju_plan(directory: Path, **changes: Any) -> Path:
    """A short plan for a Juju controller with top-level fields replaced, as a file."""
    return write_plan(directory, **{**SHORT, **changes})


def start_on(lab: JujuLab, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start the program where the lab is the juju client's current controller."""
    return start(*arguments, **lab.environment)


def ended(process: subprocess.Popen[str], lab: JujuLab) -> subprocess.CompletedProcess[str]:
    """The end of a program, which never shows a traceback or the user's password."""
    try:
        out, err = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
    assert no_traceback(out, err), err
    assert lab.password not in out + err
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def run_on(lab: JujuLab, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the program to its end on the lab."""
    return ended(start_on(lab, *arguments), lab)


def contents(lab: JujuLab) -> Contents:
    """What is on the controller, as its administrator sees it: by model, units of applications, and machines."""
    found: Contents = {}
    with WireClient(lab.addresses[0], lab.ca) as controller:
        controller.login(f"user-{lab.user}", lab.password)
        listed = controller.call("ModelManager", 10, "ListModels", {"tag": f"user-{lab.user}"})
    for entry in listed["response"]["user-models"]:
        with WireClient(lab.addresses[0], lab.ca, entry["model"]["uuid"]) as model:
            model.login(f"user-{lab.user}", lab.password)
            status = model.call("Client", 8, "FullStatus", {"patterns": []})["response"]
        units = {
            name: len(application["units"] or {}) for name, application in status["applications"].items()
        }
        machines = sorted(machine["instance-id"] for machine in status["machines"].values())
        found[entry["model"]["name"]] = (units, machines)
    return found


def as_admin(lab: JujuLab, task: Callable[[ApiClient], Coroutine[Any, Any, T]]) -> T:
    """Do something on the lab's controller with a client of our own."""

    async def bounded() -> T:
        access = from_store(lab.controller, lab.data)
        client = ApiClient(access.addresses, access.ca)
        try:
            async with asyncio.timeout(WITHIN_S):
                return await task(client)
        finally:
            await client.close()

    return asyncio.run(bounded())


def make_theirs(lab: JujuLab, name: str) -> str:
    """A model of somebody else's, with an application and a machine that look a little like ours; its UUID."""
    access = from_store(lab.controller, lab.data)

    async def make(client: ApiClient) -> str:
        model = await make_model(access, name)
        admin = await ModelAdmin.open(client, access, model)
        spec = HollowMachineSpec("manual:tp00000000-0-0", "192.0.2.9")
        (machine,) = await admin.add_machines([spec])
        await admin.deploy(["tp00000000-l0", "postgresql"], 2, machine)
        return model

    return as_admin(lab, make)


def held(directory: Path) -> float:
    """How many leases were held at the end of a run, as its last whole tick says."""
    return float(load_run(directory).gauges.held[-2])


def test_a_run_claims_extends_reports_and_leaves_nothing(juju: JujuLab, tmp_path: Path) -> None:
    # given a controller, and a plan of 10 leases of 2 units each
    before = contents(juju)
    plan = juju_plan(tmp_path)
    # when it is run on the controller by its name
    done = run_on(juju, "run", plan, "--controller", juju.controller, "--out", tmp_path / "runs", "--json")
    # then its thresholds are met, and the report says on what
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"]["outcome"] == "met"
    assert report["run"]["target"]["kind"] == "juju"
    assert report["run"]["target"]["controller"] == juju.controller
    assert report["run"]["target"]["members"] == juju.addresses
    assert "simulator" in report["run"]["target"]["version"]
    assert report["outcomes"] == ["ok", "denied", "lost", "timeout", "error"]
    # and every unit connected once, one of each lease holds it, the others were denied
    (stage,) = report["stages"]
    assert stage["held"] == LEASES
    connect, claim, extend = (stage["operations"][name] for name in ("connect", "claim", "extend"))
    assert (connect["ok"], connect["attempts"]) == (LEASES * UNITS, LEASES * UNITS)
    assert (claim["ok"], claim["denied"]) == (LEASES, LEASES * (UNITS - 1))
    # and each holder extended each second
    assert 2 * LEASES <= extend["ok"] == extend["attempts"] <= 4 * LEASES
    assert 0 < extend["service"]["p50"] <= extend["response"]["max"] < 3_000_000
    # and the making of the fleet was told, is no part of the stage, and was undone
    assert f"preparing passwords: {LEASES * UNITS} of {LEASES * UNITS}" in done.stderr
    measured = only_run(tmp_path / "runs")
    assert measured.notes == []
    (cleaned,) = [event for event in measured.events if event["event"] == "cleaned"]
    machines, model = 2, 1
    assert cleaned["removed"] == LEASES * UNITS + LEASES + machines + model
    assert contents(juju) == before
    assert juju.ask({"do": "counts"})["connections"] == 0


def test_in_a_model_that_is_there_only_what_is_ours_is_removed(juju: JujuLab, tmp_path: Path) -> None:
    # given a model with an application and a machine in it
    make_theirs(juju, "theirs")
    before = contents(juju)
    # when a run makes its units there
    process = start_on(
        juju, "run", juju_plan(tmp_path), "--set", "target.model=theirs", "--out", tmp_path / "runs"
    )
    wait_for_hold(tmp_path / "runs")
    during = contents(juju)
    done = ended(process, juju)
    # then they were there, in that model and no other, and nothing else was touched
    assert done.returncode == 0, done.stdout + done.stderr
    units, machines = during["theirs"]
    assert units.items() >= before["theirs"][0].items()
    assert sorted(units.values()) == [UNITS] * (LEASES + 2)
    assert len(machines) == 1 + 2
    assert {**during, "theirs": before["theirs"]} == before
    assert contents(juju) == before


@pytest.mark.parametrize("made_model", [True, False])
def test_after_a_crash_clean_removes_exactly_what_was_made(
    juju: JujuLab, tmp_path: Path, made_model: bool
) -> None:
    # given somebody else's model, and another run that goes on
    theirs = f"theirs-{made_model}".lower()
    uuid = make_theirs(juju, theirs)
    other = start_on(juju, "run", juju_plan(tmp_path, stages=LONG), "--out", tmp_path / "other")
    wait_for_hold(tmp_path / "other")
    before = contents(juju)
    # and a run that is killed with its workers while it holds leases, its store named relative to where it was
    where = tmp_path / "where"
    shutil.copytree(juju.data, where / "store")
    model = [] if made_model else ["--set", f"target.model={uuid}"]
    out = tmp_path / "runs"
    crashing = subprocess.Popen(
        command("run", juju_plan(tmp_path, stages=LONG), *model, "--out", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=where,
        env={**os.environ, "JUJU_DATA": "store", "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    directory = wait_for_hold(out)
    for pid in [crashing.pid, *workers_of(crashing.pid)]:
        os.kill(pid, signal.SIGKILL)
    crashing.wait(20)
    left = contents(juju)
    assert left != before
    # when it is cleaned, twice, from another directory and without JUJU_DATA
    removed = LEASES * UNITS + LEASES + 2 + made_model
    for count in (removed, 0):
        done = run("clean", directory)
        assert (done.returncode, done.stdout) == (0, f"removed {count}\n"), done.stderr
        # then all of it is gone, and nothing else
        assert contents(juju) == before
    # and what was measured until then can be reported
    assert load_run(directory).manifest.status == "cut"
    assert load_run(directory).stages[0].count("claim") == LEASES
    # and the other run goes on, holding what it held, and cannot be cleaned meanwhile
    assert held(wait_for_hold(tmp_path / "other")) == LEASES
    refused = run("clean", wait_for_hold(tmp_path / "other"))
    assert refused.returncode == 2
    assert "still running" in refused.stderr
    other.send_signal(signal.SIGINT)
    said = ended(other, juju)
    assert only_run(tmp_path / "other").stages[0].failures("extend") == 0, said.stderr
