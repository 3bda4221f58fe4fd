"""Whole runs that spawn resources on real Pacemaker: what they make, report, survive, and leave in the CIB: nothing."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.pacemaker.cluster import PacemakerLab
from tests.functional.program import no_traceback, only_run, run, start, until
from tests.functional.spawn_runs import crash, ended, going, merged_plan, named, wait_for
from tippingpoint.rundir.results import load_run
from tippingpoint.targets.pacemaker.plan import RESOURCE_OBSERVATIONS
from tippingpoint.targets.pacemaker.status import ClusterStatus, read_status

INTERRUPTED = 4
LONG_HOLD = "20m"
"""What the test ends."""
FEW: dict[str, Any] = {
    "name": "few",
    "target": {"kind": "pacemaker", "monitor": "0s", "multi_update": 3},
    "workload": {
        "kind": "spawn",
        "until": "started",
        "batch": 3,
        "observe_every": "0s",
        "poll_every": "300ms",
        "timeout": "5m",
    },
    "stages": [{"instances": 6, "hold": "500ms"}],
    "workers": 1,
}


def start_at(lab: PacemakerLab, *arguments: str | Path) -> subprocess.Popen[str]:
    command, plan, *others = arguments
    return start(command, plan, *(part for setting in lab.settings() for part in ("--set", setting)), *others)


def state(lab: PacemakerLab) -> ClusterStatus:
    return read_status(lab.cib().encode())


def settled(lab: PacemakerLab) -> str:
    """The CIB, once nothing happens in it, but for its versions and for what the cluster writes of its own: where its
    fencing device is, and which daemon wrote last."""
    until(lambda: state(lab).idle and state(lab).resources["fence-lab"].active, "the cluster is idle")
    cib = re.sub(r"<cib [^>]*>", "<cib>", lab.cib(), count=1)
    cib = re.sub(r"<lrm_rsc_op [^>]*fence-lab[^>]*/>", "", cib)
    cib = re.sub(r' crm-debug-origin="[^"]*"', "", cib)
    lines = [line for line in cib.splitlines() if line.strip() and "fence-lab_" not in line]
    # After a fence-agent's move the order of nodes is another: each state is compared for itself.
    head, _, rest = "\n".join(lines).partition("<status>")
    states = sorted(re.findall(r"<node_state .*?</node_state>", rest, re.DOTALL))
    return "\n".join([head, *states])


def ours(lab: PacemakerLab, prefix: str) -> dict[str, tuple[str, ...]]:
    """The nodes on which each of a run's resources is active."""
    return {id: each.active for id, each in state(lab).resources.items() if id.startswith(prefix)}


def prefix_of(directory: Path) -> str:
    prefix: str = json.loads((directory / "ledger.jsonl").read_text().splitlines()[0])["prefix"]
    return prefix


def stop(process: subprocess.Popen[str]) -> None:
    """End a run in order, as Ctrl-C does."""
    process.send_signal(signal.SIGINT)
    assert ended(process).returncode == INTERRUPTED


def test_a_run_fills_reports_and_leaves_the_cib_as_it_was(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    # given a cluster of three, and a plan that fills it in turn, and then has less
    before = settled(pacemaker)
    plan = merged_plan(
        tmp_path,
        FEW,
        {
            "target": {"placement": "round-robin"},
            "stages": [{"instances": 6, "hold": "500ms"}, {"instances": 2, "hold": "500ms"}],
            "thresholds": [{"operation": "launch", "p99": "10m", "error_rate": 0}],
        },
    )
    # when it is run
    done = ended(start_at(pacemaker, "run", plan, "--out", tmp_path / "runs", "--json"))
    # then all of it was made, placed and removed
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    fill, less = report["stages"]
    assert report["verdict"]["outcome"] == "met"
    assert (fill["held"], less["kind"]) == (6, "destroy")
    for operation in ("create", "start", "launch"):
        assert fill["operations"][operation]["ok"] == fill["operations"][operation]["attempts"] == 6
    assert less["operations"]["delete"]["ok"] == 4
    assert {member["name"] for member in report["members"]} == {"node1", "node2", "node3"}
    assert [member["name"] for member in report["members"] if member["led"]] == [pacemaker.leader()]
    assert report["gave_up"] == []
    # and the CIB is as it was
    (cleaned,) = named(only_run(tmp_path / "runs").directory, "cleaned")
    assert cleaned["removed"] == 2
    assert settled(pacemaker) == before
    assert run("clean", only_run(tmp_path / "runs").directory).stdout == "removed 0\n"


def test_what_administrators_do_is_timed(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    # given a run that holds a few resources, and does meanwhile what administrators do
    before = settled(pacemaker)
    plan = merged_plan(
        tmp_path, FEW, {"workload": {"observe_every": "1s"}, "stages": [{"instances": 3, "hold": LONG_HOLD}]}
    )
    process = start_at(pacemaker, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)
        # when it goes on until each of these was done, then each was timed, and the CIB is as it was
        possible = {
            what for what in RESOURCE_OBSERVATIONS if what != "simulate" or shutil.which("crm_simulate")
        }
        until(lambda: possible <= {*load_run(directory).operations}, "each was timed", every=1.0)
        stop(process)
    assert settled(pacemaker) == before


def test_what_one_update_makes_is_in_the_cib_at_once(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    # given a plan of three resources in one update, that are not to start
    epoch = state(pacemaker).version.epoch
    plan = merged_plan(
        tmp_path, FEW, {"workload": {"until": "created"}, "stages": [{"instances": 3, "hold": LONG_HOLD}]}
    )
    process = start_at(pacemaker, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)
        # then the configuration has changed once, and nothing runs
        now = state(pacemaker)
        assert now.version.epoch == epoch + 1
        assert ours(pacemaker, prefix_of(directory)) == {
            f"{prefix_of(directory)}-000-000{number}": () for number in range(3)
        }
        stop(process)


def test_a_crashed_run_is_resumed_with_what_it_made(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    # given a run that is killed while it holds six resources, all of which run
    before = settled(pacemaker)
    plan = merged_plan(tmp_path, FEW, {"stages": [{"instances": 6, "hold": LONG_HOLD}]})
    process = start_at(pacemaker, "run", plan, "--out", tmp_path / "crashed")
    with going(process):
        directory = wait_for(tmp_path / "crashed", process, "stage", phase="hold", stage=1)
        prefix = prefix_of(directory)
        crash(process)
    there = ours(pacemaker, prefix)
    assert len(there) == 6
    assert all(len(nodes) == 1 for nodes in there.values())
    # when it is resumed
    process = start("resume", directory, "--out", tmp_path / "resumed")
    with going(process):
        resumed = wait_for(tmp_path / "resumed", process, "stage", phase="hold", stage=1)
        # then they are where they were, and its end removes them
        assert ours(pacemaker, prefix) == there
        stop(process)
    assert only_run(tmp_path / "resumed").stages[0].attempts("create") == 0
    assert named(resumed, "cleaned")[0]["removed"] == 6
    assert settled(pacemaker) == before


def test_what_no_node_can_start_is_named_and_given_up(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    # given a plan with an agent that no node has
    before = settled(pacemaker)
    plan = merged_plan(
        tmp_path,
        FEW,
        {"target": {"agent": "ocf:pacemaker:Nothing"}, "stages": [{"instances": 1, "hold": "500ms"}]},
    )
    # when it is run
    done = ended(start_at(pacemaker, "run", plan, "--out", tmp_path / "runs", "--json"))
    # then the report says why, and nothing is left
    assert no_traceback(done.stdout, done.stderr)
    report = json.loads(done.stdout)
    assert [(each["operation"], each["kind"], each["count"]) for each in report["gave_up"]] == [
        ("start", "setting", 1)
    ]
    assert "not installed" in json.dumps(report)
    assert settled(pacemaker) == before


def test_more_remote_nodes_than_addresses_are_refused(pacemaker: PacemakerLab, tmp_path: Path) -> None:
    plan = merged_plan(tmp_path, FEW, {"target": {"nodes": {"remote": 4}}})
    done = ended(start_at(pacemaker, "run", plan, "--out", tmp_path / "runs"))
    assert (done.returncode, done.stdout) == (2, "")
    caution, refused = done.stderr.splitlines()
    assert "target.nodes.remote: 4: expected at most 0" in refused
    assert caution.endswith("private networks only")


def test_resources_of_a_killed_node_are_repaired_elsewhere(
    pacemaker_to_break: PacemakerLab, tmp_path: Path
) -> None:
    # given a run that holds six resources, two on each node
    lab = pacemaker_to_break
    before = settled(lab)
    victim = next(name for name in lab.names if name != lab.leader())
    plan = merged_plan(
        tmp_path, FEW, {"workload": {"observe_every": "2s"}, "stages": [{"instances": 6, "hold": LONG_HOLD}]}
    )
    process = start_at(lab, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)
        prefix = prefix_of(directory)
        # when a node is killed
        lab.kill(victim)
        wait_for(tmp_path / "runs", process, "member", member=victim, status="offline")
        # then the cluster fences it and the run sees it come back; all resources run again
        until(lambda: _is_back(directory, victim), "the node is back")
        until(lambda: _all_active(lab, prefix, 6), "all run again")
        until(lambda: _counts(directory)() == 6, "the run knows where all of them are")
        stop(process)
    assert lab.fenced.count(victim) >= 1
    # and nothing is left, on the node that came back neither; what the cluster notes of such a node is its own
    lab.await_whole()
    configuration, _, status = settled(lab).partition("<node_state")
    assert configuration == before.partition("<node_state")[0]
    assert prefix not in status


def _is_back(directory: Path, node: str) -> bool:
    """Whether a node that was away is online again, be it that it counted as lost meanwhile."""
    statuses = [event["status"] for event in named(directory, "member", member=node)]
    return "offline" in statuses and statuses[-1] in ("online", "back")


def _all_active(lab: PacemakerLab, prefix: str, count: int) -> bool:
    there = ours(lab, prefix)
    return len(there) == count and all(len(nodes) == 1 for nodes in there.values())


def _counts(directory: Path) -> Callable[[], int]:
    """How many resources the run has seen on nodes."""
    return lambda: sum(named(directory, "placed")[-1]["counts"].values())


def test_remote_nodes_join_carry_resources_and_leave_nothing(
    new_pacemaker: Callable[..., PacemakerLab], tmp_path: Path
) -> None:
    # given a cluster of one node with two that run pacemaker_remote
    lab = new_pacemaker(nodes=1, remotes=2)
    before = settled(lab)
    plan = merged_plan(
        tmp_path, FEW, {"target": {"nodes": {"remote": 2}}, "stages": [{"instances": 3, "hold": LONG_HOLD}]}
    )
    # when a run adds them and fills the cluster
    process = start_at(lab, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "stage", phase="hold", stage=1)
        # then both carry some of the resources
        prefix = prefix_of(directory)
        remotes = {f"{prefix}-remote-0000", f"{prefix}-remote-0001"}
        there = ours(lab, f"{prefix}-0")
        assert all(len(nodes) == 1 for nodes in there.values())
        assert {name for nodes in there.values() for name in nodes} >= remotes
        assert any("2 remote nodes were online after" in each["text"] for each in named(directory, "note"))
        stop(process)
    # and no trace of them stays
    assert settled(lab) == before
