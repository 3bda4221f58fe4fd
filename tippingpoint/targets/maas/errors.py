"""The meaning of MAAS's errors: texts, or lists of texts by field, with a status of HTTP."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any, cast

import orjson

from tippingpoint.errors import one_line
from tippingpoint.workloads.spawn.target import Exists, Gone, SpawnFailed, Trouble

_MAC = re.compile(r"\b[0-9a-f]{2}(?::[0-9a-f]{2}){5}\b", re.IGNORECASE)
_MACHINE = re.compile(r"(?<=/)[0-9a-z]{6}(?=/)")
"""A machine's system_id in a path."""
_IN_USE = re.compile(r"already in use(?: on (?P<name>[\w.-]*\w))?")

# The first match counts, ignoring case. The texts are MAAS's own, or those of its database (PostgreSQL).
_TROUBLES: tuple[tuple[Trouble, tuple[str, ...]], ...] = (
    ("locked", ("could not serialize access", "deadlock detected", "lock timeout")),
    ("image", ("is not a supported operating system",)),
    ("full", ("no more ips", "not enough", "overcommit ratio")),
    (
        "unreachable",
        (
            "unable to connect to any rack controller",
            "no rack controllers can access",
            "no connections available",
            "operating system ubuntu",  # "... is unavailable": no rack controller is connected that has the image
            "failed talking to pod",
            "could not connect",
            "connection refused",
            "server closed the connection",
        ),
    ),
    ("busy", ("already in progress",)),
    ("timeout", ("timed out", "timeout")),
)

# The meaning of codes when no text matches.
_BY_CODE: dict[int, Trouble] = {
    HTTPStatus.BAD_REQUEST: "setting",
    HTTPStatus.UNAUTHORIZED: "trust",
    HTTPStatus.FORBIDDEN: "trust",
    HTTPStatus.CONFLICT: "busy",
    HTTPStatus.BAD_GATEWAY: "unreachable",
    HTTPStatus.SERVICE_UNAVAILABLE: "unreachable",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout",
}


class MaasError(SpawnFailed):
    """A call that failed, in MAAS or on the way to it. `code` is the answer's (HTTP), or 0 without an answer."""

    def __init__(self, message: str, kind: Trouble = "other", code: int = 0) -> None:
        self.code = code
        super().__init__(one_line(message), kind)


class MaasGone(MaasError, Gone):
    """The machine, or what else the call was about, does not exist."""


class MaasExists(MaasError, Exists):
    """A machine with one of these MAC addresses exists already. `name` is its hostname, or empty."""

    def __init__(self, message: str, code: int, name: str) -> None:
        self.name = name
        super().__init__(message, "busy", code)


def maas_error(what: str, content: bytes, code: int) -> MaasError:
    """Return the error for an answer to a call (`what`, such as "POST machines/") in MAAS's words."""
    said = _said(content)
    # Addresses and ids differ from machine to machine: without them all failures of one cause have the same text.
    what = alike(what)
    message = f"{what}: {_MAC.sub('MAC', said) or 'no message'} (HTTP {code})"
    if code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return MaasGone(message, code=code)
    if code == HTTPStatus.BAD_REQUEST and (found := _IN_USE.search(said)):
        shown = _IN_USE.sub("already in use on another machine", _MAC.sub("MAC", said))
        return MaasExists(f"{what}: {shown} (HTTP {code})", code, found["name"] or "")
    return MaasError(message, trouble_of(message, code), code)


def trouble_of(message: str, code: int = 0) -> Trouble:
    """Return the kind of failure that a text of MAAS's indicates, or else its code."""
    text = message.lower()
    for kind, signs in _TROUBLES:
        if any(sign in text for sign in signs):
            return kind
    return _BY_CODE.get(code, "other")


def alike(path: str) -> str:
    """Return the path of a call without the id of a machine."""
    return _MACHINE.sub("ID", path)


def is_page(content: bytes) -> bool:
    """Whether an answer is a page for people, as proxies and wrong addresses return."""
    return content.lstrip()[:1] == b"<"


def _said(content: bytes) -> str:
    """Return the message in the body of an error, or an empty text. It is JSON, `{field: [text]}`, or a text."""
    if is_page(content):
        return "an HTML page"
    try:
        found: object = orjson.loads(content)
    except orjson.JSONDecodeError:
        return one_line(content[:4000].decode(errors="replace"))
    if isinstance(found, dict):
        return "; ".join(
            text if name == "__all__" else f"{name}: {text}"
            for name, value in cast("dict[str, Any]", found).items()
            for text in [
                ", ".join(map(str, cast("list[Any]", value))) if isinstance(value, list) else str(value)
            ]
        )
    return one_line(str(found))
