"""The agent of a unit that loads an OpenStack: what it came to is told, what it made is gone on with, and gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.openstack.cloud import OpenstackLab
from tests.functional.agent.agents import Agent, Leader, workers_end
from tests.functional.openstack.openstack_runs import FEW, LONG_S
from tests.functional.program import until
from tippingpoint.conduct.director import stop
from tippingpoint.digest.unit_digest import read_digest
from tippingpoint.plan.read import Plan, parse_plan, validate_plan
from tippingpoint.plan.shipped import shipped_plans

pytestmark = [pytest.mark.openstack, pytest.mark.usefixtures("quick_hooks")]

_ITERATIONS = 4
_LONG_HOLD = "20m"
"""Longer than the test, which ends the run when it has seen what it came for."""


def target(lab: OpenstackLab, cloud: str) -> dict[str, Any]:
    return {"kind": "openstack", "credentials": str(lab.clouds), "cloud": cloud}


def servers(lab: OpenstackLab) -> dict[str, str]:
    """The servers of ours, by name, and their ids."""
    listed = lab.admin.get("compute", "/servers?all_tenants=1")["servers"]
    return {server["name"]: server["id"] for server in listed if server["name"].startswith("tp")}


def boot_delete() -> Plan:
    few = [f"stages.0.instances={_ITERATIONS}", "workload.concurrency=3"]
    return parse_plan(shipped_plans()["openstack-boot-delete"], few)


def test_boot_delete_as_one_of_a_project(openstack: OpenstackLab, tmp_path: Path) -> None:
    """Given a member's application credential, as the charm may have one, then every iteration is counted, the digest
    has them all, and the databases are as they were."""
    before = openstack.counts()
    with Agent(tmp_path, "container-spawner/0") as agent:
        leader = Leader(boot_delete(), [agent], target(openstack, "tippingpoint-app"))
        leader.until(lambda: leader.run.turns)
        timings = agent.done("probe").splitlines()
        assert [line.split()[0].rstrip(":") for line in timings] == [
            "server-list", "flavor-list", "image-list", "network-list", "service-list", "agent-list"
        ]  # fmt: skip
        assert all(line.endswith(" ms") for line in timings[:4])
        assert timings[4:] == [
            "service-list: for admins only",
            "agent-list: for admins only",
        ]
        leader.until(lambda: leader.run.over, LONG_S)
        until(lambda: agent.ask("ping")["running"] == "")

        assert leader.run.missing == {}
        assert leader.phases() == ["over"]
        word = agent.word()
        assert word is not None
        assert word.problem == ""
        result = agent.result()
        assert result is not None
        assert read_digest(result["digest"]).head.run == f"{leader.run.id}.0"
        (stage,) = json.loads(agent.ask("report", format="json")["text"])["stages"]
        for operation in ("create_server", "boot_server", "delete_server", "total"):
            counted = stage["operations"][operation]
            assert counted["ok"] == counted["attempts"] == _ITERATIONS, stage["operations"]
        assert openstack.counts() == before


def test_a_fill_that_was_cut_is_taken_up_again(openstack: OpenstackLab, tmp_path: Path) -> None:
    before = openstack.counts()
    plan = validate_plan({**FEW, "stages": [{"instances": 4, "hold": _LONG_HOLD}]})
    with Agent(tmp_path, "container-spawner/0") as agent:
        leader = Leader(plan, [agent], target(openstack, "admin"))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold, LONG_S)
        made = servers(openstack)
        assert len(made) == 4
        assert agent.done("probe").splitlines()[-1].startswith("agent-list ")
        assert agent.done("repair") == "missing instances are being recreated"
        # when it is killed and started again, and its charm tells it that the run goes on
        with workers_end(agent.process):
            agent.kill()
        agent.start()
        assert servers(openstack) == made
        # (its phase is that of the part that was cut until the next part tells its own, and only that has progress)
        leader.until(lambda: agent.holds() == 4, LONG_S)
        leader.until(lambda: leader.phases() == ["up"], LONG_S)
        # then it goes on with the same servers
        assert leader.run.missing == {}
        assert servers(openstack) == made
        # and at the end nothing is left
        leader.run = stop(leader.run, "asked for by a user")
        leader.until(lambda: leader.run.over, LONG_S)
        until(lambda: agent.ask("ping")["running"] == "", within=LONG_S)
        until(lambda: openstack.counts() == before, within=LONG_S)

        # the part that was cut may be told of before the one that went on with it
        def told() -> str:
            result = agent.result()
            return "" if result is None else read_digest(result["digest"]).head.run

        until(lambda: told() == f"{leader.run.id}.0.2", within=LONG_S)


def test_a_credential_that_is_refused_is_one_line_and_leaves_nothing(
    openstack: OpenstackLab, tmp_path: Path
) -> None:
    """Given a secret that is not the credential's, then the unit has no part, and says why without showing it."""
    before = openstack.counts()
    cloud = yaml.safe_load(openstack.clouds.read_text())["clouds"]["tippingpoint-app"]
    cloud["auth"]["application_credential_secret"] = "hunter2"
    file = tmp_path / "clouds.yaml"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump({"clouds": {"tippingpoint": cloud}}))
    with Agent(tmp_path, "container-spawner/0") as agent:
        where = {"kind": "openstack", "credentials": str(file), "cloud": "tippingpoint"}
        leader = Leader(boot_delete(), [agent], where)
        leader.until(lambda: leader.phases() == ["failed"])
        word = agent.word()
        assert word is not None
        assert "expected a login that Keystone accepts" in word.problem
        assert "expected a login that Keystone accepts" in agent.done("probe")
        assert "hunter2" not in word.problem + agent.done("probe")
    assert "hunter2" not in agent.said
    assert openstack.counts() == before
