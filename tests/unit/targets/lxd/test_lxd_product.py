"""LXD and Incus, which one package serves."""

from __future__ import annotations

import pytest

from tippingpoint.targets.lxd.product import named_version, trust_request


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"server": "lxd", "server_version": "5.0.2"}, "5.0.2"),
        ({"server_version": "4.0"}, "4.0"),
        ({"server": "incus", "server_version": "6.0.4"}, "incus 6.0.4"),
    ],
)
def test_a_server_tells_which_product_it_is(environment: dict[str, str], said: str) -> None:
    assert named_version(environment) == said


def test_a_token_goes_where_the_server_looks_for_it() -> None:
    assert trust_request("t", ["explicit_trust_token"]) == {"type": "client", "trust_token": "t"}
    assert trust_request("t", []) == {"type": "client", "trust_token": "t", "password": "t"}
