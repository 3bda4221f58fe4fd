"""The configuration in a CIB, as far as it decides how the status is read: nodes, primitives, and what a failure means.

Anything that a rule makes depend on the time or on a node is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from xml.etree.ElementTree import Element

from tippingpoint.targets.pacemaker.tags import number

REMOTE_AGENT = "ocf:pacemaker:remote"
"""The agent of a resource that connects a remote node."""
_CONTAINERS = ("docker", "podman", "rkt")
_MOST_REPLICAS = 1000
"""The most replicas of a bundle that are looked for. Each is a container and a node."""
_DEEPEST = 2
"""Elements around a primitive: a clone, and a group in it."""
_INTERVAL = re.compile(r"(\d{1,12})\s*([a-z]*)", re.IGNORECASE)
_DURATION = re.compile(r"P(?:(\d{1,9})D)?T?(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})S)?", re.IGNORECASE)
_UNITS = {
    "": 1000,
    "s": 1000,
    "sec": 1000,
    "ms": 1,
    "msec": 1,
    "us": 0,
    "usec": 0,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "hr": 3_600_000,
}
_YES = ("true", "on", "yes", "y", "1")


class OnFail(IntEnum):
    """What the cluster does about a failure. Of several failures, the one with the greatest value counts."""

    IGNORE = 0
    DEMOTE = 1
    RESTART = 2
    RESET_REMOTE = 3
    RESTART_CONTAINER = 4
    BAN = 5
    BLOCK = 6
    STOP = 7
    STANDBY = 8
    FENCE = 9


_ON_FAIL = {
    "block": OnFail.BLOCK,
    "fence": OnFail.FENCE,
    "standby": OnFail.STANDBY,
    "ignore": OnFail.IGNORE,
    "nothing": OnFail.IGNORE,
    "migrate": OnFail.BAN,
    "stop": OnFail.STOP,
    "restart": OnFail.RESTART,
    "restart-container": OnFail.RESTART_CONTAINER,
    "demote": OnFail.DEMOTE,
}


@dataclass(slots=True)
class Primitive:
    """A primitive as configured, or as the history describes one that is no longer configured."""

    id: str
    agent: str
    parent: str = ""
    cloned: bool = False
    unique: bool = False
    """Whether the history names an instance of a clone by its number."""
    promotable: bool = False
    bundled: bool = False
    managed: bool = True
    configured: bool = True
    launcher: str = ""
    """The container in which it runs."""
    role: str = ""
    reconnects: bool = False
    """Whether a remote connection waits before it is tried again."""
    blocks_multiple: bool = False
    """Whether it is left alone once it is active on several nodes."""
    group: str = ""
    """The group that it is in."""
    ops: Sequence[Element] = ()

    @property
    def is_connection(self) -> bool:
        """Whether it connects a remote node or a guest node."""
        return self.agent == REMOTE_AGENT


@dataclass(frozen=True, slots=True)
class ConfiguredNode:
    """An element of `configuration/nodes`."""

    id: str
    name: str
    remote: bool
    attributes: Mapping[str, str]


class Configuration:
    """What a CIB configures."""

    def __init__(self, cib: Element) -> None:
        self._ids: dict[str, Element] | None = None
        self._cib = cib
        self.properties: dict[str, str] = {}
        for pair in cib.iterfind("configuration/crm_config/cluster_property_set/nvpair"):
            self.properties.setdefault(pair.get("name", ""), pair.get("value", ""))
        said = self.properties.get
        self.fencing = is_true(said("stonith-enabled", said("fencing-enabled", "true")))
        self.startup_fencing = self.fencing and is_true(said("startup-fencing", "true"))
        self.maintenance = is_true(said("maintenance-mode"))
        self.stops_removed = is_true(said("stop-orphan-resources", said("stop-removed-resources", "true")))
        self.quorum = is_true(cib.get("have-quorum"))
        self.no_quorum = said("no-quorum-policy", "stop").lower()
        if self.no_quorum in ("suicide", "fence"):
            may = self.fencing and (self.quorum or is_true(cib.get("no-quorum-panic")))
            self.no_quorum = "fence" if may else "stop"
        self.nodes = list(self._nodes())
        self.primitives: dict[str, Primitive] = {}
        self._templates = {
            each.get("id", ""): each for each in cib.iterfind("configuration/resources/template")
        }
        self._defaults = list(_sets(cib.find("configuration/rsc_defaults")))
        self._op_defaults = list(_sets(cib.find("configuration/op_defaults")))
        for resources in cib.iterfind("configuration/resources"):
            for each in resources:
                self._add(each, [])
        for guest in [*self._guests(cib)]:
            self.primitives.setdefault(guest.id, guest)
        self.has_fencing_device = is_true(said("have-watchdog")) or any(
            each.agent.startswith("stonith:") for each in self.primitives.values()
        )

    def on_fail(self, primitive: Primitive, task: str, interval: int) -> OnFail:
        """What the cluster does when an operation fails. `interval` is in milliseconds."""
        value = self._said_of(primitive, task, interval)
        if task == "stop" and value in ("standby", "demote", "stop"):
            value = ""
        if task == "demote" and not value:
            promoted = (
                each.get("on-fail", "").lower()
                for each in primitive.ops
                if each.get("name") == "monitor"
                and each.get("role", "").lower() in ("promoted", "master")
                and milliseconds(each.get("interval"))
                and is_true(each.get("enabled", "true"))
            )
            value = next((each for each in promoted if each not in ("", "demote")), "")
        elif value == "demote" and not self._may_demote(primitive, task, interval):
            value = ""
        wanted = _ON_FAIL.get(value)
        if wanted is OnFail.FENCE and not self.fencing:
            wanted = OnFail.STOP
        if wanted is OnFail.RESTART_CONTAINER and not primitive.launcher:
            wanted = None
        probe = task == "monitor" and not interval
        resets = primitive.is_connection and not primitive.launcher and not probe and task != "start"
        if wanted is not None and (primitive.managed or not resets):
            return wanted
        if primitive.launcher:
            return OnFail.RESTART_CONTAINER
        if resets:
            return OnFail.RESET_REMOTE if primitive.managed else OnFail.STOP
        if task == "stop":
            return OnFail.FENCE if self.fencing else OnFail.BLOCK
        return OnFail.RESTART

    def removed(self, entry: Element) -> Primitive:
        """A primitive that exists only in a history."""
        return Primitive(
            entry.get("id", ""),
            agent_of(entry),
            managed=self.stops_removed and not self.maintenance,
            configured=False,
            launcher=entry.get("container", ""),
        )

    def _nodes(self) -> Iterator[ConfiguredNode]:
        for node in self._cib.iterfind("configuration/nodes/node"):
            if id := node.get("id", ""):
                attributes: dict[str, str] = {}
                for each in _sorted_sets(node, "instance_attributes"):
                    for pair in self._pairs(each):
                        attributes.setdefault(pair.get("name", ""), pair.get("value", ""))
                yield ConfiguredNode(id, node.get("uname") or id, node.get("type") == "remote", attributes)

    def _add(self, element: Element, above: list[Element]) -> None:
        if element.tag == "primitive":
            self._add_primitive(element, above)
        elif element.tag in ("group", "clone", "master", "bundle"):
            if element.tag == "bundle":
                self._add_bundle(element)
            if len(above) < _DEEPEST:
                for each in element:
                    self._add(each, [*above, element])

    def _add_primitive(self, element: Element, above: list[Element]) -> None:
        id = element.get("id", "")
        template = self._templates.get(element.get("template", ""))
        described = element if template is None else template
        levels = [element, *([] if template is None else [template]), *reversed(above)]

        def meta(name: str) -> str | None:
            for level in levels:
                if (value := self._meta(level, name)) is not None:
                    return value
            return self._first(self._defaults, name)

        top = above[0] if above else None
        cloned = any(each.tag in ("clone", "master", "bundle") for each in above)
        promotable = (top is not None and top.tag == "master") or is_true(meta("promotable"))
        ops = [
            op for level in (element, template) if level is not None for op in level.iterfind("operations/op")
        ]
        managed = not self.maintenance
        if (said := meta("is-managed") or self.properties.get("is-managed-default", "default")) != "default":
            managed = is_true(said)
        parameters = {
            pair.get("name", ""): pair.get("value", "")
            for level in reversed(levels[: 1 if template is None else 2])
            for each in level.iterfind("instance_attributes")
            for pair in self._pairs(each)
        }
        self.primitives[id] = Primitive(
            id,
            agent_of(described),
            parent="" if top is None else top.get("id", ""),
            cloned=cloned,
            unique=_has_unique_instances(top, meta) if cloned and top is not None else False,
            promotable=promotable,
            bundled=top is not None and top.tag == "bundle",
            managed=managed and not is_true(meta("maintenance")) and not self.maintenance,
            launcher=meta("container") or "",
            role=meta("target-role") or "",
            reconnects=milliseconds(parameters.get("reconnect_interval")) > 0,
            blocks_multiple=(meta("multiple-active") or "") == "block",
            group=above[-1].get("id", "") if above and above[-1].tag == "group" else "",
            ops=ops,
        )

    def _add_bundle(self, element: Element) -> None:
        """Add the containers of a bundle, and the connections of the nodes in them."""
        id = element.get("id", "")
        kind = next((each for each in element if each.tag in _CONTAINERS), None)
        if kind is None:
            return
        promoted = _whole(kind.get("promoted-max")) or _whole(kind.get("masters")) or 1
        replicas = min(_whole(kind.get("replicas")) or promoted, _MOST_REPLICAS)
        network = element.find("network")
        reachable = network is not None and (network.get("ip-range-start") or network.get("control-port"))
        connected = element.find("primitive") is not None and reachable
        said = self._meta(element, "is-managed") or self._first(self._defaults, "is-managed")
        managed = (said is None or is_true(said)) and not is_true(self._meta(element, "maintenance"))
        managed = managed and not self.maintenance
        for place in range(replicas):
            container = f"{id}-{kind.tag}-{place}"
            self.primitives[container] = Primitive(
                container, f"ocf:heartbeat:{kind.tag}", parent=id, bundled=True, managed=managed
            )
            if connected:
                self.primitives[f"{id}-{place}"] = Primitive(
                    f"{id}-{place}",
                    REMOTE_AGENT,
                    parent=id,
                    bundled=True,
                    managed=managed,
                    launcher=container,
                )

    def _guests(self, cib: Element) -> Iterator[Primitive]:
        """The connections of guest nodes, which `remote-node` implies in the resource that is their machine."""
        for path in ("configuration/resources/primitive", "configuration/resources/group/primitive"):
            for machine in cib.iterfind(path):
                if name := self._meta(machine, "remote-node"):
                    id = machine.get("id", "")
                    yield Primitive(
                        name, REMOTE_AGENT, launcher=id, managed=self.primitives[id].managed, parent=""
                    )

    def _said_of(self, primitive: Primitive, task: str, interval: int) -> str:
        found = _operation(primitive, task, interval)
        if found is None and task in ("migrate_to", "migrate_from"):
            found = _operation(primitive, "migrate", 0)
        value = None if found is None else found.get("on-fail") or self._meta(found, "on-fail")
        return (value or self._first(self._op_defaults, "on-fail") or "").lower()

    def _may_demote(self, primitive: Primitive, task: str, interval: int) -> bool:
        if task == "promote":
            return True
        found = _operation(primitive, task, interval)
        role = "" if found is None else found.get("role", "").lower()
        return task == "monitor" and interval > 0 and role in ("promoted", "master")

    def _meta(self, element: Element, name: str) -> str | None:
        return self._first(_sorted_sets(element, "meta_attributes"), name)

    def _first(self, sets: Sequence[Element], name: str) -> str | None:
        for each in sets:
            for pair in self._pairs(each):
                if pair.get("name") == name:
                    return pair.get("value")
        return None

    def _pairs(self, found: Element) -> Iterator[Element]:
        """The name-value pairs of a set, which may refer to another."""
        if (reference := found.get("id-ref")) is not None:
            if self._ids is None:
                self._ids = {
                    id: each
                    for each in self._cib.iterfind("configuration//*[@id]")
                    if (id := each.get("id")) is not None
                }
            found = self._ids.get(reference, found)
        return found.iterfind("nvpair")


def _has_unique_instances(top: Element, meta: Callable[[str], str | None]) -> bool:
    """Whether each instance of a clone or bundle is distinct, with a number."""
    if top.tag == "bundle":
        return any(_whole(each.get("replicas-per-host")) > 1 for each in top if each.tag in _CONTAINERS)
    if (said := meta("globally-unique")) is not None:
        return is_true(said)
    return _whole(meta("clone-node-max")) > 1


def _operation(primitive: Primitive, task: str, interval: int) -> Element | None:
    for each in primitive.ops:
        if each.get("name") == task and milliseconds(each.get("interval")) == interval:
            return each
    return None


def _sets(parent: Element | None) -> list[Element]:
    return [] if parent is None else _sorted_sets(parent, "meta_attributes")


def _sorted_sets(parent: Element, tag: str) -> list[Element]:
    """The sets without a rule, the highest score first."""
    found = [each for each in parent.iterfind(tag) if each.find("rule") is None]
    if len(found) > 1:
        found.sort(key=lambda each: -score(each.get("score")))
    return found


def score(said: str | None) -> int:
    """A score as a number: `INFINITY` is a million, and anything that is not a number is 0."""
    text = (said or "0").strip().upper()
    if text.lstrip("+-") == "INFINITY":
        return -1_000_000 if text.startswith("-") else 1_000_000
    return max(-1_000_000, min(1_000_000, number(text)))


def agent_of(element: Element) -> str:
    """The class, provider and type of an agent, such as `ocf:pacemaker:Dummy`."""
    parts = (element.get("class"), element.get("provider"), element.get("type"))
    return ":".join(part for part in parts if part)


def milliseconds(said: str | None) -> int:
    """An interval as Pacemaker writes one: seconds without a unit, with a unit, or as ISO 8601; 0 for anything else."""
    said = (said or "").strip()
    if (plain := _INTERVAL.fullmatch(said)) is not None:
        return int(plain[1]) * _UNITS.get(plain[2].lower(), 0)
    if (iso := _DURATION.fullmatch(said)) is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in iso.groups())
        return 1000 * (86400 * days + 3600 * hours + 60 * minutes + seconds)
    return 0


def is_true(said: str | None) -> bool:
    """Whether Pacemaker reads a text as true."""
    return said is not None and said.lower() in _YES


def _whole(text: str | None) -> int:
    return max(0, number(text))
