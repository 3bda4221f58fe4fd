"""The meaning of LXD's errors. LXD reports causes by text, and only in part by code."""

from __future__ import annotations

from tippingpoint.errors import one_line
from tippingpoint.workloads.spawn.target import Exists, Gone, SpawnFailed, Trouble

_RESTRICTED = "certificate is restricted"

# The first match counts, ignoring case. The texts are LXD's own (lxd/, 5.0.2), or those of its libraries and
# environment: go-dqlite, SQLite, Go's net and x509, errno, the file systems of its pools.
_TROUBLES: tuple[tuple[Trouble, tuple[str, ...]], ...] = (
    (
        "locked",
        (
            "database is locked",
            "database table is locked",
            "checkpoint in progress",
            "cannot start a transaction within a transaction",
            "bad connection",
        ),
    ),
    (
        "quorum",
        (
            "no available dqlite leader",
            "failed to begin transaction",
            "failed to create dqlite connection",
            "not leader",
            "disk i/o error",  # go-dqlite's, from a leader that was replaced
            "raft cluster is unavailable",
            "cluster unavailable",
            "failed to connect to cluster leader",
        ),
    ),
    (
        "full",
        (
            "no space left on device",
            "run out of disk space",
            "disk quota exceeded",
            "database or disk is full",
            "out of space",
            "insufficient free space",
        ),
    ),
    ("busy", ("instance is busy running", "a matching non-reusable operation")),
    ("quota", ("reached maximum",)),
    ("trust", (_RESTRICTED, "not authorized", "does not have permission", "x509: ", "token has expired")),
    (
        "unreachable",
        (
            "missing event connection",
            "unable to connect to",
            "failed to connect to",
            "failed connecting to",
            "is shutting down",
            "setup in progress",
            "is offline",
            "currently offline",
            "connection refused",
            "connection reset",
            "broken pipe",
            "no route to host",
            ": eof",
            "unexpected eof",
            "unavailable",
        ),
    ),
    ("timeout", ("context deadline exceeded", "i/o timeout", "timed out", "tls handshake timeout")),
    ("image", ("image not found", "image alias not found", "image source not found", "image not provided")),
    (
        "setting",
        (
            "unknown configuration key",
            "invalid project configuration",
            "invalid config",
            "invalid devices",
            "invalid value",
            "invalid instance name",
            "storage pool not found",
            "network not found",
        ),
    ),
)

# The meaning of codes when no text matches.
_BY_CODE: dict[int, Trouble] = {403: "trust", 502: "unreachable", 503: "unreachable", 504: "timeout"}


class LxdError(SpawnFailed):
    """A call that failed, in LXD or on the way to it. `code` is LXD's (as HTTP's: 404, 500), or 0 without one."""

    def __init__(self, message: str, kind: Trouble = "other", code: int = 0) -> None:
        self.code = code
        super().__init__(one_line(message), kind)


class LxdGone(LxdError, Gone):
    """The instance does not exist."""


class LxdExists(LxdError, Exists):
    """An instance of this name already exists."""


def lxd_error(message: str, code: int) -> LxdError:
    """Return the error for an answer of LXD: LxdGone, LxdExists, or LxdError with a kind read from the text.

    Incus (seen with 6.0.4) refuses a certificate that is restricted to projects to list storage pools, with the code
    500. Its error has the code 403 here, like every other refusal.
    """
    text = message.lower()
    if _RESTRICTED in text:
        code = 403
    for kind, signs in _TROUBLES:
        if any(sign in text for sign in signs):
            return LxdError(message, kind, code)
    if "instance not found" in text:
        return LxdGone(message, code=code)
    if "already exists" in text or "unique constraint" in text:
        return LxdExists(message, code=code)
    return LxdError(message, _BY_CODE.get(code, "other"), code)
