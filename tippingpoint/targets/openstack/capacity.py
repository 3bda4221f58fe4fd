"""Checks before a stage whether an OpenStack has room for it, by its own reports."""

from __future__ import annotations

from typing import Any

from tippingpoint.errors import UserError
from tippingpoint.targets.openstack.access import from_clouds
from tippingpoint.targets.openstack.client import OpenstackClient, insist, mapping
from tippingpoint.targets.openstack.errors import FORBIDDEN, OpenstackError, OpenstackGone
from tippingpoint.targets.openstack.ledger import OpenstackEntry
from tippingpoint.targets.openstack.provision import FLAVOR, MADE, NONE, pages, told_of
from tippingpoint.targets.openstack.versions import Version
from tippingpoint.util.text import show_count

HYPERVISORS: Version = (2, 53)
"""The compute API for hypervisors' free memory and disk; from 2.88 on it does not report them."""

ADDRESSES = 65_523
"""Servers that fit a network created by the run: a /16 (SUBNET), less its own addresses, the router's, and up to
ten of DHCP agents."""

_NO_SUCH_VERSION = 406


async def check_room(entry: OpenstackEntry, adds: int, members: int | None, there: int) -> None:
    """Check that this many more servers fit; UserError says how many do.

    They must fit the quotas and, as far as reported to the user, the network and the hypervisors. `there` is the
    number of the run's servers that exist. Quotas are those of the cloud's own project; projects that a run creates
    have none. Other units' use of them is unknown. `members` is the required number of compute services that are up.
    TargetError if OpenStack does not answer.
    """
    access, target = from_clouds(entry.target), entry.target
    client = OpenstackClient(access)
    try:
        with told_of(access.name, "an OpenStack that reports its resources"):
            token = await client.log_in()
            if members is not None:
                up = await _up(client)
                if up is not None and up < members:
                    raise UserError(
                        "members", members, f"at most {up}, the number of nova-computes that are up"
                    )
            if adds <= 0:
                return
            flavor = await _flavor(client, entry)
            fits = await _hypervisors(client, flavor)
            if not target.tenants:
                fits |= await _quota(client, flavor)
                if target.network != NONE:
                    fits |= await _ports(client, token.project)
            if target.network == MADE:
                if not target.tenants:  # with tenants, each has its own network
                    fits["addresses of the network"] = max(0, ADDRESSES - there)
            elif target.network != NONE:
                fits |= await _addresses(client, target.network)
    finally:
        await client.close()
    if not fits:
        return
    short = min(fits, key=lambda what: (fits[what], what))
    if fits[short] < adds:
        raise UserError(
            "instances",
            show_count(adds, "more server"),
            f"at most {fits[short]:,} more, by {short}; --force skips this check",
        )


def fitting(limits: dict[str, Any], flavor: dict[str, Any]) -> dict[str, int]:
    """Return how many more servers of a flavor a project's limits allow (GET /limits, `absolute`; -1 is no limit)."""
    used = {
        "quota of instances": ("maxTotalInstances", "totalInstancesUsed", 1),
        "quota of cores": ("maxTotalCores", "totalCoresUsed", flavor["vcpus"]),
        "quota of ram": ("maxTotalRAMSize", "totalRAMUsed", flavor["ram"]),
    }
    return {
        what: max(0, limits[most] - limits[now]) // each
        for what, (most, now, each) in used.items()
        if each and limits.get(most, -1) >= 0
    }


def fitting_on(hypervisors: list[dict[str, Any]], flavor: dict[str, Any]) -> dict[str, int]:
    """Return how many more servers of a flavor fit the free memory and disk of the hypervisors.

    Processors are overcommitted by an unreported ratio, so they are left out, as is all that no hypervisor reports.
    """
    needs = {
        "memory of hypervisors": ("free_ram_mb", flavor["ram"]),
        "disks of hypervisors": ("free_disk_gb", flavor["disk"]),
    }
    found: dict[str, int] = {}
    for what, (free, each) in needs.items():
        told = [hypervisor[free] for hypervisor in hypervisors if isinstance(hypervisor.get(free), int)]
        if told and each:
            found[what] = sum(max(0, left) // each for left in told)
    return found


async def _flavor(client: OpenstackClient, entry: OpenstackEntry) -> dict[str, Any]:
    wanted = entry.target.flavor
    if wanted == MADE:
        return dict(FLAVOR)
    listed = await pages(client, "compute", "/flavors/detail", "flavors", limit="1000")
    named = [flavor for flavor in listed if wanted in (None, flavor["id"], flavor["name"])]
    # `take` reports later if several flavors match, or none.
    return min(named, key=lambda flavor: flavor["ram"], default=dict(FLAVOR))


async def _quota(client: OpenstackClient, flavor: dict[str, Any]) -> dict[str, int]:
    limits = mapping(mapping(await insist(lambda: client.get("compute", "/limits"))).get("limits"))
    return fitting(mapping(limits.get("absolute")), flavor)


async def _ports(client: OpenstackClient, project: str) -> dict[str, int]:
    """Return the ports left in Neutron's quota; each server needs one."""
    quota = await _allowed(client, "network", f"/quotas/{project}/details", "quota")
    ports = mapping(mapping(quota).get("port"))
    if not ports or ports["limit"] < 0:
        return {}
    return {"quota of ports": max(0, ports["limit"] - ports["used"] - ports["reserved"])}


async def _addresses(client: OpenstackClient, network: str) -> dict[str, int]:
    """Return the number of free IPv4 addresses of a network, which Neutron reports to admins."""
    listed = await pages(client, "network", "/networks", "networks")
    # `take` reports later if several networks match, or none.
    for identity in [each["id"] for each in listed if network in (each["id"], each["name"])]:
        key = "network_ip_availability"
        told = mapping(await _allowed(client, "network", f"/network-ip-availabilities/{identity}", key))
        free = [
            subnet["total_ips"] - subnet["used_ips"]
            for subnet in told.get("subnet_ip_availability") or ()
            if subnet["ip_version"] == 4
        ]
        if free:
            return {"addresses of the network": max(0, sum(free))}
    return {}


async def _up(client: OpenstackClient) -> int | None:
    """Return the number of compute services that are up; None if the user may not list them."""
    services = await _allowed(client, "compute", "/os-services?binary=nova-compute", "services")
    return None if services is None else sum(each["state"] == "up" for each in services)


async def _hypervisors(client: OpenstackClient, flavor: dict[str, Any]) -> dict[str, int]:
    try:
        listed = await pages(client, "compute", "/os-hypervisors/detail", "hypervisors", HYPERVISORS)
    except OpenstackError as problem:
        if not _is_untold(problem):
            raise
        return {}
    up = [each for each in listed if each.get("state") == "up" and each.get("status") == "enabled"]
    return fitting_on(up, flavor)


async def _allowed(client: OpenstackClient, service: str, path: str, key: str) -> Any:
    """Return the part of an answer below its key; None if the user may not see it."""
    try:
        return mapping(await insist(lambda: client.get(service, path))).get(key)
    except OpenstackError as problem:
        if not _is_untold(problem):
            raise
        return None


def _is_untold(problem: OpenstackError) -> bool:
    return isinstance(problem, OpenstackGone) or problem.code in (FORBIDDEN, _NO_SUCH_VERSION)
