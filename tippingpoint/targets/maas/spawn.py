"""Machines of a MAAS, for the spawn workload."""

from __future__ import annotations

import asyncio
from asyncio import Task
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, cast
from urllib.parse import urlsplit

from tippingpoint.errors import TargetError
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient, mapping
from tippingpoint.targets.maas.errors import MaasError, MaasExists, MaasGone
from tippingpoint.targets.maas.makers import maker_of
from tippingpoint.targets.maas.pools import make_pool
from tippingpoint.targets.maas.status import COMMISSIONED, OWNED, Machine, Status
from tippingpoint.targets.maas.tagging import Tagging
from tippingpoint.targets.maas.watch import Met, Watch
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.load import OnProgress, TargetFacts
from tippingpoint.workloads.spawn.at_once import make_all
from tippingpoint.workloads.spawn.target import Item, MemberSeen, Seen, SpawnFailed

MEMBERS_EVERY = 5.0
"""The minimum seconds between two lists of rack controllers. A region asks for their services every 30 s."""
IN_DOUBT = 60.0
"""Seconds to wait for a cancelled call that makes a machine, because MAAS goes on with it."""

_RELEASED_SOON = (Status.RELEASING, Status.DISK_ERASING)
_UNDER_WAY = (Status.COMMISSIONING, Status.TESTING, *_RELEASED_SOON)
"""Statuses that a machine leaves by itself, for Ready or a failure."""
_AT_ONCE = 4
"""Pools made concurrently."""
LISTS: Mapping[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "machine-list": ("machines/", "", ()),
    "event-list": ("events/", "query", (("limit", "100"),)),
    "tag-list": ("tags/", "", ()),
    "fabric-list": ("fabrics/", "", ()),
}
"""The observations that are lists: the path, the operation and the query of each."""


class MaasMachines:
    """One worker's access to a MAAS, based on lists: no call asks for the status of one machine.

    Its steps are those of a machine, and each ends when a list shows it. `create` enlists it, `start` commissions it,
    `probe` deploys it, `switch` switches it, `release` gives it back and `delete` removes it. `poll_every` is the
    workload's interval between lists in seconds. When the workload makes no lists, awaited machines are listed at the
    same interval. The constructor raises UserError if the credentials are unusable.
    """

    waits_with_members = False
    """Calls do not hang with a rack controller: the region answers for it."""

    def __init__(self, workspace: MaasWorkspace, poll_every: float) -> None:
        self._workspace = workspace
        self._access = access(workspace.target)
        self._client = MaasClient(self._access)
        self._maker = maker_of(workspace, self._access, self._client)
        self._watch = Watch(self._client, workspace, poll_every)
        self._tagging = Tagging(self._client, workspace)
        self._deployed: set[Item] = set()
        """Machines that were seen Deployed. One that no longer is counts as lost."""
        self._posts: set[Task[Machine]] = set()
        """Calls under way that make machines. A cancelled call goes on."""
        self._seen: tuple[float, list[MemberSeen]] = (float("-inf"), [])

    async def open(self) -> TargetFacts:
        """Log in, and read the rack controllers; TargetError if the region refuses the key."""
        version = await self._client.log_in()
        await self._maker.open()
        where = urlsplit(self._access.url).netloc
        try:
            members = await self.members()
        except SpawnFailed as problem:
            raise TargetError(where, str(problem), "a MAAS region that answers") from None
        return TargetFacts("maas", version, [member.name for member in members], where)

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        """Make the groups' resource pools, unless they exist."""
        at_once, made = asyncio.Semaphore(_AT_ONCE), 0

        async def make(group: int) -> None:
            nonlocal made
            async with at_once:
                await make_pool(self._client, self._workspace.prefix, self._workspace.run, group)
            self._watch.add(group)
            made += 1
            progress("pools", made, len(groups))

        await make_all(groups, make)

    async def create(self, item: Item, member: str | None) -> None:
        """Enlist a machine, and wait until a list shows it. Raises MaasExists if MAAS knows it already."""
        post = asyncio.get_running_loop().create_task(self._enlist(item))
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)
        try:
            machine = await asyncio.shield(post)
        except MaasExists:
            self._watch.doubt(item)
            raise
        await self._watch.until(machine, _is_there)

    async def start(self, item: Item) -> str:
        """Commission a machine, and wait until a list shows it Ready.

        A machine that was commissioned stays as it is. Raises MAAS's error if it fails.
        """
        machine = await self._watch.known(item)
        self._deployed.discard(item)
        if machine.status in COMMISSIONED:
            return ""
        if machine.status not in _UNDER_WAY:
            await self._do(machine, "commission")
        await self._watch.until(machine, _becomes(COMMISSIONED))
        return ""

    def is_failed(self, item: Item) -> bool:
        """Whether MAAS took it out of service: then it is removed, and made anew. Other failures are retried."""
        machine = self._watch.machine(item)
        return machine is not None and machine.status in (Status.BROKEN, Status.MISSING)

    async def probe(self, item: Item) -> None:
        """Deploy a machine, and wait until a list shows it Deployed. If it failed to deploy, it is released first."""
        machine = await self._watch.known(item)
        if machine.status == Status.FAILED_DEPLOYMENT:
            machine = await self._released(machine)
        if machine.status in (Status.READY, Status.ALLOCATED):
            await self._do(machine, "deploy")
        elif machine.status not in (Status.DEPLOYING, Status.DEPLOYED):
            raise machine.fault or MaasError(f"{machine.name}: a machine that cannot be deployed", "busy")
        await self._watch.until(machine, _becomes({Status.DEPLOYED}))
        self._deployed.add(item)

    async def switch(self, item: Item, *, on: bool) -> None:
        """Switch a machine off or on, and wait until a list shows it.

        If its power controller failed before, it is queried first, because lists show that failure until then.
        """
        machine, wanted = await self._watch.known(item), "on" if on else "off"
        if machine.power == "error":
            await self._client.get(f"machines/{machine.id}/", op="query_power_state")
        await self._do(machine, f"power_{wanted}")
        await self._watch.until(machine, _has_power(wanted))

    async def release(self, item: Item) -> None:
        """Release a machine, and wait until a list shows it Ready."""
        self._deployed.discard(item)
        await self._released(await self._watch.known(item))

    async def delete(self, item: Item) -> None:
        """Remove a machine, after its release if it has an owner, and wait until a list does not show it.

        No error if it does not exist.
        """
        self._deployed.discard(item)
        try:
            machine = await self._watch.known(item)
            if machine.status in OWNED or machine.status in _RELEASED_SOON:
                machine = await self._released(machine)
            await self._client.send("DELETE", f"machines/{machine.id}/")
            self._watch.note_gone(item)
            await self._watch.until(machine, _is_gone)
        except MaasGone:
            self._watch.note_gone(item)
        await self._maker.unmake(item)

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        """List the run's machines in a group, by one call. A machine runs once it is commissioned."""
        await self._watch.look(group)
        shown: dict[Item, Seen] = {}
        for item, machine in self._watch.machines(group).items():
            lost = item in self._deployed and machine.status != Status.DEPLOYED
            runs = machine.status in COMMISSIONED and not lost
            in_use = machine.status in OWNED or machine.status in _RELEASED_SOON
            shown[item] = Seen(runs, "", address=runs, in_use=in_use)
        return shown

    async def members(self) -> list[MemberSeen]:
        """List the rack controllers, at most every MEMBERS_EVERY seconds; in between, return the last answer as
        stale."""
        now = asyncio.get_running_loop().time()
        if now - self._seen[0] < MEMBERS_EVERY:
            return self._seen[1]
        found = await self._client.get("rackcontrollers/")
        if not isinstance(found, list):
            raise MaasError("an invalid list of rack controllers")
        seen = [_rack(mapping(each)) for each in cast("list[Any]", found)]
        self._seen = now, [replace(member, stale=True) for member in seen]
        return seen

    async def evict(self, member: str) -> None:
        """Refuse: the machines of a rack controller are not on it."""
        raise SpawnFailed(f"{member}: a MAAS loses no machines with a rack controller", "setting")

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        """Make one of MACHINE_OBSERVATIONS; returns False if there is no machine for it."""
        match what:
            case "machine":
                machine = self._watch.machine(running) if running is not None else None
                if machine is None:
                    return False
                await self._client.get(f"machines/{machine.id}/")
                return True
            case "tag-machines":
                return await self._tagging.tag([each.id for each in self._watch.machines(group).values()])
            case "untag-machines":
                return await self._tagging.untag()
            case _:
                path, op, query = LISTS[what]
                await self._client.skim(path, query, op=op)
                return True

    async def close(self) -> None:
        """Close every connection, after waiting for calls that make machines, IN_DOUBT seconds at most.

        A removal after this finds all machines.
        """
        await self._watch.close()
        if self._posts:
            _, unanswered = await asyncio.wait({*self._posts}, timeout=IN_DOUBT)
            for post in unanswered:
                post.cancel()
            await asyncio.gather(*unanswered, return_exceptions=True)
        await self._maker.close()
        await self._client.close()

    async def _enlist(self, item: Item) -> Machine:
        return self._watch.note(item, await self._maker.make(item))

    async def _do(self, machine: Machine, op: str) -> None:
        """Have MAAS begin an operation on a machine."""
        self._watch.note(machine.item, await self._client.send("POST", f"machines/{machine.id}/", op=op))

    async def _released(self, machine: Machine) -> Machine:
        """Release a machine, unless that is under way, and wait until a list shows it Ready."""
        if machine.status not in (Status.READY, *_RELEASED_SOON):
            await self._do(machine, "release")
        await self._watch.until(machine, _becomes({Status.READY}))
        return await self._watch.known(machine.item)


def _is_there(machine: Machine | None) -> bool:
    return machine is not None


def _is_gone(machine: Machine | None) -> bool:
    return machine is None


def _becomes(statuses: Collection[int]) -> Met:
    def met(machine: Machine | None) -> bool:
        if machine is None:
            raise MaasGone("a machine that does not exist")
        if machine.status not in statuses and machine.fault is not None:
            raise machine.fault
        return machine.status in statuses

    return met


def _has_power(state: str) -> Met:
    def met(machine: Machine | None) -> bool:
        if machine is None:
            raise MaasGone("a machine that does not exist")
        if machine.power == "error":
            raise MaasError("its power controller failed, or gave no answer", "timeout")
        return machine.power == state

    return met


def _rack(shown: Mapping[str, Any]) -> MemberSeen:
    """Return a rack controller of a list. It is online unless its service `rackd` is dead."""
    services = shown.get("service_set")
    states = {
        each.get("name"): each.get("status")
        for each in (map(mapping, cast("list[Any]", services)) if isinstance(services, list) else ())
    }
    addresses = shown.get("ip_addresses")
    first = cast("list[Any]", addresses)[0] if isinstance(addresses, list) and addresses else ""
    return MemberSeen(str(shown.get("hostname") or ""), states.get("rackd") != "dead", address=str(first))
