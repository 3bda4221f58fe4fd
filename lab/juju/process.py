"""The simulated controller's process, which runs all servers and the control socket until it is told to end.

`python -m lab.juju.process DIRECTORY`: the directory has setup.json (mode 0600, because it has the user's password),
cert.pem and key.pem. It prints one JSON line when it serves.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import secrets
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import uvloop

from lab.juju import (
    actions,
    agent_relations,
    agents,
    applications,
    commits,
    cross_model,
    leadership,
    login,
    machines,
    models,
    shows,
    status,
    unit_secrets,
    user_secrets,
    users,
    watching,
)
from lab.juju.charm import Charm
from lab.juju.control import Control
from lab.juju.controller import Controller, Setup
from lab.juju.machines import unit_tag
from lab.juju.model import Model, Unit
from lab.juju.ratelimit import Bucket
from lab.juju.server import Server
from lab.places import Places

FACADES = (
    actions,
    agent_relations,
    agents,
    applications,
    commits,
    cross_model,
    leadership,
    login,
    machines,
    models,
    shows,
    status,
    unit_secrets,
    user_secrets,
    users,
    watching,
)
"""The modules of facades. Each adds its methods to `methods.METHODS` when it is imported."""
_FILES_WANTED = 65_536


def raise_file_limit() -> int:
    """Raise the limit of open files as far as wanted or allowed, and return it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES_WANTED
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
        except (OSError, ValueError):  # not permitted
            wanted = hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(wanted, hard)))
    return wanted


def _context(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    context.num_tickets = 1  # as Go's TLS, which Juju uses, sends
    return context


def _controller_unit(model: Model) -> Unit:
    """Add the unit of the controller's own charm, controller/0 on machine 0, which every Juju controller has."""
    charm = Charm("juju-controller", 0, "", {}, {})
    model.charms[charm.url] = charm
    base = {"name": "ubuntu", "channel": "24.04"}
    machine = model.add_machine("simulated-0", "", base, {"arch": "amd64"}, [])
    unit = model.add_unit(model.deploy("controller", charm.url, base, {}, {}), machine.id)
    model.set_password(unit, secrets.token_urlsafe(18))
    return unit


async def serve(directory: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    files = raise_file_limit()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    given: dict[str, Any] = json.loads((directory / "setup.json").read_text())
    limit = given.pop("rate_limit")
    places = Places(**given.pop("places"))
    setup = Setup(**given, rate_limit=tuple(limit) if limit else None)
    controller = Controller(setup, loop)
    context = _context(directory)
    names = [f"s{number}" for number in range(1, len(setup.addresses) + 1)]
    servers = {name: Server(name, controller, context) for name in names}
    for name, server in servers.items():
        controller.limits[name] = Bucket(*setup.rate_limit, loop.time) if setup.rate_limit else None
        server.start()
    control = await Control(controller, servers, os.getpid(), places).serve(directory / "lab.sock")
    model = controller.controller_model
    unit = _controller_unit(model)
    serving = {"files": files, "model": model.uuid, "unit": unit_tag(unit.name), "password": unit.password}
    print(json.dumps(serving), flush=True)  # into a pipe of the lab's
    gc.collect()
    gc.freeze()  # reference counting is enough for tens of thousands of connections
    async with control:
        await ended.wait()


def main() -> int:
    """Run the simulated controller and return the exit code."""
    try:
        uvloop.run(serve(Path(sys.argv[1])))
    except OSError as problem:
        print(f"simulator: {problem}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
