"""How to reach an OpenStack, read from a secret and converted to a clouds.yaml of one cloud."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tippingpoint.errors import UserError
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.secret import PLACE, Reached, Secret
from tippingpoint.util.in_clear import caution, is_in_clear
from tippingpoint.util.secret_keys import Keys

_CLOUD = "tippingpoint"
_FILE, _AUTHORITY = "clouds.yaml", "openstack-ca.pem"
_APPLICATION = ("auth-url", "application-credential-id", "application-credential-secret")
_USER = ("auth-url", "username", "password", "project")
_DOMAINS = ("user-domain", "project-domain")
_MORE = ("region", "cacert")


class OpenstackSecret(Secret[OpenstackTarget]):
    """An application credential, or a user of a project.

    `project-id`, `user-domain-id` and `project-domain-id` can replace names, which are not permanent. The example of
    a secret has names.
    """

    ways = (Keys(_APPLICATION, _MORE), Keys(_USER, (*_DOMAINS, *_MORE)))
    example = "auth-url=URL application-credential-id=ID application-credential-secret#file=FILE"

    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        _check_url(content["auth-url"])
        cloud: dict[str, Any]
        if "password" in content:
            auth = {key.replace("-", "_"): content[key] for key in ("auth-url", "username", "password")}
            for what in ("project", *_DOMAINS):
                identity = content.get(f"{what}-id")
                named = what.replace("-", "_") + ("_id" if identity else "_name")
                auth[named] = identity or content.get(what, "Default")
            cloud = {"auth": auth}
        else:
            auth = {key.replace("-", "_"): content[key] for key in _APPLICATION}
            cloud = {"auth_type": "v3applicationcredential", "auth": auth}
        if content.get("region"):
            cloud["region_name"] = content["region"]
        files: dict[str, str] = {}
        if content.get("cacert"):
            _check_authority(content["cacert"])
            files[_AUTHORITY] = content["cacert"]
            cloud["cacert"] = _AUTHORITY  # in the same directory
        files[_FILE] = yaml.safe_dump({"clouds": {_CLOUD: cloud}})
        danger = caution("the login", "Keystone") if is_in_clear(content["auth-url"]) else ""
        return Reached(
            {"credentials": f"{PLACE}/{_FILE}", "cloud": _CLOUD}, files, content["auth-url"], danger
        )

    def read(self, section: OpenstackTarget, files: Mapping[str, Path]) -> None:
        from tippingpoint.targets.openstack.access import from_clouds

        if _AUTHORITY in files:
            document = yaml.safe_load(files[_FILE].read_text())
            document["clouds"][_CLOUD]["cacert"] = str(files[_AUTHORITY])
            files[_FILE].write_text(yaml.safe_dump(document))
        from_clouds(section)


def _check_url(url: str) -> None:
    """Check a URL; UserError if it is invalid, or contains a login, which would be shown with addresses."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or "@" in url or "?" in url or "#" in url or not url.isprintable() or " " in url:
        raise UserError("auth-url", "", "http(s)://HOST:PORT/v3")


def _check_authority(text: str) -> None:
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, TypeError):  # TypeError if it is not ASCII
        raise UserError("cacert", "", "certificates of an authority (PEM)") from None


SECRET = OpenstackSecret()
