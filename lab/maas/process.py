"""The simulated region's process: `python -m lab.maas.process DIRECTORY`, until SIGTERM or SIGINT.

The directory has setup.json (mode 0600, because it has the password and the key) and, for TLS, the certificates.
It prints one JSON line when it serves.
"""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import sys
from pathlib import Path
from typing import Any

import uvloop

from lab.control import ControlServer, LabError
from lab.maas.calls import Calls
from lab.maas.control import Control, add_hosts, add_machines
from lab.maas.description import read_description
from lab.maas.libvirt_phone import PhoneServer
from lab.maas.metrics import Metrics
from lab.maas.oauth import Keys, Token
from lab.maas.region import Region, Timings
from lab.maas.server import Server
from lab.maas.virsh import Virsh
from lab.places import Places


async def serve(directory: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    setup: dict[str, Any] = json.loads((directory / "setup.json").read_text())
    description = read_description()
    libvirt = setup["libvirt"]
    region = Region(Timings(**setup["timings"]), setup["racks"], loop, Virsh() if libvirt else None)
    keys = Keys()
    keys.accept(Token(*setup["key"].split(":"), name="MAAS consumer", user=setup["user"]))
    config = {
        "maas_name": "simulated",
        "node_timeout": setup["timings"]["timeout_s"] / 60,
        "prometheus_enabled": True,
        "simulated": True,
    }
    calls = Calls(description, region, keys, config)
    tls = None
    if setup["tls"]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(directory / "server.pem", directory / "server-key.pem")
    phone = None
    if libvirt:
        files = Path(libvirt["kernel"]), Path(libvirt["initramfs"])
        phone = PhoneServer(region, libvirt["address"], libvirt["phone_port"], *files)
    port, metrics_port = setup["ports"]
    login = setup["user"], setup["password"]
    metrics = Metrics(region, calls.shelves, "127.0.0.1")
    server = Server(description, region, keys, calls, metrics, port, metrics_port, tls, *login, phone)
    if setup["machines"]:
        add_machines(region, setup["machines"])
    add_hosts(region, setup["hosts"])
    await server.start()
    places = Places(**setup["places"])
    control = Control(region, server, keys, calls, description.version, loop, places, libvirt)
    with ControlServer(control, directory / "lab.sock"):
        served = {"url": server.url, "metrics": server.metrics_url}
        print(json.dumps(served), flush=True)  # into a pipe of the lab's
        await ended.wait()
    await server.close()


def main() -> int:
    """Run the simulated region and return the exit code."""
    try:
        uvloop.run(serve(Path(sys.argv[1])))
    except (OSError, LabError) as problem:
        print(f"region: {problem}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
