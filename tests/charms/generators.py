"""The generator charms in ops.testing, on a machine that is a directory, with an agent at their socket."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib.util
import json
import os
import re
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ops import testing
from scenario.state import _Event  # what ctx.on has is Juju's own events, and those of a charm's objects
from tippingpoint_charm.generator import GeneratorCharm
from tippingpoint_charm.machine import Machine, MachineProblem

from scripts._reference.charms import charmcraft
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.plan.read import parse_plan

CHARMS = Path(__file__).parents[2] / "charms"
PLAN = """
name: small
target: {kind: etcd}
stages: [{leases: 16000, hold: 60s}, {leases: 100, hold: 60s}]
"""


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        f"{name.replace('-', '_')}_charm", CHARMS / name / "src/charm.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


_AGENT_CHANGED = _Event("agent_changed")

CHARM_TYPES: dict[str, type[GeneratorCharm]] = {
    "load-claimer": _module("load-claimer").LoadClaimerCharm,
    "container-spawner": _module("container-spawner").ContainerSpawnerCharm,
}


def metadata(name: str) -> dict[str, dict[str, Any]]:
    """What a testing.Context is to know of a charm: it would read that anew."""
    meta = dict(charmcraft(name))
    return {"config": meta.pop("config"), "actions": meta.pop("actions"), "meta": meta}


class Directory(Machine):
    """A machine that is a directory: what would be run is noted, and may be refused."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.commands: list[str] = []
        self.refuses = ""
        self.programs = {"busybox"}
        self.packages: set[str] = set()
        self.users = {"tippingpoint"}
        self.members: set[tuple[str, str]] = set()
        """Users and the groups that they are in."""
        self.stay: set[str] | None = None
        """What goal-state would name of our application."""
        self.does: dict[str, Callable[[], object]] = {}
        self.states: dict[str, str] = {}
        """The active state of each systemd unit that is not inactive."""
        self.silent: set[str] = set()
        """The units that accept no connection."""
        self.words: dict[str, str] = {}
        """What is last in a systemd unit's journal."""

    def run(self, *command: str, within: float = 120.0) -> None:
        self.commands.append(" ".join(command))
        if self.refuses and self.refuses in self.commands[-1]:
            raise MachineProblem(f"{command[0]}: refused")
        for text, done in self.does.items():
            if text in self.commands[-1]:
                done()
        if command[0] == "systemctl":
            after = {"start": "active", "restart": "active", "stop": "inactive", "disable": "inactive"}
            self.states |= dict.fromkeys(command[2:], after[command[1]]) if command[1] in after else {}
        if command[0] == "useradd":
            self.users.add(command[-1])
        if command[0] == "usermod":
            self.members.add((command[-1], command[-2]))
        if "install" in command:
            self.packages |= {*command[command.index("install") + 2 :]}
        if command[0] == "userdel":
            self.users.discard(command[-1])

    def unit_states(self, *units: str) -> dict[str, str]:
        return {unit: self.states.get(unit, "inactive") for unit in units}

    def last_words(self, unit: str) -> str:
        return self.words.get(unit, "")

    def unanswered(self, addresses: Mapping[str, str], port: int) -> dict[str, str]:
        return {unit: f"no answer at {addresses[unit]}" for unit in addresses if unit in self.silent}

    def units_to_stay(self) -> set[str] | None:
        return self.stay

    def user(self, name: str) -> tuple[int, int] | None:
        return (os.getuid(), os.getgid()) if name in self.users else None

    def is_member(self, user: str, group: str) -> bool:
        return (user, group) in self.members

    def missing_packages(self, *packages: str) -> list[str]:
        return [package for package in packages if package not in self.packages]

    def has(self, program: str) -> bool:
        return program in self.programs


class Unit:
    """One unit of a generator: its machine, its pack, its agent, and the charm as Juju would run it."""

    def __init__(self, root: Path, name: str = "load-claimer", number: int = 0) -> None:
        self.root = root
        self.app = name
        self.name = f"{name}/{number}"
        self.machine = Directory(root)
        self.pack = root / f"pack-of-{name}"
        (self.pack / "tippingpoint").mkdir(parents=True, exist_ok=True)
        (self.pack / "tippingpoint/__init__.py").write_text("version = 1\n")
        self.service = f"tippingpoint-{name}-{number}"
        self.state = root / "var/lib" / self.service
        self.socket = root / "run" / self.service / "agent.sock"
        here = self

        class Charm(CHARM_TYPES[name]):  # pyright: ignore[reportGeneralTypeIssues]
            machine = here.machine
            leaves_within = 0.0

            @property
            def pack(self) -> Path:
                return here.pack

        self.charm = Charm
        self.context: testing.Context[GeneratorCharm] = testing.Context(
            Charm, **metadata(name), unit_id=number
        )
        self.on = self.context.on

    def run(self, event: Any, state: testing.State) -> testing.State:
        return self.context.run(event, state)

    def agent_changed(self, state: testing.State) -> testing.State:
        return self.context.run(_AGENT_CHANGED, state)

    def act(self, action: str, state: testing.State, **params: Any) -> dict[str, Any]:
        """The results of an action, and `after` it the state; ActionFailed with its one line."""
        given = {name.replace("_", "-"): value for name, value in params.items()}
        self.after = self.context.run(self.on.action(action, params=given), state)
        return dict(self.context.action_results or {})

    def refused(self, action: str, state: testing.State, **params: Any) -> str:
        """Why an action is refused: one line."""
        said = self.attempt(action, state, **params)
        assert said, f"{action} was not refused"
        return said

    def attempt(self, action: str, state: testing.State, **params: Any) -> str:
        """Why an action is refused, one line; empty where it is not, and `after` it is the state."""
        try:
            self.act(action, state, **params)
        except testing.ActionFailed as failed:
            said = failed.message
        else:
            return ""
        assert re.fullmatch(r"[^\n]+", said)
        return said

    def word(self, run: SharedRun, phase: str = "making", **fields: Any) -> UnitWord:
        return UnitWord.model_validate(
            {"run": run.id, "phase": phase, "t": fields.pop("t", run.made), **fields}
        )


class ScriptedAgent:
    """Stands at an agent's socket and answers what a test says, where a real agent would need minutes and a target."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.word: UnitWord | None = None
        self.result: dict[str, str] | None = None
        self.running = ""
        self.nonsense: str | None = None
        """Said instead of any answer."""
        self.asked: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}

    def reply(self, request: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        what = request["do"]
        if what in self.answers:
            return {"ok": True, **self.answers[what](request)}
        match what:
            case "word":
                word = None if self.word is None else self.word.model_dump(mode="json")
                return {"ok": True, "word": word, "result": self.result}
            case "ping":
                return {"ok": True, "version": "1", "running": self.running}
            case "task":
                return {"ok": True, "done": True, "failed": False, "text": "removed 3"}
            case "runs":
                return {"ok": True, "runs": []}
            case "report":
                return {
                    "ok": False,
                    "problem": "run: none: expected a run that was started; there is none yet",
                }
            case "clean" | "repair" | "probe" | "evict-member":
                return {"ok": True, "task": "t1"}
            case _:
                return {"ok": True}

    def refuse(self, what: str, problem: str) -> None:
        self.answers[what] = lambda _: {"ok": False, "problem": problem}

    @property
    def orders(self) -> dict[str, Any]:
        return [request for request in self.asked if request["do"] == "orders"][-1]

    def requests(self, what: str) -> list[dict[str, Any]]:
        return [request for request in self.asked if request["do"] == what]

    @contextmanager
    def at_its_socket(self) -> Iterator[ScriptedAgent]:
        agent = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                request = json.loads(self.rfile.readline())
                answer = agent.nonsense
                if answer is None:
                    answer = json.dumps(agent.reply(request)) + "\n"
                self.wfile.write(answer.encode())

        self.unit.socket.parent.mkdir(parents=True, exist_ok=True)
        self.unit.socket.unlink(missing_ok=True)
        with socketserver.ThreadingUnixStreamServer(str(self.unit.socket), Handler) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            try:
                yield self
            finally:
                server.shutdown()
                self.unit.socket.unlink(missing_ok=True)


@contextmanager
def real_agent(unit: Unit) -> Iterator[None]:
    """The agent itself, in a thread, at the unit's socket."""
    from tippingpoint.agent.server import Server
    from tippingpoint.agent.service import Agent

    unit.socket.parent.mkdir(parents=True, exist_ok=True)
    unit.state.mkdir(parents=True, exist_ok=True)
    ready, ending = threading.Event(), []

    async def serve() -> None:
        agent = Agent(unit.state, unit.socket.with_name("wake"), unit.name)
        server = Server(unit.socket, agent.answer)
        await server.open()
        await agent.open()
        end = asyncio.Event()
        loop = asyncio.get_running_loop()
        ending.append(lambda: loop.call_soon_threadsafe(end.set))
        ready.set()
        await end.wait()
        await server.close()
        await agent.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(600)
    try:
        yield
    finally:
        ending[0]()
        thread.join(600)


def a_run(units: list[str], plan: str = PLAN, **changes: Any) -> SharedRun:
    """A run of these units that was just begun."""
    return begin_run(parse_plan(plan), units, time.time()).model_copy(update=changes)


def secret(**content: str) -> testing.Secret:
    return testing.Secret(content, owner=None)


def etcd_secret() -> testing.Secret:
    return secret(endpoints="http://192.0.2.7:2379")


def lxd_token(**more: str) -> str:
    """A trust token as `lxc config trust add` prints it, or with `expires_at`, as Incus does."""
    fields = {
        "client_name": "us",
        "fingerprint": "0" * 64,
        "addresses": ["192.0.2.1:8443"],
        "secret": "s" * 64,
        **more,
    }
    return base64.b64encode(json.dumps(fields).encode()).decode()


def state_of(
    unit: Unit,
    *,
    leader: bool = True,
    run: SharedRun | None = None,
    peers: Mapping[int, Mapping[str, str]] | None = None,
    own: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    access: testing.Secret | None = None,
    others: list[testing.RelationBase] | None = None,
) -> testing.State:
    """A unit with its peers, its configuration and the secret with its credentials (an etcd's by default)."""
    granted = access if access is not None else etcd_secret()
    settings: dict[str, Any] = {"target": "etcd" if unit.app == "load-claimer" else "lxd"}
    settings["credentials"] = granted.id
    settings.update(config or {})
    relation = testing.PeerRelation(
        "units",
        local_app_data={} if run is None else {"run": run.model_dump_json(exclude_none=True)},
        local_unit_data=dict(own or {}),
        peers_data={number: dict(data) for number, data in (peers or {}).items()},
    )
    return testing.State(
        leader=leader,
        config={key: value for key, value in settings.items() if value is not None},
        relations=[relation, *(others or [])],
        secrets=[granted],
        planned_units=1 + len(peers or {}),
    )


def units_of(state: testing.State) -> testing.PeerRelation:
    relation = next(relation for relation in state.relations if relation.endpoint == "units")
    assert isinstance(relation, testing.PeerRelation)
    return relation


def run_in(state: testing.State) -> SharedRun | None:
    text = units_of(state).local_app_data.get("run")
    return None if text is None else SharedRun.model_validate_json(text)


def with_peer(state: testing.State, number: int, **data: str) -> testing.State:
    """The state once a peer has written something."""
    before = units_of(state)
    peers = {**before.peers_data, number: {**before.peers_data.get(number, {}), **data}}
    after = dataclasses.replace(before, peers_data=peers)
    return dataclasses.replace(
        state, relations=[after if relation is before else relation for relation in state.relations]
    )
