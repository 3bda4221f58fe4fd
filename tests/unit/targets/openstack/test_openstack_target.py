"""Servers as the spawn workload has them made: what is asked of Nova, and what becomes of answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.unit.targets.openstack.openstack_stub import Answer, OpenstackStub
from tippingpoint.errors import TargetError
from tippingpoint.targets.openstack import spawn
from tippingpoint.targets.openstack.errors import OpenstackError, OpenstackExists, OpenstackGone
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.openstack.servers import item_of
from tippingpoint.targets.openstack.spawn import OpenstackServers
from tippingpoint.targets.openstack.workspace import OpenstackWorkspace
from tippingpoint.workloads.spawn.members import Members
from tippingpoint.workloads.spawn.target import Item

PREFIX, RUN = "tp0123abcd", "the-run"
POLL = 0.02


class Nova:
    """A compute service in memory: what it was asked for, and the servers that it has."""

    def __init__(self) -> None:
        self.servers: dict[str, dict[str, Any]] = {}
        self.posted: list[dict[str, Any]] = []
        self.listed: list[bool] = []
        """Lists, and whether they were of all there is."""
        self.becomes = "ACTIVE"
        """What a server is when it was listed once in BUILD."""
        self.fault = "No valid host was found."
        self.asked: list[str] = []
        """Servers that were asked for by themselves."""
        self.refuses = 0
        """So many of these are refused."""
        self.loses_answers = 0
        """So many calls that make servers are answered by a broken connection."""
        self.holds: asyncio.Event | None = None
        """What it waits for before it makes servers."""
        self.held = asyncio.Semaphore(0)
        """Calls that wait for that."""
        self.limits = 0
        """So many calls are refused by a rate limit."""
        self.services: object = []
        """What it tells of its compute services."""
        self.lists_faults = True
        """Whether lists have the faults of servers, or only a server itself."""
        self._number = 0

    async def answer(self, request: web.Request) -> web.Response:
        if self.limits:
            self.limits -= 1
            return web.Response(status=429, headers={"Retry-After": "0"})
        path = request.path.removeprefix("/compute")
        match request.method, path.strip("/").split("/"):
            case "POST", ["servers"]:
                return await self._make(request)
            case "DELETE", ["servers", identity]:
                if identity not in self.servers:
                    return web.json_response({"itemNotFound": {"message": "no"}}, status=404)
                self.servers[identity] |= {"status": "DELETED", "metadata": {}, "changed": _now()}
                return web.Response(status=204)
            case "GET", ["servers", "detail"]:
                return self._list(request)
            case "GET", ["servers", identity]:
                self.asked.append(identity)
                if self.refuses:
                    self.refuses -= 1
                    return web.json_response({}, status=503)
                if self.servers[identity]["status"] == "DELETED":
                    return web.json_response({"itemNotFound": {"message": "no"}}, status=404)
                return web.json_response({"server": self.servers[identity]})
            case "GET", ["os-services"]:
                return web.json_response({"services": self.services})
            case "GET", [""]:
                version = {"id": "v2.1", "version": "2.93", "min_version": "2.1"}
                return web.json_response({"version": version})
            case _:
                return web.json_response({}, status=404)

    async def _make(self, request: web.Request) -> web.Response:
        asked = (await request.json())["server"]
        self.posted.append(asked)
        if self.holds is not None:
            self.held.release()
            await self.holds.wait()
        count = asked.get("max_count", 1)
        ids: list[str] = []
        for place in range(count):
            self._number += 1
            ids.append(f"id-{self._number}")
            self.servers[ids[-1]] = {
                "id": ids[-1],
                "name": asked["name"] if count == 1 else f"{asked['name']}-{place + 1}",
                "status": "BUILD",
                "created": f"2026-01-01T00:00:{self._number:02}Z",
                "metadata": asked["metadata"],
                "hostId": "host-a",
                "changed": _now(),
            }
        if self.loses_answers:
            self.loses_answers -= 1
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"server": {"id": ids[0]}}, status=202)

    def _list(self, request: web.Request) -> web.Response:
        since = request.query.get("changes-since")
        self.listed.append(since is None)
        begin = datetime.fromisoformat(since).timestamp() if since else 0.0
        assert request.query["name"] == f"^{PREFIX}-", "others' servers are not asked for"
        found = [
            {
                name: value
                for name, value in server.items()
                if name != "changed" and (name != "fault" or self.lists_faults)
            }
            for server in self.servers.values()
            if server["changed"] >= begin and (since or server["status"] != "DELETED")
        ]
        for server in self.servers.values():
            if server["status"] == "BUILD":
                server |= {"status": self.becomes, "changed": _now()}
                if self.becomes == "ERROR" and self.fault:
                    server["fault"] = {"message": self.fault}
        return web.json_response({"servers": found})

    @property
    def there(self) -> list[Item]:
        """Which servers there are, in order."""
        items = [
            item_of(PREFIX, each["name"]) for each in self.servers.values() if each["status"] != "DELETED"
        ]
        return sorted(item for item in items if item is not None)


def _now() -> float:
    return datetime.now(UTC).timestamp()


@asynccontextmanager
async def compute(
    directory: Path,
    nova: Nova,
    *,
    admin: bool = False,
    others: Mapping[str, Answer] | None = None,
    **target: Any,
) -> AsyncIterator[OpenstackServers]:
    """Servers of a cloud that has this compute service, and others by their types."""
    async with OpenstackStub(directory) as stub:
        stub.answer = nova.answer
        stub.others |= others or {}
        path = directory / "clouds.yaml"
        assert stub.access.name == "stub"
        workspace = OpenstackWorkspace(
            run=RUN,
            prefix=PREFIX,
            image="image-id",
            flavor="flavor-id",
            network="",
            external="",
            admin=admin,
            version=(2, 37),
            user="",
            role="",
            domain="",
            identity=None,
            target=OpenstackTarget(kind="openstack", credentials=path, **target),
        )
        servers = OpenstackServers(workspace, POLL)
        try:
            await servers.prepare(range(1), lambda what, done, goal: None)
            yield servers
        finally:
            await servers.close()


@pytest.fixture
def nova() -> Nova:
    return Nova()


@pytest.fixture
async def servers(nova: Nova, tmp_path: Path) -> AsyncIterator[OpenstackServers]:
    async with compute(tmp_path, nova) as servers:
        yield servers


FIRST = Item(0, 0)


async def test_a_server_is_made_and_waited_for_and_removed(nova: Nova, servers: OpenstackServers) -> None:
    await servers.create(FIRST, None)
    assert nova.posted == [
        {
            "name": f"{PREFIX}-000-0000",
            "imageRef": "image-id",
            "flavorRef": "flavor-id",
            "metadata": {"tippingpoint": RUN},
            "networks": "none",
        }
    ]
    assert await servers.start(FIRST) == "host-a"
    assert (await servers.list_group(0, addresses=False))[FIRST].running
    await servers.delete(FIRST)
    assert nova.there == []
    assert not await servers.list_group(0, addresses=False)


async def test_changes_alone_are_listed_after_the_first_list(nova: Nova, servers: OpenstackServers) -> None:
    for _ in range(5):
        await servers.list_group(0, addresses=False)
    assert nova.listed == [True, False, False, False, False]


async def test_what_is_due_at_one_moment_is_asked_for_by_one_call(nova: Nova, tmp_path: Path) -> None:
    """Given 7 servers that are due together, of which one is there, and calls of 3 at most, then there are as few calls
    as that takes, and each is known by its own name."""
    async with compute(tmp_path, nova, multi_create=3) as servers:
        await servers.create(Item(0, 2), None)
        numbers = [0, 1, 3, 4, 5, 6]
        await asyncio.gather(*(servers.create(Item(0, number), None) for number in numbers))
        asked = sorted((each["name"], each.get("min_count", 1)) for each in nova.posted)
        name = f"{PREFIX}-000-000"
        assert asked == [(f"{name}0x2", 2), (f"{name}2", 1), (f"{name}3x3", 3), (f"{name}6", 1)]
        await asyncio.gather(*(servers.start(Item(0, number)) for number in range(7)))
        assert nova.there == [Item(0, number) for number in range(7)]


async def test_a_server_whose_answer_was_lost_is_not_made_twice(
    nova: Nova, servers: OpenstackServers
) -> None:
    nova.loses_answers = 1
    with pytest.raises(OpenstackError) as lost:
        await servers.create(FIRST, None)
    assert lost.value.kind == "unreachable"
    with pytest.raises(OpenstackExists):
        await servers.create(FIRST, None)
    await servers.start(FIRST)
    assert nova.there == [FIRST]


async def test_of_two_with_one_name_the_later_is_removed(nova: Nova, servers: OpenstackServers) -> None:
    await servers.create(FIRST, None)
    nova.servers["id-x"] = {**nova.servers["id-1"], "id": "id-x", "created": "2026-01-01T00:01:00Z"}
    await servers.start(FIRST)
    while len(nova.there) > 1:
        await servers.list_group(0, addresses=False)
    assert nova.servers["id-x"]["status"] == "DELETED"


async def test_a_server_that_fails_tells_its_fault_and_is_to_be_made_anew(
    nova: Nova, servers: OpenstackServers
) -> None:
    nova.becomes = "ERROR"
    await servers.create(FIRST, None)
    with pytest.raises(OpenstackError, match="No valid host was found") as failed:
        await servers.start(FIRST)
    assert failed.value.kind == "full"
    assert servers.is_failed(FIRST)
    with pytest.raises(OpenstackError, match="No valid host was found"):
        await servers.start(FIRST)
    nova.becomes = "ACTIVE"
    await servers.delete(FIRST)
    await servers.create(FIRST, None)
    await servers.start(FIRST)
    assert nova.there == [FIRST]
    assert not servers.is_failed(FIRST)


@pytest.mark.parametrize(
    ("fault", "told", "asked"),
    [("No valid host was found.", "No valid host was found.", 1), ("", "in ERROR, without a fault", 2)],
)
async def test_a_fault_that_lists_do_not_tell_is_asked_for(
    nova: Nova, servers: OpenstackServers, fault: str, told: str, asked: int
) -> None:
    """Given a nova whose lists do not have the faults of servers that fit on no host, as they are in another cell."""
    nova.becomes, nova.fault, nova.lists_faults = "ERROR", fault, False
    await servers.create(FIRST, None)
    with pytest.raises(OpenstackError) as failed:
        await servers.start(FIRST)
    assert str(failed.value) == told
    assert servers.is_failed(FIRST)
    await servers.list_group(0, addresses=False)
    assert nova.asked == ["id-1"] * asked


async def test_a_fault_that_is_not_answered_is_asked_for_again(nova: Nova, servers: OpenstackServers) -> None:
    """Given an API that is down for a while, then it is not said of nova that it tells no fault."""
    nova.becomes, nova.lists_faults, nova.refuses = "ERROR", False, 3
    await servers.create(FIRST, None)
    with pytest.raises(OpenstackError, match="No valid host was found"):
        await servers.start(FIRST)
    assert nova.asked == ["id-1"] * 4


async def test_who_is_gone_is_not_asked_for_again_and_holds_up_no_other(
    nova: Nova, servers: OpenstackServers
) -> None:
    """Given more servers that failed than are asked for at a time, which are all gone again when they are."""
    several = [Item(0, number) for number in range(20)]

    nova.becomes, nova.lists_faults = "ERROR", False
    for item in several:
        await servers.create(item, None)
    for _ in range(2):
        await servers.list_group(0, addresses=False)
    for server in nova.servers.values():
        server |= {"status": "DELETED", "metadata": {}, "changed": _now()}
    while await servers.list_group(0, addresses=False):
        pass
    newest = Item(0, 20)
    await servers.create(newest, None)
    with pytest.raises(OpenstackError, match="No valid host was found"):
        await servers.start(newest)
    assert "id-21" in nova.asked
    assert len(nova.asked) == len({*nova.asked})


@pytest.mark.parametrize(
    ("states", "kind"), [(["up", "down"], "full"), (["down", "down"], "unreachable"), ([], "full")]
)
async def test_while_no_compute_is_up_a_lack_of_room_passes_by_itself(
    nova: Nova, tmp_path: Path, states: list[str], kind: str
) -> None:
    async with compute(tmp_path, nova, admin=True) as servers:
        nova.becomes = "ERROR"
        nova.services = [
            {"host": f"c{number}", "state": state, "status": "enabled"} for number, state in enumerate(states)
        ]
        await servers.members()
        await servers.create(FIRST, None)
        with pytest.raises(OpenstackError, match="No valid host") as failed:
            await servers.start(FIRST)
        assert failed.value.kind == kind


async def test_a_lack_of_room_that_is_told_when_the_first_compute_is_back_passes_by_itself(
    nova: Nova, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a nova that failed a server as no compute was up, and one that is seen up before the fault is told."""
    monkeypatch.setattr(spawn, "MEMBERS_EVERY", 0.0)

    async with compute(tmp_path, nova, admin=True) as servers:
        nova.becomes = "ERROR"
        for state in ("down", "up"):
            nova.services = [{"host": "c0", "state": state, "status": "enabled"}]
            await servers.members()
        await servers.create(FIRST, None)
        with pytest.raises(OpenstackError, match="No valid host") as failed:
            await servers.start(FIRST)
        assert failed.value.kind == "unreachable"


async def test_a_server_that_is_not_built_in_time_is_to_be_made_anew(
    nova: Nova, servers: OpenstackServers
) -> None:
    """Given a server whose message a broker has lost, then who gave it up knows that it is of no use; one that is built
    at last is waited for all the same."""
    nova.becomes = "BUILD"
    await servers.create(FIRST, None)
    starting = asyncio.create_task(servers.start(FIRST))
    await servers.list_group(0, addresses=False)
    assert not servers.is_failed(FIRST)
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    assert servers.is_failed(FIRST)
    nova.becomes = "ACTIVE"
    await servers.start(FIRST)
    assert not servers.is_failed(FIRST)
    assert len(nova.posted) == 1


async def test_what_is_not_there_is_not_started_and_is_removed_already(servers: OpenstackServers) -> None:
    with pytest.raises(OpenstackGone):
        await servers.start(FIRST)
    await servers.delete(FIRST)


async def test_who_removes_a_server_that_is_waited_for_tells_so(
    nova: Nova, servers: OpenstackServers
) -> None:
    nova.becomes = "BUILD"
    await servers.create(FIRST, None)
    starting = asyncio.create_task(servers.start(FIRST))
    await servers.list_group(0, addresses=False)
    nova.servers["id-1"] |= {"status": "DELETED", "metadata": {}, "changed": _now()}
    with pytest.raises(OpenstackGone):
        await starting


async def test_without_an_admin_s_eyes_hosts_are_those_that_servers_are_on(servers: OpenstackServers) -> None:
    assert await servers.members() == []
    await servers.create(FIRST, None)
    await servers.list_group(0, addresses=False)
    assert [member.name for member in await servers.members()] == ["host-a"]
    assert not await servers.observe("agent-list", 0, None)


# -- what is given up ------------------------------------------------------------------------------


async def give_up(nova: Nova, calls: list[asyncio.Task[None]], posts: int) -> None:
    """Give calls up when nova is at so many of them."""
    for _ in range(posts):
        await nova.held.acquire()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.mark.parametrize("multi_create", [1, 3])
async def test_what_is_asked_for_again_while_nova_is_at_it_is_not_made_twice(
    nova: Nova, tmp_path: Path, multi_create: int
) -> None:
    """Given calls that take too long, then those that are made again wait for them."""
    async with compute(tmp_path, nova, multi_create=multi_create) as servers:
        items = [Item(0, number) for number in range(3)]
        nova.holds = asyncio.Event()
        calls = [asyncio.create_task(servers.create(item, None)) for item in items]
        await give_up(nova, calls, 3 // multi_create)
        again = [asyncio.create_task(servers.create(item, None)) for item in items]
        nova.holds.set()
        answers = await asyncio.gather(*again, return_exceptions=True)
        assert [type(answer) for answer in answers] == [OpenstackExists] * 3
        assert nova.there == items


async def test_a_call_that_is_never_answered_is_given_up_at_last_and_what_it_made_looked_for(
    nova: Nova, servers: OpenstackServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "IN_DOUBT", 0.05)

    nova.holds = asyncio.Event()
    await give_up(nova, [asyncio.create_task(servers.create(FIRST, None))], 1)
    nova.holds = None
    await servers.create(FIRST, None)
    assert nova.listed == [True]
    assert len(nova.posted) == 2
    assert nova.there == [FIRST]


async def test_who_is_closed_knows_what_became_of_what_it_asked_for(
    nova: Nova, servers: OpenstackServers
) -> None:
    """Given a server that is being made when the load ends, then it is there, or never, when the target is closed."""
    nova.holds = asyncio.Event()
    await give_up(nova, [asyncio.create_task(servers.create(FIRST, None))], 1)
    closing = asyncio.create_task(servers.close())
    early, _ = await asyncio.wait({closing}, timeout=0.1)
    assert not early, "nova is at it still"
    nova.holds.set()
    await closing
    assert nova.there == [FIRST]


async def test_a_call_that_is_given_up_before_it_is_sent_is_not_sent(nova: Nova, tmp_path: Path) -> None:
    async with compute(tmp_path, nova, multi_create=2) as servers:
        calls = [asyncio.create_task(servers.create(Item(0, number), None)) for number in range(2)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await calls[1]
        assert nova.there == [Item(0, 1)]


# -- hosts -----------------------------------------------------------------------------------------


def service(host: str, state: str = "up") -> dict[str, str]:
    return {"host": host, "state": state, "status": "enabled"}


async def test_one_look_at_hosts_counts_once_however_often_it_is_told(nova: Nova, tmp_path: Path) -> None:
    """Given a host that nova says is down, of which the workload asks more often than nova is asked, then it is away,
    and not lost for that."""
    async with compute(tmp_path, nova, admin=True) as servers:
        nova.services = [service("a", "down"), service("b")]
        members = Members(offline_polls=2)
        for _ in range(10):
            members.see(await servers.members())
        assert members.away == ["a"]
        assert members.lost == []


async def test_an_admin_is_let_in_where_there_is_no_network_service(nova: Nova, tmp_path: Path) -> None:
    async with compute(tmp_path, nova, admin=True) as servers:
        nova.services = [service("a")]
        facts = await servers.open()
        assert facts.members == ["a"]
        assert not await servers.observe("network-list", 0, None)


@pytest.mark.parametrize("status", [403, 404, 429, 500])
async def test_agents_that_are_not_told_of_keep_nobody_from_hosts(
    nova: Nova, tmp_path: Path, status: int
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return web.json_response({}, status=status)

    async with compute(tmp_path, nova, admin=True, others={"network": refuse}) as servers:
        nova.services = [service("a")]
        assert (await servers.open()).members == ["a"]
        assert [member.name for member in await servers.members()] == ["a"]


async def test_agents_that_come_and_go_are_told(
    nova: Nova, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "MEMBERS_EVERY", 0.0)
    alive = [True, False, False, True]

    async def agents(request: web.Request) -> web.Response:
        agent = {"agent_type": "OVS", "host": "a", "alive": alive.pop(0) if alive else True}
        return web.json_response({"agents": [agent]})

    async with compute(tmp_path, nova, admin=True, others={"network": agents}) as servers:
        nova.services = [service("a")]
        told: list[bool] = []
        while alive or len(told) < 2:
            await servers.members()
            told += [fields["alive"] for _, fields in servers.take_events()]
        assert told == [False, True]


async def test_garbage_and_rate_limits_at_the_door_are_one_line(nova: Nova, tmp_path: Path) -> None:
    async with compute(tmp_path, nova, admin=True) as servers:
        nova.services = [{"host": "a"}]
        with pytest.raises(TargetError, match="an invalid list of services"):
            await servers.open()
        nova.services = [service("a")]
        nova.limits = 1
        await servers.open()


async def test_a_rate_limit_ends_no_watch(
    nova: Nova, servers: OpenstackServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given lists that are refused for a while, when the workload does not list any more, then what is awaited comes
    all the same."""
    monkeypatch.setattr(spawn, "_LATE", 0.0)

    await servers.create(FIRST, None)
    nova.limits = 3
    assert await servers.start(FIRST) == "host-a"
