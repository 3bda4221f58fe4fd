"""An LXD in memory, on a unix socket: projects, the instances and images in them, and what was deleted. With members it
is a cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web


class LxdStub:
    """What there is: settings of projects and of instances by their project, and the file names of images."""

    def __init__(self) -> None:
        self.projects: dict[str, dict[str, str]] = {}
        self.instances: dict[tuple[str, str], dict[str, str]] = {}
        self.images: dict[str, str] = {}
        self.members: dict[str, list[str]] = {}
        """The status of each member in the lists to come, one after the other; the last one stays."""
        self.locations: dict[tuple[str, str], str] = {}

    def everything(self) -> set[Any]:
        """All that is there, by its names."""
        return {*self.projects, *self.instances, *self.images}

    async def answer(self, request: web.Request) -> web.Response:
        """What it answers to a call."""
        project = request.query.get("project", "default")
        match request.method, request.path.strip("/").split("/")[1:]:
            case "GET", []:
                environment = {"server_clustered": bool(self.members)}
                return _sync({"auth": "trusted", "environment": environment, "api_extensions": []})
            case "GET", ["cluster", "members"]:
                return _sync(
                    [
                        {"server_name": name, "status": _next(statuses), "url": f"https://{name}:8443"}
                        for name, statuses in self.members.items()
                    ]
                )
            case "GET", ["projects"]:
                return _sync([{"name": name, "config": config} for name, config in self.projects.items()])
            case "GET", ["projects", name] if name in self.projects:
                used = [f"/1.0/instances/{each}?project={name}" for of, each in self.instances if of == name]
                return _sync({"name": name, "config": self.projects[name], "used_by": used})
            case "DELETE", ["projects", name] if name in self.projects:
                del self.projects[name]
                return _sync({})
            case "GET", ["instances"]:
                return _sync(
                    [
                        {
                            "name": name,
                            "config": config,
                            "location": self.locations.get((of, name), "none"),
                            "status": "Stopped",
                        }
                        for (of, name), config in self.instances.items()
                        if of == project
                    ]
                )
            case "GET", ["operations"]:
                return _sync({})
            case "PUT", ["instances", name, "state"] if (project, name) in self.instances:
                return _sync({})
            case "DELETE", ["instances", name] if (project, name) in self.instances:
                del self.instances[project, name]
                return _sync({})
            case "GET", ["images", known] if known in self.images:
                return _sync({"fingerprint": known, "filename": self.images[known]})
            case "DELETE", ["images", known] if known in self.images:
                del self.images[known]
                return _sync({})
            case _:
                return web.json_response(
                    {"type": "error", "error": "not found", "error_code": 404}, status=404
                )


def _next(statuses: list[str]) -> str:
    return statuses.pop(0) if len(statuses) > 1 else statuses[0]


def _sync(metadata: Any) -> web.Response:
    return web.json_response({"type": "sync", "status_code": 200, "metadata": metadata})


@asynccontextmanager
async def lxd_at(socket: Path) -> AsyncGenerator[LxdStub]:
    """One that is answered for."""
    stub = LxdStub()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", stub.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.UnixSite(runner, str(socket)).start()
    try:
        yield stub
    finally:
        await runner.cleanup()
