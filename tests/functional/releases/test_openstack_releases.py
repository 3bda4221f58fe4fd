"""OpenStack of other releases than this machine's: servers are booted and deleted, a fault is undone, and it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.openstack.cloud import OpenstackLab
from tests.functional.openstack import test_openstack_lab as contract
from tests.functional.openstack.openstack_runs import counts, plan_of, run_at, run_in
from tests.functional.program import until
from tests.functional.releases.images import attached_to

pytestmark = pytest.mark.images


NEWEST_APIS = {"trixie": "2.100", "bullseye": "2.87"}
"""The newest version of the compute API, by suite."""
PYTHONS = {"trixie": "python3.13", "bullseye": "python3.9"}


@pytest.fixture(scope="module", params=NEWEST_APIS)
def suite(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def cloud(suite: str) -> Iterator[OpenstackLab]:
    """A suite's, with all endpoints by TLS."""
    with OpenstackLab(computes=1, tls=True, release=suite) as lab:
        assert lab.release is not None
        image = lab.release.path
        yield lab
    until(lambda: not attached_to(image), "no loop device with the image")
    assert not lab.directory.exists()


def test_a_run_boots_and_deletes_servers_and_tells_novas_release_by_its_api(
    cloud: OpenstackLab, suite: str, tmp_path: Path
) -> None:
    before = cloud.counts()
    target = {"network": cloud.network}
    plan = plan_of(tmp_path, target=target, workload={"cycle": True}, stages=[{"instances": 2, "hold": "0s"}])

    done = run_at(cloud, plan, tmp_path / "runs")

    assert done.returncode == 0, done.stdout + done.stderr
    result = run_in(tmp_path / "runs")
    assert result.manifest.target.version == f"compute API {NEWEST_APIS[suite]}"
    for operation in ("boot_server", "delete_server", "total"):
        assert counts(result)[f"{operation}.ok"] == 2
    assert cloud.counts() == before


def test_only_the_clouds_own_programs_see_the_releases_files(cloud: OpenstackLab, suite: str) -> None:
    assert cloud.release is not None
    assert str(cloud.release.path) not in Path("/proc/mounts").read_text()
    modules = {
        name: Path(f"/proc/{pid}/root/usr/lib/{PYTHONS[suite]}/os.py").exists()
        for name, pid in cloud.pids.items()
    }
    assert [name for name, there in modules.items() if not there] == ["broker-1"]


test_an_api_is_killed_and_is_back = contract.test_an_api_is_killed_and_answers_when_it_is_back
