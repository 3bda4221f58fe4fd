"""The state of a cluster, read from one CIB: its nodes, the DC, quorum, versions, and where each resource is active.

The rules are those by which Pacemaker reads its own CIB: see configured.py and histories.py. What depends on the time
of day is left to the cluster: a failure counts until it is cleaned up, even past its failure-timeout.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.configured import Configuration, score
from tippingpoint.targets.pacemaker.histories import Histories, Host, Instance, Recorded, Role
from tippingpoint.targets.pacemaker.tags import number

INFINITY = 1_000_000
"""What Pacemaker means by INFINITY: a resource that failed this often does not come back without a cleanup."""

_MOST_TAGS, _MOST_ATTRIBUTES = 1_000_000, 2_000_000
"""A CIB of 1000 resources on 16 nodes has a twentieth of these. Each takes some hundred bytes of memory."""
_INSTANCE = re.compile(r":\d+$")
_FAIL_COUNT = "fail-count-"


class Version(NamedTuple):
    """The version of a CIB. A greater one replaces a smaller one."""

    admin_epoch: int
    epoch: int
    num_updates: int


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the cluster sees it."""

    name: str
    id: str
    """The number in Corosync's list of nodes; the name for a remote node."""
    remote: bool = False
    online: bool = False
    """Whether it is a member that may run resources, or will as soon as `pending` and `standby` end."""
    unclean: bool = False
    """Whether the cluster has yet to fence it."""
    pending: bool = False
    """Whether it is a member whose controller has not joined."""
    standby: bool = False
    maintenance: bool = False
    leaving: bool = False
    """Whether it has asked to shut down."""

    @property
    def takes(self) -> bool:
        """Whether the cluster starts resources on it."""
        return self.online and not (
            self.unclean or self.pending or self.standby or self.maintenance or self.leaving
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a resource's history on one node."""

    resource: str
    node: str
    name: str
    """Such as `start`, `stop` and `monitor`."""
    interval: int
    """Milliseconds; 0 for one that does not recur."""
    code: int
    """The agent's exit code: 0 is success, 7 not running."""
    call: int
    """Its place in the node's order of operations; -1 while it is in flight."""
    reason: str = ""
    """What the agent said."""

    @property
    def is_probe(self) -> bool:
        """Whether it checks for a resource that the cluster has not started there."""
        return self.name == "monitor" and self.interval == 0


@dataclass(frozen=True, slots=True)
class Resource:
    """A primitive resource, or what is left of one in the history."""

    id: str
    agent: str
    """Such as `ocf:pacemaker:Dummy`."""
    configured: bool = True
    """False for one that only the history knows: it was deleted, and still has to stop or be forgotten."""
    parent: str = ""
    """The group, clone or bundle that it is in."""
    cloned: bool = False
    """Whether it may be active on several nodes."""
    role: str = ""
    """The role that it is configured to have (`target-role`), such as Stopped; empty to leave the role to Pacemaker."""
    active: tuple[str, ...] = ()
    """The nodes where it runs, as far as the cluster knows."""
    begun: tuple[str, ...] = ()
    """The nodes where its start is in flight, or has failed and is still to be undone by a stop."""
    failed: bool = False
    """Whether the cluster has yet to recover it from a failure."""
    blocked: bool = False
    """Whether the cluster leaves it alone until somebody cleans it up, as after a stop that failed without fencing."""
    known: tuple[str, ...] = ()
    """The nodes whose history has it, even if only from a probe."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster at one moment, as one node knew it."""

    version: Version
    dc: str
    """The designated controller's name; empty without one."""
    quorum: bool
    release: str
    """Pacemaker's version on the DC; empty if it never had one."""
    properties: Mapping[str, str]
    """The cluster's properties, such as `stonith-enabled`, as far as they are set."""
    nodes: Mapping[str, Node]
    resources: Mapping[str, Resource]
    failed: tuple[Operation, ...]
    """Operations that failed and are not cleaned up."""
    pending: tuple[Operation, ...]
    """Operations in flight."""
    fail_counts: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    """By resource and node; at most INFINITY."""

    @property
    def online(self) -> list[str]:
        """The names of the nodes that are online, in order."""
        return sorted(node.name for node in self.nodes.values() if node.online)

    @property
    def idle(self) -> bool:
        """Whether there is a DC, no operation is in flight and no node has yet to be fenced."""
        return bool(self.dc) and not self.pending and not any(node.unclean for node in self.nodes.values())


def read_status(body: bytes) -> ClusterStatus:
    """Read a whole CIB: a file, or the answer to a query that names no section. OperationFailed if it is not one.

    It takes about 20 ms of CPU a megabyte. 1000 resources on 16 nodes have 12 MB: 0.22 s.
    """
    return status_of(parse_cib(body))


def parse_cib(body: bytes) -> Element:
    """Return the element `cib` of a file or an answer. OperationFailed without one, or for far more than a CIB has."""
    if b"<!DOCTYPE" in body:  # its entities could be any size; Pacemaker writes none
        raise OperationFailed("an answer with a document type: expected a CIB")
    if body.count(b"<") > _MOST_TAGS or body.count(b"=") > _MOST_ATTRIBUTES:
        raise OperationFailed(
            f"an answer of more than {_MOST_TAGS:,} tags, or {_MOST_ATTRIBUTES:,} attributes"
        )
    try:
        root = ElementTree.fromstring(body.rstrip(b"\0"), ElementTree.XMLParser(encoding="utf-8"))
    except ElementTree.ParseError as problem:
        raise OperationFailed(f"an answer that is no XML: {problem}") from None
    cib = root if root.tag == "cib" else next(root.iter("cib"), None)
    if cib is None:
        raise OperationFailed(f"an answer without a CIB: <{root.tag}>")
    return cib


def status_of(cib: Element) -> ClusterStatus:
    """Read the element `cib`."""
    configuration = Configuration(cib)
    histories = Histories(cib, configuration)
    dc = cib.get("dc-uuid", "")
    ids = {each.id: each.name for each in configuration.nodes}
    return ClusterStatus(
        version=Version(*(number(cib.get(part)) for part in Version._fields)),
        dc=ids.get(dc, dc),
        quorum=configuration.quorum,
        release=configuration.properties.get("dc-version", "").split("-")[0],
        properties=configuration.properties,
        nodes={name: _node(host, configuration) for name, host in histories.hosts.items()},
        resources=_resources(configuration, histories),
        failed=tuple(map(_operation, histories.failed)),
        pending=tuple(map(_operation, histories.pending)),
        fail_counts=dict(_fail_counts(cib, histories)),
    )


def _node(host: Host, configuration: Configuration) -> Node:
    return Node(
        host.name,
        host.id,
        remote=host.remote,
        online=host.online,
        unclean=host.unclean,
        pending=host.pending,
        standby=host.standby,
        maintenance=host.maintenance or configuration.maintenance,
        leaving=host.leaving,
    )


def _resources(configuration: Configuration, histories: Histories) -> dict[str, Resource]:
    """All resources, those of the configuration first."""
    found: dict[str, Resource] = {}
    by_resource = histories.by_resource()
    removed = {_INSTANCE.sub("", id): each for id, each in histories.removed.items()}
    for id, primitive in (removed | configuration.primitives).items():
        instances = by_resource.get(id, [])
        known = histories.known_on(id)
        if not primitive.configured and not known:
            continue
        found[id] = Resource(
            id,
            primitive.agent,
            configured=primitive.configured,
            parent=primitive.parent,
            cloned=primitive.cloned,
            role=primitive.role,
            active=_nodes(instances, begun=False),
            begun=_nodes(instances, begun=True),
            failed=any(each.failed for each in instances),
            blocked=any(each.blocked for each in instances),
            known=known,
        )
    return found


def _nodes(instances: list[Instance], *, begun: bool) -> tuple[str, ...]:
    """The nodes where instances are active, or where their start has begun."""
    up = (each for each in instances if each.role > Role.STOPPED)
    return tuple(dict.fromkeys(node for each in up for node in each.active if (node in each.begun) == begun))


def _operation(recorded: Recorded) -> Operation:
    element = recorded.element
    return Operation(
        recorded.resource,
        recorded.node,
        element.get("operation", ""),
        number(element.get("interval")),
        number(element.get("rc-code"), -1),
        number(element.get("call-id"), -1),
        element.get("exit-reason", ""),
    )


def _fail_counts(cib: Element, histories: Histories) -> Iterator[tuple[tuple[str, str], int]]:
    """The fail counts of all operations of a resource on a node, added up as Pacemaker does."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for state in cib.iterfind("status/node_state"):
        if (host := histories.host(state)) is None:
            continue
        for pair in state.iterfind("transient_attributes/instance_attributes/nvpair"):
            name = pair.get("name", "")
            if name.startswith(_FAIL_COUNT):
                key = name.removeprefix(_FAIL_COUNT).partition("#")[0], host.name
                counts[key] = min(INFINITY, counts[key] + score(pair.get("value")))
    return ((key, count) for key, count in counts.items() if count)
