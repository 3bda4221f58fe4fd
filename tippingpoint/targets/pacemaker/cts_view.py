"""What the nodes of a cluster report at one moment, and what a test expects of it.

A condition looks at a view and says what is missing, in a few words. Nodes that see the same DC, or none, and the same
quorum form one side: a whole cluster has one side, a partitioned cluster several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tippingpoint.targets.pacemaker.status import ClusterStatus, Resource, Version
from tippingpoint.util.text import show_names


class Done(NamedTuple):
    """An operation in the history of a resource."""

    operation: str
    """Such as `start`."""
    node: str
    call: str
    """Its place in the node's order of operations."""


@dataclass(frozen=True, slots=True)
class Side:
    """Nodes that agree on the DC and on the quorum."""

    status: ClusterStatus
    """The whole CIB of one of them."""
    versions: tuple[Version, ...]
    """The version of each node's CIB."""
    done: Mapping[str, frozenset[Done]] = field(default_factory=dict[str, frozenset[Done]])
    """By resource: the operations in its histories on all nodes."""

    @property
    def members(self) -> list[str]:
        """The nodes that have joined, in order."""
        return [name for name in self.status.online if not _unready(self.status, name)]


@dataclass(frozen=True, slots=True)
class View:
    """All sides, the largest first, and what the lab adds."""

    sides: tuple[Side, ...] = ()
    running: frozenset[str] = frozenset()
    """The nodes that are on, as the lab reports; without a lab, the members of the first side."""
    fenced: tuple[str, ...] = ()
    """The nodes that were fenced since the test began, as the lab reports."""

    @property
    def answers(self) -> int:
        """How many nodes answered."""
        return sum(len(side.versions) for side in self.sides)

    @property
    def updates_apart(self) -> int:
        """The largest difference between nodes' counts of status updates for one configuration."""
        counts: dict[tuple[int, int], list[int]] = {}
        for side in self.sides:
            for version in side.versions:
                counts.setdefault((version.admin_epoch, version.epoch), []).append(version.num_updates)
        return max((max(each) - min(each) for each in counts.values()), default=0)

    @property
    def status(self) -> ClusterStatus | None:
        """The first side's status; None if no node answers."""
        return self.sides[0].status if self.sides else None


@dataclass(frozen=True, slots=True)
class Condition:
    """What a test expects. `lacks` returns what is missing, or an empty text."""

    name: str
    """The assertion, as a report names it."""
    lacks: Callable[[View], str]


def unmet(conditions: Iterable[Condition], view: View) -> tuple[str, str] | None:
    """The first condition that does not hold: its name, and what is missing. None when all hold."""
    for condition in conditions:
        if missing := condition.lacks(view):
            return condition.name, missing
    return None


def has_quorum(up: int, of: int) -> bool:
    """Whether this many nodes of a cluster have the quorum. Of two, one has it (`two_node`)."""
    return up >= 1 if of == 2 else 2 * up > of


def on(names: Collection[str]) -> Condition:
    """Exactly these nodes are on, as a lab reports."""
    wanted = frozenset(names)

    def lacks(view: View) -> str:
        return "" if view.running == wanted else f"on: {_listed(view.running)}; expected {_listed(wanted)}"

    return Condition("nodes on", lacks)


def one_side() -> Condition:
    """The nodes that answer agree on the DC and the quorum."""

    def lacks(view: View) -> str:
        if not view.sides:
            return "no node answers"
        return "" if len(view.sides) == 1 else f"{len(view.sides)} sides, with different DCs; expected one"

    return Condition("one DC", lacks)


def dc_among(names: Collection[str]) -> Condition:
    """There is a DC, one of these nodes."""

    def lacks(view: View) -> str:
        status = view.status
        if status is None or not status.dc:
            return "no DC"
        return "" if status.dc in names else f"the DC is {status.dc}; expected one of {_listed(names)}"

    return Condition("one DC", lacks)


def members(names: Collection[str], also: Collection[str] = ()) -> Condition:
    """Exactly these nodes have joined; of `also`, any may have."""
    wanted, more = set(names), set(names) | set(also)

    def lacks(view: View) -> str:
        there = set(view.sides[0].members) if view.sides else set[str]()
        if wanted <= there <= more:
            return ""
        pending = [name for name in sorted(wanted - there) if _is_pending(view, name)]
        also = f"; {_listed(pending)} pending" if pending else ""
        return f"members are {_listed(there)}; expected {_listed(wanted)}{also}"

    return Condition("members online", lacks)


def quorum(there: bool) -> Condition:
    """The first side has the quorum, or has none."""

    def lacks(view: View) -> str:
        if view.status is not None and view.status.quorum == there:
            return ""
        return f"{'no quorum' if there else 'quorum'}; expected {'one' if there else 'none'}"

    return Condition("quorum", lacks)


def same_cib(count: int) -> Condition:
    """This many nodes answer, and all have the same version of the configuration.

    Each node counts the updates of the status section by itself. The count of a node that joins while updates arrive
    lags by those that it missed until the configuration changes, although the content is the same (seen on 2.1.5). So
    the count is ignored; see View.updates_apart.
    """

    def lacks(view: View) -> str:
        versions = [version for side in view.sides for version in side.versions]
        if len(versions) < count:
            return f"{len(versions)} nodes answer; expected {count}"
        different = sorted({f"{version.admin_epoch}.{version.epoch}" for version in versions})
        return "" if len(different) == 1 else f"versions {', '.join(different)}; expected one"

    return Condition("same CIB on all nodes", lacks)


def active_once(resources: Iterable[str], among: Collection[str]) -> Condition:
    """Each of these resources is active on exactly one node, and it is one of these."""
    ids = list(resources)

    def lacks(view: View) -> str:
        for id in ids:
            active = _resource(view, id).active
            if len(active) != 1:
                lost = view.status is not None and id not in view.status.resources
                where = f"active on {_listed(active)}" if active else "not in the CIB" if lost else "inactive"
                return f"{id} is {where}; expected on exactly one node"
            if active[0] not in among:
                return f"{id} is active on {active[0]}; expected on one of {_listed(among)}"
        return ""

    return Condition("resources active once", lacks)


def active_on(id: str, node: str) -> Condition:
    """A resource is active on this node only."""

    def lacks(view: View) -> str:
        active = _resource(view, id).active
        return "" if active == (node,) else f"{id} is active on {_listed(active)}; expected on {node}"

    return Condition("resources active once", lacks)


def inactive(resources: Iterable[str]) -> Condition:
    """None of these resources is active anywhere."""
    ids = list(resources)

    def lacks(view: View) -> str:
        active = [id for id in ids if _resource(view, id).active]
        return f"{active[0]} is active on {_listed(_resource(view, active[0]).active)}" if active else ""

    return Condition("resources inactive", lacks)


def known(resources: Iterable[str], among: Collection[str]) -> Condition:
    """Every one of these nodes has been asked whether each of these resources runs there."""
    ids = list(resources)

    def lacks(view: View) -> str:
        for id in ids:
            if missing := set(among) - set(_resource(view, id).known):
                return f"{id} is unknown on {_listed(missing)}"
        return ""

    return Condition("resources probed", lacks)


def nothing_on(node: str) -> Condition:
    """No resource is active on this node, except fencing devices."""

    def lacks(view: View) -> str:
        resources = view.status.resources.values() if view.status is not None else ()
        left = [
            each.id for each in resources if node in each.active and not each.agent.startswith("stonith:")
        ]
        return f"{show_names(left, 'resource')} active on {node}; expected none" if left else ""

    return Condition("node empty", lacks)


def quiet() -> Condition:
    """No operation is in flight, and no node is to be fenced."""

    def lacks(view: View) -> str:
        for side in view.sides:
            if pending := side.status.pending:
                return f"{pending[0].name} of {pending[0].resource} on {pending[0].node} is in flight"
            if unclean := [node.name for node in side.status.nodes.values() if node.unclean]:
                return f"{_listed(unclean)} has yet to be fenced"
        return ""

    return Condition("idle", lacks)


def failed_at_least(id: str, node: str, count: int) -> Condition:
    """A resource's failures on a node, as the cluster counts them, have reached this number."""

    def lacks(view: View) -> str:
        counted = view.status.fail_counts.get((id, node), 0) if view.status is not None else 0
        return "" if counted >= count else f"the fail count of {id} on {node} is {counted}; expected {count}"

    return Condition("failure counted", lacks)


def started_anew(id: str, before: View) -> Condition:
    """A resource was started since this view."""
    earlier = _starts(before, id)

    def lacks(view: View) -> str:
        return "" if _starts(view, id) - earlier else f"{id} was not started again"

    return Condition("resource restarted", lacks)


def never(resources: Iterable[str], *operations: str) -> Condition:
    """The histories of these resources have none of these operations."""
    ids = list(resources)

    def lacks(view: View) -> str:
        for side in view.sides:
            for id in ids:
                if found := {each.operation for each in side.done.get(id, ())}.intersection(operations):
                    return f"{id}: {' and '.join(sorted(found))}; expected neither"
        return ""

    return Condition("no restart", lacks)


def property_is(name: str, value: str) -> Condition:
    """A property of the cluster has this value on all sides."""

    def lacks(view: View) -> str:
        for side in view.sides:
            if (there := side.status.properties.get(name, "")) != value:
                return f"{name} is {there or 'not set'}; expected {value}"
        return ""

    return Condition("property set", lacks)


def fenced(names: Collection[str]) -> Condition:
    """Each of these nodes was fenced."""

    def lacks(view: View) -> str:
        missing = set(names) - set(view.fenced)
        return f"{_listed(missing)} was not fenced" if missing else ""

    return Condition("fenced", lacks)


def partitions(parts: Iterable[Collection[str]]) -> Condition:
    """The cluster has fallen into exactly these parts, each with a DC of its own and the quorum that it is due."""
    wanted = sorted(tuple(sorted(part)) for part in parts)
    of = sum(map(len, wanted))

    def lacks(view: View) -> str:
        there = sorted(tuple(side.members) for side in view.sides)
        if there != wanted:
            return f"partitions {_parts(there)}; expected {_parts(wanted)}"
        for side in view.sides:
            if side.status.dc not in side.members:
                return f"the DC of {_listed(side.members)} is {side.status.dc or 'nobody'}"
            if side.status.quorum != has_quorum(len(side.members), of):
                return f"{_listed(side.members)} {'has' if side.status.quorum else 'has no'} quorum"
        return ""

    return Condition("partitions", lacks)


def whole(
    names: Collection[str], resources: Iterable[str], of: int, also: Collection[str] = ()
) -> tuple[Condition, ...]:
    """These nodes of a cluster are one idle cluster: one DC, the quorum, every resource active once, one CIB."""
    if has_quorum(len(names), of):
        placed = (quorum(True), active_once(resources, {*names, *also}))
    else:
        placed = (quorum(False), inactive(resources))
    return (
        one_side(),
        members(names, also),
        dc_among({*names, *also}),
        *placed,
        quiet(),
        same_cib(len(names)),
    )


def _unready(status: ClusterStatus, name: str) -> bool:
    node = status.nodes[name]
    return node.pending or node.unclean or node.leaving or node.remote


def _is_pending(view: View, name: str) -> bool:
    node = view.status.nodes.get(name) if view.status is not None else None
    return node is not None and node.pending


def _starts(view: View, id: str) -> set[Done]:
    return {each for side in view.sides for each in side.done.get(id, ()) if each.operation == "start"}


def _resource(view: View, id: str) -> Resource:
    found = view.status.resources.get(id) if view.status is not None else None
    return found or Resource(id, "")


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return " ".join(ordered) if ordered else "none"


def _parts(parts: Iterable[tuple[str, ...]]) -> str:
    return " | ".join(map(_listed, parts)) or "none"
