"""Containers in the projects of an LXD cluster or single server, for the spawn workload."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from tippingpoint.errors import TargetError
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError
from tippingpoint.targets.lxd.pool_and_network import find_site
from tippingpoint.targets.lxd.product import named_version
from tippingpoint.targets.lxd.provision import (
    MARK,
    access_of,
    delete_instance,
    instance_name,
    is_marked,
    make_group,
    number_of,
    project_name,
)
from tippingpoint.targets.lxd.retrying import ask_unless_refused
from tippingpoint.targets.lxd.workspace import LxdPlace, LxdWorkspace
from tippingpoint.workloads.load import OnProgress, TargetFacts
from tippingpoint.workloads.spawn.at_once import make_all
from tippingpoint.workloads.spawn.target import Item, MemberSeen, Seen, SpawnFailed

STALE_FOR = 20.0
"""Seconds, two rounds of heartbeats, in which members that LXD reports as offline may in fact be online. They begin
when LXD does not answer, reports nobody online, or gets another leader. LXD 5.0.2 after a regained quorum first
reported all members offline, even the one that answered, then one after the other online, for 3 to 6 s."""

_LEADS = "database-leader"
_AT_ONCE = 4
"""Projects created concurrently; more are no faster in a cluster."""
_LEASING = ("bridge", "ovn")
_EXEC: dict[str, Any] = {
    "wait-for-websocket": False,
    "interactive": False,
    "record-output": False,
    "environment": {},
}


class LxdInstances:
    """One worker's access to LXD. The worker's number chooses the member it calls first.

    A container's name is PREFIX-GROUP-NUMBER, in the project PREFIX-GROUP or the one that the plan names for the
    group. Containers of others in it are ignored. The constructor raises UserError if a credentials file is unusable.
    """

    waits_with_members = True

    def __init__(self, workspace: LxdWorkspace, worker: int) -> None:
        self._workspace = workspace
        access = access_of(workspace.target, workspace.store, workspace.identity)
        self._name = access.name
        self._client = LxdClient(access, prefer=worker)
        self._server = ""
        self._clustered = False
        self._located: set[str] = set()
        self._lists_all_operations = False
        self._has_leases = False
        self._leader = ""
        self._stale_until = 0.0
        self._observations: dict[str, Callable[[int, Item | None], Awaitable[bool]]] = {
            "cluster-list": self._cluster_list,
            "list-fast": self._list_fast,
            "list": self._list,
            "operation-list": self._operation_list,
            "exec": self._exec_there,
            "network-leases": self._network_leases,
            "network-list": self._network_list,
        }

    async def open(self) -> TargetFacts:
        """Connect, and learn the cluster's other members; TargetError if LXD refuses the client."""
        server = await self._client.server()
        environment: dict[str, Any] = server["environment"]
        self._clustered = bool(environment.get("server_clustered"))
        self._server = str(environment.get("server_name") or self._name)
        self._lists_all_operations = "operations_get_query_all_projects" in server["api_extensions"]
        names = [self._server]
        try:
            if self._clustered and self._lists_members:
                members = await self._client.get("/1.0/cluster/members", recursion=1)
                names = sorted(member["server_name"] for member in members)
                self._client.add_addresses(member["url"] for member in members)
            if network := self._workspace.network:
                found = await ask_unless_refused(self._client, f"/1.0/networks/{network}", **self._beside())
                self._has_leases = found is not None and found.get("type") in _LEASING
        except LxdError as problem:
            raise TargetError(self._name, str(problem), "an LXD that answers") from None
        return TargetFacts("lxd", named_version(environment), names, self._name)

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        """Create the projects of these groups, each with its profile, unless they exist."""
        if self._workspace.places:
            return
        site = await find_site(self._client, self._workspace.target)
        at_once, made = asyncio.Semaphore(_AT_ONCE), 0

        async def make(group: int) -> None:
            nonlocal made
            async with at_once:
                await make_group(self._client, self._workspace, site, group)
            made += 1
            progress("projects", made, len(groups))

        await make_all(groups, make)

    async def create(self, item: Item, member: str | None) -> None:
        """Create a container, not started: on that member, or where LXD puts it."""
        query = self._project(item.group)
        if member is not None and self._clustered:
            query["target"] = member
        place, config = self._place(item.group), {MARK: self._workspace.run}
        image = self._workspace.image if place is None else place.image
        wanted: dict[str, Any] = {
            "name": self._instance(item),
            "source": {"type": "image", "fingerprint": image},
            "profiles": ["default"],
            "config": config,
        }
        if place is not None:  # its profile must not be changed
            wanted |= {"config": self._workspace.target.profile | config, "devices": place.devices}
        await self._client.operate("POST", "/1.0/instances", wanted, **query)

    async def start(self, item: Item) -> str:
        """Start it; no error if it runs already. The next list shows on which member."""
        path, query = f"/1.0/instances/{self._instance(item)}/state", self._project(item.group)
        try:
            await self._client.operate("PUT", path, {"action": "start", "timeout": -1}, **query)
        except LxdError as problem:
            if "already running" not in str(problem):
                raise
        return ""

    def is_failed(self, item: Item) -> bool:
        """Return False: a container that did not start may start the next time."""
        return False

    async def probe(self, item: Item) -> None:
        """Run a shell in it that ends at once; fails unless its exit code is 0."""
        await self._run(item, ["/bin/sh", "-c", "true"])

    async def delete(self, item: Item) -> None:
        """Stop and remove it; no error if it does not exist."""
        await delete_instance(self._client, self._project(item.group)["project"], self._instance(item))

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        """List the run's containers in a group's project, by one call; link-local addresses do not count."""
        listed = await self._instances(group, recursion=2 if addresses else 1)
        with _as_lxd_lists("instances"):
            ours = {
                Item(group, number): Seen(
                    running=(status := instance["status"].lower()) == "running",
                    member=instance["location"] if self._clustered else self._server,
                    address=addresses and _has_address(instance.get("state")),
                    unclear=status == "error",  # LXD could not determine it: see fill.SETTLES
                )
                for instance in listed
                if (number := number_of(self._workspace.prefix, group, instance["name"])) is not None
                and is_marked(self._workspace.run, instance)
            }
        self._located |= {seen.member for seen in ours.values()}
        return ours

    async def members(self) -> list[MemberSeen]:
        """List the cluster's members; a single server is one, under its own name.

        If the client certificate may not list members, only those with containers of the run are known.
        """
        if not self._clustered or not self._lists_members:
            await self._client.get("/1.0")
            return [MemberSeen(name, online=True) for name in sorted({self._server} | self._located)]
        now = asyncio.get_running_loop().time
        try:
            listed = await self._client.get("/1.0/cluster/members", recursion=1)
        except BaseException:  # also after a timeout
            self._stale_until = now() + STALE_FOR
            raise
        with _as_lxd_lists("members"):
            leader = next((each["server_name"] for each in listed if _LEADS in (each.get("roles") or ())), "")
            statuses: dict[str, str] = {each["server_name"]: each["status"].lower() for each in listed}
            addresses = {
                each["server_name"]: urlsplit(each.get("url") or "").hostname or "" for each in listed
            }
        if leader != self._leader or all(status == "offline" for status in statuses.values()):
            self._stale_until = now() + STALE_FOR
            self._leader = leader
        stale = now() < self._stale_until
        return [
            MemberSeen(
                name,
                status != "offline",
                name == leader,
                takes=status == "online",
                stale=stale,
                address=addresses[name],
            )
            for name, status in statuses.items()
        ]

    async def evict(self, member: str) -> None:
        """Remove a member by force, with everything on it; no error if it is not a member any more."""
        try:
            await self._client.operate("DELETE", f"/1.0/cluster/members/{member}", force=1)
        except LxdError as problem:
            if problem.code != 404:
                raise

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        """Make one of OBSERVATIONS, and return whether it was possible.

        Lists are of a group's project, and `exec` runs in `running`. The result is False, without a call, if LXD
        refuses the observation to the client certificate.
        """
        if what in self._workspace.refused:
            return False
        return await self._observations[what](group, running)

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    @property
    def _lists_members(self) -> bool:
        """Whether the client certificate may list members."""
        return "cluster-list" not in self._workspace.refused

    async def _cluster_list(self, group: int, running: Item | None) -> bool:
        if self._clustered:
            await self._client.get("/1.0/cluster/members", recursion=1)
        return self._clustered

    async def _list_fast(self, group: int, running: Item | None) -> bool:
        await self._instances(group, recursion=1)
        return True

    async def _list(self, group: int, running: Item | None) -> bool:
        await self._instances(group, recursion=2)
        return True

    async def _operation_list(self, group: int, running: Item | None) -> bool:
        everywhere = self._lists_all_operations and not self._workspace.places
        query = {"all-projects": "true"} if everywhere else self._project(group)
        await self._client.get("/1.0/operations", recursion=1, **query)
        return True

    async def _exec_there(self, group: int, running: Item | None) -> bool:
        if running is not None:
            await self._run(running, ["echo", "tippingpoint"])
        return running is not None

    async def _network_leases(self, group: int, running: Item | None) -> bool:
        if self._has_leases:
            await self._client.get(f"/1.0/networks/{self._workspace.network}/leases", **self._project(group))
        return self._has_leases

    async def _network_list(self, group: int, running: Item | None) -> bool:
        await self._client.get("/1.0/networks", recursion=1, **self._beside())
        return True

    async def _instances(self, group: int, recursion: int) -> list[dict[str, Any]]:
        return await self._client.get("/1.0/instances", recursion=recursion, **self._project(group))

    async def _run(self, item: Item, command: list[str]) -> None:
        """Run a program in a container; SpawnFailed unless its exit code is 0."""
        path = f"/1.0/instances/{self._instance(item)}/exec"
        ended = await self._client.operate(
            "POST", path, {"command": command, **_EXEC}, **self._project(item.group)
        )
        if (code := ended.get("return")) != 0:
            raise SpawnFailed(f"{' '.join(command)}: ended with {code}: expected 0")

    def _project(self, group: int) -> dict[str, str]:
        place = self._place(group)
        return {"project": project_name(self._workspace.prefix, group) if place is None else place.project}

    def _place(self, group: int) -> LxdPlace | None:
        """Return the project that the plan names for a group; None if the run creates it."""
        return self._workspace.places[group] if self._workspace.places else None

    def _beside(self) -> dict[str, str]:
        """Return the query of calls that concern no group: the first project, if the plan names projects."""
        return self._project(0) if self._workspace.places else {}

    def _instance(self, item: Item) -> str:
        return instance_name(self._workspace.prefix, item.group, item.number)


@contextmanager
def _as_lxd_lists(what: str) -> Generator[None]:
    """Raise SpawnFailed for an answer that is JSON, but not a list in LXD's form."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise SpawnFailed(f"an invalid list of {what}: {problem}") from None


def _has_address(state: dict[str, Any] | None) -> bool:
    networks: dict[str, dict[str, Any]] = (state or {}).get("network") or {}
    return any(
        address.get("scope") == "global"
        for name, network in networks.items()
        if name != "lo"
        for address in network.get("addresses") or ()
    )
