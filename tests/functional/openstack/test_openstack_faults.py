"""What goes wrong in a real OpenStack while a run goes on: it is told, survived, and nothing is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lab.openstack.cloud import OpenstackLab
from tests.functional.openstack.openstack_runs import (
    LONG_S,
    counts,
    errors,
    plan_of,
    run_at,
    run_in,
    start_at,
)
from tests.functional.program import TO_THE_END, run, until
from tests.functional.spawn_runs import ended, going, named, wait_for
from tests.unit.report.one_maximum import assert_one_maximum
from tippingpoint.util.exit_codes import TARGET_FAILED

pytestmark = pytest.mark.openstack

_LONG_HOLD = "20m"
"""Longer than the test, which ends the run when it has seen what it came for."""
_SERVERS = 8
_AT_ONCE = 3
_AWAY_POLLS = 60
"""More than a host that comes back is down for: what is on it is late then, and not lost."""


@pytest.fixture
def cloud(openstack_to_break: OpenstackLab) -> OpenstackLab:
    return openstack_to_break


@pytest.mark.parametrize("member", ["nova-api", "broker-1", "nova-conductor"])
def test_what_was_asked_for_is_there_when_a_service_is_back(
    cloud: OpenstackLab, tmp_path: Path, member: str
) -> None:
    """Given a service that is killed once a first server is there, and comes back."""
    before = cloud.counts()
    plan = plan_of(
        tmp_path,
        # What a killed service had been told is waited for until a minute is over. (A busy machine may take longer for
        # a server that nothing happened to.)
        workload={
            "concurrency": _AT_ONCE,
            "offline_polls": _AWAY_POLLS,
            "timeout": "60s",
            "retries": {"timeout": 20},
        },
        stages=[{"instances": 2 * _AT_ONCE, "hold": _LONG_HOLD}],
    )
    out = tmp_path / "runs"
    with going(start_at(cloud, plan, out)) as process:
        directory = wait_for(out, process, "tick", within=LONG_S)
        until(lambda: any(tick["held"] for tick in named(directory, "tick")), "a first server", LONG_S)
        cloud.kill(member)
        wait_for(out, process, "tick", len(named(directory, "tick")) + 8)  # eight seconds without it
        cloud.start(member)
        wait_for(out, process, "stage", within=LONG_S, phase="hold", stage=1)
        process.send_signal(signal.SIGINT)
        done = ended(process, LONG_S)

    result = run_in(out)
    assert result.manifest.status == "interrupted", done.stderr
    # What a killed service had been told, and not passed on yet, is lost for good: Nova leaves such a server as it is,
    # and it is told to have timed out, or by its fault, and is made again.
    assert counts(result)["boot_server.ok"] >= 2 * _AT_ONCE, counts(result)
    assert not named(directory, "gave-up")
    if member == "nova-api":
        assert any(
            "refused" in message for message in errors(result, "create_server") | errors(result, "poll")
        )
    left = cloud.counts()
    if member == "nova-conductor":
        # The scheduler may have claimed room for a server that this conductor, and then a run, gave up. Nova keeps such
        # an allocation; `nova-manage placement audit` finds it.
        assert left["allocations"] <= before["allocations"] + 2 * _AT_ONCE
        del left["allocations"], before["allocations"]
    assert left == before


def test_servers_of_a_compute_that_is_killed_are_seen_to(cloud: OpenstackLab, tmp_path: Path) -> None:
    """Given a compute that is killed while servers are made, then those that it had to build are made elsewhere or when
    it is back."""
    before = cloud.counts()
    plan = plan_of(
        tmp_path,
        # What the killed compute had been told is waited for until the time-out is over, as above.
        workload={
            "concurrency": 6,
            "offline_polls": _AWAY_POLLS,
            "timeout": "120s",
            "retries": {"timeout": 20},
        },
        stages=[{"instances": _SERVERS, "hold": "2s"}],
        faults=[{"do": "kill", "member": "compute-1", "at": "4s", "undo_after": "30s"}],
    )

    done = run_at(cloud, plan, tmp_path / "runs")

    result = run_in(tmp_path / "runs")
    assert done.returncode in TO_THE_END, done.stderr
    assert result.manifest.status == "complete"
    assert counts(result)["boot_server.ok"] == _SERVERS
    assert cloud.counts() == before


def test_what_had_no_answer_in_time_counts_at_what_it_cost(cloud: OpenstackLab, tmp_path: Path) -> None:
    """Given a Nova API that stands still for longer than anything is waited for, then what had no answer stands in
    tables and on charts at what it cost, as it does for thresholds."""
    before = cloud.counts()
    plan = plan_of(
        tmp_path,
        workload={"timeout": "15s", "retries": {"timeout": 20}, "offline_polls": _AWAY_POLLS},
        stages=[{"instances": _SERVERS, "hold": "2s"}],
        faults=[{"do": "stop", "member": "nova-api", "at": "3s", "undo_after": "20s"}],
    )

    done = run_at(cloud, plan, tmp_path / "runs")

    result = run_in(tmp_path / "runs")
    # An OpenStack that is slower than the time limit makes no server at all: that is 3, and costs what it costs.
    assert done.returncode in (*TO_THE_END, TARGET_FAILED), done.stderr
    waited = ("create_server", "await_active", "boot_server")
    assert any(result.stage(1).count(name, "timeout") for name in waited)
    told = assert_one_maximum(result, *waited)
    assert max(told["stages"][0]["operations"][name]["cost"]["max"] for name in waited) >= 14_900_000
    assert cloud.counts() == before


@pytest.mark.parametrize("who", ["admin", "tippingpoint"])
def test_a_port_that_a_killed_compute_has_left_on_a_network_of_others_is_removed(
    cloud: OpenstackLab, tmp_path: Path, who: str
) -> None:
    """Given what a nova-compute leaves that is killed while it removes a server: nova has the server no more, and
    neutron has its port still, on a network that was there before the run."""
    before = cloud.counts()
    plan = plan_of(tmp_path, target={"network": cloud.network}, stages=[{"instances": 2, "hold": "1h"}])
    with going(start_at(cloud, plan, tmp_path / "runs", cloud=who)) as process:  # which kills it
        directory = wait_for(tmp_path / "runs", process, "stage", within=LONG_S, phase="hold", stage=1)
    server = cloud.admin.get("compute", "/servers?all_tenants=1&name=^tp")["servers"][0]["id"]
    cloud.admin.delete("compute", f"/servers/{server}")
    until(lambda: cloud.count("servers") == before["servers"] + 1, "a server that is gone")
    networks = cloud.admin.get("network", f"/v2.0/networks?name={cloud.network}")["networks"]
    left = {
        "network_id": networks[0]["id"],
        "device_id": server,
        "device_owner": "compute:nova",
        "project_id": cloud.project,
    }
    cloud.admin.post("network", "/v2.0/ports", {"port": left})

    done = run("clean", directory, within=LONG_S)

    assert done.returncode == 0, done.stderr
    assert cloud.counts() == before


@pytest.mark.parametrize("what", ["projects", "networks", "routers"])
def test_what_is_being_made_at_a_ctrl_c_is_removed(cloud: OpenstackLab, tmp_path: Path, what: str) -> None:
    """Given a Ctrl-C as soon as the first of a kind is there, and others are being made, then nothing is left."""
    before = cloud.counts()
    plan = plan_of(
        tmp_path,
        target={"tenants": True, "network": "made"},
        stages=[{"groups": 3, "instances": 1, "hold": _LONG_HOLD}],
    )
    with going(start_at(cloud, plan, tmp_path / "runs")) as process:
        until(lambda: cloud.count(what) > before[what] + 1, f"two of the {what}", LONG_S)
        process.send_signal(signal.SIGINT)
        done = ended(process, LONG_S)

    assert run_in(tmp_path / "runs").manifest.status == "interrupted", done.stderr
    assert cloud.counts() == before


def test_a_slow_keystone_is_no_matter_to_servers(cloud: OpenstackLab, tmp_path: Path) -> None:
    before = cloud.counts()
    plan = plan_of(tmp_path, workload={"cycle": True}, stages=[{"instances": 4, "hold": "0s"}])
    cloud.slow("keystone", 2.0)
    try:
        done = run_at(cloud, plan, tmp_path / "runs")
    finally:
        cloud.slow("keystone", 0.0)
    assert done.returncode == 0, done.stderr
    assert counts(run_in(tmp_path / "runs"))["total.ok"] == 4
    assert cloud.counts() == before


def test_tokens_that_run_out_are_renewed_in_mid_run(cloud: OpenstackLab, tmp_path: Path) -> None:
    """Given tokens of 30 seconds, and tenants, then what is asked for in a run that lasts longer is never refused for
    its token. (Nova itself goes on with our token, which may run out while it builds a server; and a call may have no
    answer in time on a busy machine.)"""
    before = cloud.counts()
    plan = plan_of(
        tmp_path,
        target={"tenants": True},
        stages=[{"groups": 2, "instances": 1, "hold": "35s"}, {"groups": 2, "instances": 2, "hold": "1s"}],
        workload={"observe_every": "5s"},
    )

    with cloud.brief_tokens(30) as clouds:
        done = run_at(cloud, plan, tmp_path / "runs", "--set", f"target.credentials={clouds}")

    assert done.returncode == 0, done.stderr
    result = run_in(tmp_path / "runs")
    assert counts(result, 2)["boot_server.ok"] == 2
    refused = [event for event in named(result.directory, "error") if "(HTTP 401)" in event["error"]]
    assert not [event for event in refused if event["operation"] != "await_active"]
    assert cloud.counts() == before


def test_what_a_cloud_lists_as_deleted_is_awaited_until_it_is_gone(
    cloud: OpenstackLab, tmp_path: Path
) -> None:
    """Given a slow placement, for which nova waits between a server's status DELETED and its end, then `clean` ends
    when nova lists the server no more."""
    before = cloud.counts()
    plan = plan_of(tmp_path, stages=[{"instances": 2, "hold": "1h"}])
    with going(start_at(cloud, plan, tmp_path / "runs")) as process:  # which kills it
        directory = wait_for(tmp_path / "runs", process, "stage", within=LONG_S, phase="hold", stage=1)
    cloud.slow("placement", 5.0)
    try:
        done = run("clean", directory, within=LONG_S)
        assert done.returncode == 0, done.stderr
        assert cloud.counts() == before
    finally:
        cloud.slow("placement", 0.0)
