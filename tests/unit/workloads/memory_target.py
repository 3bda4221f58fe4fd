"""A target in memory for the spawn workload: things in groups on members, and failures that a test asks for."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tippingpoint.workloads.load import OnProgress, TargetFacts
from tippingpoint.workloads.spawn.target import Changes, Exists, Gone, Item, MemberSeen, Seen, SpawnFailed

_CHANGES = ("create", "start", "probe", "off", "on", "release", "delete")


@dataclass
class Box:
    """A thing that is there."""

    member: str
    running: bool = False
    has_address: bool = False
    unclear: bool = False
    in_use: bool = False
    powered: bool = True


@dataclass
class Cluster:
    """What all workers share: the things, the members, and what is to go wrong."""

    members: dict[str, bool] = field(default_factory=lambda: {"m1": True, "m2": True, "m3": True})
    leader: str = "m1"
    boxes: dict[Item, Box] = field(default_factory=dict[Item, Box])
    failed: set[Item] = field(default_factory=set[Item])
    """Things that will never run."""
    addresses: bool = True
    """Whether what starts gets its address."""
    fail: Callable[[str, Item | None], BaseException | None] = lambda operation, item: None
    """Asked before each call takes effect; what it returns is raised."""
    fail_after: Callable[[str, Item | None], BaseException | None] = lambda operation, item: None
    """Asked after each call took effect; what it returns is raised."""
    hold: Callable[[str, Item | None], Awaitable[object] | None] = lambda operation, item: None
    """Asked before each call takes effect; what it returns is waited for."""
    hold_list: Callable[[int], Awaitable[object] | None] = lambda group: None
    """Asked once it is known what a list of a group will answer; what it returns is waited for."""
    calls: list[tuple[str, Item | None]] = field(default_factory=list[tuple[str, Item | None]])
    listed: list[tuple[int, bool]] = field(default_factory=list[tuple[int, bool]])
    """Lists of groups, and whether addresses were asked for."""
    at_once: Counter[str] = field(default_factory=Counter[str])
    most_at_once: Counter[str] = field(default_factory=Counter[str])
    prepared: list[range] = field(default_factory=list[range])
    observed: list[tuple[str, Item | None]] = field(default_factory=list[tuple[str, Item | None]])
    created_on: Counter[str] = field(default_factory=Counter[str])
    busy: set[Item] = field(default_factory=set[Item])

    def count(self, operation: str) -> int:
        """How often an operation was called."""
        return sum(name == operation for name, _ in self.calls)

    def running(self) -> set[Item]:
        """What runs on members that are online."""
        return {item for item, box in self.boxes.items() if box.running and self.members[box.member]}

    def kill(self, member: str) -> None:
        """A member dies, and what runs on it."""
        self.members[member] = False
        for box in self.boxes.values():
            if box.member == member:
                box.running = box.has_address = False


class Told(Changes):
    """A list beside the one that was taken in last, by group, in `known`."""

    def __init__(self, group: int, listed: dict[Item, Seen], known: dict[int, dict[Item, Seen]]) -> None:
        self._group = group
        self._listed = listed
        self._known = known

    def __getitem__(self, item: Item) -> Seen:
        return self._listed[item]

    def __iter__(self) -> Iterator[Item]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)

    @property
    def changed(self) -> set[Item]:
        known = self._known.get(self._group, {})
        return {item for item, _ in known.items() ^ self._listed.items()}

    def taken(self) -> None:
        self._known[self._group] = self._listed


class MemoryTarget:
    """One worker's access to a cluster; it implements SpawnTarget, Releasing and Switching."""

    waits_with_members = True
    tells_changes = False
    """Whether its lists say what has changed."""

    def __init__(self, cluster: Cluster, releases: bool = False) -> None:
        self._cluster = cluster
        self.releases = releases
        self._listing: set[int] = set()
        self._known: dict[int, dict[Item, Seen]] = {}
        self.closed = False

    async def open(self) -> TargetFacts:
        return TargetFacts("memory", "1", sorted(self._cluster.members))

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        self._cluster.prepared.append(groups)
        progress("groups", len(groups), len(groups))

    async def create(self, item: Item, member: str | None) -> None:
        async with _Call(self._cluster, "create", item):
            if item in self._cluster.boxes:
                raise Exists("This instance already exists", "busy")
            online = [name for name, there in self._cluster.members.items() if there]
            where = member or min(online, key=lambda name: self._on(name))
            if where not in online:
                raise SpawnFailed("the member is gone", "unreachable")
            self._cluster.boxes[item] = Box(where)
            self._cluster.created_on[where] += 1

    async def start(self, item: Item) -> str:
        async with _Call(self._cluster, "start", item):
            box = self._box(item)
            assert not box.unclear, "started although nobody knows whether it runs"
            box.running = True
            box.has_address = self._cluster.addresses
            return box.member

    def is_failed(self, item: Item) -> bool:
        return item in self._cluster.failed

    async def probe(self, item: Item) -> None:
        async with _Call(self._cluster, "probe", item):
            box = self._box(item)
            if not box.running:
                raise SpawnFailed("it does not run")
            box.in_use = self.releases

    async def switch(self, item: Item, *, on: bool) -> None:
        async with _Call(self._cluster, "on" if on else "off", item):
            assert self._box(item).powered is not on, "switched to what it was"
            self._box(item).powered = on

    async def release(self, item: Item) -> None:
        async with _Call(self._cluster, "release", item):
            self._box(item).in_use = False

    async def delete(self, item: Item) -> None:
        async with _Call(self._cluster, "delete", item):
            assert item not in self._cluster.boxes or not self._cluster.boxes[item].in_use, "removed in use"
            self._cluster.boxes.pop(item, None)
            self._cluster.failed.discard(item)

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        self._cluster.listed.append((group, addresses))
        assert group not in self._listing, "two lists of a group at once by one worker"
        self._listing.add(group)
        try:
            async with _Call(self._cluster, "list-group", Item(group, 0)):
                listed = {
                    item: Seen(
                        box.running and not box.unclear and self._cluster.members.get(box.member, False),
                        box.member,
                        box.has_address and addresses,
                        box.unclear or not self._cluster.members.get(box.member, False),
                        box.in_use,
                    )
                    for item, box in self._cluster.boxes.items()
                    if item.group == group
                }
                waits = self._cluster.hold_list(group)
                if waits is not None:
                    await waits
                return Told(group, listed, self._known) if self.tells_changes else listed
        finally:
            self._listing.discard(group)

    async def members(self) -> list[MemberSeen]:
        async with _Call(self._cluster, "members", None):
            return [
                MemberSeen(name, online, name == self._cluster.leader, address=f"{name}.maas")
                for name, online in self._cluster.members.items()
            ]

    async def evict(self, member: str) -> None:
        async with _Call(self._cluster, "evict", None):
            del self._cluster.members[member]
            for item in [item for item, box in self._cluster.boxes.items() if box.member == member]:
                del self._cluster.boxes[item]

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        async with _Call(self._cluster, what, running):
            self._cluster.observed.append((what, running))
            return what != "exec" or running is not None

    async def close(self) -> None:
        self.closed = True

    def _on(self, member: str) -> int:
        return sum(box.member == member for box in self._cluster.boxes.values())

    def _box(self, item: Item) -> Box:
        box = self._cluster.boxes.get(item)
        if box is None:
            raise Gone("Instance not found")
        if not self._cluster.members[box.member]:
            raise SpawnFailed("Missing event connection with target cluster member", "unreachable")
        return box


class _Call:
    """What every call does before and after its work."""

    def __init__(self, cluster: Cluster, operation: str, item: Item | None) -> None:
        self._cluster = cluster
        self._operation = operation
        self._item = item

    async def __aenter__(self) -> None:
        cluster = self._cluster
        cluster.calls.append((self._operation, self._item))
        if self._operation in _CHANGES:
            assert self._item not in cluster.busy, "two operations on one thing at once"
            assert self._item is not None
            cluster.busy.add(self._item)
        cluster.at_once[self._operation] += 1
        cluster.most_at_once |= cluster.at_once
        try:
            waits = cluster.hold(self._operation, self._item)
            await (asyncio.sleep(0) if waits is None else waits)
            problem = cluster.fail(self._operation, self._item)
            if problem is not None:
                raise problem
        except BaseException:
            self._over()
            raise

    def _over(self) -> None:
        self._cluster.at_once[self._operation] -= 1
        if self._operation in _CHANGES and self._item is not None:
            self._cluster.busy.discard(self._item)

    async def __aexit__(self, kind: object, problem: object, trace: object) -> None:
        self._over()
        if problem is None:
            after = self._cluster.fail_after(self._operation, self._item)
            if after is not None:
                raise after
