"""The lab's stand-in of an Open vSwitch agent, with whatever Neutron a release has."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

import lab.openstack

AGENT = Path(lab.openstack.__file__).with_name("agent.py")
ROOTS = ("eventlet", "neutron", "neutron_lib", "oslo_config", "oslo_log", "oslo_messaging")
PARTS = ("agent", "api", "api.rpc", "api.rpc.callbacks", "api.rpc.handlers", "common", "conf", "conf.agent")


def load_on(monkeypatch: pytest.MonkeyPatch, config: SimpleNamespace) -> None:
    """Load the agent where `neutron.common.config` is this."""
    for name in (*ROOTS, *(f"neutron.{part}" for part in PARTS), "neutron_lib.agent"):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    monkeypatch.setattr(sys.modules["neutron.common"], "config", config)
    runpy.run_path(str(AGENT))


def test_neutrons_common_options_are_registered_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = SimpleNamespace(register_common_config_options=MagicMock())
    load_on(monkeypatch, config)
    config.register_common_config_options.assert_called_once_with()


def test_a_neutron_that_registers_its_options_by_itself_is_taken_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Victoria's, of bullseye: its module has no such function."""
    load_on(monkeypatch, SimpleNamespace())
