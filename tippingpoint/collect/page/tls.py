"""The page's certificate, and its fingerprint, by which readers recognize one that we made."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from tippingpoint.collect.page.access import read_secret
from tippingpoint.errors import UserError
from tippingpoint.rundir.files import replace_file
from tippingpoint.util.key_pair import make_pair
from tippingpoint.util.secret_files import read_text


@dataclass(frozen=True)
class Pair:
    """The paths of a certificate and its key, as PEM."""

    certificate: Path
    key: Path


def find_or_make(directory: Path, names: Sequence[str]) -> Pair:
    """Return our own pair in a directory; if there is none, one is made for a server of these names and addresses.

    Both files have mode 0600.
    """
    pair = Pair(directory / "page.crt", directory / "page.key")
    if not pair.certificate.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        certificate, key = make_pair("Tipping Point", serves=[*names, "localhost", "127.0.0.1"])
        write_private(pair.key, key)
        write_private(pair.certificate, certificate)  # last, because its existence means that both exist
    return pair


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, as a whole or not at all."""
    replace_file(path, content, mode=0o600)


def fingerprint(place: str, certificate: Path) -> str:
    """Return a certificate's SHA-256 as browsers and openssl show it; raises UserError for anything else."""
    text = read_text(place, certificate, "a certificate (PEM)")
    try:
        shown = x509.load_pem_x509_certificate(text.encode())
    except ValueError:
        raise UserError(place, str(certificate), "a certificate (PEM)") from None
    return shown.fingerprint(hashes.SHA256()).hex(":").upper()


def server_context(pair: Pair) -> ssl.SSLContext:
    """Return the TLS context of a server with this pair: TLS 1.2 or newer. Raises UserError if the files are
    unusable."""
    read_secret("--key", pair.key, "the certificate's key (PEM)")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # With a password given, OpenSSL does not ask for one on a terminal.
        context.load_cert_chain(pair.certificate, pair.key, password="")
    except (ssl.SSLError, OSError):
        accepted = f"a certificate (PEM) whose key, without a password, is {pair.key}"
        raise UserError("--certificate", str(pair.certificate), accepted) from None
    return context
