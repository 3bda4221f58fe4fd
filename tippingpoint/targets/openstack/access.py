"""Access to OpenStack: a cloud of a clouds.yaml. The file is only read."""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from tippingpoint.errors import UserError
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.util.secret_files import read_yaml

_PLACE = "target.credentials"
_ACCEPTED = "a clouds.yaml"
_PASSWORD_TYPES = ("password", "v3password")
_APPLICATION_TYPES = ("v3applicationcredential",)
_INTERFACES = ("public", "internal", "admin")


@dataclass(frozen=True)
class CloudAccess:
    """A cloud and a login to it. `identity` is sent to Keystone (v3 `auth.identity`) and contains the secret."""

    name: str
    auth_url: str
    """Keystone's v3 API, without a slash at its end."""
    identity: Mapping[str, Any] = field(repr=False)
    scope: Mapping[str, Any] | None
    """The project that tokens are for (v3 `auth.scope`); None with an application credential, which has its own."""
    region: str | None
    interface: str
    ca: Path | None

    def tls(self) -> ssl.SSLContext:
        """Return the context for connections: it verifies host names, by `ca` or else the system's authorities."""
        return _context(self.ca, self.name)


def clouds_file() -> Path:
    """Return the clouds.yaml that OpenStack's own clients would read, else the one in the current directory."""
    if named := os.environ.get("OS_CLIENT_CONFIG_FILE"):
        return Path(named)
    places = (Path(), Path("~/.config/openstack").expanduser(), Path("/etc/openstack"))
    return next(
        (place / "clouds.yaml" for place in places if (place / "clouds.yaml").is_file()), Path("clouds.yaml")
    )


def from_clouds(target: OpenstackTarget) -> CloudAccess:
    """Read the cloud that a plan names; UserError if the file is unusable, or lacks the cloud or a part of it.

    Passwords and application credentials (by id) are supported. Errors show nothing of the file's content but the
    names of clouds, and addresses.
    """
    path = target.credentials or clouds_file()
    content = read_yaml(_PLACE, path, _ACCEPTED, private=True)
    clouds = content.get("clouds")
    if not isinstance(clouds, dict) or not clouds:
        raise UserError(_PLACE, str(path), f"{_ACCEPTED} with `clouds`")
    known = cast("dict[str, Any]", clouds)
    name = target.cloud or os.environ.get("OS_CLOUD") or (str(next(iter(known))) if len(known) == 1 else None)
    names = ", ".join(sorted(map(str, known))[:10])
    if name is None or name not in known:
        raise UserError("target.cloud", name or "missing", f"one of {names}, which {path} has")
    return _cloud(path, name, known[name], target)


def _cloud(path: Path, name: str, found: object, target: OpenstackTarget) -> CloudAccess:
    def refused(what: str, value: object, accepted: str) -> UserError:
        return UserError(f"clouds.{name}.{what}", value, f"{accepted}, in {path}")

    if not isinstance(found, dict):
        raise refused("auth", "missing", "auth_url, and a password or an application credential")
    cloud = cast("dict[str, Any]", found)
    auth = cloud.get("auth")
    if not isinstance(auth, dict):
        raise refused("auth", "missing", "auth_url, and a password or an application credential")
    for key in ("verify", "insecure"):
        if cloud.get(key) is (key == "insecure"):
            raise refused(
                key,
                str(cloud[key]).lower(),
                "TLS that is verified, with `cacert` for a private authority",
            )
    given = cast("dict[str, Any]", auth)
    url = given.get("auth_url")
    if not isinstance(url, str) or not _is_url(url):
        raise refused("auth.auth_url", "missing" if url is None else "unusable", "http(s)://host:port/v3")
    if "@" in url:
        raise refused("auth.auth_url", "with a user in it", "http(s)://host:port/v3")
    kind = cloud.get(
        "auth_type", "password" if "application_credential_id" not in given else _APPLICATION_TYPES[0]
    )
    if kind in _APPLICATION_TYPES:
        identity, scope = _application_credential(given, refused), None
    elif kind in _PASSWORD_TYPES:
        identity, scope = _password(given, refused), _project(given, refused)
    else:
        raise refused("auth_type", str(kind), f"one of {', '.join((*_PASSWORD_TYPES, *_APPLICATION_TYPES))}")
    interface = target.interface or cloud.get("interface", cloud.get("endpoint_type", "public"))
    interface = interface.removesuffix("URL") if isinstance(interface, str) else interface
    if interface not in _INTERFACES:
        raise refused("interface", str(interface), f"one of {', '.join(_INTERFACES)}")
    region = target.region or cloud.get("region_name")
    ca = cloud.get("cacert")
    if ca is not None and not isinstance(ca, str):
        raise refused("cacert", "not a path", "a PEM file")
    access = CloudAccess(
        name=name,
        auth_url=_versioned(url),
        identity=identity,
        scope=scope,
        region=str(region) if region is not None else None,
        interface=interface,
        ca=(path.parent / Path(ca).expanduser()).absolute() if ca is not None else None,
    )
    access.tls()
    return access


def _application_credential(given: Mapping[str, Any], refused: Any) -> dict[str, Any]:
    identity, secret = given.get("application_credential_id"), given.get("application_credential_secret")
    if not isinstance(identity, str) or not isinstance(secret, str):
        missing = "id" if not isinstance(identity, str) else "secret"
        raise refused(f"auth.application_credential_{missing}", "missing", "a text")
    return {
        "methods": ["application_credential"],
        "application_credential": {"id": identity, "secret": secret},
    }


def _password(given: Mapping[str, Any], refused: Any) -> dict[str, Any]:
    password = given.get("password")
    if not isinstance(password, str):
        raise refused("auth.password", "missing", "a text, or an application credential")
    user: dict[str, Any] = {"password": password}
    if isinstance(given.get("user_id"), str):
        user["id"] = given["user_id"]
    elif isinstance(given.get("username"), str):
        user |= {"name": given["username"], "domain": _domain(given, "user")}
    else:
        raise refused("auth.username", "missing", "a name, or user_id")
    return {"methods": ["password"], "password": {"user": user}}


def _project(given: Mapping[str, Any], refused: Any) -> dict[str, Any]:
    if isinstance(given.get("project_id"), str):
        return {"project": {"id": given["project_id"]}}
    if isinstance(given.get("project_name"), str):
        return {"project": {"name": given["project_name"], "domain": _domain(given, "project")}}
    raise refused("auth.project_name", "missing", "a name, or project_id")


def _domain(given: Mapping[str, Any], whose: str) -> dict[str, str]:
    for key, named in ((f"{whose}_domain_id", "id"), (f"{whose}_domain_name", "name"), ("domain_id", "id")):
        if isinstance(given.get(key), str):
            return {named: given[key]}
    named = given.get("domain_name")
    return {"name": named} if isinstance(named, str) else {"id": "default"}


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or an unmatched bracket
        return False


def _versioned(url: str) -> str:
    """Return the URL of Keystone's v3 API for an auth_url, which may lack the version."""
    url = url.rstrip("/")
    return url if url.endswith("/v3") else url.removesuffix("/v2.0") + "/v3"


@functools.cache
def _of_system() -> ssl.SSLContext:
    """Return the context that trusts the system's authorities. Reading these takes 20 ms: all clients share it."""
    return ssl.create_default_context()


def _context(ca: Path | None, name: str) -> ssl.SSLContext:
    try:
        context = _of_system() if ca is None else ssl.create_default_context(cafile=str(ca))
    except OSError as problem:  # ssl.SSLError is one
        why = "not PEM" if isinstance(problem, ssl.SSLError) else problem.strerror
        raise UserError(_PLACE, f"cacert of {name}: {ca}", f"a PEM file with an authority ({why})") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
