"""The OpenStack lab does what it says to a real control plane, and leaves nothing behind whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.ask import ask
from lab.control import LabError
from lab.openstack.cloud import OpenstackLab
from lab.openstack.programs import PYTHON
from tests.functional.openstack.openstack_runs import LONG_S, counts, plan_of, run_in
from tests.functional.program import CHECKOUT, start, until
from tests.functional.spawn_runs import ended
from tippingpoint.play.faults import LabControl

pytestmark = pytest.mark.openstack

_SOON_S = 60.0
"""What takes a tenth of a second takes no longer."""
_LOOKS_EVERY_S = 1.0
"""Each look is a call of services that have enough to do."""
_eventually = partial(until, within=LONG_S, every=_LOOKS_EVERY_S)


@pytest.fixture
def cloud(openstack_to_break: OpenstackLab) -> OpenstackLab:
    return openstack_to_break


@pytest.fixture
def nothing_added(cloud: OpenstackLab) -> Iterator[None]:
    """The databases have after a test what they had before."""
    before = cloud.counts()
    yield
    for server in cloud.admin.get("compute", "/servers?all_tenants=1")["servers"]:
        cloud.admin.delete("compute", f"/servers/{server['id']}")
    with contextlib.suppress(AssertionError):
        _eventually(lambda: cloud.counts() == before)
    assert cloud.counts() == before


def test_a_server_boots_for_an_ordinary_user_with_a_port_that_becomes_active(
    cloud: OpenstackLab, nothing_added: None
) -> None:
    server = _boot(cloud)

    assert server["status"] == "ACTIVE", server.get("fault")
    assert server["addresses"][cloud.network][0]["addr"].startswith("10.99.")
    assert server["OS-EXT-SRV-ATTR:host"] in cloud.hosts
    assert server["tenant_id"] == cloud.project
    (port,) = cloud.tenant.get("network", f"/v2.0/ports?device_id={server['id']}")["ports"]
    _eventually(lambda: _port(cloud, port["id"])["status"] == "ACTIVE")
    assert _port(cloud, port["id"])["binding:vif_type"] == "ovs"
    assert _port(cloud, port["id"])["binding:host_id"] == server["OS-EXT-SRV-ATTR:host"]
    assert (cloud.count("servers"), cloud.count("ports"), cloud.count("allocations")) == (1, 1, 1)


def test_the_clouds_are_an_ordinary_user_by_password_and_credential_and_an_administrator(
    cloud: OpenstackLab,
) -> None:
    clouds: dict[str, Any] = yaml.safe_load(cloud.clouds.read_text())["clouds"]
    assert stat.S_IMODE(cloud.clouds.stat().st_mode) == 0o600
    assert {cloud["cacert"] for cloud in clouds.values()} == {str(cloud.ca)}
    assert {cloud["auth"]["auth_url"] for cloud in clouds.values()} == {cloud.auth_url}

    application = clouds["tippingpoint-app"]["auth"]
    credential = {
        "id": application["application_credential_id"],
        "secret": application["application_credential_secret"],
    }
    identity = {"methods": ["application_credential"], "application_credential": credential}
    by_credential = _roles(_token(cloud, cloud.auth_url, identity, None))
    ordinary, administrator = (
        _roles(_token_by_password(cloud, clouds[name]["auth"])) for name in ("tippingpoint", "admin")
    )

    assert ordinary == by_credential
    assert "member" in ordinary
    assert "admin" not in ordinary
    assert "admin" in administrator


def test_a_client_that_does_not_have_the_authority_is_not_led_on(cloud: OpenstackLab) -> None:
    services = ["compute", "image", "network", "placement"]
    urls = [cloud.auth_url, *(cloud.admin.endpoint(service) for service in services)]

    assert [_opening(url, None) for url in urls] == ["SSLCertVerificationError"] * 5
    assert [_opening(url, cloud.ca) for url in urls[:1]] == ["200"]


_TWO_THREADS = """
import logging, os, runpy, sys, threading
import eventlet  # as OpenStack's libraries do
sys.path.insert(0, sys.argv[2])
sys.setswitchinterval(1e-6)
runpy.run_path(sys.argv[1])

def lock():
    for _ in range(5000):
        with logging._lock:
            pass

threads = [threading.Thread(target=lock, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(float(sys.argv[3]))
print([thread.is_alive() for thread in threads], flush=True)
os._exit(0)  # without waiting for those that hang
"""
_LOGGING_APPLICATION = """
from oslo_config import cfg
from oslo_log import log

def make():
    log.register_options(cfg.CONF)
    cfg.CONF([])
    log.setup(cfg.CONF, "made")
"""


def test_threads_of_a_service_that_log_at_once_do_not_wait_for_ever(tmp_path: Path) -> None:
    """Given the log of OpenStack's services, in which a thread that meets another one at its lock was never woken: that
    of Glance did not answer, nor did Nova, which waited for it, in a busy cloud's first minutes."""
    (tmp_path / "made.py").write_text(_LOGGING_APPLICATION)
    made = {**os.environ, "LAB_APPLICATION": "made:make", "LAB_DELAY": str(tmp_path / "delay")}
    service = str(CHECKOUT / "lab" / "openstack" / "wsgi.py")
    line = [PYTHON, "-I", "-c", _TWO_THREADS, service, str(tmp_path), str(_SOON_S)]

    done = subprocess.run(line, env=made, capture_output=True, text=True, check=False)

    assert done.stdout == "[False, False]\n", done.stderr


def test_each_broker_carries_the_messages_of_one_service(cloud: OpenstackLab, nothing_added: None) -> None:
    before = {name: _published(address) for name, address in cloud.metrics.items()}

    _boot(cloud)

    def added() -> dict[str, dict[str, float]]:
        now = {name: _published(address) for name, address in cloud.metrics.items()}
        return {
            name: {vhost: number - before[name].get(vhost, 0) for vhost, number in vhosts.items()}
            for name, vhosts in now.items()
        }

    _eventually(lambda: added()["broker-1"]["nova"] > 10 and added()["broker-2"]["neutron"] > 1)
    assert "neutron" not in _published(cloud.metrics["broker-1"])
    assert "nova" not in _published(cloud.metrics["broker-2"])


def test_a_killed_compute_and_a_killed_agent_are_told_down_and_then_up_again(
    cloud: OpenstackLab, nothing_added: None
) -> None:
    everywhere = set(cloud.hosts)
    _eventually(lambda: _computes(cloud) == everywhere)
    pids = cloud.pids

    cloud.kill("compute-1")
    cloud.kill("agent-1")

    assert not Path(f"/proc/{pids['compute-1']}").exists()
    assert not Path(f"/proc/{pids['agent-1']}").exists()
    _eventually(lambda: _computes(cloud) == everywhere - {"compute-1"})
    _eventually(lambda: _agents(cloud) == everywhere - {"compute-1"})
    server = _boot(cloud)
    assert server["status"] == "ACTIVE", server.get("fault")
    assert server["OS-EXT-SRV-ATTR:host"] in everywhere - {"compute-1"}
    cloud.start("agent-1")
    cloud.start("compute-1")
    _eventually(lambda: _computes(cloud) == everywhere)
    _eventually(lambda: _agents(cloud) == everywhere)


def test_an_agent_that_comes_back_brings_up_the_ports_it_missed(
    cloud: OpenstackLab, nothing_added: None
) -> None:
    cloud.kill("agent-2")  # for shorter than it takes to be noticed
    port = _make_port(cloud, "compute-2")
    assert _port(cloud, port)["status"] == "DOWN"

    cloud.start("agent-2")

    try:
        _eventually(lambda: _port(cloud, port)["status"] == "ACTIVE")
    finally:
        cloud.admin.delete("network", f"/v2.0/ports/{port}")


def test_a_killed_broker_comes_back_and_servers_boot_again(cloud: OpenstackLab, nothing_added: None) -> None:
    cloud.kill("broker-1")
    assert cloud.tenant.get("compute", "/servers") == {"servers": []}  # what is only read needs no broker

    cloud.start("broker-1")

    # Nova may have told the broker that was killed of a first server, which then is in BUILD for ever.
    _eventually(lambda: _boot(cloud, within=LONG_S / 4)["status"] == "ACTIVE")


def test_an_api_is_killed_and_answers_when_it_is_back(cloud: OpenstackLab) -> None:
    cloud.kill("nova-api")
    with pytest.raises(LabError, match="refused"):
        cloud.tenant.get("compute", "/servers")

    cloud.start("nova-api")

    assert cloud.tenant.get("compute", "/servers") == {"servers": []}


def test_faults_act_through_the_control_socket(cloud: OpenstackLab) -> None:
    control = LabControl(cloud.socket)
    assert stat.S_IMODE(cloud.socket.stat().st_mode) == 0o600
    assert all(member.running for member in asyncio.run(control.members()))

    asyncio.run(control.act("stop", "glance-api"))
    assert [member.name for member in asyncio.run(control.members()) if not member.running] == ["glance-api"]
    assert _opening(cloud.admin.endpoint("image"), cloud.ca, within=1) == "TimeoutError"
    asyncio.run(control.act("continue", "glance-api"))
    assert [image["name"] for image in cloud.tenant.get("image", "/v2/images")["images"]] == [cloud.image]

    assert ask(cloud.socket, {"do": "slow", "member": "keystone", "seconds": 1.5}) == {"ok": True}
    began = time.monotonic()
    cloud.admin.get("identity", "/roles")
    assert time.monotonic() - began > 1.5
    assert ask(cloud.socket, {"do": "slow", "member": "keystone", "seconds": 0}) == {"ok": True}
    assert ask(cloud.socket, {"do": "count"}) == {"counts": cloud.counts()}


@pytest.mark.parametrize(
    ("do", "problem"),
    [
        (
            lambda lab: lab.kill("compute-9"),
            "member: 'compute-9': expected one of compute-1, compute-2, compute-3, agent-1,",
        ),
        (lambda lab: lab.start("compute-1"), "compute-1: is running: expected a member that is dead"),
        (
            lambda lab: lab.slow("nova-api", 1),
            "nova-api: cannot be made slow: expected one of keystone, placement",
        ),
        (lambda lab: lab.count("volumes"), "volumes: not counted: expected one of servers,"),
        (lambda _lab: OpenstackLab(computes=0), "computes: 0: expected at least 1"),
        (lambda _lab: OpenstackLab(brokers=3), "brokers: 3: expected 1 or 2"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    cloud: OpenstackLab, do: Callable[[OpenstackLab], object], problem: str
) -> None:
    with pytest.raises(LabError) as refusal:
        do(cloud)

    assert str(refusal.value).startswith(problem)


def test_tokens_are_good_for_as_long_as_is_asked_for(cloud: OpenstackLab) -> None:
    with cloud.brief_tokens(30) as clouds:
        for file, seconds in ((cloud.clouds, 86_400), (clouds, 30)):
            token = _token_by_password(
                cloud, yaml.safe_load(file.read_text())["clouds"]["tippingpoint"]["auth"]
            )
            # Keystone cuts expires_at to whole seconds some time before issued_at.
            assert seconds - 20 <= _life(token) <= seconds


def test_seconds_that_are_none_are_refused(cloud: OpenstackLab) -> None:
    answer = ask(cloud.socket, {"do": "slow", "member": "keystone", "seconds": "long"})

    assert answer == {"error": "seconds: 'long'", "expected": "a number, at most 600"}


def test_a_second_lab_runs_beside_the_first_and_is_gone_when_its_program_is_killed(
    cloud: OpenstackLab, tmp_path: Path
) -> None:
    """Given one of a single broker and without TLS, as the program makes it unless asked for more."""
    program = [sys.executable, "-m", "lab.openstack.cloud", "--computes=1"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as lab:
        try:
            assert lab.stdout is not None
            assert select.select([lab.stdout], [], [], LONG_S)[0], "the lab said nothing"
            told = json.loads(lab.stdout.readline())
            made = _descendants(lab.pid)
            assert len(made) > 20
            assert told["auth_url"] != cloud.auth_url
            plan = plan_of(tmp_path, stages=[{"instances": 2, "hold": "1s"}])
            where = [
                "--set",
                f"target.credentials={told['credentials']}",
                "--set",
                "target.cloud=tippingpoint",
            ]
            done = ended(start("run", plan, *where, "--out", tmp_path / "runs"), LONG_S)
            assert done.returncode == 0, done.stderr
            assert counts(run_in(tmp_path / "runs"))["boot_server.ok"] == 2
        finally:
            lab.send_signal(signal.SIGKILL)
    _eventually(lambda: not [pid for pid in made if _is_alive(pid)])
    _eventually(lambda: not Path(told["lab"]).parent.exists())
    assert cloud.tenant.get("compute", "/servers") == {"servers": []}


def _boot(cloud: OpenstackLab, within: float = LONG_S) -> dict[str, Any]:
    """A server of the ordinary user's, as an administrator sees it, once it is no longer being built, or after `within`
    seconds."""
    tenant = cloud.tenant
    _eventually(lambda: _running(cloud, "compute") <= _computes(cloud), "computes that Nova takes for up")
    _eventually(lambda: _running(cloud, "agent") <= _agents(cloud), "agents that Neutron takes for alive")
    flavors, images = tenant.get("compute", "/flavors"), tenant.get("image", "/v2/images")
    networks = tenant.get("network", f"/v2.0/networks?name={cloud.network}")
    wanted = {
        "name": "booted",
        "flavorRef": flavors["flavors"][0]["id"],
        "imageRef": images["images"][0]["id"],
        "networks": [{"uuid": networks["networks"][0]["id"]}],
    }
    made = tenant.post("compute", "/servers", {"server": wanted})["server"]["id"]
    with contextlib.suppress(AssertionError):
        until(
            lambda: tenant.get("compute", f"/servers/{made}")["server"]["status"] != "BUILD",
            within=within,
            every=_LOOKS_EVERY_S,
        )
    return cloud.admin.get("compute", f"/servers/{made}")["server"]


def _make_port(cloud: OpenstackLab, host: str) -> str:
    """A port that is bound to a host, as Nova binds those of its servers."""
    network = cloud.admin.get("network", f"/v2.0/networks?name={cloud.network}")["networks"][0]["id"]
    owner = {"device_owner": "compute:nova", "binding:host_id": host}
    return cloud.admin.post("network", "/v2.0/ports", {"port": {"network_id": network, **owner}})["port"][
        "id"
    ]


def _port(cloud: OpenstackLab, port: str) -> dict[str, Any]:
    return cloud.admin.get("network", f"/v2.0/ports/{port}")["port"]


def _computes(cloud: OpenstackLab) -> set[str]:
    """The hosts whose computes Nova takes for up."""
    listed = cloud.admin.get("compute", "/os-services?binary=nova-compute")["services"]
    return {service["host"] for service in listed if service["state"] == "up"}


def _running(cloud: OpenstackLab, role: str) -> set[str]:
    """The hosts whose computes, or agents, run. One counts as down that has not reported for half a minute, as where a
    machine stands still."""
    return {
        name.replace(role, "compute")
        for member in cloud.members()
        if (name := member["name"]).startswith(f"{role}-") and member["running"]
    }


def _agents(cloud: OpenstackLab) -> set[str]:
    """The hosts whose agents Neutron takes for alive."""
    return {agent["host"] for agent in cloud.admin.get("network", "/v2.0/agents")["agents"] if agent["alive"]}


def _token_by_password(cloud: OpenstackLab, auth: dict[str, str]) -> dict[str, Any]:
    domain = {"name": auth["user_domain_name"]}
    user = {"name": auth["username"], "password": auth["password"], "domain": domain}
    project = {"project": {"name": auth["project_name"], "domain": {"name": auth["project_domain_name"]}}}
    return _token(cloud, auth["auth_url"], {"methods": ["password"], "password": {"user": user}}, project)


def _token(
    cloud: OpenstackLab, at: str, identity: dict[str, Any], scope: dict[str, Any] | None
) -> dict[str, Any]:
    """What Keystone says of the token that it gives somebody."""
    login = {"identity": identity} | ({"scope": scope} if scope else {})
    content = json.dumps({"auth": login}).encode()
    request = urllib.request.Request(f"{at}/auth/tokens", content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=cloud.ca)) as answer:
        return json.load(answer)["token"]


def _roles(token: dict[str, Any]) -> set[str]:
    return {role["name"] for role in token["roles"]}


def _life(token: dict[str, Any]) -> int:
    """Seconds that a token is good for."""
    issued, expires = (datetime.fromisoformat(token[name]) for name in ("issued_at", "expires_at"))
    return round((expires - issued).total_seconds())


def _opening(url: str, ca: Path | None, within: float = LONG_S) -> str:
    """The status of an answer, or the name of what is in its way."""
    try:
        with urllib.request.urlopen(
            url, timeout=within, context=ssl.create_default_context(cafile=ca)
        ) as answer:
            return str(answer.status)
    except OSError as problem:
        return type(getattr(problem, "reason", problem)).__name__


def _published(address: str) -> dict[str, float]:
    """How many messages have been published to a broker by channels that are open, by virtual host."""
    found: dict[str, float] = {}
    with urllib.request.urlopen(f"http://{address}/metrics/per-object") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("rabbitmq_channel_messages_published_total{"):
                vhost = line.partition('vhost="')[2].partition('"')[0]
                found[vhost] = found.get(vhost, 0) + float(line.split()[-1])
    return found


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in map(int, children.read_text().split()):
                found |= {child} | _descendants(child)
    return found


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False
