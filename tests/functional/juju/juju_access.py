"""The Juju controller that tests run on: a simulator, or the real one that TIPPINGPOINT_JUJU_CONTROLLER names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

from lab.juju.simulator import JujuLab
from tippingpoint.targets.juju.api.access import ControllerAccess, from_store

REAL = os.environ.get("TIPPINGPOINT_JUJU_CONTROLLER")
"""The real controller's name in the juju client's store; None for a simulator."""
WITHIN_S = 600.0


def user_of(lab: JujuLab) -> ControllerAccess:
    """A simulated controller's administrator."""
    return from_store(lab.controller, lab.data)


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run a test's coroutine, for at most WITHIN_S seconds."""

    async def bounded() -> None:
        async with asyncio.timeout(WITHIN_S):
            await test

    asyncio.run(bounded())
