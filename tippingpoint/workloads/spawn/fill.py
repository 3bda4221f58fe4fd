"""Compares the things that exist with those that a stage wants, and finds each thing's next step: no calls, no
clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from typing import Literal

from tippingpoint.plan.spawn import SpawnStage, Until
from tippingpoint.workloads.spawn.members import Members
from tippingpoint.workloads.spawn.target import Changes, Item, Seen

SETTLES = 60.0
"""Seconds after which a thing counts as not running if lists cannot show whether it runs. After the loss of its leader,
LXD 5.0.2 showed up to 12 instances as Error for 20 s although their members were online all the time."""

Step = Literal["create", "start", "reachable", "probe", "off", "on", "release", "delete"]
CHANGES: tuple[Step, ...] = ("create", "start", "release", "delete")
"""The steps that make or remove a thing."""
TRIES: tuple[Step, ...] = ("probe", "off", "on")
"""The steps that try a thing that was made."""


class Level(IntEnum):
    """How far a thing has come."""

    ABSENT = 0
    CREATED = 1
    STARTED = 2
    REACHABLE = 3
    PROBED = 4
    OFF = 5
    ON = 6


_UNTIL: dict[Until, Level] = {
    "created": Level.CREATED,
    "started": Level.STARTED,
    "reachable": Level.REACHABLE,
    "probed": Level.PROBED,
    "switched": Level.ON,
}
_NEXT: dict[Level, Step] = {
    Level.ABSENT: "create",
    Level.CREATED: "start",
    Level.STARTED: "reachable",
    Level.REACHABLE: "probe",
    Level.PROBED: "off",
    Level.OFF: "on",
}
_DONE: dict[Step, Level] = {
    "create": Level.CREATED,
    "start": Level.STARTED,
    "reachable": Level.REACHABLE,
    "probe": Level.PROBED,
    "off": Level.OFF,
    "on": Level.ON,
    "delete": Level.ABSENT,
}


class Doing(Enum):
    """The present activity of a thing."""

    NOTHING = auto()
    WAITING = auto()
    """It waits for its turn to be made or removed."""
    WAITING_TO_PROBE = auto()
    """It waits for its turn to be probed."""
    UNDER_WAY = auto()
    """An operation on it was sent."""
    RESTING = auto()
    """An operation failed, and is retried later."""


class Standing(Enum):
    """How a thing counts."""

    NONE = auto()
    """It does not exist, and is not wanted."""
    HELD = auto()
    """It is as wanted."""
    WAITING = auto()
    """It still has to be made as wanted."""
    SURPLUS = auto()
    """It exists, and has to be removed."""
    OUT = auto()
    """It is not as wanted, and remains so: its retries are used up, its member is gone, or it is not repaired."""


@dataclass(slots=True, eq=False)
class Thing:
    """One thing, with everything known about it."""

    item: Item
    level: Level = Level.ABSENT
    member: str = ""
    in_use: bool = False
    """Whether it has to be released before it is removed."""
    unclear: bool = False
    """Whether it is unknown if it runs."""
    unclear_since: float = float("inf")
    """The moment since which lists could not show whether it runs."""
    doing: Doing = Doing.NOTHING
    touched: float = float("-inf")
    """When an operation on it last ended: an older list says nothing about it."""
    again: float = 0.0
    """When it is retried, while it is resting."""
    doubted: Step | None = None
    """The step whose answer contradicted what we knew: the next list decides."""
    awaited: float | None = None
    """Since when it waits for an address."""
    launched: tuple[float, float] | None = None
    """When its creation was due and when it was sent, until the thing is as wanted."""
    has_turn: bool = False
    failed: bool = False
    """Whether what exists of it will never run: it is removed, and made anew."""
    lost: bool = False
    """Whether it existed and disappeared, or its member did."""
    begun: tuple[float, float] | None = None
    """The same, until it is removed again, in a cycle."""
    over: bool = False
    """Whether it was made and removed again, in a cycle."""
    gave_up: bool = False
    stays: bool = False
    """Whether it could not be removed."""
    standing: Standing = Standing.NONE


@dataclass(frozen=True)
class Goal:
    """The things that a stage wants."""

    groups: int = 0
    instances: int = 0
    level: Level = Level.CREATED
    cycle: bool = False
    """Whether things are removed as soon as they are as wanted."""

    @classmethod
    def of(cls, stage: SpawnStage, until: Until, *, cycle: bool = False) -> Goal:
        """Return the goal of a plan's stage."""
        return cls(stage.groups, stage.instances, _UNTIL[until], cycle)

    def wants(self, item: Item) -> bool:
        """Return whether a thing is wanted."""
        return item.group < self.groups and item.number < self.instances


@dataclass(frozen=True)
class Looked:
    """What a list showed."""

    todo: list[Thing]
    """Things that have changed, and those for which nothing is being done yet."""
    denied: list[tuple[Thing, Step]]
    """Things that the list shows as we knew them, although the answer to a step contradicted that."""
    lost: Counter[str]
    """How many things existed and are gone, by the member that they were on."""


@dataclass(slots=True)
class _Group:
    things: dict[Item, Thing] = field(default_factory=dict[Item, Thing])
    waiting: int = 0
    compared: bool = False
    """Whether all of its things were compared with a list in this stage."""
    unsettled: set[Thing] = field(default_factory=set[Thing])
    """Things for which the next list matters, even if it shows no change from the previous one."""


class Fill:
    """All things of one worker: those that a stage wants, and those that exist.

    `addressed` means that a thing has its address once it has started, and `releases` that a thing that was probed has
    to be released before it is removed.
    """

    def __init__(
        self,
        members: Members,
        *,
        repair: bool,
        evict: bool,
        addressed: bool = False,
        releases: bool = False,
    ) -> None:
        self._members = members
        self._repair = repair
        self._evict = evict
        self._started = Level.REACHABLE if addressed else Level.STARTED
        self._releases = releases
        self._goal = Goal()
        self._groups: dict[int, _Group] = {}
        self._standings: Counter[Standing] = Counter()
        self.placed: Counter[str] = Counter()
        """How many things are on each member, or are being made there."""

    @property
    def held(self) -> int:
        """How many things are as wanted, or exist and have to be removed."""
        return self._standings[Standing.HELD] + self._standings[Standing.SURPLUS]

    @property
    def waiting(self) -> int:
        """How many things still have to be made as wanted, or removed."""
        return self._standings[Standing.WAITING] + self._standings[Standing.SURPLUS]

    @property
    def left(self) -> int:
        """How many unwanted things exist."""
        return sum(thing.level > Level.ABSENT for thing in self.things() if not self._goal.wants(thing.item))

    def begin(self, goal: Goal, groups: Sequence[int]) -> None:
        """Take a stage's goal for the worker's groups; nothing has been tried yet, and nothing is certain."""
        self._goal = goal
        for group in groups:
            things = self._groups.setdefault(group, _Group()).things
            self._groups[group].compared = False
            if group < goal.groups:
                for number in range(goal.instances):
                    item = Item(group, number)
                    if item not in things:
                        things[item] = Thing(item)
        for thing in self.things():
            thing.gave_up = thing.over = thing.stays = False
            thing.begun = None
            thing.doubted = None
            thing.awaited = None
            thing.launched = thing.launched if goal.wants(thing.item) else None
            if thing.doing is not Doing.UNDER_WAY:
                thing.doing = Doing.NOTHING
            self.stand(thing)

    def leave(self, group: int) -> None:
        """Give a group to another worker: its things no longer count here."""
        for thing in self._groups.pop(group).things.values():
            self.place(thing, "")
            self._standings[thing.standing] -= 1

    def has(self, thing: Thing) -> bool:
        """Return whether a thing still belongs to this worker."""
        group = self._groups.get(thing.item.group)
        return group is not None and group.things.get(thing.item) is thing

    def excuse(self, thing: Thing) -> None:
        """Let a thing that was given up be tried again, or be made again although losses are not repaired."""
        thing.gave_up = thing.stays = False
        thing.lost = thing.lost and self._repair
        self.stand(thing)

    def things(self) -> Iterator[Thing]:
        """Return all things, interleaved over the groups, in a fixed order."""
        return iter(
            sorted(
                (thing for group in self._groups.values() for thing in group.things.values()),
                key=lambda thing: (thing.item.number, thing.item.group),
            )
        )

    def changes(self, group: int) -> bool:
        """Return whether anything in a group still has to change."""
        return self._groups[group].waiting > 0

    def matters(self, group: int) -> bool:
        """Return whether anything in a group exists or is wanted."""
        return bool(self._groups[group].things)

    def running(self) -> Item | None:
        """Return a thing that runs, as far as we know; None without one."""
        return next(
            (
                thing.item
                for group in self._groups.values()
                for thing in group.things.values()
                if thing.level >= Level.STARTED
                and not thing.unclear
                and self._members.is_online(thing.member)
            ),
            None,
        )

    def step(self, thing: Thing) -> Step | None:
        """Return the next step for a thing; None if there is none, or none is possible now."""
        if thing.standing is Standing.SURPLUS:
            return _removal(thing) if self._members.is_online(thing.member) else None
        if thing.standing is not Standing.WAITING or thing.unclear or thing.doubted:
            return None
        if thing.level and not self._members.is_online(thing.member):
            return None
        if thing.failed or (self._goal.cycle and self.is_as_wanted(thing)):
            return _removal(thing)
        return _NEXT[thing.level]

    def is_as_wanted(self, thing: Thing) -> bool:
        """Return whether a thing has come as far as the stage wants."""
        return self._goal.wants(thing.item) and thing.level >= self._goal.level

    def done(self, thing: Thing, step: Step) -> None:
        """Note that a step succeeded."""
        if step == "release":
            thing.in_use = False
            return
        thing.level = self._started if step == "start" else _DONE[step]
        thing.in_use = step != "delete" and (thing.in_use or (step == "probe" and self._releases))
        if step != "create":
            thing.unclear, thing.unclear_since = False, float("inf")
        if thing.level is Level.ABSENT:
            self.place(thing, "")
            thing.over = self._goal.cycle and not (thing.gave_up or thing.failed)
            thing.failed = False
        self.stand(thing)

    def fail(self, thing: Thing) -> None:
        """Note that what exists of a thing will never run."""
        thing.failed = thing.level is Level.CREATED

    def place(self, thing: Thing, member: str) -> None:
        """Note that a thing is on a member, or is about to be; an empty name means none."""
        if thing.member == member:
            return
        if thing.member:
            self.placed[thing.member] -= 1
            if not self.placed[thing.member]:
                del self.placed[thing.member]
        if member:
            self.placed[member] += 1
        thing.member = member

    def stand(self, thing: Thing) -> None:
        """Update how a thing counts; must be called after each change of it."""
        group = self._groups[thing.item.group]
        group.unsettled.add(thing)
        standing = self._standing(thing)
        if standing is thing.standing:
            return
        unfinished = (Standing.WAITING, Standing.SURPLUS)
        group.waiting += (standing in unfinished) - (thing.standing in unfinished)
        self._standings[thing.standing] -= 1
        self._standings[standing] += 1
        thing.standing = standing

    def _standing(self, thing: Thing) -> Standing:
        gone = bool(thing.level) and self._members.is_lost(thing.member)
        if not self._goal.wants(thing.item):
            if thing.doing is Doing.UNDER_WAY:
                return Standing.SURPLUS
            if not thing.level:
                return Standing.NONE
            return Standing.OUT if thing.gave_up or (gone and not self._evict) else Standing.SURPLUS
        if gone:
            return Standing.WAITING if self._evict and self._repair else Standing.OUT
        if self._goal.cycle:
            return self._standing_in_cycle(thing)
        if thing.level >= self._goal.level:
            return Standing.HELD
        if thing.gave_up or (thing.lost and not self._repair):
            return Standing.OUT
        return Standing.WAITING

    def _standing_in_cycle(self, thing: Thing) -> Standing:
        if thing.over:
            return Standing.HELD
        if thing.gave_up:  # its remains are unwanted, and do no harm
            return Standing.SURPLUS if thing.level and not thing.stays else Standing.OUT
        return Standing.WAITING

    # -- what lists and members show ---------------------------------------------------------------

    def see(self, group: int, listed: Mapping[Item, Seen], asked: float) -> Looked:
        """Compare a group's list, which was requested at the moment `asked`, with what was known.

        With Changes, once all things have been compared in this stage, only the changed and unsettled things are
        compared.
        """
        looked = Looked([], [], Counter())
        things, unsettled = self._groups[group].things, self._groups[group].unsettled
        for thing in self._to_compare(self._groups[group], listed):
            if thing.doing is Doing.UNDER_WAY or thing.touched >= asked:
                unsettled.add(thing)
                continue
            before = thing.level
            seen = listed.get(thing.item)
            if seen is None:
                self._miss(thing, looked.lost)
            else:
                self._find(thing, seen, asked)
            doubted, thing.doubted = thing.doubted, None
            self.stand(thing)
            if _is_settled(thing):
                unsettled.discard(thing)
            if thing.standing is Standing.NONE:
                del things[thing.item]
                continue
            step = self.step(thing)
            if doubted is not None and doubted == step:
                looked.denied.append((thing, doubted))
            elif thing.level is not before or (step is not None and thing.doing is Doing.NOTHING):
                looked.todo.append(thing)
        if isinstance(listed, Changes):
            listed.taken()
        return looked

    def _to_compare(self, group: _Group, listed: Mapping[Item, Seen]) -> list[Thing]:
        """Return the things to compare with a list, including those that only the list has."""
        things = group.things
        if group.compared and isinstance(listed, Changes):
            new = [item for item in listed.changed if item not in things and item in listed]
            things |= {item: Thing(item) for item in sorted(new)}
            changed = {things[item] for item in listed.changed if item in things}
            return sorted(changed | group.unsettled, key=lambda thing: thing.item)
        group.compared = True
        for item in listed.keys() - things.keys():
            things[item] = Thing(item)
        return [*things.values()]

    def _miss(self, thing: Thing, lost: Counter[str]) -> None:
        if self._goal.cycle and self.is_as_wanted(thing):
            thing.over = True  # the answer to its removal was lost
        elif thing.level and self._goal.wants(thing.item) and not (thing.lost or thing.failed):
            thing.lost = True
            lost[thing.member] += 1
        thing.level = Level.ABSENT
        thing.failed = thing.in_use = False
        thing.unclear, thing.unclear_since = False, float("inf")
        thing.awaited = None
        self.place(thing, "")

    def _find(self, thing: Thing, seen: Seen, asked: float) -> None:
        self.place(thing, seen.member)
        thing.in_use = seen.in_use
        thing.unclear_since = min(thing.unclear_since, asked) if seen.unclear else float("inf")
        online = self._members.is_online(seen.member)
        thing.unclear = not online or (seen.unclear and asked - thing.unclear_since < SETTLES)
        if thing.unclear:
            thing.level = max(thing.level, Level.CREATED)
            return
        shown = Level.CREATED
        if seen.running:
            shown = Level.REACHABLE if seen.address else Level.STARTED
        if shown is Level.CREATED:
            # It has stopped: if losses are not repaired, it is left as it is.
            thing.lost = thing.lost or (thing.level > Level.CREATED and not self._repair)
            thing.level = shown
            thing.awaited = None
        else:
            thing.level = max(thing.level, shown)
            thing.failed = False

    def lose(self, member: str) -> int:
        """Note that a member is lost, with everything on it; returns how many wanted things are lost with it.

        Whether these run is checked when the member is back.
        """
        count = 0
        for thing in self._on(member):
            thing.awaited = None
            if thing.level and self._goal.wants(thing.item):
                thing.level, thing.unclear = Level.CREATED, True
                count += not thing.lost
                thing.lost = True
            self.stand(thing)
        return count

    def reconsider(self, member: str) -> Sequence[Thing]:
        """Count the things on a member anew, because its status has changed; returns them."""
        things = self._on(member)
        for thing in things:
            self.stand(thing)
        return things

    def _on(self, member: str) -> list[Thing]:
        return [thing for thing in self.things() if thing.member == member]


def _is_settled(thing: Thing) -> bool:
    """Return whether a thing stays as it is, or waits for its turn, until something about it changes."""
    if thing.unclear or thing.doubted:
        return False
    if thing.standing is Standing.WAITING:
        return thing.level is Level.ABSENT and thing.doing is Doing.WAITING
    return thing.standing is not Standing.SURPLUS


def _removal(thing: Thing) -> Step:
    return "release" if thing.in_use else "delete"
