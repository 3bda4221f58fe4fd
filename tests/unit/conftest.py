"""What all unit tests share: patience with examples, and the event loops that a test may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

EVENT_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """A module's tests run on each of its LOOPS; on asyncio's own loop where it names none."""
    names: tuple[str, ...] = getattr(getattr(item, "module", None), "LOOPS", ("asyncio",))
    return {name: EVENT_LOOPS[name] for name in names}
