"""Targets whose lists say what has changed, and targets whose lists do not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.workloads.memory_target import MemoryTarget


@pytest.fixture(scope="module", params=[False, True], ids=["whole-lists", "changes"])
def lists_of_both_kinds(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a module's tests run on lists that say what has changed, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryTarget, "tells_changes", request.param)
        yield
