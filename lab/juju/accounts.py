"""A controller's users, and who may do what with a model, an offer or the cloud.

A higher level includes the lower ones. A superuser has all of them everywhere (core/permission of Juju 4.0).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lab.juju.refusals import Refused
from lab.juju.statuses import now

MODEL_LEVELS = ("", "read", "write", "admin")
OFFER_LEVELS = ("", "read", "consume", "admin")
CLOUD_LEVELS = ("", "add-model", "admin")


@dataclass(slots=True)
class User:
    """A local user. Without a password there is no login."""

    name: str
    password: str
    display_name: str = ""
    superuser: bool = False
    created: str = field(default_factory=now)
    last_connection: str = ""

    @property
    def controller_access(self) -> str:
        return "superuser" if self.superuser else "login"


def has(held: str, wanted: str, levels: tuple[str, ...]) -> bool:
    """Tell whether a level includes another."""
    return levels.index(held) >= levels.index(wanted)


def change(
    held: dict[str, str], user: str, action: str, access: str, levels: tuple[str, ...], what: str
) -> None:
    """Grant a user a level, or revoke it with all higher ones. Raises Refused as Juju does."""
    if access not in levels[1:]:
        raise Refused(f'"{access}" {what} access not valid', "not valid")
    if action == "grant":
        if has(held.get(user, ""), access, levels):
            raise Refused(f'user "{user}" already has "{access}" access or greater')
        held[user] = access
    elif action == "revoke":
        below = levels[levels.index(access) - 1]
        if below and user in held:
            held[user] = below
        elif not below:
            held.pop(user, None)
    else:
        raise Refused(f'unknown action "{action}"')
