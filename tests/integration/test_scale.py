"""A person's first hour with the suite: deploy, run, grow it in mid-run, refresh, lose a machine, remove it all.

The tests are steps, in this order: each goes on where the one before it ended.
"""

from __future__ import annotations

from pathlib import Path

import jubilant
import pytest

from tests.integration.packs import BUNDLE, CHARMS, with_packs
from tests.integration.scene import (
    CLAIMER,
    COLLECTOR,
    DEPLOYED,
    SETTLED,
    act,
    agent_pid,
    give_credentials,
    leader,
    report,
    run_ends,
    settle,
    stages_of,
    start,
    until,
    workload_says,
)
from tests.integration.target import Target

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def long_run() -> dict[str, str]:
    """What the steps of the long run tell each other: its id, and who was lost."""
    return {}


def test_the_bundle_deploys(juju: jubilant.Juju, packs: dict[str, Path], tmp_path: Path) -> None:
    """Given packs, when the bundle is deployed, then every charm is there and says what it needs next."""
    juju.deploy(with_packs(BUNDLE.read_text(), packs, tmp_path / "scale.yaml"))

    juju.wait(
        lambda status: set(status.apps) == set(CHARMS) and jubilant.all_agents_idle(status, *CHARMS),
        error=jubilant.any_error,
        timeout=DEPLOYED,
        delay=5,
    )

    status = juju.status()
    assert status.apps[COLLECTOR].is_active
    assert status.apps[CLAIMER].is_blocked
    assert "credentials" in status.apps[CLAIMER].app_status.message + workload_says(juju, f"{CLAIMER}/0")


def test_with_a_secret_it_is_ready_for_the_controller_it_is_on(juju: jubilant.Juju, target: Target) -> None:
    give_credentials(juju, target, CLAIMER, "container-spawner")

    settle(juju, CLAIMER, COLLECTOR)


def test_a_small_plan_runs_on_one_unit(juju: jubilant.Juju, target: Target) -> None:
    """Given one unit, when a small plan is started, then it is run, judged, and nothing of it is left."""
    run = start(juju, stages_of(4, 8, hold=10))
    until(120, "the status tells of a stage", lambda: "stage" in workload_says(juju, f"{CLAIMER}/0") or None)
    assert target.left_of(run)

    told = run_ends(juju, run, 240)

    assert told["state"] == "over"
    until(60, "a verdict", lambda: act(juju, f"{COLLECTOR}/0", "status").get("verdict"))
    until(60, "the run's models are gone", lambda: not target.left_of(run) or None)


def test_both_charms_report_the_run(juju: jubilant.Juju, tmp_path: Path) -> None:
    told = act(juju, f"{COLLECTOR}/0", "status")

    documents = [report(juju, unit, told["run"], tmp_path) for unit in (f"{COLLECTOR}/0", f"{CLAIMER}/0")]

    for document in documents:
        assert document["run"]["id"] == told["run"]
        assert [stage["size"] for stage in document["stages"]] == [4, 8]
        assert document["verdict"]["outcome"] == told["verdict"]
        for stage in document["stages"]:
            assert stage["held"] == stage["size"]


def test_units_join_in_mid_run(juju: jubilant.Juju, long_run: dict[str, str]) -> None:
    """Given a run on one unit, when two are added, then all three have a share of a later stage."""
    stages = [*stages_of(6, 9, 12, 15, hold=45), *stages_of(18, hold=420)]
    long_run["id"] = start(juju, stages)
    until(120, "it begins", lambda: "stage" in workload_says(juju, f"{CLAIMER}/0") or None)

    juju.add_unit(CLAIMER, num_units=2)

    def three() -> bool | None:
        told = act(juju, f"{COLLECTOR}/0", "status")
        return (told["run"] == long_run["id"] and len(told["units"].splitlines()) == 3) or None

    until(DEPLOYED, "three units have a part in it", three)


def test_a_refresh_in_mid_run_does_not_disturb_it(
    juju: jubilant.Juju, packs: dict[str, Path], long_run: dict[str, str]
) -> None:
    """Given a run, when the charm is refreshed, then the run goes on and the agents are those that began it."""
    units = sorted(juju.status().get_units(CLAIMER))
    began = {unit: agent_pid(juju, unit) for unit in units}

    juju.refresh(CLAIMER, path=packs[CLAIMER])
    juju.refresh(COLLECTOR, path=packs[COLLECTOR])
    settle(juju, CLAIMER, COLLECTOR)

    assert {unit: agent_pid(juju, unit) for unit in units} == began
    told = act(juju, f"{COLLECTOR}/0", "status")
    assert told["run"] == long_run["id"]
    assert told["state"].startswith("stage")


def test_the_share_of_a_lost_machine_is_reported_missing(
    juju: jubilant.Juju, target: Target, long_run: dict[str, str], tmp_path: Path
) -> None:
    """Given three units in the last stage, when the leader's machine dies, then the run ends and says who is lost, and
    the next leader removes what that one made."""
    run = long_run["id"]
    until(300, "the last stage", lambda: "stage 5/5" in workload_says(juju, leader(juju, CLAIMER)) or None)
    lost = long_run["lost"] = leader(juju, CLAIMER)
    juju.exec("systemd-run --on-active=1 systemctl poweroff --force --force", unit=lost)

    told = run_ends(juju, run, 900)

    assert f"{lost}: " in told["units"]
    (line,) = [line for line in told["units"].splitlines() if line.startswith(f"{lost}: ")]
    assert "missing: silent" in line
    document = report(juju, f"{COLLECTOR}/0", run, tmp_path)
    assert document["verdict"]["outcome"] == "withheld"
    assert {unit["name"]: unit["status"] for unit in document["units"]}[lost] == "missing"
    until(240, "the run's models are gone", lambda: not target.left_of(run) or None)


def test_a_run_is_exported_and_opens_elsewhere(juju: jubilant.Juju, long_run: dict[str, str]) -> None:
    results = act(juju, f"{COLLECTOR}/0", "export", {"run": long_run["id"]})

    listed = juju.exec(f"tar tzf {results['path']}", unit=f"{COLLECTOR}/0").stdout.split()

    assert f"{long_run['id']}/manifest.json" in listed


def test_after_all_units_are_gone_the_run_is_still_reported(
    juju: jubilant.Juju, target: Target, long_run: dict[str, str], tmp_path: Path
) -> None:
    """Given a run in mid-stage, when the generators are removed, then nothing of it is left in the target."""
    lost = juju.status().get_units(CLAIMER)[long_run["lost"]].machine
    juju.cli("remove-machine", lost, "--force", "--no-prompt")
    until(
        SETTLED,
        "the lost unit is gone",
        lambda: long_run["lost"] not in juju.status().get_units(CLAIMER) or None,
    )
    run = start(juju, stages_of(6, hold=600))
    until(180, "it begins", lambda: "stage 1" in workload_says(juju, leader(juju, CLAIMER)) or None)

    juju.remove_application(CLAIMER, "container-spawner")
    juju.wait(lambda status: set(status.apps) == {COLLECTOR}, timeout=DEPLOYED, delay=5)

    until(60, "the run's models are gone", lambda: not target.left_of(run) or None)
    document = report(juju, f"{COLLECTOR}/0", long_run["id"], tmp_path)
    assert document["run"]["id"] == long_run["id"]
