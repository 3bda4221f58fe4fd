"""Runs a private, real LXD or Incus: a cluster, or a single server. It needs root and Debian's packages.

    with LxdLab(members=3) as lab:
        ...  # lab.credentials, lab.lxc("list"), lab.kill("m2"), lab.start("m2")

Each member is a daemon in namespaces that look like a separate machine (see machine.py). Killing it kills everything
on that machine. As a program it starts a lab, prints one JSON line with its addresses, and ends with its standard
input, SIGINT or SIGTERM: `python -m lab.lxd.cluster --members 3`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from lab.arguments import up_parser
from lab.certificates import name_in
from lab.cgroups import VanishingCgroups
from lab.control import ControlServer, LabError, Member
from lab.exporters import LXD, MACHINE, NETWORK, Exporters
from lab.halt import halt
from lab.lxd.access import make_client_certificate, write_credentials, write_remote
from lab.lxd.machine import SMALL
from lab.lxd.programs import Product, programs
from lab.lxd.unix_socket import ask
from lab.network import BRIDGE, Switch
from lab.patience import PATIENCE_S
from lab.places import Places, on_processors, take_places
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.service import starting_thread
from lab.tether import tethered
from lab.up import serve
from tippingpoint.monitoring.scrape.jobs import Found, Group, Job
from tippingpoint.targets.lxd.errors import lxd_error
from tippingpoint.targets.lxd.image import tiny_image
from tippingpoint.workloads.spawn.target import PASSING

OFFLINE_AFTER_S = 11
"""LXD's smallest cluster.offline_threshold: seconds without a heartbeat after which a member is offline."""
_ANSWER_WITHIN_S = 10.0
_POLL_S = 0.03
_NOWHERE = "http://127.0.0.1:9"
"""The discard port, as LXD's proxy. Otherwise LXD asks the internet for lists of images and sizes."""
_CONTAINERS = "10.92.0.1/20"
"""The network of containers, on a separate bridge of each machine. All members of all labs have the same."""
_POOL, _BRIDGE, _FULL = "default", "lxdbr0", "small"
_CONTAINERS_EVERY_S = 2
"""Seconds between two scrapes. For its metrics LXD looks into each container, which is extra load."""


@dataclass
class _Machine:
    """A member's machine, running or not: `process` ends when all of its processes have ended."""

    process: subprocess.Popen[bytes]
    port: str
    stopped: bool = False
    cut: bool = False


class LxdLab:
    """Members m1..mN, which are ready when the context is entered, and removed when it is left.

    `names` also has members up to `most` that have not joined yet: `start` joins them. A member that was killed and
    then removed from the cluster joins again empty. Any other comes back as it was. Clients use `credentials`,
    `remote_directory` or `unix_socket`. `socket` is the control socket (see control.py). The pool is `default` (dir),
    and the network is `lxdbr0`; both are in the default profile. `product` and `release` say what is run: see
    programs.py. The machines, and containers on them, run on the processors of `places`.
    """

    def __init__(
        self,
        members: int = 3,
        most: int = 10,
        clustered: bool = True,
        product: Product = "lxd",
        release: str | None = None,
        places: Places | None = None,
    ) -> None:
        if members < 1:
            raise LabError(f"members: {members}", "at least 1")
        if not clustered and members > 1:
            raise LabError(f"members: {members}", "1, or a cluster")
        self.clustered = clustered
        self.product: Product = product
        self._release = release
        self.places = places or Places.everywhere()
        self.names = [f"m{number}" for number in range(1, (max(members, most) if clustered else 1) + 1)]
        self._first = self.names[:members]
        self._machines: dict[str, _Machine] = {}
        self._joined: list[str] = []
        self._pools = [_POOL]
        self._generation = itertools.count(1)
        self._acting = threading.RLock()
        self._cleanup = ExitStack()

    def __enter__(self) -> LxdLab:
        self.programs = programs(self.product, self._release)
        with ExitStack() as cleanup:
            self.directory = vanishing_directory(cleanup)
            self.directory.chmod(
                0o711
            )  # a container's root is an unprivileged user here, and must find its files
            self.socket = self.directory / "lab.sock"
            self.credentials = self.directory / "credentials.yaml"
            self._cgroups = VanishingCgroups(cleanup, self.directory.name)
            # Members get a signal when the thread that started them ends, so this thread lasts as long as the lab.
            self._starter = cleanup.enter_context(starting_thread("lxd-lab", self.places))
            self._switch = Switch(self._start_program, cleanup)
            cleanup.callback(self._end_machines)
            for name in self._first:
                self._boot(name)
            self._bootstrap(self._first[0])
            for name in self._first[1:]:
                self._join(name)
            self._let_in()
            cleanup.enter_context(ControlServer(self, self.socket))
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    # For clients

    @property
    def addresses(self) -> list[str]:
        """The URLs of all members that have joined the cluster, in the order of their names."""
        return [self.address(name) for name in self.names if name in self._joined]

    def address(self, name: str) -> str:
        """A member's URL."""
        return f"https://{self._switch.address(self._number(name))}:8443"

    def unix_socket(self, name: str = "m1") -> Path:
        """A member's unix socket."""
        return self._directory(self._known(name)) / "unix.socket"

    def server_certificate(self, name: str = "m1") -> tuple[Path, Path]:
        """Return the files of a member's certificate and its key."""
        kind = "cluster" if self.clustered else "server"
        directory = self._directory(self._known(name))
        return directory / f"{kind}.crt", directory / f"{kind}.key"

    def settings(self) -> list[str]:
        """Return the lab's addresses for a plan: `key=value` for each `--set` of `tippingpoint run`."""
        return [f"target.credentials={self.credentials}", f"lab={self.socket}"]

    def describe(self) -> dict[str, Any]:
        """Return the lab's addresses for programs."""
        return {
            "addresses": self.addresses,
            "credentials": str(self.credentials),
            "lab": str(self.socket),
            "remote": str(self.remote_directory()),
        }

    def scraped(self, exporters: Exporters) -> Found:
        """Return the scrape jobs: each member's daemon, network and containers.

        The members share the CPU, memory and disks of this machine.
        """
        client = make_client_certificate()
        trust = {"type": "metrics", "name": "watched", "certificate": client.der}
        ask(self.unix_socket(), "POST", "/1.0/certificates", trust)
        server, _key = self.server_certificate()
        machine = f"127.0.0.1:{free_ports(1)[0]}"
        exporters.node(machine, MACHINE)
        jobs = [Job("lab", "machine", [Group([machine], {"host": "machine"})])]
        for member, pid in self.pids.items():
            host = self.address(member).removeprefix("https://").removesuffix(":8443")
            exporters.node(f"{host}:9100", NETWORK, of=pid)
            exporters.processes(f"{host}:9256", LXD, of=pid)
            around = Group([f"{host}:9100", f"{host}:9256"], {"host": member})
            jobs.append(Job("lab", f"around-{member}", [around]))
            jobs.append(
                Job(
                    "lab",
                    f"lxd-{member}",
                    [Group([f"{host}:8443"], {"host": member})],
                    "https",
                    "/1.0/metrics",
                    interval=_CONTAINERS_EVERY_S,
                    server_name=name_in(server.read_bytes()),
                    ca=server.read_text(),
                    certificate=client.certificate,
                    key=client.key,
                )
            )
        return Found(jobs)

    def lxc(self, *arguments: str, content: str | None = None, on: str | None = None) -> str:
        """Run the client, lxc or incus, on a running member or on `on`. Return its output; LabError if it fails."""
        name = on or self._voice()
        conf = str(self.directory / "lxc")
        return self._on(name, [self.programs.client, *arguments], content or "", CONF=conf)

    def query(self, path: str) -> Any:
        """Return what a path of the API has, as a running member tells it, without the client's process.

        A member is asked again while its failure is a passing one, such as a database that has no leader now.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ask(self.unix_socket(self._voice()), "GET", path, timeout=PATIENCE_S)
            except LabError as problem:
                if lxd_error(str(problem), 0).kind not in PASSING or time.monotonic() > deadline:
                    raise
            time.sleep(_POLL_S)

    def token(self, name: str = "x", projects: Sequence[str] = ()) -> str:
        """Return a new trust token, which can add one client certificate, restricted to `projects` if given."""
        restricted = ["--restricted", f"--projects={','.join(projects)}"] if projects else []
        named = ["--name", name] if self.product == "lxd" else [name]
        return self.lxc("config", "trust", "add", *named, "-q", *restricted).strip().splitlines()[-1]

    def restricted(self, *projects: str) -> Path:
        """Return the credentials file of a new client, whose certificate is restricted to these projects."""
        client = make_client_certificate()
        name = f"restricted-{uuid.uuid4().hex[:8]}"
        trusted = {"type": "client", "name": name, "certificate": client.der}
        at = self.unix_socket(self._voice())
        ask(at, "POST", "/1.0/certificates", trusted | {"restricted": True, "projects": [*projects]})
        server: str = ask(at, "GET", "/1.0")["environment"]["certificate"]
        path = self.directory / f"{name}.yaml"
        write_credentials(path, self.addresses, server, client)
        return path

    def remote_directory(self) -> Path:
        """Return a configuration directory of the lxc client (LXD_CONF) with this lab as its default remote, `lab`."""
        return self.directory / "remote"

    def image(self, alias: str) -> str:
        """Import a tiny image with that alias, unless there is one. Return its fingerprint."""
        at = self.unix_socket(self._voice())
        with contextlib.suppress(LabError):
            return ask(at, "GET", f"/1.0/images/aliases/{alias}")["target"]
        image = tiny_image(f"{self.directory.name} {alias}")
        fingerprint: str = ask(at, "POST", "/1.0/images", image)["fingerprint"]
        ask(at, "POST", "/1.0/images/aliases", {"name": alias, "target": fingerprint})
        return fingerprint

    @contextlib.contextmanager
    def full_pool(self) -> Generator[str]:
        """Yield the name of a pool on every member, on a file system without room for a container.

        The pool is removed with the context. It does not survive its member's death: the file system is then new, and
        LXD does not find its pool.
        """
        create = ["storage", "create", _FULL, "dir"]
        with self._acting:
            if self.clustered:
                for name in self._answering():
                    self.lxc(*create, f"source={SMALL}", f"--target={name}")
                self.lxc(*create)
            else:
                self.lxc(*create, f"source={SMALL}")
            self._pools.append(_FULL)
        try:
            yield _FULL
        finally:
            with self._acting:
                self.lxc("storage", "delete", _FULL)
                self._pools.remove(_FULL)

    # For faults

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each living daemon, stopped ones included."""
        daemon = self.programs.daemon
        found = {name: _daemon(machine.process, daemon) for name, machine in self._machines.items()}
        return {name: pid for name, pid in found.items() if pid is not None}

    def members(self) -> list[Member]:
        """Return every member's present state. Without a quorum there is no leader."""
        pids, leader = self.pids, self._leader_now()
        running = self._running()
        return [
            Member(name=name, pid=pids.get(name), running=name in running, leader=name == leader)
            for name in self.names
        ]

    def leader(self) -> str:
        """Wait for a leader of the cluster's database and return its name."""
        deadline = time.monotonic() + PATIENCE_S
        while (name := self._leader_now()) is None:
            if time.monotonic() > deadline:
                raise LabError("leader: none", "a majority of the database's members running")
            time.sleep(_POLL_S)
        return name

    def status(self, name: str) -> str:
        """Return a member's status in the cluster: ONLINE, OFFLINE, ...; empty if it is not a member.

        Without a quorum it is empty, too.
        """
        listed = {member["server_name"]: member["status"] for member in self._listed_by_quorum()}
        return str(listed.get(name, "")).upper()

    def kill(self, name: str) -> None:
        """Kill a machine: its daemon and containers with all their processes are dead on return."""
        with self._acting:
            self._end(self._machine(name))

    def stop(self, name: str) -> None:
        """SIGSTOP a daemon: it keeps its connections and answers nothing. Its containers keep running."""
        with self._acting:
            machine = self._machine(name)
            halt(self.pids[name])
            machine.stopped = True

    def resume(self, name: str) -> None:
        """SIGCONT a daemon."""
        with self._acting:
            machine = self._machine(name)
            os.kill(self.pids[name], signal.SIGCONT)
            machine.stopped = False

    def partition(self, name: str) -> None:
        """Cut a machine off: all packets from and to it are dropped. It and its containers keep running."""
        with self._acting:
            machine = self._machine(name)
            self._switch.unplug(machine.port)
            machine.cut = True

    def heal(self, name: str) -> None:
        """Undo `partition`."""
        with self._acting:
            machine = self._machine(name)
            self._switch.plug(machine.port)
            machine.cut = False

    def start(self, name: str) -> None:
        """Undo `kill`, or join an empty member that is not in the cluster (any more).

        It serves on return, unless there is no quorum.
        """
        with self._acting:
            self._known(name)
            if self._alive(name):
                raise LabError(f"{name}: is running", "a member that is dead")
            if name in self._joined and (not self.clustered or self._still_listed(name)):
                self._boot(name)
                if self._has_quorum():
                    self._await_ready(name)
                return
            shutil.rmtree(self._directory(name), ignore_errors=True)
            self._boot(name)
            try:
                self._join(name)
            except LabError:
                self._end(self._machines[name])
                raise

    # Setup

    def _boot(self, name: str) -> None:
        number, directory = self._number(name), self._directory(name)
        directory.mkdir(mode=0o711, exist_ok=True)
        processors = self.places.of_member(number - 1)
        port = f"{name}.{next(self._generation)}"  # the former port may take a moment to disappear
        groups = [
            (hierarchy.kind, hierarchy.options, str(hierarchy.mount_point), str(group))
            for hierarchy, group in self._cgroups.fresh(name, processors).items()
        ]
        if self.programs.unified:
            groups = [(kind, "", "/sys/fs/cgroup", group) for kind, *_, group in groups if kind == "cgroup2"]
        image = self.programs.image
        spec = {
            "cgroups": groups,
            "switch": self._switch.path,
            "bridge": BRIDGE,
            "port": port,
            "address": self._switch.with_prefix(number),
            "small": 256 * 1024,
            "image": image and str(image),
            "shared": str(self.directory),
        }
        machine = Path(__file__).with_name("machine.py")
        namespaces = [
            "unshare",
            "--net",
            "--mount",
            "--propagation=private",
            "--pid",
            "--fork",
            "--kill-child=SIGKILL",
        ]
        command = [*namespaces, sys.executable, "-I", "-S", str(machine), json.dumps(spec)]
        command += [self.programs.daemon, "--group=root", f"--logfile={self._log(name)}"]
        environment = {
            **_without_proxies(),
            **self.programs.environment(DIR=str(directory), SECURITY_APPARMOR="false"),
            "PATH": os.environ["PATH"],  # the machine's, until it has its own root
            "HTTPS_PROXY": _NOWHERE,
            "HTTP_PROXY": _NOWHERE,
            "NO_PROXY": "127.0.0.1,localhost,10.0.0.0/8",
        }
        process = self._start_program(tethered(command), environment, name, processors)
        self._machines[name] = _Machine(process, port)

    def _start_program(
        self,
        command: list[str],
        environment: dict[str, str] | None = None,
        log: str = "lab",
        processors: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        def start() -> subprocess.Popen[bytes]:
            bound = on_processors(processors or self.places.target)
            with (self.directory / f"{log}.out").open("ab") as output, bound:
                return subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # Ctrl-C at the terminal must end the run, not its target
                )

        return self._starter.submit(start).result()

    def _bootstrap(self, name: str) -> None:
        self._await_ready(name)
        network = {
            "ipv4.address": _CONTAINERS,
            "ipv4.nat": "false",
            "ipv6.address": "none",
            "dns.mode": "none",
        }
        devices = {
            "root": {"type": "disk", "path": "/", "pool": _POOL},
            "eth0": {"type": "nic", "name": "eth0", "network": _BRIDGE},
        }
        seed: dict[str, Any] = {
            "config": {
                "core.https_address": self.address(name).removeprefix("https://"),
                "images.auto_update_interval": "0",
            },
            "storage_pools": [{"name": _POOL, "driver": "dir"}],
            "networks": [{"name": _BRIDGE, "type": "bridge", "config": network}],
            "profiles": [{"name": "default", "devices": devices}],
        }
        if self.clustered:
            seed["cluster"] = {"server_name": name, "enabled": True}
        self._preseed(name, seed)
        if self.clustered:  # not in the preseed, where LXD 5.0.2 panics
            self.lxc("config", "set", f"cluster.offline_threshold={OFFLINE_AFTER_S}", on=name)
        self._joined.append(name)

    def _join(self, name: str) -> None:
        self._await_ready(name)
        token = self.lxc("cluster", "add", name, "-q").strip().splitlines()[-1]
        sources = {_POOL: "", _FULL: SMALL}
        cluster = {
            "enabled": True,
            "server_name": name,
            "server_address": self.address(name).removeprefix("https://"),
            "cluster_token": token,
            "member_config": [
                {"entity": "storage-pool", "name": pool, "key": "source", "value": sources[pool]}
                for pool in self._pools
            ],
        }
        self._preseed(name, {"cluster": cluster})
        if name not in self._joined:
            self._joined.append(name)

    def _preseed(self, name: str, seed: dict[str, Any]) -> None:
        self._on(name, [*self.programs.init, "--preseed"], yaml.safe_dump(seed))

    def _on(self, name: str, command: list[str], content: str, **named: str) -> str:
        """Run one of the programs for a member; one of a release runs in the member's own root."""
        environment = self.programs.environment(DIR=str(self._directory(name)), **named)
        if self.programs.image is not None:
            first = _first_process(self._machine(name).process)
            path = f"PATH={environment.pop('PATH')}"
            command = ["nsenter", f"--target={first}", "--mount", "--pid", "env", path, *command]
        return _run(command, environment, content)

    def _let_in(self) -> None:
        """Make a trusted client certificate and write its files."""
        first = self.unix_socket(self._first[0])
        client = make_client_certificate()
        ask(first, "POST", "/1.0/certificates", {"type": "client", "name": "lab", "certificate": client.der})
        server: str = ask(first, "GET", "/1.0")["environment"]["certificate"]
        write_credentials(self.credentials, self.addresses, server, client)
        write_remote(self.remote_directory(), self.addresses[0], server, client)

    def _end(self, machine: _Machine) -> None:
        """Kill a machine's first process: the kernel kills all others before it is gone. Its link is removed."""
        first = _first_process(machine.process)
        if first is None:
            machine.process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        machine.process.wait(PATIENCE_S)
        # The kernel does that a moment later. Until then its address refuses what is meant for the next machine.
        self._switch.remove(machine.port)

    def _end_machines(self) -> None:
        for machine in self._machines.values():
            self._end(machine)

    # Present state

    def _number(self, name: str) -> int:
        return self.names.index(name) + 1

    def _directory(self, name: str) -> Path:
        return self.directory / name

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise LabError(f"member: {name!r}", f"one of {', '.join(self.names)}")
        return name

    def _alive(self, name: str) -> bool:
        machine = self._machines.get(name)
        return machine is not None and machine.process.poll() is None

    def _machine(self, name: str) -> _Machine:
        if not self._alive(self._known(name)):
            raise LabError(f"{name}: is dead", "a member that is running")
        return self._machines[name]

    def _running(self) -> list[str]:
        """Return the members that are alive and not stopped."""
        return [name for name in self.names if self._alive(name) and not self._machines[name].stopped]

    def _answering(self) -> list[str]:
        """Return the members that can answer, those with a network first."""
        running = [name for name in self._running() if name in self._joined]
        return sorted(running, key=lambda name: self._machines[name].cut)

    def _voice(self) -> str:
        """Return a member that can answer."""
        for name in self._answering():
            return name
        raise LabError("members: none is running", "one that is")

    def _has_quorum(self) -> bool:
        up = [name for name in self._answering() if not self._machines[name].cut]
        return len(up) > len(self._joined) // 2

    def _listed(self) -> list[dict[str, Any]]:
        """Return the cluster's members from the first member that answers; empty if none does."""
        for name in self._answering():
            with contextlib.suppress(LabError):
                return ask(
                    self.unix_socket(name),
                    "GET",
                    "/1.0/cluster/members?recursion=1",
                    timeout=_ANSWER_WITHIN_S,
                )
        return []

    def _listed_by_quorum(self) -> list[dict[str, Any]]:
        """Return the cluster's members; with a quorum, ask again until a member answers."""
        deadline = time.monotonic() + PATIENCE_S
        while not (listed := self._listed()) and self.clustered and self._has_quorum():
            if time.monotonic() > deadline:
                raise LabError(f"members: no list within {PATIENCE_S:g}s", "an answer of LXD")
            time.sleep(_POLL_S)
        return listed

    def _still_listed(self, name: str) -> bool:
        listed = self._listed_by_quorum()
        return not listed or name in [member["server_name"] for member in listed]

    def _leader_now(self) -> str | None:
        if not self.clustered:
            return next(iter(self._answering()), None)
        for member in self._listed():
            if "database-leader" in member["roles"]:
                return str(member["server_name"])
        return None

    def _await_ready(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            if self._machines[name].process.poll() is not None:
                raise LabError(f"{name}: did not start: {self._last_words(name)}", "a member that serves")
            with contextlib.suppress(LabError):
                ask(self.unix_socket(name), "GET", "/internal/ready", timeout=PATIENCE_S)
                return
            if time.monotonic() > deadline:
                raise LabError(
                    f"{name}: not ready in {PATIENCE_S:g}s: {self._last_words(name)}",
                    "a member that serves",
                )
            time.sleep(_POLL_S)

    def _last_words(self, name: str, lines: int = 5) -> str:
        said: list[str] = []
        for path in (self._log(name), self.directory / f"{name}.out"):
            if path.exists():
                said += path.read_text(errors="replace").splitlines()[-lines:]
        return " | ".join(said) or "its log is empty"


def _run(command: list[str], environment: dict[str, str], content: str) -> str:
    """Run a program with `content` as input and return its output. Raises LabError if it fails or takes too long."""
    said = " ".join(command)
    try:
        ran = subprocess.run(
            tethered(command),
            input=content,
            capture_output=True,
            text=True,
            env={**_without_proxies(), **environment},
            timeout=PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{said}: no end in {PATIENCE_S:g}s", "an answer of LXD") from None
    if ran.returncode != 0:
        raise LabError(f"{said}: {ran.stderr}", "success")
    return ran.stdout


def _without_proxies() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _first_process(process: subprocess.Popen[bytes]) -> int | None:
    """Return the machine's process 1, the only child of the `unshare` that made its namespaces."""
    return next(iter(_children(process.pid)), None) if process.poll() is None else None


def _daemon(process: subprocess.Popen[bytes], program: str) -> int | None:
    """Return the daemon's process id: the first of its name among the children of process 1. Later are orphans."""
    first = _first_process(process)
    for child in _children(first) if first is not None else []:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{child}/comm").read_text().strip() == program:
                return child
    return None


def main() -> int:
    """Run a lab until it is told to end, and return the exit code."""
    options = up_parser("lxd").parse_args()
    members = 1 if options.single else options.members
    return serve(
        lambda: LxdLab(
            members,
            options.most,
            not options.single,
            options.product,
            options.release,
            take_places(options.cpus, members),
        ),
        _how_to,
        options,
        options.product,
    )


def _how_to(lab: LxdLab) -> str:
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in lab.settings())
    names = [name for name in lab.names if name in lab.pids]
    return (
        f"{lab.programs.label} is up: {', '.join(names)} at {' '.join(lab.addresses)}\n"
        f"{lab.places.sentence()}\n"
        f"logs and data are in {lab.directory} while it runs; Ctrl-C ends it and removes all of it\n"
        f"use it:\n  .venv/bin/tippingpoint run lxd-cluster-small {settings}\n"
        f"look at it:\n  {lab.programs.variables}_CONF={lab.remote_directory()} {lab.programs.client} cluster list\n"
        f"kill, start, stop, continue, partition or heal a member (start also joins one that is not there yet):\n"
        f'  ./scripts/lab fault lxd {lab.socket} \'{{"do": "kill", "member": "m2"}}\''
    )


if __name__ == "__main__":
    sys.exit(main())
