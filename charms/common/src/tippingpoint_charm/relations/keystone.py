"""The relation `identity-credentials` (keystone-credentials): a user of a project, with the roles that we ask for.

Each of our units writes username, project, domain, requested_roles and requested_grants into its own bag, because
Keystone's charm reads them per unit. Grants are always sent: without them the user would be an administrator of the
cloud. Keystone answers in its units' bags with credentials_*, region and api_version. It does not give the authority of
the cloud's certificates. A private one is in a secret of ours, or in ca_cert, as in other charms of OpenStack.

Nothing is written into the application's bag, where keystone-k8s reads requests: it ignores grants, and makes every
user an administrator of the services' project.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

import ops

from tippingpoint_charm.relations.databag import (
    NotThere,
    first_with,
    host_and_port,
    of_units,
    send,
    shown,
    spoken,
)

NAME = "identity-credentials"
PROJECT = "tippingpoint"
DOMAIN = "service_domain"
"""The domain that Keystone's charm creates itself, and its default. It creates no other domain on request."""
ROLE = "member"
"""Keystone's role for users of a project without administrator rights."""

_NEEDED = (
    "credentials_host",
    "credentials_port",
    "credentials_username",
    "credentials_password",
    "credentials_project",
)


@dataclass(frozen=True)
class Keystone:
    """The address of Keystone and our login."""

    content: Mapping[str, str] = field(repr=False)
    """The data in the form of a secret with a user of a project: with the password, and ids instead of names."""
    ca: str
    """Certificates (PEM) of the authority that signed the cloud's; empty if Keystone gives none."""


def publish(charm: ops.CharmBase) -> None:
    """Ask every related Keystone for a user with this application's name and ROLE in PROJECT."""
    content = {
        "username": charm.app.name,
        "project": PROJECT,
        "domain": DOMAIN,
        "requested_roles": ROLE,
        "requested_grants": ROLE,
    }
    for relation in spoken(charm, NAME):
        send(relation, charm.unit, content)


def read(charm: ops.CharmBase) -> Keystone | None:
    """Return the user that Keystone made; None without a relation. Raises NotThere if the data are incomplete."""
    for relation in spoken(charm, NAME):
        bags = [bag for _, bag in of_units(relation)]
        bag = first_with(bags, *_NEEDED)
        if bag is None:
            raise NotThere(_what_is_awaited(bags))
        version = bag.get("api_version", "3").strip()
        if version not in ("3", "3.0"):
            raise NotThere(f"{NAME}: api_version: {shown(version)}: expected 3")
        scheme = bag.get("credentials_protocol", "https").strip()
        if scheme not in ("http", "https"):
            raise NotThere(f"{NAME}: credentials_protocol: {shown(scheme)}: expected http or https")
        where = host_and_port(NAME, bag["credentials_host"], bag["credentials_port"].strip())
        return Keystone(
            {
                "auth-url": f"{scheme}://{where}/v3",
                "username": bag["credentials_username"],
                "password": bag["credentials_password"],
                **_identified(bag, "project", bag["credentials_project"]),
                **_identified(bag, "user-domain", bag.get("domain", DOMAIN)),
                **_identified(bag, "project-domain", bag.get("domain", DOMAIN)),
                # Keystone's option may name several, separated by spaces.
                "region": next(iter(bag.get("region", "").split()), ""),
            },
            ca=_certificates(bag.get("ca_cert", "")),
        )
    return None


def _what_is_awaited(bags: list[dict[str, str]]) -> str:
    begun = first_with(bags, "credentials_password")
    if begun is not None:
        lacking = next(key for key in _NEEDED if not begun.get(key, "").strip())
        return f"{NAME}: waiting for Keystone's {lacking}"
    return (
        f"{NAME}: waiting for a user from Keystone; keystone-k8s creates only administrators and is not "
        "asked: give this application a secret instead"
    )


def _identified(bag: Mapping[str, str], what: str, name: str) -> dict[str, str]:
    """Return something's id if Keystone gave one, otherwise its name: names may be reused."""
    told = f"credentials_{what.replace('-', '_')}"
    identity = bag.get(f"{told}_id", "").strip()
    named = bag.get(f"{told}_name", "").strip()
    return {f"{what}-id": identity} if identity else {what: named or name}


def _certificates(text: str) -> str:
    """Return certificates as PEM. Charms of OpenStack encode them in base64."""
    text = text.strip()
    if not text or text.startswith("-----BEGIN"):
        return text
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise NotThere(f"{NAME}: ca_cert: expected certificates (PEM), as they are or in base64") from None
