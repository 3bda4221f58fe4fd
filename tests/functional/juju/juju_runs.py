"""Runs on a simulated Juju controller: the program as a user runs it, and what the controller's administrator sees."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from lab.juju.client import WireClient
from lab.juju.simulator import JujuLab
from tests.functional.program import WITHIN_S, no_traceback, start, write_plan
from tippingpoint.rundir.worker_journal import read_worker_events, worker_names
from tippingpoint.targets.juju.api.access import from_store
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.model import HollowMachineSpec, ModelAdmin
from tippingpoint.targets.juju.hollow import make_model

T = TypeVar("T")

CHECKOUT = str(Path(__file__).parents[2])
LEASES = 10
UNITS = 2
SHORT: dict[str, Any] = {
    "target": {"kind": "juju"},
    "workload": {"units": UNITS, "claim_time": "60s", "renew_time": "1s", "timeout": "30s"},
    "stages": [{"leases": LEASES, "over": "200ms", "hold": "2s"}],
}
LONG = [{"leases": LEASES, "over": "200ms", "hold": "20m"}]
MODEL_OF_OURS = "tippingpoint-tp"
Contents = dict[str, tuple[dict[str, int], list[str]]]


def juju_plan(directory: Path, **changes: Any) -> Path:
    """A short plan for a Juju controller with top-level fields replaced, as a file."""
    return write_plan(directory, **{**SHORT, **changes})


def start_on(lab: JujuLab, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start the program where the lab is the juju client's current controller."""
    return start(*arguments, **lab.environment)


def ended(process: subprocess.Popen[str], lab: JujuLab) -> subprocess.CompletedProcess[str]:
    """The end of a program, which shows neither a traceback nor the user's password."""
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
    """How many leases were held when a run's load ended: its workers' last ticks come after they gave them back."""
    total = 0.0
    for name in worker_names(directory):
        said = read_worker_events(directory, name, bin_seconds=1.0)
        (drained,) = [mark["t"] for mark in said.marks if mark["phase"] == "drain"]
        total += [tick["held"] for tick in said.ticks if tick["t"] <= drained][-1]
    return total
