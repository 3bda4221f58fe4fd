"""How to reach an LXD, read from a Juju secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import yaml

from tippingpoint.errors import UserError
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.secret import PLACE, Reached, Secret
from tippingpoint.util.secret_keys import Keys

_KEYS = ("addresses", "certificate", "client-certificate", "client-key")


class LxdSecret(Secret[LxdTarget]):
    """A trust token; or a trusted client certificate, and the server's own."""

    ways = (Keys(("token",)), Keys(_KEYS))
    example = "token#file=FILE (of lxc config trust add)"
    names: ClassVar = {"client_certificate": "client-certificate", "client_key": "client-key"}

    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        if "token" not in content:
            text = yaml.safe_dump({key.replace("-", "_"): content[key] for key in _KEYS})
            address = content["addresses"].partition(",")[0].strip()
            return Reached({"credentials": f"{PLACE}/lxd.yaml"}, {"lxd.yaml": text}, address)
        if units > 1:
            raise UserError(
                "token",
                "",
                "a single unit, as a token serves one unit only: give addresses, certificate, client-certificate and "
                "client-key instead",
            )
        return Reached({"token": f"{PLACE}/lxd.token"}, {"lxd.token": content["token"]})

    def read(self, section: LxdTarget, files: Mapping[str, Path]) -> None:
        if section.token is not None:
            from tippingpoint.targets.lxd.trust import read_token

            read_token(section.token.read_text())
        else:
            from tippingpoint.targets.lxd.access import from_file

            assert section.credentials is not None
            from_file(section.credentials)


SECRET = LxdSecret()
