"""A real Pacemaker on Corosync, private to whoever starts it. Needs root and the packages of Debian.

    with PacemakerLab(nodes=3) as lab:
        ...  # lab.credentials, lab.run_on("node1", "crm_mon", "-1"), lab.kill("node2"), lab.start("node2")

Each node has its own network, mounts, host name and processes (see node.py). Killing a node kills everything on it.
Run as a program it starts a lab, prints one JSON line that says where it is, and ends with its standard input, SIGINT
or SIGTERM: `python -m lab.pacemaker.cluster --nodes 4`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.arguments import up_parser
from lab.cgroups import Hierarchy, VanishingCgroups
from lab.control import ControlServer, LabError, Member
from lab.exporters import EVERY, MACHINE, NETWORK, Exporters
from lab.halt import halt
from lab.network import BRIDGE, Switch
from lab.pacemaker.configuration import (
    PAM_SERVICE,
    TLS_PORT,
    USER,
    corosync_conf,
    fencing,
    first_cib,
    pam_service,
    write_shadow,
)
from lab.pacemaker.fencing import FenceServer
from lab.pacemaker.load import NodeLoads
from lab.pacemaker.releases import Release, installed, unpacked
from lab.pacemaker.verbs import Verb, verbs_of
from lab.patience import PATIENCE_S
from lab.places import Places, on_processors, take_places
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.service import starting_thread
from lab.slow_disk import limit_writes
from lab.tether import tethered
from lab.up import serve
from tippingpoint.errors import OperationFailed
from tippingpoint.monitoring.scrape.jobs import Found, Group, Job
from tippingpoint.targets.pacemaker.status import ClusterStatus, read_status
from tippingpoint.targets.pacemaker.status import Node as NodeStatus

PROGRAMS = ("ip", "nft", "nsenter", "unshare", "openssl")
COROSYNC_PORT = 5405
REMOTE_PORT = 3121
MOST_NODES, MOST_REMOTES = 64, 150
_FIRST_REMOTE = MOST_NODES + 1
_KEYS = {"PCMK_ca_file": "ca.pem", "PCMK_cert_file": "server.pem", "PCMK_key_file": "server-key.pem"}
_POLL_S = 0.1
_BOOTS = 2
"""How often a node that gave up before it was a member is booted again while it is waited for."""
_HEARD_WITHIN_S = 60.0
_LOOKS_EVERY_S = 1.0
"""A look at whether a node that boots in mid-run is a member takes CPU time of what is measured."""
_FIGURES = Path(__file__).resolve().parents[2] / "docs" / "reference" / "pacemaker-figures.sh"
_TABLE = "tippingpoint"
LOG = "pacemaker.log"
DAEMONS = tuple(
    f"pacemaker-{daemon}" for daemon in ("attrd", "based", "controld", "execd", "fenced", "schedulerd")
)
"""What pacemakerd starts on every node, and starts again when it dies."""


@dataclass
class _Node:
    """A node that runs, or ran: `process` ends when all of it has."""

    process: subprocess.Popen[bytes]
    address: str
    port: str
    """The name of its plug in the switch."""
    groups: dict[Hierarchy, Path]
    frozen: bool = False
    cut: bool = False
    slow: bool = False
    off: bool = False
    """Whether it was told to end; otherwise it gave up when it ends."""


class PacemakerLab:
    """Nodes node1..nodeN, all members of one partition with a DC once the context is entered; gone once it is left.

    Clients use `credentials`, a file of mode 0600 with addresses, port, user and password. `socket` is the control
    socket (see control.py). `properties` are cluster properties that the first CIB has besides. `remotes` more nodes
    run pacemaker-remoted at the addresses of `remotes`; the cluster has no resources for them yet. `release` is one of
    Debian, or a version of Pacemaker (see releases.py), and empty for this machine's. With `tls` the CIB's port has
    certificates, which needs Pacemaker 3. The nodes run on the processors of `places`.
    """

    def __init__(
        self,
        nodes: int = 3,
        token_ms: int = 1000,
        fence: bool = True,
        properties: Mapping[str, str] | None = None,
        remotes: int = 0,
        release: str = "",
        tls: bool = False,
        places: Places | None = None,
    ) -> None:
        if not 1 <= nodes <= MOST_NODES:
            raise LabError(f"nodes: {nodes}", f"1 to {MOST_NODES}")
        if not 0 <= remotes <= MOST_REMOTES:
            raise LabError(f"remotes: {remotes}", f"at most {MOST_REMOTES}")
        self.names = [f"node{number}" for number in range(1, nodes + 1)]
        self._most = nodes
        self.token_ms = token_ms
        self._fence = fence
        self._properties = dict(properties or {})
        self._remotes = [f"remote{number}" for number in range(1, remotes + 1)]
        self._asked_for = release
        self.tls = tls
        self.places = places or Places.everywhere()
        self._nodes: dict[str, _Node] = {}
        self._generation = itertools.count(1)
        self._acting = threading.RLock()
        self._cleanup = ExitStack()
        self._exporters: Exporters | None = None
        """Of whoever watches the lab; nodes that boot meanwhile are watched again."""
        self.fenced: list[str] = []
        """The nodes that the cluster had fenced, in order."""
        self._booting: set[str] = set()
        """Those that were fenced, and are about to boot."""
        self._closed = threading.Event()
        self.fencing_works = True
        self.unfenceable: set[str] = set()
        """The nodes that cannot be fenced, although fencing works."""
        self.loads = NodeLoads(lambda: self.pids)
        """The load averages and the CPU time of each node."""

    def __enter__(self) -> PacemakerLab:
        _check_programs()
        with ExitStack() as cleanup:
            self.directory = vanishing_directory(cleanup)
            self.directory.chmod(0o711)  # the daemons' user finds what is bound from here
            self.socket = self.directory / "lab.sock"
            self.credentials = self.directory / "credentials.yaml"
            # Nodes get a signal when the thread that started them ends: this one lasts as long as the lab.
            self._starter = cleanup.enter_context(starting_thread("pacemaker-lab", self.places))
            self.release = self._find_release()
            self._cgroups = VanishingCgroups(cleanup, self.directory.name)
            self._switch = Switch(self._start_program, cleanup)
            cleanup.callback(self._end_all)
            cleanup.callback(self._closed.set)
            self._configure()
            cleanup.enter_context(FenceServer(self.directory / "fence" / "socket", self._answer_fence))
            for name in [*self.names, *self._remotes]:
                self._boot(name)
            self.await_whole()
            self._await_remotes()
            cleanup.enter_context(self.loads)
            cleanup.enter_context(ControlServer(self, self.socket))
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    # What clients need

    def address(self, name: str) -> str:
        """A node's address."""
        return self._switch.address(self._number(name))

    @property
    def remotes(self) -> dict[str, str]:
        """The address of each remote node, by its name; they listen on Pacemaker's own port, 3121."""
        return {name: self.address(name) for name in self._remotes}

    def verbs(self) -> Mapping[str, Verb]:
        """What the cluster's own tests ask for; see verbs.py."""
        return verbs_of(self)

    def settings(self) -> list[str]:
        """Where the lab is, for a plan: `key=value` for each `--set` of `tippingpoint run`."""
        tls = "verified" if self.tls else "anonymous"
        return [f"target.credentials={self.credentials}", f"target.tls={tls}", f"lab={self.socket}"]

    def describe(self) -> dict[str, Any]:
        """Where the lab is, for programs."""
        return {
            "pacemaker": self.release.version,
            "addresses": [self.address(name) for name in self.names],
            "remotes": self.remotes,
            "credentials": str(self.credentials),
            "lab": str(self.socket),
        }

    def scraped(self, exporters: Exporters) -> Found:
        """The scrape jobs: this machine, and each node's network, daemons and view of the cluster.

        The nodes share the memory and disks of this machine. Each has load averages and CPU time of its own (load.py).
        Remote nodes are not scraped.
        """
        machine = f"127.0.0.1:{free_ports(1)[0]}"
        exporters.node(machine, MACHINE)
        jobs = [Job("lab", "machine", [Group([machine], {"host": "machine"})])]
        self._exporters = exporters
        for name in self.names:
            self._watch(name)
            host = self.address(name)
            around = Group([f"{host}:9100", f"{host}:9256"], {"host": name})
            views = [9101] if self.release.root is not None else [9101, 9664]
            cluster = Group([f"{host}:{port}" for port in views], {"host": name})
            jobs.append(Job("lab", f"around-{name}", [around]))
            jobs.append(Job("lab", f"cluster-{name}", [cluster], interval=self._asked_every()))
        return Found(jobs)

    def _asked_every(self) -> int:
        """Seconds between two scrapes of what a node's tools say. For all nodes it is at most 0.15 of a core, as asking
        one takes 0.07 s of CPU."""
        return max(2, len(self.names) // 2)

    def _watch(self, name: str) -> None:
        """Start a node's exporters. ha_cluster_exporter is not in the roots of other releases."""
        exporters, host, pid = self._exporters, self.address(name), self.pids[name]
        if exporters is None or exporters.ended:
            return
        exporters.node(f"{host}:9100", NETWORK, of=pid)
        exporters.processes(f"{host}:9256", EVERY, of=pid)
        texts = self.directory / name / "figures"
        texts.mkdir(exist_ok=True)
        self.loads.texts[name] = texts
        exporters.texts(f"{host}:9101", _FIGURES, self._asked_every(), pid, texts, within=self._within(name))
        if self.release.root is None:
            exporters.pacemaker(f"{host}:9664", of=pid)

    def _watch_again(self, name: str) -> None:
        """Start the exporters of a node that boots, once it has its address."""
        node = self._nodes[name]
        while node.process.poll() is None and self._nodes.get(name) is node:
            with contextlib.suppress(LabError, KeyError, OSError, RuntimeError):
                self._watch(name)
                return
            if self._exporters is not None:
                self._exporters.end(self.address(name))
            time.sleep(_POLL_S)

    def run_on(self, name: str, *command: str, content: str = "") -> str:
        """What a program prints that is run on a node; LabError when it fails."""
        first = self._first_process(self._node(name))
        entered = ["nsenter", f"--target={first}", "--mount", "--uts", "--ipc", "--net", "--pid", "--"]
        ran = subprocess.run(
            [*entered, *self._within(name), *command],
            input=content,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise LabError(f"{shlex.join(command)} on {name}: {ran.stderr or ran.stdout}", "success")
        return ran.stdout

    def _within(self, name: str) -> list[str]:
        """What runs a program in a node's root."""
        return ["chroot", str(self.directory / name / "root")] if self.release.root is not None else []

    def cib(self, name: str | None = None) -> str:
        """The whole CIB as a node has it: the first that runs, or `name`."""
        return self.run_on(name or self._voice(), "cibadmin", "--query", "--local")

    # What faults need

    @property
    def pids(self) -> dict[str, int]:
        """The pid of each node's first process, of those that are alive."""
        return {
            name: first
            for name, node in list(self._nodes.items())  # they change while a cluster begins anew
            if node.process.poll() is None and (first := self._first_process(node)) is not None
        }

    def members(self) -> list[Member]:
        """Every node as it is now; none leads while there is no DC."""
        pids, leader = self.pids, self._dc_now()
        return [
            Member(
                name=name,
                pid=pids.get(name),
                running=name in pids and not self._nodes[name].frozen,
                leader=name == leader,
            )
            for name in self.names
        ]

    def leader(self) -> str:
        """The DC, once there is one."""
        deadline = time.monotonic() + PATIENCE_S
        while (name := self._dc_now()) is None:
            if time.monotonic() > deadline:
                raise LabError("DC: none", "a majority of the nodes running")
            time.sleep(_POLL_S)
        return name

    def kill(self, name: str) -> None:
        """A power cut: everything on the node is dead on return."""
        with self._acting:
            self._end(self._node(name))

    def stop(self, name: str) -> None:
        """Freeze a node: it keeps its connections and answers nothing."""
        with self._acting:
            node = self._node(name)
            halted = set[int]()
            while running := set(self._processes(node)) - halted:  # what has started meanwhile, too
                for pid in running:
                    with contextlib.suppress(ProcessLookupError):
                        halt(pid)
                halted |= running
            node.frozen = True

    def resume(self, name: str) -> None:
        """Undo `stop`."""
        with self._acting:
            node = self._node(name)
            for pid in self._processes(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            node.frozen = False

    def shut_down(self, name: str) -> None:
        """Stop a node in order, as an administrator would: its resources move first."""
        node = self._node(name)
        self.ask_to_shut_down(name)
        node.process.wait(PATIENCE_S)

    def ask_to_shut_down(self, name: str) -> None:
        """Begin what `shut_down` does; the node is off once its process has ended."""
        node = self._node(name)
        node.off = True
        if (first := self._first_process(node)) is not None:
            os.kill(first, signal.SIGTERM)

    def boot(self, name: str) -> None:
        """Begin what `start` does: the node is a member some time later."""
        with self._acting:
            if name in self.pids:
                raise LabError(f"{name}: is running", "a node that is off")
            self._boot(name)

    def lose_cib(self, name: str) -> None:
        """Delete the CIB on the disk of a node that is off: it boots with the lab's first one, and gets the cluster's
        when it joins."""
        with self._acting:
            if name in self.pids:
                raise LabError(f"{name}: is running", "a node that is off")
            for file in (self.directory / name / "pacemaker" / "cib").glob("cib*"):
                file.unlink()

    def resize(self, nodes: int) -> None:
        """Begin a new cluster of the first `nodes` nodes; the others are off. Nothing of the old cluster is left."""
        if not 1 <= nodes <= self._most:
            raise LabError(f"nodes: {nodes}", f"1 to {self._most}, as the lab was started with so many")
        with self._acting:
            self._end_all()
            self._nodes.clear()
            for name in [*self.names, *self._remotes]:
                shutil.rmtree(self.directory / name, ignore_errors=True)
            self.names = [f"node{number}" for number in range(1, nodes + 1)]
            self.loads.forget()
            self._describe_cluster()
            for name in [*self.names, *self._remotes]:
                self._boot(name)

    def partition(self, name: str) -> None:
        """Drop Corosync's packets of a node; its CIB can be reached from outside."""
        self.split([name])

    def split(self, minority: list[str]) -> None:
        """Cut these nodes off from the others: Corosync's packets between the two sides are dropped."""
        with self._acting:
            others = [name for name in self.names if name not in minority]
            for side, far in ((minority, others), (others, minority)):
                for name in side:
                    if name in self.pids:
                        sources = ", ".join(self.address(other) for other in far)
                        rules = (
                            f"table inet {_TABLE} {{\nchain input {{\ntype filter hook input priority 0;\n"
                            f"ip saddr {{ {sources} }} udp dport {COROSYNC_PORT} drop\n}}\n}}\n"
                        )
                        self._filter(name, "-f", "-", content=rules)
                        self._nodes[name].cut = True

    def heal(self, name: str = "") -> None:
        """Undo every `partition` and `split`."""
        with self._acting:
            for each in self.names:
                if each in self.pids and self._nodes[each].cut:
                    self._filter(each, "delete", "table", "inet", _TABLE)
                    self._nodes[each].cut = False

    def _filter(self, name: str, *rules: str, content: str = "") -> None:
        first = self._first_process(self._node(name))
        command = ["nsenter", f"--target={first}", "--net", "nft", *rules]
        ran = subprocess.run(command, input=content, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise LabError(f"nft on {name}: {ran.stderr}", "nftables of this kernel")

    def slow_disk(self, name: str, writes_per_s: int) -> None:
        """Allow a node so many writes a second that it waits for, as by fsync; 0 ends that. See slow_disk.py."""
        with self._acting:
            node = self._node(name)
            limit_writes(node.groups, self.directory, writes_per_s)
            node.slow = writes_per_s != 0

    def set_property(self, name: str, value: str | None) -> None:
        """Set a cluster property, such as cluster-ipc-limit, as an administrator would; None deletes it."""
        asked = ["--update", value] if value is not None else ["--delete"]
        self.run_on(self._voice(), "crm_attribute", "--type", "crm_config", "--name", name, *asked)

    def start(self, name: str) -> None:
        """Undo `kill`: the node boots with what it had on disk, and is a member on return where there is a quorum."""
        with self._acting:
            if name in self.pids:
                raise LabError(f"{name}: is running", "a node that is dead")
            self._boot(name)
        if name in self.names:
            self._await_member(name)

    def kill_daemon(self, name: str, daemon: str) -> None:
        """Kill one of a node's daemons, such as pacemaker-controld: pacemakerd starts it again."""
        self._node(name)
        if (pid := self.daemon(name, daemon)) is None:
            raise LabError(f"{daemon}: does not run on {name}", "a daemon that runs")
        os.kill(pid, signal.SIGKILL)

    def daemon(self, name: str, daemon: str) -> int | None:
        """The pid of one of a node's daemons; None while it does not run."""
        self._number(name)
        processes = self._processes(self._nodes[name]) if name in self.pids else []
        return next((pid for pid in processes if _command(pid) == daemon[:15]), None)

    def status(self, name: str | None = None) -> ClusterStatus:
        """The cluster as a node knows it: the first that runs, or `name`. Raises LabError when it does not answer."""
        try:
            return read_status(self.cib(name).encode())
        except OperationFailed as problem:
            raise LabError(f"{name or 'CIB'}: {problem}", "a node that serves its CIB") from None

    @property
    def membership_s(self) -> float:
        """Seconds until Corosync has a new membership after a node is lost: a token's timeout, and a consensus of 1.2
        times that (corosync.conf(5): token, token_coefficient, consensus). Meanwhile all updates stand still."""
        return 2.2 * (self.token_ms + 650 * (len(self.names) - 2)) / 1000

    def online(self) -> list[str]:
        """The nodes that the cluster counts as members, by the first node that answers."""
        with contextlib.suppress(LabError):
            return [node.name for node in self.status().nodes.values() if node.online and not node.pending]
        return []

    def is_whole(self) -> bool:
        """Whether every node runs with all its daemons and is a member, none is frozen, cut off or yet to be fenced,
        there is a DC, and fencing works."""
        return (
            self.fencing_works
            and not self.unfenceable
            and set(self.pids) == {*self.names, *self._remotes}
            and not any(node.frozen or node.cut or node.slow for node in list(self._nodes.values()))
            and all(self.daemon(name, daemon) is not None for name in self.names for daemon in DAEMONS)
            and self._all_joined()
        )

    def _all_joined(self) -> bool:
        with contextlib.suppress(LabError):
            status = self.status()
            return bool(status.dc and status.quorum) and all(
                name in status.nodes and _has_joined(status.nodes[name]) for name in self.names
            )
        return False

    def await_whole(self) -> None:
        """Wait until all nodes that were not told to end, or are about to boot, are members of one partition with a DC.

        A node that has ended by itself is booted again, a few times: where the daemons have to wait for CPU time, one
        may give up before it has joined, and systemd would start it again.
        """
        for name in self.names:
            if name in self._nodes and (name in self._booting or not self._nodes[name].off):
                self._await_member(name)

    def _await_remotes(self) -> None:
        """Wait until every remote node listens."""
        deadline = time.monotonic() + PATIENCE_S
        for name, address in self.remotes.items():
            while True:
                if self._nodes[name].process.poll() is not None:
                    raise LabError(f"{name}: ended: {self._last_words(name)}", "a remote node that runs")
                with contextlib.suppress(OSError), socket.create_connection((address, REMOTE_PORT), _POLL_S):
                    break
                if time.monotonic() > deadline:
                    raise LabError(f"{name}: does not listen: {self._last_words(name)}", "a remote node")
                time.sleep(_POLL_S)

    # How it is made

    def _find_release(self) -> Release:
        release = unpacked(self._asked_for) if self._asked_for else installed()
        if self.tls and release.major < 3:
            raise LabError(
                f"tls: Pacemaker {release.version}", "Pacemaker 3: those before have anonymous TLS only"
            )
        if self._remotes and release.remoted is None:
            raise LabError("pacemaker-remoted: not found", "the one that ./scripts/lab up pacemaker unpacks")
        return release

    def _configure(self) -> None:
        shared = self.directory
        addresses = self._describe_cluster()
        password = secrets.token_urlsafe(16)
        foreign = self.release.root is not None
        write_shadow(shared / "shadow", password, alone=foreign)
        shutil.chown(shared / "shadow", "root", "shadow")
        if foreign:
            (shared / "pam.d").mkdir()
        else:
            shutil.copytree("/etc/pam.d", shared / "pam.d")
        (shared / "pam.d" / PAM_SERVICE).write_text(pam_service())
        (shared / "authkey").touch(0o640)
        (shared / "authkey").write_text(secrets.token_urlsafe(64))
        (shared / "fence").mkdir(mode=0o755)
        (shared / "sbin").mkdir()
        shutil.copy(Path(__file__).with_name("fence_lab"), shared / "sbin")
        known: dict[str, Any] = {"addresses": addresses, "port": TLS_PORT, "user": USER, "password": password}
        if self.tls:
            from lab.certificates import make_certificates  # needs the `test` group; plain labs do not

            made = make_certificates(shared, USER, addresses)
            files = {"ca": made.ca, "cert": made.client_cert, "key": made.client_key}
            known |= {name: file.read_text() for name, file in files.items()}
        if self._remotes:
            known["remotes"] = list(self.remotes.values())
        self.credentials.touch(0o600)
        self.credentials.write_text(json.dumps(known))  # JSON is YAML

    def _describe_cluster(self) -> list[str]:
        """Write what every node boots with, and return the nodes' addresses."""
        shared = self.directory
        addresses = [self._switch.address(number) for number in range(1, len(self.names) + 1)]
        (shared / "corosync.conf").write_text(corosync_conf(addresses, self.names, self.token_ms))
        properties = {"stonith-enabled": "true" if self._fence else "false", **self._properties}
        (shared / "cib.xml").write_text(first_cib(properties, fencing(self.names) if self._fence else ""))
        return addresses

    def _boot(self, name: str) -> None:
        directory = self.directory / name
        directory.mkdir(mode=0o711, exist_ok=True)
        if name in self._nodes:
            self._end(self._nodes[name])  # it may have ended by itself
        processors = self.places.of_member(self._number(name) - 1)
        groups = self._cgroups.fresh(name, processors)
        port = f"{name}.{next(self._generation)}"
        environment = {"CIB_pam_service": PAM_SERVICE, "PCMK_logfile": f"/var/log/pacemaker/{LOG}"}
        if self.tls:
            environment |= {name: f"/etc/pacemaker/{file}" for name, file in _KEYS.items()}
        spec = {
            "name": name,
            "remote": name in self._remotes,
            "groups": [str(group) for group in groups.values()],
            "switch": self._switch.path,
            "bridge": BRIDGE,
            "port": port,
            "address": self._switch.with_prefix(self._number(name)),
            "directory": str(directory),
            "shared": str(self.directory),
            "lower": str(self.release.root or ""),
            "program": self.release.remoted or "",
            "environment": environment,
        }
        namespaces = [
            "unshare",
            "--net",
            "--mount",
            "--uts",
            "--ipc",
            "--propagation=private",
            "--pid",
            "--fork",
        ]
        node = Path(__file__).with_name("node.py")
        command = [
            *namespaces,
            "--kill-child=SIGKILL",
            sys.executable,
            "-I",
            "-S",
            str(node),
            json.dumps(spec),
        ]
        process = self._start_program(tethered(command), log=name, processors=processors)
        self._nodes[name] = _Node(process, self.address(name), port, groups)
        if self._exporters is not None and name in self.names:
            threading.Thread(target=self._watch_again, args=(name,), daemon=True).start()

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
                    start_new_session=True,  # a Ctrl-C at the terminal is for the run, not for its target
                )

        return self._starter.submit(start).result()

    def _await_member(self, name: str, looks_every: float = _POLL_S) -> None:
        boots, deadline = _BOOTS, time.monotonic() + PATIENCE_S
        while not self._closed.is_set():
            with self._acting:  # a node that is fenced meanwhile has booted again
                if (node := self._nodes.get(name)) is None:
                    raise LabError(f"{name}: is dead", "a node of the cluster there is")
                ended = node.process.poll() is not None and name not in self._booting
                if ended and boots and not node.off and not self._closed.is_set():
                    boots, ended = boots - 1, False
                    self._boot(name)
            if ended:
                raise LabError(f"{name}: ended: {self._last_words(name)}", "a node that runs")
            with contextlib.suppress(LabError):
                itself = (status := self.status(name)).nodes.get(name)
                if status.dc and itself is not None and _has_joined(itself):
                    return
                if self._no_quorum():
                    return
            if time.monotonic() > deadline:
                raise LabError(f"{name}: no member in {PATIENCE_S:g}s: {self._last_words(name)}", "a member")
            self._closed.wait(looks_every)

    def _no_quorum(self) -> bool:
        return len(set(self.pids) & set(self.names)) * 2 <= len(self.names) and len(self.names) > 2

    def _answer_fence(self, action: str, name: str) -> bool:
        if not self.fencing_works or name in self.unfenceable or name not in self.names:
            return False
        with self._acting:
            self.fenced.append(name)
            if name in self.pids:
                self._end(self._nodes[name])
            if action == "reboot":
                self._booting.add(name)
                threading.Thread(target=self._boot_again, args=(name, self._logs()), daemon=True).start()
        return True

    def _boot_again(self, name: str, logs: Mapping[Path, int]) -> None:
        """Boot a node that is being fenced once another node has heard that it was. A node that hears of its own
        fencing shuts down for good, and a machine takes longer to boot than this word takes. Then see that it
        joins: the cluster does not fence a node again that gives up before."""
        word = re.compile(rf"Operation '?\w+'? targeting {name} .*: OK")
        deadline = time.monotonic() + _HEARD_WITHIN_S
        while not any(word.search(_text_after(log, size)) for log, size in logs.items()):
            if self._closed.wait(_POLL_S) or time.monotonic() > deadline:
                break
        with self._acting:
            if name in self._booting and name not in self.pids and not self._closed.is_set():
                self._boot(name)
            self._booting.discard(name)
        with contextlib.suppress(LabError):
            self._await_member(name, _LOOKS_EVERY_S)

    def _logs(self) -> dict[Path, int]:
        """The logs of Pacemaker on the nodes that run, and the size of each."""
        logs = {self.directory / name / "log" / "pacemaker" / LOG for name in self.pids}
        return {log: log.stat().st_size for log in logs if log.exists()}

    def _end(self, node: _Node) -> None:
        """Kill it, and wait until it and its plug are gone."""
        node.off = True
        if node.slow:
            limit_writes(node.groups, self.directory, 0)  # who waits for a disk cannot die
        self._kill(node)
        node.process.wait(PATIENCE_S)
        if self._exporters is not None:
            self._exporters.end(node.address)  # they keep its network namespace
        self._switch.remove(node.port)

    def _kill(self, node: _Node) -> None:
        """Kill its first process: the kernel kills the others before that one is gone."""
        first = self._first_process(node)
        if first is None:
            node.process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)

    def _end_all(self) -> None:
        with self._acting:
            self._booting.clear()
            for node in self._nodes.values():
                self._kill(node)
            for node in self._nodes.values():
                self._end(node)

    # What it is like now

    def _number(self, name: str) -> int:
        if name in self._remotes:
            return _FIRST_REMOTE + self._remotes.index(name)
        if name not in self.names:
            raise LabError(f"node: {name!r}", f"one of {', '.join(self.names)}")
        return self.names.index(name) + 1

    def _node(self, name: str) -> _Node:
        self._number(name)
        if name not in self.pids:
            raise LabError(f"{name}: is dead", "a node that is running")
        return self._nodes[name]

    def _voice(self) -> str:
        for name in self.names:
            if name in self.pids and not self._nodes[name].frozen and not self._nodes[name].cut:
                return name
        raise LabError("nodes: none is running", "one that is")

    def _dc_now(self) -> str | None:
        with contextlib.suppress(LabError):
            status = self.status()
            return status.dc if status.dc and status.quorum else None
        return None

    def _first_process(self, node: _Node) -> int | None:
        if node.process.poll() is not None:
            return None
        pid = node.process.pid
        with contextlib.suppress(OSError):
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            return int(children[0]) if children else None
        return None

    def _processes(self, node: _Node) -> list[int]:
        """All processes of a node, by their PID namespace."""
        first = self._first_process(node)
        if first is None:
            return []
        found: list[int] = []
        try:
            own = os.readlink(f"/proc/{first}/ns/pid")
        except OSError:  # it has been fenced meanwhile
            return found
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and os.readlink(path / "ns" / "pid") == own:
                    found.append(int(path.name))
        return found

    def _last_words(self, name: str, lines: int = 5) -> str:
        said: list[str] = []
        outputs = (
            f"{name}.out",
            f"{name}/corosync.out",
            f"{name}/pacemakerd.out",
            f"{name}/pacemaker-remoted.out",
        )
        for path in (self.directory / output for output in outputs):
            if path.exists():
                said += path.read_text(errors="replace").splitlines()[-lines:]
        return " | ".join(said) or "its log is empty"


def _has_joined(node: NodeStatus) -> bool:
    return node.online and not node.pending and not node.unclean


def _text_after(path: Path, offset: int) -> str:
    with contextlib.suppress(FileNotFoundError):  # a cluster that begins anew has none
        return path.read_bytes()[offset:].decode(errors="replace")
    return ""


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _check_programs() -> None:
    if os.geteuid() != 0:
        raise LabError(f"user: uid {os.geteuid()}", "root: Pacemaker's namespaces need it")
    for program in PROGRAMS:
        if shutil.which(program) is None:
            raise LabError(f"{program}: not found", "the packages that ./scripts/lab up pacemaker installs")


def main() -> int:
    """Run a lab until told to end; returns the exit code."""
    options = up_parser("pacemaker").parse_args()
    return serve(
        lambda: PacemakerLab(
            options.nodes,
            options.token,
            properties=dict(options.properties),
            remotes=options.remotes,
            release=options.release or "",
            tls=options.tls,
            places=take_places(options.cpus, options.nodes),
        ),
        _how_to,
        options,
        "pacemaker",
    )


def _how_to(lab: PacemakerLab) -> str:
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in lab.settings())
    remotes = f", and remote nodes at {', '.join(lab.remotes.values())}" if lab.remotes else ""
    return (
        f"Pacemaker {lab.release.version} is up: {', '.join(lab.names)}{remotes}\n"
        f"{lab.places.sentence()}\n"
        f"logs and data are in {lab.directory} while it runs; Ctrl-C ends it and removes all of it\n"
        f"use it:\n  .venv/bin/tippingpoint run pacemaker-cib {settings}\n"
        f"look at it: nsenter --target {lab.pids['node1']} --all crm_mon -1\n"
        f"kill, stop, continue, start, partition or heal one of {', '.join(lab.names)}:\n"
        f'  ./scripts/lab fault pacemaker {lab.socket} \'{{"do": "kill", "member": "node2"}}\'\n'
        f"slow disks, dead daemons, fencing that fails, properties: lab/pacemaker/verbs.py lists all requests"
    )


if __name__ == "__main__":
    sys.exit(main())
