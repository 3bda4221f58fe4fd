"""The relation `identity-credentials` (keystone-credentials): a user of a project, with the roles that we ask for.

Each of our units writes username, project, domain, requested_roles and requested_grants into its own bag, as
Keystone reads them per unit. Grants are always there: without them Keystone makes us an administrator of the cloud. It
answers in its units' bags with credentials_* and auth_*, region and api_version.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ops

from tippingpoint_charm.relations.databag import NotThere, first_with, of_units, related, shown, write

NAME = "identity-credentials"
PROJECT = "tippingpoint"
DOMAIN = "service_domain"
"""The domain that Keystone's charm makes itself, and would take if none were sent; it makes no other on request."""
ROLE = "member"
"""What Keystone calls the role of who may use a project and administer nothing."""


@dataclass(frozen=True)
class Keystone:
    """Where Keystone is and who we are there."""

    auth_url: str
    username: str
    password: str = field(repr=False)
    project: str
    user_domain: str
    project_domain: str
    region: str


def publish(charm: ops.CharmBase) -> None:
    """Ask every related Keystone for a user that is named like this application and has ROLE in PROJECT."""
    content = {
        "username": charm.app.name,
        "project": PROJECT,
        "domain": DOMAIN,
        "requested_roles": ROLE,
        "requested_grants": ROLE,
    }
    for relation in related(charm, NAME):
        write(relation, charm.unit, content)


def read(charm: ops.CharmBase) -> Keystone | None:
    """The user that Keystone made; None when none is related, NotThere where it has not said enough."""
    for relation in related(charm, NAME):
        names = ("credentials_host", "credentials_port", "credentials_username", "credentials_password")
        bag = first_with([bag for _, bag in of_units(relation)], *names, "credentials_project", "region")
        if bag is None:
            raise NotThere(f"{NAME}: waiting for the user that Keystone makes for us")
        version = bag.get("api_version", "3").strip()
        if version not in ("3", "3.0"):
            raise NotThere(f"{NAME}: api_version: {shown(version)}: expected 3")
        scheme, host, port = bag.get("credentials_protocol", "https"), bag[names[0]], bag[names[1]]
        if scheme not in ("http", "https") or not port.isdigit() or set(host) & set(" /@?#"):
            raise NotThere(f"{NAME}: {shown(f'{scheme}://{host}:{port}')}: expected http(s)://HOST:PORT")
        domain = bag.get("domain", DOMAIN)
        return Keystone(
            auth_url=f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/v3",
            username=bag["credentials_username"],
            password=bag["credentials_password"],
            project=bag["credentials_project"],
            user_domain=bag.get("credentials_user_domain_name", domain),
            project_domain=bag.get("credentials_project_domain_name", domain),
            region=bag["region"],
        )
    return None
