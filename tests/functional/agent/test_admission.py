"""What an agent says of a target before any run: real log-ins, with right and wrong credentials."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.certificates import make_certificates
from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from lab.ports import free_ports
from tests.functional.agent.agents import Agent
from tests.functional.program import until
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.secret import PLACE


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    with Agent(tmp_path) as agent:
        yield agent
        kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size]
        assert not [path for path in kept if b"wrong-secret" in path.read_bytes()], "a password on the disk"


def told(agent: Agent, target: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    """What it says of a log-in that has ended, which wakes the charm."""

    def ask() -> dict[str, Any]:
        return agent.ask("access", target=target, files=files)

    until(lambda: not ask()["trying"], "the end of a log-in")
    assert agent.wake.exists()
    return {key: value for key, value in ask().items() if key not in ("ok", "trying")}


def test_an_etcd_with_users(new_etcd: Callable[..., EtcdLab], agent: Agent) -> None:
    lab = new_etcd(members=1, auth=True)
    assert lab.credentials is not None
    right = yaml.safe_load(lab.credentials.read_text())
    target = {"kind": "etcd", "endpoints": lab.endpoints, "credentials": f"{PLACE}/etcd.yaml"}
    # when the password is wrong, then it is said
    wrong = {"etcd.yaml": yaml.safe_dump({**right, "password": "wrong-secret"})}
    said = told(agent, target, wrong)
    assert said["refused"] is True
    assert "authentication failed" in said["problem"]
    # when it is right, then nothing is said of it
    agent.wake.unlink()
    assert told(agent, target, {"etcd.yaml": yaml.safe_dump(right)}) == {"problem": "", "refused": False}
    # and it is let in by the time that another access has failed
    (port,) = free_ports(1)
    told(agent, {"kind": "etcd", "endpoints": [f"http://127.0.0.1:{port}"]}, {})
    assert not [*agent.wake.parent.glob("login-*")]


def test_an_etcd_that_is_not_there(agent: Agent) -> None:
    (port,) = free_ports(1)
    target = {"kind": "etcd", "endpoints": [f"http://127.0.0.1:{port}"]}
    said = told(agent, target, {})
    assert said == {"problem": f"127.0.0.1:{port}: Connection refused", "refused": False}


def controller(access: ControllerAccess, **changes: Any) -> dict[str, str]:
    content = {
        "addresses": [*access.addresses],
        "ca": access.ca,
        "user": access.user_name,
        "password": access.user.password,
    }
    return {"juju.yaml": yaml.safe_dump({**content, **changes})}


JUJU = {"kind": "juju", "credentials": f"{PLACE}/juju.yaml"}


def test_a_controller(juju: JujuLab, access: ControllerAccess, agent: Agent, tmp_path: Path) -> None:
    said = told(agent, JUJU, controller(access, password="wrong-secret"))
    assert said["refused"] is True
    assert said["problem"].startswith(f"the password of user {access.user_name} is refused: ")
    # of another authority
    agent.wake.unlink()
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other", "stranger").ca.read_text()
    said = told(agent, JUJU, controller(access, ca=other))
    assert said["refused"] is True
    assert "authority" in said["problem"]
    # that is not there
    agent.wake.unlink()
    (port,) = free_ports(1)
    said = told(agent, JUJU, controller(access, addresses=[f"127.0.0.1:{port}"]))
    assert said["refused"] is False
    assert said["problem"].count(f"127.0.0.1:{port}") == 1
    assert "refused" in said["problem"].lower()


def test_a_trust_token_is_kept_for_the_run(agent: Agent) -> None:
    """Given a token, which is good once, then nobody redeems it before a run: its server would hear of us."""
    import socket

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        content = {"client_name": "us", "fingerprint": "0" * 64, "addresses": [address], "secret": "s" * 64}
        token = base64.b64encode(json.dumps(content).encode()).decode()
        target = {"kind": "lxd", "token": f"{PLACE}/lxd.token"}
        assert agent.ask("access", target=target, files={"lxd.token": token})["problem"] == ""
        # given another access after it, whose log-in has ended
        (port,) = free_ports(1)
        told(agent, {"kind": "etcd", "endpoints": [f"http://127.0.0.1:{port}"]}, {})
        with pytest.raises(BlockingIOError):
            server.accept()
