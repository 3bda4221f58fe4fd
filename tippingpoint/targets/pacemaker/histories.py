"""What the histories of all nodes show: which nodes are up, and where each resource is active.

Pacemaker keeps no state of a resource. It keeps, for each node and resource, the last operations and their results, and
computes the state from them (lib/pengine/unpack.c). These are the same rules, in the same order:

- A node's own state decides whether a member is up. A node that has none yet is unclean, with fencing.
- The histories of members come first. A remote or guest node's history counts once its connection is known to be up.
- A history is read in the order of its call ids. Only newer operations on the same node clear a failure there.
- A live migration is on both sides: each side's record counts until that side has a newer one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cmp_to_key
from xml.etree.ElementTree import Element

from tippingpoint.targets.pacemaker.configured import (
    Configuration,
    OnFail,
    Primitive,
    is_true,
)
from tippingpoint.targets.pacemaker.tags import number

_MOVED = ("start", "stop", "migrate_to", "migrate_from")
_COUNT = ("monitor", "promote", "demote", "asyncmon", *_MOVED)
"""The operations that show something about a resource's state."""
_INSTANCE = re.compile(r":\d+$")
_PENDING, _DONE, _CANCELLED, _ERROR = -1, 0, 1, 4
_NOT_SUPPORTED, _HARD, _FATAL, _NO_AGENT, _NOT_CONNECTED = 3, 5, 6, 7, 8
_NODE_FATAL = (10, 11)
_GREATEST_STATUS = 11
_OK, _INVALID, _UNIMPLEMENTED, _FORBIDDEN, _NOT_INSTALLED, _NOT_CONFIGURED = 0, 2, 3, 4, 5, 6
_NOT_RUNNING, _PROMOTED_OK, _PROMOTED_FAILED, _UNKNOWN = 7, 8, 9, 193
_DEGRADED = {190: _OK, 191: _PROMOTED_OK}


class Role(IntEnum):
    """What a resource is on a node, as far as it was read."""

    UNKNOWN = 0
    STOPPED = 1
    STARTED = 2
    UNPROMOTED = 3
    PROMOTED = 4


@dataclass(slots=True)
class Host:
    """A node while the status is read."""

    name: str
    id: str
    connection: Instance | None = None
    """Of a remote or guest node, as long as its resource is known."""
    remote: bool = False
    online: bool = False
    unclean: bool = False
    pending: bool = False
    standby: bool = False
    maintenance: bool = False
    leaving: bool = False
    reset: bool = False
    """Whether it is to be fenced for its connection."""
    fenced: bool = False
    read: bool = False

    @property
    def guest(self) -> bool:
        """Whether it is in a container or a virtual machine that is a resource."""
        return self.connection is not None and bool(self.connection.primitive.launcher)


@dataclass(slots=True)
class Instance:
    """A resource while the histories are read; for an anonymous clone, what one node has of it."""

    primitive: Primitive
    managed: bool
    role: Role = Role.STOPPED
    active: list[str] = field(default_factory=list[str])
    """The nodes where it runs, or where its start has begun."""
    begun: set[str] = field(default_factory=set[str])
    """Those of them where its start is in flight, or has failed."""
    failed: bool = False
    blocked: bool = False
    migrates_from: str = ""
    """The node that it has left by a live migration that is not over."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """An element `lrm_rsc_op`, with its resource and node."""

    resource: str
    node: str
    element: Element


class Histories:
    """A CIB's status."""

    def __init__(self, cib: Element, configuration: Configuration) -> None:
        self._configuration = configuration
        self._cib = cib
        self.hosts: dict[str, Host] = {}
        self._by_id: dict[str, Host] = {}
        self._attributes: dict[str, dict[str, str]] = defaultdict(dict)
        self._instances: dict[tuple[str, str], Instance] = {}
        self.known: dict[str, list[str]] = defaultdict(list)
        """The nodes whose history has a resource."""
        self.removed: dict[str, Primitive] = {}
        """Resources that only histories have."""
        self._failed: dict[tuple[str, str, str, str], Recorded] = {}
        self._pending: list[Recorded] = []
        self._index: dict[tuple[str, str], list[Element]] | None = None
        self._states = cib.findall("status/node_state")
        self._add_hosts()
        for state in self._states:
            self._note(state)
        while self._read_some():
            pass
        self._read_some(rest=configuration.fencing)
        for host in self.hosts.values():
            if host.remote and not host.read:
                self._judge_remote(host)

    # -- what was found ------------------------------------------------------------------------------

    @property
    def failed(self) -> list[Recorded]:
        """Operations that failed, on nodes that are up or to be fenced."""
        return [each for each in self._failed.values() if self._counts(each.node)]

    @property
    def pending(self) -> list[Recorded]:
        """Operations in flight on such nodes."""
        return [each for each in self._pending if self._counts(each.node)]

    def known_on(self, id: str) -> tuple[str, ...]:
        """The nodes, up or to be fenced, whose history has a resource."""
        return tuple(node for node in self.known.get(id, ()) if self._counts(node))

    def _counts(self, node: str) -> bool:
        host = self.hosts[node]
        return host.online or host.unclean

    def by_resource(self) -> Mapping[str, list[Instance]]:
        """What was read, by a resource's id without the instance's number."""
        found: dict[str, list[Instance]] = defaultdict(list)
        for (id, _), instance in self._instances.items():
            found[_INSTANCE.sub("", id)].append(instance)
        return found

    # -- nodes -----------------------------------------------------------------------------------------

    def _add_hosts(self) -> None:
        configuration = self._configuration
        for node in configuration.nodes:
            host = Host(node.name, node.id, remote=node.remote)
            host.unclean = configuration.startup_fencing and not node.remote
            self._add(host, node.attributes)
        for primitive in configuration.primitives.values():
            if primitive.is_connection and not primitive.cloned:
                self._connect(primitive)

    def _add(self, host: Host, attributes: Mapping[str, str]) -> None:
        self.hosts[host.name] = host
        self._by_id[host.id] = host
        self._attributes[host.name].update(attributes)

    def _connect(self, primitive: Primitive) -> None:
        """Link a remote node to the resource that connects it."""
        host = self.hosts.get(primitive.id)
        if host is None:
            host = Host(primitive.id, primitive.id, remote=True)
            self._add(host, {})
        if not host.remote:
            return
        host.connection = self._instance(primitive.id, primitive)
        host.unclean = self._configuration.startup_fencing and not primitive.launcher

    def host(self, state: Element) -> Host | None:
        """The node that a state belongs to; None if it is no longer configured."""
        return self._by_id.get(state.get("id", "")) or self.hosts.get(state.get("uname", ""))

    def _note(self, state: Element) -> None:
        """Process a state, except its history."""
        host = self.host(state)
        if host is None:
            return
        if host.remote:
            host.fenced = number(state.get("node_fenced")) > 0
            return
        said = self._take_attributes(host, state)
        host.unclean = False
        self._judge_member(host, state, said)
        if host.online and self._configuration.no_quorum == "fence" and not self._configuration.quorum:
            self._fence(host)

    def _take_attributes(self, host: Host, state: Element) -> dict[str, str]:
        said = self._attributes[host.name]
        for pair in state.iterfind("transient_attributes/instance_attributes/nvpair"):
            said[pair.get("name", "")] = pair.get("value", "")
        host.standby = is_true(said.get("standby"))
        host.maintenance = is_true(said.get("maintenance"))
        host.leaving = said.get("shutdown", "0") not in ("", "0")
        return said

    def _judge_member(self, host: Host, state: Element, said: Mapping[str, str]) -> None:
        join, expected = state.get("join"), state.get("expected")
        member, controlled = _since(state.get("in_ccm")), bool(_since(state.get("crmd")))
        if not self._configuration.fencing:
            host.online = bool(member) and controlled and join == "member"
            if member and not controlled and expected == "member" and not host.leaving:
                self._fence(host)
            return
        if host.leaving:
            host.online = controlled
            return
        terminate = said.get("terminate", "")
        ended = is_true(terminate) or (terminate.isdecimal() and bool(terminate.strip("0")))
        if member is None or join == "banned":
            self._fence(host)
        elif ended:
            if not member and not controlled and join == "down":
                return
            self._fence(host)
        elif expected in (None, "down"):
            host.pending = member or controlled
        elif not member or not controlled:
            self._fence(host)
        elif join in ("pending", "down"):
            host.pending = True
        elif join != "member":
            self._fence(host)
        host.online = bool(member)

    def _judge_remote(self, host: Host) -> None:
        connection = host.connection
        if connection is None:
            host.online = False
            return
        launcher = self._launcher(connection.primitive)
        at = [self.hosts[name] for name in connection.active] if launcher is not None else []
        if connection.role is Role.STARTED:
            host.online = True
        if launcher is not None and launcher.failed:
            host.online, host.reset = False, True
        elif connection.failed:
            host.online = False
        elif connection.role is Role.STOPPED or (launcher is not None and launcher.role is Role.STOPPED):
            host.online = host.reset = False
        elif len(at) == 1 and at[0].unclean and not at[0].online:
            host.online, host.reset = False, True

    def _launcher(self, primitive: Primitive) -> Instance | None:
        if not primitive.launcher:
            return None
        machine = self._configuration.primitives.get(primitive.launcher)
        return None if machine is None else self._instance(machine.id, machine)

    def _fence(self, host: Host) -> None:
        """Mark a node that has to be fenced."""
        if not host.remote:
            host.unclean = True
        elif host.guest and host.connection is not None:
            # A guest is fenced by recovering what it runs in, and is not unclean meanwhile.
            launcher = self._launcher(host.connection.primitive)
            if launcher is not None and launcher.managed and not launcher.failed:
                host.reset = launcher.failed = True
        else:
            host.unclean = True
            if host.connection is None or host.connection.managed:
                host.reset = True

    def _may_fence(self, host: Host) -> bool:
        """Whether a node can be fenced at all."""
        configuration = self._configuration
        if host.guest and host.connection is not None:
            launcher = self._launcher(host.connection.primitive)
            machines = [] if launcher is None else [self.hosts[name] for name in launcher.active]
            return all(
                machine.online or self._may_fence(machine) for machine in machines if not machine.guest
            )
        if not (configuration.fencing and configuration.has_fencing_device):
            return False
        return configuration.quorum or configuration.no_quorum == "ignore" or host.online

    # -- histories -------------------------------------------------------------------------------------

    def _read_some(self, *, rest: bool = False) -> bool:
        """Read the histories that can be read now, or all that are left; False if there was none."""
        some = False
        for state in self._states:
            host = self.host(state)
            if host is None or host.read or state.get("uname") is None:
                continue
            if not rest and not self._is_readable(host):
                continue
            if host.remote:
                self._judge_remote(host)
                if not host.reset:
                    host.unclean = False
                self._take_attributes(host, state)
                if host.connection is not None and not host.connection.managed:
                    host.maintenance = True
            host.read = some = True
            for entry in state.iterfind("lrm/lrm_resources/lrm_resource"):
                self._read(host, entry)
        return some

    def _is_readable(self, host: Host) -> bool:
        if not host.remote:
            locks = is_true(self._configuration.properties.get("shutdown-lock"))
            return host.online or locks or self._configuration.fencing
        connection = host.connection
        if connection is None or connection.role is not Role.STARTED:
            return False
        launcher = self._launcher(connection.primitive)
        return launcher is None or launcher.role is Role.STARTED

    def _read(self, host: Host, entry: Element) -> None:
        """Process one node's history of one resource."""
        raw = entry.get("id", "")
        operations = entry.findall("lrm_rsc_op")
        if not raw or not operations:
            return
        instance = self._find(raw, host, entry)
        id = _INSTANCE.sub("", raw)
        known = self.known[id]
        if host.name not in known:
            known.append(host.name)
        if len(operations) > 1:
            operations.sort(key=_IN_ORDER)
        reader = _Reader(self, instance, host, id, raw)
        before, instance.role = instance.role, Role.UNKNOWN
        for each in operations:
            reader.take(each)
        if reader.begun:
            instance.begun.add(host.name)
        self._conclude(instance, host, reader.on_fail)
        instance.role = max(before, instance.role)

    def _find(self, raw: str, host: Host, entry: Element) -> Instance:
        primitives = self._configuration.primitives
        base = _INSTANCE.sub("", raw)
        primitive = primitives.get(raw) or primitives.get(base)
        if primitive is not None:
            numbered = raw != base
            if not primitive.cloned:
                if not numbered or raw in primitives:
                    return self._instance(raw, primitive)
            elif not primitive.unique:
                return self._instance(base, primitive, host.name)
            elif numbered:
                return self._instance(raw, primitive)
        removed = self.removed.get(raw)
        if removed is None:
            removed = self.removed[raw] = self._configuration.removed(entry)
            if removed.is_connection:
                self._connect(removed)
                self.hosts[raw].leaving = True
        return self._instance(raw, removed)

    def _instance(self, id: str, primitive: Primitive, node: str = "") -> Instance:
        found = self._instances.get((id, node))
        if found is None:
            found = self._instances[id, node] = Instance(primitive, primitive.managed)
        return found

    def _conclude(self, instance: Instance, host: Host, on_fail: OnFail) -> None:
        """Draw the conclusions from a whole history."""
        active = instance.role > Role.STOPPED
        configuration, primitive = self._configuration, instance.primitive
        if active and not host.online and not host.maintenance and instance.managed:
            if host.guest:
                instance.failed = True
                self._fence(host)
            elif configuration.fencing:
                self._fence(host)
        if host.unclean:
            on_fail = OnFail.IGNORE
        if on_fail is OnFail.FENCE:
            self._fence(host)
        elif on_fail is OnFail.STANDBY:
            host.standby = True
        elif on_fail is OnFail.BLOCK:
            instance.managed, instance.blocked = False, True
        elif on_fail in (OnFail.DEMOTE, OnFail.RESTART_CONTAINER):
            instance.failed = True
        elif on_fail is OnFail.RESET_REMOTE:
            instance.failed = True
            node = self.hosts.get(primitive.id) if primitive.is_connection else None
            if (
                configuration.fencing
                and node is not None
                and node.remote
                and not node.guest
                and not node.fenced
            ):
                self._fence(node)
        if active:
            self.add_active(instance, host)
            if on_fail is not OnFail.IGNORE:
                instance.failed = True
        if instance.role is Role.STOPPED and instance.active and instance.migrates_from == host.name:
            instance.role = Role.STARTED

    def add_active(self, instance: Instance, host: Host) -> None:
        """Note that a resource is active on a node."""
        if host.name in instance.active:
            return
        instance.active.append(host.name)
        if host.maintenance:
            instance.managed = False
        elif instance.managed and instance.primitive.blocks_multiple and len(instance.active) > 1:
            for each in self._together(instance):
                each.managed, each.blocked = False, True

    def _together(self, instance: Instance) -> list[Instance]:
        """A resource, and those of its group."""
        if not instance.primitive.group or instance.primitive.cloned:
            return [instance]
        members = self._configuration.primitives.values()
        return [self._instance(each.id, each) for each in members if each.group == instance.primitive.group]

    # -- for one operation -----------------------------------------------------------------------------

    def on_fail(self, instance: Instance, task: str, interval: int) -> OnFail:
        """What the cluster does when an operation of a resource fails."""
        return self._configuration.on_fail(instance.primitive, task, interval)

    def block_if_unrecoverable(self, instance: Instance, host: Host, task: str) -> None:
        """Block a resource that could not be stopped, if its node cannot be fenced."""
        if task == "stop" and not self._may_fence(host):
            instance.managed, instance.blocked = False, True

    def fail(self, id: str, host: Host, element: Element) -> None:
        """Record a failed operation."""
        key = (id, host.name, element.get("operation", ""), element.get("call-id", ""))
        self._failed[key] = Recorded(id, host.name, element)

    def hang(self, id: str, host: Host, element: Element) -> None:
        """Record an operation in flight."""
        self._pending.append(Recorded(id, host.name, element))

    def operations(self, raw: str, node: str) -> list[Element]:
        """All operations in a node's history of a resource."""
        if self._index is None:
            self._index = defaultdict(list)
            for state in self._states:
                for entry in state.iterfind("lrm/lrm_resources/lrm_resource"):
                    self._index[entry.get("id", ""), state.get("uname", "")] += entry.iterfind("lrm_rsc_op")
        return self._index.get((raw, node), [])


class _Reader:
    """Reads one node's history of one resource."""

    def __init__(self, all: Histories, instance: Instance, host: Host, id: str, raw: str) -> None:
        self._all = all
        self._instance = instance
        self._host = host
        self._id = id
        self._raw = raw
        self._last_failure: Element | None = None
        self.on_fail = OnFail.IGNORE
        self.begun = False
        """Whether its start is the last known operation, and is in flight or has failed."""

    def take(self, element: Element) -> None:
        """Process the next operation."""
        instance, task = self._instance, element.get("operation", "")
        status = number(element.get("op-status"), _CANCELLED)
        code = number(element.get("rc-code"), -1)
        if task not in _COUNT or not _PENDING <= status <= _GREATEST_STATUS or status == _CANCELLED:
            return
        if status == _PENDING:
            self._take_pending(element, task)
            return
        if not 0 <= code <= 255:
            return
        interval = number(element.get("interval"))
        probe = task == "monitor" and not interval
        expected = _expected(element, task, probe)
        masked = (
            probe
            and not instance.primitive.bundled
            and (code in (_NOT_INSTALLED, _INVALID) or status == _NO_AGENT)
        )
        code = _DEGRADED.get(code, code)
        if masked:
            self.on_fail = OnFail.IGNORE  # an agent that cannot run there cannot have failed there either
            self._succeed(element, task, expected, masked=True)
            self._all.fail(self._id, self._host, element)
            return
        if status in (_DONE, _ERROR):
            status = self._judge(task, interval, probe, status, code, expected)
        elif status in _NODE_FATAL:
            status = _HARD
        if status == _DONE:
            self._succeed(element, task, code)
            return
        strategy = self._all.on_fail(instance, task, interval)
        if status == _NO_AGENT:
            if strategy is OnFail.IGNORE:
                self.on_fail = OnFail.BAN
            self._fail(element, task, code, probe, strategy)
            return
        connection = self._host.connection
        if status == _NOT_CONNECTED and connection is not None and connection.managed:
            connection.failed = True
        if strategy is OnFail.IGNORE or (strategy is OnFail.RESTART_CONTAINER and task == "stop"):
            self._succeed(element, task, expected)
            self._all.fail(self._id, self._host, element)
            if strategy is OnFail.RESTART_CONTAINER and self.on_fail <= OnFail.RESTART:
                self.on_fail = strategy
        else:
            self._fail(element, task, code, probe, strategy)

    def _judge(self, task: str, interval: int, probe: bool, status: int, code: int, expected: int) -> int:
        """The status of an operation that was carried out, given what was expected."""
        instance = self._instance
        known = status == _DONE
        status = _DONE if code == expected else _ERROR
        if code == _OK:
            if probe and expected == _NOT_RUNNING:
                status = _DONE
        elif code == _NOT_RUNNING:
            if probe or code == expected or not instance.managed:
                status, instance.role = _DONE, Role.STOPPED
                self.on_fail = OnFail.IGNORE
        elif code == _PROMOTED_OK:
            if probe:
                status = _DONE
            instance.role = Role.PROMOTED
        elif code == _PROMOTED_FAILED:
            status, instance.role = _ERROR, Role.PROMOTED
        elif code == _NOT_CONFIGURED:
            status = _FATAL
        elif code == _UNIMPLEMENTED:
            if interval:
                status = _NOT_SUPPORTED
            else:
                self._all.block_if_unrecoverable(instance, self._host, task)
                status = _HARD
        elif code in (_NOT_INSTALLED, _INVALID, _FORBIDDEN):
            self._all.block_if_unrecoverable(instance, self._host, task)
            status = _HARD
        elif known:
            status = _ERROR
        return status

    def _take_pending(self, element: Element, task: str) -> None:
        last = self._last_failure
        if last is not None and _is_failure_of(last, element):
            return
        if task == "start":
            self._activate()
            self.begun = True
        elif task == "promote":
            self._instance.role = Role.PROMOTED
        self._all.hang(self._id, self._host, element)

    def _activate(self) -> None:
        self._instance.role = Role.UNPROMOTED if self._instance.primitive.promotable else Role.STARTED

    def _succeed(self, element: Element, task: str, code: int, *, masked: bool = False) -> None:
        instance, clears = self._instance, False
        self.begun = False
        if code == _NOT_INSTALLED or masked:
            instance.role = Role.STOPPED
        elif code == _NOT_RUNNING:
            clears = True
        elif task == "monitor":
            last = self._last_failure
            clears = last is not None and _key(last) == _key(element)
            if instance.role < Role.STARTED:
                self._activate()
        elif task in ("start", "migrate_from"):
            instance.role, clears = Role.STARTED, True
        elif task == "stop":
            instance.role, clears = Role.STOPPED, True
        elif task == "promote":
            instance.role, clears = Role.PROMOTED, True
        elif task == "demote":
            clears = self.on_fail is OnFail.DEMOTE
            instance.role = Role.UNPROMOTED
        elif task == "migrate_to":
            self._leave(element)
        elif instance.role < Role.STARTED:
            self._activate()
        passing = (OnFail.BLOCK, OnFail.DEMOTE, OnFail.RESTART, OnFail.RESTART_CONTAINER)
        if clears and (
            self.on_fail in passing
            or (self.on_fail is OnFail.RESET_REMOTE and not instance.primitive.reconnects)
        ):
            self.on_fail = OnFail.IGNORE

    def _fail(self, element: Element, task: str, code: int, probe: bool, strategy: OnFail) -> None:
        instance = self._instance
        self._last_failure = element
        self._all.fail(self._id, self._host, element)
        self.on_fail = max(self.on_fail, strategy)
        self.begun = task == "start"
        if task == "migrate_to":
            self._leave_failed(element)
        elif task == "migrate_from":
            self._come_failed(element)
        elif task == "promote":
            instance.role = Role.PROMOTED
        elif task == "demote":
            if strategy is OnFail.BLOCK:
                instance.role = Role.PROMOTED
            else:
                instance.role = Role.STOPPED if code == _NOT_RUNNING else Role.UNPROMOTED
        if probe and code == _NOT_INSTALLED:
            instance.role = Role.STOPPED
        elif instance.role < Role.STARTED:
            self._activate()

    # -- live migrations -------------------------------------------------------------------------------

    def _leave(self, element: Element) -> None:
        """Process a `migrate_to` that succeeded on this node."""
        instance = self._instance
        source, target = element.get("migrate_source", ""), element.get("migrate_target", "")
        if source != self._host.name or not target:
            return
        moved = self._moved_after(source, element)
        arrival = self._find("migrate_from", target, source)
        if arrival is not None and moved:
            return
        newer = self._newer_after_migration(target, element, arrival)
        if moved and newer:
            return
        status = _PENDING if arrival is None else number(arrival.get("op-status"), _PENDING)
        if arrival is not None and status == _DONE and number(arrival.get("rc-code"), -1) == _OK:
            instance.role = Role.STOPPED  # it has arrived, and is still to be stopped here
            return
        instance.role = Role.STARTED
        there = self._all.hosts.get(target)
        active = there if there is not None and there.online and not newer else None
        if status != _PENDING:
            if active is None:
                instance.failed = True
            else:
                self._all.add_active(instance, active)
            return
        if there is not None and there.online and self._is_unknown(target):
            return
        if active is not None:
            self._all.add_active(instance, active)
            if self._host.online:
                instance.migrates_from = source
        elif not moved:
            instance.failed = True

    def _leave_failed(self, element: Element) -> None:
        """Process a `migrate_to` that failed on this node."""
        source, target = element.get("migrate_source", ""), element.get("migrate_target", "")
        if source != self._host.name or not target:
            return
        self._instance.role = Role.STARTED
        arrival = self._find("migrate_from", target, source, succeeded=True)
        if not self._is_unknown(target) and not self._newer_after_migration(target, element, arrival):
            self._add_if_online(target)

    def _come_failed(self, element: Element) -> None:
        """Process a `migrate_from` that failed on this node."""
        source, target = element.get("migrate_source", ""), element.get("migrate_target", "")
        if target != self._host.name or not source:
            return
        self._instance.role = Role.STARTED
        departure = self._find("migrate_to", source, target, succeeded=True)
        if not self._is_unknown(source) and not self._newer_after_migration(source, departure, element):
            self._add_if_online(source)

    def _add_if_online(self, name: str) -> None:
        host = self._all.hosts.get(name)
        if host is not None and host.online:
            self._all.add_active(self._instance, host)

    def _operations(self, node: str) -> Iterator[Element]:
        return iter(self._all.operations(self._raw, node))

    def _find(self, task: str, node: str, other: str, *, succeeded: bool = False) -> Element | None:
        name = "migrate_source" if task == "migrate_from" else "migrate_target"
        for each in self._operations(node):
            if each.get("operation") == task and each.get(name) == other:
                good = each.get("rc-code") == "0" and each.get("op-status") == "0"
                return each if good or not succeeded else None
        return None

    def _moved_after(self, node: str, element: Element) -> bool:
        return any(
            each is not element and each.get("operation") in _MOVED and _order(each, element) > 0
            for each in self._operations(node)
        )

    def _newer_after_migration(self, node: str, leaving: Element | None, coming: Element | None) -> bool:
        """Whether a node's history has a newer state than a migration."""
        event = leaving if coming is None else coming
        if event is None:
            return False
        if leaving is not None and node == event.get("migrate_source"):
            event = leaving
        if self._moved_after(node, event):
            return True
        probe = next((each for each in self._operations(node) if each.get("operation") == "monitor"), None)
        return (
            probe is not None
            and probe.get("rc-code") == str(_NOT_RUNNING)
            and probe.get("op-status") == "0"
            and _order(probe, event) > 0
        )

    def _is_unknown(self, node: str) -> bool:
        return all(each.get("rc-code") == str(_UNKNOWN) for each in self._operations(node))


def _expected(element: Element, task: str, probe: bool) -> int:
    """The exit code that the cluster expected, from the transition's key. Without a key, it is the usual one."""
    parts = element.get("transition-key", "").split(":", 3)
    if len(parts) == 4 and parts[2].isdecimal() and len(parts[2]) < 4:
        return int(parts[2])
    return _NOT_RUNNING if probe else _OK


def _order(a: Element, b: Element) -> int:
    """Whether an operation is newer than another (1), older (-1), or neither (0)."""
    same = a.get("on_node", "").lower() == b.get("on_node", "").lower()
    if same and a.get("id") is not None and a.get("id") == b.get("id"):
        return 0
    first, second = number(a.get("call-id"), -1), number(b.get("call-id"), -1)
    if first == second == -1:
        return 0
    if same and 0 <= first < second:
        return -1
    if same and first > second >= 0:
        return 1
    if first >= 0 and second >= 0:
        before, after = number(a.get("last-rc-change"), -1), number(b.get("last-rc-change"), -1)
        if min(before, after) < 0:
            return 0
        return (before > after) - (before < after)
    transitions = _transition(a), _transition(b)
    if None in transitions:
        return 0 if first == second else (-1 if second == -1 else 1)
    (ours, one), (theirs, two) = (each or ("", 0) for each in transitions)
    if ours != theirs or one == two:
        return -1 if second == -1 else 1
    if (0 <= one < two) or two == -1:
        return -1
    return 1


def _transition(element: Element) -> tuple[str, int] | None:
    """The computation that an operation belongs to, and its number."""
    parts = element.get("transition-magic", "").partition(";")[2].split(":", 3)
    if len(parts) != 4:
        return None
    return parts[3].lower(), number(parts[1], -1)


_IN_ORDER = cmp_to_key(_order)


def _key(element: Element) -> str:
    """The name of an operation, as in `RESOURCE_monitor_10000`."""
    return element.get("operation_key") or element.get("id", "")


def _is_failure_of(failure: Element, pending: Element) -> bool:
    """Whether a recorded failure belongs to an operation that is still recorded as pending."""
    if failure.get("operation") != pending.get("operation"):
        return False
    if number(failure.get("interval")) != number(pending.get("interval")):
        return False
    began, failed = number(pending.get("last-rc-change"), -1), number(failure.get("last-rc-change"), -1)
    return 0 <= began <= failed


def _since(said: str | None) -> bool | None:
    """Whether a membership holds: a truth value, `online`, or the moment of its beginning; None if nothing is said."""
    if said is None:
        return None
    return is_true(said) or said.lower() == "online" or (said.isdecimal() and bool(said.strip("0")))
