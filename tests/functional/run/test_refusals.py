"""Targets that cannot be reached, or are others: one line each, in which the address stands once.

The issue: "127.0.0.1:2379: 127.0.0.1:2379: connection refused".
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.certificates import Certificates, make_certificates
from lab.ports import free_ports
from tippingpoint.agent.login_check import log_in
from tippingpoint.errors import TargetError
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.juju.plan import JujuTarget
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.openstack.plan import OpenstackTarget

Target = EtcdTarget | JujuTarget | LxdTarget | OpenstackTarget


@pytest.fixture
def ours(tmp_path: Path) -> Certificates:
    """What we hold servers against, and show."""
    (tmp_path / "ours").mkdir()
    return make_certificates(tmp_path / "ours", "tippingpoint")


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second, where users wait for ten."""
    for place in (
        "util.rest.CONNECT_WITHIN",
        "targets.etcd.v2_link.ANSWER_WITHIN",
        "targets.etcd.v3_link.ANSWER_WITHIN",
        "targets.juju.api.dialling._WITHIN",
        "targets.lxd.retrying.PATIENCE",
        "targets.lxd.trust.CONNECT_WITHIN",
    ):
        monkeypatch.setattr(f"tippingpoint.{place}", 1.0)


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where each connection is answered so, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            kept: list[socket.socket] = []
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    break
                kept.append(connection)
                with suppress(OSError):
                    answer(connection)
            for connection in kept:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def silence(_: socket.socket) -> None:
    """Take a connection, and say nothing."""


@contextmanager
def refused(_: Path) -> Iterator[str]:
    (port,) = free_ports(1)
    yield f"127.0.0.1:{port}"


@contextmanager
def no_such_host(_: Path) -> Iterator[str]:
    yield "nowhere.invalid:8443"


@contextmanager
def timeout(_: Path) -> Iterator[str]:
    with listening(silence) as port:
        yield f"127.0.0.1:{port}"


@contextmanager
def another(tmp_path: Path) -> Iterator[str]:
    """A server of another authority than ours."""
    (tmp_path / "other").mkdir()
    other = make_certificates(tmp_path / "other", "stranger")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(other.server_cert, other.server_key)
    context.set_alpn_protocols(["h2", "http/1.1"])

    def shake_hands(connection: socket.socket) -> None:
        connection.settimeout(120)
        context.wrap_socket(connection, server_side=True).close()

    with listening(shake_hands) as port:
        yield f"127.0.0.1:{port}"


def private(path: Path, content: Any) -> Path:
    path.touch(0o600)
    path.write_text(yaml.safe_dump(content))
    return path


def etcd(address: str, ours: Certificates, tmp_path: Path, api: str = "v3") -> Target:
    return EtcdTarget.model_validate(
        {"endpoints": [f"https://{address}"], "ca": ours.ca, "api": api, "connections": 1}
    )


def etcd_v2(address: str, ours: Certificates, tmp_path: Path) -> Target:
    return etcd(address, ours, tmp_path, "v2")


def juju(address: str, ours: Certificates, tmp_path: Path) -> Target:
    content = {"addresses": [address], "ca": ours.ca.read_text(), "user": "admin", "password": "x"}
    return JujuTarget(kind="juju", credentials=private(tmp_path / "juju.yaml", content))


def lxd(address: str, ours: Certificates, tmp_path: Path) -> Target:
    content = {
        "addresses": address,
        "certificate": ours.server_cert.read_text(),
        "client_certificate": ours.client_cert.read_text(),
        "client_key": ours.client_key.read_text(),
    }
    return LxdTarget(kind="lxd", credentials=private(tmp_path / "lxd.yaml", content))


def openstack(address: str, ours: Certificates, tmp_path: Path) -> Target:
    auth = {"auth_url": f"https://{address}/v3", "username": "u", "password": "x", "project_name": "p"}
    auth |= {"user_domain_name": "Default", "project_domain_name": "Default"}
    content = {"clouds": {"c": {"auth": auth, "cacert": str(ours.ca)}}}
    return OpenstackTarget(
        kind="openstack", credentials=private(tmp_path / "clouds.yaml", content), cloud="c"
    )


@pytest.mark.parametrize("how", [refused, no_such_host, timeout, another])
@pytest.mark.parametrize("kind", [etcd, etcd_v2, juju, lxd, openstack])
def test_the_address_stands_once(
    kind: Callable[[str, Certificates, Path], Target],
    how: Any,
    ours: Certificates,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if how is timeout:
        request.getfixturevalue("patience")
    with how(tmp_path) as address:
        with pytest.raises(TargetError) as failure:
            asyncio.run(log_in(kind(address, ours, tmp_path)))
        said = str(failure.value)
        print(f"{kind.__name__:10} {how.__name__:12} {failure.value.refused!s:6}{said}")
        host = address.partition(":")[0]
        assert said.count(host) == 1, said
        assert failure.value.refused is (how is another)
        assert ("certificate" in said) is (how is another)
