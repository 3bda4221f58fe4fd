"""Whether machines fit the VM hosts of a MAAS is known before a stage makes any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize

from tests.unit.targets.maas.maas_stub import answering, stub_region, way_file
from tippingpoint.errors import TargetError, UserError
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.targets.maas.capacity import Room, fitting, room_of
from tippingpoint.targets.maas.ledger import MaasEntry
from tippingpoint.targets.maas.plan import Machines
from tippingpoint.targets.maas.target import TARGET

GIB = 1 << 30
SMALL = Machines(cpu=2, memory=ByteSize(4 * GIB), disks=[ByteSize(10 * GIB), ByteSize(60 * GIB)])


def test_machines_fit_until_something_is_too_little() -> None:
    rooms = [
        Room(cores=5, memory_mib=1 << 20, storage=10**15),
        Room(cores=2, memory_mib=1 << 20, storage=10**15),
    ]
    assert fitting(rooms, [SMALL] * 9) == (3, "cores")
    assert fitting([Room(100, 4096 * 2 + 1, 10**15)], [SMALL] * 3) == (2, "memory")
    assert fitting([Room(100, 1 << 20, 76 * 10**9)], [SMALL] * 3) == (1, "storage")
    assert fitting([Room(100, 1 << 20, 75 * 10**9)], [SMALL]) == (0, "storage"), (
        "10 GiB are 11 GB to MAAS, 60 are 65"
    )


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 100))
def test_as_many_fit_as_all_hosts_have_room_for(cores: list[int], asked: int) -> None:
    machines = [Machines(cpu=2)] * asked
    fits = fitting([Room(each, 1 << 30, 1e18) for each in cores], machines)[0]
    assert fits == min(asked, sum(each // 2 for each in cores))


def test_cores_and_memory_may_be_overcommitted() -> None:
    host = {
        "total": {"cores": 8, "memory": 1000, "local_storage": 500},
        "used": {"cores": 4, "memory": 500, "local_storage": 100},
        "cpu_over_commit_ratio": 2.0,
        "memory_over_commit_ratio": 1.5,
    }
    assert room_of(host) == Room(12, 1000, 400)


def host(number: int, **free: float) -> dict[str, Any]:
    total = {"cores": 64, "memory": 65536, "local_storage": 10**13, **free}
    return {"id": number, "name": f"host-{number}", "total": total, "used": {}}


async def room(hosts: Any, directory: Path, instances: int, before: int = 0, **workload: Any) -> None:
    """What the target's contract does before a stage."""
    async with stub_region() as stub:
        stub.answers["GET api/2.0/vm-hosts/"] = answering(hosts)
        plan = SpawnPlan.model_validate(
            {
                "name": "machines",
                "target": {
                    "kind": "maas",
                    "credentials": way_file(stub.url, directory),
                    "made": {"kind": "composed", "hosts": ["host-1", "host-2"]},
                    "machines": {"small": {"count": 500, "cpu": 2, "memory": "1GiB"}},
                },
                "workload": {"kind": "spawn", "concurrency": 8, "until": "started", **workload},
                "stages": [{"instances": instances}],
            }
        )
        entry = TARGET.new_entry(plan, "20261123-060550-maas-c2f4", directory)
        assert isinstance(entry, MaasEntry)
        await TARGET.check_room(entry, plan, plan.stages[0], before)


async def test_a_stage_that_does_not_fit_is_refused_with_what_does(tmp_path: Path) -> None:
    """Given two named hosts of 64 cores, and one of others, then 64 machines of two cores fit, beside those there."""
    hosts = [host(1), host(2), host(3, cores=1000)]
    await room(hosts, tmp_path, 64)
    with pytest.raises(UserError) as problem:
        await room(hosts, tmp_path, 65)
    assert str(problem.value) == (
        "instances: 65 more machines: expected at most 64 more, by cores of VM hosts; --force skips this check"
    )
    await room(hosts, tmp_path, 65, before=1)
    await room(hosts, tmp_path, 400, cycle=True)


async def test_a_host_that_a_maas_does_not_have_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"target\.made\.hosts: host-2: expected one of host-1, host-3"):
        await room([host(3), host(1)], tmp_path, 1)
    with pytest.raises(UserError, match=r"target\.made\.hosts: host-1: expected a MAAS with a VM host"):
        await room([], tmp_path, 1)


async def test_a_maas_that_does_not_tell_is_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(
        TargetError, match="an HTML page instead of JSON: expected a MAAS that reports its VM hosts"
    ):
        await room("<html>", tmp_path, 1)
