"""Access to a MAAS: its URL, an API key and TLS, read from a file."""

from __future__ import annotations

import re
import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, urlsplit

from tippingpoint.errors import UserError
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.util import timing
from tippingpoint.util.secret_files import read_yaml

_PLACE = "target.credentials"
_ACCEPTED = "a YAML file with `url`, `api_key`, perhaps `ca` (PEM) and `power` (parameters)"
_URL = "http(s)://HOST:PORT/MAAS"
_KEY = "three parts with colons in between, as `maas apikey --username=USER` shows them"
_VERSIONED = "/api/2.0"


@dataclass(frozen=True)
class MaasAccess:
    """Access to one MAAS. No connection has been made yet."""

    url: str
    """Where MAAS itself is, such as "https://maas.example:5443/MAAS", without a slash at its end."""
    consumer: str
    token: str = field(repr=False)
    secret: str = field(repr=False)
    tls: ssl.SSLContext = field(repr=False)
    power: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The power parameters of the run's machines that are secrets, such as `power_pass`."""

    @property
    def api(self) -> str:
        """Where version 2.0 of the API is, with a slash at its end."""
        return f"{self.url}{_VERSIONED}/"

    def authorization(self) -> str:
        """Return the header `Authorization` of one call: OAuth 1.0 with the signature method PLAINTEXT (RFC 5849).

        MAAS refuses a nonce that it has seen, and a time more than five minutes before its own.
        """
        fields = {
            "oauth_version": "1.0",
            "oauth_signature_method": "PLAINTEXT",
            "oauth_consumer_key": self.consumer,
            "oauth_token": self.token,
            "oauth_signature": f"&{self.secret}",
            "oauth_nonce": uuid.uuid4().hex,
            "oauth_timestamp": str(int(timing.wall())),
        }
        return "OAuth " + ", ".join(f'{name}="{quote(value, safe="")}"' for name, value in fields.items())


def access(target: MaasTarget) -> MaasAccess:
    """Read the file that a target names; UserError if it is unusable. Errors show nothing of a key."""
    if target.credentials is None:
        raise UserError(_PLACE, "none", _ACCEPTED)
    known = read_yaml(_PLACE, target.credentials, _ACCEPTED, private=True)
    unknown = sorted(str(name) for name in known.keys() - {"url", "api_key", "ca", "power"})
    if unknown:
        raise UserError(_PLACE, f"{target.credentials} with `{unknown[0]}`", _ACCEPTED)
    return read_access(known)


def read_access(known: Mapping[str, Any]) -> MaasAccess:
    """Read `url`, `api_key`, `ca` and `power`; UserError, whose field is one of these, if one is unusable."""
    consumer, token, secret = _parts_of(known.get("api_key"))
    return MaasAccess(
        _url(known.get("url")), consumer, token, secret, _tls(known.get("ca")), _power(known.get("power"))
    )


def _url(url: object) -> str:
    """Return where MAAS is. The URL may be that of its API, of any version, or of any of its pages."""
    if not isinstance(url, str):
        raise UserError("url", "missing" if url is None else "not a text", f"{_URL}, in {_PLACE}")
    url = url.strip()
    if "@" in url:
        raise UserError("url", "with a user in it", f"{_URL}, in {_PLACE}")
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or an unmatched bracket
        raise UserError("url", url, f"{_URL}, in {_PLACE}") from None
    if not whole or not url.isprintable() or " " in url:
        raise UserError("url", url, f"{_URL}, in {_PLACE}")
    path = re.sub("/{2,}", "/", parts.path)
    # A reverse proxy may have it at another path, which ends before the API or the pages.
    found = re.match("(?:.*?/MAAS(?=/|$))|(?:.*?(?=/(?:api/[0-9.]+|r|l)(?:/|$)|/?$))", path)
    return f"{parts.scheme}://{parts.netloc}{(found[0] if found else '') or '/MAAS'}"


def _parts_of(key: object) -> tuple[str, str, str]:
    if not isinstance(key, str):
        raise UserError("api_key", "missing" if key is None else "not a text", f"{_KEY}, in {_PLACE}")
    parts = key.strip().split(":")
    if len(parts) != 3 or not all(part.isascii() and part.isalnum() for part in parts):
        raise UserError("api_key", f"{len(parts)} parts", f"{_KEY}, in {_PLACE}")
    return cast("tuple[str, str, str]", tuple(parts))


def _tls(ca: Any) -> ssl.SSLContext:
    if ca is not None and not isinstance(ca, str):
        raise UserError("ca", "not a text", f"certificates of an authority (PEM), in {_PLACE}")
    try:
        context = ssl.create_default_context(cadata=ca)
    except (ssl.SSLError, ValueError, TypeError):  # TypeError if it is not ASCII
        raise UserError("ca", "unusable", f"certificates of an authority (PEM), in {_PLACE}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _power(given: object) -> dict[str, str]:
    """Return power parameters. YAML may have read one as a number."""
    if given is None:
        return {}
    found = cast("dict[object, object]", given) if isinstance(given, dict) else {None: None}
    if not all(isinstance(name, str) and isinstance(value, str | int) for name, value in found.items()):
        raise UserError("power", "unusable", f"a mapping of power parameters to texts, in {_PLACE}")
    return {str(name): str(value) for name, value in found.items()}
