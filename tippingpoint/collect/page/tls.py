"""The certificate that the page shows, and how its reader knows it: by its fingerprint, when it is one of our own."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tippingpoint.collect.page.access import read_secret
from tippingpoint.errors import UserError
from tippingpoint.util.key_pair import make_pair
from tippingpoint.util.secret_files import read_text


@dataclass(frozen=True)
class Pair:
    """Where a certificate and its key are, as PEM."""

    certificate: Path
    key: Path


def find_or_make(directory: Path, names: Sequence[str]) -> Pair:
    """A pair of our own in a directory, made unless it is there, for a server of these names and addresses.

    Both files are 0600.
    """
    pair = Pair(directory / "page.crt", directory / "page.key")
    if not pair.certificate.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        certificate, key = make_pair("Tipping Point", serves=[*names, "localhost", "127.0.0.1"])
        write_private(pair.key, key)
        write_private(pair.certificate, certificate)  # last: it says that both are there
    return pair


def write_private(path: Path, content: bytes) -> None:
    """Put a file there, whole or not at all, that only its owner can read."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    part.replace(path)


def fingerprint(place: str, certificate: Path) -> str:
    """The SHA-256 of a certificate as browsers and openssl show it; UserError where it is none."""
    text = read_text(place, certificate, "a certificate (PEM)")
    try:
        shown = x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise UserError(place, str(certificate), "a certificate (PEM)") from None
    return shown.fingerprint(hashes.SHA256()).hex(":").upper()


def server_context(pair: Pair) -> ssl.SSLContext:
    """What a server with this pair speaks: TLS 1.2 or newer. UserError where the files cannot be used."""
    read_secret("--key", pair.key, "the certificate's key (PEM)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # The password keeps OpenSSL from asking for one on a terminal.
        context.load_cert_chain(pair.certificate, pair.key, password="")
    except (ssl.SSLError, OSError):
        accepted = f"a certificate (PEM) whose key, without a password, is {pair.key}"
        raise UserError("--certificate", str(pair.certificate), accepted) from None
    return context
