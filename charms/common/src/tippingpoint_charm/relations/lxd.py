"""The relation `lxd` (lxd-https): asks LXD to trust a certificate of ours, restricted to some projects.

The other end is the lxd charm's `https`. Each of our units writes version, certificate and projects into its own bag,
because the charm revokes trust per unit, when that departs. `projects` is always sent: without it the certificate would
be an administrator's. LXD answers with version, certificate, certificate_fingerprint and addresses. A cluster answers
in the application's bag, a single server in its unit's.

The charm identifies a trusted certificate by name. Once it has answered, it ignores another certificate or other
projects until the relation is removed. So ours are kept as they were sent, and `read` reports a changed configuration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import ops

from tippingpoint_charm.relations import keypair
from tippingpoint_charm.relations.databag import (
    NotThere,
    first_with,
    of_app,
    of_units,
    own,
    send,
    shown,
    spoken,
)
from tippingpoint_charm.relations.keypair import KeyPair

NAME = "lxd"
VERSION = "1.0"
DEFAULT_PROJECT = "tippingpoint"
"""The project to ask for if none is configured. It is not LXD's `default`, which has other people's containers."""

_LABEL = "lxd-client"
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Lxd:
    """An LXD that trusts our certificate for some projects; `addresses` is a text with commas, as LXD gave it."""

    addresses: str
    certificate: str
    client: KeyPair
    projects: list[str]


def project_names(text: str) -> list[str]:
    """Split a text with commas into projects; DEFAULT_PROJECT if empty. Raises NotThere for a malformed name."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if not _PROJECT.fullmatch(name):
            raise NotThere(
                f"lxd-projects: {shown(name)}: expected names of LXD projects, separated by commas"
            )
    return list(dict.fromkeys(names)) or [DEFAULT_PROJECT]


def publish(charm: ops.CharmBase, projects: str) -> None:
    """Ask every related LXD to trust this unit for the projects; nothing is sent while their names are malformed."""
    try:
        names = ",".join(project_names(projects))
    except NotThere:
        return
    for relation in spoken(charm, NAME):
        pair = keypair.find_or_make(charm, charm.unit, _LABEL, charm.unit.name.replace("/", "-"))
        asked = own(relation, charm.unit).get("projects", "")
        if asked and _answer(relation) is not None:
            names = asked
        content = {"version": VERSION, "certificate": pair.certificate, "projects": names}
        send(relation, charm.unit, content)


def read(charm: ops.CharmBase, projects: str) -> Lxd | None:
    """Return the related LXD once it trusts us; None without a relation.

    Raises NotThere if it has not answered, or the answer is unusable. Of several servers without a cluster, the one
    with the lowest number is the target.
    """
    relations = spoken(charm, NAME)
    if not relations:
        return None
    relation = relations[0]
    names = project_names(projects)
    client = keypair.find(charm, _LABEL)
    asked = own(relation, charm.unit).get("projects", "")
    answer = _answer(relation)
    if client is None or not asked or answer is None:
        raise NotThere(
            f"{NAME}: waiting for LXD to trust us; its projects must exist: "
            + ", ".join(f"lxc project create {name}" for name in names)
        )
    if asked != ",".join(names):
        raise NotThere(
            f"{NAME}: LXD trusts us for the projects {shown(asked)}: to change them, juju remove-relation "
            f"{charm.app.name}:{NAME} {relation.app.name}, then juju integrate them again"
        )
    version, certificate, addresses = (
        answer.get(key, "").strip() for key in ("version", "certificate", "addresses")
    )
    if version != VERSION:
        raise NotThere(f"{NAME}: version {shown(version)}: expected {VERSION}")
    if not certificate or not addresses:
        raise NotThere(f"{NAME}: waiting for LXD's {'addresses' if certificate else 'certificate'}")
    _same_certificate(certificate, answer.get("certificate_fingerprint", "").strip())
    return Lxd(addresses, certificate, client, names)


def _answer(relation: ops.Relation) -> dict[str, str] | None:
    """Return LXD's answer of any version: the cluster's, otherwise that of the first unit with one."""
    bags = [of_app(relation), *(bag for _, bag in of_units(relation))]
    whole = first_with(bags, "version", "certificate", "addresses")
    return whole if whole is not None else first_with(bags, "version")


def _same_certificate(certificate: str, told: str) -> None:
    import ssl

    from tippingpoint.targets.lxd.access import der, fingerprint

    try:
        known = fingerprint(der(certificate))
    except ssl.SSLError:
        raise NotThere(f"{NAME}: LXD's certificate: expected one (PEM)") from None
    if told and told.lower() != known:
        raise NotThere(f"{NAME}: certificate_fingerprint: {shown(told)}: expected that of LXD's certificate")
