"""Units of the generator charms, each on a machine of its own."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ops
import pytest
from scenario import _runtime
from tippingpoint_charm import exchange
from tippingpoint_charm.agent import Agent

from scripts._reference.charms import results
from tests.charms.generators import ScriptedAgent, Unit

COMMAND = re.compile(
    r"(?:^|[:;,(] ?)(?:juju [a-z-]+|tippingpoint (?:run|report|clean|compare)) ", re.MULTILINE
)
"""A command in a result."""


def keys_in(document: dict[str, Any]) -> Iterator[str]:
    """The keys of a JSON document, with those inside; units have one name."""
    for key, value in document.items():
        name = "UNIT" if "/" in key else key
        inside = [*keys_in(value)] if isinstance(value, dict) else []
        yield from (f"{name}.{each}" for each in inside) if inside else ([] if value == {} else [name])


@pytest.fixture(scope="session", autouse=True)
def quick_metadata() -> Iterator[None]:
    """ops.testing writes a charm's metadata anew for each event, in which PyYAML takes longer than the charm. JSON is
    YAML."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_runtime, "yaml", SimpleNamespace(safe_dump=json.dumps))
        yield


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an action tells in any test is in charms/results.yaml, and a command in it can be pasted."""
    tell = ops.ActionEvent.set_results

    def checked(event: ops.ActionEvent, told: dict[str, Any]) -> None:
        charm = event.framework.meta.name
        action = event.handle.kind.removesuffix("_action").replace("_", "-")
        document = told.get("json", "{}")
        inside = [] if document.endswith(" (cut)") else keys_in(json.loads(document))
        keys = {*told, *(f"json.{key}" for key in inside)}
        assert sorted(keys - set(results()[charm][action])) == [], f"{charm} {action}"
        for key, value in told.items():
            assert not COMMAND.search(value) or value.endswith("\n"), f"{charm} {action} {key}: {value}"
        tell(event, told)

    monkeypatch.setattr(ops.ActionEvent, "set_results", checked)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks wait for an agent in their own process, which stands still with them on a busy machine."""
    monkeypatch.setitem(cast(dict[str, Any], Agent.ask.__kwdefaults__), "within", 600.0)
    monkeypatch.setattr(exchange, "HOOK_WAITS", 600.0)


@pytest.fixture
def root() -> Iterator[Path]:
    """A short path: a socket's may have 107 characters, which pytest's own directories can exceed."""
    with tempfile.TemporaryDirectory(prefix="tp-") as directory:
        yield Path(directory)


@pytest.fixture
def unit(root: Path) -> Unit:
    """load-claimer/0."""
    return Unit(root)


@pytest.fixture
def spawner(root: Path) -> Unit:
    """container-spawner/0."""
    return Unit(root, "container-spawner")


@pytest.fixture
def agent(unit: Unit) -> Iterator[ScriptedAgent]:
    """At load-claimer/0's socket."""
    with ScriptedAgent(unit).at_its_socket() as agent:
        yield agent
