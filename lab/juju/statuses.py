"""Statuses of entities, and moments in the form of the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time, which the API shows for a moment that has not come."""


def now() -> str:
    """Return the present time in the API's form."""
    return moment(datetime.now(UTC))


def moment(at: datetime) -> str:
    """Return a time in the API's form."""
    return at.isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class Status:
    """A status with its message, set by an agent."""

    status: str
    info: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    since: str = field(default_factory=now)

    def detailed(self, life: str = "", data: bool = True) -> dict[str, Any]:
        """Return it in the form of full status, which has a life for some things, and no data for others."""
        return {
            "status": self.status,
            "info": self.info,
            "data": self.data if data else None,
            "since": self.since,
            "kind": "",
            "version": "",
            "life": life,
        }
