"""The cluster's members as they report themselves, over several polls: online, gone, or the leader."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tippingpoint.workloads.spawn.target import MemberSeen

Status = Literal["online", "offline", "lost", "evicted", "joined", "back"]


class Change(NamedTuple):
    """A change of a member.

    It is online (or online again), offline (does not answer), lost (gone for good, as far as polls show), evicted (no
    longer a member), joined, or back (after it was lost).
    """

    member: str
    status: Status


@dataclass(slots=True)
class _Member:
    takes: bool
    address: str
    away: int = 0
    """How many polls in a row showed it as offline."""
    lost: bool = False


class Members:
    """The members of the cluster; none are known before the first poll.

    A member is lost when its own status was offline in `offline_polls` polls in a row. A failed poll neither counts
    nor interrupts: when the cluster has lost its quorum, no member is lost because of that. A stale status does not
    count either.
    """

    def __init__(self, offline_polls: int) -> None:
        self._offline_polls = offline_polls
        self._members: dict[str, _Member] = {}
        self.leader = ""
        self.known = False
        """Whether there has been a poll. It may have shown no members if these are known only from the things on
        them."""

    def see(self, members: Iterable[MemberSeen]) -> list[Change]:
        """Take a poll's answer; returns what has changed since the previous one."""
        changes: list[Change] = []
        present: set[str] = set()
        for seen in members:
            present.add(seen.name)
            if seen.leader:
                self.leader = seen.name
            if seen.name not in self._members:
                self._members[seen.name] = _Member(seen.takes, seen.address)
                if seen.online:
                    changes.append(Change(seen.name, "joined" if self.known else "online"))
            changes += self._follow(self._members[seen.name], seen)
        for name in self._members.keys() - present:
            del self._members[name]
            changes.append(Change(name, "evicted"))
        self.known = True
        return changes

    def _follow(self, member: _Member, seen: MemberSeen) -> list[Change]:
        member.takes = seen.takes
        if seen.online:
            status: Status = "back" if member.lost else "online"
            changes = [Change(seen.name, status)] if member.away else []
            member.away, member.lost = 0, False
            return changes
        changes = [Change(seen.name, "offline")] if not member.away else []
        if seen.stale:
            member.away = max(1, member.away)
            return changes
        member.away += 1
        if member.away >= self._offline_polls and not member.lost:
            member.lost = True
            changes.append(Change(seen.name, "lost"))
        return changes

    def is_online(self, name: str) -> bool:
        """Return whether a member answers; an empty name, as on a single server, is always online."""
        member = self._members.get(name)
        return not name or (member is not None and not member.away)

    def is_lost(self, name: str) -> bool:
        """Return whether a member is gone, as far as polls show, and still belongs to the cluster."""
        member = self._members.get(name)
        return member is not None and member.lost

    def address(self, name: str) -> str:
        """Return where a member is reached; empty if that is unknown."""
        member = self._members.get(name)
        return member.address if member is not None else ""

    @property
    def away(self) -> list[str]:
        """The members that do not answer now."""
        return [name for name, member in self._members.items() if member.away]

    @property
    def lost(self) -> list[str]:
        """The members that are gone and still belong to the cluster."""
        return [name for name, member in self._members.items() if member.lost]

    def emptiest(self, things: Mapping[str, int], turn: int) -> str | None:
        """Return the member with the fewest things among those that accept new ones; None if there is none.

        `turn` decides among equals, so that workers do not all begin with the same member.
        """
        names = sorted(name for name, member in self._members.items() if member.takes and not member.away)
        if not names:
            return None
        turn %= len(names)
        return min(names[turn:] + names[:turn], key=lambda name: things.get(name, 0))
