"""The cluster's own tests, by their names in Pacemaker's CTS (python/pacemaker/_cts/tests).

A test is a generator of steps. It knows nothing of connections: its player carries out each step, and sends back what
the nodes report afterwards. Every test begins on a whole, idle cluster. Most end on one, too; after the others, the
player starts what is off. Our resources are Dummies: one for each node, which prefers it, and a group.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from tippingpoint.plan.cts import CtsTest
from tippingpoint.targets.pacemaker.cts_view import (
    Condition,
    View,
    active_on,
    active_once,
    failed_at_least,
    fenced,
    has_quorum,
    inactive,
    known,
    members,
    never,
    nothing_on,
    on,
    one_side,
    partitions,
    property_is,
    quiet,
    started_anew,
    whole,
)

DAEMONS = (
    "pacemaker-based",
    "pacemaker-controld",
    "pacemaker-attrd",
    "pacemaker-execd",
    "pacemaker-fenced",
    "corosync",
)
"""ComponentFail kills one of these. CTS has the same list, and the scheduler's daemon on the DC."""


class Skipped(Exception):
    """The test cannot be done here; the message says why."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Requests to the lab, made at the same time."""

    name: str
    requests: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the cluster's configuration: one of Things' methods (cts_things.py), with its arguments."""

    name: str
    make: Literal[
        "standby",
        "unstandby",
        "set_property",
        "restore_properties",
        "unmanage",
        "manage",
        "forget",
        "add",
        "remove",
    ]
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Await:
    """Look at the cluster until all conditions hold."""

    name: str
    conditions: tuple[Condition, ...]
    within: Literal["test", "idle"] = "test"
    """The limit: the time left for the whole test, or the plan's `idle`."""
    timed: str = ""
    """An operation that is recorded in addition to the step; empty for none. `idle` is timed like the step. Other
    operations are timed from the last action, such as killing a node."""


@dataclass(frozen=True, slots=True)
class Respawned:
    """Wait until a killed daemon runs again: with another pid, or on a node that was rebooted."""

    name: str
    node: str
    daemon: str


Step = Ask | Change | Await | Respawned
Steps = Generator[Step, View, None]


@dataclass
class Scene:
    """The cluster that is tested."""

    nodes: tuple[str, ...]
    """All of its nodes."""
    resources: tuple[str, ...]
    """Our resources."""
    own: Mapping[str, str]
    """By node: the resource that prefers it."""
    spare: str
    """The id of a resource that a test may add."""
    chance: Random
    lab: bool
    """Whether there is a lab, which can fail a resource, say."""
    may_fence: set[str] = field(default_factory=set[str])
    """The nodes that the cluster may fence during the test."""

    def but(self, *without: str) -> list[str]:
        """All nodes except these."""
        return [name for name in self.nodes if name not in without]

    def whole(self, names: Sequence[str] | None = None, also: Iterable[str] = ()) -> tuple[Condition, ...]:
        """The conditions of an idle cluster of these nodes: of all of them by default."""
        return whole(self.nodes if names is None else names, self.resources, len(self.nodes), set(also))

    def pick(self) -> str:
        """A random node."""
        return self.chance.choice(self.nodes)


def steps_of(test: CtsTest, scene: Scene) -> Steps:
    """The steps of a test. Raises Skipped if this cluster has too few nodes for it."""
    return _TESTS[test](scene)


def start_all(scene: Scene, timed: str = "") -> Steps:
    """Boot what is off, all at once, and wait for the whole cluster."""
    yield _boot(scene.nodes)
    yield Await("formed", (one_side(), members(scene.nodes)), timed=timed)
    yield Await("idle", scene.whole(), "idle", timed="idle")


def _flip(scene: Scene) -> Steps:
    node = _one_of_several(scene)
    yield _stop([node])
    yield Await("stopped", (on(scene.but(node)),))
    yield Await("idle without it", scene.whole(scene.but(node)), "idle", timed="idle")
    yield _boot([node])
    yield Await("idle with it", scene.whole(), timed="idle")


def _restart(scene: Scene) -> Steps:
    node = _one_of_several(scene)
    yield _stop([node])
    yield Await("stopped", (on(scene.but(node)),))
    yield _boot([node])
    yield Await("idle", scene.whole(), timed="idle")


def _start_one_by_one(scene: Scene) -> Steps:
    yield from _stop_all(scene)
    # A partition with the quorum fences the nodes that it has never seen (`startup-fencing`), which boots them.
    scene.may_fence.update(scene.nodes)
    up: list[str] = []
    for node in scene.nodes:
        up.append(node)
        yield _boot([node])
        yield Await(f"{node} joined", (one_side(), members(up, scene.nodes)))
    yield Await("idle", scene.whole(), timed="idle")


def _simul_start(scene: Scene) -> Steps:
    yield from _stop_all(scene)
    scene.may_fence.update(scene.nodes)
    yield from start_all(scene, timed="form")


def _simul_stop(scene: Scene) -> Steps:
    yield from _stop_all(scene)


def _standby(scene: Scene) -> Steps:
    node = _one_of_several(scene)
    rest = scene.but(node)
    yield Change("standby", "standby", (node,))
    yield Await(
        "moved away",
        (nothing_on(node), active_once(scene.resources, rest), members(scene.nodes), quiet()),
        "idle",
        timed="idle",
    )
    yield Change("active again", "unstandby", (node,))
    yield Await("moved back", (active_on(scene.own[node], node), *scene.whole()), "idle", timed="idle")


def _reattach(scene: Scene) -> Steps:
    view = yield Change("unmanaged", "unmanage")
    places = _places(view, scene)
    yield Change("history forgotten", "forget")
    view = yield Await("probed again", (known(scene.resources, scene.nodes), quiet()), "idle", timed="idle")
    yield Await("still in their places", _in(places), "idle")
    yield Change("managed", "manage")
    yield Await("idle", scene.whole(), "idle", timed="idle")
    yield Await("never restarted", (*_in(places), never(scene.resources, "start", "stop")), "idle")


def _maintenance(scene: Scene) -> Steps:
    view = yield Change("maintenance on", "set_property", ("maintenance-mode", "true"))
    yield Await("maintenance seen", (property_is("maintenance-mode", "true"),), "idle")
    yield Change("resource added", "add", (scene.spare,))
    broken = place = ""
    if scene.lab:
        broken = scene.chance.choice(scene.resources)
        place = _places(view, scene)[broken]
        yield _fail(broken, place)
        yield Await("failure seen", (failed_at_least(broken, place, 1),), "idle")
    # A cluster in maintenance asks each node whether the new resource runs there, and starts it nowhere.
    yield Await("probed", (known([scene.spare], scene.nodes), quiet()), "idle")
    yield Await("nothing started", (inactive([scene.spare]), members(scene.nodes)), "idle")
    yield Change("maintenance off", "restore_properties")
    restarted = (started_anew(broken, view),) if broken else ()
    wanted = (active_once([scene.spare], scene.nodes), *restarted, *scene.whole())
    yield Await("recovered", wanted, "idle", timed="recover")
    yield Change("resource removed", "remove", (scene.spare,))
    if broken:
        yield _forgive(broken, place)
    yield Await("idle", (inactive([scene.spare]), *scene.whole()), "idle", timed="idle")


def _resource_recover(scene: Scene) -> Steps:
    resource = scene.chance.choice(scene.resources)
    view = yield Await("before", scene.whole(), "idle")
    node = _places(view, scene)[resource]
    before = view.status.fail_counts.get((resource, node), 0) if view.status is not None else 0
    yield _fail(resource, node)
    recovered = (failed_at_least(resource, node, before + 1), started_anew(resource, view), *scene.whole())
    yield Await("recovered", recovered, "idle", timed="recover")
    yield _forgive(resource, node)
    yield Await("idle", scene.whole(), "idle", timed="idle")


def _component_fail(scene: Scene) -> Steps:
    node, daemon = scene.pick(), scene.chance.choice(DAEMONS)
    scene.may_fence.add(node)
    yield Ask(f"{daemon} killed on {node}", ({"do": "kill-daemon", "member": node, "daemon": daemon},))
    yield Respawned(f"{daemon} runs again", node, daemon)
    yield Await("recovered", scene.whole(), timed="recover")


def _crash(scene: Scene) -> Steps:
    node = _one_of_several(scene)
    rest = scene.but(node)
    scene.may_fence.add(node)
    yield Ask(f"{node} killed", ({"do": "kill", "member": node},))
    if has_quorum(len(rest), len(scene.nodes)):
        yield Await("fenced", (fenced([node]),))
        where = {*rest, node}  # it boots at once, and may take its resource back
        yield Await(
            "recovered", (active_once(scene.resources, where), members(rest, [node])), timed="recover"
        )
    else:
        yield _boot([node])
    yield Await("idle", scene.whole(), timed="idle")


def _split_brain(scene: Scene) -> Steps:
    if len(scene.nodes) < 3:
        raise Skipped("it needs 3 nodes")
    parts = _parts(scene)
    yield Change("fencing off", "set_property", ("stonith-enabled", "false"))
    yield Await("fencing is off", (property_is("stonith-enabled", "false"), one_side()), "idle")
    yield Ask("split", tuple({"do": "split", "members": part} for part in parts[:-1]))
    yield Await("partitioned", (partitions(parts),))
    majority = next((part for part in parts if has_quorum(len(part), len(scene.nodes))), list[str]())
    placed = active_once(scene.resources, majority) if majority else inactive(scene.resources)
    yield Await("idle in parts", (placed, quiet(), partitions(parts)), "idle", timed="idle")
    yield Ask("healed", ({"do": "heal", "member": scene.nodes[0]},))
    yield Await("one again", (one_side(), members(scene.nodes)), timed="form")
    yield Await("idle", scene.whole(), "idle", timed="idle")
    yield Change("fencing on", "restore_properties")
    yield Await("idle with fencing", scene.whole(), "idle", timed="idle")


def _near_quorum_point(scene: Scene) -> Steps:
    _one_of_several(scene)
    stopped: list[str] = []
    while not stopped:
        stopped = [name for name in scene.nodes if scene.chance.random() < 0.5]
    rest = scene.but(*stopped)
    yield _stop(stopped)
    yield Await("stopped", (on(rest),))
    if rest:
        yield Await("idle", scene.whole(rest), timed="idle")


def _partial_start(scene: Scene) -> Steps:
    node = scene.pick()
    yield from _stop_all(scene)
    yield _boot([node])
    yield Await("answers", (_answering(1),))
    yield _stop([node])
    yield Await("stopped", (on([]),))


def _resync_cib(scene: Scene) -> Steps:
    node = _one_of_several(scene)
    yield from _stop_all(scene)
    scene.may_fence.update(scene.nodes)
    yield Ask(f"CIB of {node} lost", ({"do": "lose-cib", "member": node},))
    yield _boot([node])
    yield Await("answers without it", (_answering(1), members([node], scene.nodes)))
    yield _boot(scene.but(node))
    yield Await("formed", (one_side(), members(scene.nodes)), timed="form")
    yield Await("idle", scene.whole(), "idle", timed="idle")


_TESTS: Mapping[CtsTest, Callable[[Scene], Steps]] = {
    "Flip": _flip,
    "Restart": _restart,
    "StartOnebyOne": _start_one_by_one,
    "SimulStart": _simul_start,
    "SimulStop": _simul_stop,
    "StandbyNodes": _standby,
    "Reattach": _reattach,
    "MaintenanceMode": _maintenance,
    "ResourceRecover": _resource_recover,
    "ComponentFail": _component_fail,
    "SplitBrain": _split_brain,
    "NearQuorumPoint": _near_quorum_point,
    "PartialStart": _partial_start,
    "ResyncCIB": _resync_cib,
    "Crash": _crash,
}


def _stop_all(scene: Scene) -> Steps:
    yield _stop(scene.nodes)
    yield Await("all stopped", (on([]),))


def _stop(nodes: Sequence[str]) -> Ask:
    return Ask(f"stop {' '.join(nodes)}", tuple({"do": "shut-down", "member": name} for name in nodes))


def _boot(nodes: Sequence[str]) -> Ask:
    return Ask(f"start {' '.join(nodes)}", tuple({"do": "boot", "member": name} for name in nodes))


def _fail(resource: str, node: str) -> Ask:
    return Ask(f"{resource} failed", ({"do": "fail-resource", "member": node, "resource": resource},))


def _forgive(resource: str, node: str) -> Ask:
    return Ask("failure forgiven", ({"do": "forgive-resource", "member": node, "resource": resource},))


def _one_of_several(scene: Scene) -> str:
    if len(scene.nodes) < 2:
        raise Skipped("it needs 2 nodes")
    return scene.pick()


def _parts(scene: Scene) -> list[list[str]]:
    """A random division of the cluster into two or more parts."""
    while True:
        found: dict[int, list[str]] = {}
        for name in scene.nodes:
            found.setdefault(scene.chance.randint(1, len(scene.nodes)), []).append(name)
        if len(found) > 1:
            return list(found.values())


def _places(view: View, scene: Scene) -> dict[str, str]:
    """Where each of our resources is."""
    if view.status is None:
        return {}
    there = view.status.resources
    return {id: there[id].active[0] for id in scene.resources if id in there and there[id].active}


def _in(places: Mapping[str, str]) -> tuple[Condition, ...]:
    return tuple(active_on(id, node) for id, node in places.items())


def _answering(count: int) -> Condition:
    def lacks(view: View) -> str:
        return "" if view.answers >= count else f"{view.answers} nodes answer; expected {count}"

    return Condition("nodes answer", lacks)
