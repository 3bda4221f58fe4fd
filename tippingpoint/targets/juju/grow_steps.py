"""What is to be in a model, what is there, and the calls that lead from the one to the other.

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

    A share has machines and applications of its own and most of its relations between these, so that workers need
    not wait for each other. An `index` that is not below `of` has nothing.
    """

    index: int
    of: int

    @classmethod
    def among(cls, stages: Sequence[GrowStage], index: int, workers: int) -> Share:
        """A worker's share through all of a plan's stages: as many have one as the units always have machines."""
        fewest = min((stage.machines for stage in stages if stage.size), default=workers)
        return cls(index, max(1, min(workers, fewest)))

    def numbers(self, count: int) -> Sequence[int]:
        """The share's numbers below `count`."""
        return range(self.index, count, self.of) if self.index < self.of else ()

    def pairs(self, applications: int) -> Iterator[Pair]:
        """The share's pairs of so many applications, nearest first, those with both ends of its own before others.

        A pair belongs to the share that has its first application.
        """
        return (pair for pair in _pairs(applications, self.of) if self._owns(pair))

    def count_of(self, relations: int, applications: int) -> int:
        """How many of so many relations between so many applications are the share's."""
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
    """A share of a stage: numbers of machines and applications, units of each application, and how many relations."""

    share: Share
    machines: frozenset[int] = frozenset()
    applications: frozenset[int] = frozenset()
    all_applications: int = 0
    units: int = 0
    relations: int = 0

    @classmethod
    def of(cls, stage: GrowStage, share: Share) -> Goal:
        """What a share has to have in a stage."""
        return cls(
            share,
            frozenset(share.numbers(stage.machines)),
            frozenset(share.numbers(stage.applications)),
            stage.applications,
            stage.units,
            share.count_of(stage.relations, stage.applications),
        )


@dataclass
class There:
    """What is in the model: a share's own things, and the names of others' applications.

    What is going (dying, or asked to go) still is in these, and in `going` beside: nothing more is asked of it.
    """

    machines: dict[int, str] = field(default_factory=dict[int, str])
    """By number, the machine's id in the model."""
    units: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    """By application, its units' names and the ids of the machines they are on; `add_units` keeps count."""
    relations: set[Pair] = field(default_factory=set[Pair])
    others: set[int] = field(default_factory=set[int])
    """Applications of other shares."""
    going: set[object] = field(default_factory=set[object])
    """Machines as ("machine", n), applications as ("application", n), units by name, and relations as pairs."""
    _on: Counter[str] = field(default_factory=Counter[str])

    @classmethod
    def of(cls, status: Mapping[str, Any], share: Share, prefix: str, worker: str) -> There:
        """What a full status of the model shows of a run's things."""
        there = cls()
        stem = instance_id(prefix, worker, 0)[:-1]
        for name, machine in fields(status.get("machines")).items():
            number = _number(str(fields(machine).get("instance-id")), stem)
            if number is not None:
                there.machines[number] = name
                if _is_dying(fields(machine).get("agent-status")):
                    there.going.add(("machine", number))
        stem = application_name(prefix, 0)[:-1]
        for name, details in fields(status.get("applications")).items():
            number = _number(name, stem)
            if number is None:
                continue
            if share.index >= share.of or number % share.of != share.index:
                there.others.add(number)
                # Where shares have changed they may be on our machines still, which have to stay until they are gone.
                units = fields(fields(details).get("units")).values()
                there._on.update(str(fields(unit).get("machine") or "") for unit in units)
                continue
            there._see_application(number, fields(details))
        for details in items(status.get("relations")):
            relation = fields(details)
            ends = [
                _number(str(fields(end).get("application")), stem) for end in items(relation.get("endpoints"))
            ]
            if len(ends) == 2 and ends[0] is not None and ends[1] is not None:
                pair = (min(ends[0], ends[1]), max(ends[0], ends[1]))
                if pair[0] in there.units:
                    there.relations.add(pair)
        return there

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
        """Enter an application and units of it, by name with their machines' ids."""
        self.units.setdefault(application, {}).update(units)
        self._on.update(units.values())

    def units_on(self, machine: str) -> int:
        """How many units are on the machine with this id, the going ones too."""
        return self._on[machine]

    def reserve(self, machines: Sequence[str]) -> None:
        """Count units that are asked for on these machines, once for each."""
        self._on.update(machines)

    def unreserve(self, machines: Sequence[str]) -> None:
        """Count units no more that were asked for."""
        self._on.subtract(machines)

    @property
    def amounts(self) -> dict[GrowUnit, int]:
        """How many of each kind there are, the going ones too."""
        return {
            "units": sum(map(len, self.units.values())),
            "relations": len(self.relations),
            "applications": len(self.units),
            "machines": len(self.machines),
        }

    def has(self, application: int) -> bool:
        """Whether an application is there to stay, one's own or another share's."""
        if application in self.units:
            return ("application", application) not in self.going
        return application in self.others

    def staying_units(self, application: int) -> dict[str, str]:
        """Units that are not going, by name, with their machines' ids; none of an application that is going."""
        if not self.has(application):
            return {}
        units = self.units.get(application, {})
        return {unit: machine for unit, machine in units.items() if unit not in self.going}

    def staying_machines(self) -> dict[int, str]:
        """Machines that are not going."""
        return {n: name for n, name in self.machines.items() if ("machine", n) not in self.going}


@dataclass(frozen=True, slots=True)
class Step:
    """One call that a stage needs. `number` is the machine's or the (first) application's."""

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


def steps(goal: Goal, there: There, batch: int) -> list[Step]:
    """The calls that lead from what is there to the goal, in an order in which each can follow those before it.

    Units are asked for (and removed) up to `batch` at once; an application's first unit comes with it, as of
    `juju deploy`. What is going is not asked to go again, and what is to come in its place has to wait for a later
    round, as does a machine's removal for its last unit's. Nothing is left to do when this is empty and nothing in
    `there` is going.
    """
    removals, losing = _removals(goal, there, batch)
    machines = [Step("add-machine", number) for number in sorted(goal.machines - there.machines.keys())]
    deploys = [
        Step("deploy", number, count=min(1, goal.units))
        for number in sorted(goal.applications - there.units.keys())
    ]
    relating = [Step("relate", *pair) for pair in _missing_pairs(goal, there)]
    leaving = [
        Step("remove-machine", number)
        for number in sorted(there.staying_machines().keys() - goal.machines)
        if not there.units_on(there.machines[number])
    ]
    return [*removals, *machines, *deploys, *_unit_additions(goal, there, batch, losing), *relating, *leaving]


def is_done(goal: Goal, there: There) -> bool:
    """Whether what is there is the goal, with nothing still going."""
    return not there.going and frozenset(there.machines) == goal.machines and not steps(goal, there, 1)


def waits_for(step: Step, there: There) -> object | None:
    """What a step needs that is not there, as `There.going` names things ("machine" for any); None to go ahead."""
    machine = None if there.staying_machines() else "machine"
    match step.operation:
        case "deploy":
            if step.number in there.units:  # it is going: its name is not free yet
                return ("no application", step.number)
            return machine if step.count else None
        case "add-unit":
            return machine if there.has(step.number) else ("application", step.number)
        case "relate":
            return next((("application", end) for end in step.pair if not there.has(end)), None)
        case _:
            return None


def placement(there: There, goal: Goal, count: int) -> list[str]:
    """Machine ids for so many new units, the emptiest of the machines that stay first; empty when there are none."""
    load = {name: there.units_on(name) for n, name in there.staying_machines().items() if n in goal.machines}
    chosen: list[str] = []
    for _ in range(count if load else 0):
        name = min(load, key=load.__getitem__)
        load[name] += 1
        chosen.append(name)
    return chosen


def _removals(goal: Goal, there: There, batch: int) -> tuple[list[Step], set[str]]:
    """Calls that remove relations, units and applications, and the units that they remove singly."""
    kept = _kept_pairs(goal, there)
    removals = [
        Step("remove-relation", *pair)
        for pair in sorted(there.relations - kept)
        if pair not in there.going and pair[0] in goal.applications and pair[1] < goal.all_applications
    ]
    staying = {name for number, name in there.machines.items() if number in goal.machines}
    losing: set[str] = set()
    for number in sorted(goal.applications & there.units.keys()):
        units = there.staying_units(number)
        # Those on machines that are to go first, then the youngest.
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
        for number in sorted(there.units.keys() - goal.applications)
        if ("application", number) not in there.going
    ]
    return removals, losing


def _unit_additions(goal: Goal, there: There, batch: int, losing: set[str]) -> list[Step]:
    additions: list[Step] = []
    missing: dict[int, int] = {}
    for number in sorted(goal.applications):
        if ("application", number) in there.going:
            continue
        staying = (
            len(there.staying_units(number).keys() - losing) if number in there.units else min(1, goal.units)
        )
        missing[number] = goal.units - staying
    while missing:
        # One call for each application in turn, as they would come from people who add units here and there.
        for number in list(missing):
            count = min(batch, missing[number])
            missing[number] -= count
            if count > 0:
                additions.append(Step("add-unit", number, count=count))
            if missing[number] <= 0:
                del missing[number]
    return additions


def _kept_pairs(goal: Goal, there: There) -> set[Pair]:
    """Relations that are there and stay: any between the goal's applications, up to their number, nearest first."""
    inside = [
        pair
        for pair in there.relations
        if pair not in there.going and pair[0] in goal.applications and pair[1] < goal.all_applications
    ]
    own = goal.share.of
    inside.sort(key=lambda pair: ((pair[1] - pair[0]) % own != 0, pair[1] - pair[0], pair[0]))
    return set(inside[: goal.relations])


def _missing_pairs(goal: Goal, there: There) -> list[Pair]:
    missing = goal.relations - len(_kept_pairs(goal, there))
    fresh = (pair for pair in goal.share.pairs(goal.all_applications) if pair not in there.relations)
    return list(itertools.islice(fresh, max(0, missing)))


def _unit_number(unit: str) -> int:
    return int(unit.rpartition("/")[2])


def _number(name: str, stem: str) -> int | None:
    digits = name.removeprefix(stem)
    return int(digits) if digits != name and digits.isdecimal() else None


def _is_dying(about: object) -> bool:
    return fields(about).get("life") in ("dying", "dead")
