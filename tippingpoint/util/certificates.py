"""What is wrong with a server's certificate, in words, for every client: not all of it is the authority's."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Literal

from tippingpoint.errors import one_line


@dataclass(frozen=True)
class Fault:
    """Why a certificate does not hold, and what would."""

    kind: Literal["expired", "early", "name", "authority"]
    said: str
    accepted: str


# OpenSSL's X509_V_ERR_... (x509_vfy.h): CERT_NOT_YET_VALID, CERT_HAS_EXPIRED, HOSTNAME_ and IP_ADDRESS_MISMATCH
_EARLY, _EXPIRED, _NAMES = 9, 10, (62, 64)


def certificate_fault(problem: ssl.SSLCertVerificationError) -> Fault:
    """What a server's certificate was refused for. An authority's that has expired is told as the server's is: OpenSSL
    does not say which of them it is."""
    code = getattr(problem, "verify_code", 0)  # an error of our own has none
    if code == _EXPIRED:
        return Fault("expired", "the server's certificate has expired", "a certificate that is renewed")
    if code == _EARLY:
        accepted = "one that is valid by now, and a clock of this machine that is right"
        return Fault("early", "the server's certificate is not valid yet", accepted)
    told = one_line(str(getattr(problem, "verify_message", "") or problem.args[-1])).rstrip(".")
    if code in _NAMES:
        return Fault(
            "name",
            f"the server's certificate is for another name: {told}",
            "a name in the server's certificate",
        )
    why = " is not of an authority that we trust" if code else ""
    return Fault(
        "authority",
        f"the server's certificate{why}: {told}",
        "the authority that signed the server's certificate",
    )
