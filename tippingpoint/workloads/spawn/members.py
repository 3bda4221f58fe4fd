"""The cluster's members as they report themselves, over several polls: who is there, who is gone, who leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tippingpoint.workloads.spawn.target import MemberSeen

Status = Literal["online", "offline", "lost", "evicted", "joined", "back"]


class Change(NamedTuple):
    """What became of a member: it is there (or there again), does not answer, is gone for good as far as polls tell,
    is no longer a member, came to the cluster, or came back after it was gone."""

    member: str
    status: Status


@dataclass(slots=True)
class _Member:
    takes: bool
    address: str
    away: int = 0
    """Polls in a row in which it was offline."""
    lost: bool = False


class Members:
    """Who is there. Until the first poll nobody is known.

    A member is lost when its own status was offline in `offline_polls` polls in a row. A poll that failed says nothing
    and interrupts nothing: when the cluster has lost its quorum, nobody is lost for that. Neither does one count whose
    word for it is stale.
    """

    def __init__(self, offline_polls: int) -> None:
        self._offline_polls = offline_polls
        self._members: dict[str, _Member] = {}
        self.leader = ""
        self.known = False
        """Whether there was a poll; where members are known by what is on them, it may tell of none."""

    def see(self, members: Iterable[MemberSeen]) -> list[Change]:
        """Take a poll's answer; returns what changed since the one before."""
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
        """Whether a member answers; what is on none in particular, as on a single server, is where we are."""
        member = self._members.get(name)
        return not name or (member is not None and not member.away)

    def is_lost(self, name: str) -> bool:
        """Whether a member is gone, as far as polls tell, and still one of the cluster."""
        member = self._members.get(name)
        return member is not None and member.lost

    def address(self, name: str) -> str:
        """Where a member is reached; empty where it is not known."""
        member = self._members.get(name)
        return member.address if member is not None else ""

    @property
    def away(self) -> list[str]:
        """The members that do not answer now."""
        return [name for name, member in self._members.items() if member.away]

    @property
    def lost(self) -> list[str]:
        """The members that are gone and still of the cluster."""
        return [name for name, member in self._members.items() if member.lost]

    def emptiest(self, things: Mapping[str, int], turn: int) -> str | None:
        """The member that is to have the next thing: of those that take new ones, which has the fewest; None when
        there is none. `turn` says who is first among equals, so that workers do not all begin with the same."""
        names = sorted(name for name, member in self._members.items() if member.takes and not member.away)
        if not names:
            return None
        turn %= len(names)
        return min(names[turn:] + names[:turn], key=lambda name: things.get(name, 0))
