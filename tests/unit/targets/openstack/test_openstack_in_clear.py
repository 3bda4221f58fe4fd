"""A login or a token that could be read on the way: said, or refused where Keystone itself has TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.targets.openstack.openstack_stub import OpenstackStub
from tippingpoint.errors import TargetError
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.openstack.secret import SECRET
from tippingpoint.targets.openstack.target import TARGET


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://10.0.0.1/identity", "the login goes to Keystone without TLS and can be read on the way: private"),
        ("http://127.0.0.1:5000/v3", ""),
        ("https://10.0.0.1/identity", ""),
    ],
)  # fmt: skip
def test_a_keystone_without_tls_is_said_in_report_and_status(tmp_path: Path, url: str, said: str) -> None:
    auth = {"auth_url": url, "username": "ann", "password": "hush", "project_name": "shop"}
    path = tmp_path / "clouds.yaml"
    path.write_text(yaml.safe_dump({"clouds": {"c": {"auth": auth}}}))
    path.chmod(0o600)
    danger = TARGET.danger(OpenstackTarget(kind="openstack", credentials=path))
    assert danger.startswith(said)
    assert bool(danger) == bool(said)
    content = {"auth-url": url, "username": "ann", "password": "hush", "project": "shop"}
    assert SECRET.reached(content, 1).danger == danger


async def test_a_token_does_not_follow_the_catalogue_to_a_host_without_tls(tmp_path: Path) -> None:
    async with OpenstackStub(tmp_path) as stub:
        # given a Keystone that is safe, and a catalogue that leads to another host by plain http
        stub.address = "http://compute.example:8774/v2.1"
        # when we log in, then that is refused in one line, which names the endpoint
        with pytest.raises(TargetError) as refused:
            await stub.client.log_in()
        assert str(refused.value) == (
            "stub: the endpoint of compute is http://compute.example:8774, where the token could be read on the way: "
            "expected https endpoints, as Keystone's is, or another target.interface"
        )
        # and a client that does not log in first sends nothing there either
        with pytest.raises(Exception, match="where the token could be read on the way"):
            await stub.client.get("compute", "/servers")
