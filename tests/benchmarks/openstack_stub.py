"""A STUB of OpenStack's APIs, with no cloud behind it, for sizes of load that no machine of ours holds.

    python tests/benchmarks/openstack_stub.py CLOUDS

It is no OpenStack: nothing boots, and its answers come from memory. It writes a clouds.yaml to CLOUDS, prints its
address, and serves on loopback until its standard input ends. What it answers as the real services do:

- Nova's lists: at most 1000 servers a page, the newest first, a marker and a link to the next page, each server as
  long as microversion 2.37 shows it to an admin, changes by whole seconds with deleted servers among them.
- A server is BUILD, and ACTIVE BUILDS_S later, on one of HOSTS hosts in turn. It is gone GOES_S after its deletion.
- Keystone's tokens and projects, Neutron's networks, subnets, routers and ports, Glance's images and Nova's services,
  hypervisors and limits, as far as a run asks for them. Any token is good.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import orjson
import uvloop
import yaml
from aiohttp import web

HOSTS = 576
"""The published cloud: six chassis of 64, two more, and one."""
BUILDS_S = 0.3
GOES_S = 0.3
PAGE = 1000
_SERVICES = {"compute": "/compute/v2.1", "network": "/network", "image": "/image"}
_OWN = "0123456789abcdef0123456789abcdef"
_IMAGE, _FLAVOR = "5d1f6a2e-0000-4000-8000-000000000001", "1"


@dataclass(slots=True, eq=False)
class Server:
    """A server as the stub has it; `place` is its position among all that were ever made."""

    place: int
    id: str
    name: str
    project: str
    metadata: dict[str, str]
    created: float
    changed: float
    status: str = "BUILD"

    def shown(self) -> dict[str, Any]:
        """What Nova 2.37 shows an admin of a server without a network."""
        compute = "http://198.51.100.10:8774"
        host = f"compute-{self.place % HOSTS:03d}"
        gone = self.status == "DELETED"
        return {
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "tenant_id": self.project,
            "user_id": "fedcba9876543210fedcba9876543210",
            "metadata": {} if gone else self.metadata,
            "hostId": f"{self.place % HOSTS:056x}",
            "image": {"id": _IMAGE, "links": [{"rel": "bookmark", "href": f"{compute}/images/{_IMAGE}"}]},
            "flavor": {"id": _FLAVOR, "links": [{"rel": "bookmark", "href": f"{compute}/flavors/{_FLAVOR}"}]},
            "created": _moment(self.created),
            "updated": _moment(self.changed),
            "addresses": {},
            "accessIPv4": "",
            "accessIPv6": "",
            "links": [
                {"rel": "self", "href": f"{compute}/v2.1/servers/{self.id}"},
                {"rel": "bookmark", "href": f"{compute}/servers/{self.id}"},
            ],
            "OS-DCF:diskConfig": "MANUAL",
            "progress": 0,
            "OS-EXT-AZ:availability_zone": "nova",
            "config_drive": "",
            "key_name": None,
            "OS-SRV-USG:launched_at": _moment(self.created)[:-1] + ".000000",
            "OS-SRV-USG:terminated_at": None,
            "OS-EXT-SRV-ATTR:host": host,
            "OS-EXT-SRV-ATTR:instance_name": f"instance-{self.place:08x}",
            "OS-EXT-SRV-ATTR:hypervisor_hostname": f"{host}.example",
            "OS-EXT-SRV-ATTR:reservation_id": "r-0a1b2c3d",
            "OS-EXT-SRV-ATTR:hostname": self.name,
            "OS-EXT-SRV-ATTR:launch_index": 0,
            "OS-EXT-SRV-ATTR:kernel_id": "",
            "OS-EXT-SRV-ATTR:ramdisk_id": "",
            "OS-EXT-SRV-ATTR:root_device_name": "/dev/vda",
            "OS-EXT-SRV-ATTR:user_data": None,
            "OS-EXT-STS:task_state": None if self.status != "BUILD" else "spawning",
            "OS-EXT-STS:vm_state": "active" if self.status == "ACTIVE" else "building",
            "OS-EXT-STS:power_state": 1 if self.status == "ACTIVE" else 0,
            "os-extended-volumes:volumes_attached": [],
            "host_status": "UP",
            "description": None,
            "locked": False,
            "tags": [],
            "security_groups": [{"name": "default"}],
        }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Nova:
    """The servers; what is due to change does so when somebody asks."""

    every: list[Server] = field(default_factory=list[Server])
    by_id: dict[str, Server] = field(default_factory=dict[str, Server])
    changes: OrderedDict[str, Server] = field(default_factory=lambda: OrderedDict[str, Server]())
    """All servers in the order of their last change."""
    builds: deque[Server] = field(default_factory=deque[Server])
    goes: deque[tuple[float, Server]] = field(default_factory=deque[tuple[float, Server]])

    def make(self, asked: dict[str, Any], project: str) -> str:
        """Accept a call that makes one server or several; the first one's id."""
        now, count = time.time(), asked.get("max_count", 1)
        first = ""
        for number in range(count):
            name = asked["name"] if count == 1 else f"{asked['name']}-{number + 1}"
            server = Server(len(self.every), str(uuid.uuid4()), name, project, asked["metadata"], now, now)
            self.every.append(server)
            self.by_id[server.id] = self.changes[server.id] = server
            self.builds.append(server)
            first = first or server.id
        return first

    def remove(self, identity: str) -> bool:
        """Accept a server's deletion; whether it exists."""
        server = self.by_id.get(identity)
        if server is None:
            return False
        self.goes.append((time.time() + GOES_S, server))
        return True

    def pass_time(self) -> None:
        """Have done what is due by now."""
        now = time.time()
        while self.builds and self.builds[0].created + BUILDS_S <= now:
            self._change(self.builds.popleft(), "ACTIVE", now)
        while self.goes and self.goes[0][0] <= now:
            server = self.goes.popleft()[1]
            if self.by_id.pop(server.id, None) is not None:
                self._change(server, "DELETED", now)

    def _change(self, server: Server, status: str, now: float) -> None:
        if server.status != "DELETED":
            server.status, server.changed = status, now
            self.changes.move_to_end(server.id)

    def page(self, query: Any) -> tuple[list[Server], bool]:
        """A page of a list, the newest first, and whether there are more."""
        self.pass_time()
        limit = min(PAGE, int(query.get("limit", PAGE)))
        wanted = re.compile(query.get("name", ""))
        project = "" if query.get("all_tenants") == "1" else _OWN
        since = query.get("changes-since")
        listed: Iterable[Server]
        if since is not None:
            begin = datetime.fromisoformat(since).timestamp()
            changed = itertools.takewhile(
                lambda server: int(server.changed) >= begin, reversed(self.changes.values())
            )
            listed = sorted(changed, key=lambda server: -server.place)
            if (marker := query.get("marker")) is not None:
                place = self._place(marker)
                listed = [server for server in listed if server.place < place]
        else:
            begin_at = len(self.every) if query.get("marker") is None else self._place(query["marker"])
            listed = self._there(begin_at)
        found = (
            server
            for server in listed
            if wanted.match(server.name) and (not project or server.project == project)
        )
        page = list(itertools.islice(found, limit + 1))
        return page[:limit], len(page) > limit

    def _there(self, before: int) -> Iterator[Server]:
        for place in range(before - 1, -1, -1):
            if self.every[place].status != "DELETED":
                yield self.every[place]

    def _place(self, identity: str) -> int:
        server = self.changes.get(identity)
        return server.place if server is not None else 0


class Stub:
    """All services behind one port."""

    def __init__(self) -> None:
        self.nova = Nova()
        self.url = ""
        self.things: dict[str, dict[str, dict[str, Any]]] = {
            kind: {}
            for kind in ("projects", "users", "networks", "subnets", "routers", "ports", "security-groups")
        }
        self._projects_of: dict[str, str] = {}
        """The projects of the tokens that are not for our own."""
        self._numbers = itertools.count(1)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """Answer one call."""
        _, service, path = request.path.split("/", 2) if request.path.count("/") > 1 else ("", "", "")
        body: Any = orjson.loads(await request.read() or b"{}")
        if service == "v3":
            if path == "auth/tokens":
                return self._token(body)
            return self._crud(request, path, body)
        if service in ("network", "image"):
            return self._crud(request, re.sub(r"^v2(\.0)?/", "", path), body)
        return self._compute(request, path.removeprefix("v2.1").strip("/"), body)

    def _token(self, body: Any) -> web.Response:
        project = body["auth"].get("scope", {}).get("project", {}).get("id", _OWN)
        token, now = f"stub-{next(self._numbers)}", datetime.now(UTC)
        self._projects_of[token] = project
        catalogue = [
            {
                "type": kind,
                "endpoints": [{"interface": "public", "region_id": "stub", "url": self.url + path}],
            }
            for kind, path in _SERVICES.items()
        ]
        told = {
            "issued_at": now.isoformat(),
            "expires_at": (now + timedelta(hours=1)).isoformat(),
            "user": {"id": "fedcba9876543210fedcba9876543210"},
            "project": {"id": project},
            "catalog": catalogue,
        }
        return _json({"token": told}, 201, {"X-Subject-Token": token})

    def _compute(self, request: web.BaseRequest, path: str, body: Any) -> web.Response:
        match request.method, path.split("/"):
            case "GET", ["servers"] | ["servers", "detail"]:
                servers, more = self.nova.page(request.query)
                told: dict[str, Any] = {"servers": [server.shown() for server in servers]}
                if more:
                    told["servers_links"] = [{"rel": "next", "href": f"{self.url}{request.path}"}]
                return _json(told)
            case "POST", ["servers"]:
                project = self._projects_of.get(request.headers.get("X-Auth-Token", ""), _OWN)
                identity = self.nova.make(body["server"], project)
                return _json({"server": {"id": identity, "links": [], "OS-DCF:diskConfig": "MANUAL"}}, 202)
            case "DELETE", ["servers", identity]:
                return web.Response(status=204) if self.nova.remove(identity) else _missing(path)
            case "GET", ["os-services"]:
                now = _moment(time.time())
                services = [
                    {"id": number, "binary": "nova-compute", "host": f"compute-{number:03d}", "zone": "nova",
                     "state": "up", "status": "enabled", "updated_at": now, "disabled_reason": None}
                    for number in range(HOSTS)
                ]  # fmt: skip
                return _json({"services": services})
            case "GET", ["os-hypervisors", "detail"]:
                each = {"state": "up", "status": "enabled", "free_ram_mb": 32 << 10, "free_disk_gb": 500}
                return _json({"hypervisors": [{"id": number} | each for number in range(HOSTS)]})
            case "GET", ["flavors", "detail"]:
                return _json({"flavors": [{"id": _FLAVOR, "name": "tiny", "ram": 64, "vcpus": 1, "disk": 0}]})
            case "GET", ["limits"]:
                return _json({"limits": {"absolute": {"maxTotalInstances": -1, "maxTotalCores": -1}}})
            case "PUT" | "DELETE", ["os-quota-sets", _]:
                return _json({})
            case "GET", [""]:
                return _json({"version": {"id": "v2.1", "version": "2.95", "min_version": "2.1"}})
            case _:
                return _missing(path)

    def _crud(self, request: web.BaseRequest, path: str, body: Any) -> web.Response:
        match request.method, path.split("/"):
            case "GET", ["images"]:
                return _json({"images": [{"id": _IMAGE, "name": "cirros", "status": "active"}]})
            case "GET", ["roles"]:
                return _json({"roles": [{"id": "role-member", "name": "member"}]})
            case "GET", ["agents"]:
                return _json({"agents": []})
            case "GET", ["projects", project] if project == _OWN:
                return _json({"project": {"id": _OWN, "name": "own", "domain_id": "default"}})
            case "GET", [kind] if kind in self.things:
                return self._listed(kind, request.query)
            case "POST", [kind] if kind in self.things:
                asked = body[kind.removesuffix("s")]
                identity = str(uuid.uuid4())
                self.things[kind][identity] = {"id": identity} | asked
                return _json({kind.removesuffix("s"): self.things[kind][identity]}, 201)
            case "PUT", ["routers", router, "add_router_interface"]:
                network = self.things["subnets"][body["subnet_id"]]["network_id"]
                identity = str(uuid.uuid4())
                self.things["ports"][identity] = {
                    "id": identity, "name": "", "device_id": router, "network_id": network,
                    "device_owner": "network:router_interface",
                }  # fmt: skip
                return _json({"port_id": identity})
            case "PUT", ["routers", _, "remove_router_interface"]:
                gone = self.things["ports"].pop(body["port_id"], None)
                return _json({}) if gone is not None else _missing(path)
            case "PUT", _:
                return _json({})
            case "DELETE", ["quotas", _]:
                return web.Response(status=204)
            case "DELETE", [kind, identity] if kind in self.things:
                gone = self.things[kind].pop(identity, None)
                return web.Response(status=204) if gone is not None else _missing(path)
            case _:
                return _missing(path)

    def _listed(self, kind: str, query: Any) -> web.Response:
        asked = {name: value for name, value in query.items() if name not in ("limit", "marker", "fields")}
        there = [
            each
            for each in self.things[kind].values()
            if all(each.get(name, value) == value for name, value in asked.items())
        ]
        begin = 0
        if (marker := query.get("marker")) is not None:
            begin = next((place + 1 for place, each in enumerate(there) if each["id"] == marker), len(there))
        limit = int(query.get("limit", len(there) + 1))
        key = kind.replace("-", "_")
        told: dict[str, Any] = {key: there[begin : begin + limit]}
        if len(there) > begin + limit:
            told[f"{key}_links"] = [{"rel": "next", "href": self.url}]
        return _json(told)


def _json(told: Any, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    dated = {"Date": formatdate(usegmt=True)} | (headers or {})
    return web.Response(
        body=orjson.dumps(told), status=status, content_type="application/json", headers=dated
    )


def _missing(path: str) -> web.Response:
    return _json({"itemNotFound": {"code": 404, "message": f"the stub has no {path}"}}, 404)


async def serve(clouds: Path) -> None:
    """Serve until standard input ends."""
    stub = Stub()
    runner = web.ServerRunner(web.Server(stub.answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    auth = {"auth_url": stub.url, "username": "stub", "password": "none-needed", "project_name": "own"}
    clouds.touch(mode=0o600)
    clouds.write_text(yaml.safe_dump({"clouds": {"stub": {"auth": auth}}}))
    print(stub.url, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1])))
