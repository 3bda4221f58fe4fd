"""A group's servers, as assembled from nova's lists of changes without losing any."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tippingpoint.targets.openstack.errors import OpenstackError, fault_of
from tippingpoint.workloads.spawn.target import Changes, Item, Seen

MARK = "tippingpoint"
"""Key of the servers' metadata, and of the image's property, that names the run that created them."""
OVERLAP = 5.0
"""Seconds by which a list of changes overlaps the previous list. Nova dates a change by the clock of the host that
makes it, in whole seconds, and may show it a moment later."""
WHOLE_EVERY = 60.0
"""Seconds after which everything is listed again, so that nothing is missed for good."""
WHOLE_SHARE = 20.0
"""The least pause until the next whole list, in multiples of the time that the last one took."""

_GONE = ("DELETED", "SOFT_DELETED")


# Names


def group_name(prefix: str, group: int) -> str:
    """Return the name of a group's project, network, subnet and router."""
    return f"{prefix}-{group:03d}"


def group_of(prefix: str, name: str) -> int | None:
    """Return the group with this name; None if it is not one of the run's."""
    found = re.fullmatch(rf"{re.escape(prefix)}-([0-9]{{3,}})", name)
    return int(found[1]) if found and group_name(prefix, int(found[1])) == name else None


def server_name(prefix: str, item: Item) -> str:
    """Return the name of a server that is created by a call of its own."""
    return f"{group_name(prefix, item.group)}-{item.number:04d}"


def names_of_many(prefix: str, first: Item, count: int) -> str:
    """Return the name in a call that creates this many servers; nova appends -1, -2 and so on."""
    return f"{server_name(prefix, first)}x{count}"


def item_of(prefix: str, name: object) -> Item | None:
    """Return the server (group and number) with this name; None if it is not one of the run's."""
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
    """Whether a server that has one of the run's names carries the run's mark."""
    match server.get("metadata"):
        case {"tippingpoint": marked}:  # MARK
            return marked == run
        case _:
            return False


# Present servers


@dataclass(slots=True)
class Server:
    """A server as the latest list showed it."""

    id: str
    item: Item
    status: str
    created: str = ""
    host: str = ""
    """Its host's name for an admin, for others the id that nova shows (hostId); empty while unknown."""
    fault: OpenstackError | None = None
    """Why it could not be built, if its status is ERROR; None while nova has not reported it."""

    @property
    def is_unexplained(self) -> bool:
        """Whether it is in ERROR and nova has not reported why."""
        return self.status == "ERROR" and self.fault is None


class Servers:
    """The servers of one group, updated by lists.

    A server missing in a list of changes is unchanged. A server missing in two whole lists is gone. (One is not
    enough: nova lists a new server nowhere for a moment.) A whole list does not show servers deleted before it. So a
    server that it misses is first looked for in the next list of changes, and only then in another whole list.
    """

    def __init__(self, prefix: str, run: str, group: int) -> None:
        self._prefix = prefix
        self._run = run
        self._group = group
        self._by_id: dict[str, Server] = {}
        self._of_item: dict[Item, list[Server]] = {}
        self._several: set[Item] = set()
        """Names that more than one server has."""
        self._expected: set[Item] = set()
        self.changed: set[Item] = set()
        """Servers that came, went or changed since this set was last taken."""
        self._made_at: dict[str | Item, float] = {}
        """When nova accepted a server that no list has shown yet, on our clock. Older lists cannot have it."""
        self._unsure: dict[str | Item, bool] = {}
        """Servers that a whole list did not have, and whether a later list of changes did not have them, either."""
        self._unexplained: list[str] = []
        self._to_explain: set[str] = set()
        """Servers in ERROR whose fault no list has shown, whether it was requested or not."""
        self._since: datetime | None = None
        self._whole_at = float("-inf")
        self._whole_took = 0.0

    def get(self, item: Item) -> Server | None:
        """Return the server of that name. Lost answers can cause several; then it is the first that was created."""
        return min(self._of_item.get(item, ()), key=lambda server: (server.created, server.id), default=None)

    def all_of(self, item: Item) -> list[Server]:
        """Return all servers of that name."""
        return [*self._of_item.get(item, ())]

    def by_id(self, identity: str) -> Server | None:
        """Return the server with that id."""
        return self._by_id.get(identity)

    def is_expected(self, item: Item) -> bool:
        """Whether nova has accepted its creation, and no list has shown it yet."""
        return item in self._expected

    @property
    def there(self) -> Iterable[Item]:
        """The servers that exist or are being created."""
        return self._of_item.keys() | self._expected

    def is_there(self, item: Item) -> bool:
        """Whether the server exists or is being created."""
        return item in self._of_item or item in self._expected

    def count(self) -> int:
        """Return how many names have a server that exists or is being created."""
        return len(self._of_item) + len(self._expected)

    @property
    def surplus(self) -> list[Server]:
        """Servers whose name an older server already has."""
        return [
            server
            for item in sorted(self._several)
            for server in self._of_item[item]
            if server is not self.get(item)
        ]

    def made(self, item: Item, identity: str, now: float) -> None:
        """Note that nova has accepted the creation of a server now; the id is empty if nova did not return it."""
        if not identity:
            if item not in self._of_item:
                self._expected.add(item)
                self.changed.add(item)
                self._made_at[item] = now
        elif identity not in self._by_id:
            self._put(Server(identity, item, "BUILD"))
            self._made_at[identity] = now

    def forget(self, identity: str) -> None:
        """Note that a server is gone."""
        server = self._by_id.pop(identity, None)
        if server is not None:
            several = self._of_item[server.item]
            several.remove(server)
            if not several:
                del self._of_item[server.item]
            if len(several) < 2:
                self._several.discard(server.item)
            self.changed.add(server.item)
            self._to_explain.discard(identity)
            self._settle(identity)

    def take_unexplained(self) -> list[str]:
        """Return the ids of servers in ERROR whose fault the lists do not show, each once.

        Lists have the faults of only one of nova's cells, and servers that fit on no host are in a cell of their own.
        """
        taken, self._unexplained = self._unexplained, []
        return taken

    def leave_unexplained(self, identity: str) -> None:
        """Note that a server's fault could not be determined, so that it is requested again."""
        if identity in self._to_explain:
            self._unexplained.append(identity)

    def explain(self, identity: str, fault: OpenstackError) -> None:
        """Note a server's fault."""
        server = self._by_id.get(identity)
        if server is not None and server.is_unexplained:
            server.fault = fault

    # -- lists -----------------------------------------------------------------------------------

    def since(self, now: float) -> str | None:
        """Return the moment (UTC) since which changes are to be listed; None for a whole list."""
        pause = max(WHOLE_EVERY, WHOLE_SHARE * self._whole_took)
        if self._since is None or any(self._unsure.values()) or now - self._whole_at >= pause:
            return None
        return self._since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def see(
        self,
        listed: Iterable[Server],
        *,
        whole: bool,
        answered: datetime | None,
        now: float,
        took: float,
    ) -> None:
        """Process a list of everything (`whole`) or of changes, as `read_page` reads it.

        `answered` is when nova answered, by its clock, and `took` the seconds that it took. `now` is on our clock.
        """
        found: set[str] = set()
        for server in listed:
            if server.status in _GONE:
                self.forget(server.id)
                continue
            if server.item.group != self._group:
                continue
            found.add(server.id)
            before = self._by_id.get(server.id)
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
        """Whether a whole list misses present servers. Those that an earlier one missed, too, are forgotten."""
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
                self.changed.add(key)
                self._settle(key)
        return bool(missed)

    def _put(self, server: Server) -> None:
        before = self._by_id.get(server.id)
        if before is not None and before == server:  # as most are in a whole list
            server = before
        else:
            self._replace(before, server)
        self._expected.discard(server.item)
        if not server.is_unexplained:
            self._to_explain.discard(server.id)
        elif server.id not in self._to_explain:
            self._to_explain.add(server.id)
            self._unexplained.append(server.id)
        self._settle(server.id)
        self._settle(server.item)

    def _replace(self, before: Server | None, server: Server) -> None:
        """Replace what was known of a server; `before` is None for a new one."""
        if before is not None and before.item != server.item:  # somebody gave it another name
            self.forget(server.id)
            before = None
        several = self._of_item.setdefault(server.item, [])
        if before is not None:
            several.remove(before)
        several.append(server)
        if len(several) > 1:
            self._several.add(server.item)
        self._by_id[server.id] = server
        self.changed.add(server.item)

    def _settle(self, key: str | Item) -> None:
        self._made_at.pop(key, None)
        self._unsure.pop(key, None)


def read_page(prefix: str, run: str, page: Iterable[Mapping[str, Any]]) -> list[Server]:
    """Return the run's servers on a page of a list, including those that are gone, with only the fields that are
    needed.

    KeyError or TypeError if it is not a page of servers.
    """
    return [*_read(prefix, run, page)]


def _read(prefix: str, run: str, page: Iterable[Mapping[str, Any]]) -> Iterator[Server]:
    for entry in page:
        item = item_of(prefix, entry["name"])
        # A deleted server's metadata is gone, too.
        if item is not None and (entry["status"] in _GONE or is_marked(run, entry)):
            yield _server(item, entry)


def _server(item: Item, entry: Mapping[str, Any]) -> Server:
    status = sys.intern(str(entry["status"]))
    return Server(
        id=str(entry["id"]),
        item=item,
        status=status,
        created=str(entry.get("created") or ""),
        host=sys.intern(str(entry.get("OS-EXT-SRV-ATTR:host") or entry.get("hostId") or "")),
        fault=fault_of(entry) if status == "ERROR" else None,
    )


class ListedServers(Changes):
    """A group's servers as the workload sees a list."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def __getitem__(self, item: Item) -> Seen:
        server = self._servers.get(item)
        if server is not None:
            return Seen(server.status == "ACTIVE", server.host, unclear=server.status == "UNKNOWN")
        if self._servers.is_expected(item):
            return Seen(running=False, member="")
        raise KeyError(item)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._servers.there)

    def __len__(self) -> int:
        return self._servers.count()

    def __contains__(self, item: object) -> bool:
        return isinstance(item, Item) and self._servers.is_there(item)

    @property
    def changed(self) -> set[Item]:
        return self._servers.changed

    def taken(self) -> None:
        self._servers.changed = set()
