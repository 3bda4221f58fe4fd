"""A cluster that does at once what tests ask of it: what their steps expect of a good one, without any node."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tippingpoint.targets.pacemaker.cts_tests import Ask, Await, Change, Respawned, Scene, Step, Steps
from tippingpoint.targets.pacemaker.cts_things import Things
from tippingpoint.targets.pacemaker.cts_view import Done, Side, View, has_quorum, unmet
from tippingpoint.targets.pacemaker.status import ClusterStatus, Node, Resource, Version

THINGS = Things("tp12345678-cts")


class Unmet(Exception):
    """An assertion that the cluster did not meet: its name, and what was missing."""


@dataclass
class ModelCluster:
    """Nodes node1..nodeN. `breaks` has what it does wrong on purpose: requests that it ignores, by their `do`."""

    count: int
    breaks: Collection[str] = ()
    running: set[str] = field(default_factory=set[str])
    parts: list[set[str]] = field(default_factory=list[set[str]])
    standby: set[str] = field(default_factory=set[str])
    properties: dict[str, str] = field(default_factory=lambda: {"stonith-enabled": "true"})
    fenced: list[str] = field(default_factory=list[str])
    failures: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    spare: bool = False
    starts: int = 0
    forgotten: bool = False

    def __post_init__(self) -> None:
        self.names = [f"node{number}" for number in range(1, self.count + 1)]
        self.running = set(self.names)

    def view(self) -> View:
        """What its nodes say."""
        sides = [self._side(part) for part in self._sides()]
        return View(
            tuple(sorted(sides, key=lambda side: -len(side.versions))),
            frozenset(self.running),
            tuple(self.fenced),
        )

    def do(self, step: Step) -> None:
        """Carry a step out."""
        match step:
            case Ask():
                for request in step.requests:
                    if request["do"] not in self.breaks:
                        self._ask(request)
            case Change():
                if step.make not in self.breaks:
                    self._change(step)
            case Await() | Respawned():
                pass

    def _ask(self, request: Mapping[str, Any]) -> None:
        name = request.get("member", "")
        match request["do"]:
            case "boot":
                self.running.add(name)
            case "shut-down":
                self.running.discard(name)
            case "kill":
                self.fenced.append(name)  # which boots it again
            case "split":
                self.parts.append(set(request["members"]))
            case "heal":
                self.parts = []
            case "fail-resource":
                key = request["resource"], name
                self.failures[key] = self.failures.get(key, 0) + 1
                self.starts += 1
            case _:
                pass

    def _change(self, change: Change) -> None:
        match change.make, change.arguments:
            case "standby", (node,):
                self.standby.add(node)
            case "unstandby", (node,):
                self.standby.discard(node)
            case "set_property", (name, value):
                self.properties[name] = value
            case "restore_properties", _:
                self.properties = {"stonith-enabled": "true"}
            case "add", _:
                self.spare = True
            case "remove", _:
                self.spare = False
            case "forget", _:
                self.forgotten = True
            case _:
                pass

    def _sides(self) -> list[set[str]]:
        cut = set[str]().union(*self.parts)
        parts = [part & self.running for part in [*self.parts, set(self.names) - cut]]
        return [part for part in parts if part]

    def _side(self, there: set[str]) -> Side:
        members = sorted(there)
        quorum = has_quorum(len(members), self.count)
        taking = [name for name in members if name not in self.standby] if quorum else []
        resources: dict[str, Resource] = {}
        own = THINGS.own(self.names)
        wanted = {
            **{id: node for node, id in own.items()},
            **dict.fromkeys(THINGS.resources(self.names)[self.count :], ""),
        }
        if self.spare:
            wanted[THINGS.spare] = ""
        for id, preferred in wanted.items():
            idle = id == THINGS.spare and self.properties.get("maintenance-mode") == "true"
            at = () if not taking or idle else (preferred if preferred in taking else taking[0],)
            resources[id] = Resource(id, "ocf:pacemaker:Dummy", active=at, known=tuple(members))
        status = ClusterStatus(
            version=Version(0, 1, 1),
            dc=members[0],
            quorum=quorum,
            release="2.1.5",
            properties=self.properties,
            nodes={name: Node(name, name[4:], online=name in there) for name in self.names},
            resources=resources,
            failed=(),
            pending=(),
            fail_counts=self.failures,
        )
        started = frozenset() if self.forgotten else frozenset({Done("start", members[0], str(self.starts))})
        return Side(status, (Version(0, 1, 1),) * len(members), dict.fromkeys(resources, started))


def play(cluster: ModelCluster, steps: Steps) -> list[str]:
    """Play a test to its end; returns its steps. Unmet when one of its conditions does not hold."""
    names: list[str] = []
    view: View | None = None
    while True:
        try:
            step = next(steps) if view is None else steps.send(view)
        except StopIteration:
            return names
        names.append(step.name)
        cluster.do(step)
        view = cluster.view()
        if isinstance(step, Await) and (missing := unmet(step.conditions, view)) is not None:
            raise Unmet(*missing)


def scene_of(cluster: ModelCluster, chance: Any, *, lab: bool = True) -> Scene:
    """The scene of tests on it."""
    return Scene(
        nodes=tuple(cluster.names),
        resources=THINGS.resources(cluster.names),
        own=THINGS.own(cluster.names),
        spare=THINGS.spare,
        chance=chance,
        lab=lab,
    )
