"""Access to OpenStack: where a cloud is, and who we are there. Each value of its clouds.yaml is checked here."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tippingpoint.errors import UserError
from tippingpoint.targets.openstack.clouds import PLACE, Cloud, clouds_file, read_cloud
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.util.secret_files import read_text

_PASSWORD_TYPES = ("password", "v3password")
_APPLICATION_TYPES = ("v3applicationcredential",)
_TOKEN_TYPES = ("token", "v3token")
SERVICES = ("compute", "network", "image", "placement")
"""The services that are used, besides Keystone."""
_URL = "http(s)://host:port/v3"
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
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
    certificate: Path | None = None
    """A client certificate, in PEM; perhaps with its key."""
    key: Path | None = None
    """The key of `certificate`, if it is a file of its own."""
    endpoints: Mapping[str, str] = field(default_factory=dict[str, str])
    """Services' addresses that override those in the catalogue, without a slash at the end."""

    def tls(self) -> ssl.SSLContext:
        """Return the context for connections: it verifies host names, by `ca` or else the system's authorities."""
        return _context(self)


def from_clouds(target: OpenstackTarget) -> CloudAccess:
    """Read the cloud that a plan names; UserError if a file is unusable, or lacks the cloud or a part of it.

    Passwords, application credentials and tokens are supported. Errors show nothing of the files' content but the names
    of clouds, and addresses.
    """
    cloud = read_cloud(target.credentials or clouds_file(), target.cloud, target.region)
    settings = cloud.settings
    for key, unsafe in (("verify", _FALSE), ("insecure", _TRUE)):
        if str(settings.get(key)).lower() in unsafe:
            accepted = "TLS that is verified, with `cacert` for a private authority"
            raise cloud.refused(key, str(settings[key]).lower(), accepted)
    for service in (*SERVICES, "identity"):
        for key, everywhere in (("interface", settings["interface"]), ("region_name", cloud.region)):
            if settings.get(f"{service}_{key}", everywhere) != everywhere:
                accepted = f"the {key.partition('_')[0]} of the whole cloud, {everywhere}"
                raise cloud.refused(f"{service}_{key}", str(settings[f"{service}_{key}"]), accepted)
    url = cloud.login.get("auth_url")
    if not isinstance(url, str):
        raise cloud.refused("auth.auth_url", "missing" if url is None else "unusable", _URL)
    identity, scope = _identity(cloud)
    interface = target.interface or settings["interface"]
    interface = interface.removesuffix("URL") if isinstance(interface, str) else interface
    if interface not in _INTERFACES:
        raise cloud.refused("interface", str(interface), f"one of {', '.join(_INTERFACES)}")
    # `verify` may be the authorities' file itself, as in requests.
    bundle = "verify" if isinstance(settings.get("verify"), str) and "cacert" not in settings else "cacert"
    access = CloudAccess(
        name=cloud.name,
        auth_url=_versioned(_url(cloud, url, "auth.auth_url")),
        identity=identity,
        scope=scope,
        region=target.region or cloud.region,
        interface=interface,
        ca=_file(cloud, bundle),
        certificate=_file(cloud, "cert"),
        key=_file(cloud, "key"),
        endpoints={
            service: _url(cloud, found, f"{service}_endpoint_override").rstrip("/")
            for service in SERVICES
            if (found := settings.get(f"{service}_endpoint_override")) is not None
        },
    )
    access.tls()
    return access


def _identity(cloud: Cloud) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what proves who we are, and what a token is for (v3 `auth.identity` and `auth.scope`)."""
    login = cloud.login
    kind = cloud.settings["auth_type"]
    credential = "application_credential_id" in login or "application_credential_name" in login
    if kind in _APPLICATION_TYPES or (kind == "password" and credential and "password" not in login):
        return _application_credential(cloud), None
    if kind in _PASSWORD_TYPES:
        user = {"password": _login_text(cloud, "password", "a text, or an application credential")}
        return {"methods": ["password"], "password": {"user": user | _user(cloud)}}, _scope(cloud)
    if kind in _TOKEN_TYPES:
        token = _login_text(cloud, "token", "a text")
        return {"methods": ["token"], "token": {"id": token}}, _scope(cloud)
    known = (*_PASSWORD_TYPES, *_APPLICATION_TYPES, *_TOKEN_TYPES)
    raise cloud.refused("auth_type", str(kind), f"one of {', '.join(known)}")


def _application_credential(cloud: Cloud) -> dict[str, Any]:
    secret = _login_text(cloud, "application_credential_secret", "a text")
    if "application_credential_id" in cloud.login or "application_credential_name" not in cloud.login:
        known: dict[str, Any] = {"id": _login_text(cloud, "application_credential_id", "a text")}
    else:
        known = {"name": _login_text(cloud, "application_credential_name", "a text"), "user": _user(cloud)}
    return {"methods": ["application_credential"], "application_credential": known | {"secret": secret}}


def _user(cloud: Cloud) -> dict[str, Any]:
    if "user_id" in cloud.login:
        return {"id": _login_text(cloud, "user_id", "a text")}
    return {"name": _login_text(cloud, "username", "a name, or user_id"), "domain": _domain(cloud, "user")}


def _scope(cloud: Cloud) -> dict[str, Any]:
    login = cloud.login
    asked: dict[str, dict[str, Any]] = {}
    for name in ("domain", "project"):
        if f"{name}_id" in login:
            asked[name] = {"id": _login_text(cloud, f"{name}_id", "a text")}
        elif f"{name}_name" in login:
            asked[name] = {"name": _login_text(cloud, f"{name}_name", "a text")}
            asked[name] |= {"domain": _domain(cloud, "project")} if name == "project" else {}
    if "trust_id" in login:
        asked["OS-TRUST:trust"] = {"id": _login_text(cloud, "trust_id", "a text")}
    if "system_scope" in login:
        if login["system_scope"] != "all":
            raise cloud.refused("auth.system_scope", str(login["system_scope"]), "all")
        asked["system"] = {"all": True}
    if not asked:
        raise cloud.refused("auth.project_name", "missing", "a name, or project_id")
    if len(asked) > 1:
        shown = " and ".join(name.removeprefix("OS-TRUST:") for name in asked)
        raise cloud.refused("auth", f"for {shown}", "a token for one of them")
    return asked


def _domain(cloud: Cloud, whose: str) -> dict[str, str]:
    """Return a user's or project's domain, by id if given, else by name; the default domain if the cloud has none."""
    generic = cloud.settings["auth_type"] in ("password", "token")  # the others do not know a default
    for kind in ("id", "name"):
        for key in (f"{whose}_domain_{kind}", *([f"default_domain_{kind}"] if generic else [])):
            if key in cloud.login:
                return {kind: _login_text(cloud, key, "a text")}
    default = cloud.settings.get("default_domain")
    return {"id": default if isinstance(default, str) and default else "default"}


def _login_text(cloud: Cloud, key: str, accepted: str) -> str:
    value = cloud.login.get(key)
    if isinstance(value, str) and value:
        return value
    # YAML reads some words and numbers as something else: `yes` is true, 2024-01-01 a date.
    shown = "missing" if value is None else "not a text"
    raise cloud.refused(f"auth.{key}", shown, accepted if value is None else f"{accepted}, in quotes")


def _file(cloud: Cloud, key: str) -> Path | None:
    """Return the path of a file. A relative one is in the current directory, as for the clients, or beside the file."""
    value = cloud.settings.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value or "\0" in value:
        raise cloud.refused(key, "not a path", "a PEM file")
    named = Path(cloud.expanded(value, key)).expanduser()
    return (named if named.exists() else cloud.path.parent / named).absolute()


def _url(cloud: Cloud, url: object, what: str) -> str:
    if not isinstance(url, str):
        raise cloud.refused(what, "unusable", _URL)
    url = cloud.expanded(url, what)
    if "@" in url:
        raise cloud.refused(what, "with a user in it", _URL)
    if not _is_url(url):
        raise cloud.refused(what, "unusable", _URL)
    return url


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


def _context(access: CloudAccess) -> ssl.SSLContext:
    ca, certificate, key = access.ca, access.certificate, access.key
    try:
        own = ca is not None or certificate is not None
        context = ssl.create_default_context(cafile=ca and str(ca)) if own else _of_system()
    except OSError as problem:  # ssl.SSLError is one
        why = "not PEM" if isinstance(problem, ssl.SSLError) else problem.strerror
        accepted = f"a PEM file with an authority ({why})"
        raise UserError(PLACE, f"cacert of {access.name}: {ca}", accepted) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        read_text(PLACE, certificate, "the client certificate (PEM)", private=key is None)
        if key is not None:
            read_text(PLACE, key, "the client certificate's key (PEM)", private=True)
        try:
            # Without an explicit password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(certificate, key, password=b"")
        except ssl.SSLError:
            accepted = "a PEM certificate with its key, which has no password"
            raise UserError(PLACE, f"cert of {access.name}: {certificate}", accepted) from None
    return context
