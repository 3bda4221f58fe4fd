"""Secrets that an operator made and configuration names: what is in them is shown nowhere."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

import ops

from tippingpoint_charm.relations.databag import NotThere

_KEY = re.compile(r"[a-z](?:-?[a-z0-9]){2,}")
"""A key of a secret: Juju's core/secrets/createdata.go."""


@dataclass(frozen=True)
class Keys:
    """The keys of a secret: all of the required ones, and any of the optional ones."""

    required: tuple[str, ...]
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        refused = [key for key in (*self.required, *self.optional) if not _KEY.fullmatch(key)]
        if refused:
            raise ValueError(f"{refused[0]}: expected a key that Juju takes: {_KEY.pattern}")

    def fit(self, given: Collection[str]) -> bool:
        """Whether a secret with these keys is one that is meant."""
        return set(self.required) <= set(given) <= {*self.required, *self.optional}

    def __str__(self) -> str:
        more = f" (and {', '.join(self.optional)})" if self.optional else ""
        return ", ".join(self.required) + more


def read_secret(charm: ops.CharmBase, option: str, *ways: Keys) -> dict[str, str] | None:
    """The newest content of the secret that a configuration option names; None when it names none.

    NotThere where it cannot be read, or does not have the keys of one of these ways.
    """
    given = read_any_secret(charm, option)
    if given is not None and not any(way.fit(given) for way in ways):
        raise NotThere(f"{option}: expected a secret with {'; or '.join(map(str, ways))}; and nothing else")
    return given


def read_any_secret(charm: ops.CharmBase, option: str) -> dict[str, str] | None:
    """The same, whatever keys it has."""
    uri = charm.config.get(option)
    if not isinstance(uri, str) or not uri:
        return None
    try:
        content = charm.model.get_secret(id=uri).get_content(refresh=True)
    except (ops.ModelError, ValueError):  # not granted, removed, or no id of a secret
        name = uri if uri.startswith("secret:") and len(uri) < 80 and uri.isprintable() else "secret:ID"
        raise NotThere(
            f"{option}: {name}: expected a secret that is granted: juju grant-secret {name} {charm.app.name}"
        ) from None
    given = {key: text for key, text in content.items() if text.strip()}
    return {key: text if key == "password" else text.strip() for key, text in given.items()}


def how_to_add(charm: ops.CharmBase, option: str, content: str, name: str = "tippingpoint") -> str:
    """The commands that give us a secret with this content, by this name."""
    app = charm.app.name
    return (
        f"add a secret: juju add-secret {name} {content}, juju grant-secret {name} {app}, "
        f"juju config {app} {option}=secret:ID"
    )
