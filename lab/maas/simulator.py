"""Runs a private, SIMULATED MAAS region on loopback. Results against it are no measurements of MAAS.

    with MaasLab(machines=1000, racks=2) as lab:
        ...  # lab.url, lab.key, lab.ca, lab.ask({"do": "power", "state": "silent"}), lab.kill("rack-1")

It answers the calls that a region of MAAS 3.3 describes (api.json), with its state in memory; version/ has the
subversion "simulated". No machine boots: region.py has what happens in place of that, and control.py the faults.

With `libvirt` there are real virtual machines besides: those that clients define in the lab's libvirt, with a network
card on its bridge `maas`, and enlist with power by virsh. They boot by PXE, and phone home to the region. That needs
root and Debian's packages.

As a program it starts a region, prints one JSON line with its addresses, and ends with its standard input, SIGINT or
SIGTERM: `python -m lab.maas.simulator --machines 1000`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import secrets
import shlex
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab.arguments import up_parser
from lab.certificates import make_certificates
from lab.cgroups import VanishingCgroups
from lab.control import LabError
from lab.exporters import Exporters
from lab.maas.control import MOST_HOSTS, MOST_MACHINES
from lab.maas.libvirt import LibvirtHost
from lab.maas.region import Timings
from lab.patience import PATIENCE_S
from lab.places import Places, take_places
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.service import Starter
from lab.simulated import SimulatedLab, write_private
from lab.up import serve
from tippingpoint.monitoring.scrape.jobs import Found, ScrapeAccess, static_targets


class MaasLab(SimulatedLab):
    """A simulated region, which serves while the context lasts.

    `machines` are there from the beginning, and Ready; so are `hosts`, VM hosts named host-1, host-2 and so on.
    `timings` are how long commissioning and the rest take. With `tls` it serves https, with a certificate of the
    authority `ca`.

    `url` is MAAS's own (its path is /MAAS), and `metrics_url` what the region controller tells Prometheus of itself, as
    at port 5239 of a real one; `key` is an API key of the administrator `user`, and `credentials` a file with url and
    key (mode 0600). `socket` is the control socket (control.py). With `libvirt` that has where libvirt is; and unless
    `timings` says it, the region then waits as long for a machine as labs do. It runs on the processors of `places`,
    and virtual machines do too.
    """

    user = "admin"

    def __init__(
        self,
        machines: int = 0,
        racks: int = 1,
        timings: Timings | None = None,
        tls: bool = False,
        libvirt: bool = False,
        hosts: int = 0,
        places: Places | None = None,
    ) -> None:
        if not 0 <= machines <= MOST_MACHINES:
            raise LabError(f"machines: {machines}", f"0 to {MOST_MACHINES}")
        if not 1 <= racks <= 100:
            raise LabError(f"racks: {racks}", "1 to 100")
        if not 0 <= hosts <= MOST_HOSTS:
            raise LabError(f"hosts: {hosts}", f"0 to {MOST_HOSTS}")
        super().__init__("lab.maas.process", "region", places)
        self._timings = timings or _defaults(libvirt)
        for name, seconds in dataclasses.asdict(self._timings).items():
            if not seconds > 0:
                raise LabError(f"{name}: {seconds}", "more than 0")
        self.password = secrets.token_urlsafe(18)
        self.key = ":".join(secrets.token_hex(length) for length in (9, 9, 16))
        self.ca: Path | None = None
        self.url = self.metrics_url = ""
        self._machines = machines
        self._racks = [f"rack-{number}" for number in range(1, racks + 1)]
        self._hosts = hosts
        self._tls = tls
        self._with_libvirt = libvirt
        self.libvirt: LibvirtHost | None = None

    @property
    def names(self) -> list[str]:
        """The members: the region, its rack controllers, and libvirtd where the lab has it."""
        return ["region", *self._racks, *(["libvirtd"] if self.libvirt else [])]

    def slow(self, name: str, seconds: float) -> None:
        """Delay all answers of the region by some seconds; 0 ends that."""
        self.ask({"do": "slow", "member": name, "seconds": seconds})

    def counts(self) -> dict[str, int]:
        """Return what is in the region's database."""
        return self.ask({"do": "count"})["counts"]

    def describe(self) -> dict[str, Any]:
        """Return the lab's addresses for programs. The key is in the file `credentials`."""
        return {
            "url": self.url,
            "credentials": str(self.credentials),
            "ca": str(self.ca) if self.ca else None,
            "metrics": [f"{self.url}/metrics", self.metrics_url],
            "lab": str(self.socket),
            "pid": self.pid,
            "simulated": True,
        } | ({"libvirt": self.libvirt.describe()} if self.libvirt else {})

    def scraped(self, exporters: Exporters) -> Found:
        """Return the scrape jobs: what MAAS exports of its database, and the region controller of its requests."""
        access = ScrapeAccess(self.ca.read_text()) if self.ca is not None else None
        return static_targets(f"{self.url}/metrics host=region\n{self.metrics_url} host=region", access)

    def settings(self) -> list[str]:
        """Return the lab's addresses for a plan: `key=value` for each `--set` of `tippingpoint run`."""
        found = [f"target.credentials={self.credentials}", f"lab={self.socket}"]
        if self.libvirt is not None:
            found += [
                "target.made.kind=virtme",
                f"target.made.libvirt={self.libvirt.uri}",
                f"target.made.power_address={self.libvirt.power_address}",
            ]
        return found

    def _directory(self, cleanup: ExitStack) -> Path:
        return vanishing_directory(cleanup)

    def _prepare(self, cleanup: ExitStack) -> dict[str, Any]:
        self.credentials = self.directory / "credentials.yaml"
        if self._with_libvirt:
            (phone_port,) = free_ports(1)
            groups = VanishingCgroups(cleanup, self.directory.name) if self.places.apart else None
            bound = groups.fresh("libvirt", self.places.target).values() if groups else ()
            programs = Starter(cleanup, self.directory, self.places)
            self.libvirt = LibvirtHost(cleanup, programs, self.directory, phone_port, bound)
        if self._tls:
            self.ca = make_certificates(self.directory, "lab").ca
        return {
            "timings": dataclasses.asdict(self._timings),
            "racks": self._racks,
            "machines": self._machines,
            "hosts": self._hosts,
            "ports": free_ports(2),
            "tls": self._tls,
            "user": self.user,
            "password": self.password,
            "key": self.key,
            "libvirt": self.libvirt.setup() if self.libvirt else None,
            "places": dataclasses.asdict(self.places),
        }

    def _take_up(self, serving: dict[str, Any]) -> None:
        self.url, self.metrics_url = f"{serving['url']}/MAAS", str(serving["metrics"])
        login = {"url": self.url, "api_key": self.key} | ({"ca": self.ca.read_text()} if self.ca else {})
        write_private(self.credentials, json.dumps(login))


def main() -> int:
    """Run a simulated region until it is told to end, and return the exit code."""
    options = up_parser("maas").parse_args()
    return serve(
        lambda: MaasLab(
            options.machines,
            options.racks,
            _timings(options),
            options.tls,
            options.libvirt,
            options.hosts,
            take_places(options.cpus),
        ),
        _how_to,
        options,
        "maas",
    )


def _timings(options: argparse.Namespace) -> Timings:
    """Return the default timings, but for those that options name."""
    fields = (field.name for field in dataclasses.fields(Timings))
    given = {name: getattr(options, name.removesuffix("_s")) for name in fields}
    named = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(_defaults(options.libvirt), **named)


def _defaults(libvirt: bool) -> Timings:
    """Return how long things take unless somebody says it. Real machines may be slow on a busy machine."""
    return Timings(timeout_s=PATIENCE_S) if libvirt else Timings()


def _how_to(lab: MaasLab) -> str:
    return (
        f"a SIMULATED MAAS region is up at {lab.url}, with {lab.counts()['machines']} machines\n"
        f"{lab.places.sentence()}\n"
        f"its URL and API key are in {lab.credentials} while it runs; Ctrl-C ends it\n"
        f"a Prometheus can scrape {lab.url}/metrics and {lab.metrics_url}\n"
        f"run a plan on it:\n"
        f"  .venv/bin/tippingpoint run maas-register-small {_set(lab.settings()[:2])}\n"
        f"faults beside kill, stop, continue, start and slow (see lab/maas/control.py):\n"
        f'  ./scripts/lab fault maas {lab.socket} \'{{"do": "power", "state": "silent"}}\''
        + (_how_to_libvirt(lab.libvirt, _set(lab.settings())) if lab.libvirt else "")
    )


def _set(settings: Sequence[str]) -> str:
    return " ".join(f"--set {shlex.quote(each)}" for each in settings)


def _how_to_libvirt(libvirt: LibvirtHost, settings: str) -> str:
    return (
        f"\nlibvirt {libvirt.version} is up besides, and its machines run under {libvirt.virtualization}:\n"
        f"  .venv/bin/tippingpoint run maas-virtme {settings} --set target.machines.small.memory=128MiB\n"
        f"  virsh -c '{libvirt.uri}' list --all\n"
        f"a domain of type {libvirt.domain_type} with a network card on bridge maas boots by PXE; enlist it with\n"
        f"power by virsh at this address, which has the client's key:\n"
        f"  {libvirt.power_address}\n"
        f'kill or start libvirtd, whose machines outlive it: {{"do": "kill", "member": "libvirtd"}}'
    )


if __name__ == "__main__":
    sys.exit(main())
