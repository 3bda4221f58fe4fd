"""Calls that are not measured: retried while they fail temporarily, or known to be refused to the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError
from tippingpoint.util.retrying import retry
from tippingpoint.workloads.spawn.target import PASSING

PATIENCE = 60.0
"""Seconds to wait for an answer, and for temporary failures to pass, outside of measured calls."""
REFUSED = 403
"""LXD's code for calls that a client may not make, for instance because its certificate is restricted to projects."""

T = TypeVar("T")


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Return a call's result; temporary failures are retried, for PATIENCE seconds in all."""
    try:
        return await retry(
            call, PATIENCE, lambda problem: isinstance(problem, LxdError) and problem.kind in PASSING
        )
    except TimeoutError:
        raise LxdError(f"no answer within {PATIENCE:.0f} s", "timeout") from None


async def ask(client: LxdClient, path: str, **query: object) -> Any:
    """Make a GET request, retried as by insist()."""
    return await insist(lambda: client.get(path, **query))


async def ask_unless_refused(client: LxdClient, path: str, **query: object) -> Any | None:
    """Make a GET request; None if LXD refuses it to the client certificate."""
    try:
        return await ask(client, path, **query)
    except LxdError as problem:
        if problem.code != REFUSED:
            raise
        return None


def last(url: str) -> str:
    """Return the last part of an API URL, the name of the object."""
    return url.partition("?")[0].rpartition("/")[2]


def one_of(names: Sequence[str]) -> str:
    """Return the accepted values of an error: one of these names."""
    if not names:
        return "one to be created first: none exists"
    return f"one of {', '.join(sorted(names)[:10])}" + (", ..." if len(names) > 10 else "")
