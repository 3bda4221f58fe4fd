"""A lab's control socket, by which a plan's faults act on a lab's members without their process ids.

Each request is one line of JSON, and so is the answer, over a unix socket with mode 0600:

    {"do": "kill" | "stop" | "continue" | "start" | "partition" | "heal", "member": "m2"}  ->  {"ok": true}
    {"do": "members"}  ->  {"members": [{"name": "m1", "pid": 4711, "running": true, "leader": false}, ...]}
    {"do": "places"}  ->  {"target": [1], "members": {"m1": [1], ...}, "others": [0]}

The numbers of `places` are those of processors: of the target, of each member that is alive, and of what puts load on
the target. Where nothing is placed, target and others have the same.

A refusal is {"error": what was wrong, "expected": what would be accepted}, with one line each.
An action is complete when its answer comes: a killed member is dead, a started one serves (with a quorum).
A lab with all members on loopback cannot cut them off, and refuses `partition` and `heal`. Some labs can do more:

    {"do": "slow", "member": "keystone", "seconds": 2.5}  ->  {"ok": true}, and answers are late by that; 0 ends it
    {"do": "slow-disk" | "free-disk", "member": "m1"}  ->  {"ok": true}: see slow_disk.py
    {"do": "fail-fencing" | "mend-fencing", "member": "node2"}  ->  {"ok": true}, and
    {"do": "kill-daemon", "member": "node2", "daemon": "pacemaker-based"}  ->  {"ok": true}: see lab/pacemaker/verbs.py
    {"do": "compact" | "defrag" | "snapshot" | "move-leader" | "fill-quota" | "free-quota", "member": "m1"}
                                                          ->  {"ok": true}: see lab/etcd/upkeep.py
    {"do": "count"}  ->  {"counts": {"servers": 0, ...}}, what there is in the target's databases
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypedDict, cast, runtime_checkable

from lab.places import Places

_LONGEST_LINE = 65_536
_SLOWEST_S = 600


class LabError(Exception):
    """A lab cannot do what it was asked for. The message is one line: what was wrong, and what would be accepted."""

    def __init__(self, problem: str, expected: str) -> None:
        self.problem = " ".join(problem.split())
        self.expected = expected
        super().__init__(f"{self.problem}: expected {expected}")


class Member(TypedDict):
    """One server of the target. `pid` is None if it is dead; `running` is false if it is dead or stopped."""

    name: str
    pid: int | None
    running: bool
    leader: bool


class Lab(Protocol):
    """The actions of a lab for a plan's faults. Every call raises LabError if it is impossible."""

    @property
    def names(self) -> list[str]: ...

    @property
    def places(self) -> Places:
        """The processors of the members, and those of what puts load on them."""
        ...

    def members(self) -> list[Member]: ...

    def kill(self, name: str) -> None:
        """SIGKILL a member, or the nearest equivalent. It is dead on return."""
        ...

    def stop(self, name: str) -> None:
        """Freeze a member: it keeps its connections and answers nothing."""
        ...

    def resume(self, name: str) -> None:
        """Undo `stop`."""
        ...

    def start(self, name: str) -> None:
        """Undo `kill`, with the member's former data."""
        ...


@runtime_checkable
class Partitions(Protocol):
    """More actions of a lab whose members have their own network links. They raise LabError if impossible."""

    def partition(self, name: str) -> None:
        """Cut a member off: all packets from and to it are dropped, also those of clients."""
        ...

    def heal(self, name: str) -> None:
        """Undo `partition`."""
        ...


@runtime_checkable
class Slowness(Protocol):
    """One more action of a lab whose members can be made slow. It raises LabError if impossible."""

    def slow(self, name: str, seconds: float) -> None:
        """Delay all answers of a member by some seconds; 0 ends that."""
        ...


@runtime_checkable
class Counts(Protocol):
    """One more request of a lab that reads its target's databases."""

    def counts(self) -> dict[str, int]:
        """Return counts by kind of thing."""
        ...


@runtime_checkable
class Verbs(Protocol):
    """More requests, which only this lab knows: see lab/pacemaker/verbs.py."""

    def verbs(self) -> Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return what answers each request by its `do`; it may raise LabError."""
        ...


class ControlServer:
    """Serves a lab's control socket from a thread for as long as the context lasts."""

    def __init__(self, lab: Lab, socket: Path) -> None:
        self._server = _Server(str(socket), _Conversation, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.answer = _answers(lab)
        self._socket = socket

    def __enter__(self) -> ControlServer:
        try:
            self._server.server_bind()
        except OSError as problem:
            self._server.server_close()
            raise LabError(
                f"{self._socket}: {problem}", "a path for a unix socket, under 108 bytes"
            ) from None
        self._socket.chmod(0o600)  # it does not listen yet, so nobody can connect before
        self._server.server_activate()
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._socket.unlink(missing_ok=True)


class _Server(socketserver.ThreadingUnixStreamServer):
    request_queue_size = 128  # one request for each node may come at once

    answer: Callable[[bytes], dict[str, Any]]


class _Conversation(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        answer = cast(_Server, self.server).answer
        with contextlib.suppress(OSError):  # a client that left before its answer
            while line := self.rfile.readline(_LONGEST_LINE):
                self.wfile.write(json.dumps(answer(line)).encode() + b"\n")


def answer_line(line: bytes, act: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Answer one line: the result of `act` for its request, or the LabError that it raised."""
    try:
        request = json.loads(line)
    except ValueError:
        request = None
    if not isinstance(request, dict):
        return {"error": "not a JSON object", "expected": 'a line such as {"do": "members"}'}
    try:
        return act(cast(dict[str, Any], request))
    except LabError as refusal:
        return {"error": refusal.problem, "expected": refusal.expected}


def _answers(lab: Lab) -> Callable[[bytes], dict[str, Any]]:
    actions = {"kill": lab.kill, "stop": lab.stop, "continue": lab.resume, "start": lab.start}
    if isinstance(lab, Partitions):
        actions |= {"partition": lab.partition, "heal": lab.heal}
    more = ["count"] * isinstance(lab, Counts) + ["slow"] * isinstance(lab, Slowness)
    own: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = (
        lab.verbs() if isinstance(lab, Verbs) else {}
    )

    def act(fields: dict[str, Any]) -> dict[str, Any]:
        do, member = fields.get("do"), fields.get("member")
        if do == "members":
            return {"members": lab.members()}
        if do == "places":
            return lab.places.answer({member["name"]: member["pid"] for member in lab.members()})
        if do == "count" and isinstance(lab, Counts):
            return {"counts": lab.counts()}
        if do == "slow" and isinstance(lab, Slowness):
            seconds = fields.get("seconds")
            if not isinstance(seconds, int | float) or not 0 <= seconds <= _SLOWEST_S:
                raise LabError(f"seconds: {seconds!r}", f"a number, at most {_SLOWEST_S}")
            lab.slow(_known(member, lab), seconds)
            return {"ok": True}
        if isinstance(do, str) and do in own:
            return own[do](fields)
        if not isinstance(do, str) or do not in actions:
            raise LabError(f"do: {do!r}", f"one of {', '.join([*actions, 'members', 'places', *more, *own])}")
        actions[do](_known(member, lab))
        return {"ok": True}

    return lambda line: answer_line(line, act)


def _known(member: object, lab: Lab) -> str:
    if not isinstance(member, str) or member not in lab.names:
        raise LabError(f"member: {member!r}", f"one of {', '.join(lab.names)}")
    return member
