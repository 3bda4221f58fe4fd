"""Access to etcd: endpoints, TLS, credentials, and the meaning of a refusal. Shared by both APIs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.util.backoff import backoff
from tippingpoint.util.certificates import certificate_fault
from tippingpoint.util.in_clear import LOGIN_ACCEPTED, is_in_clear
from tippingpoint.util.network_errors import CLOSED, in_words
from tippingpoint.util.secret_files import read_text, read_yaml

ANSWER_WITHIN = 5.0
"""Seconds a server has for each step of open() and clean(), including the handshake."""
LEADER_WITHIN = 2.0
"""Seconds a member has to report the leader; then another member is asked."""
_FIRST_RETRY, _LONGEST_RETRY = 0.1, 2.0


@dataclass(frozen=True)
class Scope:
    """What one worker may create: keys below `prefix` (which ends in /), and 2**31 v3 leases from `lease_ids` on."""

    prefix: str
    lease_ids: int

    def key(self, lease: int) -> str:
        """The key of the lease with this number."""
        return f"{self.prefix}{lease}"


@dataclass(frozen=True)
class Endpoint:
    """A server's client URL. `name` is its host and port, as used in errors."""

    url: str
    host: str
    port: int
    tls: bool
    name: str


@dataclass(frozen=True)
class Credentials:
    """A user of etcd."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class EtcdAccess:
    """A plan's target, with its files read and checked. No connection has been made yet."""

    target: EtcdTarget
    endpoints: list[Endpoint]
    tls: ssl.SSLContext | None
    credentials: Credentials | None

    @property
    def names(self) -> str:
        """All endpoints, for an error that concerns all of them."""
        return ", ".join(endpoint.name for endpoint in self.endpoints)


def access(target: EtcdTarget, alpn: str | None = None) -> EtcdAccess:
    """Read the files that a target names. UserError when one is unusable or its mode is too open."""
    endpoints = [_endpoint(url) for url in target.endpoints]
    context = tls(target, alpn) if any(endpoint.tls for endpoint in endpoints) else None
    credentials = _credentials(target.credentials)
    clear = [endpoint.url for endpoint in endpoints if is_in_clear(endpoint.url)]
    if credentials is not None and clear:
        raise UserError("target.endpoints", clear[0], LOGIN_ACCEPTED)
    return EtcdAccess(target, endpoints, context, credentials)


def pause(failures: int) -> float:
    """Return the seconds to wait before retrying a connection or a query after this many failures in a row."""
    return backoff(failures, _FIRST_RETRY, _LONGEST_RETRY)


def refusal(access: EtcdAccess, endpoint: Endpoint, error: BaseException) -> TargetError | None:
    """Return the TargetError for an error that a changed plan can fix (TLS, wrong protocol); None for others."""
    name, problem = endpoint.name, in_words(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        fault = certificate_fault(error)
        field = "target.ca" if fault.kind == "authority" else "target.endpoints"
        return TargetError(field, f"{name}: {fault.said}", fault.accepted, refused=True)
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).upper().replace(" ", "_")
        if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER_FAILURE" in reason or "HTTP_REQUEST" in reason:
            return TargetError("target.endpoints", f"{name}: does not speak TLS", f"http://{name}")
        if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason or "HANDSHAKE_FAILURE" in reason:
            shown = access.target.cert is not None
            return TargetError(
                "target.cert/target.key" if shown else "target.cert",
                f"{name}: {'the server refuses it' if shown else 'none given'} ({problem})",
                "a client certificate from an authority that the server trusts",
                refused=True,
            )
        return TargetError(
            "target.endpoints", f"{name}: {problem}", "a server with a supported version of TLS"
        )
    if "answers HTTP/1" in problem and not endpoint.tls:
        return TargetError("target.endpoints", f"{name}: is not etcd, or expects TLS", f"https://{name}")
    # What etcd does when one side speaks TLS and the other does not.
    if problem == CLOSED or isinstance(error, ConnectionResetError | BrokenPipeError):
        accepted = f"http{'' if endpoint.tls else 's'}://{name}"
        return TargetError("target.endpoints", f"{name}: {problem} without an answer", accepted)
    return None


def unreachable(access: EtcdAccess, problems: dict[str, str]) -> TargetError:
    """Return the TargetError for servers that do not answer; `problems` has the cause of each by name."""
    shown = "; ".join(f"{name}: {problem}" for name, problem in list(problems.items())[:5]) or access.names
    return TargetError("target.endpoints", shown, "at least one etcd server that answers")


def _endpoint(url: str) -> Endpoint:
    parts = urlsplit(url)
    host, port = parts.hostname, parts.port or 2379
    assert host is not None  # the plan accepts no other URL
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Endpoint(f"{parts.scheme}://{name}", host, port, parts.scheme == "https", name)


def tls(target: EtcdTarget, alpn: str | None = None) -> ssl.SSLContext:
    """Return the context that verifies members and shows our certificate. UserError when a file is unusable."""
    for name, path in (("ca", target.ca), ("cert", target.cert), ("key", target.key)):
        if path is not None:
            read_text(f"target.{name}", path, "a PEM file", private=name == "key")
    try:
        context = ssl.create_default_context(cafile=str(target.ca) if target.ca else None)
    except ssl.SSLError:
        raise UserError("target.ca", str(target.ca), "a PEM file with certificates") from None
    if target.cert is not None and target.key is not None:
        try:
            # Without an explicit password, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(target.cert, target.key, password=b"")
        except ssl.SSLError as problem:
            mismatch = "KEY_VALUES_MISMATCH" in (problem.reason or "")
            accepted = "the key of target.cert" if mismatch else "PEM files, the key without a password"
            raise UserError("target.cert/target.key", f"{target.cert}, {target.key}", accepted) from None
    if alpn is not None:
        context.set_alpn_protocols([alpn])
    return context


def _credentials(path: Path | None) -> Credentials | None:
    if path is None:
        return None
    accepted = "a YAML file with `username` and `password`"
    known = read_yaml("target.credentials", path, accepted, private=True)
    username, password = known.get("username"), known.get("password")
    if not isinstance(username, str) or not isinstance(password, str) or len(known) != 2 or not username:
        raise UserError("target.credentials", str(path), f"{accepted}, both of them text, and nothing else")
    return Credentials(username, password)
