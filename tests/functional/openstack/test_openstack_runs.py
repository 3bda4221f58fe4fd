"""Servers on a real Nova, with Keystone, Neutron, Glance and Placement: made, listed, removed, and nothing is left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from lab.openstack.cloud import OpenstackLab
from tests.functional.openstack.openstack_runs import (
    LONG_S,
    counts,
    errors,
    last_placed,
    plan_of,
    run_at,
    run_in,
    start_at,
)
from tests.functional.program import execute, no_traceback, run, workers_of
from tests.functional.spawn_runs import ended, going, named, one_line, wait_for

pytestmark = pytest.mark.openstack

_ITERATIONS, _EACH = 6, 2
_LONG_HOLD = "20m"
"""Longer than the test, which ends the run when it has seen what it came for."""


def test_boot_delete_counts_rally_s_operations_and_leaves_nothing(
    openstack: OpenstackLab, tmp_path: Path
) -> None:
    before = openstack.counts()
    plan = plan_of(tmp_path, workload={"cycle": True}, stages=[{"instances": _ITERATIONS, "hold": "0s"}])

    done = run_at(openstack, plan, tmp_path / "runs")

    assert done.returncode == 0, done.stderr
    result = run_in(tmp_path / "runs")
    found = counts(result)
    for operation in ("create_server", "await_active", "boot_server", "delete_server", "total"):
        assert found[f"{operation}.ok"] == _ITERATIONS
    assert result.manifest.load_unit == "iterations"
    stage = result.stage(1)
    boot, total = (stage.response(name).percentiles([50])[0] for name in ("boot_server", "total"))
    assert stage.response("create_server").percentiles([50])[0] < boot < total
    landed = last_placed(result, "landed")
    assert set(landed) <= set(openstack.hosts)
    assert sum(landed.values()) == _ITERATIONS
    assert openstack.counts() == before


def test_a_fill_in_batches_is_asked_for_in_one_call_each(openstack: OpenstackLab, tmp_path: Path) -> None:
    """Given an ordinary project's application credential, and servers with ports, then all are on hosts, and go."""
    before = openstack.counts()
    plan = plan_of(
        tmp_path,
        target={"multi_create": 2, "network": openstack.network},
        workload={"concurrency": None, "batch": 2},
        stages=[{"instances": 4, "hold": "3s"}, {"instances": 1, "hold": "0s"}],
    )

    done = run_at(openstack, plan, tmp_path / "runs", cloud="tippingpoint-app")

    assert done.returncode == 0, done.stderr
    result = run_in(tmp_path / "runs")
    assert counts(result)["boot_server.ok"] == 4
    assert counts(result, 2)["delete_server.ok"] == 3
    notes = [event["text"] for event in named(result.directory, "note")]
    assert any("not an admin's" in note for note in notes)
    hosts = {event["member"] for event in named(result.directory, "member")}
    assert hosts
    assert not hosts & set(openstack.hosts), "others than an admin see no host's name"
    assert openstack.counts() == before


def test_tenants_each_have_a_network_and_go_with_all_they_have(
    openstack: OpenstackLab, tmp_path: Path
) -> None:
    before = openstack.counts()
    image = tmp_path / "small.img"
    image.write_bytes(bytes(1024))
    plan = plan_of(
        tmp_path,
        target={"tenants": True, "network": "made", "flavor": "made", "image": str(image)},
        stages=[
            {"groups": _EACH, "instances": 0, "hold": "0s"},
            {"groups": _EACH, "instances": 1, "hold": _LONG_HOLD},
        ],
        workers=2,
    )
    with going(start_at(openstack, plan, tmp_path / "runs")) as process:
        wait_for(tmp_path / "runs", process, "stage", 2, within=LONG_S, phase="hold", stage=2)
        there = openstack.counts()
        process.send_signal(signal.SIGINT)
        done = ended(process, LONG_S)

    assert run_in(tmp_path / "runs").manifest.status == "interrupted", done.stderr
    assert there["servers"] - before["servers"] == _EACH
    for what in ("projects", "networks", "subnets", "routers"):
        assert there[what] - before[what] == _EACH, what
    for what in ("users", "flavors", "images"):
        assert there[what] - before[what] == 1, what
    assert openstack.counts() == before
    assert not [*run_in(tmp_path / "runs").directory.glob("openstack-user")]


def test_what_a_run_made_that_was_killed_is_cleaned(openstack: OpenstackLab, tmp_path: Path) -> None:
    """Given a run with tenants that is killed while it makes servers, then clean leaves the databases as they were."""
    before = openstack.counts()
    plan = plan_of(
        tmp_path,
        target={"tenants": True, "network": "made"},
        stages=[{"groups": 2, "instances": 5, "hold": "30s"}],
        workers=1,
    )
    with going(start_at(openstack, plan, tmp_path / "runs")) as process:  # which kills it
        directory = wait_for(tmp_path / "runs", process, "stage", within=LONG_S, phase="begin", stage=1)

    done = run("clean", directory, within=LONG_S)

    assert done.returncode == 0, done.stderr
    assert openstack.counts() == before
    again = run("clean", directory, within=LONG_S)
    assert again.returncode == 0, again.stderr


def test_what_does_not_fit_the_quota_is_refused_in_one_line(openstack: OpenstackLab, tmp_path: Path) -> None:
    quota = f"/os-quota-sets/{openstack.project}"
    openstack.admin.put("compute", quota, {"quota_set": {"instances": 3, "cores": -1, "ram": -1}})
    try:
        plan = plan_of(tmp_path)
        line = one_line(run_at(openstack, plan, tmp_path / "runs", cloud="tippingpoint"))
        assert line.endswith(
            "stages.0.instances: 6 more servers: expected at most 3 more, by quota of instances; "
            "--force skips this check"
        )
        # One after the other: of those that it takes on together, nova throws out more than are too many.
        forced = plan_of(tmp_path, workload={"concurrency": 1})
        done = run_at(openstack, forced, tmp_path / "forced", "--force", cloud="tippingpoint")
        result = run_in(tmp_path / "forced")
        assert counts(result)["boot_server.ok"] == 3
        gave_up = named(result.directory, "gave-up", kind="quota")
        assert sum(event["count"] for event in gave_up) == 3
        assert "Quota exceeded" in gave_up[0]["error"]
        assert no_traceback(done.stdout, done.stderr)
    finally:
        openstack.admin.put("compute", quota, {"quota_set": {"instances": -1, "cores": -1, "ram": -1}})


def test_a_server_that_fits_on_no_host_says_so(openstack: OpenstackLab, tmp_path: Path) -> None:
    """Given a flavor that no host has the memory for, then the fault is told that Nova's lists keep to themselves."""
    huge = {"name": "huge", "ram": 2**30, "vcpus": 1, "disk": 0}
    flavor = openstack.admin.post("compute", "/flavors", {"flavor": huge})["flavor"]["id"]
    before = openstack.counts()
    try:
        plan = plan_of(tmp_path, target={"flavor": "huge"}, stages=[{"instances": 2, "hold": "0s"}])
        done = run_at(openstack, plan, tmp_path / "runs", "--force")
    finally:
        openstack.admin.delete("compute", f"/flavors/{flavor}")
    result = run_in(tmp_path / "runs")
    assert done.returncode == 4, done.stderr  # what was given up withholds the verdict
    assert counts(result)["boot_server.error"] == 2
    assert [error.partition(".")[0] for error in errors(result, "await_active")] == [
        "No valid host was found"
    ]
    assert {event["kind"] for event in named(result.directory, "gave-up")} == {"full"}
    assert openstack.counts() == before | {"flavors": before["flavors"] - 1}


@pytest.mark.parametrize(
    ("target", "cloud", "line"),
    [
        ({"image": "x"}, "admin", "target.image: x: expected one of tiny"),
        ({"flavor": "x"}, "admin", "target.flavor: x: expected one of tiny"),
        ({"network": "x"}, "admin", "target.network: x: expected one of net"),
        ({"region": "Nowhere"}, "admin", "target.region: Nowhere: expected one of RegionOne"),
        ({"tenants": True}, "tippingpoint", "target.tenants: true: expected false, as the credential is not"),
        ({"flavor": "made"}, "tippingpoint", "target.flavor: made: expected an existing flavor"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_one_line(
    openstack: OpenstackLab, tmp_path: Path, target: dict[str, object], cloud: str, line: str
) -> None:
    before = openstack.counts()
    assert line in one_line(
        run_at(openstack, plan_of(tmp_path, target=target), tmp_path / "runs", cloud=cloud)
    )
    assert openstack.counts() == before


def test_a_wrong_password_is_one_line_without_it(openstack: OpenstackLab, tmp_path: Path) -> None:
    wrong = tmp_path / "clouds.yaml"
    auth = {
        "auth_url": openstack.auth_url,
        "username": "tippingpoint",
        "password": "hush",
        "project_name": "tippingpoint",
    }
    wrong.write_text(json.dumps({"clouds": {"wrong": {"auth": auth, "cacert": str(openstack.ca)}}}))
    wrong.chmod(0o600)
    plan = plan_of(tmp_path)

    credentials = f"target.credentials={wrong}"
    done = run("run", plan, "--set", credentials, "--out", tmp_path / "runs", within=LONG_S)

    assert done.returncode == 3
    line = one_line(done)
    assert "requires authentication" in line
    assert "hush" not in line


def test_no_secret_is_on_a_command_line_or_in_what_is_kept(openstack: OpenstackLab, tmp_path: Path) -> None:
    """Given a run with a made user, then its password is in a file of mode 0600 alone, and the administrator's, by
    which all is made, nowhere."""
    plan = plan_of(
        tmp_path, target={"tenants": True}, stages=[{"groups": 1, "instances": 1, "hold": _LONG_HOLD}]
    )
    with going(start_at(openstack, plan, tmp_path / "runs", begin=execute)) as process:
        directory = wait_for(tmp_path / "runs", process, "stage", within=LONG_S, phase="hold", stage=1)
        file = directory / "openstack-user"
        passwords = file.read_text(), openstack.admin.password
        assert file.stat().st_mode & 0o777 == 0o600
        of_run = [process.pid, *workers_of(process.pid)]
        assert len(of_run) == 2
        lines = "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in of_run)
        process.send_signal(signal.SIGINT)
        done = ended(process, LONG_S)
    assert run_in(tmp_path / "runs").manifest.status == "interrupted", done.stderr
    kept = [path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file()]
    for password in passwords:
        assert password
        assert password not in "".join([*kept, lines, done.stdout, done.stderr])
