"""A stage's goal for a model, the model's present state, and the calls that lead from the state to the goal.

Applications and machines are numbers; a pair is a relation between two applications, the lower number first.
Nothing here talks to a controller.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tippingpoint.plan.grow import GrowStage, GrowUnit
from tippingpoint.targets.juju.api.model import fields, items
from tippingpoint.targets.juju.hollow import application_name, instance_id

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Share:
    """One of `of` equal parts of a model: every of-th application and machine from `index` on.

    A share has its own machines and applications, and most of its relations are between these, so that workers
    need not wait for each other. A share whose `index` is not below `of` is empty.
    """

    index: int
    of: int

    @classmethod
    def among(cls, stages: Sequence[GrowStage], index: int, workers: int) -> Share:
        """Return a worker's share for all of a plan's stages. No more shares are used than any stage has machines."""
        fewest = min((stage.machines for stage in stages if stage.size), default=workers)
        return cls(index, max(1, min(workers, fewest)))

    def numbers(self, count: int) -> Sequence[int]:
        """The share's numbers below `count`."""
        return range(self.index, count, self.of) if self.index < self.of else ()

    def pairs(self, applications: int) -> Iterator[Pair]:
        """The share's pairs among this many applications, nearest first, pairs within the share before others.

        A pair belongs to the share of its first application.
        """
        return (pair for pair in _pairs(applications, self.of) if self._owns(pair))

    def count_of(self, relations: int, applications: int) -> int:
        """Return the share's part of this many relations between this many applications."""
        return sum(self._owns(pair) for pair in itertools.islice(_pairs(applications, self.of), relations))

    def _owns(self, pair: Pair) -> bool:
        return pair[0] % self.of == self.index


def _pairs(applications: int, shares: int) -> Iterator[Pair]:
    own = range(shares, applications, shares)
    across = (distance for distance in range(1, applications) if distance % shares)
    for distance in itertools.chain(own, across):
        for first in range(applications - distance):
            yield first, first + distance


@dataclass(frozen=True)
class Goal:
    """A share of a stage: numbers of machines and applications, units per application, and number of relations."""

    share: Share
    machines: frozenset[int] = frozenset()
    applications: frozenset[int] = frozenset()
    all_applications: int = 0
    units: int = 0
    relations: int = 0

    @classmethod
    def of(cls, stage: GrowStage, share: Share) -> Goal:
        """Return the goal of a share in a stage."""
        return cls(
            share,
            frozenset(share.numbers(stage.machines)),
            frozenset(share.numbers(stage.applications)),
            stage.applications,
            stage.units,
            share.count_of(stage.relations, stage.applications),
        )


@dataclass
class Existing:
    """A share's own things in the model, and the names of others' applications.

    A thing that is being removed (dying, or its removal was requested) is in these and also in `going`. No further
    calls are made for it.
    """

    machines: dict[int, str] = field(default_factory=dict[int, str])
    """The machine's id in the model, by number."""
    units: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    """By application: its units' names, and the ids of their machines. `add_units` keeps the counts."""
    relations: set[Pair] = field(default_factory=set[Pair])
    others: set[int] = field(default_factory=set[int])
    """Applications of other shares."""
    going: set[object] = field(default_factory=set[object])
    """Things being removed: ("machine", n), ("application", n), units by name, and relations as pairs."""
    _on: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def of(cls, status: Mapping[str, Any], share: Share, prefix: str, worker: str) -> Existing:
        """Read a run's things from a full status of the model."""
        existing = cls()
        stem = instance_id(prefix, worker, 0)[:-1]
        for name, machine in fields(status.get("machines")).items():
            number = _number(str(fields(machine).get("instance-id")), stem)
            if number is not None:
                existing.machines[number] = name
                if _is_dying(fields(machine).get("agent-status")):
                    existing.going.add(("machine", number))
        stem = application_name(prefix, 0)[:-1]
        for name, details in fields(status.get("applications")).items():
            number = _number(name, stem)
            if number is None:
                continue
            if share.index >= share.of or number % share.of != share.index:
                existing.others.add(number)
                # After a change of shares, other units may still be on our machines, which must then be kept.
                units = fields(fields(details).get("units")).values()
                existing._on.update(str(fields(unit).get("machine") or "") for unit in units)
                continue
            existing._see_application(number, fields(details))
        for details in items(status.get("relations")):
            relation = fields(details)
            ends = [
                _number(str(fields(end).get("application")), stem) for end in items(relation.get("endpoints"))
            ]
            if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
                pair = (min(ends[0], ends[1]), max(ends[0], ends[1]))
                if pair[0] in existing.units:
                    existing.relations.add(pair)
        return existing

    def _see_application(self, number: int, details: Mapping[str, Any]) -> None:
        if _is_dying(details):
            self.going.add(("application", number))
        units = fields(details.get("units"))
        self.add_units(
            number, {unit: str(fields(about).get("machine") or "") for unit, about in units.items()}
        )
        self.going.update(
            unit for unit, about in units.items() if _is_dying(fields(about).get("agent-status"))
        )

    def add_units(self, application: int, units: Mapping[str, str]) -> None:
        """Add an application's new units (name to machine id), and the application if it is new."""
        self.units.setdefault(application, {}).update(units)
        self._on.update(units.values())

    def units_on(self, machine: str) -> int:
        """Return the number of units on the machine with this id, including those being removed."""
        return self._on[machine]

    def reserve(self, machines: Sequence[str]) -> None:
        """Count requested units on these machines, one for each entry."""
        self._on.update(machines)

    def unreserve(self, machines: Sequence[str]) -> None:
        """Stop counting requested units on these machines."""
        self._on.subtract(machines)

    @property
    def amounts(self) -> dict[GrowUnit, int]:
        """The number of things of each kind, including those being removed."""
        return {
            "units": sum(map(len, self.units.values())),
            "relations": len(self.relations),
            "applications": len(self.units),
            "machines": len(self.machines),
        }

    def has(self, application: int) -> bool:
        """Whether an application exists, in any share, and is not being removed."""
        if application in self.units:
            return ("application", application) not in self.going
        return application in self.others

    def staying_units(self, application: int) -> dict[str, str]:
        """Return the units that are not being removed (name to machine id); none if the application is."""
        if not self.has(application):
            return {}
        units = self.units.get(application, {})
        return {unit: machine for unit, machine in units.items() if unit not in self.going}

    def staying_machines(self) -> dict[int, str]:
        """Return the machines that are not being removed."""
        return {n: name for n, name in self.machines.items() if ("machine", n) not in self.going}


@dataclass(frozen=True, slots=True)
class Step:
    """One call that a stage needs. `number` is that of the machine or the (first) application."""

    operation: str
    number: int
    other: int = -1
    """The second application of a relation."""
    count: int = 0
    """Units to add."""
    units: tuple[str, ...] = ()
    """Units to remove."""

    @property
    def pair(self) -> Pair:
        """The relation's applications."""
        return self.number, self.other


def steps(goal: Goal, existing: Existing, batch: int) -> list[Step]:
    """Return the calls that lead from the model's state to the goal, ordered so that each can follow those before it.

    Up to `batch` units are added (or removed) in one call. An application's first unit comes with its deploy, as with
    `juju deploy`. Removal of a thing is not requested twice. Its replacement waits for a later round, and so does the
    removal of a machine until its last unit is gone. The goal is reached when the result is empty and nothing is
    being removed.
    """
    removals, losing = _removals(goal, existing, batch)
    machines = [Step("add-machine", number) for number in sorted(goal.machines - existing.machines.keys())]
    deploys = [
        Step("deploy", number, count=min(1, goal.units))
        for number in sorted(goal.applications - existing.units.keys())
    ]
    relating = [Step("relate", *pair) for pair in _missing_pairs(goal, existing)]
    leaving = [
        Step("remove-machine", number)
        for number in sorted(existing.staying_machines().keys() - goal.machines)
        if not existing.units_on(existing.machines[number])
    ]
    return [
        *removals,
        *machines,
        *deploys,
        *_unit_additions(goal, existing, batch, losing),
        *relating,
        *leaving,
    ]


def is_done(goal: Goal, existing: Existing) -> bool:
    """Whether the model's state is the goal, with no removal going on."""
    return (
        not existing.going and frozenset(existing.machines) == goal.machines and not steps(goal, existing, 1)
    )


def waits_for(step: Step, existing: Existing) -> object | None:
    """Return the missing thing that a step depends on, named as in `going` ("machine" for any), or None."""
    machine = None if existing.staying_machines() else "machine"
    match step.operation:
        case "deploy":
            if step.number in existing.units:  # it is being removed: its name is not free yet
                return ("no application", step.number)
            return machine if step.count else None
        case "add-unit":
            return machine if existing.has(step.number) else ("application", step.number)
        case "relate":
            return next((("application", end) for end in step.pair if not existing.has(end)), None)
        case _:
            return None


def placement(existing: Existing, goal: Goal, count: int) -> list[str]:
    """Choose machine ids for new units, emptiest first, from the machines that stay; empty if there are none."""
    load = {
        name: existing.units_on(name) for n, name in existing.staying_machines().items() if n in goal.machines
    }
    chosen: list[str] = []
    for _ in range(count if load else 0):
        name = min(load, key=load.__getitem__)
        load[name] += 1
        chosen.append(name)
    return chosen


def _removals(goal: Goal, existing: Existing, batch: int) -> tuple[list[Step], set[str]]:
    """Return the calls that remove relations, units and applications, and the units removed one by one."""
    kept = _kept_pairs(goal, existing)
    removals = [
        Step("remove-relation", *pair)
        for pair in sorted(existing.relations - kept)
        if pair not in existing.going and pair[0] in goal.applications and pair[1] < goal.all_applications
    ]
    staying = {name for number, name in existing.machines.items() if number in goal.machines}
    losing: set[str] = set()
    for number in sorted(goal.applications & existing.units.keys()):
        units = existing.staying_units(number)
        # Units on machines to be removed come first, then the youngest.
        order = sorted(units, key=lambda unit: (units[unit] in staying, -_unit_number(unit)))
        elsewhere = sum(bool(units[unit]) and units[unit] not in staying for unit in order)
        surplus = order[: max(elsewhere, len(order) - goal.units)]
        losing.update(surplus)
        removals += [
            Step("remove-unit", number, units=tuple(surplus[first : first + batch]))
            for first in range(0, len(surplus), batch)
        ]
    removals += [
        Step("remove-application", number)
        for number in sorted(existing.units.keys() - goal.applications)
        if ("application", number) not in existing.going
    ]
    return removals, losing


def _unit_additions(goal: Goal, existing: Existing, batch: int, losing: set[str]) -> list[Step]:
    additions: list[Step] = []
    missing: dict[int, int] = {}
    for number in sorted(goal.applications):
        if ("application", number) in existing.going:
            continue
        staying = (
            len(existing.staying_units(number).keys() - losing)
            if number in existing.units
            else min(1, goal.units)
        )
        missing[number] = goal.units - staying
    while missing:
        # One call for each application in turn, as if people were adding units here and there.
        for number in list(missing):
            count = min(batch, missing[number])
            missing[number] -= count
            if count > 0:
                additions.append(Step("add-unit", number, count=count))
            if missing[number] <= 0:
                del missing[number]
    return additions


def _kept_pairs(goal: Goal, existing: Existing) -> set[Pair]:
    """Return existing relations to keep: those between the goal's applications, nearest first, up to its number."""
    inside = [
        pair
        for pair in existing.relations
        if pair not in existing.going and pair[0] in goal.applications and pair[1] < goal.all_applications
    ]
    own = goal.share.of
    inside.sort(key=lambda pair: ((pair[1] - pair[0]) % own != 0, pair[1] - pair[0], pair[0]))
    return set(inside[: goal.relations])


def _missing_pairs(goal: Goal, existing: Existing) -> list[Pair]:
    missing = goal.relations - len(_kept_pairs(goal, existing))
    fresh = (pair for pair in goal.share.pairs(goal.all_applications) if pair not in existing.relations)
    return list(itertools.islice(fresh, max(0, missing)))


def _unit_number(unit: str) -> int:
    return int(unit.rpartition("/")[2])


def _number(name: str, stem: str) -> int | None:
    digits = name.removeprefix(stem)
    return int(digits) if digits != name and digits.isdecimal() else None


def _is_dying(about: object) -> bool:
    return fields(about).get("life") in ("dying", "dead")
