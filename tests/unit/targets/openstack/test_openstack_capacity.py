"""Whether a stage fits an OpenStack: quotas, a network's addresses, and hypervisors, as far as it tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.targets.openstack.openstack_cloud import Cloud, cloud_at
from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.openstack.capacity import check_room

PORTS = "network quotas/shop-id/details"


def put_basics(cloud: Cloud) -> str:
    """Have a flavor, a network, which has its id returned, and quotas without limits."""
    cloud.put("flavors", "tiny", disk=1, ram=64, vcpus=1)
    cloud.answers["compute limits"] = {"limits": {"absolute": {"maxTotalInstances": -1}}}
    return cloud.put("networks", "net")


async def refused(
    directory: Path, adds: int, put: Callable[[Cloud, str], object], there: int = 0, **target: Any
) -> str:
    """Why so many more servers are refused, with what a cloud has; empty where they fit."""
    async with cloud_at(directory, **target) as (cloud, entry):
        put(cloud, put_basics(cloud))
        try:
            await check_room(entry, adds, None, there)
        except UserError as problem:
            return str(problem)
    return ""


def quota(limit: int, used: int) -> dict[str, Any]:
    return {"quota": {"port": {"limit": limit, "used": used, "reserved": 1}}}


@pytest.mark.parametrize(("adds", "limit", "fits"), [(9, 20, 9), (10, 20, 9), (10, -1, 10), (1, 10, 0)])
async def test_ports_count_against_neutron_s_quota(tmp_path: Path, adds: int, limit: int, fits: int) -> None:
    """Given servers with ports in a project whose quota of ports is used up to 10 and one reserved."""

    def put(cloud: Cloud, network: str) -> None:
        cloud.answers[PORTS] = quota(limit, used=10)

    why = await refused(tmp_path, adds, put, network="net")
    expected = f"expected at most {fits} more, by quota of ports; --force skips this check"
    assert expected in why if fits < adds else not why


@pytest.mark.parametrize("target", [{"network": "none"}, {"network": "net", "tenants": True}])
async def test_where_no_ports_of_ours_count_neutron_s_quota_is_not_asked_for(
    tmp_path: Path, target: dict[str, Any]
) -> None:
    def put(cloud: Cloud, network: str) -> None:
        cloud.answers[PORTS] = quota(0, used=0)

    assert not await refused(tmp_path, 5, put, **target)


@pytest.mark.parametrize(("adds", "fits"), [(11, 11), (12, 11)])
async def test_free_addresses_of_a_network_bound_what_is_put_on_it(
    tmp_path: Path, adds: int, fits: int
) -> None:
    """Given a network with 11 addresses of IPv4 left in its two subnets, and any number of IPv6."""

    def put(cloud: Cloud, network: str) -> None:
        subnets = [
            {"ip_version": 4, "total_ips": 10, "used_ips": 2},
            {"ip_version": 4, "total_ips": 3, "used_ips": 0},
            {"ip_version": 6, "total_ips": 18446744073709551614, "used_ips": 1},
        ]
        cloud.answers[f"network network-ip-availabilities/{network}"] = {
            "network_ip_availability": {"network_id": network, "subnet_ip_availability": subnets}
        }

    why = await refused(tmp_path, adds, put, network="net")
    assert f"at most {fits:,} more, by addresses of the network" in why if fits < adds else not why


async def test_where_we_may_not_know_addresses_bound_nothing(tmp_path: Path) -> None:
    assert not await refused(tmp_path, 5, lambda cloud, network: None, network="net")


@pytest.mark.parametrize(
    ("adds", "there", "fits"), [(60_000, 0, 60_000), (168_000, 0, 65_523), (1_000, 65_000, 523)]
)
async def test_a_network_that_is_made_has_so_many_addresses(
    tmp_path: Path, adds: int, there: int, fits: int
) -> None:
    why = await refused(tmp_path, adds, lambda cloud, network: None, there, network="made")
    assert f"at most {fits:,} more, by addresses of the network" in why if fits < adds else not why


async def test_all_pages_of_hypervisors_count(tmp_path: Path) -> None:
    """Given five hypervisors with room for two servers each, listed two at a time."""

    def put(cloud: Cloud, network: str) -> None:
        cloud.page = 2
        for number in range(5):
            free = {"free_ram_mb": 2 * 64, "free_disk_gb": 1000}
            cloud.put("os-hypervisors", f"compute-{number}", state="up", status="enabled", **free)

    assert not await refused(tmp_path, 10, put)
    assert "at most 10 more, by memory of hypervisors" in await refused(tmp_path, 11, put)


@pytest.mark.parametrize(
    "path",
    [
        "compute limits",
        "compute flavors/detail",
        PORTS,
        "compute os-hypervisors/detail",
        "compute os-services",
    ],
)
@pytest.mark.parametrize(
    "garbage", [None, 7, {"limits": {"absolute": {"maxTotalCores": "x"}}}, {"flavors": [7]}]
)
async def test_garbage_is_one_line(tmp_path: Path, path: str, garbage: Any) -> None:
    async with cloud_at(tmp_path, network="net") as (cloud, entry):
        put_basics(cloud)
        cloud.answers[path] = garbage
        try:
            await check_room(entry, 1, 1, 0)
        except (TargetError, UserError) as told:
            assert "\n" not in str(told)  # noqa: PT017 (what is left out of an answer may be nothing to complain of)
