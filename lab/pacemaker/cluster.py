"""A real Pacemaker on Corosync, private to whoever starts it. Needs root and the packages of Debian.

    with PacemakerLab(nodes=3) as lab:
        ...  # lab.credentials, lab.run_on("node1", "crm_mon", "-1"), lab.kill("node2"), lab.start("node2")

Each node has its own network, mounts, host name and processes (see node.py). Killing a node kills everything on it.
Run as a program it starts a lab, prints one JSON line that says where it is, and ends with its standard input, SIGINT
or SIGTERM: `python -m lab.pacemaker.cluster --nodes 4`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from lab.control import ControlServer, LabError, Member
from lab.exporters import EVERY, MACHINE, NETWORK, Exporters
from lab.lxd.network import Switch
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
from lab.pacemaker.load import NodeLoads
from lab.pacemaker.verbs import Verb, verbs_of
from lab.ports import free_ports
from lab.program import serve, vanishing_directory
from lab.tether import tethered
from tippingpoint.monitoring.scrape.jobs import Found, Group, Job

PROGRAMS = ("corosync", "pacemakerd", "cibadmin", "ip", "nft", "nsenter", "unshare", "openssl")
READY_WITHIN_S = 600.0
COROSYNC_PORT = 5405
_POLL_S = 0.1
_FIGURES = Path(__file__).resolve().parents[2] / "docs" / "reference" / "pacemaker-figures.sh"
_TABLE = "tippingpoint"


@dataclass
class _Node:
    """A node that runs, or ran: `process` ends when all of it has."""

    process: subprocess.Popen[bytes]
    frozen: bool = False
    cut: bool = False


class PacemakerLab:
    """Nodes node1..nodeN, all members of one partition with a DC once the context is entered; gone once it is left.

    Clients use `credentials`, a file of mode 0600 with addresses, port, user and password. `socket` is the control
    socket (see control.py). `properties` are cluster properties that the first CIB has besides.
    """

    def __init__(
        self,
        nodes: int = 3,
        token_ms: int = 1000,
        fence: bool = True,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        if not 1 <= nodes <= 64:
            raise LabError(f"nodes: {nodes}", "1 to 64")
        self.names = [f"node{number}" for number in range(1, nodes + 1)]
        self._most = nodes
        self.token_ms = token_ms
        self._fence = fence
        self._properties = dict(properties or {})
        self._nodes: dict[str, _Node] = {}
        self._generation = itertools.count(1)
        self._acting = threading.RLock()
        self._cleanup = ExitStack()
        self.fenced: list[str] = []
        """The nodes that the cluster had fenced, in order."""
        self.fencing_works = True
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
            self._starter = cleanup.enter_context(ThreadPoolExecutor(1, thread_name_prefix="pacemaker-lab"))
            self._switch = Switch(self._start_program, cleanup)
            cleanup.callback(self._end_all)
            self._configure()
            cleanup.enter_context(_FenceServer(self.directory / "fence.sock", self._answer_fence))
            for name in self.names:
                self._boot(name)
            self.await_whole()
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

    def verbs(self) -> Mapping[str, Verb]:
        """What the cluster's own tests ask for; see verbs.py."""
        return verbs_of(self)

    def settings(self) -> list[str]:
        """Where the lab is, for a plan: `key=value` for each `--set` of `tippingpoint run`."""
        return [f"target.credentials={self.credentials}", "target.tls=anonymous", f"lab={self.socket}"]

    def describe(self) -> dict[str, Any]:
        """Where the lab is, for programs."""
        return {
            "addresses": [self.address(name) for name in self.names],
            "credentials": str(self.credentials),
            "lab": str(self.socket),
        }

    def scraped(self, exporters: Exporters) -> Found:
        """The scrape jobs: this machine, and each node's network, daemons and view of the cluster.

        The nodes share the CPU, memory and disks of this machine.
        """
        # To ask a node's tools takes 0.07 s of CPU: for all nodes that is at most 0.15 of a core.
        every = max(2, len(self.names) // 2)
        machine = f"127.0.0.1:{free_ports(1)[0]}"
        exporters.node(machine, MACHINE)
        jobs = [Job("lab", "machine", [Group([machine], {"host": "machine"})])]
        for name, pid in self.pids.items():
            host = self.address(name)
            exporters.node(f"{host}:9100", NETWORK, of=pid)
            exporters.processes(f"{host}:9256", EVERY, of=pid)
            exporters.pacemaker(f"{host}:9664", of=pid)
            exporters.texts(f"{host}:9101", _FIGURES, every, of=pid)
            around = Group([f"{host}:9100", f"{host}:9256"], {"host": name})
            cluster = Group([f"{host}:9664", f"{host}:9101"], {"host": name})
            jobs.append(Job("lab", f"around-{name}", [around]))
            jobs.append(Job("lab", f"cluster-{name}", [cluster], interval=every))
        return Found(jobs)

    def run_on(self, name: str, *command: str, content: str = "") -> str:
        """What a program prints that is run on a node; LabError when it fails."""
        first = self._first_process(self._node(name))
        ran = subprocess.run(
            ["nsenter", f"--target={first}", "--mount", "--uts", "--ipc", "--net", "--pid", "--", *command],
            input=content,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise LabError(f"{shlex.join(command)} on {name}: {ran.stderr or ran.stdout}", "success")
        return ran.stdout

    def cib(self, name: str | None = None) -> str:
        """The whole CIB as a node has it: the first that runs, or `name`."""
        return self.run_on(name or self._voice(), "cibadmin", "--query", "--local")

    # What faults need

    @property
    def pids(self) -> dict[str, int]:
        """The pid of each node's first process, of those that are alive."""
        return {
            name: first
            for name, node in self._nodes.items()
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
        deadline = time.monotonic() + READY_WITHIN_S
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
            for pid in self._processes(node):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
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
        first = self._first_process(node)
        if first is not None:
            os.kill(first, signal.SIGTERM)
        node.process.wait(READY_WITHIN_S)

    def ask_to_shut_down(self, name: str) -> None:
        """Begin what `shut_down` does; the node is off once its process has ended."""
        if (first := self._first_process(self._node(name))) is not None:
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
            for name in self.names:
                shutil.rmtree(self.directory / name, ignore_errors=True)
            self.names = [f"node{number}" for number in range(1, nodes + 1)]
            self._describe_cluster()
            for name in self.names:
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
                            f"table inet {_TABLE} {{ chain input {{ type filter hook input priority 0; "
                            f"ip saddr {{ {sources} }} udp dport {COROSYNC_PORT} drop; }} }}"
                        )
                        self.run_on(name, "nft", "-f", "-", content=rules)
                        self._nodes[name].cut = True

    def heal(self, name: str = "") -> None:
        """Undo every `partition` and `split`."""
        with self._acting:
            for each in self.pids:
                if self._nodes[each].cut:
                    self.run_on(each, "nft", "delete", "table", "inet", _TABLE)
                    self._nodes[each].cut = False

    def start(self, name: str) -> None:
        """Undo `kill`: the node boots with what it had on disk, and is a member on return where there is a quorum."""
        with self._acting:
            if name in self.pids:
                raise LabError(f"{name}: is running", "a node that is dead")
            self._boot(name)
        self._await_member(name)

    def kill_daemon(self, name: str, daemon: str) -> None:
        """Kill one of a node's daemons, such as pacemaker-controld: pacemakerd starts it again."""
        for pid in self._processes(self._node(name)):
            if _command(pid) == daemon[:15]:
                os.kill(pid, signal.SIGKILL)
                return
        raise LabError(f"{daemon}: does not run on {name}", "a daemon that runs")

    def online(self) -> list[str]:
        """The nodes that the DC counts as members, by the first node that answers."""
        with contextlib.suppress(LabError):
            return re.findall(r'<node_state [^>]*uname="([^"]+)"[^>]*crmd="online"', self.cib()) or []
        return []

    def is_whole(self) -> bool:
        """Whether every node runs and is a member, none is frozen or cut off, there is a DC, and fencing works."""
        return (
            self.fencing_works
            and set(self.pids) == set(self.names)
            and not any(node.frozen or node.cut for node in self._nodes.values())
            and set(self.online()) >= set(self.names)
            and self._dc_now() is not None
        )

    def await_whole(self) -> None:
        """Wait until all nodes that run are members of one partition with a DC."""
        for name, node in self._nodes.items():
            if node.process.poll() is None:
                self._await_member(name)

    # How it is made

    def _configure(self) -> None:
        shared = self.directory
        addresses = self._describe_cluster()
        password = secrets.token_urlsafe(16)
        write_shadow(shared / "shadow", password)
        shutil.chown(shared / "shadow", "root", "shadow")
        shutil.copytree("/etc/pam.d", shared / "pam.d")
        (shared / "pam.d" / PAM_SERVICE).write_text(pam_service())
        (shared / "sbin").mkdir()
        agent = shared / "sbin" / "fence_lab"
        program = Path(__file__).with_name("fence_lab.py")
        agent.write_text(
            f"#!/bin/sh\nTIPPINGPOINT_FENCE_SOCKET={shared / 'fence.sock'} exec {sys.executable} -I -S {program}\n"
        )
        agent.chmod(0o755)
        self.credentials.touch(0o600)
        known = {"addresses": addresses, "port": TLS_PORT, "user": USER, "password": password}
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
        number, directory = self._number(name), self.directory / name
        directory.mkdir(mode=0o711, exist_ok=True)
        spec = {
            "name": name,
            "switch": self._switch.path,
            "port": f"{name}.{next(self._generation)}",  # the port before may take a moment to go
            "address": self._switch.with_prefix(number),
            "directory": str(directory),
            "shared": str(self.directory),
            "environment": {
                "CIB_pam_service": PAM_SERVICE,
                "PCMK_logfile": "/var/log/pacemaker/pacemaker.log",
            },
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
        self._nodes[name] = _Node(self._start_program(tethered(command), log=name))

    def _start_program(
        self, command: list[str], environment: dict[str, str] | None = None, log: str = "lab"
    ) -> subprocess.Popen[bytes]:
        def start() -> subprocess.Popen[bytes]:
            with (self.directory / f"{log}.out").open("ab") as output:
                return subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,  # a Ctrl-C at the terminal is for the run, not for its target
                )

        return self._starter.submit(start).result()

    def _await_member(self, name: str) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while True:
            node = self._nodes[name]
            if node.process.poll() is not None:
                raise LabError(f"{name}: ended: {self._last_words(name)}", "a node that runs")
            with contextlib.suppress(LabError):
                cib = self.cib(name)
                state = re.search(rf'<node_state [^>]*uname="{name}"[^>]*>', cib)
                if state and 'crmd="online"' in state[0] and 'join="member"' in state[0]:
                    return
                if self._no_quorum():
                    return
            if time.monotonic() > deadline:
                raise LabError(
                    f"{name}: no member in {READY_WITHIN_S:g}s: {self._last_words(name)}", "a member"
                )
            time.sleep(_POLL_S)

    def _no_quorum(self) -> bool:
        return len(self.pids) * 2 <= len(self.names) and len(self.names) > 2

    def _answer_fence(self, action: str, name: str) -> bool:
        if not self.fencing_works or name not in self.names:
            return False
        with self._acting:
            self.fenced.append(name)
            if name in self.pids:
                self._end(self._nodes[name])
            if action == "reboot":
                self._boot(name)
        return True

    def _end(self, node: _Node) -> None:
        """Kill its first process: the kernel kills the others before that one is gone."""
        first = self._first_process(node)
        if first is None:
            node.process.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        node.process.wait(30)

    def _end_all(self) -> None:
        for node in self._nodes.values():
            self._end(node)

    # What it is like now

    def _number(self, name: str) -> int:
        if name not in self.names:
            raise LabError(f"node: {name!r}", f"one of {', '.join(self.names)}")
        return self.names.index(name) + 1

    def _node(self, name: str) -> _Node:
        self._number(name)
        if name not in self.pids:
            raise LabError(f"{name}: is dead", "a node that is running")
        return self._nodes[name]

    def _voice(self) -> str:
        for name in self.pids:
            if not self._nodes[name].frozen and not self._nodes[name].cut:
                return name
        raise LabError("nodes: none is running", "one that is")

    def _dc_now(self) -> str | None:
        with contextlib.suppress(LabError):
            cib = self.cib()
            found = re.search(r'dc-uuid="(\d+)"', cib)
            if found and 'have-quorum="1"' in cib:
                return self.names[int(found[1]) - 1]
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
        own = os.readlink(f"/proc/{first}/ns/pid")
        found: list[int] = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and os.readlink(path / "ns" / "pid") == own:
                    found.append(int(path.name))
        return found

    def _last_words(self, name: str, lines: int = 5) -> str:
        said: list[str] = []
        for path in (self.directory / f"{name}.out", self.directory / name / "corosync.out"):
            if path.exists():
                said += path.read_text(errors="replace").splitlines()[-lines:]
        return " | ".join(said) or "its log is empty"


class _FenceServer:
    """Serves the lab's fencing device from a thread for as long as the context lasts."""

    def __init__(self, path: Path, answer: Any) -> None:
        self._server = _Server(str(path), _Request)
        self._server.daemon_threads = True
        self._server.answer = answer

    def __enter__(self) -> _FenceServer:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingUnixStreamServer):
    answer: Any


class _Request(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = json.loads(self.rfile.readline(4096) or b"{}")
        done = cast(_Server, self.server).answer(asked.get("action", ""), asked.get("node", ""))
        self.wfile.write(json.dumps({"ok": done}).encode() + b"\n")


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
    parser = argparse.ArgumentParser(
        prog="lab.pacemaker.cluster", description="A private Pacemaker; needs root."
    )
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--how-to", action="store_true", help="print how to use it instead of JSON")
    options = parser.parse_args()
    return serve(
        lambda: PacemakerLab(options.nodes),
        lambda lab: _how_to(lab) if options.how_to else json.dumps(lab.describe()),
    )


def _how_to(lab: PacemakerLab) -> str:
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in lab.settings())
    return (
        f"Pacemaker is up: {', '.join(lab.names)}\n"
        f"logs and data are in {lab.directory} while it runs; Ctrl-C ends it and removes all of it\n"
        f"use it:\n  .venv/bin/tippingpoint run pacemaker-cib {settings}"
    )


if __name__ == "__main__":
    sys.exit(main())
