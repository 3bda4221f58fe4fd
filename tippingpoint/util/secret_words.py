"""Recognizes names of secret values, so that no message shows the values."""

from __future__ import annotations

import re

NOT_SHOWN = "(not shown)"
_WORDS = (
    "passw|passphrase|passcode|pwd|secret|token|bearer|private|(?<![a-z])pass(?![a-z])|"
    "(?<![a-z])(?:access|api|client|server|ssh|tls)?key(?![a-z])"
)
_NAME = re.compile(_WORDS, re.IGNORECASE)
_VALUE = re.compile(
    rf"""((?:{_WORDS})[\w-]*["']?(?:\s*[:=]\s*|\s+)).+""",
    re.IGNORECASE | re.DOTALL,
)


def is_secret(name: str) -> bool:
    """Return whether the value of a field or option of this name may be a password, a token or a key."""
    return _NAME.search(name) is not None


def without_secrets(text: str) -> str:
    """Return what a user wrote, up to the first secret value in it: `target.password=(not shown)`."""
    return _VALUE.sub(rf"\1{NOT_SHOWN}", text)
