"""A group's servers as its lists show them: lists of what has changed, put together so that none is lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tippingpoint.targets.openstack.errors import OpenstackError, fault_of
from tippingpoint.workloads.spawn.target import Item

MARK = "tippingpoint"
"""The metadata of servers, and the property of images, that names the run that made them."""
OVERLAP = 5.0
"""Seconds that a list of changes goes back before the list before it began: nova notes a change by the clock of the
host that makes it, in whole seconds, and may tell of it a moment later."""
WHOLE_EVERY = 60.0
"""Seconds after which everything is listed again, whatever has changed: nothing is to be missed for good."""
WHOLE_SHARE = 20.0
"""So many times longer than a whole list took, at least, until the next."""

_GONE = ("DELETED", "SOFT_DELETED")


# Names


def group_name(prefix: str, group: int) -> str:
    """The name of what a group has one of: project, network, subnet, router."""
    return f"{prefix}-{group:03d}"


def group_of(prefix: str, name: str) -> int | None:
    """Which group has this name; None where it is none of the run's."""
    found = re.fullmatch(rf"{re.escape(prefix)}-([0-9]{{3,}})", name)
    return int(found[1]) if found and group_name(prefix, int(found[1])) == name else None


def server_name(prefix: str, item: Item) -> str:
    """The name of a server that is made by itself."""
    return f"{group_name(prefix, item.group)}-{item.number:04d}"


def names_of_many(prefix: str, first: Item, count: int) -> str:
    """The name that so many servers are asked for with in one call; nova adds -1, -2 and so on to it."""
    return f"{server_name(prefix, first)}x{count}"


def item_of(prefix: str, name: object) -> Item | None:
    """Which server of the run has this name; None where it is none of them."""
    if not isinstance(name, str) or not name.startswith(prefix):
        return None
    found = re.fullmatch(r"-([0-9]{3,})-([0-9]{4,})(?:x([0-9]+)-([0-9]+))?", name[len(prefix) :])
    if found is None:
        return None
    group, number = int(found[1]), int(found[2])
    if found[3] is None:
        return Item(group, number)
    place = int(found[4])
    return Item(group, number + place - 1) if 1 <= place <= int(found[3]) else None


def is_marked(run: str, server: Mapping[str, Any]) -> bool:
    """Whether a server, whose name is one of the run's, is the run's indeed."""
    match server.get("metadata"):
        case {"tippingpoint": marked}:  # MARK
            return marked == run
        case _:
            return False


# What is there


@dataclass(slots=True)
class Server:
    """A server, as the latest list that has it shows it."""

    id: str
    item: Item
    status: str
    created: str = ""
    host: str = ""
    """Where it is: the host's name for an admin, else what nova shows of it to others; empty while nobody knows."""
    fault: OpenstackError | None = None
    """Why it could not be built, where its status is ERROR; None until nova has told, or does not."""

    @property
    def is_unexplained(self) -> bool:
        """Whether it is in ERROR and nova has not told why."""
        return self.status == "ERROR" and self.fault is None


class Servers:
    """The servers of one group. What a list of changes does not have is as it was; what two whole lists do not have
    is gone. (A server that nova has just taken on is for a moment in none of the places that it lists.)

    A whole list does not show what was deleted before it, so the list of changes after it is asked about what it
    misses; only what that does not explain is worth another whole list."""

    def __init__(self, prefix: str, run: str, group: int) -> None:
        self._prefix = prefix
        self._run = run
        self._group = group
        self._by_id: dict[str, Server] = {}
        self._of_item: dict[Item, dict[str, Server]] = {}
        self._expected: set[Item] = set()
        self._made_at: dict[str | Item, float] = {}
        """When nova took on what no list has shown yet, on our clock: lists that began before say nothing of it."""
        self._unsure: dict[str | Item, bool] = {}
        """What a whole list did not have, and whether a list of changes after it did not tell, either."""
        self._unexplained: list[str] = []
        self._to_explain: set[str] = set()
        """Those in ERROR whose fault no list has told, asked for or not."""
        self._since: datetime | None = None
        self._whole_at = float("-inf")
        self._whole_took = 0.0

    def get(self, item: Item) -> Server | None:
        """The server of that name; of several, which answers that were lost may make, the first that was made."""
        return min(
            self._of_item.get(item, {}).values(), key=lambda server: (server.created, server.id), default=None
        )

    def all_of(self, item: Item) -> list[Server]:
        """All of that name."""
        return [*self._of_item.get(item, {}).values()]

    def by_id(self, identity: str) -> Server | None:
        """The server with that id."""
        return self._by_id.get(identity)

    def is_expected(self, item: Item) -> bool:
        """Whether nova has taken on to make it, and no list has shown it yet."""
        return item in self._expected

    @property
    def there(self) -> Iterable[Item]:
        """What is there, or is being made."""
        return self._of_item.keys() | self._expected

    @property
    def surplus(self) -> list[Server]:
        """Servers with the name of one that was made before."""
        return [
            server
            for item, several in self._of_item.items()
            if len(several) > 1
            for server in several.values()
            if server is not self.get(item)
        ]

    def made(self, item: Item, identity: str, now: float) -> None:
        """Nova has answered at this moment that it makes a server; the id is empty where it did not tell it."""
        if not identity:
            if item not in self._of_item:
                self._expected.add(item)
                self._made_at[item] = now
        elif identity not in self._by_id:
            self._put(Server(identity, item, "BUILD"))
            self._made_at[identity] = now

    def forget(self, identity: str) -> None:
        """A server is not there any more."""
        server = self._by_id.pop(identity, None)
        if server is not None:
            several = self._of_item[server.item]
            del several[identity]
            if not several:
                del self._of_item[server.item]
            self._to_explain.discard(identity)
            self._settle(identity)

    def take_unexplained(self) -> list[str]:
        """The ids of servers in ERROR that lists do not tell the fault of, each once: they have the faults of one of
        nova's cells only, and that of a server that fits on no host is in a cell of its own."""
        taken, self._unexplained = self._unexplained, []
        return taken

    def leave_unexplained(self, identity: str) -> None:
        """Nobody could tell a server's fault: it is to be asked for again."""
        if identity in self._to_explain:
            self._unexplained.append(identity)

    def explain(self, identity: str, fault: OpenstackError) -> None:
        """A server's fault is known."""
        server = self._by_id.get(identity)
        if server is not None and server.is_unexplained:
            server.fault = fault

    # -- lists -----------------------------------------------------------------------------------

    def since(self, now: float) -> str | None:
        """From when on (UTC) changes are to be listed; None where everything is."""
        pause = max(WHOLE_EVERY, WHOLE_SHARE * self._whole_took)
        if self._since is None or any(self._unsure.values()) or now - self._whole_at >= pause:
            return None
        return self._since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def see(
        self,
        listed: Iterable[Mapping[str, Any]],
        *,
        whole: bool,
        answered: datetime | None,
        now: float,
        took: float,
    ) -> None:
        """Take a list: everything, or what has changed, as answered at that moment by nova's clock, `took` seconds
        after it was asked for. `now` is on our clock. KeyError, TypeError where it is no list of servers."""
        found: set[str] = set()
        for entry in listed:
            if entry["status"] in _GONE:
                self.forget(entry["id"])  # whose metadata is gone, too
                continue
            item = item_of(self._prefix, entry["name"])
            if item is None or item.group != self._group or not is_marked(self._run, entry):
                continue
            found.add(entry["id"])
            before = self._by_id.get(entry["id"])
            server = _server(item, entry)
            if server.is_unexplained and before is not None and before.status == "ERROR":
                server.fault = before.fault
            self._put(server)
        before_this = self._since
        self._since = answered - timedelta(seconds=took + OVERLAP) if answered is not None else None
        if whole:
            self._whole_at, self._whole_took = now, took
            if self._miss(found, now) and self._since is not None and before_this is not None:
                self._since = before_this  # they may have been deleted since then
        else:
            self._unsure |= dict.fromkeys(self._unsure.keys() - found, True)

    def _miss(self, found: set[str], now: float) -> bool:
        """Whether a whole list did not have what is to be there; what an earlier one had not either is gone."""
        missed = [
            key
            for key in (*(self._by_id.keys() - found), *self._expected)
            if self._made_at.get(key, float("-inf")) < now
        ]
        for key in missed:
            if key not in self._unsure:
                self._unsure[key] = False
            elif isinstance(key, str):
                self.forget(key)
            else:
                self._expected.discard(key)
                self._settle(key)
        return bool(missed)

    def _put(self, server: Server) -> None:
        self._by_id[server.id] = server
        self._of_item.setdefault(server.item, {})[server.id] = server
        self._expected.discard(server.item)
        if not server.is_unexplained:
            self._to_explain.discard(server.id)
        elif server.id not in self._to_explain:
            self._to_explain.add(server.id)
            self._unexplained.append(server.id)
        self._settle(server.id)
        self._settle(server.item)

    def _settle(self, key: str | Item) -> None:
        self._made_at.pop(key, None)
        self._unsure.pop(key, None)


def _server(item: Item, entry: Mapping[str, Any]) -> Server:
    status = str(entry["status"])
    return Server(
        id=str(entry["id"]),
        item=item,
        status=status,
        created=str(entry.get("created") or ""),
        host=str(entry.get("OS-EXT-SRV-ATTR:host") or entry.get("hostId") or ""),
        fault=fault_of(entry) if status == "ERROR" else None,
    )
