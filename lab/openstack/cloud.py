"""Runs a private, real OpenStack control plane on loopback, with fake hypervisors.

    with OpenstackLab(computes=4, brokers=2) as lab:
        ...  # lab.clouds, lab.count("servers"), lab.kill("compute-2"), lab.start("compute-2")

Keystone, Glance, Placement, Nova and Neutron are Debian's, with MariaDB, memcached and RabbitMQ, each as a process of
the lab. The computes are Nova's own, with its fake hypervisor, which keeps servers only in memory. Neutron's agents are
ours (agent.py). As a program it starts a lab, prints one JSON line with its addresses, and ends with its standard
input, SIGINT or SIGTERM: `python -m lab.openstack.cloud --computes 4`.
"""

from __future__ import annotations

import shlex
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.arguments import up_parser
from lab.certificates import make_certificates
from lab.control import ControlServer, LabError, Member
from lab.exporters import MACHINE, OPENSTACK, Exporters
from lab.openstack.configuration import write_compute, write_configuration
from lab.openstack.database import COUNTED, Database
from lab.openstack.fleet import Fleet, Forked
from lab.openstack.places import REGION, Site, write_private
from lab.openstack.programs import Programs, programs_of
from lab.openstack.rest import Rest
from lab.openstack.services import LATE, brief_keystone, delay_file, memcached, services
from lab.openstack.tenancy import (
    FLAVOR,
    IMAGE,
    NETWORK,
    PROJECT,
    make_identities,
    make_resources,
    make_tenant,
)
from lab.patience import PATIENCE_S
from lab.places import Places, take_places
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.rabbitmq import RabbitLab
from lab.releases.find import find
from lab.releases.usr import check_usr
from lab.service import Service, Starter
from lab.up import serve
from tippingpoint.monitoring.scrape.jobs import Found, static_targets

_POLL_S = 0.3


class OpenstackLab:
    """A cloud, which is ready for servers when the context is entered, and removed when it is left.

    Servers use `image`, `flavor` and `network` by name. `clouds` is a clouds.yaml with a project's user
    (`tippingpoint`), its application credential (`tippingpoint-app`) and the administrator (`admin`). `names` are the
    members for faults; `socket` is the control socket (see control.py, and `slow` and `count` here). With two brokers
    the first has Nova's messages, and the second Neutron's. `rabbitmq` is a release of the brokers, a suite or version;
    None is this machine's. `release` is one of OpenStack itself: a suite, or a version of Nova. With `tls` all
    endpoints are https, with a certificate of the authority `ca`. All of them run on the processors of `places`.
    """

    image, flavor, network, region = IMAGE, FLAVOR, NETWORK, REGION

    def __init__(
        self,
        computes: int = 4,
        brokers: int = 1,
        tls: bool = False,
        rabbitmq: str | None = None,
        release: str | None = None,
        places: Places | None = None,
    ) -> None:
        if computes < 1:
            raise LabError(f"computes: {computes}", "at least 1")
        if brokers not in (1, 2):
            raise LabError(f"brokers: {brokers}", "1 or 2")
        if release is not None:
            check_usr()
        self.release = find("openstack", release) if release is not None else None
        self.hosts = [f"compute-{number}" for number in range(1, computes + 1)]
        """The computes' names in Nova (hosts and hypervisors) and in Neutron (hosts of agents)."""
        self.places = places or Places.everywhere()
        self._brokers = {
            f"broker-{number}": RabbitLab(rabbitmq, self.places) for number in range(1, brokers + 1)
        }
        self._tls = tls
        self._members: dict[str, Service | Forked] = {}
        self._acting = threading.RLock()
        self._cleanup = ExitStack()

    def __enter__(self) -> OpenstackLab:
        if self.release is None:
            Programs().check()
        with ExitStack() as cleanup:
            self.directory = vanishing_directory(cleanup)
            self.socket = self.directory / "lab.sock"
            self._starter = Starter(cleanup, self.directory, self.places)
            self._start(cleanup)
            cleanup.enter_context(ControlServer(self, self.socket))
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    # For clients

    @property
    def clouds(self) -> Path:
        """The clouds.yaml with all users and their passwords (mode 0600)."""
        return self.directory / "clouds.yaml"

    @property
    def auth_url(self) -> str:
        """Keystone's URL."""
        return self.admin.auth_url

    @property
    def project(self) -> str:
        """The id of the project `tippingpoint`."""
        return self.tenant.project

    @property
    def metrics(self) -> dict[str, str]:
        """The address of each broker's exporter, by name."""
        return {name: broker.metrics for name, broker in self._brokers.items()}

    @property
    def rabbitmq(self) -> str:
        """The release of the brokers, for people; empty for this machine's."""
        release = self._brokers["broker-1"].release
        return release.label if release is not None else ""

    def settings(self) -> list[str]:
        """Return the lab's addresses for a plan: `key=value` for each `--set` of `tippingpoint run`."""
        return [f"target.credentials={self.clouds}", f"target.cloud={PROJECT}", f"lab={self.socket}"]

    def describe(self) -> dict[str, Any]:
        """Return the lab's addresses for programs."""
        return {
            "auth_url": self.auth_url,
            "credentials": str(self.clouds),
            "ca": str(self.ca) if self.ca else None,
            "lab": str(self.socket),
            "metrics": self.metrics,
        }

    def scraped(self, exporters: Exporters) -> Found:
        """Return the scrape jobs: each broker with its messages by virtual host, and the control plane's programs."""
        machine, processes = (f"127.0.0.1:{port}" for port in free_ports(2))
        exporters.node(machine, MACHINE)
        exporters.processes(processes, OPENSTACK)
        targets = [f"{machine} host=machine", f"{processes} host=machine"]
        targets += [f"{broker.per_object} host={name}" for name, broker in self._brokers.items()]
        return static_targets("\n".join(targets))

    def counts(self) -> dict[str, int]:
        """Return the counts of all kinds of things in the databases, without removed ones (COUNTED)."""
        return self._database.counts()

    def count(self, what: str) -> int:
        """Return the count of one kind of thing, such as `servers`."""
        if what not in COUNTED:
            raise LabError(f"{what}: not counted", f"one of {', '.join(COUNTED)}")
        return self._database.number(COUNTED[what])

    # For faults

    @property
    def names(self) -> list[str]:
        """The members: computes and agents by host number, brokers, and services."""
        return list(self._members)

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each living member, stopped ones included."""
        found = {name: member.pid for name, member in self._members.items()}
        return {name: pid for name, pid in found.items() if pid is not None}

    def members(self) -> list[Member]:
        """Return every member's present state. There is no leader."""
        pids = self.pids
        return [
            Member(name=name, pid=pids.get(name), running=name in pids and not member.stopped, leader=False)
            for name, member in self._members.items()
        ]

    def kill(self, name: str) -> None:
        """SIGKILL a member with all its workers. A compute's servers are gone with it, but Nova still lists them."""
        with self._acting:
            self._running(name).kill()

    def stop(self, name: str) -> None:
        """SIGSTOP a member with all its workers: it keeps its connections and answers nothing."""
        with self._acting:
            self._running(name).stop()

    def resume(self, name: str) -> None:
        """SIGCONT a member."""
        with self._acting:
            self._running(name).resume()

    def start(self, name: str) -> None:
        """Undo `kill`: a service answers on return, a compute or an agent has reported."""
        with self._acting:
            member = self._member(name)
            if member.pid is not None:
                raise LabError(f"{name}: is running", "a member that is dead")
            reported = self._reported(name)
            member.start()
            self._await_serving(name, reported)

    def slow(self, name: str, seconds: float) -> None:
        """Delay all answers of a service by some seconds; 0 ends that. With few threads, load adds to the delay."""
        self._member(name)
        if name not in LATE:
            raise LabError(f"{name}: cannot be made slow", f"one of {', '.join(LATE)}")
        file = delay_file(self._site, name)
        if seconds:
            new = file.with_suffix(".new")
            new.write_text(str(seconds))
            new.rename(file)
        else:
            file.unlink(missing_ok=True)

    @contextmanager
    def brief_tokens(self, seconds: int) -> Generator[Path]:
        """Run a second Keystone, whose tokens live for some seconds, and yield a clouds.yaml with its address.

        The users are the same. Services go on with the first Keystone, which accepts tokens of both.
        """
        (port,) = free_ports(1)
        url = self.auth_url.replace(f":{self._site.ports['keystone']}/", f":{port}/")
        keystone = brief_keystone(self._site, self._starter, port, seconds)
        keystone.start()
        try:
            admin = Rest(url, "admin", self.admin.password, "admin", self.ca)
            admin.await_answer("identity", "/roles", check=keystone.check)
            clouds = self.directory / "brief-clouds.yaml"
            write_private(clouds, self.clouds.read_text().replace(self.auth_url, url))
            yield clouds
        finally:
            keystone.kill()

    # Setup

    def _start(self, cleanup: ExitStack) -> None:
        """Start everything, as much as possible in parallel, because most of it waits for imports."""
        brokers = self._brokers
        (first, *_), (*_, last) = brokers.values(), brokers.values()
        urls = {"nova": first.url("nova"), "neutron": last.url("neutron")}
        certificates = make_certificates(self.directory, "lab") if self._tls else None
        programs = programs_of(self.release, self._starter, self.directory)
        self._site = site = Site(self.directory, urls, certificates, programs)
        self.ca = site.ca
        write_configuration(site)
        for host in self.hosts:
            write_compute(site, host)
        self._database = Database(site, self._starter)
        with ThreadPoolExecutor(8, thread_name_prefix="openstack-lab") as pool:
            up = [pool.submit(cleanup.enter_context, broker) for broker in brokers.values()]
            memcached(site, self._starter).start()
            nova = site.configuration("nova", "nova.conf").parent
            neutron = site.configuration("neutron", "neutron.conf")
            computes = Fleet(site, self._starter, "compute", [nova])
            agents = Fleet(site, self._starter, "agent", [neutron])
            self._database.start()
            apis = services(site, self._starter)
            for name in LATE:
                apis[name].start()
            self.admin = Rest(
                f"{site.url('keystone')}/v3", "admin", self._database.administrator, "admin", site.ca
            )
            self.admin.await_answer("identity", "/roles", check=apis["keystone"].check)
            identities = pool.submit(make_identities, self.admin, site)
            for broker in up:
                broker.result()
            apis["neutron-server"].start()
            identities.result()  # the scheduler gives up unless the catalogue has Placement
            for name in ("nova-conductor", "nova-scheduler", "nova-api"):
                apis[name].start()
            self.tenant = make_tenant(self.admin, site, self.clouds)
            self._members = self._fork(computes, agents, cleanup)
            for name, broker in brokers.items():
                self._members[name] = broker.service
            self._members |= apis
            for host in self.hosts:
                self._members[host].start()
            self.admin.log_in()  # gets the complete catalogue
            make_resources(self.admin, self.tenant)
            for name in self.names:
                if name.startswith("agent-"):
                    self._members[name].start()
            self._await_hosts()

    def _fork(self, computes: Fleet, agents: Fleet, cleanup: ExitStack) -> dict[str, Service | Forked]:
        found: dict[str, Service | Forked] = {}
        for kind, fleet in (("compute", computes), ("agent", agents)):
            for host in self.hosts:
                name = host.replace("compute", kind)
                found[name] = member = Forked(name, host, fleet)
                cleanup.callback(member.close)
        return found

    def _await_hosts(self) -> None:
        """Wait until servers can be placed on every host, and have ports there."""
        wanted = len(self.hosts)
        for what, rows in (
            ("computes", "nova_cell1.compute_nodes WHERE mapped > 0"),
            ("inventories", "placement.inventories WHERE resource_class_id = 0"),
            ("agents", "neutron.agents"),
        ):
            self._await(f"{what}: not all there", lambda rows=rows: self._arrived(rows) >= wanted)

    def _arrived(self, rows: str) -> int:
        for name, member in self._members.items():
            if member.pid is None:
                log = self._site.log(name)
                said = log.read_text(errors="replace").splitlines()[-3:] if log.exists() else []
                raise LabError(f"{name}: ended: {' | '.join(said)}", "a program that runs")
        return self._database.number(rows)

    # Present state

    def _member(self, name: str) -> Service | Forked:
        if name not in self._members:
            raise LabError(f"member: {name!r}", f"one of {', '.join(self.names)}")
        return self._members[name]

    def _running(self, name: str) -> Service | Forked:
        member = self._member(name)
        if member.pid is None:
            raise LabError(f"{name}: is dead", "a member that is running")
        return member

    def _reported(self, name: str) -> str:
        """Return when a member last reported to the database; empty if it does not report."""
        kind, _, number = name.partition("-")
        column, rows = "last_seen_up", f"nova_cell1.services WHERE `binary` = '{name}'"
        if kind == "compute":
            rows = f"nova_cell1.services WHERE `binary` = 'nova-compute' AND host = '{name}'"
        elif kind == "agent":
            column, rows = "heartbeat_timestamp", f"neutron.agents WHERE host = 'compute-{number}'"
        found = self._database.query(f"SELECT COALESCE({column}, '') FROM {rows}")
        return found[0][0] if found else ""

    def _await_serving(self, name: str, reported: str) -> None:
        answers = {
            "keystone": ("identity", "/roles"),
            "glance-api": ("image", "/v2/images?limit=1"),
            "placement": ("placement", "/"),
            "nova-api": ("compute", "/flavors"),
            "neutron-server": ("network", "/v2.0/networks"),
        }
        member = self._member(name)
        if name in answers and isinstance(member, Service):
            self.admin.await_answer(*answers[name], check=member.check)
        elif name in self._brokers:
            self._brokers[name].await_clients()
        else:
            self._await(f"{name}: does not report", lambda: self._reported(name) > reported)

    def _await(self, problem: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise LabError(f"{problem} in {PATIENCE_S:g} s", "a member that serves")
            time.sleep(_POLL_S)


def main() -> int:
    """Run a lab until it is told to end, and return the exit code."""
    options = up_parser("openstack").parse_args()
    return serve(
        lambda: OpenstackLab(
            options.computes,
            options.brokers,
            options.tls,
            options.rabbitmq,
            options.release,
            take_places(options.cpus),
        ),
        _how_to,
        options,
        "openstack",
    )


def _how_to(lab: OpenstackLab) -> str:
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in lab.settings())
    of = f" of {lab.release.label}" if lab.release is not None else ""
    below = f", on {lab.rabbitmq}" if lab.rabbitmq else ""
    return (
        f"OpenStack is up: {len(lab.hosts)} computes{of} at {lab.auth_url}{below}\n"
        f"{lab.places.sentence()}\n"
        f"logs and data are in {lab.directory} while it runs; Ctrl-C stops it and removes all of it\n"
        f"use it:\n"
        f"  .venv/bin/tippingpoint run openstack-boot-delete-small {settings}\n"
        f"  .venv/bin/tippingpoint run openstack-fill-small {settings}\n"
        f"with ports, which load Neutron's broker too: --set target.network={lab.network}\n"
        f"look at it (clouds are tippingpoint, tippingpoint-app and admin):\n"
        f"  OS_CLIENT_CONFIG_FILE={lab.clouds} openstack --os-cloud tippingpoint server list\n"
        f"kill, start, stop or continue one of {', '.join(lab.names)}:\n"
        f'  ./scripts/lab fault openstack {lab.socket} \'{{"do": "kill", "member": "compute-1"}}\'\n'
        f"make Keystone slow; count the rows of the databases:\n"
        f'  ./scripts/lab fault openstack {lab.socket} \'{{"do": "slow", "member": "keystone", "seconds": 2}}\'\n'
        f'  ./scripts/lab fault openstack {lab.socket} \'{{"do": "count"}}\''
    )


if __name__ == "__main__":
    sys.exit(main())
