"""Makes the authority of a simulated controller, and its servers' certificate for the name `juju-apiserver` only."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from lab.certificates import VALID, named, unsigned

Certificate = Literal["valid", "expired", "other-name", "other-authority"]

SERVER_NAME = "juju-apiserver"


@dataclass(frozen=True)
class ControllerCertificates:
    """PEM texts: the authority clients trust, the servers' certificate, and its key."""

    ca: str
    cert: str
    key: str


def make_controller_certificates(kind: Certificate) -> ControllerCertificates:
    """Make an authority and a certificate. If `expired`, both ended yesterday; other kinds name the defect."""
    ends = datetime.datetime.now(datetime.UTC) + (-VALID / 2 if kind == "expired" else VALID)
    ca, ca_key = _authority(ends)
    signer, signer_key = _authority(ends) if kind == "other-authority" else (ca, ca_key)
    name = "elsewhere" if kind == "other-name" else SERVER_NAME
    key = ec.generate_private_key(ec.SECP256R1())
    cert = (
        unsigned(named("Tipping Point simulated controller"), signer.subject, key, ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_identifier(signer_key), critical=False)
        .sign(signer_key, hashes.SHA256())
    )
    return ControllerCertificates(
        ca=ca.public_bytes(serialization.Encoding.PEM).decode(),
        cert=cert.public_bytes(serialization.Encoding.PEM).decode(),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
    )


def _authority(ends: datetime.datetime) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = named("Tipping Point simulated controller's authority")
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    made = (
        unsigned(name, name, key, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made, key


def _key_identifier(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
