"""How to reach a Juju controller, read from a secret. A unit's own controller needs no addresses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import yaml

from tippingpoint.targets.juju.plan import JujuTarget
from tippingpoint.targets.secret import PLACE, Reached, Secret
from tippingpoint.util.secret_keys import Keys
from tippingpoint.util.text import listed


class JujuSecret(Secret[JujuTarget]):
    """A user's name and password, and the controller's addresses and CA certificate."""

    ways = (Keys(("user", "password"), ("addresses", "cacert")),)
    example = "user=NAME password#file=FILE"
    names: ClassVar = {"`ca` or `ca-file`": "`cacert`"}

    def reached(self, content: Mapping[str, str], units: int) -> Reached:
        addresses = listed(content["addresses"])
        login = {"user": content["user"], "password": content["password"]}
        text = yaml.safe_dump({"addresses": addresses, "ca": content["cacert"], **login})
        return Reached(
            {"credentials": f"{PLACE}/juju.yaml"}, {"juju.yaml": text}, addresses[0] if addresses else ""
        )

    def read(self, section: JujuTarget, files: Mapping[str, Path]) -> None:
        from tippingpoint.targets.juju.api.access import from_file

        assert section.credentials is not None
        from_file(section.credentials)


SECRET = JujuSecret()
