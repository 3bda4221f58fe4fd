"""What a person does with the deployed bundle, and how long it may take."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jubilant

from tests.integration.target import Target

T = TypeVar("T")

CLAIMER = "load-claimer"
COLLECTOR = "metrics-collector"
DEPLOYED = 900.0
"""Seconds for machines to come up and charms to be installed on them."""
SETTLED = 300.0
"""Seconds for hooks to have run after something was asked for."""
ACTION = 60.0
"""Seconds for an action, which is what `juju run` waits for when it is not told otherwise."""


def until(seconds: float, what: str, look: Callable[[], T | None]) -> T:
    """What `look` finds, as soon as it finds something; TimeoutError that says what there was not."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(2)


def give_credentials(juju: jubilant.Juju, target: Target, *applications: str) -> None:
    """Tell charms who we are at the controller that they are on, as the README does: by a secret."""
    uri = juju.add_secret("controller-login", dict(target.login()))
    juju.grant_secret("controller-login", list(applications))
    for application in applications:
        juju.config(application, {"target": "juju", "credentials": str(uri)})


def settle(juju: jubilant.Juju, *applications: str, seconds: float = SETTLED) -> jubilant.Status:
    """Wait until all is active and nothing runs; an error state ends the wait at once."""
    return juju.wait(
        lambda status: (
            jubilant.all_active(status, *applications) and jubilant.all_agents_idle(status, *applications)
        ),
        error=jubilant.any_error,
        timeout=seconds,
        delay=2,
    )


def workload_says(juju: jubilant.Juju, unit: str) -> str:
    """The message of a unit's status."""
    units = juju.status().get_units(unit.partition("/")[0])
    return units[unit].workload_status.message if unit in units else ""


def agent_pid(juju: jubilant.Juju, unit: str) -> str:
    """The process of a unit's agent, which is not 0."""
    service = f"tippingpoint-{unit.replace('/', '-')}.service"
    pid = juju.exec(f"systemctl show --property MainPID --value {service}", unit=unit).stdout.strip()
    assert pid not in ("", "0")
    return pid


def leader(juju: jubilant.Juju, application: str) -> str:
    """The name of the application's leader."""
    units = juju.status().get_units(application)
    return next(name for name, unit in units.items() if unit.leader)


def act(
    juju: jubilant.Juju, unit: str, action: str, params: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    """The results of an action."""
    return juju.run(unit, action, dict(params or {}), wait=ACTION).results


def start(juju: jubilant.Juju, stages: Sequence[Mapping[str, Any]]) -> str:
    """Begin the small lease plan with other stages; its run's id. Its thresholds are such as any machine meets."""
    patient = [{"operation": "extend", "p99": "60s", "error_rate": 1, "lost_rate": 1}]
    overrides = [
        f"stages={json.dumps(list(stages))}",
        f"thresholds={json.dumps(patient)}",
        "workload.units=1",
    ]
    params = {"plan": "juju-leases-small", "overrides": "\n".join(overrides)}
    return act(juju, f"{CLAIMER}/leader", "start", params)["run"]


def stages_of(*sizes: int, hold: int) -> list[dict[str, Any]]:
    """Stages of so many leases, each brought up within 2 s and held for so many seconds."""
    return [{"leases": size, "over": "2s", "hold": f"{hold}s"} for size in sizes]


def run_ends(juju: jubilant.Juju, run: str, seconds: float) -> Mapping[str, Any]:
    """The collector's status once it knows the run's end and has judged it."""

    def look() -> Mapping[str, Any] | None:
        told = act(juju, f"{COLLECTOR}/0", "status")
        return told if told.get("run") == run and told["state"].startswith(("over", "stopped")) else None

    return until(seconds, f"{run} ends", look)


def report(juju: jubilant.Juju, unit: str, run: str, place: Path) -> dict[str, Any]:
    """A run's report as JSON, fetched as an action's result says."""
    results = act(juju, unit, "report", {"run": run, "format": "json"})
    path = Path(results["path"])
    name = results["fetch"].split()[4].partition(":")[0]
    found = place / f"{name.replace('/', '-')}-{path.name}"
    # `juju ssh` and `juju scp` want keys in the model; what they would fetch is what everybody there may read.
    task = juju.exec(f"setpriv --reuid=nobody --clear-groups cat {path}", unit=name)
    found.write_text(task.stdout)
    return json.loads(task.stdout)
