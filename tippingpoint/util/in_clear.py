"""Whether a secret that is sent to an address can be read on the way. One rule for all our clients.

A login over http to a host that is not loopback is refused where TLS would be just as possible. Where targets are
deployed with plain http (MAAS has no TLS by default, and a DevStack none at all), the run and the unit's status warn
about it. What begins with TLS never continues without it.
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
    """Return the warning about a secret that is sent somewhere without TLS."""
    return f"{secret} goes to {to} without TLS and can be read on the way: private networks only"
