"""The simulator's control socket: a lab's requests (see control.py), and faults that only a simulator can do.

Each request is one line of JSON, and so is the answer, over a unix socket of mode 0600. Beside kill, stop, continue,
start, members, places, slow-disk and free-disk there are:

    {"do": "reset", "share": 0.1}                    reset that share of the connections (each by its own chance)
    {"do": "mute", "share": 0.1}                     half open: never answered, never closed
    {"do": "rate-limit", "max": 10, "rate": 0.25}    limit agents' logins as Juju does; max 0: do not
    {"do": "redirect", "member": "s1", "to": "s2"}   redirect every login at s1; "to" null: do not
    {"do": "facades", "versions": {"Uniter": [99]}}  offer these versions of these facades; {}: Juju 4.0.15's
    {"do": "store", "state": "stalled"}              normal, stalled or failing; "slower": times slower
    {"do": "store", "profile": "2.5.0", "scale": 100}
    {"do": "destroy-model", "model": UUID}           gone under its users; "disconnect": true ends their connections
    {"do": "keep-model", "model": UUID}              block its destruction; "keep" false: do not
    {"do": "counts"}                                 connections, sessions, leases, commits waiting, units, log lines
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from lab.control import LabError, Member, answer_line
from lab.juju.controller import Controller
from lab.juju.disk import WRITES_PER_S
from lab.juju.model import Model
from lab.juju.ratelimit import Bucket
from lab.juju.server import Channel, Server, some
from lab.juju.store import PROFILES
from lab.places import Places

_STATES = ("normal", "stalled", "failing")


class Control:
    """Acts on a controller and its servers. `pid` is that of all members, which share one process."""

    def __init__(self, controller: Controller, servers: dict[str, Server], pid: int, places: Places) -> None:
        self._controller = controller
        self._servers = servers
        self._pid = pid
        self._places = places
        self._actions: dict[str, Callable[[dict[str, Any]], dict[str, Any] | None]] = {
            "kill": self._kill,
            "stop": self._stop,
            "continue": self._continue,
            "start": self._start,
            "slow-disk": self._slow_disk,
            "free-disk": self._free_disk,
            "members": self._members,
            "places": self._where,
            "reset": self._reset,
            "mute": self._mute,
            "rate-limit": self._rate_limit,
            "redirect": self._redirect,
            "facades": self._facades,
            "store": self._store,
            "destroy-model": self._destroy_model,
            "keep-model": self._keep_model,
            "counts": self._counts,
        }

    async def serve(self, path: Path) -> asyncio.Server:
        """Listen on the socket. It exists on return, and only its owner can open it."""
        before = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(self._converse, str(path))
        finally:
            os.umask(before)

    def leader(self) -> str | None:
        """The leader of the store: the first running server, if a majority is running."""
        running = [name for name, server in self._servers.items() if server.alive and not server.frozen]
        return running[0] if len(running) > len(self._servers) // 2 else None

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(answer_line(line, self._act)).encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError):  # it left, or sent an endless line
            pass
        finally:
            writer.close()

    def _act(self, fields: dict[str, Any]) -> dict[str, Any]:
        action = self._actions.get(str(fields.get("do")))
        if action is None:
            raise LabError(f"do: {fields.get('do')!r}", f"one of {', '.join(self._actions)}")
        return action(fields) or {"ok": True}

    def _server(self, name: object) -> Server:
        if name not in self._servers:
            raise LabError(f"member: {name!r}", f"one of {', '.join(self._servers)}")
        return self._servers[cast(str, name)]

    def _alive(self, fields: dict[str, Any]) -> Server:
        server = self._server(fields.get("member"))
        if not server.alive:
            raise LabError(f"{server.name}: is dead", "a member that is running")
        return server

    def _kill(self, fields: dict[str, Any]) -> None:
        self._alive(fields).kill()
        self._set_quorum()

    def _stop(self, fields: dict[str, Any]) -> None:
        server = self._alive(fields)
        if not server.frozen:
            server.freeze()
        self._set_quorum()

    def _continue(self, fields: dict[str, Any]) -> None:
        server = self._alive(fields)
        if server.frozen:
            server.resume()
        self._set_quorum()

    def _start(self, fields: dict[str, Any]) -> None:
        server = self._server(fields.get("member"))
        if server.alive:
            raise LabError(f"{server.name}: is running", "a member that is dead")
        try:
            server.start()
        except OSError as problem:
            raise LabError(f"{server.name}: {problem.strerror}", "its address to be free") from None
        self._set_quorum()

    def _slow_disk(self, fields: dict[str, Any]) -> None:
        often = fields.get("writes_per_s", WRITES_PER_S)
        if not isinstance(often, int | float) or often <= 0:
            raise LabError(f"writes_per_s: {often!r}", "a number more than 0")
        self._controller.disks.slow(self._server(fields.get("member")).name, often)

    def _free_disk(self, fields: dict[str, Any]) -> None:
        self._controller.disks.free(self._server(fields.get("member")).name)

    def _set_quorum(self) -> None:
        self._controller.store.quorum(self.leader() is not None)

    def _where(self, _fields: dict[str, Any]) -> dict[str, Any]:
        return self._places.answer(
            {name: self._pid for name, server in self._servers.items() if server.alive}
        )

    def _members(self, _fields: dict[str, Any]) -> dict[str, Any]:
        leader = self.leader()
        return {
            "members": [
                Member(
                    name=name,
                    pid=self._pid if server.alive else None,
                    running=server.alive and not server.frozen,
                    leader=name == leader,
                )
                for name, server in self._servers.items()
            ]
        }

    def _reset(self, fields: dict[str, Any]) -> dict[str, Any]:
        chosen = self._some(fields)
        for channel in chosen:
            channel.reset()
        return {"ok": True, "connections": len(chosen)}

    def _mute(self, fields: dict[str, Any]) -> dict[str, Any]:
        chosen = self._some(fields)
        for channel in chosen:
            channel.mute()
        return {"ok": True, "connections": len(chosen)}

    def _some(self, fields: dict[str, Any]) -> list[Channel]:
        share = _share(fields)
        return [channel for server in self._servers.values() for channel in some(server.channels, share)]

    def _rate_limit(self, fields: dict[str, Any]) -> None:
        most, rate = fields.get("max"), fields.get("rate", 0.25)
        if not isinstance(most, int) or most < 0:
            raise LabError(f"max: {most!r}", "a number of logins, 0 for no limit")
        if not isinstance(rate, int | float) or rate <= 0:
            raise LabError(f"rate: {rate!r}", "seconds for one more login, more than 0")
        for name in self._servers:
            self._controller.limits[name] = Bucket(most, rate, self._controller.loop.time) if most else None

    def _redirect(self, fields: dict[str, Any]) -> None:
        here, to = self._server(fields.get("member")), fields.get("to")
        if to is None:
            self._controller.redirects.pop(here.name, None)
        else:
            self._controller.redirects[here.name] = self._server(to).name

    def _facades(self, fields: dict[str, Any]) -> None:
        versions = fields.get("versions")
        if not isinstance(versions, dict):
            raise LabError(f"versions: {versions!r}", 'an object such as {"Uniter": [99]}')
        named = cast(dict[str, list[int]], versions)
        self._controller.offer({name: tuple(numbers) for name, numbers in named.items()})

    def _store(self, fields: dict[str, Any]) -> None:
        store = self._controller.store
        profile, scale = fields.get("profile"), fields.get("scale", store.scale)
        state, slower = fields.get("state", "normal"), fields.get("slower", 1)
        if profile is not None and profile not in PROFILES:
            raise LabError(f"profile: {profile!r}", f"one of {', '.join(PROFILES)}")
        if state not in _STATES:
            raise LabError(f"state: {state!r}", f"one of {', '.join(_STATES)}")
        for name, number in (("scale", scale), ("slower", slower)):
            if not isinstance(number, int | float) or number <= 0:
                raise LabError(f"{name}: {number!r}", "a number more than 0")
        store.use(PROFILES[profile] if profile else store.profile, scale)
        store.be(state, slower)

    def _model(self, fields: dict[str, Any]) -> Model:
        models = self._controller.models
        model = models.get(str(fields.get("model")))
        if model is None:
            raise LabError(f"model: {fields.get('model')!r}", f"one of {', '.join(models)}")
        return model

    def _destroy_model(self, fields: dict[str, Any]) -> None:
        self._controller.remove_model(self._model(fields), bool(fields.get("disconnect", False)))

    def _keep_model(self, fields: dict[str, Any]) -> None:
        self._model(fields).kept = "" if fields.get("keep", True) else None

    def _counts(self, _fields: dict[str, Any]) -> dict[str, Any]:
        return {
            "connections": sum(len(server.channels) for server in self._servers.values()),
            "sessions": len(self._controller.sessions),
            "leases": self._controller.leases_held(),
            "commits-waiting": self._controller.store.waiting,
            "models": sorted(self._controller.models),
            "units": sum(
                len(application.units)
                for model in self._controller.models.values()
                for application in model.applications.values()
            ),
            "log-lines": sum(model.log_lines for model in self._controller.models.values()),
        }


def _share(fields: dict[str, Any]) -> float:
    share = fields.get("share", 1)
    if not isinstance(share, int | float) or not 0 <= share <= 1:
        raise LabError(f"share: {share!r}", "a number from 0 to 1")
    return float(share)
