"""A STUB of an LXD cluster's API, with nothing behind it, for sizes of load that no machine of ours holds.

    python tests/benchmarks/lxd_stub.py SOCKET

It is no LXD: no container exists, and its answers come from memory. It serves on the unix socket SOCKET, prints it, and
ends with its standard input. What it answers as LXD 5.0 does:

- A cluster of MEMBERS, one of which leads. A container without a member of its own goes to the emptiest.
- Changes are operations: a creation takes CREATES_S, a start STARTS_S, and `/wait` is answered at their end.
- Lists of containers, short (`recursion=1`) and with their state (`recursion=2`), each container as long as a real
  list has it. A running one has an address.
- Projects, their profile `default`, images, a pool, a bridge with its leases, members' resources, and programs in
  containers, all of which end with 0.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop
from aiohttp import web

MEMBERS = 50
"""The published cluster's."""
CREATES_S = 0.3
STARTS_S = 0.2
_NETWORK = "lxdbr0"
_DEVICES = {
    "eth0": {"name": "eth0", "network": _NETWORK, "type": "nic"},
    "root": {"path": "/", "pool": "default", "type": "disk"},
}
_MOMENT = "2026-11-25T09:00:00.000000000Z"
_COUNTERS = dict.fromkeys(("bytes_received", "bytes_sent", "packets_received", "packets_sent"), 0)


@dataclass(slots=True, eq=False)
class Instance:
    """A container; `place` is its position among all that were ever made."""

    place: int
    name: str
    project: str
    location: str
    config: dict[str, str]
    running: bool = False

    def shown(self, *, state: bool) -> dict[str, Any]:
        """What a list shows of it."""
        hardware = f"00:16:3e:{self.place >> 16 & 255:02x}:{self.place >> 8 & 255:02x}:{self.place & 255:02x}"
        image = {"image.architecture": "x86_64", "image.description": "a container", "image.os": "busybox"}
        volatile = {
            "volatile.base_image": "0" * 64,
            "volatile.cloud-init.instance-id": str(uuid.UUID(int=self.place)),
            "volatile.eth0.host_name": f"veth{self.place:08x}",
            "volatile.eth0.hwaddr": hardware,
            "volatile.idmap.base": "0",
            "volatile.idmap.current": '[{"Isuid":true,"Isgid":false,"Hostid":1000000,"Nsid":0,"Maprange":1000000000}]',
            "volatile.idmap.next": '[{"Isuid":true,"Isgid":false,"Hostid":1000000,"Nsid":0,"Maprange":1000000000}]',
            "volatile.last_state.idmap": "[]",
            "volatile.last_state.power": "RUNNING" if self.running else "STOPPED",
            "volatile.uuid": str(uuid.UUID(int=self.place)),
        }
        told: dict[str, Any] = {
            "architecture": "x86_64",
            "config": {**image, **volatile, **self.config},
            "created_at": _MOMENT,
            "description": "",
            "devices": {},
            "ephemeral": False,
            "expanded_config": {**image, **volatile, **self.config},
            "expanded_devices": _DEVICES,
            "last_used_at": _MOMENT,
            "location": self.location,
            "name": self.name,
            "profiles": ["default"],
            "project": self.project,
            "stateful": False,
            "status": "Running" if self.running else "Stopped",
            "status_code": 103 if self.running else 102,
            "type": "container",
        }
        return told | ({"backups": None, "snapshots": None, "state": self._state(hardware)} if state else {})

    def _state(self, hardware: str) -> dict[str, Any]:
        if not self.running:
            return {"status": "Stopped", "status_code": 102, "network": None, "pid": 0, "processes": 0}
        addresses = [
            {"family": "inet", "address": self.address, "netmask": "16", "scope": "global"},
            {"family": "inet6", "address": "fe80::216:3eff:fe00:1", "netmask": "64", "scope": "link"},
        ]
        loopback = [{"family": "inet", "address": "127.0.0.1", "netmask": "8", "scope": "local"}]
        common = {"counters": _COUNTERS, "mtu": 1500, "state": "up"}
        return {
            "status": "Running",
            "status_code": 103,
            "cpu": {"usage": 41_000_000},
            "disk": {},
            "memory": {"usage": 1_400_000, "usage_peak": 0, "swap_usage": 0, "swap_usage_peak": 0},
            "network": {
                "eth0": {"addresses": addresses, "hwaddr": hardware, "type": "broadcast", **common},
                "lo": {"addresses": loopback, "hwaddr": "", "type": "loopback", **common},
            },
            "pid": 1000 + self.place,
            "processes": 3,
        }

    @property
    def address(self) -> str:
        """Its address on the bridge."""
        return f"10.99.{self.place >> 8 & 255}.{self.place & 255}"


class Refused(Exception):
    """An error as LXD answers it."""

    def __init__(self, code: int, error: str) -> None:
        super().__init__(error)
        self.code = code


class Stub:
    """What there is."""

    def __init__(self) -> None:
        self.members = [f"m{number:02d}" for number in range(1, MEMBERS + 1)]
        self.projects: dict[str, dict[str, Any]] = {"default": {}}
        self.profiles: dict[str, dict[str, Any]] = {"default": {"config": {}, "devices": _DEVICES}}
        self.images: dict[str, str] = {}
        self.instances: dict[str, dict[str, Instance]] = {"default": {}}
        """By project and name."""
        self.load: Counter[str] = Counter(dict.fromkeys(self.members, 0))
        self.operations: dict[str, tuple[asyncio.Task[Any], list[str]]] = {}
        self._places = itertools.count(1)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one call."""
        try:
            return await self._answer(request)
        except Refused as problem:
            told = {"type": "error", "error": str(problem), "error_code": problem.code}
            return web.json_response(told, status=problem.code)

    async def _answer(self, request: web.Request) -> web.Response:
        query, method = request.query, request.method
        project, deep = query.get("project", "default"), int(query.get("recursion", 0))
        path = request.path.strip("/").split("/")[1:]
        body: Any = {}
        if method in ("POST", "PUT") and path != ["images"]:
            body = orjson.loads(await request.read() or b"{}")
        match method, path:
            case "GET", []:
                environment = {
                    "server": "lxd", "server_version": "5.0-stub", "server_clustered": True,
                    "server_name": self.members[0],
                }  # fmt: skip
                extensions = ["operations_get_query_all_projects"]
                return _sync({"auth": "trusted", "environment": environment, "api_extensions": extensions})
            case "GET", ["cluster", "members"]:
                return _sync([self._member(name) for name in self.members])
            case "GET", ["resources"]:
                return _sync({"memory": {"total": 256 << 30, "used": 8 << 30}})
            case "GET", ["storage-pools"]:
                return _sync(["/1.0/storage-pools/default"])
            case "GET", ["networks"]:
                return _sync([_network()])
            case "GET", ["networks", name] if name == _NETWORK:
                return _sync(_network())
            case "GET", ["networks", name, "leases"] if name == _NETWORK:
                return _sync(
                    [
                        {
                            "address": each.address,
                            "hostname": each.name,
                            "type": "dynamic",
                            "location": each.location,
                        }
                        for each in self._in(project).values()
                        if each.running
                    ]
                )
            case _, ["projects", *rest]:
                return self._of_projects(method, rest, body)
            case "GET", ["profiles", "default"]:
                return _sync(self.profiles[self._known(project)])
            case "PUT", ["profiles", "default"]:
                self.profiles[self._known(project)] = body
                return _sync({})
            case "POST", ["images"]:
                return self._begin(self._import(request, await request.read()))
            case _, ["images", known] if known in self.images:
                if method == "DELETE":
                    return self._begin(self._forget(known))
                return _sync({"fingerprint": known, "filename": self.images[known], "type": "container"})
            case "GET", ["operations"]:
                running = [
                    {
                        "id": name,
                        "status_code": 103,
                        "description": "Starting",
                        "resources": {"instances": of},
                    }
                    for name, (task, of) in self.operations.items()
                    if not task.done()
                ]
                return _sync({"running": running} if running else {})
            case "GET", ["operations", name, "wait"] if name in self.operations:
                ended = await asyncio.shield(self.operations[name][0])
                self.operations.pop(name, None)
                return _sync(ended | {"id": name})
            case _, ["instances", *rest]:
                return self._of_instances(method, rest, body, request, deep)
            case _:
                raise Refused(404, "Not Found")

    def _of_projects(self, method: str, path: list[str], body: Any) -> web.Response:
        match method, path:
            case "GET", []:
                return _sync([{"name": name, **told} for name, told in self.projects.items()])
            case "POST", []:
                if body["name"] in self.projects:
                    raise Refused(409, "The project already exists")
                self.projects[body["name"]] = {"config": body["config"]}
                self.profiles[body["name"]] = {"config": {}, "devices": {}, "description": ""}
                self.instances[body["name"]] = {}
                return _sync({})
            case "GET", [name]:
                used = [f"/1.0/instances/{each}?project={name}" for each in self._in(name)]
                used.append(f"/1.0/profiles/default?project={name}")
                return _sync({"name": name, "used_by": used, **self.projects[name]})
            case "DELETE", [name]:
                if self._in(name):
                    raise Refused(400, "Only empty projects can be removed")
                del self.projects[name], self.instances[name], self.profiles[name]
                return _sync({})
            case _:
                raise Refused(404, "Not Found")

    def _of_instances(
        self, method: str, path: list[str], body: Any, request: web.Request, deep: int
    ) -> web.Response:
        project = request.query.get("project", "default")
        match method, path:
            case "GET", []:
                everywhere = request.query.get("all-projects") == "true"
                groups = self.instances.values() if everywhere else [self._in(project)]
                return _sync([each.shown(state=deep > 1) for group in groups for each in group.values()])
            case "POST", []:
                if body["name"] in self._in(project):
                    raise Refused(409, "The instance already exists")
                location = request.query.get("target") or min(self.load, key=lambda name: self.load[name])
                self.load[location] += 1
                made = Instance(next(self._places), body["name"], project, location, body["config"])
                return self._begin(self._make(made), made.name)
            case "PUT", [name, "state"]:
                return self._begin(self._start(self._one(project, name), body["action"] == "start"), name)
            case "POST", [name, "exec"]:
                self._one(project, name)
                return self._begin(self._run(), name)
            case "DELETE", [name]:
                if self._one(project, name).running:
                    raise Refused(400, "The instance is running")
                return self._begin(self._delete(project, name), name)
            case _:
                raise Refused(404, "Not Found")

    def _begin(self, work: Any, instance: str = "") -> web.Response:
        name = str(uuid.uuid4())
        of = [f"/1.0/instances/{instance}"] if instance else []
        self.operations[name] = asyncio.ensure_future(work), of
        told = {"id": name, "status_code": 103, "description": "Operation"}
        answer = {
            "type": "async",
            "status_code": 100,
            "operation": f"/1.0/operations/{name}",
            "metadata": told,
        }
        return web.Response(body=orjson.dumps(answer), status=202, content_type="application/json")

    async def _make(self, made: Instance) -> dict[str, Any]:
        await asyncio.sleep(CREATES_S)
        self.instances[made.project][made.name] = made
        return _done()

    async def _start(self, instance: Instance, running: bool) -> dict[str, Any]:
        if running:
            await asyncio.sleep(STARTS_S)
        instance.running = running
        return _done()

    async def _run(self) -> dict[str, Any]:
        return _done({"return": 0})

    async def _delete(self, project: str, name: str) -> dict[str, Any]:
        gone = self.instances[project].pop(name, None)
        if gone is not None:
            self.load[gone.location] -= 1
        return _done()

    async def _import(self, request: web.Request, content: bytes) -> dict[str, Any]:
        self.images[request.headers["X-LXD-fingerprint"]] = request.headers["X-LXD-filename"]
        return _done({"size": len(content)})

    async def _forget(self, fingerprint: str) -> dict[str, Any]:
        del self.images[fingerprint]
        return _done()

    def _member(self, name: str) -> dict[str, Any]:
        first = name == self.members[0]
        return {
            "server_name": name,
            "url": f"https://{name}.example:8443",
            "status": "Online",
            "message": "Fully operational",
            "database": first,
            "roles": ["database-leader", "database"] if first else [],
            "architecture": "x86_64",
            "config": {},
            "failure_domain": "default",
            "groups": ["default"],
        }

    def _known(self, project: str) -> str:
        if project not in self.projects:
            raise Refused(404, "Project not found")
        return project

    def _in(self, project: str) -> dict[str, Instance]:
        return self.instances[self._known(project)]

    def _one(self, project: str, name: str) -> Instance:
        if name not in self._in(project):
            raise Refused(404, "Instance not found")
        return self.instances[project][name]


def _network() -> dict[str, Any]:
    return {"name": _NETWORK, "type": "bridge", "managed": True, "status": "Created", "config": {}}


def _done(metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"status": "Success", "status_code": 200, "err": "", "metadata": metadata or {}}


def _sync(metadata: Any) -> web.Response:
    answer = {"type": "sync", "status": "Success", "status_code": 200, "metadata": metadata}
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def serve(socket: Path) -> None:
    """Serve until standard input ends."""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{tail:.*}", Stub().answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(socket), backlog=1024).start()
    print(socket, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
