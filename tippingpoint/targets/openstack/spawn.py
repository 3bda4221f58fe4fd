"""Servers in the projects of an OpenStack, for the spawn workload."""

from __future__ import annotations

import asyncio
import itertools
from asyncio import Future, Task
from collections.abc import Coroutine, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.openstack.access import from_clouds
from tippingpoint.targets.openstack.client import OpenstackClient, insist, mapping
from tippingpoint.targets.openstack.errors import (
    OpenstackError,
    OpenstackExists,
    OpenstackGone,
    OpenstackMissing,
    fault_of,
    untold,
)
from tippingpoint.targets.openstack.provision import MADE, NONE, Group, access_of_user
from tippingpoint.targets.openstack.servers import (
    MARK,
    ListedServers,
    Server,
    Servers,
    names_of_many,
    read_page,
    server_name,
)
from tippingpoint.targets.openstack.versions import offered, show_version
from tippingpoint.targets.openstack.workspace import OpenstackWorkspace
from tippingpoint.workloads.load import OnProgress, TargetFacts
from tippingpoint.workloads.spawn.at_once import make_all
from tippingpoint.workloads.spawn.target import Item, MemberSeen, Seen, SpawnFailed

MEMBERS_EVERY = 5.0
"""The minimum seconds between two queries of nova's services and Neutron's agents. These report every 10 s (agents
every 30 s), and count as down after 60 s (75 s) without a report."""
PAGE = 1000
"""Servers on a page of a list; nova's own maximum (osapi_max_limit)."""

IN_DOUBT = 60.0
"""Seconds to wait for a cancelled call that creates servers, because nova continues it regardless."""

_SETTLES = 30.0
"""Seconds after a time without any compute up, until no more faults from that time appear. Lists, queries of faults and
queries of services are each a few seconds late."""
_LATE = 1.0
"""Seconds that the workload's next list may be late before a list is made here."""
_AT_ONCE = 4
"""Groups created, or faults queried, concurrently."""
_EXPLAINED_WITHIN = 10.0
"""Seconds to wait for a server's fault, because other queries wait for it."""
_OBSERVED = {
    "server-list": ("compute", f"/servers/detail?limit={PAGE}"),
    "flavor-list": ("compute", "/flavors/detail"),
    "image-list": ("image", "/images"),
    "network-list": ("network", "/networks"),
    "service-list": ("compute", "/os-services"),
    "agent-list": ("network", "/agents"),
}
_AS_ADMIN = ("service-list", "agent-list")


@dataclass
class _Place:
    """A group: its servers, their project and network, and the futures that wait for them."""

    servers: Servers
    project: str
    """Id of the project that the run created for it; empty for the cloud's own."""
    network: str
    active: dict[Item, Future[None]] = field(default_factory=dict[Item, Future[None]])
    gone: dict[str, Future[None]] = field(default_factory=dict[str, Future[None]])


class OpenstackServers:
    """One worker's access to an OpenStack, based on lists: one call, however many servers change.

    A server counts as started when a list shows it ACTIVE, and as deleted when no list shows it any more.
    `poll_every` is the workload's interval between lists in seconds. When the workload makes no lists, awaited servers
    are listed here at the same interval. The constructor raises UserError if a credentials file is unusable.
    """

    waits_with_members = False
    """Calls do not hang with the member that they concern: services answer for it."""

    def __init__(self, workspace: OpenstackWorkspace, poll_every: float) -> None:
        self._workspace = workspace
        self._poll_every = poll_every
        self._access = from_clouds(workspace.target)
        self._client = OpenstackClient(self._access)
        self._as_user = self._client
        if workspace.user and workspace.identity is not None:
            self._as_user = OpenstackClient(access_of_user(self._access, workspace.user, workspace.identity))
        self._places: dict[int, _Place] = {}
        self._listing = asyncio.Lock()
        self._list_began = self._listed = float("-inf")
        self._watch: Task[None] | None = None
        self._doubted: set[Item] = set()
        self._posts: dict[Item, Task[None]] = {}
        """Calls under way that create servers, by each of the servers. A cancelled call continues."""
        self._failed: set[str] = set()
        """Servers whose failure was reported, and servers that took too long. If a broker is killed, its messages
        are lost, and nova waits for them for ever."""
        self._explaining = asyncio.Semaphore(_AT_ONCE)
        self._due: dict[int, list[tuple[Item, Future[Task[None]]]]] = {}
        self._tasks: set[Task[Any]] = set()
        self._hosts: set[str] = set()
        self._seen: tuple[float, list[MemberSeen]] = (float("-inf"), [])
        self._none_up = float("-inf")
        """When no compute was known to be up."""
        self._agents: dict[tuple[str, str], bool] = {}
        self._look: Task[None] | None = None
        self._events: list[tuple[str, dict[str, Any]]] = []

    async def open(self) -> TargetFacts:
        """Log in, and read the compute hosts; TargetError if the cloud refuses the login."""
        await self._client.log_in()
        try:
            members = await insist(self.members)
            has = offered(await insist(lambda: self._client.root("compute")))
        except SpawnFailed as problem:
            raise TargetError(self._access.name, str(problem), "an OpenStack that answers") from None
        version = f"compute API {show_version(has[1])}" if has is not None else ""
        return TargetFacts("openstack", version, [member.name for member in members], self._access.name)

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        """Create the groups' own resources, unless they exist."""
        at_once, made = asyncio.Semaphore(_AT_ONCE), 0
        maker = Group(self._client, self._access, self._workspace)

        async def make(group: int) -> None:
            nonlocal made
            async with at_once:
                project, network = await maker.make(group)
            servers = Servers(self._workspace.prefix, self._workspace.run, group)
            self._places.setdefault(group, _Place(servers, project, network))
            made += 1
            if self._workspace.target.tenants or self._workspace.target.network == MADE:
                progress("tenants" if self._workspace.target.tenants else "networks", made, len(groups))

        try:
            await make_all(groups, make)
        finally:
            await maker.close()

    async def create(self, item: Item, member: str | None) -> None:
        """Have nova accept the creation of a server, on any host; it starts by itself.

        If the plan says so, several servers that are due at the same moment are created by one call.
        """
        place = self._places[item.group]
        if item in self._posts:
            await _ended([self._posts[item]])
        if item in self._doubted:
            # An answer was lost: its effect must be known before another server is created.
            await self._list()
            self._doubted.discard(item)
        if place.servers.get(item) is not None or place.servers.is_expected(item):
            raise OpenstackExists(f"{server_name(self._workspace.prefix, item)}: already exists", "busy")
        if self._workspace.target.multi_create == 1:
            await asyncio.shield(self._post([item]))
            return
        sent: Future[Task[None]] = asyncio.get_running_loop().create_future()
        due = self._due.setdefault(item.group, [])
        due.append((item, sent))
        if len(due) == 1:
            asyncio.get_running_loop().call_soon(self._post_together, item.group)
        await asyncio.shield(await sent)

    async def start(self, item: Item) -> str:
        """Wait until a list shows it ACTIVE; returns its host. Raises the server's fault if it ends in ERROR.

        A server that is shut off is started.
        """
        place = self._places[item.group]
        server = place.servers.get(item)
        if server is None and not place.servers.is_expected(item):
            raise OpenstackGone(f"{server_name(self._workspace.prefix, item)}: does not exist")
        if server is not None:
            if server.status == "ACTIVE":
                return server.host
            if server.fault is not None:
                self._failed.add(server.id)
                raise self._as_seen(server.fault)
            self._failed.discard(server.id)
            if server.status == "SHUTOFF":
                path = f"/servers/{server.id}/action"
                await self._as_user.send("POST", "compute", path, {"os-start": None}, project=place.project)
        try:
            await self._until(place.active, item)
        except asyncio.CancelledError:
            self._failed |= {
                each.id for each in place.servers.all_of(item) if each.status in ("BUILD", "ERROR")
            }
            raise
        started = place.servers.get(item)
        return started.host if started is not None else ""

    def is_failed(self, item: Item) -> bool:
        """Whether its fault was reported, or waiting for it timed out."""
        server = self._places[item.group].servers.get(item)
        return server is not None and server.id in self._failed

    async def probe(self, item: Item) -> None:
        """Do nothing: nothing is run in servers."""

    async def delete(self, item: Item) -> None:
        """Delete it, and wait until no list shows it; no error if it does not exist."""
        place = self._places[item.group]
        if place.servers.is_expected(item):
            await self._list()
        for server in place.servers.all_of(item):
            try:
                path = f"/servers/{server.id}"
                await self._as_user.send("DELETE", "compute", path, project=place.project)
            except OpenstackGone:
                place.servers.forget(server.id)
                continue
            if server.status == "ERROR":
                self._failed.add(server.id)
            await self._until(place.gone, server.id)

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        """List the run's servers in a group: mostly the changes, by one call, and now and then everything."""
        await self._list()
        return ListedServers(self._places[group].servers)

    async def members(self) -> list[MemberSeen]:
        """List the hosts of nova's compute services, and note Neutron's agents, at most every MEMBERS_EVERY seconds.

        In between, the last answer is returned as stale. Without an admin's rights only hosts with servers of the run
        are known.
        """
        if not self._workspace.admin:
            return [MemberSeen(name, online=True) for name in sorted(self._hosts) if name]
        now = asyncio.get_running_loop().time()
        if now - self._seen[0] >= MEMBERS_EVERY:
            services = await self._client.get("compute", "/os-services?binary=nova-compute")
            with _as_listed("services"):
                seen = [
                    MemberSeen(each["host"], each["state"] == "up", takes=each["status"] == "enabled")
                    for each in services["services"]
                ]
            self._seen = now, [replace(member, stale=True) for member in seen]
            if seen and not any(member.online for member in seen):
                self._none_up = now
            if self._look is None or self._look.done():
                self._look = self._aside(self._look_at_agents())
            return seen
        return self._seen[1]

    async def evict(self, member: str) -> None:
        """Refuse: moving the servers of a lost host is the administrator's task."""
        raise SpawnFailed(f"{member}: OpenStack cannot remove a host", "setting")

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        """Make one of SERVER_OBSERVATIONS, in the group's project if it concerns one.

        Returns False if it was not possible: the catalogue lacks the service, or only an admin may call it.
        """
        if what in _AS_ADMIN and not self._workspace.admin:
            return False
        service, path = _OBSERVED[what]
        place = self._places.get(group)
        try:
            if what in _AS_ADMIN or place is None:
                await self._client.get(service, path)
            else:
                await self._as_user.get(service, path, project=place.project)
        except OpenstackMissing:
            return False
        return True

    def take_events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the changes of Neutron's agents since the last call: `agent` with its kind, host, and whether it is
        alive."""
        taken, self._events = self._events, []
        return taken

    async def close(self) -> None:
        """Close every connection, after waiting for calls that create servers, IN_DOUBT seconds at most.

        A removal after this finds all servers.
        """
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._posts:
            await _ended(self._posts.values())
        if self._as_user is not self._client:
            await self._as_user.close()
        await self._client.close()

    # -- calls -----------------------------------------------------------------------------------

    def _post_together(self, group: int) -> None:
        """Send the creations that are due now, several servers of consecutive numbers in one call."""
        due = sorted((each for each in self._due.pop(group) if not each[1].done()), key=lambda each: each[0])
        most = self._workspace.target.multi_create
        # For consecutive numbers, number minus position is constant.
        for _, run in itertools.groupby(enumerate(due), key=lambda each: each[1][0].number - each[0]):
            together = [each for _, each in run]
            for begin in range(0, len(together), most):
                several = together[begin : begin + most]
                post = self._post([item for item, _ in several])
                for _, sent in several:
                    sent.set_result(post)

    def _post(self, items: list[Item]) -> Task[None]:
        """Create servers of consecutive numbers by one call. Shield it: a cancelled call may have created them, and is
        awaited before they are created again."""
        post = asyncio.get_running_loop().create_task(self._post_now(items))
        self._posts |= dict.fromkeys(items, post)
        return post

    async def _post_now(self, items: list[Item]) -> None:
        first, count = items[0], len(items)
        workspace, place = self._workspace, self._places[first.group]
        name = (
            server_name(workspace.prefix, first)
            if count == 1
            else names_of_many(workspace.prefix, first, count)
        )
        server: dict[str, Any] = {
            "name": name,
            "imageRef": workspace.image,
            "flavorRef": workspace.flavor,
            "metadata": {MARK: workspace.run},
            "networks": NONE if workspace.target.network == NONE else [{"uuid": place.network}],
        }
        if count > 1:
            server |= {"min_count": count, "max_count": count}
        try:
            answer = await self._as_user.send(
                "POST",
                "compute",
                "/servers",
                {"server": server},
                project=place.project,
                version=workspace.version,
            )
        except asyncio.CancelledError:
            self._doubted |= {*items}
            raise
        except OpenstackError as problem:
            if problem.kind in ("unreachable", "timeout", "other"):
                self._doubted |= {*items}
            raise
        finally:
            for item in items:
                del self._posts[item]
        identity = mapping(mapping(answer).get("server")).get("id")
        if not isinstance(identity, str):
            raise OpenstackError("POST compute /servers: an answer without a server")
        now = asyncio.get_running_loop().time()
        for item in items:
            place.servers.made(item, identity if count == 1 else "", now)

    async def _list(self) -> None:
        """Start a new list of all of this worker's groups, because a list under way misses later changes.

        An admin lists all projects of the run together. One by one, 500 lists of 20 ms each would be most of the load.
        Concurrent callers share the next list.
        """
        loop = asyncio.get_running_loop()
        asked = loop.time()
        async with self._listing:
            if self._list_began >= asked:
                return
            if len(self._places) > 1:
                await asyncio.sleep(self._list_began + self._poll_every - asked)
            now = loop.time()
            sinces = [place.servers.since(now) for place in self._places.values()]
            known = [since for since in sinces if since is not None]
            since = min(known) if len(known) == len(sinces) else None
            listed, answered = await self._list_since(since)
            took = loop.time() - now
            by_group: dict[int, list[Server]] = {group: [] for group in self._places}
            for server in listed:
                if server.item.group in by_group:
                    by_group[server.item.group].append(server)
                self._hosts.add(server.host)
            for group, place in self._places.items():
                of_group = by_group[group]
                place.servers.see(of_group, whole=since is None, answered=answered, now=now, took=took)
            self._list_began, self._listed = now, loop.time()
        for place in self._places.values():
            self._tell(place)
            for identity in place.servers.take_unexplained():
                self._aside(self._explain(place, identity))
            for server in place.servers.surplus:
                self._aside(self._remove_surplus(place, server))

    async def _list_since(self, since: str | None) -> tuple[list[Server], datetime | None]:
        """Return the changes since a moment, or everything, and when nova answered the first page.

        Each page is reduced at once to what matters: as JSON 168,000 servers would take a gigabyte.
        """
        query = f"/servers/detail?limit={PAGE}&name=%5E{self._workspace.prefix}-"
        query += f"&changes-since={since}" if since is not None else ""
        query += "&all_tenants=1" if self._workspace.user else ""
        listed: list[Server] = []
        marker, answered = "", None
        while True:
            answer, date = await self._client.call(
                "GET", "compute", query + marker, version=self._workspace.version
            )
            answered = answered or date
            with _as_listed("servers"):
                page: list[dict[str, Any]] = answer["servers"]
                listed += read_page(self._workspace.prefix, self._workspace.run, page)
                if not page or not answer.get("servers_links"):
                    return listed, answered
                marker = f"&marker={page[-1]['id']}"

    async def _explain(self, place: _Place, identity: str) -> None:
        """Query one server for its fault.

        If nova shows none yet, query again after a pause, because a server is in ERROR a moment before its fault is
        shown. If there is no answer, query again after the next list.
        """
        fault: OpenstackError | None = None
        for pause in (0.0, self._poll_every):
            await asyncio.sleep(pause)
            async with self._explaining:
                server = place.servers.by_id(identity)
                if server is None or not server.is_unexplained:
                    return
                path, version = f"/servers/{identity}", self._workspace.version
                try:
                    async with asyncio.timeout(_EXPLAINED_WITHIN):
                        answer = await self._client.get("compute", path, version=version)
                except (OperationFailed, TimeoutError):
                    place.servers.leave_unexplained(identity)
                    return
            fault = fault_of(mapping(mapping(answer).get("server")))
            if fault is not None:
                break
        place.servers.explain(identity, fault or untold())
        server = place.servers.by_id(identity)
        if server is not None and server.item in place.active:
            self._tell_active(place, server.item)
        if identity in place.gone:
            self._tell_gone(place, identity)

    def _as_seen(self, fault: OpenstackError) -> OpenstackError:
        """Return the fault as a temporary one if it says that there is no room at a time without any compute up."""
        if fault.kind == "full" and asyncio.get_running_loop().time() - self._none_up < _SETTLES:
            return OpenstackError(str(fault), "unreachable")
        return fault

    async def _remove_surplus(self, place: _Place, server: Server) -> None:
        """Remove a server whose name an older one has, which happens when an answer was lost."""
        place.servers.forget(server.id)  # unless a list shows it again
        with suppress(OperationFailed):
            await self._as_user.send("DELETE", "compute", f"/servers/{server.id}", project=place.project)

    async def _look_at_agents(self) -> None:
        """Record changes of agents, if the cloud reports any. Neutron's failures show in observations."""
        with suppress(OperationFailed), _as_listed("agents"):
            answer = await self._client.get("network", "/agents?fields=agent_type&fields=host&fields=alive")
            for agent in answer["agents"]:
                which, alive = (str(agent["agent_type"]), str(agent["host"])), bool(agent["alive"])
                if self._agents.get(which, True) != alive:
                    self._events.append(("agent", {"agent": which[0], "host": which[1], "alive": alive}))
                self._agents[which] = alive

    # -- waits -----------------------------------------------------------------------------------

    async def _until(self, waits: dict[Any, Future[None]], what: Any) -> None:
        """Wait until a list shows it; SpawnFailed if a list shows that this cannot happen."""
        shown: Future[None] = asyncio.get_running_loop().create_future()
        waits[what] = shown
        if self._watch is None or self._watch.done():
            self._watch = self._aside(self._list_while_awaited())
        try:
            await shown
        finally:
            waits.pop(what, None)

    async def _list_while_awaited(self) -> None:
        """List awaited servers when the workload does not: its lists stop at the end of a stage."""
        loop = asyncio.get_running_loop()
        while any(place.active or place.gone for place in self._places.values()):
            await asyncio.sleep(self._poll_every)
            quiet = loop.time() - self._listed
            if not self._listing.locked() and quiet > 1.5 * self._poll_every + _LATE:
                with suppress(OperationFailed):
                    await self._list()

    def _tell(self, place: _Place) -> None:
        """Wake the waiting callers, by what a list has shown."""
        for item in place.active:
            self._tell_active(place, item)
        for identity in place.gone:
            self._tell_gone(place, identity)

    def _tell_active(self, place: _Place, item: Item) -> None:
        shown, server = place.active[item], place.servers.get(item)
        if shown.done() or (server is None and place.servers.is_expected(item)):
            return
        if server is None:
            shown.set_exception(OpenstackGone(f"{server_name(self._workspace.prefix, item)}: gone"))
        elif server.status == "ACTIVE":
            shown.set_result(None)
        elif server.fault is not None:
            self._failed.add(server.id)
            shown.set_exception(self._as_seen(server.fault))

    def _tell_gone(self, place: _Place, identity: str) -> None:
        shown, server = place.gone[identity], place.servers.by_id(identity)
        if shown.done():
            return
        if server is None:
            shown.set_result(None)
        elif server.fault is not None and identity not in self._failed:
            self._failed.add(identity)
            shown.set_exception(server.fault)

    def _aside(self, work: Coroutine[Any, Any, None]) -> Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _ended(posts: Iterable[Task[None]]) -> None:
    """Wait for calls that create servers, IN_DOUBT seconds at most. The effect of a call without an answer is unknown
    then."""
    _, unanswered = await asyncio.wait({*posts}, timeout=IN_DOUBT)
    for post in unanswered:
        post.cancel()
    if unanswered:
        await asyncio.wait(unanswered)


@contextmanager
def _as_listed(what: str) -> Generator[None]:
    """Raise SpawnFailed for an answer that is JSON, but not a list in OpenStack's form."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as problem:
        raise SpawnFailed(f"an invalid list of {what}: {problem!r}") from None
