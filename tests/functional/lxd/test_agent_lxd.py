"""The agent of a unit that fills an LXD: what it made is gone on with after a crash, and gone at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.lxd.cluster import LxdLab
from tests.functional.agent.agents import Agent, Leader, workers_end
from tests.functional.lxd.lxd_runs import FEW, eventually, everything
from tests.functional.program import until
from tippingpoint.conduct.director import stop
from tippingpoint.digest.unit_digest import read_digest
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.rundir.manifest import Manifest

_LONG_HOLD = "20m"
"""Longer than the test, which ends the run when it has seen what it came for."""


pytestmark = pytest.mark.usefixtures("quick_hooks")


def a_plan(hold: str) -> Plan:
    return validate_plan({**FEW, "stages": [{"groups": 2, "instances": 2, "hold": hold}]})


def containers(lab: LxdLab) -> dict[str, str]:
    """When each container of ours was made, by its name."""
    listed: list[dict[str, Any]] = lab.query("/1.0/instances?recursion=1&all-projects=true")
    return {each["name"]: each["created_at"] for each in listed if each["name"].startswith("tp")}


def target(lab: LxdLab) -> dict[str, Any]:
    return {"kind": "lxd", "credentials": str(lab.credentials)}


def test_a_fill_that_was_cut_is_taken_up_again(lxd_single: LxdLab, tmp_path: Path) -> None:
    # given an agent that holds four containers
    before = everything(lxd_single)
    with Agent(tmp_path, "container-spawner/0") as agent:
        leader = Leader(a_plan(_LONG_HOLD), [agent], target(lxd_single))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold)
        made = containers(lxd_single)
        assert len(made) == 4
        # and can be asked for timings and repairs meanwhile
        timings = agent.done("probe").splitlines()
        assert [line.split()[0].rstrip(":") for line in timings] == [
            "cluster-list", "list-fast", "list", "operation-list", "exec", "network-leases", "network-list"
        ]  # fmt: skip
        assert next(line for line in timings if line.startswith("exec")).endswith(" ms")
        assert agent.done("repair") == "missing instances are being recreated"
        # when it is killed and started again, and its charm tells it that the run goes on
        with workers_end(agent.process):
            agent.kill()
        agent.start()
        assert containers(lxd_single) == made
        leader.until(lambda: leader.phases() == ["up"])
        until(lambda: agent.holds() == 4)
        # then it goes on with the same containers
        assert leader.run.missing == {}
        assert containers(lxd_single) == made
        # and at the end nothing is left, and what it came to is of both its halves
        leader.run = stop(leader.run, "asked for by a user")
        leader.until(lambda: leader.run.over)
        until(lambda: agent.ask("ping")["running"] == "")
        # (what a slow LXD did not remove at once is tried again)
        eventually(lambda: everything(lxd_single) == before)
        result = agent.result()
        assert result is not None
        digest = read_digest(result["digest"]).head
        assert digest.run == f"{leader.run.id}.0.2"
        assert [path.name for path in sorted((agent.state / "runs").iterdir())] == [
            f"{leader.run.id}.0",
            f"{leader.run.id}.0.2",
        ]
        assert "container" in agent.ask("report")["text"]


def test_a_fill_whose_run_ended_meanwhile_is_closed_and_removed(lxd_single: LxdLab, tmp_path: Path) -> None:
    before = everything(lxd_single)
    with Agent(tmp_path, "container-spawner/0") as agent:
        leader = Leader(a_plan(_LONG_HOLD), [agent], target(lxd_single))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold)
        with workers_end(agent.process):
            agent.kill()
        leader.run = stop(leader.run, "asked for by a user")
        agent.start()
        leader.until(lambda: leader.phases() == ["failed"])
        eventually(lambda: everything(lxd_single) == before)
        assert Manifest.load(agent.state / "runs" / f"{leader.run.id}.0").status == "cut"
