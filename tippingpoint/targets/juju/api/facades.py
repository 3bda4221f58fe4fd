"""The version of each facade used with a server, chosen from those that its login reply offers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tippingpoint.targets.juju.api.errors import NOT_IMPLEMENTED, ApiError

SPOKEN: dict[str, Sequence[int]] = {
    "Action": (7,),
    "Agent": range(2, 4),
    "Annotations": (2,),
    "Application": range(13, 23),
    "ApplicationOffers": range(4, 7),
    "Block": (2,),
    "Charms": range(3, 8),
    "Client": range(2, 9),
    "Cloud": range(5, 9),
    "Controller": range(7, 15),
    "CredentialManager": (1,),
    "Deployer": (1,),
    "HighAvailability": (2, 3),
    "KeyUpdater": (1,),
    "LeadershipService": (2,),
    "Logger": (1,),
    "MachineManager": range(7, 12),
    "Machiner": range(3, 7),
    "ModelConfig": range(2, 5),
    "ModelManager": range(5, 12),
    "NotifyWatcher": (1,),
    "Pinger": (1,),
    "RelationUnitsWatcher": (1,),
    "RetryStrategy": (1,),
    "Secrets": (1, 2),
    "SecretsManager": range(1, 5),
    "SecretsTriggerWatcher": (1,),
    "StringsWatcher": (1,),
    "Uniter": range(15, 23),
    "Upgrader": (1,),
    "UserManager": range(2, 4),
}
"""The versions of each facade that the calls are written for: Juju 2.9 to 4.0, from api/facadeversions.go of each."""


class Call:
    """One method of one facade at the chosen version: the beginning of its requests."""

    __slots__ = ("facade", "head", "request")

    def __init__(self, facade: str, version: int, request: str) -> None:
        self.facade = facade
        self.request = request
        self.head = f',"type":"{facade}","version":{version},"request":"{request}","params":'.encode()


class Terms:
    """The terms agreed with a server at login; one object for all connections with the same terms."""

    def __init__(self, server_version: str, offered: dict[str, list[int]]) -> None:
        self.server_version = server_version
        self.facades = choose(offered)
        """The version in use of each facade."""
        self._offered = offered
        self._calls: dict[tuple[str, str], Call] = {}

    def call(self, facade: str, request: str) -> Call:
        """Return a method's Call; ApiError "not implemented" if no common version of the facade exists."""
        call = self._calls.get((facade, request))
        if call is None:
            version = self.facades.get(facade)
            if version is None:
                raise ApiError(self._refusal(facade), NOT_IMPLEMENTED, facade, request)
            call = self._calls[facade, request] = Call(facade, version, request)
        return call

    def _refusal(self, facade: str) -> str:
        if facade not in SPOKEN:
            return f"facade {facade}: not supported by this client"
        ours = _versions(SPOKEN[facade])
        if facade not in self._offered:
            return f"facade {facade}: Juju {self.server_version} does not offer it to this login: expected {ours}"
        theirs = _versions(self._offered[facade])
        return f"facade {facade}: Juju {self.server_version} offers {theirs}: expected {ours}"


def offered_facades(listed: Any) -> dict[str, list[int]]:
    """Convert a login reply's facades, `[{"name", "versions"}]`, to a dict; entries of another form are skipped."""
    offered: dict[str, list[int]] = {}
    for entry in cast("list[Any]", listed) if isinstance(listed, list) else []:
        match entry:
            case {"name": str(name), "versions": [*versions]}:
                offered[name] = [i for i in versions if isinstance(i, int)]
            case _:
                pass
    return offered


def choose(offered: dict[str, list[int]]) -> dict[str, int]:
    """Return the newest common version of each facade; facades without one are left out."""
    return {
        name: max(common)
        for name, versions in offered.items()
        if (common := set(versions).intersection(SPOKEN.get(name, ())))
    }


def _versions(versions: Sequence[int]) -> str:
    if not versions:
        return "no version"
    low, high = min(versions), max(versions)
    if len(versions) == 1:
        return f"version {low}"
    if len(versions) == high - low + 1:
        return f"versions {low} to {high}"
    return "versions " + ", ".join(map(str, sorted(versions)))
