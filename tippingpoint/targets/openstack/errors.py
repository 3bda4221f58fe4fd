"""The meaning of OpenStack's errors: each service has its own format for them, and servers have faults."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from tippingpoint.errors import Limited, one_line
from tippingpoint.workloads.spawn.target import Exists, Gone, SpawnFailed, Trouble

_IDENTITY = re.compile(r"\b[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\b")
_REQUEST = re.compile(r"\(?HTTP \d+\)? ?\(Request-ID: [^)]{0,200}\)|\(?Request-ID: [^)\s]*\)?|\breq-ID\b")

# The first match counts, ignoring case. The texts are those of nova, neutron, keystone or glance (Zed), or of their
# libraries and database: oslo.messaging, oslo.db, MariaDB.
_TROUBLES: tuple[tuple[Trouble, tuple[str, ...]], ...] = (
    ("locked", ("deadlock", "lock wait timeout")),
    (
        "quota",
        (
            "quota exceeded",
            "quota limit",
            "overquota",
            "portlimitexceeded",
            "maximum number of ports exceeded",
            "exceeds quota",
        ),
    ),
    ("full", ("no valid host was found", "no more ip addresses", "no free port", "allocation candidates")),
    (
        "image",
        ("image is not active", "can not find requested image", "image not found", "unable to find image"),
    ),
    ("quorum", ("galera", "wsrep", "has not yet prepared node for application use")),
    (
        "timeout",
        ("messagingtimeout", "timed out waiting for a reply", "gateway timeout", "timed out", "timeout"),
    ),
    (
        "unreachable",
        (
            "messagedeliveryfailure",
            "messageundeliverable",
            "amqp",
            "connection refused",
            "connection reset",
            "lost connection",
            "can't connect",
            "connectfailure",
            "unable to establish connection",
            "service is unavailable",
            "service unavailable",
        ),
    ),
    ("busy", ("while it is in vm_state", "while it is in task_state", "concurrent")),
)

# The meaning of codes when no text matches.
_BY_CODE: dict[int, Trouble] = {
    400: "setting",
    401: "trust",
    403: "trust",
    409: "busy",
    413: "quota",
    502: "unreachable",
    503: "unreachable",
    504: "timeout",
}
NOT_FOUND = 404
CONFLICT = 409
FORBIDDEN = 403
UNAUTHORIZED = 401


class OpenstackError(SpawnFailed):
    """A call that failed, in OpenStack or on the way to it. `code` is the answer's (HTTP), or 0 without an answer."""

    def __init__(self, message: str, kind: Trouble = "other", code: int = 0) -> None:
        self.code = code
        super().__init__(_alike(message), kind)


class OpenstackGone(OpenstackError, Gone):
    """The object of the call does not exist."""


class OpenstackExists(OpenstackError, Exists):
    """The object already exists."""


class OpenstackMissing(OpenstackError):
    """The catalogue has no such service for this user."""


class OpenstackLimited(Limited):
    """A rate limit refused the call. The requested pause is over."""


def openstack_error(what: str, content: object, code: int) -> OpenstackError:
    """Return the error for an answer to a call (`what`, such as "POST compute /servers") in the service's words."""
    message = f"{what}: {_said(content) or 'no message'} (HTTP {code})"
    if code == NOT_FOUND:
        return OpenstackGone(message, code=code)
    return OpenstackError(message, trouble_of(message, code), code)


def trouble_of(message: str, code: int = 0) -> Trouble:
    """Return the kind of failure that a text indicates, or else its code."""
    text = message.lower()
    for kind, signs in _TROUBLES:
        if any(sign in text for sign in signs):
            return kind
    return _BY_CODE.get(code, "other")


def fault_of(server: Mapping[str, Any]) -> OpenstackError | None:
    """Return why a server could not be built, in nova's words, with the same text for all failures of one cause. None
    if nova does not report it (yet): a server is in ERROR a moment before its fault is shown."""
    fault = server.get("fault")
    said = cast("dict[str, Any]", fault).get("message") if isinstance(fault, dict) else None
    if not isinstance(said, str) or not said.strip():
        return None
    message = _alike(said)
    return OpenstackError(message, trouble_of(message))


def untold() -> OpenstackError:
    """Return the failure of a server for which nova reports no fault."""
    return OpenstackError("in ERROR, without a fault")


def _alike(text: str) -> str:
    """Return a text as one line, without its varying parts: the ids of things and requests."""
    return one_line(_REQUEST.sub("", _IDENTITY.sub("ID", text)))


def _said(content: object) -> str:
    """Return the message in an error's body, or an empty text.

    The formats are {"badRequest": {"message"}}, {"NeutronError": {"type", "message"}}, {"error": {"message"}} and
    {"errors": [{"detail"}]}.
    """
    match content:
        case {"errors": [{"detail": str(detail)}]}:
            return detail
        case {"message": str(message)}:
            return message
        case dict():
            for value in cast("dict[str, Any]", content).values():
                match value:
                    case {"message": str(message), "type": str(kind)}:
                        return f"{kind}: {message}"
                    case {"message": str(message)}:
                        return message
                    case str(message) if message:
                        return message
                    case _:
                        pass
            return ""
        case _:
            return ""
