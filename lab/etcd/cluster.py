"""Runs a private, real etcd cluster on loopback.

    with EtcdLab(members=3) as lab:
        ...  # lab.endpoints, lab.socket, lab.kill("m2"), lab.start("m2")

As a program it starts a cluster, prints one JSON line with its addresses, and ends with its standard input, SIGINT or
SIGTERM: `python -m lab.etcd.cluster --members 3`.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shlex
import signal
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.arguments import up_parser
from lab.cgroups import LEAST_CPU, Hierarchy, VanishingCgroups, join, limit_cpu
from lab.control import ControlServer, LabError, Member
from lab.etcd.programs import find_etcd, flavor
from lab.etcd.upkeep import Verb, verbs_of
from lab.exporters import NETWORK, Exporters
from lab.halt import halt
from lab.patience import PATIENCE_S
from lab.places import Places, on_processors, take_places
from lab.ports import free_ports
from lab.program import vanishing_directory
from lab.service import starting_thread
from lab.slow_disk import limit_writes
from lab.tether import tethered
from lab.thin import ThinLink
from lab.up import serve
from tippingpoint.monitoring.scrape.jobs import Found, ScrapeAccess, static_targets

USER = "loadclaimer"
PREFIX = "/tippingpoint/"
_ANSWER_WITHIN_S = 20.0
_CALLED_WITHIN_S = 300.0
"""How long an operator's call may take: to defragment is to write the whole database anew."""
_POLL_S = 0.03
_METRICS_PORT, _EXPORTER_PORT = 2381, 9100
"""The ports of the member and of the node exporter in a network of their own."""


class EtcdLab:
    """A cluster of members m1..mN, which is healthy when the context is entered, and removed when it is left.

    `endpoints` and `names` are in the same order. With `tls` clients need a certificate (`ca`, `cert`, `key`), whose
    common name is the user's. With `auth` they need the login in the YAML file `credentials`, and may only use keys
    below /tippingpoint/. `release` is a suite or version (lab/releases/), else the etcd of this machine is run.

    Three faults need root. With `cpu`, each member, or each one that it names, may use so much of a core, and runs on
    one core. With `writes`, each may make so many writes a second that it waits for. With `bits`, there is one member,
    and its answers have so many bits a second, on a line beyond its machine, or with `own_card` on its own network
    card. With `pprof`, plans have the members profiled. `feature_gates` is what etcd 3.6 or later takes by that name,
    such as FastLeaseKeepAlive=false. The members run on the processors of `places`.

    `socket` is the control socket (see control.py). Members die with this process, even by SIGKILL. So does its
    directory, unless the caller gave one.
    """

    def __init__(
        self,
        members: int = 3,
        tls: bool = False,
        auth: bool = False,
        directory: Path | None = None,
        release: str | None = None,
        cpu: float | Mapping[str, float] | None = None,
        writes: int | None = None,
        bits: int | None = None,
        own_card: bool = False,
        pprof: bool = False,
        feature_gates: str = "",
        places: Places | None = None,
    ) -> None:
        if members < 1:
            raise LabError(f"members: {members}", "at least 1")
        if bits is not None and (members != 1 or tls or auth):
            raise LabError(f"bits: {bits} with more than one member, tls or auth", "one plain member")
        self.names = [f"m{number}" for number in range(1, members + 1)]
        quotas = cpu if isinstance(cpu, Mapping) else {} if cpu is None else dict.fromkeys(self.names, cpu)
        for name, quota in quotas.items():
            if self._known(name) and quota < LEAST_CPU:
                raise LabError(f"cpu: {quota:g}", f"at least {LEAST_CPU:g} of a core")
        self.endpoints: list[str] = []
        self.ca: Path | None = None
        self.cert: Path | None = None
        self.key: Path | None = None
        self.credentials: Path | None = None
        self._tls = tls
        self._auth = auth
        self._given = directory
        self._release = release
        self._quotas = quotas
        self._writes = writes
        self._bits = bits
        self._own_card = own_card
        self._pprof = pprof
        self._feature_gates = feature_gates
        self.places = places or Places.everywhere()
        self._link: ThinLink | None = None
        self._cgroups: VanishingCgroups | None = None
        self.groups: dict[str, Mapping[Hierarchy, Path]] = {}
        """The control groups of each member that is limited."""
        self._commands: dict[str, list[str]] = {}
        self._client_ports: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped: set[str] = set()
        self._acting = threading.RLock()
        self._cleanup = ExitStack()
        self._address = "127.0.0.1"
        self._context: ssl.SSLContext | None = None

    def __enter__(self) -> EtcdLab:
        with ExitStack() as cleanup:
            binary = find_etcd(self._release)
            self.directory = self._given or vanishing_directory(cleanup)
            self.directory.mkdir(parents=True, exist_ok=True)
            self.socket = self.directory / "lab.sock"
            # Members get a signal when the thread that started them ends, so this thread lasts as long as the lab.
            self._starter = cleanup.enter_context(starting_thread("etcd-lab", self.places))
            if self._quotas or self._writes is not None:
                self._cgroups = VanishingCgroups(cleanup, self.directory.name)
            cleanup.callback(self._end_members)
            self._configure(binary, cleanup)
            for name in self.names:
                self._spawn(name)
            self._await_health(self.names)
            if self._auth:
                self._enable_auth()
            cleanup.enter_context(ControlServer(self, self.socket))
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each living member, stopped ones included."""
        return {name: process.pid for name, process in self._processes.items() if process.poll() is None}

    @property
    def apis(self) -> tuple[str, ...]:
        """The APIs by which the suite loads this release, the newest first."""
        return self._flavor.apis

    def members(self) -> list[Member]:
        """Return every member's present state. During an election there is no leader."""
        pids = self.pids
        leader = self._leader_now()
        return [
            Member(
                name=name,
                pid=pids.get(name),
                running=name in pids and name not in self._stopped,
                leader=name == leader,
            )
            for name in self.names
        ]

    def leader(self) -> str:
        """Wait for a leader and return its name. Raises LabError without a quorum to elect it."""
        deadline = time.monotonic() + PATIENCE_S
        while self._has_quorum() and time.monotonic() < deadline:
            name = self._leader_now()
            if name is not None:
                return name
            time.sleep(_POLL_S)
        raise LabError("leader: none", f"{len(self.names) // 2 + 1} of {len(self.names)} members running")

    def kill(self, name: str) -> None:
        """SIGKILL a member and wait until it is dead."""
        with self._acting:
            self._alive(name).kill()
            self._processes[name].wait(PATIENCE_S)
            self._stopped.discard(name)

    def stop(self, name: str) -> None:
        """SIGSTOP a member: it keeps its connections and answers nothing."""
        with self._acting:
            halt(self._alive(name).pid)
            self._stopped.add(name)

    def resume(self, name: str) -> None:
        """SIGCONT a member."""
        with self._acting:
            self._alive(name).send_signal(signal.SIGCONT)
            self._stopped.discard(name)

    def start(self, name: str) -> None:
        """Start a dead member with its former data. It serves on return, unless there is no quorum."""
        with self._acting:
            self._known(name)
            if name in self.pids:
                raise LabError(f"{name}: is running", "a member that is dead")
            self._spawn(name)
            if self._has_quorum():
                self._await_health([name])

    def slow_disk(self, name: str, writes_per_s: int) -> None:
        """Allow a member so many writes a second that it waits for, as by fsync, until it dies; 0 ends that. See
        slow_disk.py. Needs root."""
        with self._acting:
            pid = self._alive(name).pid
            if name not in self.groups:
                if self._cgroups is None:
                    self._cgroups = VanishingCgroups(self._cleanup, self.directory.name)
                self.groups[name] = self._cgroups.fresh(name, self._processors_of(name))
            limit_writes(self.groups[name], self.directory, writes_per_s)
            join(self.groups[name], pid)

    def verbs(self) -> Mapping[str, Verb]:
        """Return the lab's own requests: see upkeep.py."""
        return verbs_of(self)

    def ask(self, name: str, path: str, body: dict[str, Any]) -> bytes:
        """Call the v3 API through a member's JSON gateway. Raises LabError if it is refused or not answered."""
        self._alive(name)
        answer = self._call(name, "POST", f"{self._flavor.gateway}/{path}", body, within=_CALLED_WITHIN_S)
        if answer is None:
            raise LabError(
                f"{path}: refused by {name}, or not answered", "a member without login that serves"
            )
        return answer

    def describe(self) -> dict[str, Any]:
        """Return the lab's addresses for programs: endpoints, lab (the control socket), ca, cert, key, credentials."""
        return {"endpoints": self.endpoints, "lab": str(self.socket), **self._files()}

    def settings(self) -> list[str]:
        """Return the lab's addresses for a plan: `key=value` for each `--set` of `tippingpoint run`."""
        more = [f"target.{name}={path}" for name, path in self._files().items()]
        if "v3" not in self.apis:
            more.append("target.api=v2")
        if self._pprof:
            more.append(f"target.pprof=[{','.join(self.endpoints)}]")
        return [f"target.endpoints=[{','.join(self.endpoints)}]", f"lab={self.socket}", *more]

    def scraped(self, exporters: Exporters) -> Found:
        """Return the scrape jobs: each member exports its figures itself, but for those of a thin network."""
        members = zip(self.names, self.endpoints, strict=True)
        targets = [f"{endpoint} host={name}" for name, endpoint in members]
        if self._link is not None:
            address = f"{self._link.address}:{_EXPORTER_PORT}"
            exporters.node(address, NETWORK, of=self._link.pid)
            targets = [f"{self._link.address}:{_METRICS_PORT} host=m1", f"{address} host=m1"]
        return static_targets("\n".join(targets), self._scrape_access())

    def _scrape_access(self) -> ScrapeAccess | None:
        """Return what scrapes need: with `tls`, /metrics asks for a client's certificate as well."""
        if self.ca is None or self.cert is None or self.key is None:
            return None
        return ScrapeAccess(self.ca.read_text(), self.cert.read_text(), self.key.read_text())

    def _files(self) -> dict[str, str]:
        files = {"ca": self.ca, "cert": self.cert, "key": self.key, "credentials": self.credentials}
        return {name: str(path) for name, path in files.items() if path is not None}

    def _configure(self, binary: Path, cleanup: ExitStack) -> None:
        self._flavor = flavor(binary)
        for each in filter(None, self._feature_gates.split(",")):
            name, _, value = each.partition("=")
            if name not in self._flavor.gates or value not in ("true", "false"):
                gates = ", ".join(self._flavor.gates)
                expected = f"=true or =false for one of {gates}" if gates else "none before etcd 3.6"
                raise LabError(f"feature_gates: {each}", expected)
        security: list[str] = []
        if self._tls:
            from lab.certificates import make_certificates  # needs the `test` group; plain labs do not

            made = make_certificates(self.directory, USER)
            self.ca, self.cert, self.key = made.ca, made.client_cert, made.client_key
            self._context = ssl.create_default_context(cafile=str(made.ca))
            self._context.load_cert_chain(made.client_cert, made.client_key)
            security = ["--client-cert-auth", f"--trusted-ca-file={made.ca}"]
            security += [f"--cert-file={made.server_cert}", f"--key-file={made.server_key}"]
        scheme = "https" if self._tls else "http"
        ports = free_ports(2 * len(self.names))
        clients = dict(zip(self.names, ports[::2], strict=True))
        peers = {name: f"http://127.0.0.1:{port}" for name, port in zip(self.names, ports[1::2], strict=True)}
        cluster = ",".join(f"{name}={url}" for name, url in peers.items())
        token = secrets.token_hex(8)
        self._client_ports = clients
        if self._bits is not None:
            self._link = ThinLink(cleanup, clients["m1"], self._bits, self._own_card)
            self._address = self._link.address
            security = [f"--listen-metrics-urls=http://{self._address}:{_METRICS_PORT}"]
        self.endpoints = [f"{scheme}://{self._address}:{port}" for port in clients.values()]
        for name, endpoint in zip(self.names, self.endpoints, strict=True):
            self._commands[name] = [
                *(self._link.within if self._link is not None else ()),
                str(binary),
                f"--name={name}",
                f"--data-dir={self.directory / name}",
                f"--listen-client-urls={endpoint}",
                f"--advertise-client-urls={endpoint}",
                f"--listen-peer-urls={peers[name]}",
                f"--initial-advertise-peer-urls={peers[name]}",
                f"--initial-cluster={cluster}",
                f"--initial-cluster-token={token}",
                *self._flavor.options,
                *(["--enable-pprof"] if self._pprof else []),
                *([f"--feature-gates={self._feature_gates}"] if self._feature_gates else []),
                *security,
            ]

    def _spawn(self, name: str) -> None:
        self._processes[name] = self._starter.submit(self._popen, name).result()
        self._stopped.discard(name)

    def _popen(self, name: str) -> subprocess.Popen[bytes]:
        with self._log(name).open("ab") as log, on_processors(self._processors_of(name)):
            process = subprocess.Popen(
                tethered(self._commands[name]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal must end the run, not its target
            )
        if self._cgroups is not None and (name in self._quotas or self._writes is not None):
            try:
                self._limit(name, process.pid, self._cgroups)
            except LabError:
                process.kill()
                process.wait(PATIENCE_S)
                raise
        return process

    def _processors_of(self, name: str) -> tuple[int, ...]:
        """Return where a member runs. One that may use no more than a core runs on one, by turns.

        On two, an etcd with a quota answers 1.4 times as many requests in one half minute as in another
        (docs/explanation/how-releases-are-compared.md).
        """
        number = self.names.index(name)
        processors = self.places.of_member(number)
        one = number % len(processors)
        return processors[one : one + 1] if self._quotas.get(name, inf) <= 1 else processors

    def _limit(self, name: str, pid: int, cgroups: VanishingCgroups) -> None:
        groups = self.groups[name] = cgroups.fresh(name, self._processors_of(name))
        cpu = self._quotas.get(name)
        if cpu is not None and not limit_cpu(groups, pid, cpu):
            raise LabError(f"cpu: {cpu:g}: no control group here limits it", "the controller cpu of cgroups")
        if self._writes is not None:
            limit_writes(groups, self.directory, self._writes)
            join(groups, pid)

    def _end_members(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(PATIENCE_S)

    def _known(self, name: str) -> str:
        if name not in self.names:
            raise LabError(f"member: {name!r}", f"one of {', '.join(self.names)}")
        return name

    def _alive(self, name: str) -> subprocess.Popen[bytes]:
        if self._known(name) not in self.pids:
            raise LabError(f"{name}: is dead", "a member that is running")
        return self._processes[name]

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _has_quorum(self) -> bool:
        return len(self.pids.keys() - self._stopped) > len(self.names) // 2

    def _await_health(self, names: list[str]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        waiting = list(names)
        while waiting:
            waiting = [name for name in waiting if not self._healthy(name)]
            for name in waiting:
                if self._processes[name].poll() is not None:
                    raise LabError(f"{name}: did not start: {self._last_words(name)}", "a healthy member")
            if waiting and time.monotonic() > deadline:
                words = self._last_words(waiting[0])
                raise LabError(f"{waiting[0]}: not healthy in {PATIENCE_S:g}s: {words}", "a healthy member")
            if waiting:
                time.sleep(_POLL_S)

    def _last_words(self, name: str, lines: int = 5) -> str:
        log = self._log(name).read_text(errors="replace").splitlines() if self._log(name).exists() else []
        return " | ".join(log[-lines:]) or "its log is empty"

    def _healthy(self, name: str) -> bool:
        answer = self._call(name, "GET", "/health")
        return answer is not None and b'"health":"true"' in answer

    def _leader_now(self) -> str | None:
        # /v3/maintenance/status is not used: with TLS and users the JSON gateway is refused there.
        for name in sorted(self.pids.keys() - self._stopped):
            metrics = self._call(name, "GET", "/metrics")
            if metrics and b"\netcd_server_is_leader 1\n" in metrics:
                return name
        return None

    def _enable_auth(self) -> None:
        """Create users and roles and enable authentication, for v3 and for v2, which has a separate store."""
        root_password, password = secrets.token_urlsafe(16), secrets.token_urlsafe(16)
        first = self.names[0]
        this = self._flavor
        keys = {"key": _base64(PREFIX), "range_end": _base64(PREFIX[:-1] + chr(ord("/") + 1))}
        for path, body in [
            ("user/add", {"name": "root", "password": root_password}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": USER, "password": password}),
            ("role/add", {"name": USER}),
            ("role/grant", {"name": USER, "perm": {"permType": "READWRITE", **keys}}),
            ("user/grant", {"user": USER, "role": USER}),
            ("enable", {}),
        ]:
            self._must(first, "POST", f"{this.gateway}/auth/{path}", body)
        if "v2" in this.apis:
            root = {"Authorization": f"Basic {_base64(f'root:{root_password}')}"}
            allowed = {"read": [PREFIX + "*"], "write": [PREFIX + "*"]}
            for path, body in [
                ("users/root", {"user": "root", "password": root_password}),
                ("roles/" + USER, {"role": USER, "permissions": {"kv": allowed}}),
                ("users/" + USER, {"user": USER, "password": password, "roles": [USER]}),
                ("enable", None),
                ("roles/guest", {"role": "guest", "revoke": {"kv": {"read": ["/*"], "write": ["/*"]}}}),
            ]:
                self._must(first, "PUT", f"/v2/auth/{path}", body, root if path == "roles/guest" else {})
        self.credentials = self.directory / "credentials.yaml"
        with open(os.open(self.credentials, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(f"username: {USER}\npassword: {password}\n")

    def _must(
        self,
        name: str,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        headers: dict[str, str] | None = None,
    ) -> None:
        if self._call(name, method, path, body, headers) is None:
            raise LabError(f"{path}: refused by {name}", "a cluster that lets itself be secured")

    def _call(
        self,
        name: str,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        within: float = _ANSWER_WITHIN_S,
    ) -> bytes | None:
        """Return a member's answer; None without one, or if it is an error."""
        port = self._client_ports[name]
        connection = (
            http.client.HTTPSConnection(self._address, port, timeout=within, context=self._context)
            if self._context
            else http.client.HTTPConnection(self._address, port, timeout=within)
        )
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
            response = connection.getresponse()
            answer = response.read()
            return answer if response.status < 300 else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def main() -> int:
    """Run a cluster until it is told to end, and return the exit code."""
    options = up_parser("etcd").parse_args()
    return serve(
        lambda: EtcdLab(
            options.members,
            options.tls,
            options.auth,
            release=options.release,
            pprof=options.pprof,
            feature_gates=options.feature_gates,
            places=take_places(options.cpus, options.members),
        ),
        _how_to,
        options,
        "etcd",
    )


def _how_to(lab: EtcdLab) -> str:
    settings = " ".join(f"--set {shlex.quote(setting)}" for setting in lab.settings())
    return (
        f"etcd is up: {', '.join(lab.names)} at {' '.join(lab.endpoints)}\n"
        f"{lab.places.sentence()}\n"
        f"logs and data are in {lab.directory} while it runs; Ctrl-C ends it\n"
        f"use it:\n  .venv/bin/tippingpoint run etcd-ramp {settings}"
    )


if __name__ == "__main__":
    sys.exit(main())
