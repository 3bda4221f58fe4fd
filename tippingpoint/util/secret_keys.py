"""The keys that a reader expects in a Juju secret."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

_KEY = re.compile(r"[a-z](?:-?[a-z0-9]){2,}")
"""The keys that Juju accepts (core/secrets/createdata.go)."""


@dataclass(frozen=True)
class Keys:
    """The keys of a secret: all of the required ones and any of the optional ones."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refused = [key for key in (*self.required, *self.optional) if not _KEY.fullmatch(key)]
        if refused:
            raise ValueError(f"{refused[0]}: expected a key that Juju takes: {_KEY.pattern}")

    def fit(self, given: Collection[str]) -> bool:
        """Return whether a secret with these keys is acceptable."""
        return set(self.required) <= set(given) <= {*self.required, *self.optional}

    def __str__(self) -> str:
        more = f" (and {', '.join(self.optional)})" if self.optional else ""
        return ", ".join(self.required) + more
