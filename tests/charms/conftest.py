"""Units of the generator charms, each on a machine of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charms.generators import ScriptedAgent, Unit


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
