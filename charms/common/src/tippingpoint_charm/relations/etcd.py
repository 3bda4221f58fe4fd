"""The two relations with etcd: `etcd` (etcd) and `etcd-client` (etcd_client).

`etcd` is the etcd charm's `db`. Each of its units writes connection_string and, with TLS, client_cert, client_key and
client_ca: one client certificate for all. Nothing is sent.

`etcd-client` is Charmed etcd's interface of the same name, version 0 of the data platform's contract. Our leader writes
the prefix of our keys, and a secret with our certificate (secret-mtls), whose common name becomes our user. etcd
answers with endpoints, version, secret-user and secret-tls (its authority). The key stays in a secret of the
application that nobody else is granted.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

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

DB, CLIENT = "etcd", "etcd-client"
PREFIX = "/tippingpoint/"
"""The prefix of all keys of all runs (tippingpoint.targets.etcd.ledger.key_prefix)."""

_LABEL, _LABEL_SENT = "etcd-client", "etcd-client-mtls"
_SECRETS = ("username", "password", "tls", "tls-ca", "uris")


@dataclass(frozen=True)
class Etcd:
    """An etcd: client URLs, and the PEM texts for TLS, which are empty without TLS."""

    endpoints: list[str]
    ca: str = ""
    certificate: str = ""
    key: str = field(default="", repr=False)


def read_db(charm: ops.CharmBase) -> Etcd | None:
    """Return the etcd at the relation `etcd`; None without one. Raises NotThere if its data are incomplete."""
    for relation in spoken(charm, DB):
        bags = [bag for _, bag in of_units(relation)]
        keys = ("client_ca", "client_cert", "client_key")
        bag = first_with(bags, "connection_string", *keys) or first_with(bags, "connection_string")
        if bag is None:
            raise NotThere(f"{DB}: waiting for etcd's connection_string")
        endpoints = _urls(bag["connection_string"], "http")
        if not any(url.startswith("https:") for url in endpoints):
            return Etcd(endpoints)
        ca, certificate, key = (bag.get(name, "") for name in keys)
        if not (ca and certificate and key):
            raise NotThere(f"{DB}: waiting for etcd's client_ca, client_cert and client_key")
        return Etcd(endpoints, ca, certificate, key)
    return None


def publish_client(charm: ops.CharmBase) -> None:
    """On the leader, ask every related Charmed etcd for a user."""
    if not charm.unit.is_leader():
        return
    for relation in spoken(charm, CLIENT):
        sent = own(relation, charm.app).get("secret-mtls", "")
        content = {
            "prefix": PREFIX,
            "requested-secrets": json.dumps(_SECRETS),
            "provided-secrets": json.dumps(["mtls-cert"]),
            "secret-mtls": sent or _grant(charm, relation),
        }
        send(relation, charm.app, content)


def read_client(charm: ops.CharmBase) -> Etcd | None:
    """Return the etcd at the relation `etcd-client`; None without one. Raises NotThere if its data are incomplete."""
    for relation in spoken(charm, CLIENT):
        bag = of_app(relation)
        if bag.get("encryption-secret"):
            raise NotThere(f"{CLIENT}: {shown(relation.app.name)}: expected a Charmed etcd of this model")
        pair = keypair.find(charm, _LABEL)
        if pair is None or not bag.get("endpoints"):
            raise NotThere(f"{CLIENT}: waiting for etcd's endpoints, which it publishes once TLS is enabled")
        ca = _shared(charm, bag, "secret-tls", "tls-ca")
        if not _shared(charm, bag, "secret-user", "username"):
            raise NotThere(f"{CLIENT}: waiting for a user from etcd (secret-user)")
        if not ca:
            raise NotThere(f"{CLIENT}: waiting for etcd's authority (tls-ca in secret-tls)")
        return Etcd(_urls(bag["endpoints"], "https"), ca, pair.certificate, pair.key)
    return None


def _grant(charm: ops.CharmBase, relation: ops.Relation) -> str:
    """Grant the other application the secret with our certificate, and return the secret's id."""
    # etcd has users for all related applications, so the name must differ from those of other models.
    user = f"{charm.app.name[:50]}-{charm.model.uuid[:8]}"
    pair = keypair.find_or_make(charm, charm.app, _LABEL, user)
    try:
        secret = charm.model.get_secret(label=_LABEL_SENT)
    except ops.ModelError:
        secret = charm.app.add_secret({"mtls-cert": pair.certificate}, label=_LABEL_SENT)
    secret.grant(relation)
    return secret.id or secret.get_info().id


def _shared(charm: ops.CharmBase, bag: dict[str, str], name: str, key: str) -> str:
    """Return a key's value from a secret that the other application shares, or from the bag itself; else empty."""
    uri = bag.get(name, "")
    if not uri:
        return bag.get(key, "")
    try:
        return charm.model.get_secret(id=uri).get_content(refresh=True).get(key, "")
    except (ops.ModelError, ValueError):  # not granted, removed, or no id of a secret
        raise NotThere(f"{CLIENT}: {name}: expected a secret that etcd grants us") from None


def _urls(text: str, scheme: str) -> list[str]:
    """Split a text with commas into client URLs, and add `scheme` to those without one."""
    given = [part.strip().rstrip("/") for part in text.split(",") if part.strip()]
    return [url if "://" in url else f"{scheme}://{url}" for url in given]
