"""Reads secrets that an operator added and that options name. Their content is never shown."""

from __future__ import annotations

import re

import ops

from tippingpoint.util.secret_keys import Keys
from tippingpoint_charm.relations.databag import NotThere

_NAME = re.compile(r"[\w@.+-]{1,16}")
LONGEST_COMMAND = 80
"""The most characters of a command at the beginning of a status, so that the rest stays visible."""


class NotGranted(NotThere):
    """The secret does not seem to be granted. Juju sends no event when it is."""


def read_secret(charm: ops.CharmBase, option: str, *ways: Keys) -> dict[str, str] | None:
    """Return the newest content of the secret that an option names; None if it names none.

    Raises NotGranted if it cannot be read, NotThere if its keys fit none of these ways.
    """
    given = read_any_secret(charm, option)
    if given is not None and not any(way.fit(given) for way in ways):
        raise NotThere(f"{option}: expected a secret with {'; or '.join(map(str, ways))}; and nothing else")
    return given


def read_any_secret(charm: ops.CharmBase, option: str) -> dict[str, str] | None:
    """Return the newest content of the secret that an option names, with any keys; None if it names none.

    Raises NotGranted if it cannot be read.
    """
    uri = charm.config.get(option)
    if not isinstance(uri, str) or not uri:
        return None
    try:
        content = charm.model.get_secret(id=uri).get_content(refresh=True)
    except (ops.ModelError, ValueError):  # not granted, removed, or no id of a secret
        name = uri if uri.startswith("secret:") and len(uri) < 80 and uri.isprintable() else "secret:ID"
        raise NotGranted(
            f"juju grant-secret {name} {charm.app.name}: config {option} names a secret that is not granted"
        ) from None
    given = {key: text for key, text in content.items() if text.strip()}
    return {key: _line(text) if key == "password" else text.strip() for key, text in given.items()}


def _line(text: str) -> str:
    """Remove the newline at the end, which editors and `juju add-secret NAME KEY#file=FILE` leave there."""
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def how_to_add(charm: ops.CharmBase, option: str, content: str, name: str = "tippingpoint") -> str:
    """Return the commands that add, grant and configure a secret. They come first, because Juju cuts statuses."""
    app = charm.app.name
    return (
        f"juju add-secret {name} {content}, juju grant-secret {name} {app}, "
        f"juju config {app} {option}=secret:ID"
    )


def how_to_update(charm: ops.CharmBase, option: str) -> str:
    """Return the command that updates the secret of an option. It lists all keys, because Juju drops others."""
    given = read_any_secret(charm, option) or {}
    keys = " ".join(
        f"{key}={text}" if key in ("user", "username") and _NAME.fullmatch(text) else f"{key}#file=FILE"
        for key, text in given.items()
    )
    whole = f"juju update-secret {charm.config[option]} {keys}"
    return (
        whole
        if len(whole) <= LONGEST_COMMAND
        else f"juju update-secret {charm.config[option]} KEY#file=FILE..."
    )
