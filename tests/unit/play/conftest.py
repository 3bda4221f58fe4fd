"""A lab whose members are faulted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.control import ControlServer
from tests.unit.play.two_members import TwoMembers


@pytest.fixture
def lab() -> TwoMembers:
    return TwoMembers()


@pytest.fixture
def control(lab: TwoMembers, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "lab.sock"
    with ControlServer(lab, path):
        yield path
