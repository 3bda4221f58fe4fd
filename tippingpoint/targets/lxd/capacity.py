"""Checks before a stage whether the members of an LXD have room for it, by their own reports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.pool_and_network import find_site
from tippingpoint.targets.lxd.provision import access_of, greet
from tippingpoint.targets.lxd.retrying import ask, ask_unless_refused
from tippingpoint.util.patience import answers_within
from tippingpoint.util.text import show_count

BRIDGE_PORTS = 1023
"""Interfaces that fit on one bridge (BR_PORT_BITS in the kernel's net/bridge/br_private.h, less one)."""
PIDS_EACH = 3
"""Processes of a minimal container: its monitor, its init and a DHCP client."""
ONLINE_WITHIN = 30.0
"""Seconds to wait for a member that was just started to be online: three of LXD's heartbeats."""
TELLS_WITHIN = 15.0
"""Seconds to wait for a member's resources. A member that is gone counts as online for a while, but does not answer."""

_MIB = 1 << 20
_PAUSE = 0.5


@dataclass(frozen=True)
class MemberCapacity:
    """A member: the number of containers on it, and how many more fit by each kind of resource."""

    name: str
    containers: int
    more: dict[str, int]


async def check_room(entry: LxdEntry, adds: int, memory: int, members: int | None) -> None:
    """Check that this many members are online, and that this many more containers fit; UserError says how many do.

    `memory` is MiB per container, or 0 for containers that do not run, which need neither memory nor a bridge port.
    LXD does not report how many processes may run: this is checked only on this machine, when LXD is reached by its
    socket. Members that share a machine each report all of its memory. A certificate that is restricted to projects
    may not see members or containers of other projects: these are not checked. TargetError if LXD does not answer.
    """
    access = access_of(entry.target, entry.store, entry.identity)
    client = LxdClient(access)
    try:
        server = await greet(client, access)
        here: str = server["environment"].get("server_name", "")
        clustered = bool(server["environment"].get("server_clustered"))
        online = await _online(client, members or 1) if clustered else [here]
        if members is not None and online and len(online) < members:
            raise UserError("members", members, f"at most {len(online)}, the number that are online")
        if memory == 0 or adds <= 0:
            return
        capacities = await _capacities(client, entry, online, clustered, memory)
    except LxdError as problem:
        raise TargetError(access.name, str(problem), "an LXD that reports its resources") from None
    finally:
        await client.close()
    if not capacities:
        return
    if access.socket is not None:
        for member in capacities:
            if member.name == here:
                member.more["processes"] = _free_pids() // PIDS_EACH
    number, short = fitting(capacities)
    if number < adds:
        raise UserError(
            "instances",
            show_count(adds, "more container"),
            f"at most {number:,} more, for which the members have enough {short}; --force skips this check",
        )


def fitting(members: Sequence[MemberCapacity]) -> tuple[int, str]:
    """Return how many more containers fit if each goes to the emptiest member, as LXD does, and the scarce resource."""
    fits: dict[str, int] = {}
    for what in {what for member in members for what in member.more}:
        # Containers are spread evenly, so the first member to be full sets the level of all.
        level = min(member.containers + member.more[what] for member in members if what in member.more)
        fits[what] = sum(max(0, level - member.containers) for member in members)
    short = min(fits, key=lambda what: (fits[what], what))
    return fits[short], short


async def _online(client: LxdClient, wanted: int) -> list[str]:
    """Return the members on which containers can be placed, waiting a while for `wanted` of them. The list is empty if
    the client certificate may not list members."""
    loop = asyncio.get_running_loop()
    until = loop.time() + ONLINE_WITHIN
    while True:
        listed = await ask_unless_refused(client, "/1.0/cluster/members", recursion=1)
        if listed is None:
            return []
        online: list[str] = [
            member["server_name"] for member in listed if member["status"].lower() == "online"
        ]
        if len(online) >= min(wanted, len(listed)) or loop.time() > until:
            return online
        await asyncio.sleep(_PAUSE)


async def _capacities(
    client: LxdClient, entry: LxdEntry, names: list[str], clustered: bool, memory: int
) -> list[MemberCapacity]:
    """Return the members' reports of free resources; empty if the client certificate may not see them."""
    projects = entry.target.projects
    site = await find_site(client, entry.target, projects[0] if projects else "")
    bridge = await _bridge(client, site.network, {"project": projects[0]} if projects else {})
    listed = await _instances(client, projects)
    capacities: list[MemberCapacity] = []
    silent: LxdError | None = None
    for name in names:
        query = {"target": name} if clustered else {}
        try:
            async with answers_within(TELLS_WITHIN):
                resources = await ask_unless_refused(client, "/1.0/resources", **query)
        except (LxdError, TimeoutError) as problem:  # the member is gone, so it has no room
            silent = problem if isinstance(problem, LxdError) else LxdError(f"{name}: no answer", "timeout")
            continue
        if resources is None:
            return []
        there = [instance for instance in listed if not clustered or instance["location"] == name]
        free = resources["memory"]["total"] - resources["memory"]["used"]
        more = {"memory": max(0, free) // (memory * _MIB)}
        if bridge:
            more["bridge ports"] = max(0, BRIDGE_PORTS - sum(_ports(instance, bridge) for instance in there))
        capacities.append(MemberCapacity(name, len(there), more))
    if silent is not None and not capacities:
        raise silent
    return capacities


async def _instances(client: LxdClient, projects: list[str]) -> list[dict[str, Any]]:
    """List the instances of all projects, or of these projects if the client certificate sees no others."""
    query = {"recursion": 1, "all-projects": "true"}
    listed: list[dict[str, Any]] | None = await ask_unless_refused(client, "/1.0/instances", **query)
    if listed is not None:
        return listed
    seen: list[dict[str, Any]] = []
    for project in projects:
        seen += await ask(client, "/1.0/instances", recursion=1, project=project)
    return seen


async def _bridge(client: LxdClient, network: str, query: dict[str, str]) -> str:
    """Return the network if it is a bridge, on which each container takes a port; otherwise an empty text."""
    if not network:
        return ""
    found = await ask_unless_refused(client, f"/1.0/networks/{network}", **query)
    return network if found is not None and found.get("type") == "bridge" else ""


def _ports(instance: dict[str, Any], network: str) -> int:
    """Return the number of ports that an instance takes on a network's bridge."""
    if instance["status"].lower() == "stopped":
        return 0
    devices: dict[str, dict[str, str]] = instance.get("expanded_devices") or {}
    return sum(device.get("network") == network for device in devices.values())


def _free_pids() -> int:
    """Return how many more processes and threads this machine's kernel will start; see proc(5)."""
    kernel = Path("/proc/sys/kernel")
    most = min(int((kernel / name).read_text()) for name in ("pid_max", "threads-max"))
    running = Path("/proc/loadavg").read_text().split()[3].partition("/")[2]
    return max(0, most - int(running))
