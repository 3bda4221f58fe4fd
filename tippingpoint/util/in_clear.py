"""Whether a secret that is sent to an address can be read on the way. One rule for every client of ours.

Who could as well have TLS is refused: a login with http to a host that is not loopback. Where plain http is how a
target is deployed (MAAS has no TLS by default, and a DevStack none at all), a run says so, and so does a unit's status.
What begins with TLS never goes on without it.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

LOGIN_ACCEPTED = "an https URL, as there is a login"
"""What is accepted instead of a plain http URL with a login."""


def is_in_clear(url: str) -> bool:
    """Whether a URL is of plain http, to a host that is not loopback."""
    try:
        parts = urlsplit(url)
        return parts.scheme.lower() == "http" and not is_loopback(parts.hostname or "")
    except ValueError:  # an unmatched bracket
        return True


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or address without brackets, is this machine's loopback."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def caution(secret: str, to: str) -> str:
    """Return the caution about a secret that goes somewhere without TLS."""
    return f"{secret} goes to {to} without TLS and can be read on the way: private networks only"
