"""The region's event log, and the answers to events/?op=query.

The types' descriptions and levels are those of src/provisioningserver/events.py of MAAS 3.3.11 (EVENT_DETAILS), where
what `User` does is DEBUG, what a machine comes to is INFO, and what fails is ERROR.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from lab.maas.machine import Machine
from lab.maas.parts import API
from lab.maas.refusal import Refused, invalid

LEVELS = {"AUDIT": 0, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40, "CRITICAL": 50}
_MOST = 1000
_KEPT = 200_000


@dataclass(frozen=True)
class Event:
    """One event. `kind` is MAAS's description of its type."""

    number: int
    level: str
    kind: str
    description: str
    system_id: str
    hostname: str
    user: str
    created: float

    def described(self) -> dict[str, Any]:
        """Return it as the API does."""
        return {
            "username": self.user or "unknown",
            "node": self.system_id,
            "hostname": self.hostname,
            "id": self.number,
            "level": self.level,
            "created": time.strftime("%a, %d %b. %Y %H:%M:%S", time.gmtime(self.created)),
            "type": self.kind,
            "description": self.description,
        }


class Events:
    """The latest events of all machines; those of a removed machine go with it, as in MAAS."""

    def __init__(self) -> None:
        self._all: deque[Event] = deque(maxlen=_KEPT)
        self._number = 0
        self._gone: set[str] = set()

    def add(
        self, machine: Machine, level: str, kind: str, description: str = "", user: str = "", action: str = ""
    ) -> None:
        """Log an event of a machine. From INFO on it is also what the machine's status_message says."""
        if LEVELS[level] >= LEVELS["INFO"]:
            machine.action = action
            machine.message = f"{kind} - {description}" if description else kind
            machine.changed()
        self._number += 1
        self._all.append(
            Event(
                self._number, level, kind, description, machine.system_id, machine.hostname, user, time.time()
            )
        )

    def forget(self, gone: set[str]) -> None:
        """Remove the events of machines by system_id. They are dropped later, many machines' at once."""
        self._gone |= gone
        if len(self._gone) >= _MOST:
            self._all = deque((event for event in self._all if event.system_id not in self._gone), _KEPT)
            self._gone = set()

    def query(self, ids: set[str] | None, fields: dict[str, str]) -> dict[str, Any]:
        """Return one page of events, newest first. `ids` are the machines; None for all."""
        level, limit = fields.get("level", "INFO"), _whole(fields, "limit", 100)
        if level not in LEVELS:
            raise Refused(400, f"Unrecognised log level: {level}")
        if limit > _MOST:
            raise Refused(400, f"Requested number of events {limit} is greater than limit: {_MOST}")
        after, before = _whole(fields, "after", -1), _whole(fields, "before", -1)
        if after >= 0 and before >= 0:
            raise Refused(
                400, "There is undetermined behaviour when both `after` and `before` are specified."
            )
        least, limit = LEVELS[level], max(1, limit)
        found: list[Event] = []
        for event in self._all if after >= 0 else reversed(self._all):
            if len(found) == limit:
                break
            if (
                LEVELS[event.level] >= least
                and (event.system_id not in self._gone if ids is None else event.system_id in ids)
                and event.number > after
                and (before < 0 or event.number < before)
            ):
                found.append(event)
        if after >= 0:
            found.reverse()
        newest = found[0].number if found else max(after, before - 1)
        kept = {name: value for name, value in fields.items() if name not in ("after", "before")}
        base = f"{API}/events/?"
        return {
            "count": len(found),
            "events": [event.described() for event in found],
            "next_uri": base + urlencode(kept | ({"after": newest} if newest >= 0 else {})),
            "prev_uri": base + urlencode(kept | {"before": found[-1].number}) if found else None,
        }


def _whole(fields: dict[str, str], name: str, default: int) -> int:
    try:
        return int(fields.get(name, default))
    except ValueError:
        raise invalid(name, "Please enter an integer value") from None
