"""The etcd lab does what it says to real processes, and leaves nothing behind whatever ends it."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.control import LabError
from lab.etcd.cluster import EtcdLab
from lab.etcd.programs import find_etcd, flavor
from lab.exporters import Exporters
from lab.figures import ServedFigures, quota_figures
from tests.functional.program import CHECKOUT, command, until
from tippingpoint.errors import UserError
from tippingpoint.play.faults import LabControl

_SOON_S = 600.0


def test_a_new_cluster_has_one_leader_and_answers_on_every_endpoint(etcd: EtcdLab) -> None:
    assert etcd.names == ["m1", "m2", "m3"]
    assert [_put(endpoint, "/lab/new", "1") for endpoint in etcd.endpoints] == [200, 200, 200]
    assert [member["name"] for member in etcd.members() if member["leader"]] == [etcd.leader()]


def test_a_killed_member_is_dead_at_once_and_the_others_elect_a_leader(etcd_private: EtcdLab) -> None:
    first = etcd_private.leader()
    pid = etcd_private.pids[first]

    etcd_private.kill(first)

    assert not _alive(pid)
    assert first not in etcd_private.pids
    assert etcd_private.leader() != first


def test_a_member_with_a_quota_gets_no_more_of_a_core_than_that() -> None:
    # given an etcd that may use a twentieth of a core, and more requests than it can answer with that
    with EtcdLab(members=1, cpu=0.05) as lab:
        pid = lab.pids["m1"]
        before, since = _cpu_seconds(pid), time.monotonic()
        for number in range(100):
            assert _put(lab.endpoints[0], f"/lab/{number}", "1") == 200
        used, lasted = _cpu_seconds(pid) - before, time.monotonic() - since
    # then it used no more in any tenth of a second, of which the first and the last may be cut
    assert used <= 0.05 * (lasted + 0.2) + 0.02


def test_members_with_a_quota_below_a_core_run_on_one_core_each_by_turns() -> None:
    # given three members, of which two may use less than a core
    cores = sorted(os.sched_getaffinity(0))
    with EtcdLab(members=3, cpu={"m1": 0.3, "m3": 0.3}) as lab:
        runs_on = {name: _cores_of(pid) for name, pid in lab.pids.items()}
        # then each thread of those two is on one core, as that of a small machine is, and the third is not bound
        assert runs_on["m1"] == [{cores[0]}]
        assert runs_on["m2"] == [set(cores)]
        assert runs_on["m3"] == [{cores[2 % len(cores)]}]


def test_a_group_tells_as_cadvisor_would_how_often_its_quota_was_used_up() -> None:
    # given one slow member of three, whose quota its own elections and requests use up
    with EtcdLab(members=3, cpu={"m2": 0.02}) as lab, ServedFigures() as figures:
        assert list(lab.groups) == ["m2"]
        address = figures.serve(lambda: quota_figures(lab.groups["m2"]))
        for number in range(20):
            assert _put(lab.endpoints[1], f"/lab/{number}", "1") == 200
        with urllib.request.urlopen(f"http://{address}/metrics") as answer:
            told = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines())
    periods, throttled = (
        int(told[f'container_cpu_cfs_{of}_total{{id="/m2"}}']) for of in ("periods", "throttled_periods")
    )
    assert 0 < throttled <= periods


def test_a_slow_disk_makes_no_more_writes_than_that() -> None:
    # given an etcd whose disk makes 20 writes a second, and 8 changes, each of which waits for one or more
    with EtcdLab(members=1, writes=20) as lab:
        since = time.monotonic()
        for number in range(8):
            assert _put(lab.endpoints[0], f"/lab/{number}", "1") == 200
        # then they take 0.4 s at least, but for what the kernel lets through at once
        assert time.monotonic() - since > 0.2


def test_a_disk_is_slow_from_one_request_to_the_other(etcd_private: EtcdLab) -> None:
    # given a member that leads, and may make two writes a second
    control = LabControl(etcd_private.socket)
    for do in ("move-leader", "slow-disk"):
        asyncio.run(control.act(do, "m1"))
    since = time.monotonic()
    assert _put(etcd_private.endpoints[0], "/lab/slow", "1") in (200, 503)
    assert _put(etcd_private.endpoints[0], "/lab/slow", "2") in (200, 503)
    assert time.monotonic() - since > 0.2
    # when that ends, then it serves, and another limit ends with the member
    asyncio.run(control.act("free-disk", "m1"))
    etcd_private.leader()
    assert _put(etcd_private.endpoints[0], "/lab/slow", "3") == 200
    asyncio.run(control.act("slow-disk", "m1"))
    etcd_private.kill("m1")
    etcd_private.start("m1")
    assert _put(etcd_private.endpoints[0], "/lab/slow", "4") == 200


def test_a_feature_gate_that_an_etcd_does_not_have_is_refused() -> None:
    with pytest.raises(LabError) as refusal, EtcdLab(members=1, feature_gates="Nonsense=true"):
        pass
    gates = ", ".join(flavor(find_etcd()).gates)
    expected = f"=true or =false for one of {gates}" if gates else "none before etcd 3.6"
    assert str(refusal.value) == f"feature_gates: Nonsense=true: expected {expected}"


@pytest.mark.parametrize("own_card", [False, True])
def test_a_thin_network_carries_no_more_than_that_and_scrapes_pass_it_by(own_card: bool) -> None:
    # given an etcd behind 400 kbit/s, and a value of 100 kB that is read there
    with EtcdLab(members=1, bits=400_000, own_card=own_card) as lab, Exporters() as exporters:
        assert _put(lab.endpoints[0], "/lab/large", "x" * 100_000) == 200
        since = time.monotonic()
        assert len(_get(lab.endpoints[0], "/lab/large")) == 100_000
        # then it takes two seconds, but for what the queue takes at once
        assert time.monotonic() - since > 1
        # and its figures and those of its network are on ports of their own
        found = lab.scraped(exporters)
        addresses = [target for job in found.jobs for group in job.groups for target in group.targets]
        texts: list[str] = []
        for address in addresses:
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                texts.append(answer.read().decode())
    assert "\netcd_server_has_leader 1" in texts[0]
    # which show where the packets waited: they were lost on a line, and none was on a card of its own
    sent_again = float(re.findall(r"^node_netstat_Tcp_RetransSegs (\S+)", texts[1], re.MULTILINE)[0])
    assert (sent_again < 2) == own_card
    assert ('\nnode_qdisc_backlog{device="eth0",kind="htb"} ' in texts[1]) == own_card


def test_a_thin_network_is_for_one_plain_member() -> None:
    with pytest.raises(LabError, match=r"^bits: 1000 with more than one member"):
        EtcdLab(members=3, bits=1000)


def test_a_quota_too_small_for_the_kernel_is_refused() -> None:
    with pytest.raises(LabError, match=r"cpu: 0\.001: expected at least 0\.01 of a core"):
        EtcdLab(cpu=0.001)


def test_a_started_member_has_its_data_and_its_address_again(etcd_private: EtcdLab) -> None:
    endpoint = etcd_private.endpoints[0]
    _put(endpoint, "/lab/kept", "before")
    pid = etcd_private.pids["m1"]

    etcd_private.kill("m1")
    etcd_private.start("m1")

    assert etcd_private.pids["m1"] != pid
    assert _get(endpoint, "/lab/kept") == "before"


def test_a_quorum_lost_and_found_again(etcd_private: EtcdLab) -> None:
    etcd_private.leader()
    etcd_private.kill("m1")
    etcd_private.kill("m2")

    with pytest.raises(LabError, match="leader: none: expected 2 of 3 members running"):
        etcd_private.leader()
    etcd_private.start("m1")
    etcd_private.start("m2")

    assert [_put(endpoint, "/lab/back", "1") for endpoint in etcd_private.endpoints] == [200, 200, 200]


def test_a_stopped_member_lives_and_answers_nothing_until_it_continues(etcd_private: EtcdLab) -> None:
    endpoint = etcd_private.endpoints[1]

    etcd_private.stop("m2")

    assert [member["running"] for member in etcd_private.members()] == [True, False, True]
    assert "m2" in etcd_private.pids
    with pytest.raises(TimeoutError):
        _put(endpoint, "/lab/stopped", "1", timeout=0.5)
    etcd_private.resume("m2")
    assert _put(endpoint, "/lab/stopped", "1") == 200


@pytest.mark.parametrize(
    ("do", "problem"),
    [
        (lambda lab: lab.kill("m9"), "member: 'm9': expected one of m1"),
        (lambda lab: lab.start("m1"), "m1: is running: expected a member that is dead"),
        (lambda lab: (lab.kill("m1"), lab.kill("m1")), "m1: is dead: expected a member that is running"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    new_etcd: Callable[..., EtcdLab], do: Callable[[EtcdLab], object], problem: str
) -> None:
    lab = new_etcd(members=1)

    with pytest.raises(LabError) as refusal:
        do(lab)

    assert str(refusal.value) == problem


def test_faults_act_on_real_members_through_the_control_socket(etcd_private: EtcdLab) -> None:
    control = LabControl(etcd_private.socket)

    async def scenario() -> tuple[list[bool], list[bool]]:
        await control.act("kill", "m3")
        killed = [member.running for member in await control.members()]
        await control.act("start", "m3")
        return killed, [member.running for member in await control.members()]

    assert asyncio.run(scenario()) == ([True, True, False], [True, True, True])
    assert stat.S_IMODE(etcd_private.socket.stat().st_mode) == 0o600
    assert _put(etcd_private.endpoints[2], "/lab/control", "1") == 200


def test_a_member_started_through_the_control_socket_outlives_the_connection(etcd_private: EtcdLab) -> None:
    control = LabControl(etcd_private.socket)
    asyncio.run(control.act("kill", "m1"))
    asyncio.run(control.act("start", "m1"))
    pid = etcd_private.pids["m1"]

    asyncio.run(control.members())  # by now the thread that served `start` is gone

    assert etcd_private.pids["m1"] == pid


def test_the_control_socket_names_the_members_there_are(etcd: EtcdLab) -> None:
    with pytest.raises(UserError) as refusal:
        asyncio.run(LabControl(etcd.socket).act("kill", "m4"))

    assert str(refusal.value) == "lab: member: 'm4': expected one of m1, m2, m3"


def test_with_tls_only_a_client_certificate_is_let_in(new_etcd: Callable[..., EtcdLab]) -> None:
    lab = new_etcd(members=1, tls=True)
    assert (lab.ca, lab.cert, lab.key) != (None, None, None)
    assert lab.endpoints[0].startswith("https://127.0.0.1:")

    def health(*options: str | Path | None) -> bool:
        command = [sys.executable, "-c", _HEALTH, lab.endpoints[0], *map(str, options)]
        return subprocess.run(command, capture_output=True, timeout=_SOON_S, check=False).returncode == 0

    assert health(lab.ca, lab.cert, lab.key)
    assert not health(lab.ca)
    assert lab.key is not None
    assert stat.S_IMODE(lab.key.stat().st_mode) == 0o600


def test_with_auth_a_user_may_write_below_its_prefix_only(new_etcd: Callable[..., EtcdLab]) -> None:
    lab = new_etcd(members=1, auth=True)
    assert lab.credentials is not None
    assert stat.S_IMODE(lab.credentials.stat().st_mode) == 0o600
    login: dict[str, str] = yaml.safe_load(lab.credentials.read_text())
    answer = _call(
        lab.endpoints[0],
        "/v3/auth/authenticate",
        {"name": login["username"], "password": login["password"]},
    )
    token: str = answer[1]["token"]

    assert _put(lab.endpoints[0], "/tippingpoint/x", "1", token=token) == 200
    assert _put(lab.endpoints[0], "/elsewhere", "1", token=token) == 403
    assert _put(lab.endpoints[0], "/tippingpoint/x", "1") != 200


def test_a_member_that_will_not_start_is_explained_by_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "etcd"
    broken.write_text("#!/bin/sh\necho 'listen tcp: address already in use' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("TIPPINGPOINT_ETCD", str(broken))

    with pytest.raises(LabError) as refusal, EtcdLab(members=1):
        pass

    assert str(refusal.value) == (
        "m1: did not start: listen tcp: address already in use: expected a healthy member"
    )


def test_an_etcd_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIPPINGPOINT_ETCD", "/nowhere/etcd")

    with pytest.raises(LabError, match="TIPPINGPOINT_ETCD: /nowhere/etcd: expected an executable etcd"):
        EtcdLab().__enter__()


def test_a_closed_lab_leaves_no_process_and_no_directory() -> None:
    with EtcdLab(members=1) as lab:
        pid = lab.pids["m1"]

    assert not _alive(pid)
    assert not lab.directory.exists()


def test_a_given_directory_is_kept_with_the_logs(tmp_path: Path) -> None:
    with EtcdLab(members=1, directory=tmp_path / "mine"):
        pass

    assert (tmp_path / "mine" / "m1.log").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_the_members_die_with_the_lab_program_whatever_ends_it(number: signal.Signals) -> None:
    with _program() as (lab, told, pids):
        lab.send_signal(number)

        assert lab.wait(_SOON_S) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
        until(lambda: not any(_alive(pid) for pid in pids))
        until(lambda: not Path(told["lab"]).parent.exists())


def test_the_lab_program_ends_with_its_standard_input() -> None:
    with _program() as (lab, _told, pids):
        assert lab.stdin is not None
        lab.stdin.close()

        assert lab.wait(_SOON_S) == 0
        assert not any(_alive(pid) for pid in pids)
        assert lab.stderr is not None
        assert lab.stderr.read() == b"the lab has stopped, and its data is removed\n"


def test_commands_in_the_directory_of_a_lab_find_it_while_it_is_up(tmp_path: Path) -> None:
    # given a lab that was started in a directory, as by `./scripts/lab up etcd`
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    environment.pop("TIPPINGPOINT_TARGET", None)
    lab = [sys.executable, "-m", "lab.etcd.cluster", "--how-to", "--members", "1"]
    with subprocess.Popen(
        lab, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as up:
        assert up.stdout is not None
        assert up.stdin is not None
        next(line for line in up.stdout if "need no --set while it runs" in line)
        # when a plan is checked there that names no target, and then the lab stops
        check = command("check", "etcd-ramp")
        done = subprocess.run(
            check, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        up.stdin.close()
        assert up.wait(_SOON_S) == 0
    # then the plan was for the lab, and nothing points at it any more
    assert (done.returncode, done.stderr) == (0, "tippingpoint: on the etcd of .tippingpoint\n")
    assert "etcd accepts the login" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_lab_with_prometheus_is_scraped_and_its_ports_are_the_same_the_next_time() -> None:
    """Given a lab that was started and stopped, as by `./scripts/lab up etcd --prometheus`."""
    with _program("--tls", "--prometheus") as (_lab, first, _pids):
        query = f"{first['prometheus']}/api/v1/query?query=min(up)"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(query) as answer:
            up = json.load(answer)["data"]["result"][0]["value"][1]
    with _program("--tls", "--prometheus") as (_lab, second, _pids):
        pass

    assert up == "1"
    assert (first["endpoints"], first["prometheus"]) == (second["endpoints"], second["prometheus"])


_HEALTH = """
import ssl, sys, urllib.request
endpoint, ca, *pair = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
if pair:
    context.load_cert_chain(*pair)
direct, https = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
urllib.request.build_opener(direct, https).open(endpoint + "/health", timeout=60)
"""


@contextmanager
def _program(*options: str) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any], list[int]]]:
    """The lab as a program, what it told, and its members' pids."""
    lab = subprocess.Popen(
        [sys.executable, "-m", "lab.etcd.cluster", "--members", "3", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert lab.stdout is not None
        told: dict[str, Any] = json.loads(lab.stdout.readline())
        members = asyncio.run(LabControl(Path(told["lab"])).members())
        yield lab, told, [member.pid for member in members if member.pid is not None]
    finally:
        lab.kill()
        lab.wait()
        for stream in (lab.stdin, lab.stdout, lab.stderr):
            assert stream is not None
            stream.close()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _put(endpoint: str, key: str, value: str, timeout: float = _SOON_S, token: str | None = None) -> int:
    body = {"key": _base64(key), "value": _base64(value)}
    return _call(endpoint, "/v3/kv/put", body, timeout, token)[0]


def _get(endpoint: str, key: str) -> str:
    _status, answer = _call(endpoint, "/v3/kv/range", {"key": _base64(key)})
    return b64decode(answer["kvs"][0]["value"]).decode()


def _call(
    endpoint: str, path: str, body: dict[str, str], timeout: float = _SOON_S, token: str | None = None
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=timeout)
    try:
        connection.request("POST", path, json.dumps(body), {"Authorization": token} if token else {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def _cores_of(pid: int) -> list[set[int]]:
    """The different sets of cores on which threads of a process may run."""
    of_threads = [os.sched_getaffinity(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()]
    return [cores for place, cores in enumerate(of_threads) if cores not in of_threads[:place]]


def _cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
