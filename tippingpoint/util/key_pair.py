"""Key pairs of our own: a client's, as the lxc client makes them, and a server's. Light to import: hooks make some."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LONGEST_NAME = 64
"""Characters of a common name (RFC 5280, ub-common-name)."""
VALID = timedelta(days=3650)
"""How long a key pair of ours is valid; that of the lxc client is, too (shared/cert.go)."""


def make_pair(name: str, *, serves: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """A certificate that is signed by its own key, and the key, as PEM; of the kind the lxc client makes.

    With `serves`, host names and addresses, it is a server's that is reached by these.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:LONGEST_NAME])])
    now = datetime.now(UTC)
    usage = ExtendedKeyUsageOID.SERVER_AUTH if serves else ExtendedKeyUsageOID.CLIENT_AUTH
    builder = (
        x509.CertificateBuilder()
        .subject_name(who)
        .issuer_name(who)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))  # the other side's clock may be behind
        .not_valid_after(now + VALID)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if serves:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general(host) for host in serves]), critical=False
        )
    certificate = builder.sign(key, hashes.SHA384())
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem), private


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
