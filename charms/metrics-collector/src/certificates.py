"""The page's certificate from a related authority (`certificates`, interface tls-certificates).

Canonical's library does the work: it keeps the key in a Juju secret, asks for a certificate of this unit's address,
and asks again before that expires. Importing it takes almost as much CPU time as importing ops, so a hook does that
only with a relation.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import ops

if TYPE_CHECKING:
    from charmlibs.interfaces.tls_certificates import TLSCertificatesRequiresV4

NAME = "certificates"
_RENEWS = "secret-expired"
"""The hook in which the library asks for a new certificate."""


class Certificates:
    """The certificate of one unit."""

    def __init__(self, charm: ops.CharmBase, address: Callable[[], str]) -> None:
        """`address` returns the unit's, empty while Juju knows none."""
        self._charm = charm
        self._address = address
        self._library: TLSCertificatesRequiresV4 | None = None
        if os.environ.get("JUJU_DISPATCH_PATH", "").endswith((f"/{_RENEWS}", f"/{NAME}-relation-broken")):
            self._load()

    def issued(self) -> dict[str, str] | None:
        """Return the certificate with those that lead to its authority, and the key, as `page-token` names them.

        Empty without a relation; None while the authority has not answered a request, the first one or a renewal.
        """
        if not any(relation.active for relation in self._charm.model.relations[NAME]):
            return {}
        library = self._load()
        if library is None:
            return None
        library.sync()
        certificates, key = library.get_assigned_certificates()
        if not certificates or key is None:
            return None
        leaf, chain = str(certificates[0].certificate), [str(each) for each in certificates[0].chain]
        whole = [leaf, *(each for each in chain if each != leaf)]
        return {"certificate": "\n".join(whole), "private-key": str(key)}

    def _load(self) -> TLSCertificatesRequiresV4 | None:
        address = self._address()
        if self._library is None and address:
            from charmlibs.interfaces.tls_certificates import (
                CertificateRequestAttributes,
                KeyAlgorithm,
                TLSCertificatesRequiresV4,
            )

            wanted = CertificateRequestAttributes(
                common_name=address, sans_ip=[address], add_unique_id_to_subject_name=False
            )
            self._library = TLSCertificatesRequiresV4(
                self._charm, NAME, [wanted], key_algorithm=KeyAlgorithm.ECDSA
            )
        return self._library
