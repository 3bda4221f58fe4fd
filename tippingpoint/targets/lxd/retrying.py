"""Calls outside of what is measured: made again while they fail of what passes, or told to be refused us by LXD."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError
from tippingpoint.util.retrying import retry
from tippingpoint.workloads.spawn.target import PASSING

PATIENCE = 60.0
"""Seconds that an answer, and what passes by itself, is waited for outside of what is measured."""
REFUSED = 403
"""The code of what LXD refuses a client, such as one whose certificate is restricted to projects."""

T = TypeVar("T")


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """What a call returns, made again while it fails of what passes by itself, for PATIENCE seconds in all."""
    try:
        return await retry(
            call, PATIENCE, lambda problem: isinstance(problem, LxdError) and problem.kind in PASSING
        )
    except TimeoutError:
        raise LxdError(f"no answer within {PATIENCE:.0f} s", "timeout") from None


async def ask(client: LxdClient, path: str, **query: object) -> Any:
    """What is there, as insist() gets it."""
    return await insist(lambda: client.get(path, **query))


async def ask_unless_refused(client: LxdClient, path: str, **query: object) -> Any | None:
    """What is there; None where LXD refuses it our certificate."""
    try:
        return await ask(client, path, **query)
    except LxdError as problem:
        if problem.code != REFUSED:
            raise
        return None


def last(url: str) -> str:
    """What a URL of the API names."""
    return url.partition("?")[0].rpartition("/")[2]


def one_of(names: Sequence[str]) -> str:
    """What would be accepted, for an error: one of these names."""
    if not names:
        return "one to be made first: there is none"
    return f"one of {', '.join(sorted(names)[:10])}" + (", ..." if len(names) > 10 else "")
