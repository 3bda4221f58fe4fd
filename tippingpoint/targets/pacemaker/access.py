"""Access to a Pacemaker: addresses, password and TLS, and the meaning of a refusal."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, cast

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.pacemaker.connection import LoginRefused
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.util.certificates import certificate_fault, load_pair
from tippingpoint.util.network_errors import CLOSED, in_words
from tippingpoint.util.secret_files import read_yaml

PORT = 9898
"""The port that Pacemaker's documents use for `remote-tls-port`; a cluster has none unless it is set."""
LOGIN_WITHIN = 15.0
"""Seconds a node has to let us in. A wrong password takes PAM's `login` service up to 4 s."""
_ACCEPTED = (
    "a YAML file with `addresses`, `user`, `password`, perhaps `port`, `remotes`, `ca`, `cert`, `key` (PEM)"
)
_TEXTS = ("user", "password", "ca", "cert", "key")


@dataclass(frozen=True)
class PacemakerAccess:
    """A plan's target with its file read and checked. No connection has been made yet."""

    addresses: list[str]
    port: int
    user: str
    password: str = field(repr=False)
    tls: ssl.SSLContext
    remotes: list[str] = field(default_factory=list[str])
    """Addresses at which a pacemaker_remote waits for a cluster."""


def access(target: PacemakerTarget) -> PacemakerAccess:
    """Read the file that a target names. UserError when it is unusable, or when its TLS would be anonymous although the
    plan does not allow that."""
    if target.credentials is None:
        raise UserError("target.credentials", "none", _ACCEPTED)
    known = read_yaml("target.credentials", target.credentials, _ACCEPTED, private=True)
    addresses, port = known.get("addresses"), known.get("port", PORT)
    remotes = known.get("remotes", [])
    texts = {name: known[name] for name in _TEXTS if name in known}
    whole = (
        isinstance(addresses, list)
        and bool(cast("list[Any]", addresses))
        and all(isinstance(address, str) and address for address in cast("list[Any]", addresses))
        and isinstance(remotes, list)
        and all(isinstance(address, str) and address for address in cast("list[Any]", remotes))
        and isinstance(port, int)
        and 0 < port < 65536
        and all(isinstance(text, str) and text for text in texts.values())
        and {"user", "password"} <= texts.keys()
        and not known.keys() - {"addresses", "port", "remotes", *_TEXTS}
    )
    if not whole:
        raise UserError("target.credentials", str(target.credentials), _ACCEPTED)
    tls = _tls(target, {name: texts[name] for name in ("ca", "cert", "key") if name in texts})
    return PacemakerAccess(
        cast("list[str]", addresses),
        cast(int, port),
        texts["user"],
        texts["password"],
        tls,
        cast("list[str]", remotes),
    )


def refusal(address: str, error: BaseException) -> TargetError | None:
    """Return the TargetError for a failed log-in that a changed plan can fix; None for other failures."""
    problem = in_words(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        fault = certificate_fault(error)
        return TargetError("target.credentials", f"{address}: {fault.said}", fault.accepted, refused=True)
    if isinstance(error, ssl.SSLError):
        return TargetError(
            "target.tls",
            f"{address}: {problem}",
            "`anonymous` for a cluster without certificates, `verified` and `ca`, `cert`, `key` for one with them",
            refused=True,
        )
    if isinstance(error, LoginRefused) and problem == CLOSED:
        # The daemon gives no reason: a wrong password, a user that is not in the group haclient, no such user.
        return TargetError(
            "target.credentials",
            f"{address}: refused",
            "the password of a user in the cluster's group haclient (hacluster)",
            refused=True,
        )
    return None


def _tls(target: PacemakerTarget, texts: dict[str, str]) -> ssl.SSLContext:
    if target.tls == "anonymous":
        if texts:
            raise UserError("target.tls", "anonymous", "verified, as the credentials have certificates")
        return _anonymous()
    if "ca" not in texts:
        raise UserError(
            "target.tls",
            "verified, and the credentials have no `ca`",
            "a `ca`, or tls: anonymous (on a private network: a man in the middle can read the password)",
        )
    if ("cert" in texts) != ("key" in texts):
        raise UserError("target.credentials", "cert or key alone", "both or neither")
    try:
        context = ssl.create_default_context(cadata=texts["ca"])
        if "cert" in texts:
            load_pair(context, texts["cert"], texts["key"])
    except (ssl.SSLError, ValueError):
        raise UserError("target.credentials", "ca, cert, key", "PEM texts that belong together") from None
    return context


def _anonymous() -> ssl.SSLContext:
    """Anonymous Diffie-Hellman, which exists in TLS 1.2 only. OpenSSL's security level 1 and above forbid it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ADH-AES256-GCM-SHA384:ADH-AES128-GCM-SHA256:@SECLEVEL=0")
    return context
