"""The keys of a region's users: OAuth 1 with PLAINTEXT signatures, as MAAS's clients send them."""

from __future__ import annotations

import re
import secrets
import time
from collections import deque
from dataclasses import dataclass
from urllib.parse import unquote

from lab.maas.refusal import Refused

_PAIR = re.compile(r'(\w+)="([^"]*)"')
_OLDEST_S = 300
_NONCES = 100_000
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789"


@dataclass(frozen=True)
class Token:
    """One API key. Its text is CONSUMER:TOKEN:SECRET."""

    consumer: str
    key: str
    secret: str
    name: str
    user: str

    @property
    def text(self) -> str:
        """The key as users have it."""
        return f"{self.consumer}:{self.key}:{self.secret}"

    def described(self) -> dict[str, str]:
        """Return it as the region answers a login."""
        return {
            "consumer_key": self.consumer,
            "name": self.name,
            "token_key": self.key,
            "token_secret": self.secret,
        }


class Keys:
    """The API keys that are accepted."""

    def __init__(self) -> None:
        self._tokens: dict[str, Token] = {}
        self._revoked: dict[str, Token] = {}
        self._nonces: set[str] = set()
        self._latest_nonces: deque[str] = deque()

    def make(self, user: str, name: str) -> Token:
        """Make a key of a user."""
        token = Token(_random(18), _random(18), _random(32), name, user)
        self.accept(token)
        return token

    def accept(self, token: Token) -> None:
        """Accept a key from now on."""
        self._tokens[token.key] = token

    def of(self, user: str) -> list[Token]:
        """Return the keys of a user, the oldest first."""
        return [token for token in self._tokens.values() if token.user == user]

    def delete(self, key: str) -> None:
        """Delete a key for good."""
        if self._tokens.pop(key, None) is None:
            raise Refused(404, "No Token matches the given query.")

    def revoke(self) -> None:
        """Refuse every key that there is now, until `restore`."""
        self._revoked |= self._tokens
        self._tokens = {}

    def restore(self) -> None:
        """Accept again what `revoke` refused."""
        self._tokens = self._revoked | self._tokens
        self._revoked = {}

    def user(self, header: str | None) -> str | None:
        """Return the user of an Authorization header; None without one. Raises Refused for a key that is wrong."""
        if header is None or not header.startswith("OAuth"):
            return None
        given = {name: unquote(value) for name, value in _PAIR.findall(header)}
        wanted = ("consumer_key", "token", "signature", "signature_method", "timestamp", "nonce")
        if any(f"oauth_{name}" not in given for name in wanted):
            return None
        token = self._tokens.get(given["oauth_token"])
        if token is None:
            consumers = {known.consumer for known in self._tokens.values()}
            if given["oauth_consumer_key"] not in consumers:
                raise Refused(401, "Authorization Error: Invalid API key.")
            raise Refused(401, f"Authorization Error: {'Invalid access token: ' + given['oauth_token']!r}")
        if given["oauth_consumer_key"] != token.consumer:
            raise Refused(401, "Authorization Error: Invalid API key.")
        expected = f"&{token.secret}"
        if given["oauth_signature_method"] != "PLAINTEXT" or not secrets.compare_digest(
            given["oauth_signature"].encode(), expected.encode()
        ):
            raise Refused(401, "Authorization Error: 'Invalid signature.'")
        self._check_once(given["oauth_nonce"], given["oauth_timestamp"])
        return token.user

    def _check_once(self, nonce: str, timestamp: str) -> None:
        """Raise Refused for a request that is old, or was sent before."""
        if not timestamp.isdigit() or int(timestamp) < time.time() - _OLDEST_S:
            raise Refused(401, f"Authorization Error: {'Expired timestamp: ' + timestamp!r}")
        if nonce in self._nonces:
            raise Refused(401, f"Authorization Error: {'Nonce already used: ' + nonce!r}")
        self._nonces.add(nonce)
        self._latest_nonces.append(nonce)
        if len(self._latest_nonces) > _NONCES:
            self._nonces.discard(self._latest_nonces.popleft())


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))
