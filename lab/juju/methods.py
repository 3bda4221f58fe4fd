"""The table of what every facade answers, and to whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

Kind = Literal["user", "machine", "unit"]
"""Of an entity that logs in."""
Handler = Callable[[Any], "dict[str, Any] | None"]
"""Answers an `rpc.Call`: the response, or None when it will be given to `Call.answer` later; Refused to refuse it."""

METHODS: dict[str, dict[str, Handler]] = {}
"""By facade and method."""
WHO: dict[str, frozenset[Kind]] = {}
"""Who may use a facade at all; empty: everybody."""


def facade(name: str, *who: Kind) -> None:
    """Declare who may use a facade at all; nobody named: everybody."""
    WHO[name] = frozenset(who)
    METHODS.setdefault(name, {})


def method(facade: str, name: str) -> Callable[[Handler], Handler]:
    """Declare what answers a request."""

    def declare(handler: Handler) -> Handler:
        METHODS[facade][name] = handler
        return handler

    return declare
