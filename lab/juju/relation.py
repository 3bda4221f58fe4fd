"""A relation, and the settings that its units and applications write into it.

A version of settings is a number made of their hash, as in Juju 4.0 (hashSettings of domain/unitstate/state and
hashToInt of domain/relation/state; from source). So a write that changes nothing has no new version, and nobody
notices it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256

from lab.juju.charm import Endpoint
from lab.juju.statuses import Status


@dataclass(slots=True)
class Databag:
    """One unit's or application's settings in a relation."""

    settings: dict[str, str] = field(default_factory=dict[str, str])
    hash: str = ""
    """The hash of the settings in hexadecimal; empty before the first write."""

    @property
    def version(self) -> int:
        """The version that watchers tell: 0 before the first write."""
        return int.from_bytes(self.hash[:8].encode(), "little")

    def write(self, changes: dict[str, str]) -> bool:
        """Write settings, of which an empty value removes the key. Tell whether there is a new version."""
        for key, value in changes.items():
            if value:
                self.settings[key] = value
            else:
                self.settings.pop(key, None)
        before = self.hash
        text = "".join(f"{key} {value} " for key, value in sorted(self.settings.items()))
        self.hash = sha256(text.encode()).hexdigest()
        return self.hash != before


@dataclass(slots=True)
class Relation:
    """A relation between two applications' endpoints, with the units in its scope."""

    id: int
    ends: list[tuple[str, Endpoint]]
    in_scope: dict[str, Databag] = field(default_factory=dict[str, Databag])
    of_applications: dict[str, Databag] = field(default_factory=dict[str, Databag])
    left: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """The last settings of units that have left."""
    status: Status | None = None
    key: str = field(init=False)
    """Juju's key: requirer first, then provider; a peer alone."""
    tag: str = field(init=False)
    """The tag, as names.NewRelationTag makes it: "a:x b:y" is relation-a.x#b.y."""

    def __post_init__(self) -> None:
        order = {"requirer": 0, "provider": 1, "peer": 2}
        ends = sorted(self.ends, key=lambda end: order[end[1].role])
        self.key = " ".join(f"{application}:{endpoint.name}" for application, endpoint in ends)
        self.tag = "relation-" + self.key.replace(":", ".").replace(" ", "#")

    def settings_of(self, unit: str) -> dict[str, str] | None:
        """Return a unit's settings, also after it has left with some; None without any."""
        there = self.in_scope.get(unit)
        return there.settings if there is not None else self.left.get(unit)

    def of_application(self, name: str) -> Databag:
        """Return an application's settings."""
        return self.of_applications.setdefault(name, Databag())
