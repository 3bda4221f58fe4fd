"""What the cluster's own tests need of a lab, beside a plan's faults: requests on its control socket.

    {"do": "cluster"}  ->  {"running": ["node1", ...], "fenced": [...], "addresses": {"node1": "10.77.0.1", ...}}
    {"do": "loads"}  ->  {"loads": {"node1": {"load": [0.4, 0.2, 0.1], "cpu": 1.5}, ...}}: see load.py
    {"do": "resize", "nodes": 4}  ->  {"ok": true}: the nodes beyond are off, and node1 to node4 boot as a new cluster
    {"do": "boot", "member": "node2"}  ->  {"ok": true}; nobody waits for it, and a node that is on stays so
    {"do": "shut-down", "member": "node2"}  ->  {"ok": true}; it stops in order, nobody waits for it, or it is off
    {"do": "split", "members": ["node1", "node2"]}  ->  {"ok": true}: Corosync's packets to the others are dropped
    {"do": "kill-daemon", "member": "node2", "daemon": "pacemaker-based"}  ->  {"ok": true}
    {"do": "slow-disk", "member": "node2", "writes_per_s": 2}  ->  {"ok": true}; 2 is the default (slow_disk.py)
    {"do": "free-disk", "member": "node2"}  ->  {"ok": true}: its disk is as fast as the machine's again
    {"do": "fail-fencing", "member": "node2"}  ->  {"ok": true}: from now on this node cannot be fenced
    {"do": "mend-fencing", "member": "node2"}  ->  {"ok": true}: it can be again
    {"do": "property", "name": "cluster-ipc-limit", "value": "20000"}  ->  {"ok": true}; null deletes it
    {"do": "daemon", "member": "node2", "daemon": "pacemaker-based"}  ->  {"pid": 4711}; null while it does not run
    {"do": "fail-resource", "member": "node2", "resource": "id"}  ->  {"ok": true}, as by `crm_resource --fail`
    {"do": "forgive-resource", "member": "node2", "resource": "id"}  ->  {"ok": true}: it is not counted any more
    {"do": "lose-cib", "member": "node2"}  ->  {"ok": true}: what a node that is off had on disk of the CIB is gone

`fenced` has the nodes that the cluster had fenced since the lab began, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from lab.control import LabError
from lab.pacemaker.load import NodeLoads
from lab.slow_disk import writes_asked

Verb = Callable[[dict[str, Any]], dict[str, Any]]
_DONE: dict[str, Any] = {"ok": True}


class Cluster(Protocol):
    """The lab, as far as it is asked here: see cluster.py."""

    names: list[str]
    fenced: list[str]
    unfenceable: set[str]
    loads: NodeLoads

    @property
    def pids(self) -> dict[str, int]: ...
    def address(self, name: str) -> str: ...
    def resize(self, nodes: int) -> None: ...
    def boot(self, name: str) -> None: ...
    def ask_to_shut_down(self, name: str) -> None: ...
    def split(self, minority: list[str]) -> None: ...
    def kill_daemon(self, name: str, daemon: str) -> None: ...
    def slow_disk(self, name: str, writes_per_s: int) -> None: ...
    def set_property(self, name: str, value: str | None) -> None: ...
    def daemon(self, name: str, daemon: str) -> int | None: ...
    def lose_cib(self, name: str) -> None: ...
    def run_on(self, name: str, *command: str) -> str: ...


def verbs_of(lab: Cluster) -> Mapping[str, Verb]:
    """The requests by their names; each raises LabError where it is impossible."""

    def cluster(_: dict[str, Any]) -> dict[str, Any]:
        addresses = {name: lab.address(name) for name in lab.names}
        return {"running": sorted(lab.pids), "fenced": list(lab.fenced), "addresses": addresses}

    def loads(_: dict[str, Any]) -> dict[str, Any]:
        return {"loads": lab.loads.read()}

    def resize(fields: dict[str, Any]) -> dict[str, Any]:
        nodes = fields.get("nodes")
        if not isinstance(nodes, int):
            raise LabError(f"nodes: {nodes!r}", "a number")
        lab.resize(nodes)
        return _DONE

    def boot(fields: dict[str, Any]) -> dict[str, Any]:
        name = _member(lab, fields)
        if name not in lab.pids:
            lab.boot(name)
        return _DONE

    def shut_down(fields: dict[str, Any]) -> dict[str, Any]:
        name = _member(lab, fields)
        if name in lab.pids:
            lab.ask_to_shut_down(name)
        return _DONE

    def split(fields: dict[str, Any]) -> dict[str, Any]:
        members = fields.get("members")
        if not isinstance(members, list) or not members:
            raise LabError(f"members: {members!r}", f"some of {', '.join(lab.names)}")
        lab.split([_member(lab, {"member": name}) for name in cast("list[object]", members)])
        return _DONE

    def kill_daemon(fields: dict[str, Any]) -> dict[str, Any]:
        lab.kill_daemon(_member(lab, fields), _text(fields, "daemon"))
        return _DONE

    def slow_disk(fields: dict[str, Any]) -> dict[str, Any]:
        lab.slow_disk(_member(lab, fields), writes_asked(fields))
        return _DONE

    def free_disk(fields: dict[str, Any]) -> dict[str, Any]:
        lab.slow_disk(_member(lab, fields), 0)
        return _DONE

    def fail_fencing(fields: dict[str, Any]) -> dict[str, Any]:
        lab.unfenceable.add(_member(lab, fields))
        return _DONE

    def mend_fencing(fields: dict[str, Any]) -> dict[str, Any]:
        lab.unfenceable.discard(_member(lab, fields))
        return _DONE

    def set_property(fields: dict[str, Any]) -> dict[str, Any]:
        lab.set_property(
            _text(fields, "name"), None if fields.get("value") is None else _text(fields, "value")
        )
        return _DONE

    def daemon(fields: dict[str, Any]) -> dict[str, Any]:
        return {"pid": lab.daemon(_member(lab, fields), _text(fields, "daemon"))}

    def fail_resource(fields: dict[str, Any]) -> dict[str, Any]:
        name = _member(lab, fields)
        lab.run_on(name, "crm_resource", "--fail", "--resource", _text(fields, "resource"), "--node", name)
        return _DONE

    def forgive_resource(fields: dict[str, Any]) -> dict[str, Any]:
        name = _member(lab, fields)
        # crm_resource --cleanup would leave a property of the cluster behind (last-lrm-refresh).
        for attribute in ("fail-count", "last-failure"):
            failure = f"{attribute}-{_text(fields, 'resource')}#asyncmon_0"
            lab.run_on(name, "attrd_updater", "--delete", "--name", failure, "--node", name)
        return _DONE

    def lose_cib(fields: dict[str, Any]) -> dict[str, Any]:
        lab.lose_cib(_member(lab, fields))
        return _DONE

    return {
        "cluster": cluster,
        "loads": loads,
        "resize": resize,
        "boot": boot,
        "shut-down": shut_down,
        "split": split,
        "kill-daemon": kill_daemon,
        "slow-disk": slow_disk,
        "free-disk": free_disk,
        "fail-fencing": fail_fencing,
        "mend-fencing": mend_fencing,
        "property": set_property,
        "daemon": daemon,
        "fail-resource": fail_resource,
        "forgive-resource": forgive_resource,
        "lose-cib": lose_cib,
    }


def _member(lab: Cluster, fields: Mapping[str, Any]) -> str:
    name = fields.get("member")
    if not isinstance(name, str) or name not in lab.names:
        raise LabError(f"member: {name!r}", f"one of {', '.join(lab.names)}")
    return name


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise LabError(f"{name}: {value!r}", "a text")
    return value
