"""TLS for every client: why a server's certificate was rejected, and a certificate of our own from memory."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Literal

from tippingpoint.errors import one_line


@dataclass(frozen=True)
class Fault:
    """Why a certificate was rejected, and what would be accepted."""

    kind: Literal["expired", "early", "name", "authority"]
    said: str
    accepted: str


# OpenSSL's X509_V_ERR_... (x509_vfy.h): CERT_NOT_YET_VALID, CERT_HAS_EXPIRED, HOSTNAME_ and IP_ADDRESS_MISMATCH
_EARLY, _EXPIRED, _NAMES = 9, 10, (62, 64)


def certificate_fault(problem: ssl.SSLCertVerificationError) -> Fault:
    """Return why a server's certificate was rejected.

    An expired authority is reported like an expired server certificate, because OpenSSL does not say which of them
    expired.
    """
    code = getattr(problem, "verify_code", 0)  # an error of our own has none
    if code == _EXPIRED:
        return Fault("expired", "the server's certificate has expired", "a renewed certificate")
    if code == _EARLY:
        accepted = "a certificate that is valid now, and a correct clock on this machine"
        return Fault("early", "the server's certificate is not valid yet", accepted)
    told = one_line(str(getattr(problem, "verify_message", "") or problem.args[-1])).rstrip(".")
    if code in _NAMES:
        return Fault(
            "name",
            f"the server's certificate is for another name: {told}",
            "a name in the server's certificate",
        )
    why = " is not signed by a trusted authority" if code else ""
    return Fault(
        "authority",
        f"the server's certificate{why}: {told}",
        "the authority that signed the server's certificate",
    )


def load_pair(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Have a context present this certificate; both are PEM texts. Raises ssl.SSLError if they do not belong
    together."""
    # The ssl module reads keys from files only; this file is in memory and has no name.
    descriptor = os.memfd_create("client", os.MFD_CLOEXEC)
    with open(descriptor, "wb", buffering=0) as file:
        file.write(f"{certificate}\n{key}\n".encode())
        # Without an explicit password, OpenSSL would ask for one on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=b"")
