"""Removal of a run's things in OpenStack: servers, ports, routers, networks, projects, user, flavor, image."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.openstack.access import from_clouds
from tippingpoint.targets.openstack.client import PATIENCE, OpenstackClient, insist
from tippingpoint.targets.openstack.errors import CONFLICT, OpenstackError, OpenstackGone
from tippingpoint.targets.openstack.ledger import OpenstackEntry
from tippingpoint.targets.openstack.provision import (
    MADE,
    NONE,
    as_answered,
    compute_versions,
    is_admin,
    mark_text,
    pages,
    told_of,
)
from tippingpoint.targets.openstack.servers import MARK, group_of, is_marked, item_of
from tippingpoint.targets.openstack.versions import SERVERS, choose
from tippingpoint.workloads.load import OnProgress, untold

AT_ONCE = 16
"""Concurrent removals."""
STUCK_AFTER = 180.0
"""Seconds without progress after which a removal ends. A restarted nova-compute reports within a minute, and only
then deletes."""

_HASTE = 5.0
"""Seconds for which failures are retried after something else has failed: both may have the same cause."""
_PAUSE = 1.0
_EVER = "1970-01-01T00:00:00Z"
_ROUTER = (
    "network:router_interface",
    "network:router_interface_distributed",
    "network:ha_router_replicated_interface",
)


async def remove(entry: OpenstackEntry, progress: OnProgress = untold) -> int:
    """Remove what remains of a run; returns the number of things removed.

    The run's things have both its prefix in their name and its mark. Servers that nova was still creating when the run
    ended are awaited. TargetError names what could not be removed. Everything that does not depend on it is gone then.
    """
    access = from_clouds(entry.target)
    client = OpenstackClient(access)
    try:
        with told_of(access.name, "an OpenStack that permits the removal"):
            await client.log_in()
            removal = _Removal(client, entry, progress)
            await removal.run()
    finally:
        await client.close()
    if entry.identity is not None:
        entry.identity.unlink(missing_ok=True)
    return removal.removed


class _Removal:
    """The removal of one run's things in the order of their dependencies; `removed` counts them."""

    def __init__(self, client: OpenstackClient, entry: OpenstackEntry, progress: OnProgress) -> None:
        self._client = client
        self._entry = entry
        self._progress = progress
        self._goal = 0
        self._everywhere: dict[str, str] = {}
        self._stuck: list[dict[str, Any]] = []
        """Servers that cannot be removed."""
        self._problems: list[OperationFailed] = []
        """Failures in the present pass over all kinds of things."""
        self.removed = 0

    async def run(self) -> None:
        """Remove everything, kind by kind, each regardless of failures of the others.

        This is repeated until two passes find nothing, because the run's last calls may still be on their way.
        Raises the first remaining problem.
        """
        admin = await is_admin(self._client)
        # An admin's list of all projects includes servers of a run whose projects are gone.
        self._everywhere = {"all_tenants": "1"} if admin else {}
        looks = 0
        while True:
            before, self._problems = self.removed, []
            for remove in self._kinds():
                try:
                    with as_answered():
                        await remove()
                except OperationFailed as problem:
                    self._problems.append(problem)
            looks += 1
            if self._problems and (self._stuck or self.removed == before):
                raise self._problems[0]
            if looks > 1 and self.removed == before:
                return
            await asyncio.sleep(_PAUSE)

    def _kinds(self) -> Iterable[Callable[[], Awaitable[None]]]:
        target = self._entry.target
        yield self._remove_servers
        if target.network == MADE:
            yield self._remove_routers
            yield self._remove_networks
        elif target.network != NONE:
            yield self._remove_ports
        if target.tenants:
            yield self._remove_projects
            yield self._remove_user
        if target.flavor == MADE:
            yield self._remove_flavor
        if target.image is not None and target.image.startswith("/"):
            yield self._remove_image

    # -- servers ---------------------------------------------------------------------------------

    async def _remove_servers(self) -> None:
        """Delete servers until no list shows one.

        A server whose status is DELETED still exists, and counts in quotas. Nova removes it one call to placement
        later.
        """
        loop = asyncio.get_running_loop()
        version = choose(SERVERS, await compute_versions(self._client))
        moved, before, asked = loop.time(), -1, dict[str, float]()
        why: OperationFailed | None = None
        while ours := await self._servers(version):
            if before < 0:
                self._goal = self.removed + len(ours)
            if len(ours) != before:
                self._count(before - len(ours))
                moved, before = loop.time(), len(ours)
            elif loop.time() - moved > STUCK_AFTER:
                self._stuck = ours
                first = f"{ours[0]['name']}: {ours[0]['status']}" + (f", {why}" if why else "")
                raise OpenstackError(f"servers are still there: {len(ours)}, such as {first}")
            now = loop.time()
            again = [
                server for server in ours if now - asked.get(server["id"], float("-inf")) > STUCK_AFTER / 3
            ]
            asked |= dict.fromkeys((server["id"] for server in again), now)
            try:
                await self._all(again, lambda server: self._delete("compute", f"/servers/{server['id']}"))
            except OperationFailed as problem:  # tried again; reported if the server never goes
                why = problem
            await asyncio.sleep(_PAUSE)
        self._count(before)

    async def _servers(self, version: tuple[int, int]) -> list[dict[str, Any]]:
        """Return the run's servers, with what the removal needs of them: as JSON, 168,000 would take a gigabyte."""

        def ours(page: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return [
                {name: server.get(name) for name in ("id", "name", "status", "tenant_id")}
                for server in page
                if item_of(self._entry.prefix, server["name"]) is not None
                and is_marked(self._entry.run, server)
            ]

        query = {"limit": "1000", "name": self._names, **self._everywhere}
        where = "compute", "/servers/detail", "servers", version, self._patience, ours
        return await pages(self._client, *where, **query)

    @property
    def _names(self) -> str:
        return f"^{self._entry.prefix}-"

    async def _remove_ports(self) -> None:
        """Remove ports that nova left behind because it was killed while removing their server.

        Lists of changes still show all servers that the run ever had.
        """
        query = {"name": self._names, **self._everywhere}
        ever = await self._list("compute", "/servers", "servers", **query, **{"changes-since": _EVER})
        there = {server["id"] for server in await self._list("compute", "/servers", "servers", **query)}
        gone = {
            server["id"]
            for server in ever
            if item_of(self._entry.prefix, server["name"]) is not None and server["id"] not in there
        }
        if gone:
            ports = await self._list("network", "/ports", "ports", fields=("id", "device_id"))
            await self._remove("network", "/ports", [port for port in ports if port["device_id"] in gone])

    # -- networks --------------------------------------------------------------------------------

    async def _remove_routers(self) -> None:
        """Remove the groups' routers, with their ports on subnets."""

        async def remove(router: dict[str, Any]) -> None:
            for port in await self._list("network", "/ports", "ports", device_id=router["id"]):
                if port.get("device_owner") in _ROUTER:
                    path = f"/routers/{router['id']}/remove_router_interface"
                    await self._delete("network", path, "PUT", {"port_id": port["id"]})
            if await self._delete("network", f"/routers/{router['id']}"):
                self._count(1)

        await self._all(self._ours(await self._list("network", "/routers", "routers")), remove)

    async def _remove_networks(self) -> None:
        """Remove the groups' networks with their subnets, when nothing uses them any more."""
        stuck = {server["id"] for server in self._stuck}

        async def remove(network: dict[str, Any]) -> None:
            ports = await self._list("network", "/ports", "ports", network_id=network["id"])
            if any(port["device_id"] in stuck for port in ports):
                return
            for port in ports:
                if await self._delete("network", f"/ports/{port['id']}"):
                    self._count(1)
            if await self._delete("network", f"/networks/{network['id']}"):
                self._count(1)

        await self._all(self._ours(await self._list("network", "/networks", "networks")), remove)

    # -- projects --------------------------------------------------------------------------------

    async def _remove_projects(self) -> None:
        """Remove the groups' projects, except one with a stuck server.

        Default security groups and quotas are removed, too, which Neutron and Nova would keep.
        """
        kept = {server.get("tenant_id") for server in self._stuck}

        async def remove(project: dict[str, Any]) -> None:
            identity = project["id"]
            groups = await self._list("network", "/security-groups", "security_groups", project_id=identity)
            for group in groups:
                await self._delete("network", f"/security-groups/{group['id']}")
            await self._delete("network", f"/quotas/{identity}")
            await self._delete("compute", f"/os-quota-sets/{identity}")
            if await self._delete("identity", f"/projects/{identity}"):
                self._count(1)

        projects = self._ours(await self._list("identity", "/projects", "projects"))
        await self._all([project for project in projects if project["id"] not in kept], remove)

    async def _remove_user(self) -> None:
        described = mark_text(self._entry.run)
        users = await self._list("identity", "/users", "users", name=self._entry.prefix)
        await self._remove(
            "identity", "/users", [user for user in users if user.get("description") == described]
        )

    # -- image and flavor of the servers ---------------------------------------------------------

    async def _remove_flavor(self) -> None:
        flavors = await self._list("compute", "/flavors/detail", "flavors", is_public="None")
        ours = [flavor for flavor in flavors if flavor["name"] == self._entry.prefix]
        await self._remove("compute", "/flavors", ours)

    async def _remove_image(self) -> None:
        images = await self._list("image", "/images", "images", name=self._entry.prefix)
        ours = [image for image in images if image.get(MARK) == self._entry.run]
        await self._remove("image", "/images", ours)

    # -- common parts ----------------------------------------------------------------------------

    async def _list(
        self,
        service: str,
        path: str,
        key: str,
        version: tuple[int, int] | None = None,
        /,
        **query: str | tuple[str, ...],
    ) -> list[dict[str, Any]]:
        if service != "identity":  # it has no pages
            query = {"limit": "1000", **query}
        return await pages(self._client, service, path, key, version, self._patience, **query)

    @property
    def _patience(self) -> float:
        return _HASTE if self._problems else PATIENCE

    def _ours(self, listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return those of a list that belong to groups and carry the run's mark."""
        described = mark_text(self._entry.run)
        return [
            each
            for each in listed
            if group_of(self._entry.prefix, each["name"]) is not None and each.get("description") == described
        ]

    async def _remove(self, service: str, path: str, things: list[dict[str, Any]]) -> None:
        async def remove(thing: dict[str, Any]) -> None:
            if await self._delete(service, f"{path}/{thing['id']}"):
                self._count(1)

        await self._all(things, remove)

    async def _delete(self, service: str, path: str, method: str = "DELETE", body: object = None) -> bool:
        """Delete a thing; returns whether it existed. Refusals while in use are retried: Neutron frees ports late."""

        async def send() -> None:
            try:
                await self._client.send(method, service, path, body)
            except OpenstackError as problem:
                if service != "compute" or problem.code != CONFLICT:  # a conflict there: it is being deleted
                    raise

        try:
            await insist(send, self._patience)
        except OpenstackGone:
            return False
        return True

    async def _all(
        self, things: Iterable[dict[str, Any]], do: Callable[[dict[str, Any]], Awaitable[Any]]
    ) -> None:
        """Do it with each thing, several at a time, regardless of failures of others; raises the first problem."""
        left, problems = iter(things), list[Exception]()

        async def remover() -> None:
            for thing in left:
                try:
                    await do(thing)
                except Exception as problem:
                    problems.append(problem)

        # A task each would take half a gigabyte for 168,000 servers.
        await asyncio.gather(*(remover() for _ in range(AT_ONCE)))
        if problems:
            raise problems[0]

    def _count(self, more: int) -> None:
        if more > 0:
            self.removed += more
            self._progress("servers and their resources", self.removed, max(self._goal, self.removed))
