"""What these tests' network is."""

from __future__ import annotations

import os
import socket

import pytest


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network")
def test_nothing_but_loopback_is_on_the_network_of_these_tests() -> None:
    """Given other tests that make links and addresses meanwhile, then Chromium sees none of them come and go."""
    assert [name for _number, name in socket.if_nameindex()] == ["lo"]
