"""The observations of a MAAS's users, timed once now, as a person would do by hand."""

from __future__ import annotations

import asyncio

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.spawn import LISTS
from tippingpoint.util import timing

ANSWERS_WITHIN = 60.0
"""Seconds to wait for each answer. A list of all machines takes a region 30 s where there are thousands."""


async def probe(target: MaasTarget) -> list[str]:
    """Make those of MACHINE_OBSERVATIONS that are lists, one after the other. Nothing is made or changed."""
    client = MaasClient(access(target))
    try:
        await client.log_in()
        return [await _asked(client, what) for what in LISTS]
    finally:
        await client.close()


async def _asked(client: MaasClient, what: str) -> str:
    path, op, query = LISTS[what]
    begun = timing.monotonic()
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            await client.skim(path, query, op=op)
    except TimeoutError:
        return f"{what}: no answer within {ANSWERS_WITHIN:g} s"
    except OperationFailed as problem:
        return f"{what}: {problem}"
    return f"{what} {(timing.monotonic() - begun) * 1e3:.0f} ms"
