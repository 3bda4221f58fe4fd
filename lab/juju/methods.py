"""The table of all facades' methods, and who may use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

Kind = Literal["user", "machine", "unit"]
"""The kind of an entity that logs in."""
Handler = Callable[[Any], "dict[str, Any] | None"]
"""Answers an `rpc.Call` with the response, or with None if `Call.answer` gets it later. Raises Refused to refuse."""
Access = Literal["read", "write", "admin"]
"""A user's access to a model."""

METHODS: dict[str, dict[str, Handler]] = {}
"""Handlers by facade and method."""
WHO: dict[str, frozenset[Kind]] = {}
"""The kinds of entity that may use a facade; empty for all."""


def facade(name: str, *who: Kind) -> None:
    """Declare who may use a facade; without `who`, everybody."""
    WHO[name] = frozenset(who)
    METHODS.setdefault(name, {})


def method(facade: str, name: str, needs: Access | None = None) -> Callable[[Handler], Handler]:
    """Declare the handler of a request, and the access that a user needs to the connection's model."""

    def declare(handler: Handler) -> Handler:
        METHODS.setdefault(facade, {})[name] = handler if needs is None else _needing(needs, handler)
        return handler

    return declare


def _needing(access: Access, handler: Handler) -> Handler:
    def handle(call: Any) -> dict[str, Any] | None:
        call.require(access)
        return handler(call)

    return handle
