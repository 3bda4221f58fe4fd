"""The lab of Pacemaker: what it says of its nodes and of each fault is so on the real ones, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.cgroups import hierarchies
from lab.control import LabError
from lab.pacemaker.cluster import PacemakerLab
from lab.pacemaker.releases import installed
from tests.functional.program import WITHIN_S, until
from tests.functional.traces import pids_of, read, traces
from tippingpoint.errors import UserError
from tippingpoint.play.faults import LabControl
from tippingpoint.targets.pacemaker.access import access
from tippingpoint.targets.pacemaker.connection import Connection
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.status import read_status
from tippingpoint.targets.pacemaker.wire import LOCAL, SYNC
from tippingpoint.util.lab_socket import ask_lab

_CIB_PORT = 9898
_LOGINS = 10
"""At each node. Of this many, some come while the node writes."""


def test_all_nodes_are_members_and_one_is_the_dc(pacemaker: PacemakerLab) -> None:
    until(pacemaker.is_whole)
    assert sorted(pacemaker.online()) == pacemaker.names
    assert [member["name"] for member in pacemaker.members() if member["leader"]] == [pacemaker.leader()]
    assert all(member["running"] for member in pacemaker.members())


def test_a_node_that_gives_up_while_the_cluster_comes_up_is_booted_again(
    new_pacemaker: Callable[..., PacemakerLab],
) -> None:
    # given a cluster that comes up, of whose nodes one ends by itself
    before = set(pids_of("tippingpoint-lab-"))

    def end_the_third() -> None:
        os.kill(until(lambda: _third(before))[-1], signal.SIGKILL)

    with ThreadPoolExecutor(1) as beside:
        ended = beside.submit(end_the_third)
        lab = new_pacemaker(3)
        ended.result()
    # then it is booted again, and the cluster is whole (it may have had a node fenced meanwhile)
    until(lab.is_whole)


def _third(before: Collection[int]) -> list[int]:
    """The processes of node3's program, in a cluster that was not there before."""
    return [
        pid
        for pid in sorted(set(pids_of("tippingpoint-lab-")) - set(before))
        if '"name": "node3"' in read(pid, "cmdline")
    ]


def test_a_client_with_the_credentials_is_let_in_by_every_node(pacemaker: PacemakerLab) -> None:
    assert stat.S_IMODE(pacemaker.credentials.stat().st_mode) == 0o600
    assert yaml.safe_load(pacemaker.credentials.read_text())["addresses"] == pacemaker.describe()["addresses"]

    assert _online_by_client(pacemaker, "anonymous") == [pacemaker.names] * 3


def test_what_cannot_be_asked_for_is_refused_in_a_line(pacemaker: PacemakerLab) -> None:
    refused = {
        "member: 'node9': expected one of node1, node2, node3": {"do": "kill", "member": "node9"},
        "nosuchd: does not run on node1: expected a daemon that runs": {
            "do": "kill-daemon",
            "member": "node1",
            "daemon": "nosuchd",
        },
        "writes_per_s: 0: expected a whole number, 1 to 100000": {
            "do": "slow-disk",
            "member": "node1",
            "writes_per_s": 0,
        },
        "member: 'all': expected one of node1, node2, node3": {"do": "fail-fencing", "member": "all"},
        "name: None: expected a text": {"do": "property", "value": "1"},
    }

    for line, request in refused.items():
        with pytest.raises(UserError) as refusal:
            _ask(pacemaker, **request)
        assert str(refusal.value) == f"lab: {line}"


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"nodes": 0}, "nodes: 0: expected 1 to 64"),
        ({"remotes": 151}, "remotes: 151: expected at most 150"),
    ],
)
def test_a_lab_that_cannot_be_is_refused_before_it_starts(asked: dict[str, Any], line: str) -> None:
    with pytest.raises(LabError) as refusal:
        PacemakerLab(**asked)

    assert str(refusal.value) == line


@pytest.mark.pacemaker
def test_a_release_that_is_none_is_refused_with_those_there_are() -> None:
    with pytest.raises(LabError) as refusal, PacemakerLab(release="woody"):
        pass

    assert str(refusal.value).startswith(
        "release: pacemaker woody: expected a suite or version of Debian: bullseye (2.0.5), "
    )


def test_each_node_has_a_load_and_cpu_time_of_its_own(pacemaker: PacemakerLab) -> None:
    def loads() -> dict[str, Any]:
        return _ask(pacemaker, do="loads")["loads"]

    before = loads()
    assert set(before) == set(pacemaker.names)

    until(
        lambda: _online_by_client(pacemaker, "anonymous") and loads()["node1"]["cpu"] > before["node1"]["cpu"]
    )

    assert all(len(node["load"]) == 3 for node in loads().values())


def test_a_nodes_load_is_written_for_the_collector_of_text_files(
    pacemaker: PacemakerLab, tmp_path: Path
) -> None:
    pacemaker.loads.texts["node1"] = tmp_path
    try:
        until((tmp_path / "load.prom").exists)
    finally:
        del pacemaker.loads.texts["node1"]

    names = [line.split()[0] for line in (tmp_path / "load.prom").read_text().splitlines() if line[0] != "#"]
    assert names == ["node_load1", "node_load5", "node_load15", 'node_cpu_seconds_total{cpu="0",mode="user"}']


class TestFaults:
    """Faults on a cluster that fences, as a plan asks for them."""

    def test_a_killed_node_is_gone_and_comes_back_with_what_it_had(
        self, pacemaker_to_break: PacemakerLab
    ) -> None:
        lab = pacemaker_to_break
        lab.fencing_works = False  # else the cluster boots it
        lab.run_on("node3", "sh", "-c", "echo kept > /var/lib/pacemaker/kept")
        mac = _mac(lab, "node3")

        _act(lab, "kill", "node3")

        (member,) = [each for each in lab.members() if each["name"] == "node3"]
        assert (member["pid"], member["running"]) == (None, False)
        assert not lab.is_whole()
        until(lambda: "node3" not in lab.online())

        lab.fencing_works = True
        if "node3" not in lab.pids:
            with contextlib.suppress(UserError):  # by now it may have been fenced, which boots it too
                _act(lab, "start", "node3")
        until(lab.is_whole)
        assert lab.run_on("node3", "cat", "/var/lib/pacemaker/kept") == "kept\n"
        assert _mac(lab, "node3") == mac != _mac(lab, "node2")

    def test_a_frozen_node_is_fenced_and_boots(self, pacemaker_to_break: PacemakerLab) -> None:
        lab, before = pacemaker_to_break, list(pacemaker_to_break.fenced)

        _act(lab, "stop", "node3")

        assert not lab.is_whole()
        until(lambda: "node3" in lab.fenced[len(before) :])
        until(lab.is_whole)

    @pytest.mark.parametrize("how", ["fenced", "started"])
    def test_a_node_that_gives_up_before_it_is_a_member_again_is_booted_again(
        self, pacemaker_to_break: PacemakerLab, how: str
    ) -> None:
        lab = pacemaker_to_break
        first = lab.pids["node3"]

        def the_next() -> int | None:
            pid = lab.pids.get("node3")
            return None if pid == first else pid

        def end_the_next() -> None:
            pid = until(the_next, "a node that boots")
            assert pid is not None
            with contextlib.suppress(ProcessLookupError):  # it may have been fenced by now
                os.kill(pid, signal.SIGKILL)

        with ThreadPoolExecutor(1) as beside:
            ended = beside.submit(end_the_next)
            if how == "fenced":
                _act(lab, "stop", "node3")
            else:
                lab.fencing_works = False  # else the cluster boots it
                lab.kill("node3")
                lab.start("node3")
                lab.fencing_works = True
            ended.result()
        until(lab.is_whole)

    def test_a_node_whose_fencing_fails_stays_unclean_until_it_works(
        self, pacemaker_to_break: PacemakerLab
    ) -> None:
        lab, before = pacemaker_to_break, list(pacemaker_to_break.fenced)
        _act(lab, "fail-fencing", "node3")

        _act(lab, "kill", "node3")

        until(lambda: lab.status().nodes["node3"].unclean)
        assert (lab.fenced, lab.is_whole()) == (before, False)
        _act(lab, "mend-fencing", "node3")
        until(lambda: "node3" in lab.fenced[len(before) :])
        until(lab.is_whole)

    def test_a_partition_cuts_corosync_off_and_leaves_the_cib_open(
        self, pacemaker_to_break: PacemakerLab
    ) -> None:
        lab = pacemaker_to_break
        _act(lab, "fail-fencing", "node3")

        _act(lab, "partition", "node3")

        until(lambda: not lab.status("node3").quorum)
        until(lambda: lab.status("node1").quorum and not lab.status("node1").nodes["node3"].online)
        with socket.create_connection((lab.address("node3"), _CIB_PORT), WITHIN_S):
            pass
        _act(lab, "heal", "node3")
        _act(lab, "mend-fencing", "node3")
        until(lambda: lab.is_whole() or _is_pending_for_good(lab, "node3"))

    # `based` comes last. The fencer ends with it, and 2.1.5 does not always start that again: a cluster that is not
    # whole after this test is replaced.
    @pytest.mark.parametrize("daemon", ["attrd", "controld", "execd", "fenced", "schedulerd", "based"])
    def test_a_killed_daemon_is_started_again(self, pacemaker_to_break: PacemakerLab, daemon: str) -> None:
        lab, name = pacemaker_to_break, f"pacemaker-{daemon}"
        # The death of some daemons has the node fenced, be it after this: the next one's daemon is waited for.
        before = until(lambda: _kill_daemon(lab, "node2", name), "a daemon that runs")

        until(lambda: _daemon(lab, "node2", name) not in (before, None))
        if daemon != "based":
            until(lab.is_whole)

    def test_a_slow_disk_delays_what_waits_for_it(self, pacemaker_to_break: PacemakerLab) -> None:
        lab = pacemaker_to_break
        # One write a second: the file's data, its name and the file system's journal.
        _ask(lab, do="slow-disk", member="node1", writes_per_s=1)

        assert not lab.is_whole()
        assert _seconds_of_a_write(lab, "node1") >= 1
        assert _disk_limit(lab, "node2") == ""
        _act(lab, "free-disk", "node1")
        assert _disk_limit(lab, "node1") == ""
        until(lab.is_whole)

    def test_a_node_writes_what_is_changed_while_clients_log_in(
        self, pacemaker_to_break: PacemakerLab
    ) -> None:
        """A node's CIB daemon has a child that writes to the disk, and PAM one that checks a password: it must not miss
        the end of the first for the second, or it writes nothing any more, and boots with an old CIB."""
        lab = pacemaker_to_break
        with ThreadPoolExecutor(1) as beside:
            logins = beside.submit(lambda: [_online_by_client(lab, "anonymous") for _ in range(_LOGINS)])
            for number in itertools.count(20_000):
                _ask(lab, do="property", name="cluster-ipc-limit", value=str(number))
                if logins.done():
                    break
            logins.result()

        _ask(lab, do="property", name="cluster-ipc-limit", value=None)

        until(lambda: all(_epoch(_on_disk(lab, name)) == _epoch(lab.cib(name)) for name in lab.names))

    def test_a_property_is_set_and_deleted(self, pacemaker_to_break: PacemakerLab) -> None:
        lab = pacemaker_to_break

        _ask(lab, do="property", name="cluster-ipc-limit", value="20000")
        assert lab.status().properties["cluster-ipc-limit"] == "20000"

        _ask(lab, do="property", name="cluster-ipc-limit", value=None)
        assert "cluster-ipc-limit" not in lab.status().properties


def test_remote_nodes_are_joined_at_the_addresses_that_the_lab_tells(
    new_pacemaker: Callable[..., PacemakerLab],
) -> None:
    lab = new_pacemaker(nodes=1, remotes=2, properties={"cluster-ipc-limit": "1000"})
    assert lab.status().properties["cluster-ipc-limit"] == "1000"
    remotes = lab.describe()["remotes"]
    assert list(remotes) == ["remote1", "remote2"]

    wanted = "".join(
        f'<primitive id="{name}" class="ocf" provider="pacemaker" type="remote"><instance_attributes id="{name}-i">'
        f'<nvpair id="{name}-s" name="server" value="{address}"/></instance_attributes></primitive>'
        for name, address in remotes.items()
    )
    create = ["cibadmin", "--modify", "--allow-create", "--scope", "resources", "--xml-pipe"]
    lab.run_on("node1", *create, content=f"<resources>{wanted}</resources>")

    until(lambda: sorted(lab.online()) == ["node1", "remote1", "remote2"])


def test_another_release_with_certificates_lets_in_who_verifies_them(
    new_pacemaker: Callable[..., PacemakerLab],
) -> None:
    lab = new_pacemaker(nodes=2, release="trixie", tls=True)
    assert lab.describe()["pacemaker"].startswith("3.")
    assert "target.tls=verified" in lab.settings()

    assert _online_by_client(lab, "verified") == [lab.names] * 2


@pytest.mark.pacemaker
def test_certificates_are_refused_where_pacemaker_has_none() -> None:
    version = installed().version
    if installed().major >= 3:
        pytest.skip(f"this machine's Pacemaker is {version}, which has certificates")
    with pytest.raises(LabError) as refusal, PacemakerLab(tls=True):
        pass

    assert str(refusal.value) == (
        f"tls: Pacemaker {version}: expected Pacemaker 3: those before have anonymous TLS only"
    )


@pytest.mark.pacemaker
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind_whatever_ends_the_lab_program(number: signal.Signals) -> None:
    before = traces()
    with _program("--nodes", "1", "--remotes", "1") as (
        lab,
        told,
    ):
        name, address = Path(told["lab"]).parent.name, told["addresses"][0]
        made = traces(name, address) - before
        assert {kind for kind, _what in made} == {"process", "link", "directory", "cgroup"}
        assert any("corosync" in what for kind, what in made if kind == "process")
        # Nodes write to their disks, and who waits for a slow one cannot be killed.
        slow = {"do": "slow-disk", "member": "node1", "writes_per_s": 1}
        assert asyncio.run(ask_lab(Path(told["lab"]), slow)) == {"ok": True}
        for value in ("61s", "62s", "63s"):
            change = {"do": "property", "name": "cluster-delay", "value": value}
            assert asyncio.run(ask_lab(Path(told["lab"]), change)) == {"ok": True}

        lab.send_signal(number)

        assert lab.wait(WITHIN_S) == (-signal.SIGKILL if number == signal.SIGKILL else 0)
        until(lambda: not traces(name, address) - before)


@contextlib.contextmanager
def _program(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The lab as a program, and what it told."""
    command = [sys.executable, "-m", "lab.pacemaker.cluster", *options]
    lab = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert lab.stdout is not None
        assert select.select([lab.stdout], [], [], WITHIN_S)[0], "the lab said nothing"
        yield lab, json.loads(lab.stdout.readline())
    finally:
        lab.kill()
        lab.wait()
        for stream in (lab.stdin, lab.stdout):
            assert stream is not None
            stream.close()


def _is_pending_for_good(lab: PacemakerLab, name: str) -> bool:
    """Whether a node has joined again after partitions merged, and the cluster takes it for pending all the same, which
    is a fault of Pacemaker's own (docs/how-to/pacemaker.md): the DC has nothing more to do."""
    with contextlib.suppress(LabError):  # a node may be fenced meanwhile
        node = lab.status("node1").nodes[name]
        said = [lab.run_on(each, "crmadmin", "--status", each) for each in lab.names]
        return (
            node.online
            and node.pending
            and lab.status(name).quorum
            and any("S_IDLE" in each for each in said)
        )
    return False


def _act(lab: PacemakerLab, do: Any, member: str) -> None:
    """Act as a plan's fault does."""
    asyncio.run(LabControl(lab.socket).act(do, member))


def _ask(lab: PacemakerLab, **request: Any) -> dict[str, Any]:
    return asyncio.run(ask_lab(lab.socket, request))


def _mac(lab: PacemakerLab, node: str) -> str:
    (card,) = json.loads(lab.run_on(node, "ip", "-json", "link", "show", "eth0"))
    return card["address"]


def _kill_daemon(lab: PacemakerLab, node: str, name: str) -> int | None:
    """Kill a node's daemon as a plan's fault does; returns the pid that it had. None while it does not run."""
    before = _daemon(lab, node, name)
    with contextlib.suppress(UserError):
        asyncio.run(LabControl(lab.socket).act("kill-daemon", node, name))
        return before
    return None


def _daemon(lab: PacemakerLab, node: str, name: str) -> int | None:
    """The pid of a node's daemon; None while it does not run."""
    pids = lab.pids
    if node not in pids:
        return None
    with contextlib.suppress(OSError):
        own = os.readlink(f"/proc/{pids[node]}/ns/pid")
        for pid in pids_of(lab.directory.name):
            with contextlib.suppress(OSError):
                if read(pid, "comm").strip() == name[:15] and os.readlink(f"/proc/{pid}/ns/pid") == own:
                    return pid
    return None


def _groups(lab: PacemakerLab, node: str) -> list[Path]:
    """A node's control groups that can limit its disk."""
    return [
        Path(directory)
        for hierarchy in hierarchies()
        if hierarchy.kind == "cgroup2" or "blkio" in hierarchy.options.split(",")
        for directory, _directories, _files in os.walk(hierarchy.mount_point)  # others come and go meanwhile
        if directory.endswith(f"/{lab.directory.name}/{node}")
    ]


def _on_disk(lab: PacemakerLab, name: str) -> str:
    """The CIB that a node would boot with."""
    return lab.run_on(name, "cat", "/var/lib/pacemaker/cib/cib.xml")


def _epoch(cib: str) -> str:
    """The version of a CIB's configuration."""
    return re.findall(r' epoch="(\d+)"', cib)[0]


def _disk_limit(lab: PacemakerLab, node: str) -> str:
    """What the kernel limits a node's disk to; nothing without a limit."""
    files = (
        group / name
        for group in _groups(lab, node)
        for name in ("blkio.throttle.write_iops_device", "io.max")
    )
    return "".join(file.read_text() for file in files if file.exists())


def _seconds_of_a_write(lab: PacemakerLab, node: str) -> float:
    """How long a process of a node takes to write a file to the disk."""
    join = "; ".join(f"echo $$ > {group}/cgroup.procs" for group in _groups(lab, node))
    write = f"dd if=/dev/zero of={lab.directory / node / 'written'} bs=4096 count=1 conv=fsync status=none"
    begin = time.monotonic()
    subprocess.run(["sh", "-c", f"{join}; exec {write}"], check=True)
    return time.monotonic() - begin


def _online_by_client(lab: PacemakerLab, tls: Any) -> list[list[str]]:
    """The nodes that are online, as each node tells a client of its CIB."""

    async def ask() -> list[list[str]]:
        known = access(PacemakerTarget(kind="pacemaker", credentials=lab.credentials, tls=tls))
        told: list[list[str]] = []
        for address in known.addresses:
            async with asyncio.timeout(WITHIN_S):
                connection = await Connection.connect(
                    address, known.port, known.tls, known.user, known.password, lambda _: None
                )
                answer = await connection.call("cib_query", None, None, SYNC | LOCAL)
                connection.close("done")
            told.append(sorted(read_status(answer.body).online))
        return told

    return asyncio.run(ask())
