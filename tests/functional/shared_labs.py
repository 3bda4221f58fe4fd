"""Labs that tests share. A test that fails may leave its lab broken, and those after it would fail with it: they get a
new one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Generic, TypeVar

from lab.etcd.cluster import EtcdLab
from lab.lxd.cluster import LxdLab
from lab.lxd.unix_socket import ask
from lab.maas.simulator import MaasLab
from lab.openstack.cloud import OpenstackLab
from tests.functional.program import keys, leases
from tests.functional.virsh import virsh

L = TypeVar("L")


class SharedLab(Generic[L]):
    """Starts a lab for the first test that takes it, and again when a test has failed and the lab is not what it was.

    `look` says what a lab is: its members' state, and what is in it. It raises where a lab does not answer. A lab that
    did not start is not tried again.
    """

    def __init__(
        self,
        make: Callable[[], AbstractContextManager[L]],
        look: Callable[[L], object],
        failed: Callable[[], int],
    ) -> None:
        """`failed` tells how many tests have failed so far."""
        self._make = make
        self._look = look
        self._failed = failed
        self._lab: L | None = None
        self._first: object = None
        self._seen = 0
        self._problem: Exception | None = None
        self._running = ExitStack()

    def __enter__(self) -> SharedLab[L]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def take(self) -> L:
        """The lab, as it was when it had just started."""
        if self._failed() > self._seen:
            self.end_if_broken()
        self._seen = self._failed()
        return self._start() if self._lab is None else self._lab

    def end_if_broken(self) -> None:
        """End the lab unless it is what it was; the next test then gets a new one."""
        if self._lab is not None and not self._is_whole(self._lab):
            self._end()

    def rest(self) -> None:
        """End the lab, which takes CPU time of others while nobody uses it; the next test that takes it starts it."""
        self._end()

    def _start(self) -> L:
        if self._problem is not None:
            raise self._problem
        try:
            self._lab = lab = self._running.enter_context(self._make())
            self._first = self._look(lab)
        except Exception as problem:
            self._problem = problem
            raise
        return lab

    def _is_whole(self, lab: L) -> bool:
        try:
            return self._look(lab) == self._first
        except Exception:  # whatever it is, the lab does not answer as one that is whole
            return False

    def _end(self) -> None:
        self._lab = None
        self._running.close()


def look_at_etcd(lab: EtcdLab) -> object:
    """Who runs, and all keys and leases."""
    running = [member["running"] for member in lab.members()]
    return running, running[0] and [(keys(endpoint), leases(endpoint)) for endpoint in lab.endpoints]


def look_at_lxd(lab: LxdLab) -> object:
    """Who runs and is in the cluster, and all that is in it but for images."""
    running = [member["name"] for member in lab.members() if member["running"]]
    kinds = ("instances?all-projects=true", "projects", "networks", "profiles", "storage-pools")
    there = [
        sorted(ask(lab.unix_socket(name), "GET", f"/1.0/{kind}")) for name in running[:1] for kind in kinds
    ]
    return running, [lab.status(name) for name in running if lab.clustered], there


def look_at_openstack(lab: OpenstackLab) -> object:
    """Who runs, who is up, and how many there are of everything; all services must answer."""
    running = [(member["name"], member["running"]) for member in lab.members()]
    if not all(there for _name, there in running):
        return running
    for service, path in (("identity", "/users"), ("image", "/v2/images"), ("placement", "/")):
        lab.admin.get(service, path)
    computes = lab.admin.get("compute", "/os-services?binary=nova-compute")["services"]
    agents = lab.admin.get("network", "/v2.0/agents")["agents"]
    up = [service["state"] for service in computes], [agent["alive"] for agent in agents]
    return running, up, lab.counts()


def look_at_libvirt(lab: MaasLab) -> object:
    """Who runs, how many there are of everything in the region, and what libvirt has."""
    running = [(member["name"], member["running"]) for member in lab.members()]
    kinds = ("list", "pool-list", "net-list")
    return running, lab.counts(), [virsh(lab, kind, "--all", "--name") for kind in kinds]
