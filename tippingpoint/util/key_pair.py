"""Makes self-signed key pairs for clients and servers. It is quick to import, because charm hooks use it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tippingpoint.util import timing

LONGEST_NAME = 64
"""The most characters of a common name (RFC 5280, ub-common-name)."""
VALID = timedelta(days=3650)
"""How long a key pair is valid: as long as the lxc client's (shared/cert.go)."""


def make_pair(name: str, *, serves: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """Return a self-signed certificate and its key as PEM, of the kind that the lxc client makes.

    It is a client's certificate, or with `serves` a server's for these host names and addresses.
    """
    key = ec.generate_private_key(ec.SECP384R1())
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:LONGEST_NAME])])
    now = datetime.fromtimestamp(timing.wall(), UTC)
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
