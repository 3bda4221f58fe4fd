"""An OpenStack in memory, for what is made and removed beside its servers: lists that are filtered as Neutron filters
them, what is in use is not removed, and any call may be answered otherwise."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.unit.targets.openstack.openstack_stub import OpenstackStub
from tippingpoint.targets.openstack.ledger import OpenstackEntry
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.openstack.provision import mark_text
from tippingpoint.targets.openstack.servers import MARK

PREFIX, RUN = "tp0123abcd", "the-run"
Otherwise = Callable[[web.Request], Awaitable[web.Response | None]]

_LISTS = {
    "servers": "compute",
    "flavors": "compute",
    "os-hypervisors": "compute",
    "networks": "network",
    "subnets": "network",
    "routers": "network",
    "ports": "network",
    "security-groups": "network",
    "projects": "identity",
    "users": "identity",
    "roles": "identity",
    "images": "image",
}
_IN_USE = {"networks": "network_id", "routers": "device_id"}
"""What ports are on, by their field that says so."""
_PAGING = ("limit", "marker", "fields", "all_tenants", "changes-since", "is_public", "binary")


class Cloud:
    """What there is, by kind and id; `otherwise` may answer a call in the place of the cloud."""

    def __init__(self) -> None:
        self.things: dict[str, dict[str, dict[str, Any]]] = {kind: {} for kind in _LISTS}
        self.deleted: list[dict[str, Any]] = []
        """Servers that are gone, as lists of changes still show them."""
        self.admin = True
        self.page = 1000
        """How many things a page of a list has at most."""
        self.answers: dict[str, Any] = {}
        """What is answered to a GET, by its path with the service."""
        self.otherwise: Otherwise = _as_ever
        self.loses: list[str] = []
        """The kinds of things of which the answer to a POST is lost, once for each entry."""
        self._numbers = itertools.count(1)

    def put(self, kind: str, name: str, **more: Any) -> str:
        """Have a thing; its id."""
        identity = f"{kind}-{next(self._numbers)}"
        self.things[kind][identity] = {"id": identity, "name": name, **more}
        return identity

    def put_server(self, number: int = 0, **more: Any) -> str:
        """Have a server of the run."""
        marked = {"status": "ACTIVE", "metadata": {MARK: RUN}, "tenant_id": "shop-id"}
        return self.put("servers", f"{PREFIX}-000-{number:04d}", **{**marked, **more})

    def put_group(self, kind: str, group: int = 0, **more: Any) -> str:
        """Have what a group has of its own."""
        return self.put(kind, f"{PREFIX}-{group:03d}", description=mark_text(RUN), **more)

    def names(self, kind: str) -> list[str]:
        """What there is of a kind, in order."""
        return sorted(str(each["name"]) for each in self.things[kind].values())

    def remove(self, kind: str, identity: str) -> None:
        """Have a thing no more."""
        thing = self.things[kind].pop(identity)
        for subnet in [*self.things["subnets"].values()]:
            if subnet["network_id"] == identity:
                del self.things["subnets"][subnet["id"]]
        if kind == "servers":
            self.deleted.append(thing | {"status": "DELETED", "metadata": {}})

    async def answer(self, request: web.Request) -> web.Response:
        """What the cloud answers to a call."""
        told = await self.otherwise(request)
        if told is not None:
            return told
        path = re.sub(r"^/(network|image)/v2(?:\.0)?/|^/v3/|^/compute/", "", request.path).strip("/")
        service = {"v3": "identity"}.get(request.path.split("/")[1], request.path.split("/")[1])
        if request.method == "GET" and f"{service} {path}" in self.answers:
            return web.json_response(self.answers[f"{service} {path}"])
        match request.method, path.split("/"):
            case "GET", ["os-services"]:
                return web.json_response({"services": []}, status=200 if self.admin else 403)
            case "GET", [kind] | [kind, "detail"] if kind in _LISTS:
                return web.json_response(self._list(kind, request))
            case "GET", [kind, identity] if identity in self.things.get(kind, {}):
                return web.json_response({kind.removesuffix("s"): self.things[kind][identity]})
            case "POST", [kind] if kind in _LISTS:
                return await self._make(kind, request)
            case "PUT", ["routers", router, "remove_router_interface"]:
                del self.things["ports"][(await request.json())["port_id"]]
                return web.json_response({"id": router})
            case "PUT", ["routers", router, "add_router_interface"]:
                self.put("ports", "", device_id=router, device_owner="network:router_interface")
                return web.json_response({})
            case "PUT", _:
                return web.json_response({})
            case "DELETE", ["quotas" | "os-quota-sets", _]:
                return web.Response(status=204)
            case "DELETE", [kind, identity] if identity in self.things.get(kind, {}):
                field = _IN_USE.get(kind, "")
                if any(port.get(field) == identity for port in self.things["ports"].values()):
                    return failure(409, "it is in use")
                self.remove(kind, identity)
                return web.Response(status=204)
            case "GET", [""]:
                return web.json_response({"version": {"version": "2.93", "min_version": "2.1"}})
            case _:
                return failure(404, f"no {path}")

    def _list(self, kind: str, request: web.Request) -> dict[str, Any]:
        listed = [*self.things[kind].values()]
        if kind == "servers" and "changes-since" in request.query:
            listed += self.deleted
        for field, value in request.query.items():
            if field == "name" and kind == "servers":
                listed = [each for each in listed if re.match(value, each["name"])]
            elif field not in _PAGING:
                listed = [each for each in listed if each.get(field, value) == value]
        key = kind.removeprefix("os-").replace("-", "_")
        more: dict[str, Any] = {}
        if "limit" in request.query or kind == "os-hypervisors":
            ids = [each["id"] for each in listed]
            begin = ids.index(request.query["marker"]) + 1 if "marker" in request.query else 0
            most = min(self.page, int(request.query.get("limit", "1000")))
            if len(listed) > begin + most:
                more = {f"{key}_links": [{"rel": "next", "href": "there"}]}
            listed = listed[begin : begin + most]
        if fields := request.query.getall("fields", []):
            # As Neutron does: each is the name of one field.
            listed = [{field: each[field] for field in fields if field in each} for each in listed]
        return {key: listed, **more}

    async def _make(self, kind: str, request: web.Request) -> web.Response:
        asked = await request.json()
        wanted = asked.get(kind.removesuffix("s"), asked)
        if kind in ("projects", "users", "flavors") and wanted["name"] in self.names(kind):
            return failure(409, "there is one already")
        more = {"status": "queued"} if kind == "images" else {}
        identity = self.put(kind, wanted.pop("name"), **wanted, **more)
        if kind in self.loses:
            self.loses.remove(kind)
            assert request.transport is not None
            request.transport.close()
        thing = self.things[kind][identity]
        return web.json_response(thing if kind == "images" else {kind.removesuffix("s"): thing}, status=201)


async def _as_ever(request: web.Request) -> None:
    return None


def failure(code: int, message: str) -> web.Response:
    """An answer of a service that fails."""
    return web.json_response({"error": {"message": message}}, status=code)


@asynccontextmanager
async def cloud_at(directory: Path, **target: Any) -> AsyncGenerator[tuple[Cloud, OpenstackEntry]]:
    """A cloud that is answered for, and the ledger's entry of a run there."""
    cloud = Cloud()
    async with OpenstackStub(directory) as stub:
        stub.answer = cloud.answer
        stub.others = {"network": cloud.answer, "image": cloud.answer, "identity": cloud.answer}
        assert stub.access.name == "stub"
        identity = None
        if target.get("tenants"):
            identity = directory / "openstack-user"
            identity.write_text("hush")
            identity.chmod(0o600)
        wanted = OpenstackTarget(
            kind="openstack", credentials=directory / "clouds.yaml", cloud="stub", **target
        )
        yield cloud, OpenstackEntry(run=RUN, prefix=PREFIX, target=wanted, identity=identity)
