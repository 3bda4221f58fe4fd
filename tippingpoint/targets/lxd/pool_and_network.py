"""The pool and the network of containers, from the plan or from an existing project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tippingpoint.errors import UserError
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.lxd.retrying import ask, ask_unless_refused, last, one_of

Devices = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Site:
    """The devices of containers."""

    devices: Devices
    """At least a root disk on a pool."""
    network: str
    """The network of their first interface; empty without one, or if it is on a bridge that LXD does not manage."""
    known: Devices
    """The devices that they have from the existing profile."""

    @property
    def has_network(self) -> bool:
        """Whether they have any interface, on any network."""
        return any(device["type"] == "nic" for device in self.devices.values())

    @property
    def added(self) -> Devices:
        """The devices that they need beside the existing profile."""
        return {name: device for name, device in self.devices.items() if self.known.get(name) != device}


async def find_site(client: LxdClient, target: LxdTarget, project: str = "") -> Site:
    """Return the pool and the network that the plan names, else those of the profile `default`.

    The profile is the server's, or the project's if one is given.
    In a project whose profile has none, the only existing pool or network is used. UserError if one does not exist,
    naming those that do, or if the client certificate sees nothing but its own projects.
    """
    query = {"project": project} if project else {}
    known = await _devices(client, target, query)
    roots = {name: device for name, device in known.items() if _is_root(device)}
    root, disk = next(iter(roots.items()), ("root", {"type": "disk", "path": "/"}))
    pool = await _pool(client, target, disk.get("pool"), query)
    nics = _nics(known)
    if target.network is not None or (project and not nics):
        network = await _network(client, target, query)
        nics = {"eth0": {"type": "nic", "name": "eth0", "network": network}} if network else {}
    return Site({root: {**disk, "pool": pool}, **nics}, _first_network(nics), known)


async def find_network(client: LxdClient, target: LxdTarget, project: str) -> str:
    """Return the network of containers in an existing project, as find_site() does; empty if none is known.

    UserError if the plan's network does not exist, or the client certificate may not use the project.
    """
    query = {"project": project}
    nics = _nics(await _devices(client, target, query))
    if target.network is None and nics:
        return _first_network(nics)
    return await _network(client, target, query)


async def find_projects(client: LxdClient, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the settings of these projects; UserError if one does not exist or the client may not use it."""
    if not names:
        return {}
    there: dict[str, dict[str, str]] = {
        project["name"]: project.get("config") or {}
        for project in await ask(client, "/1.0/projects", recursion=1)
    }
    for name in names:
        if name not in there:
            raise UserError(
                "target.projects", name, f"{one_of([*there])}, which the client certificate may use"
            )
    return {name: there[name] for name in names}


async def _devices(client: LxdClient, target: LxdTarget, query: dict[str, str]) -> Devices:
    """Return the devices of a profile `default`."""
    profile = await ask_unless_refused(client, "/1.0/profiles/default", **query)
    if profile is None:
        raise await _beyond_us(client, target)
    return profile.get("devices") or {}


def _nics(devices: Devices) -> Devices:
    return {name: device for name, device in devices.items() if device.get("type") == "nic"}


def _first_network(nics: Devices) -> str:
    first = "eth0" if "eth0" in nics else next(iter(nics), "")
    return nics[first].get("network", "") if first else ""


async def _beyond_us(client: LxdClient, target: LxdTarget) -> UserError:
    """Return the error for a certificate that is restricted to projects when the plan names no projects."""
    ours = [last(url) for url in await ask_unless_refused(client, "/1.0/projects") or ()]
    accepted = f"{one_of(ours)}, or several, as the client certificate is restricted to projects"
    return UserError("target.projects", ", ".join(target.projects) or "missing", accepted)


async def _pool(client: LxdClient, target: LxdTarget, of_profile: str | None, query: dict[str, str]) -> str:
    listed = await ask_unless_refused(client, "/1.0/storage-pools", **query)
    pools = [last(url) for url in listed or ()]
    pool = target.pool if target.pool is not None else of_profile
    if pool is None and query and len(pools) == 1:
        pool = pools[0]
    if pool is None:
        known = (
            one_of(pools) if listed is not None else "a pool's name, as the client certificate may list none"
        )
        raise UserError("target.pool", "missing", f"{known}: the profile default has no root disk")
    if listed is not None and pool not in pools:
        raise UserError("target.pool", pool, one_of(pools))
    return pool


async def _network(client: LxdClient, target: LxdTarget, query: dict[str, str]) -> str:
    """Return the plan's network, else the only existing one; empty if there is none, or several."""
    listed: list[dict[str, Any]] | None = await ask_unless_refused(
        client, "/1.0/networks", recursion=1, **query
    )
    networks = [network["name"] for network in listed or () if network.get("managed")]
    if target.network is None:
        return networks[0] if len(networks) == 1 else ""
    if listed is not None and target.network not in networks:
        raise UserError("target.network", target.network, one_of(networks))
    return target.network


def _is_root(device: dict[str, str]) -> bool:
    return device.get("type") == "disk" and device.get("path") == "/"
