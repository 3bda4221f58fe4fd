"""Runs a private, SIMULATED Juju controller on loopback. Results against it are no measurements of Juju.

    with JujuLab(servers=3, profile="2.5.1", scale=100) as lab:
        ...  # lab.addresses, lab.ca, lab.user, lab.password, lab.data (JUJU_DATA), lab.kill("s2")

It speaks the real protocol over real TLS WebSockets. It runs in one process, with its state in memory. Its controller
name is "simulator", and its version "4.0-simulator15". It is for tests, for faults that a real controller does not
produce on demand, and for the published cliffs at a given scale (store.py).

As a program it starts a controller, prints one JSON line with its addresses, and ends with its standard input, SIGINT
or SIGTERM: `python -m lab.juju.simulator --servers 3`.
"""

from __future__ import annotations

import dataclasses
import secrets
import shlex
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from lab.arguments import up_parser
from lab.control import LabError
from lab.juju.store import PROFILES
from lab.juju.tls import Certificate, make_controller_certificates
from lab.places import Places, take_places
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.simulated import SimulatedLab, write_private
from lab.up import serve

CONTROLLER = "simulator"


class JujuLab(SimulatedLab):
    """A simulated controller with servers s1..sN, which serves while the context lasts.

    `profile` and `scale` are the store's (store.PROFILES). `patched` lets any unit claim any lease (canClaim = true).
    `rate_limit` is (burst, seconds for one more) for agents' logins; None for no limit. `ping_timeout_s` is the time
    without a ping after which an agent is disconnected. `certificate` is the defect of the servers' certificate.
    `expiry_round_s` is the time between removals of expired leases (None: 1 to 5 s, as in Juju 4). `port` is that of
    every server (None: a free one; Juju's own tools expect 17070).

    `data` is a juju client's store with the controller, for JUJU_DATA; `credentials` is a file with the same data.
    `agent_conf` is that of a unit in the controller's model. `socket` is the control socket (control.py). The
    servers run on the processors of `places`.
    """

    def __init__(
        self,
        servers: int = 1,
        profile: str = "instant",
        scale: float = 1.0,
        patched: bool = False,
        rate_limit: tuple[int, float] | None = None,
        ping_timeout_s: float = 180.0,
        certificate: Certificate = "valid",
        expiry_round_s: float | None = None,
        port: int | None = None,
        directory: Path | None = None,
        places: Places | None = None,
    ) -> None:
        if not 1 <= servers <= 250:
            raise LabError(f"servers: {servers}", "1 to 250")
        if profile not in PROFILES:
            raise LabError(f"profile: {profile!r}", f"one of {', '.join(PROFILES)}")
        if scale <= 0:
            raise LabError(f"scale: {scale}", "more than 0")
        super().__init__("lab.juju.process", "controller", places)
        self.controller = CONTROLLER
        self.names = [f"s{number}" for number in range(1, servers + 1)]
        self.user = "admin"
        self.password = secrets.token_urlsafe(18)
        self.ca = ""
        self.addresses: list[str] = []
        self.controller_uuid = str(uuid.uuid4())
        self.model = ""
        """The controller's own model."""
        self._settings: dict[str, Any] = {
            "profile": profile,
            "scale": scale,
            "patched": patched,
            "rate_limit": rate_limit,
            "ping_timeout_s": ping_timeout_s,
            "expiry_round_s": expiry_round_s,
        }
        self._certificate: Certificate = certificate
        self._port = port
        self._given = directory

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each living server, stopped ones included. All servers share one process."""
        return {member["name"]: member["pid"] for member in self.members() if member["pid"] is not None}

    def describe(self) -> dict[str, Any]:
        """Return the lab's addresses for programs. The password is in accounts.yaml below `data`."""
        return {
            "controller": self.controller,
            "data": str(self.data),
            "addresses": self.addresses,
            "lab": str(self.socket),
            "pid": self.pid,
        }

    def settings(self) -> list[str]:
        """Return the lab's addresses for a plan: `key=value` for each `--set`, to be used with `environment`."""
        return [f"target.controller={self.controller}", f"lab={self.socket}"]

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which a juju client, and this suite, find the controller by name."""
        return {"JUJU_DATA": str(self.data)}

    def _directory(self, cleanup: ExitStack) -> Path:
        directory = self._given or vanishing_directory(cleanup)
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _prepare(self, cleanup: ExitStack) -> dict[str, Any]:
        self.data = self.directory / "juju"
        self.credentials = self.directory / "credentials.yaml"
        self.agent_conf = self.directory / "agent.conf"
        made = make_controller_certificates(self._certificate)
        port = self._port or free_ports(1)[0]
        hosts = [f"127.0.0.{number}" for number in range(1, len(self.names) + 1)]
        self.ca = made.ca
        self.addresses = [f"{host}:{port}" for host in hosts]
        write_private(self.directory / "cert.pem", made.cert)
        write_private(self.directory / "key.pem", made.key)
        return self._settings | {
            "addresses": hosts,
            "port": port,
            "ca": made.ca,
            "user": self.user,
            "password": self.password,
            "controller_uuid": self.controller_uuid,
            "places": dataclasses.asdict(self.places),
        }

    def _take_up(self, serving: dict[str, Any]) -> None:
        self.model = serving["model"]
        self._write_store()
        self._write_agent_conf(serving["unit"], serving["password"])

    def _write_store(self) -> None:
        """Write the files of a juju client's store, as the client does (jujuclient in Juju's source)."""
        self.data.mkdir(mode=0o700, exist_ok=True)
        controllers = {
            "uuid": self.controller_uuid,
            "api-endpoints": self.addresses,
            "ca-cert": self.ca,
            "cloud": "simulated",
            "region": "default",
            "type": "manual",
            "agent-version": "4.0-simulator15",
            "controller-machine-count": len(self.names),
            "active-controller-machine-count": len(self.names),
            "machine-count": 0,
        }
        account = {"user": self.user, "password": self.password, "last-known-access": "superuser"}
        models = {
            "models": {f"{self.user}/controller": {"uuid": self.model, "type": "iaas"}},
            "current-model": f"{self.user}/controller",
        }
        for name, content in (
            ("controllers", {"controllers": {CONTROLLER: controllers}, "current-controller": CONTROLLER}),
            ("accounts", {"controllers": {CONTROLLER: account}}),
            ("models", {"controllers": {CONTROLLER: models}}),
        ):
            write_private(self.data / f"{name}.yaml", yaml.safe_dump(content))

        login = {"addresses": self.addresses, "ca": self.ca, "user": self.user, "password": self.password}
        write_private(self.credentials, yaml.safe_dump(login))

    def _write_agent_conf(self, unit: str, password: str) -> None:
        """Write a unit's agent.conf, as its machine's agent does (agent/format-2.0.go in Juju's source)."""
        conf = {
            "tag": unit,
            "nonce": "",
            "cacert": self.ca,
            "controller": f"controller-{self.controller_uuid}",
            "model": f"model-{self.model}",
            "apiaddresses": self.addresses,
            "apipassword": password,
            "oldpassword": "",
        }
        write_private(self.agent_conf, f"# format 2.0\n{yaml.safe_dump(conf, sort_keys=False)}")


def main() -> int:
    """Run a simulated controller until it is told to end, and return the exit code."""
    options = up_parser("juju").parse_args()
    return serve(
        lambda: JujuLab(
            options.servers,
            options.profile,
            options.scale,
            options.patched,
            options.rate_limit,
            certificate=options.certificate,
            port=options.port,
            places=take_places(options.cpus),
        ),
        _how_to,
        options,
        "juju",
        lambda lab: [f"target.credentials={lab.credentials}", f"lab={lab.socket}"],
    )


def _how_to(lab: JujuLab) -> str:
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in lab.settings())
    return (
        f"a SIMULATED Juju controller is up: {', '.join(lab.names)} at {' '.join(lab.addresses)}\n"
        f"{lab.places.sentence()}\n"
        f"its log is in {lab.directory} while it runs; Ctrl-C ends it\n"
        f"use it:\n  JUJU_DATA={lab.data} .venv/bin/tippingpoint run juju-leases-small {settings}\n"
        f"faults beside kill, stop, continue and start (see lab/juju/control.py):\n"
        f'  ./scripts/lab fault juju {lab.socket} \'{{"do": "reset", "share": 0.5}}\''
    )


if __name__ == "__main__":
    sys.exit(main())
