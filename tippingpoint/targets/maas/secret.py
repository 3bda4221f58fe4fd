"""How to reach a MAAS, read from a Juju secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tippingpoint.errors import UserError
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.secret import PLACE, Reached, Secret
from tippingpoint.util.in_clear import caution, is_in_clear
from tippingpoint.util.secret_keys import Keys

_NAMES = {"url": "url", "api-key": "api_key", "cacert": "ca", "power": "power"}
"""Keys of a secret, and their names in a file of credentials. Juju accepts no key of two letters."""


class MaasSecret(Secret[MaasTarget]):
    """The region's URL, an API key of an administrator, and its authority (PEM) where it has one of its own.

    `power` has the power parameters that are secrets, as YAML: `power_pass: ...`.
    """

    ways = (Keys(("url", "api-key"), ("cacert", "power")),)
    example = "url=https://HOST:5443/MAAS api-key#file=FILE cacert#file=FILE"
    names: ClassVar = {name: key for key, name in _NAMES.items() if key != name}

    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        from tippingpoint.targets.maas.access import read_access

        known: dict[str, Any] = {name: content[key] for key, name in _NAMES.items() if content.get(key)}
        if "power" in known:
            known["power"] = _mapping(known["power"])
        try:
            found = read_access(known)
        except UserError as problem:
            key = next((key for key, name in _NAMES.items() if name == problem.field), "url")
            raise UserError(key, "", problem.accepted.partition(", in ")[0]) from None
        danger = caution("the API key", "MAAS") if is_in_clear(found.url) else ""
        return Reached(
            {"credentials": f"{PLACE}/maas.yaml"}, {"maas.yaml": yaml.safe_dump(known)}, found.url, danger
        )

    def read(self, section: MaasTarget, files: Mapping[str, Path]) -> None:
        from tippingpoint.targets.maas.access import access

        access(section)


def _mapping(text: str) -> object:
    """Return a YAML text's content, or the text if it is not YAML."""
    try:
        return yaml.safe_load(text)
    except (
        yaml.YAMLError,
        ValueError,
        OverflowError,
        RecursionError,
    ):  # whose messages would quote the secret
        return text


SECRET = MaasSecret()
