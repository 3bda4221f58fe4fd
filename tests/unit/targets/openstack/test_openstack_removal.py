"""What a run made in an OpenStack is removed, whatever of it is stuck, late, or answered by garbage."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.unit.targets.openstack.openstack_cloud import PREFIX, RUN, Cloud, cloud_at, failure
from tippingpoint.errors import TargetError
from tippingpoint.targets.openstack import removal
from tippingpoint.targets.openstack.provision import mark_text
from tippingpoint.targets.openstack.removal import remove

TENANTS: dict[str, Any] = {"tenants": True, "network": "made", "flavor": "made"}


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that does not go is given up soon. What does go has its time, however busy the machine is."""
    for name, seconds in (("STUCK_AFTER", 0.6), ("_PAUSE", 0.05)):
        monkeypatch.setattr(removal, name, seconds)


def put_tenants(cloud: Cloud, count: int) -> None:
    """Have what a run with tenants has: a server in each."""
    for group in range(count):
        project = cloud.put_group("projects", group)
        network = cloud.put_group("networks", group, project_id=project)
        router = cloud.put_group("routers", group, project_id=project)
        cloud.put("ports", "", device_id=router, device_owner="network:router_interface", network_id=network)
        cloud.put("ports", "", device_id="dhcp", device_owner="network:dhcp", network_id=network)
        cloud.put("security-groups", "default", project_id=project)
        name = f"{PREFIX}-{group:03d}-0000"
        cloud.put(
            "servers", name, status="ACTIVE", metadata={"tippingpoint": RUN}, tenant_id=project, group=group
        )
    cloud.put("users", PREFIX, description=mark_text(RUN))
    cloud.put("flavors", PREFIX)


async def test_all_that_tenants_have_goes_and_nothing_of_others(tmp_path: Path) -> None:
    async with cloud_at(tmp_path, **TENANTS) as (cloud, entry):
        put_tenants(cloud, 3)
        cloud.put("servers", f"{PREFIX}-000-0007", status="ACTIVE", metadata={})
        cloud.put("networks", f"{PREFIX}-001", description="mine")
        cloud.put("flavors", "small")
        assert await remove(entry) == 3 + 3 + 3 + 3 + 3 + 1 + 1  # with the ports that Neutron's DHCP had
        assert {kind: cloud.names(kind) for kind, there in cloud.things.items() if there} == {
            "servers": [f"{PREFIX}-000-0007"],
            "networks": [f"{PREFIX}-001"],
            "flavors": ["small"],
        }
        assert entry.identity is not None
        assert not entry.identity.exists()


@pytest.mark.parametrize("gone", [True, False])
async def test_a_port_that_a_killed_compute_left_on_a_network_of_others_goes(
    tmp_path: Path, gone: bool
) -> None:
    """Given a network that was there, a server of the run, there or deleted while the run went on, whose port is left,
    and ports of others, then the run's goes and theirs stay."""
    async with cloud_at(tmp_path, network="net") as (cloud, entry):
        network = cloud.put("networks", "net")
        server = cloud.put_server()
        cloud.put("ports", "left", device_id=server, network_id=network)
        other = cloud.put("servers", f"{PREFIX}-000-0001", status="ACTIVE", metadata={})  # no mark of ours
        cloud.put("ports", "kept", device_id=other, network_id=network)
        cloud.put("ports", "free", device_id="", network_id=network)
        if gone:
            cloud.remove("servers", server)
        cloud.page = 2
        assert await remove(entry) == (1 if gone else 2)
        assert cloud.names("ports") == ["free", "kept"]
        assert cloud.names("networks") == ["net"]


async def test_a_server_that_comes_late_goes_with_what_it_holds(tmp_path: Path) -> None:
    """Given a call whose answer was lost, and what it makes is there only after the first look, with a port on the
    run's network, then all of it goes."""
    async with cloud_at(tmp_path, network="made") as (cloud, entry):
        network = cloud.put_group("networks")
        lists = 0

        async def late(request: web.Request) -> web.Response | None:
            nonlocal lists
            lists += request.path.endswith("/servers/detail")
            if request.method == "DELETE" and "/networks/" in request.path and not cloud.deleted:
                cloud.put_server()
            return None

        cloud.otherwise = late
        cloud.put("ports", "", device_id="x", network_id=network)
        assert await remove(entry) == 3
        assert not cloud.things["servers"]
        assert lists > 2


async def test_what_comes_between_two_looks_goes(tmp_path: Path) -> None:
    """Given nothing at the first look, and a network that a call made which was on its way, then it goes."""
    async with cloud_at(tmp_path, network="made") as (cloud, entry):
        looks = 0

        async def late(request: web.Request) -> web.Response | None:
            nonlocal looks
            if request.path.endswith("/networks"):
                looks += 1
                if looks == 2:
                    cloud.put_group("networks")
            return None

        cloud.otherwise = late
        assert await remove(entry) == 1
        assert not cloud.things["networks"]


@pytest.mark.usefixtures("impatient")
async def test_what_does_not_hang_with_a_stuck_server_is_gone(tmp_path: Path) -> None:
    """Given a server that nova does not get rid of, then it is named, and so is why; its project and network are kept,
    and all else is gone."""
    async with cloud_at(tmp_path, **TENANTS) as (cloud, entry):
        put_tenants(cloud, 3)
        (stuck,) = [each for each in cloud.things["servers"].values() if each["group"] == 1]
        cloud.put("ports", "", device_id=stuck["id"], network_id=network_of(cloud, 1))

        async def fails(request: web.Request) -> web.Response | None:
            if request.method == "DELETE" and request.path.endswith(stuck["id"]):
                return failure(500, "its host is gone")
            return None

        cloud.otherwise = fails
        with pytest.raises(
            TargetError, match=r"servers are still there: 1, such as .*-001-0000: .*its host is gone"
        ):
            await remove(entry)
        assert cloud.names("servers") == [f"{PREFIX}-001-0000"]
        assert cloud.names("networks") == cloud.names("projects") == [f"{PREFIX}-001"]
        assert not cloud.things["flavors"]
        assert entry.identity is not None
        assert entry.identity.exists()
        cloud.otherwise = nothing
        await remove(entry)
        assert not any(cloud.things.values())


def network_of(cloud: Cloud, group: int) -> str:
    """The id of a group's network."""
    (found,) = [
        each["id"] for each in cloud.things["networks"].values() if each["name"] == f"{PREFIX}-{group:03d}"
    ]
    return str(found)


async def nothing(request: web.Request) -> web.Response | None:
    """As ever."""
    return None


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["servers", "routers", "ports", "networks", "projects", "users", "flavors"])
async def test_one_kind_that_cannot_be_listed_does_not_keep_the_others(tmp_path: Path, kind: str) -> None:
    async with cloud_at(tmp_path, **TENANTS) as (cloud, entry):
        put_tenants(cloud, 2)

        async def fails(request: web.Request) -> web.Response | None:
            path = request.path.removesuffix("/detail")
            return failure(500, "no list") if request.method == "GET" and path.endswith(kind) else None

        cloud.otherwise = fails
        with pytest.raises(
            TargetError, match=r"no list \(HTTP 500\): expected an OpenStack that permits the removal"
        ):
            await remove(entry)
        for other in {"servers", "projects", "users", "flavors"} - {kind}:
            assert not cloud.things[other], other


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("garbage", [[], None, 7, {}, {"servers": [None]}, {"servers": [{}]}, {"servers": 7}])
async def test_garbage_is_one_line_and_keeps_nothing_else(tmp_path: Path, garbage: Any) -> None:
    async with cloud_at(tmp_path, network="made") as (cloud, entry):
        cloud.put_group("networks")
        cloud.answers["compute servers/detail"] = garbage
        with pytest.raises(
            TargetError, match=r"an invalid answer|an invalid list|an answer without servers"
        ) as told:
            await remove(entry)
        assert "\n" not in str(told.value)
        assert not cloud.things["networks"]


async def test_a_rate_limit_is_waited_for(tmp_path: Path) -> None:
    async with cloud_at(tmp_path) as (cloud, entry):
        cloud.put_server()
        refused = asyncio.Event()

        async def limited(request: web.Request) -> web.Response | None:
            if request.method == "DELETE" and not refused.is_set():
                refused.set()
                return web.json_response({}, status=429, headers={"Retry-After": "0"})
            return None

        cloud.otherwise = limited
        assert await remove(entry) == 1


async def test_many_routers_are_removed_at_a_time(tmp_path: Path) -> None:
    """Given groups whose routers each take a moment, then several are on their way at once."""
    async with cloud_at(tmp_path, **TENANTS) as (cloud, entry):
        put_tenants(cloud, 6)
        under_way = most = 0

        async def slow(request: web.Request) -> web.Response | None:
            nonlocal under_way, most
            if request.method == "PUT" and "/routers/" in request.path:
                under_way += 1
                most = max(most, under_way)
                await asyncio.sleep(0.2)
                under_way -= 1
            return None

        cloud.otherwise = slow
        await remove(entry)
        assert most > 1
        assert not any(cloud.things.values())


async def test_many_servers_are_removed_by_few_tasks(tmp_path: Path) -> None:
    """Given far more servers than are removed at once, then not each of them has a task that waits for its turn."""
    async with cloud_at(tmp_path) as (cloud, entry):
        for number in range(300):
            cloud.put_server(number)
        most = 0

        async def counted(request: web.Request) -> web.Response | None:
            nonlocal most
            if request.method == "DELETE":
                most = max(most, len(asyncio.all_tasks()))
            return None

        cloud.otherwise = counted
        assert await remove(entry) == 300
        assert 0 < most < 100
