"""Runs exporters beside a lab: the distribution's node exporter, process exporter and ha_cluster_exporter.

    with Exporters() as exporters:
        exporters.node("10.87.3.11:9100", of=pid)  # the network of that process's machine
        exporters.processes("10.87.3.11:9256", LXD, of=pid)  # the processes of that machine
        exporters.pacemaker("10.87.3.11:9664", of=pid)  # the cluster as that machine sees it

Machines with the same kernel share load averages, CPU and disks. A member in its own namespaces has only its own
network and processes.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from lab.control import LabError
from lab.patience import PATIENCE_S
from lab.program import vanishing_directory
from lab.tether import tethered

LXD = """process_names:
- name: lxc-monitor
  cmdline: ['^\\[lxc monitor\\]']
- name: lxd
  comm: [lxd, incusd]
  cmdline: ['--logfile']
"""
"""Groups of processes on a machine with LXD or Incus. The monitors of containers are also called lxd."""
OPENSTACK = """process_names:
- name: '{{.Comm}}'
  comm: [nova-api, nova-conductor, nova-scheduler, nova-compute, neutron-ovs, uwsgi, mariadbd, beam.smp]
- name: neutron-server
  cmdline: ['run_program\\.py neutron-server ']
"""
"""The programs of a control plane with their workers, one group each; all computes are one group. Some processes of
Neutron's server change their titles, which of them depends on the release. Each title has the command line."""
EVERY = """process_names:
- name: '{{.Comm}}'
  cmdline: ['.+']
"""
"""Every program is a group."""
NETWORK = ("netdev", "netstat", "qdisc", "sockstat")
MACHINE = ("cpu", "diskstats", "loadavg", "meminfo")
"""Collectors of node exporter for figures that members share. The query pack `host` uses them and the member's own."""
_NODE = ("--mount", "--uts", "--ipc", "--net", "--pid", "setpriv", "--pdeathsig=KILL")
"""All namespaces of a lab's node. nsenter forks to enter the last, and its child must not outlive it."""
_POLL_S = 0.03
_CHECKOUT = Path(__file__).resolve().parents[1]


def _find(program: str) -> str:
    """Find an exporter of the distribution: on PATH, or unpacked by ./scripts/test into .cache/bin."""
    cached = _CHECKOUT / ".cache" / "bin" / program
    found = shutil.which(program) or (str(cached) if cached.exists() else None)
    if found is None:
        raise LabError(f"{program}: not found", "it on PATH, or the one that ./scripts/test fetches")
    return found


class Exporters:
    """Exporters that serve until the context ends."""

    def __init__(self) -> None:
        self.ended = False

    def __enter__(self) -> Exporters:
        with ExitStack() as cleanup:
            self._directory = vanishing_directory(cleanup)
            # They get a signal when the thread that started them ends, so this thread lasts as long as they do.
            self._starter = cleanup.enter_context(ThreadPoolExecutor(1, thread_name_prefix="exporters"))
            self._running: dict[str, list[subprocess.Popen[bytes]]] = {}
            cleanup.callback(self._end)
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended = True
        self._cleanup.close()

    def end(self, host: str) -> None:
        """End what serves at this host, as when the host is dead: it would keep the host's network from going."""
        running = self._running.pop(host, [])
        for process in running:
            process.kill()
        for process in running:
            process.wait(PATIENCE_S)

    def node(
        self, address: str, collectors: Sequence[str] = (*MACHINE, *NETWORK), of: int | None = None
    ) -> None:
        """Serve the figures of this machine, with the network of the process `of`."""
        line = [_find("prometheus-node-exporter"), f"--web.listen-address={address}"]
        line += ["--collector.disable-defaults", *(f"--collector.{name}" for name in collectors)]
        # Its mounts are not used: /proc/net is about the reader, who is not in that process's PID namespace.
        self._start(line, address, of, ["--net"])

    def processes(self, address: str, groups: str, of: int | None = None) -> None:
        """Serve the processes that the process `of` sees in /proc, in groups as process-exporter's YAML says."""
        configuration = self._directory / f"{address.replace(':', '-')}.yaml"
        configuration.write_text(groups)
        line = [_find("prometheus-process-exporter"), f"-web.listen-address={address}"]
        # Children are left out of a group: those of LXD's monitors are the processes in containers.
        # The mappings of processes are not read, because this takes longer than a scrape may.
        line += [f"-config.path={configuration}", "-children=false", "-threads=false", "-gather-smaps=false"]
        if of is not None:  # whose root may be another file system, without this program
            line.append(f"-procfs=/proc/{of}/root/proc")
        self._start(line, address, of, ["--net"])

    def pacemaker(self, address: str, of: int) -> None:
        """Serve the cluster as the node with the process `of` sees it. Each scrape starts the cluster's own tools."""
        self._start([_find("ha_cluster_exporter"), f"--web.listen-address={address}"], address, of, _NODE)

    def texts(
        self, address: str, script: Path, every: float, of: int, texts: Path, within: Sequence[str] = ()
    ) -> None:
        """Serve what a script prints in the namespaces of the process `of`, by the textfile collector.

        `within` is a command that runs the shell. What others write into the directory `texts`, as files called *.prom,
        is served too.
        """
        # A file that is moved there is read as a whole only.
        loop = (
            f"cd {texts} && while :; do {shlex.join([*within, 'sh'])} < {script} > .new; "
            f"mv .new {script.stem}.prom; sleep {every:g}; done"
        )
        self._run(["sh", "-c", loop], address, of, _NODE)
        line = [_find("prometheus-node-exporter"), f"--web.listen-address={address}"]
        line += ["--collector.disable-defaults", "--collector.textfile"]
        line += [f"--collector.textfile.directory={texts}"]
        self._start(line, address, of, ["--net"])

    def _start(self, line: Sequence[str], address: str, of: int | None, namespaces: Sequence[str]) -> None:
        await_served(f"http://{address}/metrics", self._run(line, address, of, namespaces))

    def _run(
        self, line: Sequence[str], address: str, of: int | None, namespaces: Sequence[str]
    ) -> subprocess.Popen[bytes]:
        entered = ["nsenter", f"--target={of}", *namespaces] if of is not None else []
        command = tethered([*entered, *line])

        def start() -> subprocess.Popen[bytes]:
            with (self._directory / "exporters.log").open("ab") as log:
                return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        process = self._starter.submit(start).result()
        self._running.setdefault(address.rpartition(":")[0], []).append(process)
        return process

    def _end(self) -> None:
        for host in list(self._running):
            self.end(host)


def await_served(url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a program answers. Raises LabError if it ends, or takes too long."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with opener.open(url, timeout=PATIENCE_S) as answer:
                answer.read()
            return
        except OSError as problem:
            name = os.path.basename(str(process.args[-1])) if isinstance(process.args, list) else "program"
            if process.poll() is not None:
                raise LabError(f"{name}: ended", f"an answer at {url}") from None
            if time.monotonic() > deadline:
                raise LabError(f"{url}: {problem}", f"an answer within {PATIENCE_S:g} s") from None
            time.sleep(_POLL_S)
