"""Writes a lab's own client certificate in the forms that LXD's clients read."""

from __future__ import annotations

import base64
import datetime
import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab.certificates import VALID, named, unsigned

REMOTE = "lab"


@dataclass(frozen=True)
class ClientCertificate:
    """A self-signed certificate and its key, PEM."""

    certificate: str
    key: str

    @property
    def der(self) -> str:
        """The certificate for LXD's API: DER in base64."""
        parsed = x509.load_pem_x509_certificate(self.certificate.encode())
        return base64.b64encode(parsed.public_bytes(serialization.Encoding.DER)).decode()


def make_client_certificate(ends: datetime.datetime | None = None) -> ClientCertificate:
    """Make a certificate that nobody trusts yet, valid until `ends` (default: for two days)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = named("Tipping Point lab")
    ends = ends or datetime.datetime.now(datetime.UTC) + VALID
    certificate = unsigned(name, name, key, ends).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    kept = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return ClientCertificate(certificate.public_bytes(pem).decode(), kept.decode())


def write_credentials(path: Path, addresses: list[str], server: str, client: ClientCertificate) -> None:
    """Write the file that a plan's target.credentials names."""
    fields = {"addresses": addresses, "certificate": server}
    fields |= {"client_certificate": client.certificate, "client_key": client.key}
    _write(path, yaml.safe_dump(fields))


def write_remote(directory: Path, address: str, server: str, client: ClientCertificate) -> None:
    """Write a configuration directory of the lxc client, with the lab as its default remote, `lab`."""
    (directory / "servercerts").mkdir(parents=True)
    remote = {"addr": address, "auth_type": "tls", "project": "default", "protocol": "lxd", "public": False}
    _write(directory / "config.yml", yaml.safe_dump({"default-remote": REMOTE, "remotes": {REMOTE: remote}}))
    _write(directory / "client.crt", client.certificate)
    _write(directory / "client.key", client.key)
    _write(directory / "servercerts" / f"{REMOTE}.crt", server)


def _write(path: Path, content: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
