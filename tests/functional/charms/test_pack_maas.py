"""A packed container-spawner on a MAAS lab, without Juju: from a secret to machines of a real libvirt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.maas.simulator import MaasLab
from tests.functional.charms.charm_unit import CharmUnit
from tests.functional.program import WITHIN_S, until
from tests.functional.virsh import virsh

SERVICE = "tippingpoint-container-spawner-0"
CREDENTIALS = f"/var/lib/{SERVICE}/credentials/maas.yaml"


@pytest.fixture
def unit(runnable: tuple[dict[str, Path], Path], tmp_path: Path) -> Iterator[CharmUnit]:
    with CharmUnit(runnable[0]["container-spawner"], runnable[1], tmp_path) as unit:
        yield unit


def is_ready(unit: CharmUnit, lab: MaasLab) -> bool:
    """Whether the unit has logged in to its MAAS: its agent answers hooks once it has started."""
    assert unit.dispatch("hooks/update-status").errors == []
    return unit.state["status"][1].startswith(f"ready: maas (at {lab.url})")


def follow(unit: CharmUnit, run: str) -> None:
    """Dispatch the charm whenever its agent wakes it, as systemd would, until the run is over."""
    wake = f"/run/{SERVICE}/wake"

    def is_over() -> bool:
        if unit.run("rm", wake).returncode != 0:
            return False
        done = unit.dispatch("hooks/agent_changed")
        assert (done.code, done.errors) == (0, []), done.said
        (bag,) = (bag for bag in unit.state["bags"].values() if "run" in bag)
        now = json.loads(bag["run"])
        assert now["id"] == run
        return now.get("over", False)

    until(is_over, f"the end of {run}", within=3 * WITHIN_S, every=0.2)


def test_virtme_makes_machines_and_leaves_nothing(unit: CharmUnit, libvirt: MaasLab) -> None:
    # Given a unit whose secret is for a MAAS, and a libvirt on its machine
    before = libvirt.counts()
    assert libvirt.libvirt is not None
    unit.state["address"] = "127.0.0.1"
    unit.state["secrets"]["maas"] = {"url": libvirt.url, "api-key": libvirt.key}
    unit.state["config"] |= {"target": "maas", "credentials": "secret:maas"}
    for event in ("install", "config-changed", "start"):
        assert unit.dispatch(f"hooks/{event}").errors == [], event

    # When a run of the shipped plan is started, with machines that fit here
    with unit.started(SERVICE):
        until(lambda: is_ready(unit, libvirt), f"ready: {unit.state['status']}")
        prepared = unit.dispatch("actions/prepare", plan="maas-virtme", overrides=overrides(libvirt))
        assert prepared.state["results"] == {"result": "nothing was lacking"}, prepared.state["failed"]
        started = unit.dispatch("actions/start", plan="maas-virtme", overrides=overrides(libvirt))
        assert (started.errors, started.state["failed"]) == ([], None)
        assert unit.state["status"][0] != "blocked", unit.state["status"]
        run = started.state["results"]["run"]
        assert oct(int(unit.run("stat", "-c", "%f", CREDENTIALS).stdout, 16))[-3:] == "600"
        follow(unit, run)
        report = unit.dispatch("actions/report", format="json").state["results"]

    # Then both were commissioned and deployed
    document = json.loads(unit.read(report["path"]))
    (stage,) = document["stages"]
    assert (stage["size"], document["verdict"]["outcome"]) == (2, "met"), document["verdict"]
    # and nothing of it is left in the MAAS or in libvirt, and the key is in no report and no log
    assert libvirt.counts() == before
    assert virsh(libvirt, "list", "--all", "--name") == ""
    assert virsh(libvirt, "pool-list", "--all", "--name") == ""
    found = unit.run("grep", "-rlF", libvirt.key.rpartition(":")[2], f"/var/lib/{SERVICE}", "/run")
    assert set(found.stdout.split()) <= {CREDENTIALS}
    assert libvirt.key not in json.dumps({**unit.state, "secrets": {}})


def overrides(lab: MaasLab) -> str:
    assert lab.libvirt is not None
    changed = {
        "target.made.libvirt": lab.libvirt.uri,
        "target.made.power_address": lab.libvirt.power_address,
        "target.machines.small.count": "2",  # emulated ones take minutes
        "target.machines.small.memory": "128MiB",
        "stages.0.instances": "2",
        "stages.0.hold": "2s",
    }
    return "; ".join(f"{key}={value}" for key, value in changed.items())
