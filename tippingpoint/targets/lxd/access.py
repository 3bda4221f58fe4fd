"""Access to LXD: a remote of the lxc or incus client, a socket, or a credentials file. Files are only read."""

from __future__ import annotations

import base64
import hashlib
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from cryptography import x509

from tippingpoint.errors import UserError
from tippingpoint.targets.lxd.product import LXD, PRODUCTS
from tippingpoint.util import timing
from tippingpoint.util.certificates import load_pair
from tippingpoint.util.secret_files import read_text, read_yaml

DEFAULT_PORT = 8443
"""LXD's default port (shared/constants.go)."""

_BEGIN_CERTIFICATE, _END_CERTIFICATE = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"

# The clients' built-in remote, which no configuration changes (StaticRemotes, lxc/config/default.go).
_LOCAL: dict[str, Any] = {"local": {"addr": "unix://"}}


@dataclass(frozen=True)
class LxdAccess:
    """An LXD server, or members of one cluster, and the client's key pair.

    `name` is for people. With `socket` (a path) the other fields are empty. Otherwise `addresses` are
    "https://host:port", and `server_certificate` (PEM) is the one that each of them must show, whoever signed it.
    Without one (None), each shows a certificate for its host name, signed by `authority` (PEM) or by one of the
    system's authorities. `certificate` and `key` are the client's.
    """

    name: str
    socket: Path | None = None
    addresses: tuple[str, ...] = ()
    server_certificate: str | None = ""
    certificate: str = ""
    key: str = field(default="", repr=False)
    authority: str | None = None

    def tls(self) -> ssl.SSLContext:
        """Return the context for connections: it accepts the server's certificate, and shows the client's.

        Raises ssl.SSLError if a certificate or the key is unusable, or the key does not belong to its certificate.
        """
        if self.server_certificate is not None:
            context = pinned(der(self.server_certificate))
        else:
            context = ssl.create_default_context(cadata=self.authority)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
        load_pair(context, self.certificate, self.key)
        return context


def pinned(certificate: bytes) -> ssl.SSLContext:
    """Return a context for servers that show exactly this certificate (DER), while it is valid."""

    class OnlyThis(ssl.SSLObject):
        # Trusting the certificate is not enough: if it were an authority's, all that it signed would pass.
        def do_handshake(self) -> None:
            super().do_handshake()
            if self.getpeercert(binary_form=True) != certificate:
                raise ssl.SSLCertVerificationError("not the expected certificate")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # LXD's certificate has the host's name at the time of its creation
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslobject_class = OnlyThis
    context.load_verify_locations(cadata=certificate)
    return context


def der(certificate: str) -> bytes:
    """Convert the first certificate of a PEM text to DER; ssl.SSLError if there is none."""
    _, found, rest = certificate.partition(_BEGIN_CERTIFICATE)
    body, ended, _ = rest.partition(_END_CERTIFICATE)
    try:
        if found and ended:
            return base64.b64decode("".join(body.split()), validate=True)
    except ValueError:
        pass
    raise ssl.SSLError("no certificate")


def fingerprint(certificate: bytes) -> str:
    """Return the fingerprint by which LXD knows a certificate (DER): its SHA-256 in hexadecimal digits."""
    return hashlib.sha256(certificate).hexdigest()


def config_directory(remote: str | None = None) -> Path:
    """Return the configuration directory of a client, lxc or else incus, that has this remote; None: its default.

    It is the first of $LXD_CONF, $INCUS_CONF, ~/.config/lxc, the snap's and ~/.config/incus that has the remote, or
    else the first that exists. One that the environment names is the only one of its product.
    """
    remote = remote or _named_remote()
    there: list[Path] = []
    for product in sorted(PRODUCTS, key=lambda product: product.named_configuration is None):
        named = product.named_configuration
        places = [place.expanduser() for place in product.configurations] if named is None else [named]
        there += [place for place in places if named is not None or (place / "config.yml").exists()]
    has = [place for place in there if remote is not None and remote in _remotes_of(place)]
    return next(iter([*has, *there]), LXD.configurations[0].expanduser())


def _remotes_of(directory: Path) -> Mapping[str, Any]:
    """The remotes of a configuration; none if it is unusable, which `from_remote` reports."""
    try:
        return _by_name(
            read_yaml("target.remote", directory / "config.yml", "a configuration").get("remotes")
        )
    except UserError:
        return {}


def _named_remote() -> str | None:
    return next((name for product in PRODUCTS if (name := product.named_remote)), None)


def local_socket() -> Path:
    """Return the local server's socket: the one that $LXD_SOCKET, $LXD_DIR, $INCUS_SOCKET or $INCUS_DIR names, else the
    first that a package or the snap has."""
    for product in PRODUCTS:
        if (named := product.named_socket) is not None:
            return named
    places = [place for product in PRODUCTS for place in product.sockets]
    return next((place for place in places if place.exists()), places[0])


def from_socket(path: Path) -> LxdAccess:
    """Return the server behind a Unix socket; UserError if it is not a socket, or this user may not open it."""
    place, accepted = "target.socket", "the unix.socket of an LXD server"
    try:
        usable = path.is_socket()
        allowed = usable and os.access(path, os.R_OK | os.W_OK)
    except (OSError, ValueError):
        raise UserError(place, str(path), accepted) from None
    if not usable:
        raise UserError(place, str(path), accepted + (" (this is another file)" if path.exists() else ""))
    if not allowed:
        raise UserError(
            place,
            str(path),
            f"{accepted} that this user may open (a member of the group lxd, or incus-admin)",
        )
    return LxdAccess(str(path), socket=path)


def from_remote(name: str | None, directory: Path) -> LxdAccess:
    """Read the server that the client lxc or incus calls this (`remote list`); None reads its current remote.

    A remote may have several addresses, of which the last working one comes first, and a client certificate of its own.
    UserError if the remote does not exist or is an image server, or if it or a certificate is unusable.
    """
    place = "target.remote"
    file = directory / "config.yml"
    content = read_yaml(place, file, "the lxc client's configuration (LXD_CONF)") if file.exists() else {}
    homes = dict.fromkeys(remotes := _by_name(content.get("remotes")), directory)
    for everybodys in (product.everybodys_configuration for product in PRODUCTS):
        for each, remote in _remotes_of(everybodys).items():
            if each not in remotes:
                remotes[each], homes[each] = remote, everybodys
    remotes |= _LOCAL
    default = content.get("default-remote") or "local"
    name = name if name is not None else _named_remote() or (str(default) if _is_plain(default) else default)
    if not isinstance(name, str) or name not in remotes:
        private = [known for known, remote in remotes.items() if not _serves_images(_mapping(remote))]
        raise UserError(place, name, f"one of {_listed(private)} (lxc remote list)")
    remote = _mapping(remotes[name])
    if _serves_images(remote):
        raise UserError(place, name, "a remote that runs containers: this one is an image server")
    addresses = _in_turn(remote)
    if addresses and addresses[0].startswith("unix:"):
        path = addresses[0].removeprefix("unix:").removeprefix("//")
        return from_socket(Path(path) if path else local_socket())
    if remote.get("auth_type") not in (None, "", "tls"):
        raise UserError(place, name, "a remote with client certificates: auth_type tls")
    https = [address for address in addresses if not address.startswith("unix:")]
    urls = [_url(address, 443) for address in https if address.startswith("https://")]
    if not urls or None in urls or len(urls) < len(https):
        raise UserError(place, name, f"a remote with addr https://host:port in {file}")
    own = directory / "clientcerts" / f"{name}.crt"
    whole = own.exists() and own.with_name(f"{name}.key").exists()
    return _remote_access(
        name,
        cast("list[str]", urls),
        homes[name] / "servercerts" / f"{name}.crt",
        own if whole else directory / "client.crt",
    )


def _remote_access(name: str, urls: Sequence[str], server: Path, client: Path) -> LxdAccess:
    """Read the certificates of a remote. It has none for a server whose certificate a known authority has signed."""
    place = "target.remote"
    key, authority = (client.with_name(client.name.removesuffix(".crt") + end) for end in (".key", ".ca"))
    known = server.exists()
    own = not known and authority.exists()
    return checked(
        place,
        LxdAccess(
            name,
            addresses=tuple(urls),
            server_certificate=read_text(place, server, f"the certificate of {name}") if known else None,
            certificate=read_text(place, client, "the lxc client's certificate"),
            key=read_text(place, key, "the lxc client's key", private=True),
            authority=read_text(place, authority, "the client's authority") if own else None,
        ),
        str(server if known else authority),
        str(client),
        str(key),
    )


def _in_turn(remote: Mapping[str, Any]) -> list[str]:
    """Return the addresses of a remote, the last one that worked first."""
    given = remote.get("addr")
    addresses = [each.strip() for each in given.split(",") if each.strip()] if isinstance(given, str) else []
    last = remote.get("last_working_address")
    first = addresses.index(last) if last in addresses else 0
    return addresses[first:] + addresses[:first]


def from_file(path: Path) -> LxdAccess:
    """Read server and client from a YAML file of mode 0600: addresses, certificate, client_certificate, client_key.

    `addresses` are host:port, as a list or as one text with commas (the form of the relation lxd-https).
    `certificate` is the server's own; it and the other two are PEM texts. UserError if one is missing or unusable.
    Errors show nothing of the file's content but the addresses.
    """
    place = "target.credentials"
    accepted = "a YAML file with `addresses`, `certificate`, `client_certificate` and `client_key`"
    content = read_yaml(place, path, accepted, private=True)
    texts = [content.get(name) for name in ("certificate", "client_certificate", "client_key")]
    if content.keys() != {"addresses", "certificate", "client_certificate", "client_key"}:
        raise UserError(place, str(path), f"{accepted}, and nothing else")
    if not all(isinstance(text, str) for text in texts):
        raise UserError(place, str(path), f"{accepted}, the last three as PEM texts")
    addresses = addresses_of(content["addresses"])
    if addresses is None:
        raise UserError(place, str(path), "`addresses` with at least one host:port, separated by commas")
    server, certificate, key = cast("list[str]", texts)
    return checked(
        place,
        LxdAccess(urlsplit(addresses[0]).netloc, None, addresses, server, certificate, key),
        f"{path} (certificate)",
        f"{path} (client_certificate)",
        f"{path} (client_key)",
    )


def checked(
    place: str, access: LxdAccess, server_file: str, certificate_file: str, key_file: str
) -> LxdAccess:
    """Return the access if its certificates are valid now and its key is usable; else UserError names the file."""
    shown = access.server_certificate if access.server_certificate is not None else access.authority
    if shown is not None:
        _in_date(place, shown, server_file)
    _in_date(place, access.certificate, certificate_file)
    try:
        access.tls()
    except ssl.SSLError as problem:
        mismatch = "KEY_VALUES_MISMATCH" in (problem.reason or "")
        accepted = f"the key of {certificate_file}" if mismatch else "a PEM key without a password"
        raise UserError(place, key_file, accepted) from None
    return access


def _in_date(place: str, certificate: str, file: str) -> None:
    try:
        read = x509.load_der_x509_certificate(der(certificate))
        begins, ends = read.not_valid_before_utc, read.not_valid_after_utc
    except (ssl.SSLError, ValueError, x509.InvalidVersion):
        raise UserError(place, file, "a certificate (PEM)") from None
    now = datetime.fromtimestamp(timing.wall(), UTC)
    if now > ends:
        raise UserError(place, file, f"a valid certificate: this one expired on {ends:%Y-%m-%d %H:%M} UTC")
    if now < begins:
        raise UserError(
            place, file, f"a valid certificate: this one is valid from {begins:%Y-%m-%d %H:%M} UTC"
        )


def addresses_of(given: object) -> tuple[str, ...] | None:
    """Convert host:port, as a list or a text with commas, to "https://host:port"; None if one is not an address."""
    listed = given.split(",") if isinstance(given, str) else given
    if not isinstance(listed, list):
        return None
    addresses = cast("list[object]", listed)
    urls = [_url(address.strip()) for address in addresses if isinstance(address, str)]
    known = [url for url in urls if url is not None]
    return tuple(known) if known and len(known) == len(addresses) else None


def _url(address: str, default: int = DEFAULT_PORT) -> str | None:
    """Convert an address to "https://host:port"; None if it is not an address."""
    try:
        parts = urlsplit(address if "://" in address else f"https://{address}")
        host, port = parts.hostname, parts.port or default
    except ValueError:  # an invalid port, or an unmatched bracket
        return None
    plain = parts.scheme == "https" and parts.path in ("", "/") and not (parts.query or parts.fragment)
    if not host or not plain or parts.username is not None or not host.isprintable() or " " in host:
        return None
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _serves_images(remote: Mapping[str, Any]) -> bool:
    return remote.get("protocol") in ("simplestreams", "oci") or bool(remote.get("public"))


def _listed(names: list[str]) -> str:
    names = sorted(map(str, names))  # YAML's keys may be numbers
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _by_name(remotes: object) -> dict[str, Any]:
    """Return remotes by their names, which YAML may have read as numbers."""
    return {str(name): remote for name, remote in _mapping(remotes).items()}


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float)


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
