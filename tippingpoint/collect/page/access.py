"""Access to the page: by its token, with each request or once in the login form."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.util.secret_files import read_text

SHORTEST_TOKEN = 16
"""Characters. Guessing locks nobody out, so that nobody can lock others out; the length makes it hopeless."""
LONGEST_TOKEN = 1000
SESSION = 12 * 3600
"""Seconds that a login lasts."""


def checked_token(place: str, token: str) -> str:
    """Return the token without surrounding space; raises UserError, which does not show it, if it is unusable."""
    token = token.strip()
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or not token.isascii() or not token.isprintable():
        raise UserError(
            place, "(not shown)", f"{SHORTEST_TOKEN} to {LONGEST_TOKEN} characters of printable ASCII"
        )
    return token


def read_token(place: str, path: Path) -> str:
    """Return the token in a file; raises UserError, also if others than its owner can read the file."""
    return checked_token(place, read_secret(place, path, "a file with the page's token"))


def read_secret(place: str, path: Path, accepted: str) -> str:
    """Return the content of a file that only its owner can read; raises UserError if others can.

    systemd protects the credentials that it provides. They belong to root, and the service's user reads them by an
    access list, which looks like a right of the group (systemd's exec-credential.c).
    """
    handed_over = path.parent == Path(os.environ.get("CREDENTIALS_DIRECTORY", "/dev/null"))
    return read_text(place, path, accepted, private=not handed_over)


class PageAccess:
    """Checks tokens and logins.

    A login is a mark that only this process can make, with the time when it ends. A new token or a restart ends all
    logins.
    """

    def __init__(self, token: str) -> None:
        self._token = _digest(token)
        self._key = secrets.token_bytes(32)

    def is_token(self, given: str) -> bool:
        """Return whether this is the token, in constant time."""
        return hmac.compare_digest(_digest(given), self._token)

    def is_bearer(self, authorization: str) -> bool:
        """Return whether a request's Authorization has the token."""
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and self.is_token(given.strip())

    def login(self, now: float) -> str:
        """Return the mark of a login that begins now (seconds since the epoch)."""
        ends = str(int(now) + SESSION)
        return f"{ends}.{self._mark(ends)}"

    def is_login(self, text: str, now: float) -> bool:
        """Return whether this is the mark of a login that has not ended."""
        ends, _, mark = text.partition(".")
        genuine = hmac.compare_digest(self._mark(ends).encode(), mark.encode(errors="replace"))
        return genuine and now < int(ends)

    def _mark(self, ends: str) -> str:
        return hmac.new(self._key, ends.encode(errors="replace"), hashlib.sha256).hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
