"""Makes a throwaway authority for a lab, with a server certificate for loopback and one client certificate."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = datetime.timedelta(days=2)
"""How long certificates are valid before and after they are made."""


@dataclass(frozen=True)
class Certificates:
    """PEM files; the keys have mode 0600. The client certificate's common name is its user."""

    ca: Path
    server_cert: Path
    server_key: Path
    client_cert: Path
    client_key: Path


def make_certificates(
    directory: Path, user: str, addresses: Sequence[str] = (), server_name: str = ""
) -> Certificates:
    """Make an authority and its certificates in a directory. The authority's own key is thrown away.

    The server certificate is also for these addresses. `server_name` is its common name, which libvirt asks for.
    """
    made = Certificates(
        *(directory / f"{n}.pem" for n in ("ca", "server", "server-key", "client", "client-key"))
    )
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ends = datetime.datetime.now(datetime.UTC) + VALID
    ca_name = named("Tipping Point lab authority")
    ca = (
        unsigned(ca_name, ca_name, ca_key, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    _write(made.ca, ca.public_bytes(serialization.Encoding.PEM))
    # etcd's JSON gateway is a client of its own server, with the server's certificate. So that certificate needs both
    # usages. etcd would take a common name in it for a user's.
    subject = named(server_name) if server_name else x509.Name([])
    server = unsigned(
        subject, ca_name, server_key := ec.generate_private_key(ec.SECP256R1()), ends
    ).add_extension(
        x509.SubjectAlternativeName(
            [
                x509.DNSName("localhost"),
                *(x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", *addresses)),
            ]
        ),
        critical=True,
    )
    client = unsigned(named(user), ca_name, client_key := ec.generate_private_key(ec.SECP256R1()), ends)
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    for builder, usages, key, cert_file, key_file in (
        (server, both, server_key, made.server_cert, made.server_key),
        (client, both[1:], client_key, made.client_cert, made.client_key),
    ):
        signed = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False).sign(
            ca_key, hashes.SHA256()
        )
        _write(cert_file, signed.public_bytes(serialization.Encoding.PEM))
        _write(
            key_file,
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )
    return made


def named(common_name: str) -> x509.Name:
    """Make the name of a certificate's subject or issuer."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, ends: datetime.datetime
) -> x509.CertificateBuilder:
    """Build a certificate without extensions, which is valid for twice VALID."""
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - 2 * VALID)
        .not_valid_after(ends)
    )


def _write(path: Path, content: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def name_in(certificate: bytes) -> str:
    """Return the name in a server certificate (PEM): LXD's has no address of a lab."""
    parsed = x509.load_pem_x509_certificate(certificate)
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)[0]
