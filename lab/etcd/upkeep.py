"""What an operator does to a cluster of etcd, and what etcd does to itself: requests on the lab's control socket.

    {"do": "compact", "member": "m1"}  ->  {"ok": true}: all revisions but the latest are given up, on the disk too
    {"do": "defrag", "member": "m1"}  ->  {"ok": true}: its database is written anew, and it answers nothing meanwhile
    {"do": "snapshot", "member": "m1"}  ->  {"ok": true}: its database was read as a whole
    {"do": "move-leader", "member": "m1"}  ->  {"ok": true}: it leads
    {"do": "fill-quota", "member": "m1"}  ->  {"ok": true}: it raised the alarm of a full quota, so writes are refused
    {"do": "free-quota", "member": "m1"}  ->  {"ok": true}: the cluster was compacted, each member that lives
                                               defragmented, and the alarm is over
    {"do": "slow-disk", "member": "m1", "writes_per_s": 2}  ->  {"ok": true}; 2 is the default; see slow_disk.py
    {"do": "free-disk", "member": "m1"}  ->  {"ok": true}: its disk is as fast as before

All but the last two go through etcd's JSON gateway.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from lab.control import LabError
from lab.slow_disk import writes_asked

_DONE: dict[str, Any] = {"ok": True}
_NO_SPACE = "NOSPACE"

Verb = Callable[[dict[str, Any]], dict[str, Any]]


class Cluster(Protocol):
    """The lab, as far as it is asked here: see cluster.py."""

    names: list[str]

    def ask(self, name: str, path: str, body: dict[str, Any]) -> bytes:
        """Return a member's answer; raises LabError without one, or if it refuses."""
        ...

    @property
    def pids(self) -> dict[str, int]: ...

    def leader(self) -> str: ...

    def slow_disk(self, name: str, writes_per_s: int) -> None: ...


def verbs_of(lab: Cluster) -> Mapping[str, Verb]:
    """Return the requests by their names; each raises LabError where it is impossible."""

    def compact(name: str) -> None:
        revision = _json(lab.ask(name, "maintenance/status", {}))["header"]["revision"]
        lab.ask(name, "kv/compaction", {"revision": revision, "physical": True})

    def defrag(name: str) -> None:
        lab.ask(name, "maintenance/defragment", {})

    def snapshot(name: str) -> None:
        lab.ask(name, "maintenance/snapshot", {})

    def move_leader(name: str) -> None:
        leader = lab.leader()
        if leader != name:
            lab.ask(leader, "maintenance/transfer-leadership", {"targetID": _id_of(lab, name)})

    def alarm(name: str, action: str) -> None:
        body = {"action": action, "memberID": _id_of(lab, name), "alarm": _NO_SPACE}
        lab.ask(name, "maintenance/alarm", body)

    def free_quota(name: str) -> None:
        compact(name)
        for each in lab.pids:
            defrag(each)
        alarm(name, "DEACTIVATE")

    acts: dict[str, Callable[[str], None]] = {
        "compact": compact,
        "defrag": defrag,
        "snapshot": snapshot,
        "move-leader": move_leader,
        "fill-quota": lambda name: alarm(name, "ACTIVATE"),
        "free-quota": free_quota,
        "free-disk": lambda name: lab.slow_disk(name, 0),
    }

    def of_member(act: Callable[[str], None]) -> Verb:
        def answer(fields: dict[str, Any]) -> dict[str, Any]:
            act(_member(lab, fields))
            return _DONE

        return answer

    def slow_disk(fields: dict[str, Any]) -> dict[str, Any]:
        lab.slow_disk(_member(lab, fields), writes_asked(fields))
        return _DONE

    return {do: of_member(act) for do, act in acts.items()} | {"slow-disk": slow_disk}


def _member(lab: Cluster, fields: dict[str, Any]) -> str:
    name = fields.get("member")
    if not isinstance(name, str) or name not in lab.names:
        raise LabError(f"member: {name!r}", f"one of {', '.join(lab.names)}")
    return name


def _id_of(lab: Cluster, name: str) -> str:
    """Return a member's id, as the gateway writes it."""
    members = _json(lab.ask(name, "cluster/member/list", {}))["members"]
    return next(member["ID"] for member in members if member.get("name") == name)


def _json(answer: bytes) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(answer))
