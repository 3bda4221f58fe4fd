"""The LXD lab does what it says to real daemons, and leaves nothing behind whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import select
import signal
import ssl
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from lab.lxd.cluster import LxdLab
from lab.lxd.unix_socket import ask
from lab.places import split
from tests.functional.lxd.lxd_runs import await_online, eventually
from tests.functional.program import WITHIN_S, until
from tests.functional.traces import pids_of, read, traces
from tippingpoint.errors import UserError
from tippingpoint.play.faults import LabControl
from tippingpoint.targets.lxd.image import tiny_image

pytestmark = pytest.mark.lxd


@pytest.fixture(scope="module")
def cluster() -> Iterator[LxdLab]:
    """A cluster of 3 whose members every test may kill, and brings back."""
    with LxdLab(members=3, most=4) as lab:
        lab.image("tiny")
        yield lab


def test_a_new_cluster_has_its_members_online_and_one_leader(lxd: LxdLab) -> None:
    assert lxd.names == [f"m{number}" for number in range(1, 11)]
    eventually(lambda: [lxd.status(name) for name in ("m1", "m2", "m3", "m4")] == ["ONLINE"] * 3 + [""])
    eventually(lambda: [member["name"] for member in lxd.members() if member["leader"]] == [lxd.leader()])
    assert [member["running"] for member in lxd.members()] == [True] * 3 + [False] * 7


def test_a_client_with_the_credentials_is_let_in_by_every_member(lxd: LxdLab) -> None:
    assert stat.S_IMODE(lxd.credentials.stat().st_mode) == 0o600
    access: dict[str, Any] = yaml.safe_load(lxd.credentials.read_text())

    assert access["addresses"] == lxd.addresses
    eventually(lambda: [_auth(lxd, address) for address in access["addresses"]] == ["trusted"] * 3)


def test_the_lxc_client_finds_the_lab_by_its_remote(lxd: LxdLab) -> None:
    listed = json.loads(_lxc(str(lxd.remote_directory()), "cluster", "list", "lab:", "--format=json"))

    assert [member["server_name"] for member in listed] == ["m1", "m2", "m3"]
    assert stat.S_IMODE((lxd.remote_directory() / "client.key").stat().st_mode) == 0o600


def test_a_single_server_runs_a_container_that_is_reached(lxd_single: LxdLab) -> None:
    lxd_single.lxc("launch", "tiny", "reached")
    try:
        # (on a busy machine lxc now and then ends before what was said has come)
        eventually(lambda: lxd_single.lxc("exec", "reached", "--", "hostname").strip() == "reached")
        eventually(lambda: "10.92." in lxd_single.lxc("list", "reached", "--format=csv", "-c4"))
    finally:
        lxd_single.lxc("delete", "--force", "reached")


def test_a_single_server_comes_back_with_its_containers_running(new_lxd: Callable[..., LxdLab]) -> None:
    lab = new_lxd(members=1, clustered=False)
    lab.image("tiny")
    lab.lxc("launch", "tiny", "c1")
    init = _init_pid(lab, "c1")

    lab.kill("m1")
    assert not _alive(init)
    lab.start("m1")

    eventually(lambda: lab.lxc("list", "--format=csv", "-cns").strip() == "c1,RUNNING")


def test_a_daemon_and_its_containers_run_on_the_processors_of_their_target(
    new_lxd: Callable[..., LxdLab],
) -> None:
    places = split(os.sched_getaffinity(0))
    lab = new_lxd(members=1, clustered=False, places=places)
    lab.image("tiny")
    lab.lxc("launch", "tiny", "placed")
    runs_on = [os.sched_getaffinity(pid) for pid in (lab.pids["m1"], _init_pid(lab, "placed"))]
    assert runs_on == [set(places.target)] * 2


def test_a_full_pool_has_no_room_for_a_container(lxd_single: LxdLab) -> None:
    with lxd_single.full_pool() as pool, pytest.raises(LabError, match="run out of disk space"):
        lxd_single.lxc("init", "tiny", "full", "-s", pool)

    assert lxd_single.lxc("storage", "list", "--format=csv").count("\n") == 1


def test_a_killed_member_is_gone_with_its_containers_and_comes_back_with_them(cluster: LxdLab) -> None:
    cluster.lxc("launch", "tiny", "kept", "--target=m3")
    pids = [cluster.pids["m3"], _init_pid(cluster, "kept")]

    cluster.kill("m3")

    assert not any(_alive(pid) for pid in pids)
    assert "m3" not in cluster.pids
    eventually(lambda: cluster.status("m3") == "OFFLINE")
    cluster.start("m3")
    eventually(lambda: cluster.status("m3") == "ONLINE")
    eventually(lambda: cluster.lxc("list", "--format=csv", "-cnsL").strip() == "kept,RUNNING,m3")


def test_a_member_that_was_evicted_joins_again_blank(cluster: LxdLab) -> None:
    cluster.lxc("init", "tiny", "lost", "--target=m2")
    cluster.kill("m2")
    cluster.lxc("cluster", "remove", "--force", "--yes", "m2")
    assert cluster.status("m2") == ""

    cluster.start("m2")

    eventually(lambda: cluster.status("m2") == "ONLINE")
    assert cluster.lxc("list", "lost", "--format=csv") == ""
    cluster.lxc("init", "tiny", "lost", "--target=m2")  # it takes containers, of the same name too
    cluster.lxc("delete", "lost")


def test_a_member_that_never_was_joins(cluster: LxdLab) -> None:
    assert "m4" not in cluster.pids

    cluster.start("m4")

    eventually(lambda: cluster.status("m4") == "ONLINE")
    assert cluster.address("m4") in cluster.addresses
    eventually(
        lambda: _auth(cluster, cluster.address("m4")) == "trusted"
    )  # it learns whom to trust after it joins
    cluster.kill("m4")
    cluster.lxc("cluster", "remove", "--force", "--yes", "m4")


def test_a_cluster_without_a_quorum_is_asked_again_until_it_has_one(cluster: LxdLab) -> None:
    await_online(cluster)
    for name in ("m2", "m3"):
        cluster.kill(name)

    # (the leader only learns after a while that it leads nobody)
    until(lambda: _failure(cluster, "/1.0/projects"), "the database has no leader")
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(cluster.query, "/1.0/projects")
        assert _failure(cluster, "/1.0/projects")
        for name in ("m2", "m3"):
            cluster.start(name)

        assert asked.result(WITHIN_S) == ["/1.0/projects/default"]


def test_a_machine_that_was_killed_answers_nothing_from_then_on(cluster: LxdLab) -> None:
    cluster.kill("m3")
    assert _auth(cluster, cluster.address("m3")) == "silent"
    cluster.start("m3")
    eventually(lambda: _auth(cluster, cluster.address("m3")) == "trusted")


def test_faults_act_on_real_members_through_the_control_socket(cluster: LxdLab) -> None:
    control = LabControl(cluster.socket)
    assert stat.S_IMODE(cluster.socket.stat().st_mode) == 0o600

    asyncio.run(control.act("partition", "m3"))
    assert _auth(cluster, cluster.address("m3")) == "silent"
    assert asyncio.run(control.members())[2].running  # it does not know that nobody hears it
    asyncio.run(control.act("heal", "m3"))
    eventually(lambda: _auth(cluster, cluster.address("m3")) == "trusted")

    asyncio.run(control.act("stop", "m3"))
    assert [member.running for member in asyncio.run(control.members())][:3] == [True, True, False]
    assert _auth(cluster, cluster.address("m3")) == "silent"
    asyncio.run(control.act("continue", "m3"))
    assert [member.running for member in asyncio.run(control.members())][:3] == [True, True, True]
    eventually(lambda: _auth(cluster, cluster.address("m3")) == "trusted")


@pytest.mark.parametrize(
    ("do", "problem"),
    [
        (lambda lab: lab.kill("m99"), "member: 'm99': expected one of m1, m2, m3, m4"),
        (lambda lab: lab.start("m1"), "m1: is running: expected a member that is dead"),
        (lambda lab: lab.partition("m4"), "m4: is dead: expected a member that is running"),
        (lambda lab: lab.heal("m4"), "m4: is dead: expected a member that is running"),
        (
            lambda lab: lab.lxc("launch", "nothing", "c"),
            "lxc launch nothing c: Error: Image not found: expected success",
        ),
        (lambda _lab: LxdLab(members=0), "members: 0: expected at least 1"),
        (lambda _lab: LxdLab(members=3, clustered=False), "members: 3: expected 1, or a cluster"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    cluster: LxdLab, do: Callable[[LxdLab], object], problem: str
) -> None:
    with pytest.raises(LabError) as refusal:
        do(cluster)

    assert str(refusal.value) == problem


def test_an_lxd_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(LabError, match="lxd: not found: expected the packages"):
        LxdLab().__enter__()


def test_a_daemon_that_will_not_start_is_explained_by_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "lxd"
    broken.write_text("#!/bin/sh\necho 'Error: no database' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    before = traces()
    lab = LxdLab(members=2)

    with pytest.raises(LabError) as refusal, lab:
        pass

    assert str(refusal.value) == "m1: did not start: Error: no database: expected a member that serves"
    # (the kernel takes down the network of a machine that ended a moment later)
    until(lambda: not traces(lab.directory.name, lab.address("m1")) - before, "nothing is left of it")


def test_etcd_cannot_cut_its_members_off(etcd: EtcdLab) -> None:
    with pytest.raises(UserError) as refusal:
        asyncio.run(LabControl(etcd.socket).act("partition", "m1"))

    assert str(refusal.value) == (
        "lab: do: 'partition': expected one of kill, stop, continue, start, members, places, "
        "compact, defrag, snapshot, move-leader, fill-quota, free-quota, free-disk, slow-disk"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_behind_whatever_ends_the_lab_program(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "image").write_bytes(tiny_image("left"))
    before = traces()
    with _program() as (lab, told):
        name = Path(told["lab"]).parent.name
        _lxc(told["remote"], "image", "import", str(tmp_path / "image"), "lab:", "--alias=tiny")
        _lxc(told["remote"], "launch", "lab:tiny", "lab:left")
        until(lambda: any(read(pid, "comm").strip() == "udhcpc" for pid in pids_of(name)))
        made = traces(name, told["addresses"][0]) - before
        assert {kind for kind, _what in made} == {"process", "link", "directory", "cgroup"}
        assert any(kind == "cgroup" and "lxc.payload.left" in what for kind, what in made)

        lab.send_signal(number)

        assert lab.wait(WITHIN_S) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
        until(lambda: not traces(name, told["addresses"][0]) - before)


@contextlib.contextmanager
def _program() -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The lab of a single server as a program, and what it told."""
    lab = subprocess.Popen(
        [sys.executable, "-m", "lab.lxd.cluster", "--single"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
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


def _init_pid(lab: LxdLab, container: str) -> int:
    """The pid of a container's first process, as seen here and not on its machine.

    LXC calls a container running before that process is its init.
    """

    def found() -> int | None:
        for pid in pids_of(lab.directory.name):
            if f"/lxc.payload.{container}" in read(pid, "cgroup") and read(pid, "comm").strip() == "init":
                return pid
        return None

    pid = until(found, f"{container} has a first process")
    assert pid is not None
    return pid


def _failure(lab: LxdLab, path: str) -> str:
    """Why the first member does not tell what a path of the API has; empty if it does."""
    try:
        ask(lab.unix_socket(), "GET", path)
    except LabError as problem:
        return str(problem)
    return ""


def _alive(pid: int) -> bool:
    return read(pid, "stat").rpartition(")")[2].split()[:1] not in ([], ["Z"])


def _lxc(configuration: str, *arguments: str) -> str:
    """What the lxc client prints with this configuration."""
    environment = {"LXD_CONF": configuration, "PATH": os.environ["PATH"]}
    ran = subprocess.run(["lxc", *arguments], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout


def _auth(lab: LxdLab, address: str) -> str:
    """Whether a member trusts the lab's client certificate; `silent` when nothing at all answers."""
    at = urlsplit(address)
    remote = lab.remote_directory()
    context = ssl.create_default_context(cafile=str(remote / "servercerts" / "lab.crt"))
    context.check_hostname = False
    context.load_cert_chain(remote / "client.crt", remote / "client.key")
    connection = http.client.HTTPSConnection(at.hostname or "", at.port, timeout=5, context=context)
    try:
        connection.request("GET", "/1.0")
        return json.loads(connection.getresponse().read())["metadata"]["auth"]
    except ConnectionError as problem:
        return type(problem).__name__
    except (
        OSError
    ):  # no answer in time, or "no route to host": the kernel gives up a silent neighbour after 3 s
        return "silent"
    finally:
        connection.close()
