"""How a controller refuses a request."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    """The refusal of a request: a message and a code, which may be empty."""

    def __init__(self, message: str, code: str = "", info: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.info = info

    def as_dict(self) -> dict[str, Any]:
        """Return it in the form of bulk results; a reply itself has other keys."""
        return {"message": self.message, "code": self.code}


def permission_denied() -> Refused:
    """Return a stock controller's refusal for lack of permission."""
    return Refused("permission denied", "unauthorized access")


def not_found(what: str) -> Refused:
    """Return a controller's refusal for a missing thing."""
    return Refused(f"{what} not found", "not found")


def not_leader() -> Refused:
    """Return a controller's refusal of what only an application's leader may do."""
    return Refused("checking lease token: lease not held")
