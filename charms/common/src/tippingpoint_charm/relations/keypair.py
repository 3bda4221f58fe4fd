"""Keeps a key pair in a Juju secret of this unit or application, and nowhere else.

Juju writes a hook's secrets and relation data together or not at all. So the key of a certificate that was sent always
exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import ops

_CERTIFICATE, _KEY = "certificate", "private-key"


@dataclass(frozen=True)
class KeyPair:
    """A certificate that is signed by its own key, and the key, both PEM."""

    certificate: str
    key: str = field(repr=False)


def find(charm: ops.CharmBase, label: str) -> KeyPair | None:
    """Return the pair in the secret with this label; None without one (yet)."""
    try:
        content = charm.model.get_secret(label=label).get_content()
    except ops.ModelError:  # no such secret
        return None
    certificate, key = content.get(_CERTIFICATE), content.get(_KEY)
    return KeyPair(certificate, key) if certificate and key else None


def find_or_make(charm: ops.CharmBase, owner: ops.Unit | ops.Application, label: str, name: str) -> KeyPair:
    """Return the pair in the secret with this label, and make one if there is none. Only the leader may do so for an
    application.

    `name` becomes the certificate's common name.
    """
    pair = find(charm, label)
    if pair is None:
        pair = _make(name)
        owner.add_secret({_CERTIFICATE: pair.certificate, _KEY: pair.key}, label=label)
    return pair


def _make(name: str) -> KeyPair:
    from tippingpoint.util.key_pair import make_pair  # imports cryptography, which a unit needs only once

    certificate, key = make_pair(name)
    return KeyPair(certificate.decode(), key.decode())
